"""Threads over examples, with results that do not depend on how many there are.

Kernels release the GIL and write only what belongs to their own examples, so an order of examples
may be cut anywhere. Nothing is ever summed across threads.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def effective_n_jobs(n_jobs: int | None) -> int:
    """Threads for joblib's convention: None is 1, −1 all cores, −2 all but one."""
    if n_jobs is None:
        return 1
    if n_jobs == 0:
        raise ValueError("n_jobs=0 has no meaning: use 1 for one thread or -1 for all cores.")
    if n_jobs < 0:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        return max(1, (cores or 1) + 1 + n_jobs)
    return n_jobs


class Workers:
    """A few threads, each with its own scratch vector."""

    def __init__(self, n_jobs: int, scratch_size: int) -> None:
        self.n_jobs = n_jobs
        self.scratch = [np.zeros(scratch_size) for _ in range(n_jobs)]
        self._pool = ThreadPoolExecutor(n_jobs - 1) if n_jobs > 1 else None

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)

    def map(self, function: Callable[[Array, Array], None], order: Array) -> None:
        """``function(part, scratch)`` for parts of ``order``, this thread taking one itself."""
        if self._pool is None or len(order) < 2 * self.n_jobs:
            function(order, self.scratch[0])
            return
        # Plain slices: blocks are small and this runs for each of them.
        cuts = [len(order) * k // self.n_jobs for k in range(self.n_jobs + 1)]
        futures = [
            self._pool.submit(function, order[cuts[k] : cuts[k + 1]], self.scratch[k])
            for k in range(1, self.n_jobs)
        ]
        try:
            function(order[: cuts[1]], self.scratch[0])
        finally:
            # Also after Ctrl-C: nobody may still be writing when the caller goes on.
            while not all(future.done() for future in futures):
                with contextlib.suppress(Exception):
                    for future in futures:
                        future.result()
        for future in futures:
            future.result()
