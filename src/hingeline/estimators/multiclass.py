"""Multi-class classification by one joint maximum-margin problem."""

import contextlib
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _num_features

from hingeline import _checks as checks
from hingeline._checks import Array
from hingeline.core.primitives import Layout, pad_row
from hingeline.estimators.base import BaseModel, BaseSSVM, Streams, TableModel, share_docs
from hingeline.features.input import number_labels
from hingeline.features.tables import scale_columns
from hingeline.structures import multiclass


@share_docs
@dataclass(eq=False, repr=False)
class MulticlassSSVM(ClassifierMixin, Streams, TableModel, BaseSSVM, BaseModel):
    """Multi-class support vector machine (Crammer and Singer), solved to a certificate.

    Minimises ``½‖W‖² + C Σ_i s_i·max_y [l(y_i, y) + W_y·x_i − W_{y_i}·x_i]₊`` (``slack="max"``,
    ``rescale="margin"``) and its variants with squared slack, slack rescaling or a hard margin.

    Parameters
    ----------
    C : float, "scale" or "auto", default="scale"
        As in :class:`hingeline.ChainSSVM`, with the mean squared norm of a row's features. With d
        < 40 columns, ``"scale"`` is 40/d times as large, but at most 5 times.
        ``float("inf")`` is a hard margin.
    rescale : {"margin", "slack"}, default="margin"
        Whether the loss is the required margin, or multiplies the slack.
    violators : "all", "argmax" or int, optional
        For ``slack="sum"``: all classes (default), or only those that decoding finds; see
        :class:`hingeline.ChainSSVM`.
    loss : "zero_one", array of shape (classes, classes), Taxonomy, or (scale, loss)
        Cost of predicting the column's class for the row's, in the order of ``classes_``; for
        classes in a tree, a :class:`hingeline.Taxonomy`.
    class_weight : dict or "balanced", optional; multiplies the weight of the examples of a class

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features)
    intercept_ : ndarray of shape (n_classes,)
    classes_ : ndarray of shape (n_classes,)

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from hingeline import MulticlassSSVM
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MulticlassSSVM(C=1.0, tol=1e-3, random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.95
    True
    >>> model.duality_gap_ <= 1e-3 * model.primal_objective_
    True
    """

    _probabilities = "sklearn's CalibratedClassifierCV(model).fit(X, y) gives probabilities"
    _enumerable = True
    _centres_far = True  # others have weights of pairs, which a C for larger columns holds back

    C: float | str = "scale"
    _: KW_ONLY
    rescale: str = "margin"
    violators: str | int | None = None
    loss: Any = "zero_one"
    class_weight: Any = None
    fit_intercept: bool = True

    def _times_scale(self) -> float:
        # Few columns hardly overfit, and many classes want large weights of each.
        return min(max(40.0 / self.n_features_in_, 1.0), 5.0)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on rows of features and their labels.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like (n_samples,), optional; multiplies an example's slack, 0 drops it
        """
        self.check_parameters()
        X, y = self._check_rows(X, y)
        classes, labels = checks.number_classes(y)
        self._check_targets(y)
        self.classes_ = classes
        what = f"y has one class only ({classes.tolist()[0]!r}): at least 2 classes are needed."
        checks.require(len(classes) > 1, what)
        weights = checks.check_sample_weight(sample_weight, len(labels))
        rows = self._with_constant(checks.as_csr(scale_columns(self, X, weights)))
        self._fit_problem(self._make(rows, None, labels.astype(np.int32)), weights)
        return self

    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        passes: int | None = None,
        memory: int | None = None,
    ) -> Self:
        """Add examples to those seen so far and continue from the current multipliers.

        The solution is that of a fit on all examples together. New labels are appended to
        ``classes_``; columns after the known ones are new features. For this, data and multipliers
        are kept in memory (but not pickled).

        Parameters
        ----------
        X, y, sample_weight : as for :meth:`fit`
        classes : array-like, optional
            Labels that will come later; the first call sorts them, other calls append them.
        passes, memory : int, optional
            As in :meth:`hingeline.ChainSSVM.partial_fit`: visit the new examples this many times,
            instead of converging on all; keep at most this many examples.
        """
        self.check_parameters()
        with self._open_stream().adding(passes, memory) as stream:
            first = not stream
            X, y = self._check_batch(X, y, first)
            distinct, numbers = checks.number_classes(y)
            self._check_targets(y)
            if first:
                self.classes_ = np.unique(y if classes is None else classes)
            more = [] if classes is None else np.unique(classes).tolist()
            stream.add_classes([*more, *distinct.tolist()])
            text = "at least 2 classes are needed: pass classes= at the first call."
            checks.require(len(self.classes_) > 1, text)
            table = number_labels(distinct.tolist(), self.classes_)
            weights = checks.check_sample_weight(sample_weight, len(numbers))
            rows = checks.as_csr(scale_columns(self, X, weights if first else None))
            stream.learn((rows, None, table[numbers]), weights, passes, memory)
        return self

    @staticmethod
    def _check_targets(y: Array) -> None:
        if y.dtype.kind not in "biuUS":  # integers and strings are classes, at any rate
            check_classification_targets(y)

    def _check_batch(self, X: Any, y: Any, first: bool) -> tuple[Any, Any]:
        """Input as arrays; columns behind those known are taken in."""
        wider = False
        if not first:
            with contextlib.suppress(TypeError, ValueError):  # reported below
                wider = _num_features(X) > self.n_features_in_
        before = getattr(self, "feature_names_in_", None)
        checked = self._check_rows(X, y, reset=first or wider)
        names = getattr(self, "feature_names_in_", None)
        if wider and before is not None and names is not None:
            new = names[: len(before)] != before
            k = int(np.argmax(new))
            what = f"X has the column {names[k]!r} where earlier examples had {before[k]!r}"
            checks.require(not new.any(), f"{what}: put new columns after the known ones.")
        elif wider and before is None and names is not None:
            del self.feature_names_in_
        return checked

    _compile = staticmethod(multiclass.compile_problem)

    def _roomy_stride(self, n_labels: int) -> int:
        return pad_row(n_labels) + 4  # with less than PADDING to spare

    def _make(
        self, matrix: sp.csr_matrix, offsets: Array | None, labels: Array, stride: int | None = None
    ) -> multiclass.MulticlassProblem:
        cost = checks.check_loss(self.loss, "zero_one", self.classes_.tolist(), vector=False)
        return multiclass.make_problem(
            matrix.indptr, matrix.indices, matrix.data, labels, matrix.shape[1], cost, stride
        )

    def _weigh(self, weights: Array, labels: Array) -> Array:
        by_class = checks.check_class_weight(self.class_weight, list(self.classes_), labels)
        weighted = weights * by_class[labels]
        checks.require(weighted.any(), "class_weight leaves every example a weight of zero.")
        return weighted

    def _make_layout(self, n_features: int, n_labels: int, stride: int | None = None) -> Layout:
        constant = bool(self.fit_intercept)
        return multiclass.layout(n_features, n_labels, constant=constant, stride=stride)

    coef_ = property(lambda self: self._view("coef").T)  # (classes, features), a view
    intercept_ = property(lambda self: self._view("intercept")[0])  # zero without a constant

    def _scores(self, X: Any) -> Array:
        return np.asarray(self._new_rows(X) @ self.coef_.T) + self.intercept_

    def decision_function(self, X: Any) -> Array:
        """Scores (n, classes); for two classes the second's lead over the first, (n,)."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> Array:
        """For each row, the label with the highest score."""
        best = np.argmax(self._scores(X), axis=1)  # refuses what is not fitted
        return np.asarray(self.classes_[best])
