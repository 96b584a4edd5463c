"""Prediction with a fitted chain: labels, alternatives and margins."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from hingeline._checks import check_sample_weight, positive
from hingeline.core.workers import Workers, effective_n_jobs
from hingeline.estimators.allowed import allowed_table, explain_infeasible, moves_of
from hingeline.features.input import known_tokens, stack_labels, with_constant
from hingeline.structures import chain
from hingeline.structures import chain_batch as kernels
from hingeline.structures.chain import ChainProblem, constrain

# The weights of a fitted chain by name, and new sequences as its kernels want them.

Array = np.ndarray[Any, Any]


class ChainWeights:
    """Named views of ``weights_``, and the encoder at work."""

    classes_: Array
    weights_: Array
    n_features_in_: int
    fit_intercept: bool
    boundary: bool

    # Weights by name -----------------------------------------------------------------------

    def _block(self, first: int, count: int) -> Array:
        stride = chain.padded(len(self.classes_))
        rows = self.weights_.reshape(-1, stride)[first : first + count]
        return rows[:, : len(self.classes_)]

    @property
    def _n_rows(self) -> int:
        check_is_fitted(self, "weights_")
        return int(self.n_features_in_ + bool(self.fit_intercept))

    @property
    def emission_coef_(self) -> Array:
        """(labels, features), a view."""
        check_is_fitted(self, "weights_")
        return self._block(0, self.n_features_in_).T

    @property
    def feature_names_(self) -> Array:
        """Names of the features, in the order of ``emission_coef_``'s columns."""
        check_is_fitted(self, "weights_")
        encoder: Any = getattr(self, "encoder_", None)
        if hasattr(encoder, "get_feature_names_out"):
            names = np.asarray(encoder.get_feature_names_out(), dtype=object)
            return names[: self.n_features_in_]
        numbered = [f"x{k}" for k in range(self.n_features_in_)]
        return np.array(getattr(self, "feature_names_in_", numbered), dtype=object)

    @property
    def intercept_(self) -> Array:
        """Weights of the constant feature, zero without one."""
        check_is_fitted(self, "weights_")
        if not self.fit_intercept:
            return np.zeros(len(self.classes_))
        return self._block(self.n_features_in_, 1)[0]

    @property
    def transition_coef_(self) -> Array:
        """``[from, to]``, a view."""
        return self._block(self._n_rows, len(self.classes_))

    @property
    def start_coef_(self) -> Array:
        """Weights of the first label, zero without ``boundary``."""
        check_is_fitted(self, "weights_")
        if not self.boundary:
            return np.zeros(len(self.classes_))
        return self._block(self._n_rows + len(self.classes_), 1)[0]

    @property
    def end_coef_(self) -> Array:
        """Weights of the last label, zero without ``boundary``."""
        check_is_fitted(self, "weights_")
        if not self.boundary:
            return np.zeros(len(self.classes_))
        return self._block(self._n_rows + len(self.classes_) + 1, 1)[0]

    # Prediction ----------------------------------------------------------------------------

    def _ready(self, X: Any, lengths: Any) -> chain.ChainProblem:
        check_is_fitted(self, "weights_")
        encoder = getattr(self, "encoder_", None)
        matrix, offsets = known_tokens(encoder, X, lengths)
        if encoder is not None and matrix.shape[1] > self.n_features_in_:
            matrix = matrix[:, : self.n_features_in_]  # another model taught the encoder more
        if matrix.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {matrix.shape[1]} features, but {type(self).__name__} was fitted with "
                f"{self.n_features_in_}."
            )
        matrix = with_constant(matrix) if self.fit_intercept else matrix
        n_labels = len(self.classes_)
        return chain.make_problem(
            matrix.indptr,
            matrix.indices,
            matrix.data,
            offsets,
            np.zeros(matrix.shape[0], dtype=np.int32),
            matrix.shape[1],
            np.zeros((n_labels, n_labels)),
            self.boundary,
            cache_mb=0.0,
        )


