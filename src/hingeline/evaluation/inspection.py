"""What a model has learned, by name: all weights as a table, the features that matter most, the
transitions between labels, and why one prediction was made and not another.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from hingeline._checks import Array, as_csr, positive, require, retell
from hingeline.core.results import Rows, align
from hingeline.data.text import atomic_text
from hingeline.features.input import plain_labels

Index = int | None
Names = Sequence[str] | None  # of features
#: Names of what is not a feature of the data.
CONSTANT, START, END, TRANSITION = "(constant)", "(start)", "(end)", "(transition)"

_ROWS_AT_ONCE = 4096
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


class WeightRow(NamedTuple):
    """One weight and what it belongs to."""

    block: str  # emission or coef, intercept, transition, start, end
    label: Any  # of a transition the one it comes from
    feature: Any  # its name or number; of a transition the label it goes to; else empty
    weight: float


def weights_table(model: Any) -> Iterator[WeightRow]:
    """The nonzero weights of a fitted ChainSSVM, MulticlassSSVM or SegmentSSVM, as rows.

    Features are named by the model's encoder, by ``feature_names_in_``, or by their number.
    """
    layout, whose = _read_layout(model), f"the weights of {type(model).__name__}"
    require(layout, f"{whose} have no names: only its structure knows what they mean.", TypeError)
    how = "read unary_coef_ and pairwise_coef_ instead"
    require("unary" not in layout, f"{whose} are tables of different shapes: {how}.", TypeError)
    labels = model.classes_.tolist()
    for block, table in layout.split(model.weights_).items():
        names: Any = labels if block == "transition" else None
        if block in ("emission", "coef", "token"):
            names = find_names(model, counted=False)
        elif block == "segment":
            names = model.segment_encoder_.get_feature_names_out()
        elif len(table) == 1:  # intercept, start, end
            names = [""]
        names = range(len(table)) if names is None else names
        own = _name_roles(labels) if block == "token" or table.shape[1] > len(labels) else labels
        for first in range(0, len(table), _ROWS_AT_ONCE):
            part = table[first : first + _ROWS_AT_ONCE]
            rows, columns = np.nonzero(part)
            found = zip(rows.tolist(), columns.tolist(), part[rows, columns].tolist(), strict=True)
            for row, column, weight in found:
                pair = own[column], names[first + row]
                # The rows of transitions are the labels that they come from.
                yield WeightRow(block, *(pair[::-1] if block == "transition" else pair), weight)


def _name_roles(labels: list[Any]) -> list[Any]:
    """The columns of the token table of segments: all tokens, first ones, last ones."""
    return [*labels, *(f"{label} ({role})" for role in ("first", "last") for label in labels)]


def _read_layout(model: Any) -> Any:
    """The layout of a fitted estimator's weights; empty where they have no names."""
    if hasattr(model, "structure") or not hasattr(type(model), "_layout"):
        return {}
    check_is_fitted(model, "weights_")
    return model._layout


def find_names(model: Any, given: Names = None, counted: bool = True) -> Names:
    """Names of the features: those given, else those that the model knows, else None."""
    if given is not None:
        text = f"there are {len(given)} feature names, but the model has {model.n_features_in_}"
        require(len(given) == model.n_features_in_, f"{text} features: pass one name per feature.")
        return given
    encoder: Any = getattr(model, "encoder_", None)
    if hasattr(encoder, "get_feature_names_out"):
        names: Sequence[str] = encoder.get_feature_names_out()
        if len(names) >= model.n_features_in_:  # it may have met more since
            return names[: model.n_features_in_]
    layout = getattr(model, "metadata_", {}).get("layout", {})  # of the file
    if counted and (zero_based := layout.get("zero_based")) is not None:
        return [f"feature {k + (not zero_based)}" for k in range(model.n_features_in_)]
    if layout.get("format") in ("arff", "table") and len(layout["columns"]) == model.n_features_in_:
        return list(layout["columns"])
    return getattr(model, "feature_names_in_", None)


