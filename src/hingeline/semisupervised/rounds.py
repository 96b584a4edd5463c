"""What the baselines leave behind: a row and the weights of every round."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from hingeline.solvers.history import Result

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
