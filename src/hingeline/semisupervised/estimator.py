"""Sequence labelling from few labels, many unlabelled sequences and what is known of them."""

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from hingeline import _checks as checks
from hingeline._checks import Array, one_of, positive, require, warn
from hingeline.constraints.base import InstanceConstraint
from hingeline.constraints.files import read_rule, write_rule
from hingeline.constraints.penalties import Penalties, as_constraints, learn_constraints
from hingeline.core.blocks import spread
from hingeline.core.primitives import Workers, mean_loss
from hingeline.core.results import list_rows
from hingeline.estimators.allowed import choose_scheme
from hingeline.estimators.base import scale_C
from hingeline.estimators.chain import ChainSSVM
from hingeline.features import input as reading
from hingeline.features.tables import TokenTable, skip_empty
from hingeline.modelfile.estimators import load
from hingeline.semisupervised import annealing
from hingeline.semisupervised.annealing import AnnealingStep, ConstrainedLabels

NO_GAP = (
    "weights and labels together are not a convex problem, which has no certificate; that of the "
    "weights for fixed labels is base_.duality_gap_ after a fit"
)


@dataclass
class PartlyLabelled:
    """Encoded sequences, those with labels first."""

    model: Any  # knows its encoder, classes and scheme by now
    order: Array  # numbers of the sequences as the caller counts them
    first: int  # how many are labelled
    matrix: sp.csr_matrix
    offsets: Array
    labels: Array  # of the labelled tokens
    weights: Array  # of the labelled sequences
    seen: list[list[Any]]  # what constraints see of the sequences

    n = property(lambda self: len(self.order))  # how many there are
    words = property(lambda self: self.seen[self.first :])  # what is seen of unlabelled ones

    def make_problem(self, lo: int, hi: int) -> Any:
        """The sequences ``lo ≤ i < hi``; unlabelled tokens have label 0 for the time being."""
        a, b = int(self.offsets[lo]), int(self.offsets[hi])
        model, known = self.model, self.labels[a:b]
        padded = np.pad(known, (0, b - a - len(known)))
        if isinstance(getattr(model, "class_weight", None), str):
            # Balance what is labelled, not what is to be labelled.
            model, classes = copy(model), model.classes_.tolist()
            found = checks.check_class_weight(model.class_weight, classes, self.labels)
            model.class_weight = dict(zip(classes, found.tolist(), strict=True))
        tokens = model._with_constant(self.matrix[a:b])
        return model._make(tokens, self.offsets[lo : hi + 1] - a, padded)

    def restore_order(self, labels: Array) -> list[Array]:
        """Labels of all sequences in the caller's order, for those of the unlabelled tokens."""
        numbers = np.concatenate([self.labels, labels])
        parts = np.split(self.model.classes_[numbers], self.offsets[1:-1])
        return [parts[place] for place in np.argsort(self.order)]


def prepare(
    model: Any, X: Any, y: Any, lengths: Any, sample_weight: Any, words: Any, classes: Any
) -> PartlyLabelled:
    """Fit the model's encoder on all sequences, find the classes, and put labelled ones first."""
    matrix, offsets, _ = model._learn_tokens(X, lengths)
    known, flat = split_labels(y, offsets, lengths)
    require(flat, "y is None for all sequences: at least one must be labelled.")
    order = np.concatenate([np.flatnonzero(known), np.flatnonzero(~known)])
    first = int(known.sum())
    model.n_features_in_ = matrix.shape[1]
    declared = [] if classes is None else reading.plain_labels(classes)
    model.classes_, labels = reading.find_classes([*declared, *flat])
    labels = labels[len(declared) :]
    sizes = np.diff(offsets)[order]
    rows, inner = spread(offsets[:-1][order], sizes), np.cumsum([0, *sizes], dtype=np.int64)
    model.scheme_ = choose_scheme(model.scheme, model.classes_, labels, inner[: first + 1])
    given = checks.check_sample_weight(sample_weight, len(known))
    weights = given[order[:first]]
    text = "sample_weight is zero for all sequences with labels: nothing is left to begin from."
    require(weights.any(), text)
    seen = find_words(X, words, order, offsets)
    data = PartlyLabelled(model, order, first, matrix[rows], inner, labels, weights, seen)
    if model.C == "scale":  # sequences without labels count as they are
        each = np.repeat(np.where(known, given, 1.0), np.diff(offsets))
        model.C = scale_C(matrix.data, matrix.indptr, False, each)
        model.C *= mean_loss(data.make_problem(0, first), weights)
    return data


