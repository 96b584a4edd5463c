"""What the semi-supervised baselines share: data with and without labels, and what a fit leaves."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from hingeline._checks import check_sample_weight
from hingeline.constraints.penalties import Penalties
from hingeline.core.results import Result
from hingeline.core.workers import Workers, effective_n_jobs
from hingeline.estimators.allowed import choose_scheme
from hingeline.estimators.chain import ChainSSVM
from hingeline.features.input import find_classes, learn_tokens, number_labels, plain_labels
from hingeline.semisupervised.partial_labels import rows_in, split_labels, words_in
from hingeline.structures.chain import ChainProblem

# What the baselines leave behind: a row and the weights of every round.

Array = np.ndarray[Any, Any]


class BaselineRound(NamedTuple):
    """One round of labelling and learning; the first is the supervised solution."""

    objective: float  # what the method minimises, nan where it minimises nothing
    penalty: float  # of the labels, or expected labels, learned from; nan in the first round
    changed: float  # share of unlabelled tokens whose label is new; nan in the first round
    temperature: float  # nan where there is none
    dev_score: float  # nan without development data
    time: float  # seconds


@dataclass
class Rounds:
    """All rounds so far.

    Parameters
    ----------
    score : callable, optional
        Weights to a score on development data.
    """

    score: Callable[[Array], float] | None = None
    rows: list[BaselineRound] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    labels: list[Array] = field(default_factory=list)
    _last: float = field(default_factory=time.perf_counter)

    def add(
        self,
        result: Result,
        labels: Array,
        *,
        objective: float = math.nan,
        penalty: float = math.nan,
        temperature: float = math.nan,
    ) -> float:
        """Note a round; the share of labels that changed."""
        changed = float(np.mean(labels != self.labels[-1])) if self.labels else math.nan
        now = time.perf_counter()
        score = math.nan if self.score is None else self.score(result.weights)
        self.rows.append(
            BaselineRound(objective, penalty, changed, temperature, score, now - self._last)
        )
        self.results.append(result)
        self.labels.append(labels)
        self._last = time.perf_counter()
        return changed


@dataclass
class BaselineData:
    """Sequences ready for a method; those with labels first."""

    model: Any
    order: Array  # numbers of the sequences as the caller counts them
    first: int  # how many are labelled
    matrix: sp.csr_matrix
    offsets: Array
    labels: Array  # of the labelled tokens
    weights: Array  # of the labelled sequences
    penalties: Penalties

    @property
    def n(self) -> int:
        """Number of sequences."""
        return len(self.order)

    def problem(self, lo: int, hi: int) -> ChainProblem:
        """The sequences ``lo ≤ i < hi``; unlabelled tokens have label 0 for the time being."""
        a, b = int(self.offsets[lo]), int(self.offsets[hi])
        labels = np.zeros(b - a, dtype=np.int32)
        known = self.labels[a:b]
        labels[: len(known)] = known
        offsets = self.offsets[lo : hi + 1] - a
        made: ChainProblem = self.model._make(
            self.model._with_constant(self.matrix[a:b]), offsets, labels
        )
        return made


class Baseline(BaseEstimator):
    """Fit, predict and score around a method; subclasses run it."""

    base: Any
    constraints: Any
    classes: Any
    _default: Any = ChainSSVM

    def fit(
        self,
        X: Any,
        y: Any,
        lengths: Any = None,
        sample_weight: Any = None,
        *,
        words: Any = None,
        dev: tuple[Any, Any] | None = None,
    ) -> Any:
        """Train on labelled and unlabelled sequences.

        Parameters
        ----------
        X, lengths
            As for :meth:`ChainSSVM.fit`; an encoder is fitted on all sequences.
        y : list of label sequences
            None for a sequence without labels.
        sample_weight : array-like, one per sequence, optional
            Of labelled sequences; those of the others count for nothing.
        words : list of lists of str, optional
            What constraints see of each sequence, where X does not hold words.
        dev : (X, y), optional
            Development data: the round that is best on it is kept, instead of the last.

        Returns
        -------
        self
        """
        if self.base is not None and not isinstance(self.base, self._default):
            raise TypeError(f"base must be a {self._default.__name__}, got {self.base!r:.60}.")
        if dev is not None and (not isinstance(dev, tuple) or len(dev) != 2):
            raise TypeError("dev must be a pair (X_dev, y_dev).")
        model = self._default() if self.base is None else clone(self.base)
        model._check_parameters()
        self._check(model)
        data = self._prepare(model, X, y, lengths, sample_weight, words)
        rounds = Rounds()
        if dev is not None:

            def score(w: Array) -> float:
                model.weights_ = w
                return float(model.score(*dev))

            rounds.score = score
        with Workers(effective_n_jobs(model.n_jobs), 0) as workers:
            self._run(data, rounds, workers)
        self._keep(data, rounds)
        return self

    def _check(self, model: Any) -> None:
        raise NotImplementedError

    def _run(self, data: BaselineData, rounds: Rounds, workers: Workers) -> None:
        raise NotImplementedError

    def _prepare(
        self, model: Any, X: Any, y: Any, lengths: Any, sample_weight: Any, words: Any
    ) -> BaselineData:
        encoder, matrix, offsets = learn_tokens(model.features, X, lengths)
        known, flat = split_labels(y, offsets, lengths)
        if not flat:
            raise ValueError(
                "y is None for all sequences: at least one must be labelled to begin from."
            )
        if known.all():
            raise ValueError(
                f"y has labels for all sequences: mark unlabelled ones with None, or fit "
                f"{type(model).__name__} itself."
            )
        order = np.concatenate([np.flatnonzero(known), np.flatnonzero(~known)])
        first = int(known.sum())
        model.encoder_ = encoder
        model.n_features_in_ = matrix.shape[1]
        declared = [] if self.classes is None else plain_labels(self.classes)
        model.classes_, index = find_classes([*declared, *flat])
        labels = number_labels(flat, index)
        rows, inner = rows_in(order, offsets)
        model.scheme_ = choose_scheme(model.scheme, model.classes_, labels, inner[: first + 1])
        return BaselineData(
            model=model,
            order=order,
            first=first,
            matrix=matrix[rows],
            offsets=inner,
            labels=labels,
            weights=check_sample_weight(sample_weight, len(known))[order[:first]],
            penalties=Penalties(
                self.constraints,
                words_in(X, words, order[first:], offsets),
                model.classes_.tolist(),
            ),
        )

    def _keep(self, data: BaselineData, rounds: Rounds) -> None:
        """Weights of the last round, or of the best one on development data."""
        model = data.model
        scores = [row.dev_score for row in rounds.rows]
        chosen = len(scores) - 1 if rounds.score is None else int(np.argmax(scores))
        model._store(rounds.results[chosen])
        numbers = np.concatenate([data.labels, rounds.labels[chosen]])
        parts = np.split(model.classes_[numbers], data.offsets[1:-1])
        self.transduction_: list[Array] = [parts[0]] * data.n
        for place, part in zip(data.order.tolist(), parts, strict=True):
            self.transduction_[place] = part
        self.base_ = model
        self.classes_ = model.classes_
        self.n_features_in_ = model.n_features_in_
        self.rounds_ = rounds.rows
        self.round_weights_ = [result.weights for result in rounds.results]
        self.selected_ = chosen

    @property
    def weights_(self) -> Array:
        """The flat weights of the round that was kept."""
        check_is_fitted(self, "base_")
        weights: Array = self.base_.weights_
        return weights

    @property
    def round_models_(self) -> list[Any]:
        """A fitted estimator for every round, e.g. to score them all."""
        check_is_fitted(self, "base_")
        return [self.base_.with_weights(weights) for weights in self.round_weights_]

    def predict(self, X: Any, lengths: Any = None, allowed: Any = None) -> list[Array]:
        """Labels of every sequence, without constraints.

        Parameters
        ----------
        X, lengths : as for :meth:`fit`
        allowed : list, optional
            Labels that are allowed, as for :meth:`ChainSSVM.predict`.

        Returns
        -------
        list of ndarray, one per sequence
        """
        check_is_fitted(self, "base_")
        labels: list[Array] = self.base_.predict(X, lengths, allowed)
        return labels

    def score(self, X: Any, y: Any, lengths: Any = None, sample_weight: Any = None) -> float:
        """Share of tokens labelled right.

        Parameters
        ----------
        X, y, lengths : as for :meth:`ChainSSVM.score`
        sample_weight : array-like, one per sequence, optional
        """
        check_is_fitted(self, "base_")
        return float(self.base_.score(X, y, lengths, sample_weight))
