"""Our side of the comparisons: fitting, warming up and reading the certificate.

Kernels compile at first use. Every timed fit is therefore preceded by a small warm-up fit of the
same kind; `memory.py` measures the compilation that is left out here.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from datasets import ChainData, FlatData, encode_attributes
from harness import Timing, cpu_seconds, timed
from hingeline import ChainSSVM, MulticlassSSVM

WARM_UP_NOTE = "Our kernels were compiled by a small warm-up fit before anything was timed."
WARM_UP_SEQUENCES = 40
WARM_UP_ROWS = 400

Params = Mapping[str, Any]


class EncodedTask(NamedTuple):
    """A sequence task as our flat arrays, with the seconds for encoding its training part."""

    train: sparse.csr_matrix
    labels: np.ndarray
    lengths: np.ndarray
    test: sparse.csr_matrix
    test_lengths: np.ndarray
    timing: Timing

    def prefix(self, n: int) -> EncodedTask:
        """Return the task with only its first `n` training sequences."""
        tokens = int(self.lengths[:n].sum())
        return self._replace(
            train=self.train[:tokens], labels=self.labels[:tokens], lengths=self.lengths[:n]
        )


def encode_task(task: ChainData) -> EncodedTask:
    """Encode both parts; the test part knows only the attributes of the training part."""
    encoded, timing = timed(encode_attributes, task.train_attributes)
    test = encode_attributes(task.test_attributes, encoded.vocabulary)
    labels = np.array(list(chain.from_iterable(task.train_labels)))
    return EncodedTask(encoded.matrix, labels, encoded.lengths, test.matrix, test.lengths, timing)


def fit_chain(task: EncodedTask, params: Params) -> tuple[ChainSSVM, Timing]:
    """Fit a chain; the attributes must already hold a bias where one is wanted."""
    estimator = ChainSSVM(**{"fit_intercept": False, "random_state": 0, **params})
    return timed(estimator.fit, task.train, task.labels, lengths=task.lengths)


def fit_multiclass(data: FlatData, params: Params) -> tuple[MulticlassSSVM, Timing]:
    """Fit a flat classifier; the bias must already be a column."""
    estimator = MulticlassSSVM(**{"fit_intercept": False, "random_state": 0, **params})
    return timed(estimator.fit, data.train, data.train_labels)


def warm_up_chain(task: EncodedTask, params: Params) -> None:
    """Compile everything that a fit and a prediction with these settings need."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator, _ = fit_chain(task.prefix(WARM_UP_SEQUENCES), params)
        estimator.predict(task.test, lengths=task.test_lengths)


def warm_up_multiclass(data: FlatData, params: Params) -> None:
    """Compile everything that a fit and a prediction with these settings need."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator, _ = fit_multiclass(flat_prefix(data, WARM_UP_ROWS), params)
        estimator.predict(data.test[:WARM_UP_ROWS])


def flat_prefix(data: FlatData, n: int) -> FlatData:
    """Return the problem with only its first `n` training rows."""
    return data._replace(train=data.train[:n], train_labels=data.train_labels[:n])


def certificate(estimator: Any) -> dict[str, float]:
    """Return what the fit proved: objectives, relative gap in percent, passes."""
    return {
        "primal": float(estimator.primal_objective_),
        "dual": float(estimator.dual_objective_),
        "gap %": 100.0 * float(estimator.duality_gap_ / estimator.primal_objective_),
        "passes": float(estimator.n_iter_),
    }


class Moment(NamedTuple):
    """The weights after one pass and the seconds spent on training until then."""

    timing: Timing
    weights: np.ndarray


class Snapshots:
    """Callback that keeps a copy of the weights after each pass.

    The seconds spent on copying are taken out of the moments that follow. Create it right
    before the fit: processor seconds count from there.

    Parameters
    ----------
    limit : int
        The fit is stopped after that many passes.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.moments: list[Moment] = []
        self._cpu_start = cpu_seconds()
        self._copying = 0.0

    def __call__(self, state: Any) -> bool:
        cpu, wall = cpu_seconds(), time.perf_counter()
        spent = Timing(state.row.time - self._copying, cpu - self._cpu_start - self._copying)
        self.moments.append(Moment(spent, np.array(state.weights)))
        self._copying += time.perf_counter() - wall
        return len(self.moments) >= self.limit


class TimeLimit:
    """Callback that stops a fit after so many seconds; `hit` says whether it did."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.hit = False

    def __call__(self, state: Any) -> bool:
        self.hit = bool(state.row.time >= self.seconds)
        return self.hit