def write_weights(path: str | os.PathLike[str], model: Any) -> int:
    r"""Write :func:`weights_table` as tab-separated text, atomically.

    The first line names the columns. Backslashes, tabs and line ends in names are written
    ``\\``, ``\t``, ``\n`` and ``\r``. Weights are written with all digits.

    The file is compressed if its path ends in ``.gz``. Returns the number of rows written.
    """
    count = 0
    with atomic_text(path) as out:
        out.write("block\tlabel\tfeature\tweight\n")
        for row in weights_table(model):
            label, feature = (str(name).translate(_ESCAPES) for name in (row.label, row.feature))
            line = f"{row.block}\t{label}\t{feature}\t{row.weight!r}\n"
            out.write(line.encode("utf-8", "backslashreplace").decode())
            count += 1
    return count


class Blocks(NamedTuple):
    """The weights of a linear model of labels, or of a chain of them."""

    labels: list[Any]
    features: Array  # (labels, features)
    constant: Array  # (labels,), zero without an intercept
    start: Array  # (labels,), zero without boundary weights
    move: Array  # (labels, labels), [from, to]
    end: Array
    is_chain: bool
    has_boundary: bool

    def moves(self) -> tuple[list[Any], list[Any], Array]:
        """Labels moved from and to, boundaries among them, and weights; NaN from start to end."""
        if not self.has_boundary:
            return self.labels, self.labels, self.move
        weights = np.block([[self.start, np.nan], [self.move, self.end[:, None]]])
        return [START, *self.labels], [*self.labels, END], weights


def read_blocks(model: Any) -> Blocks:
    """The weights of a fitted estimator whose prediction is a sum of weights."""
    layout = _read_layout(model)
    is_chain, has_boundary = bool({"emission", "token"} & {*layout}), "start" in layout
    if not (is_chain or ("coef" in layout and set(layout) <= {"coef", "intercept"})):
        what = f"{type(model).__name__} cannot be inspected: pass a ChainSSVM or a MulticlassSSVM"
        raise TypeError(f"{what} (explain knows segments and trees, too, top_features also sets).")
    labels = model.classes_.tolist()
    n, none = len(labels), np.zeros(len(labels))
    features = "token_coef_" if "token" in layout else "emission_coef_" if is_chain else "coef_"
    own = getattr(model, features), getattr(model, "intercept_", none)
    move = model.transition_coef_ if is_chain else np.zeros((n, n))
    start, end = (model.start_coef_, model.end_coef_) if has_boundary else (none, none)
    return Blocks(labels, *own, start, move, end, is_chain, has_boundary)


def read_features(model: Any) -> tuple[list[Any], Array, Array]:
    """Labels, their weights of features (labels, features) and of the constant.

    Of sets of labels they are what speaks for a label, of graphs those of nodes, of segments those
    of tokens, which first and last tokens have beside.
    """
    if "token" in _read_layout(model):
        own = model._view("token").T, model._view("intercept")[0]
        constant = own[1] if model.fit_intercept else np.zeros(len(own[0]))
        return _name_roles(model.classes_.tolist()), own[0], constant
    if "unary" not in _read_layout(model):
        blocks = read_blocks(model)
        return blocks.labels, blocks.features, blocks.constant
    labels = model.classes_.tolist()
    if hasattr(model, "n_labels_"):
        return labels[-model.n_labels_ :], model.coef_, model.intercept_
    if model.n_node_types_ > 1:
        labels = [f"{label} (type {t})" for t in range(model.n_node_types_) for label in labels]
    return labels, model.unary_coef_.reshape(len(labels), -1), model.intercept_.ravel()


class FeatureWeight(NamedTuple):
    """What one feature adds to the score of one label, per unit of the feature's value."""

    label: Any
    feature: str
    weight: float


