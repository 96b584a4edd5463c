"""Sequential dual method where all outputs are the working set: nothing needs to be found.

The problem and the small dual of an example are those of :mod:`hingeline.solvers.sdm`; the
multipliers are a dense (examples, outputs) table and one sweep over x scores every output at once.
Only outputs that have mass, or whose gradient exceeds the least one that has, can gain: the pair
steps run on these few.

Shrinking. After a full pass the examples with little left to gain rest while the others are
visited again, several times; the next full pass looks at all of them. That is where the time goes
at large C, and LIBLINEAR's edge too (S. Keerthi et al., *A sequential dual method for large scale
multi-class linear SVMs*, 2008, section 4).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from hingeline._numba import helper, kernel
from hingeline.formulations import Formulation, plane_offset, plane_scale, slack_cost
from hingeline.solvers.certificate import DualSolver
from hingeline.solvers.parallel import Workers
from hingeline.solvers.sdm import pair_steps
from hingeline.structures.base import Compiled, all_add, all_inner, all_losses, all_scores

Array = np.ndarray[Any, Any]


@kernel
def find_violations(
    problem: Any, form: Formulation, order: Array, w: Array, n_outputs: int, violation: Array
) -> None:
    """``violation[i] = max(0, max_k b_k − a_k w·Δf_k)`` for the examples of ``order``."""
    losses = np.empty(n_outputs)
    scores = np.empty(n_outputs)
    for i in order:
        all_losses(problem, i, losses)
        all_scores(problem, i, w, scores)
        worst = 0.0
        for k in range(n_outputs):
            value = plane_offset(form, losses[k]) - plane_scale(form, losses[k]) * scores[k]
            worst = max(worst, value)
        violation[i] = worst if form.cap[i] > 0.0 else 0.0


@helper
def visit(
    problem: Any,
    form: Formulation,
    i: int,
    alpha: Array,
    drift: Array,
    w: Array,
    coefficient: float,
    precision: float,
    work: Array,
) -> float:
    """Solve example i's dual and carry the change into w; returns the gap it had before.

    ``work`` is (6, outputs): losses, scores, and the chosen outputs' multipliers, gradients,
    steps and indices.
    """
    m = alpha.shape[0]
    losses = work[0]
    gradient = work[1]
    all_losses(problem, i, losses)
    all_scores(problem, i, w, gradient)
    ridge = form.ridge[i]
    cap = form.cap[i]
    total = 0.0
    for k in range(m):
        total += alpha[k]
    top = 0.0
    linear = 0.0
    least = 0.0 if total < cap else np.inf
    for k in range(m):
        value = plane_offset(form, losses[k]) - plane_scale(form, losses[k]) * gradient[k]
        top = max(top, value)
        gradient[k] = value - ridge * total
        if alpha[k] > 0.0:
            linear += alpha[k] * value
            least = min(least, gradient[k])
    if cap < np.inf or ridge > 0.0:
        gap = slack_cost(form, i, top) + 0.5 * ridge * total * total - linear
    else:  # hard margin: any violation costs infinitely much, so count what the dual can gain
        gap = top - linear
    spread = max(0.0, top - ridge * total) - least
    if spread <= 0.0:
        return gap
    # Only these can take part; with equal norms all others would have to be overtaken first.
    count = 0
    chosen = work[5]
    for k in range(m):
        if alpha[k] > 0.0 or (gradient[k] > least and plane_scale(form, losses[k]) > 0.0):
            if all_inner(problem, i, k, k) == 0.0 and losses[k] == 0.0:
                continue
            work[2, count] = alpha[k]
            work[3, count] = gradient[k]
            chosen[count] = k
            count += 1
    if count == 0:
        return gap
    gram = np.empty((count, count))
    for p in range(count):
        a = plane_scale(form, losses[int(chosen[p])])
        for q in range(p + 1):
            b = plane_scale(form, losses[int(chosen[q])])
            value = a * b * all_inner(problem, i, int(chosen[p]), int(chosen[q]))
            gram[p, q] = value
            gram[q, p] = value
    masses = work[2, :count]
    pair_steps(gram, masses, work[3, :count], cap, ridge, precision * spread, 10 * count + 10)
    steps = work[4]
    for k in range(m):
        steps[k] = 0.0
    for p in range(count):
        k = int(chosen[p])
        change = masses[p] - alpha[k]
        if change != 0.0:
            alpha[k] = masses[p]
            drift[k] += coefficient * change
            steps[k] = plane_scale(form, losses[k]) * change
    all_add(problem, i, steps, w)
    return gap


@kernel
def move_all(
    problem: Any,
    form: Formulation,
    order: Array,
    alpha: Array,
    drift: Array,
    w: Array,
    visits: float,
    precision: float,
    gaps: Array,
) -> None:
    """Visit the examples of ``order`` in turn; ``visits`` were made before (for the average)."""
    work = np.empty((6, alpha.shape[1]))
    k = visits
    for i in order:
        k += 1.0
        gaps[i] = visit(problem, form, i, alpha[i], drift[i], w, k * (k - 1.0), precision, work)


@kernel
def add_all(problem: Any, form: Formulation, masses: Array, factor: float, w: Array) -> None:
    """``w += factor · Σ mass·a·Δf`` over all examples and outputs."""
    n, m = masses.shape
    losses = np.empty(m)
    steps = np.empty(m)
    for i in range(n):
        some = False
        for k in range(m):
            some = some or masses[i, k] != 0.0
        if some:
            all_losses(problem, i, losses)
            for k in range(m):
                steps[k] = factor * masses[i, k] * plane_scale(form, losses[k])
            all_add(problem, i, steps, w)


@kernel
def sum_offsets(problem: Any, form: Formulation, alpha: Array) -> float:
    """``Σ α·b``."""
    n, m = alpha.shape
    losses = np.empty(m)
    total = 0.0
    for i in range(n):
        all_losses(problem, i, losses)
        for k in range(m):
            total += alpha[i, k] * plane_offset(form, losses[k])
    return total


@kernel
def largest_reach(problem: Any, form: Formulation, n: int, m: int) -> float:
    """Largest ``‖a·Δf‖/b``."""
    losses = np.empty(m)
    reach = 0.0
    for i in range(n):
        all_losses(problem, i, losses)
        for k in range(m):
            b = plane_offset(form, losses[k])
            if b > 0.0:
                norm = plane_scale(form, losses[k]) * np.sqrt(all_inner(problem, i, k, k))
                reach = max(reach, norm / b)
    return reach


class EnumeratedSDM(DualSolver):
    """Sequential dual method over all outputs; see the head of this module.

    Options
    -------
    cached_passes : int
        Passes over the examples worth it, after each full pass.
    precision : float
        Each example's dual is solved until its largest violation has shrunk by this factor.
    skip : float
        Those passes leave out examples whose last gap was below this fraction of the mean.
    """

    name = "sdm"
    defaults: ClassVar[dict[str, Any]] = {"cached_passes": 5, "precision": 0.1, "skip": 0.3}

    def __init__(
        self,
        compiled: Compiled,
        form: Formulation,
        workers: Workers,
        seed: int,
        options: dict[str, Any] | None = None,
        start: Array | None = None,
    ) -> None:
        super().__init__(compiled, form, workers, seed, options)
        assert compiled.n_outputs is not None
        shape = (compiled.n, compiled.n_outputs)
        self.alpha = np.zeros(shape) if start is None else start
        self.drift = np.zeros(shape)
        if start is not None:
            add_all(compiled.problem, form, self.alpha, 1.0, self.w)

    @property
    def n_planes(self) -> int:
        """Planes with mass."""
        return int(np.count_nonzero(self.alpha))

    def sweep(self) -> float:
        """A full pass, then passes over the examples with something to gain."""
        self.clock += 1
        self._move(self.rng.permutation(self.active))
        self.oracle_calls += len(self.active)
        estimate = float(self.gaps.sum())
        for _ in range(self.options["cached_passes"]):
            worth = self.gaps > self.options["skip"] * self.gaps[self.active].mean()
            order = self.rng.permutation(np.flatnonzero(worth))
            self._move(order)
            self.oracle_calls += len(order)
        if self.clock & (self.clock - 1) == 0 or self.clock % 16 == 0:
            self.restart_average()
        return estimate

    def _move(self, order: Array) -> None:
        move_all(
            self.compiled.problem,
            self.form,
            order,
            self.alpha,
            self.drift,
            self.w,
            self.visits,
            self.options["precision"],
            self.gaps,
        )
        self.visits += len(order)

    def _find_violations(self) -> None:
        self.workers.map(
            lambda part, scratch: find_violations(
                self.compiled.problem,
                self.form,
                part,
                self.w,
                self.alpha.shape[1],
                self.violation,
            ),
            np.arange(self.compiled.n),
        )

    def _linear(self) -> float:
        return float(sum_offsets(self.compiled.problem, self.form, self.alpha))

    def _sums(self) -> Array:
        return np.asarray(self.alpha.sum(axis=1))

    def _reach(self) -> float:
        return float(largest_reach(self.compiled.problem, self.form, *self.alpha.shape))

    def _add_drift(self, factor: float, w: Array) -> None:
        add_all(self.compiled.problem, self.form, self.drift, factor, w)

    def _clear_drift(self) -> None:
        self.drift[:] = 0.0