def split_labels(y: Any, offsets: Array, lengths: Any) -> tuple[Array, list[Any]]:
    """Which sequences have labels, and the labels of these, one after the other.

    A sequence without labels is None in y, or None for each of its tokens where y is flat.
    """
    rows, sizes = list(y) if checks.is_list(y) else [], np.diff(offsets).tolist()
    cut = lengths is None or all(row is None or checks.is_list(row) for row in rows)
    if cut and len(rows) == len(sizes):
        lengths = None
        y = [[None] * size if row is None else row for row, size in zip(rows, sizes, strict=True)]
    flat = reading.stack_labels(y, offsets, lengths)
    holes = np.array([label is None for label in flat])
    known = ~np.logical_and.reduceat(holes, offsets[:-1])
    for i in np.flatnonzero(known & np.logical_or.reduceat(holes, offsets[:-1])).tolist():
        t = int(np.argmax(holes[offsets[i] :]))
        what = f"y[{i}] has labels for some of its tokens only (none at {t})"
        raise ValueError(f"{what}: give all of them, or None for the sequence.")
    return known, [label for label in flat if label is not None]


def find_words(X: Any, words: Any, chosen: Array, offsets: Array) -> list[list[Any]]:
    """What constraints see of the chosen sequences: the words given, or those in X.

    A token that is a tuple or list of strings is a row of columns, the first of which is the
    word. Numbers have no words: None stands for each.
    """
    sizes = np.diff(offsets)
    seen: Any = X if words is None else words
    if isinstance(seen, TokenTable):
        seen = seen.sentences(0)
    if words is not None:
        text = f"words must have one list of words for each of the {len(sizes)} sequences of X."
        require(hasattr(seen, "__len__") and len(seen) == len(sizes), text)
        for i in chosen.tolist():
            text = f"words[{i}] has {len(seen[i])} words, but X[{i}] has {sizes[i]} tokens."
            require(len(seen[i]) == sizes[i], text)
    else:
        listed = isinstance(seen, (list, tuple)) and len(seen) == len(sizes)
        first = seen[0] if listed else sizes
        if sp.issparse(first) or (isinstance(first, np.ndarray) and first.dtype.kind not in "OU"):
            return [[None] * int(sizes[i]) for i in chosen.tolist()]

    def word(token: Any) -> Any:
        is_row = isinstance(token, (tuple, list)) and token and isinstance(token[0], str)
        return token[0] if is_row else token

    return [[word(token) for token in seen[i]] for i in chosen.tolist()]


