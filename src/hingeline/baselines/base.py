"""What the semi-supervised baselines share: the fit around a method, and what it leaves."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from hingeline._checks import effective_n_jobs, one_of, positive
from hingeline.constraints.decode import decode_compiled
from hingeline.constraints.penalties import Penalties
from hingeline.core.primitives import Workers
from hingeline.core.results import Result
from hingeline.estimators.allowed import moves_of
from hingeline.estimators.chain import ChainSSVM
from hingeline.semisupervised.annealing import WarmSolver
from hingeline.semisupervised.starting import PartlyLabelled, prepare
from hingeline.structures.chain import layout_of

Array = np.ndarray[Any, Any]

#: What a label or move that a tag scheme forbids adds to a score: a beam wants finite numbers.
SCHEME_FORBIDDEN = -1e8


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
    """All rounds so far; ``score`` maps weights to a score on development data."""

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
        """Note a round and return the share of labels that changed."""
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


@dataclass(eq=False, repr=False)
class Baseline(BaseEstimator):
    """Fit, predict and score around a method, which subclasses run."""

    base: Any = None
    constraints: Any = ()
    classes: Any = field(default=None, kw_only=True)

    _base_class: ClassVar[Any] = ChainSSVM
    #: Why a method cannot use Python predicates.
    _no_predicates: ClassVar[str]

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
        kind = self._base_class
        if self.base is not None and not isinstance(self.base, kind):
            raise TypeError(f"base must be a {kind.__name__}, got {self.base!r:.60}.")
        if dev is not None and (not isinstance(dev, tuple) or len(dev) != 2):
            raise TypeError("dev must be a pair (X_dev, y_dev).")
        model = kind() if self.base is None else clone(self.base)
        model.check_parameters()
        self._check(model)
        data = prepare(model, X, y, lengths, sample_weight, words, self.classes)
        if data.first == data.n:
            raise ValueError(
                f"y has labels for all sequences: mark unlabelled ones with None, or fit "
                f"{kind.__name__} itself."
            )
        penalties = Penalties(self.constraints, data.words, model.classes_.tolist())
        if penalties.predicates:
            raise ValueError(
                f"{type(self).__name__} cannot use Python predicates, which {self._no_predicates}: "
                "leave them out, or use SemiSupervisedSSVM."
            )
        rounds = Rounds()
        if dev is not None:

            def score(w: Array) -> float:
                model.weights_ = w
                return float(model.score(*dev))

            rounds.score = score
        with Workers(effective_n_jobs(model.n_jobs), 0) as workers:
            self._run(data, penalties, rounds, workers)
        scores = [row.dev_score for row in rounds.rows]
        chosen = len(scores) - 1 if dev is None else int(np.argmax(scores))
        model._store(rounds.results[chosen])
        self.transduction_ = data.restore_order(rounds.labels[chosen])
        self.base_ = model
        self.classes_ = model.classes_
        self.n_features_in_ = model.n_features_in_
        self.rounds_ = rounds.rows
        self.round_weights_ = [result.weights for result in rounds.results]
        self.selected_ = chosen
        return self

    def _check(self, model: Any) -> None:
        raise NotImplementedError

    def _run(
        self, data: PartlyLabelled, penalties: Penalties, rounds: Rounds, workers: Workers
    ) -> None:
        raise NotImplementedError

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


# Baselines on a structural SVM -----------------------------------------------------------------


def check_margin_base(model: Any) -> None:
    """Refuse a structural SVM whose labels cannot be switched."""
    one_of("base's slack", model.slack, ("max",))
    one_of("base's rescale", model.rescale, ("margin",))
    one_of("base's solver", model.solver, ("auto", "sdm"))
    positive("base's C", model.C)


def learn_supervised(data: PartlyLabelled) -> Result:
    """The weights of the labelled sequences alone."""
    solver = WarmSolver(data.model, data.make_problem(0, data.first))
    return solver.solve(data.weights, np.zeros(0, dtype=np.int64))


def make_learner(model: Any, problem: Any, weights: Array) -> Callable[[Array], Result]:
    """Labels of the problem's last tokens to weights, from the multipliers of the call before."""
    solver = WarmSolver(model, problem)

    def learn(labels: Array) -> Result:
        at = len(problem.labels) - len(labels)
        differs = np.concatenate([np.zeros(at, bool), labels != problem.labels[at:]])
        problem.labels[at:] = labels
        changed = np.flatnonzero(np.logical_or.reduceat(differs, problem.offsets[:-1]))
        return solver.solve(weights, changed)

    return learn


def make_decoder(
    model: Any, problem: Any, penalties: Penalties, beam: int
) -> Callable[[Array], Array]:
    """Weights to labels of a problem's sequences, under the constraints on single sequences."""
    layout = layout_of(problem)
    tokens = sp.csr_matrix(
        (problem.values, problem.indices, problem.indptr),
        shape=(len(problem.labels), problem.n_features),
    )
    first, last = problem.offsets[:-1], problem.offsets[1:] - 1
    valid = moves_of(model.classes_, model.scheme_)

    def decode(w: Array) -> Array:
        tables = layout.split(w)
        scores = np.asarray(tokens @ tables["emission"])
        moves = tables["transition"].copy()
        if problem.boundary:
            scores[first] += tables["start"][0]
            scores[last] += tables["end"][0]
        if valid is not None:
            scores[first] += np.where(valid[0], 0.0, SCHEME_FORBIDDEN)
            scores[last] += np.where(valid[2], 0.0, SCHEME_FORBIDDEN)
            moves += np.where(valid[1], 0.0, SCHEME_FORBIDDEN)
        return decode_compiled(penalties.compiled, scores, moves, beam=beam)

    return decode


def alternate(
    supervised: Result,
    decode: Callable[[Array], Array],
    learn: Callable[[Array], Result],
    penalties: Penalties,
    rounds: Rounds,
    max_rounds: int,
) -> None:
    """Label the unlabelled sequences and learn from these labels, in turn, until they settle."""
    labels = decode(supervised.weights)
    rounds.add(supervised, labels)
    for _ in range(max_rounds):
        result = learn(labels)
        paid = penalties.total(labels)
        labels = decode(result.weights)
        if rounds.add(result, labels, penalty=paid, objective=result.primal) == 0.0:
            break