class ChainPrediction:
    """What a fitted chain can say of new sequences; :class:`ChainSSVM` provides ``_ready``.

    All methods take ``allowed``, which limits the labels of single tokens: one entry per sequence,
    namely None (anything), a boolean array (tokens, labels), a list with one entry per token
    (None, a label, or a list or set of labels), or a dict ``{position: label or labels}``. One
    boolean array (all tokens, labels) does as well.
    """

    classes_: Array
    weights_: Array
    scheme_: str | None
    n_jobs: int | None

    def _ready(self, X: Any, lengths: Any) -> ChainProblem:
        raise NotImplementedError

    def _prepared(self, X: Any, lengths: Any, allowed: Any) -> ChainProblem:
        """The sequences with everything that is forbidden in them."""
        problem = self._ready(X, lengths)
        table = None if allowed is None else allowed_table(allowed, self.classes_, problem.offsets)
        return constrain(problem, moves_of(self.classes_, self.scheme_), table)

    def _over_sequences(self, kernel: Any, problem: ChainProblem, *out: Array) -> None:
        with Workers(effective_n_jobs(self.n_jobs), 0) as workers:
            workers.map(
                lambda part, scratch: kernel(problem, part, self.weights_, *out),
                np.arange(len(problem.offsets) - 1),
            )

    def _refuse_infeasible(self, problem: ChainProblem, infeasible: Array) -> None:
        if infeasible.any():
            where = int(np.argmax(infeasible))
            raise ValueError(explain_infeasible(problem, where, self.scheme_))

    def predict(self, X: Any, lengths: Any = None, allowed: Any = None) -> list[Array]:
        """Labels of every sequence.

        Parameters
        ----------
        X, lengths : as for ``fit``
        allowed : list, optional
            Labels that are allowed, one entry per sequence: None (anything), a boolean array
            (tokens, labels), a list with None, a label or several labels per token, or a dict
            ``{position: label or labels}``. Also one boolean array (all tokens, labels).

        Returns
        -------
        list of ndarray, one per sequence
        """
        problem = self._prepared(X, lengths, allowed)
        return np.split(self.classes_[self._decode(problem)], problem.offsets[1:-1])

    def _decode(self, problem: ChainProblem) -> Array:
        numbers = np.empty(problem.offsets[-1], dtype=np.int32)
        values = np.empty(len(problem.offsets) - 1)
        self._over_sequences(kernels.decode_all, problem, numbers, values)
        self._refuse_infeasible(problem, values == -np.inf)
        return numbers

    def predict_nbest(
        self, X: Any, n: int, lengths: Any = None, allowed: Any = None
    ) -> list[list[tuple[Array, float]]]:
        """The n best labellings of every sequence, exactly.

        Parameters
        ----------
        X, lengths, allowed : as for :meth:`predict`
        n : int
            A sequence that has fewer labellings gives all of them.

        Returns
        -------
        list of list of (ndarray of labels, score)
            Per sequence, best first; the first is what :meth:`predict` gives. Scores are those
            of the model, not probabilities.
        """
        positive("n", n, integer=True)
        problem = self._prepared(X, lengths, allowed)
        offsets = problem.offsets
        paths = np.zeros(int(n) * offsets[-1], dtype=np.int32)
        values = np.empty((len(offsets) - 1, int(n)))
        counts = np.empty(len(offsets) - 1, dtype=np.int64)
        self._over_sequences(kernels.n_best_all, problem, paths, values, counts)
        self._refuse_infeasible(problem, counts == 0)
        found = []
        for part, scores, count in zip(
            np.split(self.classes_[paths], int(n) * offsets[1:-1]), values, counts, strict=True
        ):
            labels = part.reshape(int(n), -1)
            found.append(list(zip(labels[:count], scores[:count].tolist(), strict=True)))
        return found

    def predict_max_marginals(
        self, X: Any, lengths: Any = None, allowed: Any = None
    ) -> list[Array]:
        """For each token and label, the score of the best labelling with that label there.

        Parameters
        ----------
        X, lengths, allowed : as for :meth:`predict`

        Returns
        -------
        list of ndarray of shape (tokens, labels)
            ``-inf`` where a label cannot be.
        """
        problem = self._prepared(X, lengths, allowed)
        return np.split(self._max_marginals(problem), problem.offsets[1:-1])

    def _max_marginals(self, problem: ChainProblem) -> Array:
        out = np.empty((problem.offsets[-1], len(self.classes_)))
        self._over_sequences(kernels.max_marginals_all, problem, out)
        self._refuse_infeasible(problem, out[problem.offsets[:-1]].max(axis=1) == -np.inf)
        return out

    def decision_function(self, X: Any, lengths: Any = None, allowed: Any = None) -> list[Array]:
        """Margin of each label of each token against the best alternative.

        The score of the best labelling with that label there minus the score of the best one with
        another label there. The predicted label has the largest margin, which is not negative.

        Parameters
        ----------
        X, lengths, allowed : as for :meth:`predict`

        Returns
        -------
        list of ndarray of shape (tokens, labels)
            ``-inf`` where a label cannot be, ``inf`` where nothing else can.
        """
        problem = self._prepared(X, lengths, allowed)
        table = self._max_marginals(problem)
        kernels.against_rest_all(table)
        return np.split(table, problem.offsets[1:-1])

    def predict_margin(self, X: Any, lengths: Any = None, allowed: Any = None) -> Array:
        """Score of the best labelling minus that of the second best, for each sequence.

        Parameters
        ----------
        X, lengths, allowed : as for :meth:`predict`

        Returns
        -------
        ndarray of shape (sequences,)
            ``inf`` where there is only one labelling.
        """
        problem = self._prepared(X, lengths, allowed)
        out = np.empty(len(problem.offsets) - 1)
        self._over_sequences(kernels.sequence_margins_all, problem, out)
        self._refuse_infeasible(problem, np.isnan(out))
        return out

    def score(self, X: Any, y: Any, lengths: Any = None, sample_weight: Any = None) -> float:
        """Share of tokens labelled right.

        Parameters
        ----------
        X, y, lengths : as for ``fit``
        sample_weight : array-like, one per sequence, optional
        """
        predicted = self.predict(X, lengths)
        offsets = np.concatenate([[0], np.cumsum([len(p) for p in predicted])])
        flat = stack_labels(y, offsets, lengths)
        best = np.concatenate(predicted).tolist()
        right = np.array([a == b for a, b in zip(best, flat, strict=True)])
        weights = check_sample_weight(sample_weight, len(predicted))
        return float(np.average(right, weights=np.repeat(weights, np.diff(offsets))))