@dataclass(eq=False, repr=False)
class FewLabelsEstimator(BaseEstimator):
    """An estimator around a base for sequences of which only some are labelled.

    Subclasses write ``_check(model, dev)``, which refuses parameters, and ``_learn(data, dev)``.
    """

    base: Any = None
    constraints: Any = ()
    classes: Any = field(default=None, kw_only=True)

    _base_class: ClassVar[Any] = ChainSSVM
    _check: ClassVar[Any]
    _learn: ClassVar[Any]

    def fit(
        self,
        X: Any,
        y: Any,
        lengths: Any = None,
        sample_weight: Any = None,
        *,
        words: Any = None,
        dev: tuple[Any, Any] | None = None,
    ) -> Self:
        """Train on labelled and unlabelled sequences.

        Parameters
        ----------
        X, lengths : as for :meth:`ChainSSVM.fit`; an encoder is fitted on all sequences
        y : list of label sequences
            None for a sequence without labels (in a flat y, with ``lengths``, for its tokens).
        sample_weight : array-like, one per sequence, optional; used for labelled ones
        words : list of lists of str, optional
            The words of each sequence, for constraints, if X does not hold words but numbers, dicts
            or lists of attributes. If X has several columns, constraints see the first.
        dev : (X, y), optional; data on which the weights of every step are scored
        """
        model = self.check_parameters(dev)
        self._learn(prepare(model, X, y, lengths, sample_weight, words, self.classes), dev)
        self._words_given = words is not None
        return self

    def check_parameters(self, dev: Any = None) -> Any:
        """Raise an error for parameters that :meth:`fit` would refuse; else return the base."""
        kind = self._base_class
        model = kind() if self.base is None else self.base
        text = f"base must be a {kind.__name__}, got {model!r:.60}."
        require(isinstance(model, kind), text, TypeError)
        fine = dev is None or (isinstance(dev, tuple) and len(dev) == 2)
        require(fine, "dev must be a pair (X_dev, y_dev).", TypeError)
        model = clone(model)
        model.check_parameters()
        self._check(model, dev)
        return model

    def _keep(self, model: Any, chosen: int) -> None:
        """Take a fitted model, that of the chosen step."""
        self.base_, self.selected_ = model, chosen
        self.classes_, self.n_features_in_ = model.classes_, model.n_features_in_

    @property
    def weights_(self) -> Array:
        """The flat weights of the chosen step."""
        check_is_fitted(self, "base_")
        return self.base_.weights_

    def predict(self, X: Any, lengths: Any = None, allowed: Any = None) -> list[Array]:
        """Labels of every sequence, without constraints, as by :meth:`ChainSSVM.predict`."""
        check_is_fitted(self, "base_")
        return self.base_.predict(X, lengths, allowed)

    def score(self, X: Any, y: Any, lengths: Any = None, sample_weight: Any = None) -> float:
        """Share of tokens labelled correctly, as in :meth:`ChainSSVM.score`."""
        check_is_fitted(self, "base_")
        return float(self._base_class.score(self, X, y, lengths, sample_weight))  # of predict


def label_under(
    model: ChainSSVM,
    rules: list[Any],
    X: Any,
    lengths: Any = None,
    allowed: Any = None,
    words: Any = None,
) -> list[Array]:
    """Labels of the highest score minus penalty; see :meth:`SemiSupervisedSSVM.predict`."""
    rules, nothing = [r for r in rules if isinstance(r, InstanceConstraint)], model.classes_[:0]
    if not rules:
        return model.predict(X, lengths, allowed)

    def again(X: Any, **own: Any) -> list[Array]:
        return label_under(model, rules, X, None, **own)

    found = skip_empty(X, lengths, again, nothing, allowed=allowed, words=words)
    if found is not None:
        return found
    problem = model._prepare(X, lengths, allowed)
    seen = find_words(X, words, np.arange(len(problem.offsets) - 1), problem.offsets)
    penalties = Penalties(rules, seen, model.classes_.tolist(), unknown="ignore")
    with Workers(checks.effective_n_jobs(model.n_jobs), 0) as workers:
        search = ConstrainedLabels(problem, 0, model.weights_, 1.0, penalties, workers, 32)
        return np.split(model.classes_[search.find()], problem.offsets[1:-1])


def check_margin_base(model: Any) -> None:
    """Refuse a structured SVM that cannot learn from labels which change."""
    for name, able in (("slack", "max"), ("rescale", "margin")):
        what = f"base's {name}={getattr(model, name)!r} does not suit unlabelled sequences"
        require(getattr(model, name) == able, f"{what}: use {name}={able!r}.")
    what = f"base's loss={model.loss!r} does not suit unlabelled sequences"
    require(not model._zero_one, f"{what}: use a loss that is a sum over tokens.")
    one_of("base's solver", model.solver, ("auto", "sdm"))
    if model.C != "scale":
        how = "give the C_ of a fit on the labelled sequences"
        require(model.C != "auto", f"base's C='auto' does not suit unlabelled sequences: {how}.")
        positive("base's C", model.C)