class TransitionWeight(NamedTuple):
    """What label ``target`` right after label ``source`` adds to the score of a sequence."""

    source: Any
    target: Any
    weight: float


def top_features(model: Any, n: int = 10, feature_names: Names = None) -> list[FeatureWeight]:
    """The features that speak most for and most against each label, the largest weight first.

    Labels are in the order of ``classes_``; the constant feature is called ``(constant)``. For
    segments, features of all tokens come first, with features of whole segments; then come the
    additional ones of first and last tokens, such as ``LOC (first)``.

    Parameters
    ----------
    model : fitted ChainSSVM, MulticlassSSVM, MultilabelSSVM, GraphSSVM or SegmentSSVM
    n : int, default=10; the n largest positive and n smallest negative weights of each label
    feature_names : sequence of str; default: the model's own, or x0, x1, ... if it has none
    """
    positive("n", n, integer=True)
    labels, features, constant = read_features(model)
    names = find_names(model, feature_names)
    whole = getattr(model, "segment_encoder_", None)
    more = [] if whole is None else whole.get_feature_names_out().tolist()
    rows = []
    for k, label in enumerate(labels):
        own = model.segment_coef_[k] if more and k < len(model.classes_) else []
        weights = np.concatenate([features[k], [constant[k]], own])
        order = np.flatnonzero(weights)
        order = order[np.argsort(-weights[order], kind="stable")]
        ends = order[weights[order] > 0.0][:n], order[weights[order] < 0.0][-n:]
        for j in np.concatenate(ends).tolist():
            d = len(features[k])
            name = _name(names, j) if j < d else CONSTANT if j == d else more[j - d - 1]
            rows.append(FeatureWeight(label, name, float(weights[j])))
    return Rows(rows)


def _name(names: Names, j: int) -> str:
    return f"x{j}" if names is None else str(names[j])


def transition_table(model: Any) -> list[TransitionWeight]:
    """Weights of all moves of a ChainSSVM or SegmentSSVM, in the order of ``classes_``.

    If the model has boundary weights, first labels follow ``(start)`` and last labels precede
    ``(end)``.
    """
    blocks = read_blocks(model)
    what = f"{type(model).__name__} has no transitions: pass a ChainSSVM."
    require(blocks.is_chain, what, TypeError)
    sources, targets, weights = blocks.moves()
    moves = zip(product(sources, targets), weights.ravel().tolist(), strict=True)
    return Rows(TransitionWeight(*pair, weight) for pair, weight in moves if weight == weight)


class Contribution(NamedTuple):
    """What one feature or move adds to the lead of the chosen labels over the others."""

    position: int  # the token; a transition is at its second one
    kind: str  # feature, constant, transition, start or end
    name: str  # the feature, or the kind in brackets
    chosen: str  # the labels compared; of a transition both, a → b
    other: str
    value: float  # of the feature; 1 for a constant, a transition, a start or an end
    weight: float  # for the chosen labels less that for the other ones
    contribution: float  # value times weight: positive if it speaks for the chosen labels


