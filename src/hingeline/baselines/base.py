"""What the semi-supervised baselines share: the fit around a method, and what it leaves."""

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from hingeline._checks import effective_n_jobs, require
from hingeline.constraints.penalties import Penalties
from hingeline.core.primitives import Workers
from hingeline.semisupervised.annealing import Rounds
from hingeline.semisupervised.estimator import FewLabelsEstimator
from hingeline.semisupervised.starting import PartlyLabelled


class BaselineRound(NamedTuple):
    """One round of labelling and learning; the first is the supervised solution."""

    objective: float = math.nan  # what the method minimises, nan where it minimises nothing
    penalty: float = math.nan  # of the (expected) labels learned from; nan in the first round
    changed: float = math.nan  # share of unlabelled tokens whose label is new; likewise
    temperature: float = math.nan  # nan where there is none
    dev_score: float = math.nan  # nan without development data
    time: float = 0.0  # seconds


class Baseline(FewLabelsEstimator):
    """The fit around a method, which subclasses run."""

    #: Why a method cannot use Python predicates.
    _no_predicates: ClassVar[str]

    def _learn(self, data: PartlyLabelled, dev: Any) -> None:
        model = data.model
        text = "y has labels for all sequences: mark unlabelled ones with None"
        require(data.first < data.n, f"{text}, or fit {type(model).__name__} itself.")
        penalties = Penalties(self.constraints, data.words, model.classes_.tolist())
        text = f"{type(self).__name__} cannot use Python predicates, which {self._no_predicates}"
        none = not penalties.predicates
        require(none, f"{text}: leave them out, or use SemiSupervisedSSVM.")
        rounds = Rounds(BaselineRound, model, dev)
        with Workers(effective_n_jobs(model.n_jobs), 0) as workers:
            self._run(data, penalties, rounds, workers)
        scores = [row.dev_score for row in rounds.steps]
        chosen = len(scores) - 1 if dev is None else int(np.argmax(scores))
        model._store(rounds.results[chosen])
        self._keep(model, chosen)
        self.transduction_ = data.restore_order(rounds.labels[chosen])
        self.rounds_ = rounds.steps
        self.round_weights_ = [result.weights for result in rounds.results]

    def _run(
        self, data: PartlyLabelled, penalties: Penalties, rounds: Rounds, workers: Workers
    ) -> None:
        raise NotImplementedError

    @property
    def round_models_(self) -> list[Any]:
        """A fitted estimator for every round, e.g. to score them all."""
        check_is_fitted(self, "base_")
        return [self.base_.with_weights(weights) for weights in self.round_weights_]
