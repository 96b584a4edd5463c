"""Dependency parsing: the head and the label of every word."""

from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from hingeline import _checks as checks
from hingeline._checks import Array, require
from hingeline._jit import kernel
from hingeline.core.loop import Reporter
from hingeline.core.primitives import Layout, decode, pad_row
from hingeline.estimators.base import BaseModel, BaseSSVM, share_docs
from hingeline.features import input as reading
from hingeline.features.arcs import ArcFeatures
from hingeline.features.tables import Labels, TokenTable
from hingeline.inference.dependencies import find_best_trees, find_crossing
from hingeline.structures import dependency
from hingeline.structures.dependency import DependencyProblem

#: ``C="scale"`` is this over the number of weights of a labelled arc; chosen on UD English EWT dev.
SCALE = 2.0
#: The distances of :func:`hingeline.structures.dependency.distance_column`.
DISTANCES = ("1", "2", "3", "4", "5–6", "7–10", "> 10")


@kernel
def parse_all(problem: DependencyProblem, order: Array, w: Array, out: Array) -> None:
    """The best trees of some sentences."""
    for i in order:
        lo, hi = problem.offsets[i], problem.offsets[i + 1]
        if hi > lo:
            decode(problem, i, w, 0.0, out[lo:hi])


@kernel
def parse_best(
    problem: DependencyProblem, order: Array, w: Array, ys: Array, values: Array, counts: Array
) -> None:
    """The best trees of some sentences, ``values.shape[1]`` at most; ``ys`` holds them in a row."""
    n = values.shape[1]
    for i in order:
        lo, hi = problem.offsets[i], problem.offsets[i + 1]
        counts[i] = 0
        if hi > lo:
            table = np.empty((hi - lo + 1, hi - lo + 1, problem.n_labels))
            dependency.score_labels(problem, i, w, table)
            rows = ys[n * lo : n * hi].reshape((n, hi - lo))
            counts[i] = find_best_trees(table, problem.projective == 1, rows, values[i])


find_places = kernel(dependency.list_arc)  # where the weights of an arc lie


class ArcWeight(NamedTuple):
    """A feature of a labelled arc."""

    name: str
    kind: str  # "arc" at any distance, "distance" at one like this, or "label"
    weight: float