@dataclass(frozen=True)
class Explanation:
    """The lead of the predicted labels over others, term by term; returned by :func:`explain`.

    Attributes
    ----------
    chosen, other : list; the predicted labels, and those they are compared with
    score, other_score : float; their scores under the model
    margin : float; ``score − other_score``, which is the sum of the contributions
    rows : list of Contribution; the largest in absolute value first, without zeros
    """

    chosen: list[Any]
    other: list[Any]
    score: float
    other_score: float
    rows: list[Contribution] = field(repr=False)

    @property
    def margin(self) -> float:
        """Lead of the chosen labels."""
        return self.score - self.other_score

    def by_position(self) -> list[dict[str, Any]]:
        """The lead by token: rows of position, chosen and other label, contribution."""
        leads = [0.0] * len(self.chosen)
        for row in self.rows:
            leads[row.position] += row.contribution
        names = ("position", "chosen", "other", "contribution")
        columns = range(len(leads)), self.chosen, self.other, leads
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def text(self, n: int = 20) -> str:
        """The labels, the scores and the n largest contributions, for a terminal."""
        sides = [("chosen", *self.chosen), ("other", *self.other)]
        labels = align([list(map(str, side)) for side in sides], left=range(1 + len(self.chosen)))
        head = f"margin {self.margin:.6g} = {self.score:.6g} − {self.other_score:.6g}"
        if not self.rows:
            return f"{labels}\n{head}"
        table = [("at", "what", "chosen", "other", "value", "weight", "contribution")]
        for row in self.rows[:n]:
            numbers = (f"{row.value:.4g}", f"{row.weight:+.4f}", f"{row.contribution:+.4f}")
            table.append((str(row.position), row.name, row.chosen, row.other, *numbers))
        lines = [labels, head, "", align(table, left=range(4))]
        if len(self.rows) > n:
            rest = sum(row.contribution for row in self.rows[n:])
            lines.append(f"and {len(self.rows) - n} more, {rest:+.4f} together")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.text()


def explain(
    model: Any, x: Any, *, index: Index = None, against: Any = None, feature_names: Names = None
) -> Explanation:
    """Explain why a model predicts its labels, and not the next best ones.

    The score of labels is a sum of weights, so the lead of the predicted labels over any others
    is a sum over the features and moves in which the two differ.

    Parameters
    ----------
    model : fitted ChainSSVM, MulticlassSSVM, SegmentSSVM or DependencySSVM
    x : array-like or sparse matrix
        One sequence (tokens, features), or one example (features,) of a MulticlassSSVM; for a
        DependencySSVM a sentence, explained by the arc features of every word that differs.
    index : int; if given, x has the form that ``predict`` takes, and ``x[index]`` is explained
    against : sequence of labels, optional
        Compare with these, say the true ones; a MulticlassSSVM takes one label or a list of it.
        The default is the runner-up: the labels with the second highest score.
    feature_names : sequence of str; default: the model's own, or x0, x1, ... if it has none

    Examples
    --------
    >>> from hingeline import ChainSSVM
    >>> X, y = [["Ann", "ran"], ["Bob", "sat"]] * 3, [["PER", "O"]] * 6
    >>> found = explain(ChainSSVM(random_state=0).fit(X, y), X, index=0)
    >>> list(map(str, found.chosen)), found.margin > 0.0
    (['PER', 'O'], True)
    """
    if index is not None:
        n = x.shape[0] if hasattr(x, "shape") else len(x)
        what = f"index={index} is beyond x, which has {n} examples: count from 0."
        require(-n <= index < n, what, IndexError)
    one = [x] if index is None else x[index:][:1]  # of frames, too
    if hasattr(model, "_compare_best"):  # trees and segments know how two of them differ
        require(feature_names is None, "feature_names are those of the templates: leave them out.")
        best, rival, score, its_score, differences = model._compare_best(one, against)
        return Explanation(best, rival, score, its_score, _rank(differences))
    blocks = read_blocks(model)
    names = find_names(model, feature_names)
    if blocks.is_chain:
        with retell("", " Of several examples, index= says which." if index is None else ""):
            matrix = model._read_tokens(one, None)[0].astype(np.float64)
    else:
        one = one if index is not None else x if sp.issparse(x) else np.atleast_2d(x)
        matrix = as_csr(model._new_rows(one)).astype(np.float64)
        n_rows = matrix.shape[0]
        require(n_rows == 1, f"x has {n_rows} rows: pass one example, or index=.")
    predicted = plain_labels(model.predict(one)[0 if blocks.is_chain else slice(None)])
    chosen = [blocks.labels.index(label) for label in predicted]
    used = np.unique(matrix.indices)  # only the columns that occur
    emissions = np.asarray(matrix[:, used] @ blocks.features[:, used].T) + blocks.constant
    if against is None:
        other = _find_second(model, one, emissions, blocks, chosen)
    else:
        other = _numbers(against, blocks, len(chosen))
    rows = _rank(_compare_paths(matrix, blocks, names, chosen, other))
    first, second = ([blocks.labels[k] for k in path] for path in (chosen, other))
    score, other_score = (_path_score(emissions, blocks, path) for path in (chosen, other))
    return Explanation(first, second, score, other_score, rows)


