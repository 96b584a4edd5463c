"""Probabilities that a chain's predictions are right, from margins and held-out data."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_is_fitted

from hingeline._checks import Array, one_of, positive, require
from hingeline.features.input import find_classes, stack_labels
from hingeline.inference.chain import against_rest
from hingeline.modelfile.estimators import load
from hingeline.modelfile.files import ModelFileError
from hingeline.schemes import is_tag, number_types, read_pairs, span_arrays, split_tag
from hingeline.structures import chain_batch as kernels

SureSpan = tuple[str, int, int, float]  # type, first token, token after the last, probability
METHODS = ("isotonic", "sigmoid")
FOLDS = 5  # Parts of the held-out sequences for the estimate of the calibration error.


def calibration_error(probability: Any, right: Any, n_bins: int = 15) -> float:
    """Expected calibration error with bins of equal mass.

    Predictions are sorted by probability and cut into bins of equal size (equal probabilities
    stay together). The result is the mean over all predictions of the distance between their bin's
    mean probability and its share of correct predictions; ``nan`` without predictions.

    Parameters
    ----------
    probability, right : array-like of shape (predictions,); right: whether each was correct
    n_bins : int, default=15

    Examples
    --------
    >>> from hingeline.evaluation.calibration import calibration_error
    >>> calibration_error([0.5, 0.5, 1.0, 1.0], [True, False, True, False], n_bins=2)
    0.25
    """
    positive("n_bins", n_bins, integer=True)
    p, truth = np.asarray(probability, dtype=np.float64), np.asarray(right, dtype=np.float64)
    text = f"probability has shape {p.shape} and right has {truth.shape}"
    require(p.ndim == 1 and p.shape == truth.shape, f"{text}: both must be equally long vectors.")
    if len(p) == 0:
        return float("nan")
    bins = np.searchsorted(np.sort(p), p) * int(n_bins) // len(p)
    return float(np.abs(np.bincount(bins, p - truth)).sum() / len(p))


class _Map(NamedTuple):
    """From margins to probabilities: between points of an isotonic curve, or by a sigmoid."""

    margins: list[float]  # empty for a sigmoid
    shares: list[float]
    slope: float = 0.0
    intercept: float = 0.0

    def __call__(self, margins: Array) -> Array:
        # An infinite margin (nothing else was possible) counts as the largest number there is.
        finite = np.minimum(margins, np.finfo(np.float64).max)
        if self.margins:
            return np.interp(finite, self.margins, self.shares)
        with np.errstate(over="ignore"):
            return np.asarray(expit(self.slope * finite + self.intercept), dtype=np.float64)


def _learn_map(method: str, margins: Array, right: Array) -> _Map:
    finite = np.isfinite(margins)
    if method == "isotonic":
        isotonic = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
        largest = margins[finite].max(initial=1.0)
        isotonic.fit(np.minimum(margins, 2.0 * largest), right.astype(np.float64))
        return _Map(isotonic.X_thresholds_.tolist(), isotonic.y_thresholds_.tolist())
    if finite.any() and right[finite].any() and not right[finite].all():
        scale = margins[finite].mean() or 1.0
        fit = LogisticRegression(C=1e4).fit(margins[finite, None] / scale, right[finite])
        if fit.coef_[0, 0] > 0:
            return _Map([], [], float(fit.coef_[0, 0] / scale), float(fit.intercept_[0]))
    # Nothing to tell apart: the share of right ones, a little away from 0 and 1.
    share = (right.sum() + 1.0) / (len(right) + 2.0)
    return _Map([], [], 0.0, float(np.log(share / (1.0 - share))))


def _read_map(stored: Any) -> _Map:
    """The map that a file holds, checked: points that rise, and finite numbers."""
    margins, shares = (np.array(stored[name], dtype=np.float64) for name in ("margins", "shares"))
    line = [float(stored[name]) for name in ("slope", "intercept")]
    paired = margins.ndim == 1 and margins.shape == shares.shape
    fine = paired and np.isfinite([*margins, *line]).all() and (np.diff(margins) > 0).all()
    require(fine, "the margins do not rise")
    rises = (np.diff(shares, prepend=0.0, append=1.0) >= 0).all()
    require(rises, "the shares do not rise from 0 to 1")
    return _Map(margins.tolist(), shares.tolist(), *line)


class _Predicted(NamedTuple):
    """Labels, spans and their margins on some sequences."""

    offsets: Array
    numbers: Array  # (tokens,)
    margins: Array  # (tokens,)
    types: list[str]
    spans: Array  # (spans, 3): type, first token, token after the last, over all sequences
    owner: Array  # (spans,) the sequence of each
    span_margins: Array  # (spans,)


@dataclass(eq=False, repr=False)
class CalibratedChain(BaseEstimator):
    """Probabilities that labels and spans predicted by a fitted chain are correct.

    The margin of a token is the score of the best labelling minus that of the best one with
    another label there. The margin of a span is the score of the best labelling minus that of the
    best one in which exactly this span, with its type and its ends, is not predicted (computed
    exactly). Each is mapped to a probability by a monotone function learned on held-out data.

    Parameters
    ----------
    model : fitted ChainSSVM, which is not changed
    method : {"isotonic", "sigmoid"}, default="isotonic"
        A step function (needs a few hundred predictions), or a logistic curve (two parameters).

    Attributes
    ----------
    calibration_error_ : dict
        ``"tokens"`` and ``"spans"``: expected calibration error on the held-out data; the
        probabilities of each fifth of the sequences are learned from the other four. ``nan`` if
        there is nothing to measure.

    Examples
    --------
    >>> import numpy as np
    >>> from hingeline import ChainSSVM
    >>> from hingeline.evaluation.calibration import CalibratedChain
    >>> X = [np.eye(2)[[0, 1, 1]], np.eye(2)[[1, 0]]] * 5
    >>> y = [["O", "B-X", "I-X"], ["B-X", "O"]] * 5
    >>> tagger = ChainSSVM(C=10.0, scheme="IOB2", random_state=0).fit(X, y)
    >>> CalibratedChain(tagger).fit(X, y).predict_proba_spans(X[:1])
    [[('X', 1, 3, 1.0)]]
    """

    model: Any
    method: str = "isotonic"

    def fit(self, X: Any, y: Any, lengths: Any = None) -> Self:
        """Learn what margins mean from sequences that the model was not trained on.

        X, y and lengths are as for ``ChainSSVM.fit``.
        """
        one_of("method", self.method, METHODS)
        if not hasattr(self.model, "predict_max_marginals"):
            raise TypeError(f"model must be a fitted ChainSSVM, got {self.model!r}.")
        found, right, right_spans = self._compare(X, y, lengths)
        token_owner = np.repeat(np.arange(len(found.offsets) - 1), np.diff(found.offsets))
        tokens = self._cross_validate(found.margins, right, token_owner)
        spans = self._cross_validate(found.span_margins, right_spans, found.owner)
        self.calibration_error_ = {"tokens": tokens, "spans": spans}
        self.token_map_ = _learn_map(self.method, found.margins, right)
        self.span_map_ = None
        if len(right_spans):
            self.span_map_ = _learn_map(self.method, found.span_margins, right_spans)
        return self

    def save(self, path: Any, *, metadata: Any = None, **options: Any) -> dict[str, Any]:
        """Write the model and its calibration to a file; options as for the model's ``save``.

        ``hingeline.load`` reads the model alone, :meth:`load` reads both. The command line can use
        the file too.
        """
        check_is_fitted(self, "token_map_")
        maps = {"tokens": self.token_map_, "spans": self.span_map_}
        errors = {k: v if v == v else None for k, v in self.calibration_error_.items()}
        own: dict[str, Any] = {"method": self.method, "errors": errors}
        own |= {name: None if found is None else found._asdict() for name, found in maps.items()}
        told = {**(metadata or {}), "calibration": own}
        return dict(self.model.save(path, metadata=told, **options))

    @classmethod
    def load(cls, path: Any, model: Any = None) -> Self:
        """Load what :meth:`save` wrote; ``model`` is used if it is loaded already."""
        model = load(path, object) if model is None else model
        known = model.metadata_.get("calibration")
        how = "hingeline calibrate, or fit() of a CalibratedChain, learns it from held-out data"
        require(known, f"{path} holds a model without a calibration: {how}.", ModelFileError)
        try:
            made = cls(model, known["method"])
            one_of("method", made.method, METHODS)
            tokens = _read_map(known["tokens"])
            spans = None if known["spans"] is None else _read_map(known["spans"])
            errors = {k: float(np.nan if v is None else v) for k, v in known["errors"].items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            text = f"{path} has a calibration that cannot be read ({error})"
            raise ModelFileError(f"{text}: fit and save it again.") from None
        made.token_map_, made.span_map_, made.calibration_error_ = tokens, spans, errors
        return made

    def _cross_validate(self, margins: Array, right: Array, owner: Array) -> float:
        """Calibration error of probabilities learned on other sequences."""
        part = owner % FOLDS
        probability = np.full(len(margins), np.nan)
        for k in range(FOLDS):
            here = part == k
            if here.any() and not here.all():
                learned = _learn_map(self.method, margins[~here], right[~here])
                probability[here] = learned(margins[here])
        known = ~np.isnan(probability)
        return calibration_error(probability[known], right[known])

    def _predict(self, X: Any, lengths: Any) -> _Predicted:
        model = self.model
        problem = model._prepare(X, lengths, None)
        offsets = problem.offsets
        numbers = model._decode(problem)
        table = model._max_marginals(problem)
        against_rest(table)
        margins = table.max(axis=1)
        classes = model.classes_.tolist()
        none = np.zeros(0, dtype=np.int64)
        if not _has_spans(classes):
            return _Predicted(offsets, numbers, margins, [], none.reshape(0, 3), none, np.zeros(0))
        types, kind, first, stop = span_arrays(classes, numbers, offsets, None)
        owner = np.searchsorted(offsets, first, side="right") - 1
        spans = np.column_stack([kind, first, stop]).astype(np.int64)
        local = spans.copy()
        local[:, 1:] -= offsets[owner][:, None]
        bounds = np.searchsorted(owner, np.arange(len(offsets)))
        tags = [split_tag(label) for label in classes]
        # Which label goes on with the span of which, and what kind of span each is part of.
        inside, kind_of = read_pairs(tags)[1], number_types(tags)[1]
        out = np.empty(len(spans))
        model._over(kernels.span_margins_all, problem, local, bounds, inside, kind_of, out)
        return _Predicted(offsets, numbers, margins, types, spans, owner, out)

    def _compare(self, X: Any, y: Any, lengths: Any) -> tuple[_Predicted, Array, Array]:
        """What is predicted, and which tokens and which spans are right."""
        found = self._predict(X, lengths)
        flat = stack_labels(y, found.offsets, lengths)
        predicted = self.model.classes_[found.numbers].tolist()
        right = np.array([a == b for a, b in zip(predicted, flat, strict=True)])
        if not len(found.spans):
            return found, right, np.zeros(0, dtype=bool)
        classes, numbers = find_classes(flat)
        types, kind, first, stop = span_arrays(classes.tolist(), numbers, found.offsets, None)
        true = {(types[k], a, b) for k, a, b in np.column_stack([kind, first, stop]).tolist()}
        right_spans = [(found.types[k], a, b) in true for k, a, b in found.spans.tolist()]
        return found, right, np.array(right_spans)

    def predict(self, X: Any, lengths: Any = None) -> list[Array]:
        """Labels of every sequence: those of the model."""
        labels: list[Array] = self.model.predict(X, lengths)
        return labels

    def predict_proba_tokens(self, X: Any, lengths: Any = None) -> list[Array]:
        """Probability that the predicted label of each token is correct, by sequence."""
        check_is_fitted(self, "token_map_")
        found = self._predict(X, lengths)
        return np.split(self.token_map_(found.margins), found.offsets[1:-1])

    def predict_proba_spans(self, X: Any, lengths: Any = None) -> list[list[SureSpan]]:
        """Predicted spans, each with the probability that its type and both ends are correct.

        A list for each sequence, of (type, first token, token after the last, probability).
        """
        check_is_fitted(self, "token_map_")
        text = "the model's labels are not span tags such as B-NP and O"
        require(_has_spans(self.model.classes_.tolist()), f"{text}: use predict_proba_tokens.")
        found = self._predict(X, lengths)
        result: list[list[SureSpan]] = [[] for _ in found.offsets[1:]]
        if len(found.spans) == 0:
            return result
        if self.span_map_ is None:
            text = "no span was predicted on the held-out data, so nothing is known of spans"
            raise ValueError(f"{text}: fit on more data.")
        columns = (found.spans, found.owner, self.span_map_(found.span_margins))
        for (kind, first, stop), i, p in zip(*(c.tolist() for c in columns), strict=True):
            lo = int(found.offsets[i])
            result[i].append((found.types[kind], first - lo, stop - lo, p))
        return result

    def calibration_error(
        self, X: Any, y: Any, lengths: Any = None, n_bins: int = 15
    ) -> dict[str, float]:
        """Expected calibration error of ``"tokens"`` and ``"spans"`` on other data."""
        check_is_fitted(self, "token_map_")
        found, right, right_spans = self._compare(X, y, lengths)
        tokens = calibration_error(self.token_map_(found.margins), right, n_bins)
        spans = float("nan")
        if self.span_map_ is not None and len(right_spans):
            spans = calibration_error(self.span_map_(found.span_margins), right_spans, n_bins)
        return {"tokens": tokens, "spans": spans}


def _has_spans(classes: list[Any]) -> bool:
    return all(is_tag(label) for label in classes) and any(label != "O" for label in classes)