@share_docs
@dataclass(eq=False, repr=False)
class DependencySSVM(BaseSSVM, BaseModel):
    """Dependency parser: a structured SVM over trees of labelled arcs, solved to a certificate.

    A tree has the score ``Σ_m A(h_m, m) + L(h_m, m)[l_m]`` of its arcs from heads h to words m with
    labels l; features are templates over columns of words, hashed (see
    :mod:`hingeline.structures.dependency`). Training minimises
    ``½‖w‖² + C Σ_i s_i·max_y [l_i(y) − w·Δf_i(y)]₊``. The best tree is found exactly. Exactly one
    word hangs from the root; it gets only labels that such words have in training, and other words
    never get a label that only such words have.

    Parameters
    ----------
    C : float, "scale" or "auto", default="scale"
        Weight of a sentence's slack. ``"scale"`` is 2 over the number of weights of a labelled arc
        (0.02 with the default templates); ``"auto"`` searches around it on a fifth of the
        sentences, held out. ``C_`` is the value used.
    projective : bool, "auto" or "prediction", default="auto"
        True: arcs do not cross (Eisner, O(T³)); False: they may (Chu-Liu and Edmonds, O(T²)).
        ``"auto"``: they may if they do in the training data. ``"prediction"``: they may in
        training but not in predictions, which is best for English and others with few crossings.
    loss : {"labelled", "heads"}, default="labelled"
        What counts as an error: a wrong head or label, or only a wrong head.
    features : ArcFeatures, optional; templates and sizes of tables; a clone of it is fitted

    Attributes
    ----------
    classes_ : ndarray; labels
    encoder_ : ArcFeatures
    projective_ : bool; whether training was over trees without crossing arcs
    below_root_, elsewhere_ : ndarray of bool; the labels allowed below the root, and elsewhere

    Examples
    --------
    >>> from hingeline import DependencySSVM
    >>> X = [[{"form": "dogs", "upos": "NOUN"}, {"form": "bark", "upos": "VERB"}]]
    >>> y = [[(2, "nsubj"), (0, "root")]]
    >>> parser = DependencySSVM(C=1.0, random_state=0).fit(X, y)
    >>> parser.predict(X)
    [[(2, 'nsubj'), (0, 'root')]]
    """

    C: float | str = "scale"
    _: KW_ONLY
    projective: bool | str = "auto"
    loss: str = "labelled"
    features: Any = None

    _compile = staticmethod(dependency.compile_problem)

    def _check_values(self) -> None:
        super()._check_values()
        checks.one_of("loss", self.loss, ("labelled", "heads"))
        known = (True, False, "auto", "prediction")
        what = "projective must be True, False, 'auto' or 'prediction'"
        require(self.projective in known, f"{what}, got {self.projective!r}.")
        fine = isinstance(self.features, (type(None), ArcFeatures))
        what = f"features must be an ArcFeatures, got {type(self.features).__name__}"
        require(fine, f"{what}: write hingeline.features.ArcFeatures(…).", TypeError)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on sentences and their trees.

        Parameters
        ----------
        X : TokenTable or list of sentences
            A sentence is a list of words: dicts of columns (``form``, ``upos``, …), tuples of them
            (see ``columns`` of :class:`hingeline.features.ArcFeatures`), or forms alone.
        y : list of trees: for every word a pair (head, label); word 1 is the first, 0 the root
        sample_weight : array-like, one per sentence, optional; 0 drops it
        """
        self.check_parameters()
        encoder = ArcFeatures() if self.features is None else clone(self.features)
        table = encoder.read(X)
        heads, flat = read_trees(y, table.offsets)
        crossing = int(find_crossing(heads, table.offsets))
        free = crossing >= 0 if isinstance(self.projective, str) else not self.projective
        what = f"the tree y[{crossing}] has crossing arcs, which projective=True forbids"
        require(crossing < 0 or free, f"{what}: leave it out, or pass 'prediction' or False.")
        weights = checks.check_sample_weight(sample_weight, len(table))
        self.projective_ = not free
        self.classes_, labels = reading.find_classes(flat, table.offsets)
        n_labels = len(self.classes_)
        top = np.bincount(labels[heads == 0], minlength=n_labels) > 0
        other = np.bincount(labels[heads > 0], minlength=n_labels) > 0
        self.below_root_, self.elsewhere_ = top, other | ~other.any()
        with Reporter(type(self).__name__, self.verbose).during("encoding"):
            self.encoder_ = encoder.fit(table)
            values = (heads * n_labels + labels).astype(np.int32)
            problem = self._pose(table, values, self.projective_)
        self.n_features_in_ = len(self.encoder_.arcs_) + len(self.encoder_.labels_)
        self._fit_problem(problem, weights)
        return self

    def _pose(self, table: Any, labels: Array, projective: bool) -> DependencyProblem:
        """The problem of these sentences."""
        codes = self.encoder_.transform(table)
        n_labels = len(self.classes_)
        barred = np.zeros((2, pad_row(n_labels)))
        barred[0, :n_labels][~self.below_root_] = -np.inf
        barred[1, :n_labels][~self.elsewhere_] = -np.inf
        sizes: Any = {"n_labels": n_labels, "stride": pad_row(n_labels)}
        sizes |= {"projective": int(projective), "labelled": int(self.loss == "labelled")}
        bits = self.encoder_.arc_bits_, self.encoder_.label_bits_
        sizes["arc_shift"], sizes["label_shift"] = 32 - bits[0], 32 - bits[1]
        return DependencyProblem(**codes._asdict(), labels=labels, barred=barred, **sizes)

    def _scaled_C(self, problem: Any, weights: Array) -> float:
        return SCALE / (2 * problem.n_arc + dependency.count_label_rows(problem))

    @property
    def _layout(self) -> Layout:
        encoder = self.encoder_
        return dependency.layout(encoder.arc_bits_, encoder.label_bits_, len(self.classes_))

    def predict(self, X: Any) -> list[list[tuple[int, Any]]]:
        """The best tree of every sentence: (head, label) for every word, 0 being the root."""
        problem = self._prepare(X)
        found = np.empty(problem.offsets[-1], dtype=np.int32)
        self._over(parse_all, problem, found)
        words = self._words(found)
        return Labels(words[lo:hi] for lo, hi in pairwise(problem.offsets.tolist()))

    def _prepare(self, X: Any) -> DependencyProblem:
        """New sentences as the kernels of prediction want them."""
        check_is_fitted(self, "weights_")
        table = self.encoder_.read(X, empty=True)
        projective = self.projective_ if self.projective == "auto" else bool(self.projective)
        return self._pose(table, np.zeros(table.n_tokens, dtype=np.int32), projective)

    def _words(self, found: Array) -> list[tuple[int, Any]]:
        heads, labels = np.divmod(found, len(self.classes_))
        return list(zip(heads.tolist(), self.classes_[labels].tolist(), strict=True))

    def predict_nbest(self, X: Any, n: int) -> list[list[tuple[list[tuple[int, Any]], float]]]:
        """The n best trees of every sentence with their scores, best first, exactly.

        A sentence with fewer trees gives all of them, one without words none. Each tree costs as
        much as parsing the sentence once per word; memory grows with T² times the labels.
        """
        best = self._n_best(parse_best, self._prepare(X), n)
        return [list(zip(map(self._words, rows), scores, strict=True)) for rows, scores in best]

    def predict_margin(self, X: Any) -> Array:
        """Lead of the best tree over the second best, per sentence; inf if there is only one."""
        best = self.predict_nbest(X, 2)
        return np.array([b[0][1] - b[1][1] if len(b) > 1 else np.inf for b in best])

    def arc_weights(self, sentence: Any, word: int, head: int, label: Any) -> list[ArcWeight]:
        """The features of one labelled arc and their weights, whose sum is the arc's score.

        Parameters
        ----------
        sentence : one sentence, as :meth:`predict` takes them; or a table of one
        word, head : int; from 1 on, 0 is the root
        label : one of ``classes_``
        """
        check_is_fitted(self, "weights_")
        table = self.encoder_.read(sentence if isinstance(sentence, TokenTable) else [sentence])
        fine = 1 <= word <= table.n_tokens >= head >= 0 and word != head
        what = f"there is no arc from {head} to {word} in a sentence of {table.n_tokens} words"
        require(fine, f"{what}: words count from 1, and 0 is the root.")
        known = self.classes_.tolist()
        require(label in known, f"there is no label {label!r}: see classes_.")
        problem = self._prepare(table)
        places = np.empty(dependency.most_places(problem), dtype=np.int64)
        n = int(find_places(problem, 0, word, head, places))
        arcs, labels = self.encoder_.describe(table, word, head)
        distance = DISTANCES[dependency.distance_column(abs(head - word)) - 1]
        side = "left" if head < word else "right"  # of the head
        found = []
        for k, name in enumerate(arcs):
            whole, at = f"{name} ({side})", places[2 * k : 2 * k + 2]
            found.append((whole, "arc", at[0]))
            found.append((f"{whole} distance {distance}", "distance", at[1]))
        for at, name in zip(places[n:] + known.index(label), labels, strict=False):
            found.append((f"{name} ({side}) {label}", "label", at))
        return [ArcWeight(name, kind, float(self.weights_[at])) for name, kind, at in found]

    def _compare_best(self, X: Any, against: Any = None) -> tuple[Any, ...]:
        """The best tree of one sentence and another, by default the second best; for ``explain``.

        Both trees, their scores, and the features of arcs that they do not share: position, kind,
        name, the arcs compared, 1 or −1, and weight.
        """
        check_is_fitted(self, "weights_")
        x = self.encoder_.read(X)
        best = self.predict_nbest(x, 2)[0]
        require(against is not None or len(best) == 2, "the sentence has only one tree.")
        chosen, other = best[0][0], best[1][0] if against is None else [*map(tuple, against)]
        what = f"against has {len(other)} words and the sentence {len(chosen)}"
        require(len(other) == len(chosen), f"{what}: give a pair (head, label) for every word.")
        found: list[Any] = []
        for t, arcs in enumerate(zip(chosen, other, strict=True)):
            if arcs[0] == arcs[1]:
                continue
            one, two = (self.arc_weights(x, t + 1, *arc) for arc in arcs)
            shared = {(f.name, f.kind) for f in one} & {(f.name, f.kind) for f in two}
            shown = [f"{head} {label}" for head, label in arcs]
            for sign, features in ((1.0, one), (-1.0, two)):
                own = (f for f in features if (f.name, f.kind) not in shared)
                found += [(t, f.kind, f.name, *shown, sign, f.weight) for f in own]
        margin = sum(sign * weight for *_, sign, weight in found)
        return chosen, other, best[0][1], best[0][1] - margin, found

    def score(self, X: Any, y: Any) -> float:
        """Share of words with the right head and label."""
        predicted = [word for tree in self.predict(X) for word in tree]
        require(predicted, "X has no words: there is nothing to score.")
        heads, labels = read_trees(y, self.encoder_.read(X, empty=True).offsets)
        truth = zip(heads.tolist(), labels, strict=True)
        return float(np.mean([a == b for a, b in zip(predicted, truth, strict=True)]))

    def _fitted_to_json(self, arrays: dict[str, Array]) -> dict[str, Any]:
        places = {"below_root": self.below_root_, "elsewhere": self.elsewhere_}
        return {"projective": self.projective_} | {k: v.tolist() for k, v in places.items()}

    def _fitted_from_json(self, stored: dict[str, Any], arrays: dict[str, Array]) -> None:
        self.projective_ = stored["projective"]
        require(type(self.projective_) is bool, "projective must be true or false")
        for name in ("below_root", "elsewhere"):
            known = stored[name]
            fine = type(known) is list and {*map(type, known)} == {bool} and any(known)
            require(fine and len(known) == len(self.classes_), f"{name} needs an entry per label")
            setattr(self, f"{name}_", np.array(known))


def read_trees(y: Any, offsets: Array) -> tuple[Array, list[Any]]:
    """Heads (1, 2, … within a sentence, 0 for the root) and labels of all words, checked."""
    listed = checks.is_list(y) and hasattr(y, "__len__")
    require(listed, f"y must be a list of trees, got {type(y).__name__}.", TypeError)
    n = len(offsets) - 1
    require(len(y) == n, f"X has {n} sentences and y has {len(y)} trees: they must agree.")
    heads, labels = np.empty(offsets[-1], dtype=np.int64), []
    for i, tree in enumerate(y):
        lo, length = int(offsets[i]), int(offsets[i + 1] - offsets[i])
        if not (checks.is_list(tree) and hasattr(tree, "__len__")):
            raise TypeError(f"y[{i}] is {tree!r:.60}: a tree is a list of (head, label).")
        what = f"y[{i}] has {len(tree)} words and X[{i}] has {length}"
        require(len(tree) == length, f"{what}: give a pair (head, label) for every word.")
        for t, word in enumerate(tree):
            try:
                head, label = word
                fine = 0 <= head <= length and int(head) == head and head != t + 1
            except (TypeError, ValueError):
                what = f"y[{i}][{t}] is {word!r:.60}"
                raise TypeError(f"{what}: it must be a pair (head, label).") from None
            if not fine:
                what = f"y[{i}][{t}] has the head {head!r:.30}, but the sentence has {length} words"
                raise ValueError(f"{what}: a head is 0 or the number of another word, from 1 on.")
            heads[lo + t] = head
            labels.append(label)
    # The heads of heads of heads …: after ⌈log₂ T⌉ steps all are the root, which is node 0.
    above = np.append(0, np.where(heads == 0, 0, heads + np.repeat(offsets[:-1], np.diff(offsets))))
    owner = np.repeat(np.arange(n), np.diff(offsets))
    roots = np.bincount(owner[heads == 0], minlength=n)
    for _ in range(int(np.diff(offsets).max(initial=1)).bit_length()):
        above = above[above]
    for node in np.flatnonzero(above):
        i = int(owner[node - 1])
        what = f"y[{i}] is not a tree: the heads above word {node - offsets[i]} form a loop without"
        raise ValueError(f"{what} the root; correct the heads.")
    for i in np.flatnonzero((roots != 1) & (np.diff(offsets) > 0)).tolist():
        what = f"y[{i}] has {roots[i]} words with the head 0"
        raise ValueError(f"{what}: exactly one must have it; attach the others to that one.")
    return heads, labels