#: What two outputs do not share: position, kind, name, the labels compared, value and weight.
Differences = Iterable[tuple[int, str, str, str, str, float, float]]


def _rank(differences: Differences) -> list[Contribution]:
    rows = [Contribution(*row, row[5] * row[6]) for row in differences if row[5] * row[6] != 0.0]
    return sorted(rows, key=lambda row: (-abs(row.contribution), row.position))


def _numbers(against: Any, blocks: Blocks, length: int) -> list[int]:
    if isinstance(against, (str, bytes)) or not hasattr(against, "__len__"):
        if blocks.is_chain:
            raise TypeError(f"against must be a sequence of labels, got {against!r}.")
        against = [against]
    labels = plain_labels(against)
    require(len(labels) == length, f"against has {len(labels)} labels, but x has {length} tokens.")
    for t, label in enumerate(labels):
        require(label in blocks.labels, f"against[{t}] is {label!r}, which is not among classes_.")
    return [blocks.labels.index(label) for label in labels]


def _path_score(emissions: Array, blocks: Blocks, path: list[int]) -> float:
    score = emissions[np.arange(len(path)), path].sum()
    score += blocks.move[path[:-1], path[1:]].sum()
    return float(score + blocks.start[path[0]] + blocks.end[path[-1]])


def _find_second(
    model: Any, one: Any, scores: Array, blocks: Blocks, chosen: list[int]
) -> list[int]:
    """The labels of the second highest score, valid in the scheme."""
    nothing = "there is nothing to compare with"
    require(len(blocks.labels) > 1, f"the model knows one label only: {nothing}.")
    if not blocks.is_chain:
        best_two = np.argsort(-scores[0], kind="stable")[:2].tolist()
        return [k for k in best_two if [k] != chosen][:1]
    best = model.predict_nbest(one, 2)[0]
    require(len(best) > 1, f"no other labelling is valid in the scheme: {nothing}.")
    return [blocks.labels.index(label) for label in plain_labels(best[1][0])]


def _compare_paths(
    matrix: sp.csr_matrix, blocks: Blocks, names: Any, chosen: list[int], other: list[int]
) -> Differences:
    labels = [str(label) for label in blocks.labels]
    for t, (a, b) in enumerate(zip(chosen, other, strict=True)):
        sides = labels[a], labels[b]
        if a != b:
            part = slice(matrix.indptr[t], matrix.indptr[t + 1])
            where = matrix.indices[part]
            weights = blocks.features[a, where] - blocks.features[b, where]
            columns = (where.tolist(), matrix.data[part].tolist(), weights.tolist())
            for j, value, weight in zip(*columns, strict=True):
                yield t, "feature", _name(names, j), *sides, value, weight
            lead = float(blocks.constant[a] - blocks.constant[b])
            yield t, "constant", CONSTANT, *sides, 1.0, lead
        if t > 0 and (chosen[t - 1], a) != (other[t - 1], b):
            c, d = chosen[t - 1], other[t - 1]
            lead = float(blocks.move[c, a] - blocks.move[d, b])
            moves = (f"{labels[c]} → {labels[a]}", f"{labels[d]} → {labels[b]}")
            yield t, "transition", TRANSITION, *moves, 1.0, lead
    ends = (("start", START, 0, blocks.start), ("end", END, len(chosen) - 1, blocks.end))
    for kind, name, t, weights in ends:
        a, b = chosen[t], other[t]
        yield t, kind, name, labels[a], labels[b], 1.0, float(weights[a] - weights[b])