@dataclass(eq=False, repr=False)
class SemiSupervisedSSVM(FewLabelsEstimator):
    """Structured SVM for sequences of which only some are labelled, with constraints on the rest.

    Minimises, over weights w and labels y* of the unlabelled sequences,
    ``½‖w‖² + C_l/l Σ_i slack_i + C_u/u Σ_j slack_j(y*_j) + penalty(y*)``
    with l labelled and u unlabelled sequences, for ever larger C_u: P. Balamurugan, S. Shevade,
    S. Sellamanickam, *Large Margin Semi-supervised Structured Output Learning*, Algorithms 1 and 2.
    In units of the base estimator ``C_l = base.C · l``, so that a labelled sequence has the same
    weight as there, and an unlabelled one has ``C_u/u``.

    The problem is not convex, so the result depends on the start: the solution for the labelled
    sequences alone. For transduction, pass test sequences with None for their labels;
    ``transduction_`` holds the labels that were found for them.

    Parameters
    ----------
    base : ChainSSVM, optional
        The estimator to fit, with linear slack, margin rescaling and a finite C. Its ``n_jobs``
        and ``max_iter`` apply to every convex problem, its ``tol`` to that of the step that is
        kept; the others are solved to a relative gap of 0.03.
    constraints : list of constraints, default=()
        From :mod:`hingeline.constraints`. Corpus-level ones apply to all unlabelled sequences
        together. Python predicates make everything slower.
    C_u : sequence of float, optional
        The values of C_u in turn (printed: 1e-4, 3e-4, 1e-3, …, 1). None: values for which an
        unlabelled sequence costs 0.01, 0.05 and 0.2, where a labelled one costs C.
    select : {"dev", "violations", "last"}, optional
        Which step's weights are kept: the best on the ``dev`` data of :meth:`fit`; the first that
        removes 98 % of the violations (of plain predictions on the unlabelled sequences) that any
        step removes; or the last. None: ``"dev"`` if there is such data, else ``"violations"``.
    weights : {"learned", "given"}, default="learned"
        Whether :func:`~hingeline.constraints.learn_constraints` learns weights of constraints, and
        bounds of corpus-level ones, from the labelled sequences, and weights are raised until
        unlabelled ones break none oftener; or both are given, as printed.
    start : {"beam", "viterbi"}, default="beam"
        Labels of the unlabelled sequences are those of the highest score minus penalty, found by
        beam search under the instance-level constraints; or, as printed, they start at those of the
        weights alone, from which single switches seldom reach labels that keep the constraints.
    max_sweeps : int, default=0; sweeps of label switching (Algorithm 2) from there (printed: 1)
    order : {"sequential", "random"}, default="sequential"
        Every position in turn takes the best label, as printed; or random switches are tried.
    max_switches : int, optional; switches of one Algorithm 2; None: no limit (printed: 1000)
    max_alternations : int, default=2; rounds of labelling and training at a C_u (printed: 1000)
    label_tol : float, default=1e-3
        A step ends when at most this share of the unlabelled tokens was relabelled (printed: 0).
    classes : sequence, optional; all labels, if the labelled sequences may lack some
    random_state : int, RandomState or None; for random order, and for a base that has none
    verbose : int, default=0; 1 prints a line for every C_u, 2 for every alternation

    Attributes
    ----------
    base_ : ChainSSVM
        The fitted estimator, with the weights of the chosen step. Its certificate is that of the
        convex problem with the labels fixed.
    classes_, weights_ : ndarray
    constraints_ : list of constraints, with the weights and bounds that were learned
    steps_ : list of AnnealingStep; the first, at ``C_u = 0``, is the supervised solution
    step_weights_, selected_ : list of ndarray, int; weights of each step, and the step chosen
    step_models_ : list of ChainSSVM; a fitted model of every step
    transduction_ : list of ndarray; all labels in training, those given and y* of the chosen step
    primal_objective_, duality_gap_ : float
        P at the chosen step; the gap is ``nan``, as a non-convex problem has no dual bound.
    stop_reason_ : str

    Examples
    --------
    >>> from hingeline import ChainSSVM, SemiSupervisedSSVM
    >>> from hingeline.constraints import StartsWith
    >>> X = [["a", "x"], ["a", "y"], ["a", "y"]]
    >>> y = [["A", "X"], None, None]
    >>> model = SemiSupervisedSSVM(ChainSSVM(random_state=0), [StartsWith("A")], random_state=0)
    >>> [labels.tolist() for labels in model.fit(X, y).predict([["a", "y"]])]
    [['A', 'X']]
    """

    _: KW_ONLY
    C_u: Sequence[float] | None = None
    select: str | None = None
    weights: str = "learned"
    start: str = "beam"
    max_sweeps: int = 0
    order: str = "sequential"
    max_switches: int | None = None
    max_alternations: int = 2
    label_tol: float = 1e-3
    random_state: Any = None
    verbose: int | None = 0

    def _check(self, model: Any, dev: Any) -> None:
        check_margin_base(model)
        schedule = (1.0,) if self._schedule is None else self._schedule
        require(len(schedule), "C_u is empty: give at least one value, or None for the default.")
        for k, value in enumerate(schedule):
            positive(f"C_u[{k}]", value)
        one_of("weights", self.weights, ("learned", "given"))
        one_of("start", self.start, ("beam", "viterbi"))
        one_of("order", self.order, ("sequential", "random"))
        if self.label_tol != 0:
            positive("label_tol", self.label_tol)
        positive("max_alternations", self.max_alternations, integer=True)
        if self.max_sweeps != 0:
            positive("max_sweeps", self.max_sweeps, integer=True)
        elif self.start == "viterbi" or self.order == "random" or self.max_switches is not None:
            what = "start='viterbi', order='random' and max_switches are for label switching"
            raise ValueError(f"{what}: set max_sweeps to 1 or more.")
        if self.max_switches is not None:
            positive("max_switches", self.max_switches, integer=True)
        if self.select is not None:
            one_of("select", self.select, ("dev", "violations", "last"))
        fine = self.select != "dev" or dev is not None
        require(fine, "select='dev' needs development data: fit(X, y, dev=(X_dev, y_dev)).")

    _schedule = property(lambda s: (s.C_u,) if isinstance(s.C_u, (int, float)) else s.C_u)

    def _learn(self, data: PartlyLabelled, dev: Any) -> None:
        model = data.model
        model.warm_start = False
        seed = checks.draw_seed(self.random_state)
        if model.random_state is None:
            model.random_state = seed
        schedule = self._schedule
        if data.first == data.n:
            schedule = ()
            what = "y has labels for all sequences: this is the supervised fit, and constraints"
            warn(f"{what} have no effect. Mark unlabelled sequences with None.")
        self.constraints_ = as_constraints(self.constraints)
        if self.weights == "learned":
            known = np.split(model.classes_[data.labels], data.offsets[1 : data.first])
            given = data.seen[: data.first], [part.tolist() for part in known]
            self.constraints_ = learn_constraints(self.constraints_, *given)
        penalties = Penalties(self.constraints_, data.words, model.classes_.tolist())
        text = "label switching cannot use Python predicates: leave them out, or set max_sweeps=0."
        require(not (penalties.predicates and self.max_sweeps), text)
        select = self.select or ("violations" if dev is None else "dev")
        choices: dict[str, Any] = {
            "dev": lambda steps: int(np.argmax([step.dev_score for step in steps])),
            "violations": annealing.choose_by_violations,
            "last": lambda steps: len(steps) - 1,
        }
        with Workers(checks.effective_n_jobs(model.n_jobs), 0) as workers:
            rng = np.random.default_rng(seed)
            search = annealing.Annealing(self, data, penalties, workers, rng, dev)
            path, chosen = search.run(schedule, choices[select])
        self.constraints_ = search.penalties.constraints
        idle = select == "violations" and chosen == 0 and not self.constraints_
        if idle and data.first < data.n:
            what = "without constraints nothing shows whether unlabelled sequences helped, so"
            how = "give constraints, dev=(X, y), or select='last'"
            warn(f"{what} the weights are those of the labelled ones alone: {how}.")
        model._store(path.results[chosen])
        self.transduction_ = data.restore_order(path.labels[chosen])
        self.step_weights_: list[Any] = [result.weights for result in path.results]
        self._choose(model, path.steps, chosen)
        if path.interrupted:
            self.stop_reason_ = "interrupted"
            what = f"SemiSupervisedSSVM was interrupted after {len(path.steps) - 1} values of C_u"
            warn(f"{what}: the step it keeps is one of these.")

    def _choose(self, model: ChainSSVM, steps: list[AnnealingStep], chosen: int) -> None:
        self._keep(model, chosen)
        self.steps_, self.stop_reason_ = steps, NO_GAP
        self.primal_objective_, self.duality_gap_ = steps[chosen].objective, math.nan

    @property
    def step_models_(self) -> list[ChainSSVM]:
        """A fitted ChainSSVM for every step, e.g. to score them all."""
        check_is_fitted(self, "base_")
        if any(weights is None for weights in self.step_weights_):
            raise ValueError("a model file holds the weights of the chosen step only: fit again.")
        return [self.base_.with_weights(weights) for weights in self.step_weights_]

    def predict(
        self,
        X: Any,
        lengths: Any = None,
        allowed: Any = None,
        *,
        constrained: bool | None = None,
        words: Any = None,
    ) -> list[Array]:
        """Labels of every sequence.

        Parameters
        ----------
        X, lengths, allowed : as for :meth:`ChainSSVM.predict`
        constrained : bool, optional
            True: the highest score minus penalty, by beam search under the instance-level
            constraints, whose weights are in units of the score. False: the highest score alone.
            None: True if weights were learned, unless ``words`` were given to :meth:`fit` but not
            here.
        words : list of lists of str, optional; as for :meth:`fit`
        """
        check_is_fitted(self, "base_")
        if constrained is None:
            blind = words is None and self._words_given
            constrained = self.weights == "learned" and not blind
        rules = self.constraints_ if constrained else []
        return label_under(self.base_, rules, X, lengths, allowed, words)

    def save(self, path: Any, *, metadata: Any = None, **options: Any) -> dict[str, Any]:
        """Write the model of the chosen step to a file, as :meth:`ChainSSVM.save` does.

        The file holds ``base_``, the record of the annealing and the instance-level constraints.
        Models loaded by :func:`hingeline.load` and the command line obey these, as :meth:`predict`
        does; ``ChainSSVM.load`` reads ``base_`` alone. The file has no certificate, no other steps,
        and no constraints that are Python functions (a warning names them).
        """
        check_is_fitted(self, "base_")
        known = (rule for rule in self.constraints_ if isinstance(rule, InstanceConstraint))
        rules = [(rule, write_rule(rule)) for rule in known]
        for rule, plain in rules:
            if not plain:
                warn(f"{path} holds no functions, and so not the constraint {rule.title!r}.")
        steps = list_rows(self.steps_)
        record = {"steps": steps, "selected": self.selected_, "weights": self.weights}
        record |= {"words": self._words_given, "rules": [plain for _, plain in rules if plain]}
        both = {**(metadata or {}), "semisupervised": record}
        stored = copy(self.base_)  # its certificate is that of another problem
        stored.primal_objective_ = self.primal_objective_
        stored.dual_objective_ = stored.duality_gap_ = math.nan
        stored.history_, stored.stop_reason_ = [], NO_GAP
        return stored.save(path, metadata=both, **options)

    @classmethod
    def load(cls, path: Any) -> Any:
        """Load a fitted estimator that :meth:`save` wrote, with the chosen weights only."""
        found, what = load(path), "no record of a semi-supervised fit"
        how = f"load it with {type(found).__name__}.load"
        require(isinstance(found, cls), f"{path} holds {what}: {how}.")
        return found

    @classmethod
    def around(cls, model: Any) -> Any:
        """The estimator whose base comes from a file; None where that has no sound record."""
        record = model.metadata_.get("semisupervised")
        rules = record.get("rules", []) if isinstance(record, dict) else []
        text = f"{rules!r:.60} is not a list of constraints: get a fresh copy."
        require(isinstance(rules, list), text)
        rules = [*map(read_rule, rules)]
        make: Any = AnnealingStep
        try:
            rows = (row.items() for row in record["steps"])
            steps = [make(**{k: math.nan if v is None else v for k, v in row}) for row in rows]
            chosen = int(record["selected"])
            steps[chosen]
            weights, words = str(record["weights"]), bool(record["words"])
        except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError):
            return None
        found = cls(base=clone(model), constraints=rules, weights=weights)
        found.constraints_, found._words_given = rules, words
        found.step_weights_ = [model.weights_ if k == chosen else None for k in range(len(steps))]
        found._choose(model, steps, chosen)
        found.metadata_ = model.metadata_
        return found
