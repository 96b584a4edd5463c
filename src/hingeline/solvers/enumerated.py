"""Sequential dual method where all outputs are the working set: nothing needs to be found.

The problem and the small dual of an example are those of :mod:`hingeline.solvers.sdm`; the
multipliers are a dense (examples, outputs) table and one sweep over x scores every output at once.
Only outputs that have mass, or whose gradient exceeds the least one that has, can gain: the pair
steps run on these few.

Shrinking. Each sweep looks at all examples once, at fixed weights and in threads: that gives every
example's gap and, for nothing, the true primal of the last iterate. Then mass is moved in several
passes over the examples with something to gain, in order. Late in a run these are few, which is
LIBLINEAR's edge at large C too (S. Keerthi et al., *A sequential dual method for large scale
multi-class linear SVMs*, 2008, section 4).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from hingeline._numba import finite_helper, helper, kernel, prefetch
from hingeline.formulations import Formulation, example_gap, plane_offset, plane_scale
from hingeline.solvers.certificate import DualSolver, stages_for, total_slack_cost
from hingeline.solvers.parallel import Workers
from hingeline.solvers.sdm import pair_steps
from hingeline.solvers.subspace import Accelerator
from hingeline.structures.base import (
    PADDING,
    Compiled,
    all_add,
    all_inner,
    all_isotropy,
    all_losses,
    all_prefetch,
    all_scores,
)

Array = np.ndarray[Any, Any]


@finite_helper
def hinges(
    problem: Any, form: Formulation, i: int, m: int, w: Array, losses: Array, out: Array
) -> None:
    """``b_k − a_k w·Δf_k`` of every output; their losses in ``losses``."""
    all_losses(problem, i, losses)
    all_scores(problem, i, w, out)
    if form.root == 0 and form.rescaled == 0:
        for k in range(m):
            out[k] = losses[k] - out[k]
    else:
        for k in range(m):
            out[k] = plane_offset(form, losses[k]) - plane_scale(form, losses[k]) * out[k]


@kernel
def find_gaps(
    problem: Any,
    form: Formulation,
    order: Array,
    w: Array,
    alpha: Array,
    violation: Array,
    gaps: Array,
) -> None:
    """Each example's largest hinge and gap at fixed weights; parts may run in threads."""
    m = alpha.shape[1]
    losses = np.empty(m + PADDING)
    values = np.empty(m + PADDING)
    for i in order:
        hinges(problem, form, i, m, w, losses, values)
        top = 0.0
        total = 0.0
        linear = 0.0
        for k in range(m):
            top = max(top, values[k])
            total += alpha[i, k]
            linear += alpha[i, k] * values[k]
        violation[i] = top if form.cap[i] > 0.0 else 0.0
        gaps[i] = example_gap(form, i, top, total, linear)


@finite_helper
def visit_isotropic(
    problem: Any,
    form: Formulation,
    i: int,
    alpha: Array,
    drift: Array,
    w: Array,
    coefficient: float,
    square: float,
    work: Array,
) -> float:
    """:func:`visit` in closed form: ``Δf_j·Δf_k = square·(1 + [j = k])`` and no plane is scaled.

    Then ``α_k = max(0, β_k − θ)`` with ``β = α + g/square``, and θ balances the sum T of the new
    multipliers: ``θ = κ·(T(θ) − T_old)``, ``κ = 1 + ridge/square``, or ``T(θ) = cap`` where that
    exceeds the bound. Both are found by shrinking the set of positive entries from all of them,
    which never has to take one back (Michelot's projection onto a simplex). No branches in the
    loops: they run in whole vectors.
    """
    m = alpha.shape[0]
    losses = work[0]
    values = work[1]
    hinges(problem, form, i, m, w, losses, values)
    cap = form.cap[i]
    top = 0.0
    total = 0.0
    linear = 0.0
    for k in range(m):
        top = max(top, values[k])
        total += alpha[k]
        linear += alpha[k] * values[k]
    gap = example_gap(form, i, top, total, linear)
    if total == 0.0 and top == 0.0:
        return gap
    ridge = form.ridge[i]
    shift = ridge * total
    beta = work[2]
    inverse = 1.0 / square
    for k in range(m):
        # The true output has loss 0 and no plane.
        beta[k] = alpha[k] + (values[k] - shift) * inverse if losses[k] > 0.0 else -np.inf
    kappa = 1.0 + ridge * inverse
    theta = -np.inf
    mass = 0.0
    positive = 0.0
    for bounded in range(2):
        count = m + 1.0
        while True:
            positive = 0.0
            mass = 0.0
            for k in range(m):
                inside = beta[k] > theta
                positive += 1.0 if inside else 0.0
                mass += beta[k] if inside else 0.0
            if positive >= count or positive == 0.0:  # rounding may even take one back
                break
            count = positive
            if bounded == 0:
                theta = kappa * (mass - total) / (1.0 + kappa * positive)
            else:
                theta = (mass - cap) / positive
        if bounded == 0:
            if mass - positive * theta <= cap:
                break
            theta = -np.inf
    steps = work[3]
    some = False
    for k in range(m):
        new = max(0.0, beta[k] - theta)
        change = new - alpha[k]
        some = some or change != 0.0
        steps[k] = change
        drift[k] += coefficient * change
        alpha[k] = new
    if some:
        all_add(problem, i, steps, w)
    return gap


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
    chosen: Array,
    gram: Array,
) -> float:
    """Solve example i's dual and carry the change into w; returns the gap it had before.

    ``work`` is (5, outputs and padding): losses, hinges, and the chosen outputs' multipliers,
    gradients and steps; ``chosen`` and ``gram`` are buffers too.
    """
    m = alpha.shape[0]
    losses = work[0]
    values = work[1]
    hinges(problem, form, i, m, w, losses, values)
    cap = form.cap[i]
    top = 0.0
    total = 0.0
    linear = 0.0
    for k in range(m):
        top = max(top, values[k])
        total += alpha[k]
        linear += alpha[k] * values[k]
    if total == 0.0 and top == 0.0:
        return 0.0
    ridge = form.ridge[i]
    gap = example_gap(form, i, top, total, linear)
    # Gradients are ``values − ridge·total``; the true output stands for gradient 0.
    shift = ridge * total
    least = 0.0 if total < cap else np.inf
    for k in range(m):
        if alpha[k] > 0.0:
            least = min(least, values[k] - shift)
    spread = max(0.0, top - shift) - least
    if spread <= 0.0:
        return gap
    # Only planes with mass, or above the least that has, can take part.
    masses = work[2]
    gradient = work[3]
    count = 0
    for k in range(m):
        if alpha[k] > 0.0 or values[k] - shift > least:
            if plane_scale(form, losses[k]) == 0.0 or (
                losses[k] == 0.0 and all_inner(problem, i, k, k) == 0.0
            ):
                continue  # the true output, or one that no weights can tell from it
            masses[count] = alpha[k]
            gradient[count] = values[k] - shift
            chosen[count] = k
            count += 1
    if count == 0:
        return gap
    for p in range(count):
        a = plane_scale(form, losses[chosen[p]])
        for q in range(p + 1):
            b = plane_scale(form, losses[chosen[q]])
            value = a * b * all_inner(problem, i, chosen[p], chosen[q])
            gram[p, q] = value
            gram[q, p] = value
    pair_steps(
        gram, masses[:count], gradient[:count], cap, ridge, precision * spread, 10 * count + 10
    )
    steps = work[4]
    for k in range(m):
        steps[k] = 0.0
    for p in range(count):
        k = chosen[p]
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
    m = alpha.shape[1]
    flat_alpha = alpha.reshape(alpha.size)
    flat_drift = drift.reshape(drift.size)
    work = np.empty((5, m + PADDING))
    chosen = np.empty(m, dtype=np.int64)
    gram = np.empty((m, m))
    k = visits
    for t in range(order.shape[0]):
        if t + 2 < order.shape[0]:
            all_prefetch(problem, order[t + 1], order[t + 2], w)
            for p in range(order[t + 2] * m, (order[t + 2] + 1) * m, 8):
                prefetch(flat_alpha, p)
                prefetch(flat_drift, p)
        i = order[t]
        k += 1.0
        square = all_isotropy(problem, i) if form.rescaled == 0 else 0.0
        if square > 0.0:
            gaps[i] = visit_isotropic(
                problem, form, i, alpha[i], drift[i], w, k * (k - 1.0), square, work
            )
        else:
            gaps[i] = visit(
                problem,
                form,
                i,
                alpha[i],
                drift[i],
                w,
                k * (k - 1.0),
                precision,
                work,
                chosen,
                gram,
            )


@kernel
def add_all(problem: Any, form: Formulation, masses: Array, factor: float, w: Array) -> None:
    """``w += factor · Σ mass·a·Δf`` over all examples and outputs."""
    n, m = masses.shape
    losses = np.empty(m + PADDING)
    steps = np.empty(m + PADDING)
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
def scores_of(problem: Any, form: Formulation, slots: Array, m: int, w: Array, out: Array) -> None:
    """``a·w·Δf`` of the (example, output) pairs numbered ``example·m + output``, in order."""
    losses = np.empty(m + PADDING)
    scores = np.empty(m + PADDING)
    last = -1
    for p in range(slots.shape[0]):
        i = slots[p] // m
        k = slots[p] % m
        if i != last:
            all_losses(problem, i, losses)
            all_scores(problem, i, w, scores)
            last = i
        out[p] = plane_scale(form, losses[k]) * scores[k]


@kernel
def all_offsets(problem: Any, form: Formulation, out: Array) -> None:
    """``b`` of every example and output."""
    n, m = out.shape
    losses = np.empty(m)
    for i in range(n):
        all_losses(problem, i, losses)
        for k in range(m):
            out[i, k] = plane_offset(form, losses[k])


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


@kernel
def mean_square(problem: Any, form: Formulation, n: int, m: int) -> float:
    """Mean of ``‖a·Δf‖²`` over all wrong outputs."""
    losses = np.empty(m)
    total = 0.0
    count = 0
    for i in range(n):
        all_losses(problem, i, losses)
        for k in range(m):
            if losses[k] > 0.0:
                scale = plane_scale(form, losses[k])
                total += scale * scale * all_inner(problem, i, k, k)
                count += 1
    return total / max(count, 1)


def shuffled(rng: np.random.Generator, examples: Array) -> Array:
    """A random order of short runs: neighbours in memory stay together."""
    run = 8
    if len(examples) < 64 * run:
        return rng.permutation(examples)
    whole = len(examples) // run * run
    runs = rng.permutation(examples[:whole].reshape(-1, run), axis=0)
    return np.concatenate([runs.ravel(), examples[whole:]])


class EnumeratedSDM(DualSolver):
    """Sequential dual method over all outputs; see the head of this module.

    Options
    -------
    passes : int
        Passes over the examples worth it, after each look at all of them.
    precision : float
        Each example's dual is solved until its largest violation has shrunk by this factor.
    skip : float
        Passes leave out examples whose last gap was below this fraction of the mean.
    stage_factor, stage_sweeps : float, int
        Large C is approached in stages: ``stage_sweeps`` sweeps at a C small enough for one step
        to fill an example, then again at ``stage_factor`` times as much with all multipliers
        scaled up, and so on. The multipliers are feasible for the final C all along.
    cg_steps : int
        Conjugate gradient steps over all planes with mass, late in the run.
    """

    name = "sdm"
    defaults: ClassVar[dict[str, Any]] = {
        "passes": 10,
        "precision": 0.1,
        "skip": 0.3,
        "stage_factor": 3.2,
        "stage_sweeps": 2,
        "cg_steps": 30,
    }

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
        self.offsets = np.empty(shape)
        all_offsets(compiled.problem, form, self.offsets)
        self.accelerate = Accelerator(self.options["cg_steps"])
        if start is not None:
            add_all(compiled.problem, form, self.alpha, 1.0, self.w)
        elif np.isfinite(form.cap).all():
            self.stages = self._plan_stages()

    def _plan_stages(self) -> list[float]:
        square = mean_square(self.compiled.problem, self.form, *self.alpha.shape)
        return stages_for(float(self.form.cap.mean()) * square, self.options["stage_factor"])

    @property
    def n_planes(self) -> int:
        """Planes with mass."""
        return int(np.count_nonzero(self.alpha))

    def sweep(self) -> float:
        """A look at all examples, then passes over those with something to gain."""
        self.clock += 1
        stage = self.stage()
        if self.clock & (self.clock - 1) == 0 or self.clock % 16 == 0:
            self.restart_average()  # it covers the later half of the run, 16 passes at most
        self._look(self.w, stage)
        self._stretch = 1.0
        self._keep(0.5 * float(self.w @ self.w) + total_slack_cost(self.form, self.violation))
        estimate = float(self.gaps.sum())
        for _ in range(self.options["passes"]):
            worth = self.gaps >= self.options["skip"] * max(self.gaps[self.active].mean(), 1e-300)
            self._move(np.flatnonzero(worth), stage)
        if stage is self.form and self.clock > 4:
            self.accelerate(self, estimate)
        return estimate if stage is self.form else np.inf

    def _look(self, w: Array, form: Formulation) -> None:
        """Hinges and gaps of all examples at weights w, in threads."""
        self.workers.map(
            lambda part, scratch: find_gaps(
                self.compiled.problem, form, part, w, self.alpha, self.violation, self.gaps
            ),
            np.arange(self.compiled.n),
        )
        self.oracle_calls += self.compiled.n

    def _scale(self, factor: float) -> None:
        self.alpha *= factor
        self.w *= factor
        self.restart_average()

    def _move(self, examples: Array, form: Formulation) -> None:
        order = shuffled(self.rng, examples)
        move_all(
            self.compiled.problem,
            form,
            order,
            self.alpha,
            self.drift,
            self.w,
            self.visits,
            self.options["precision"],
            self.gaps,
        )
        self.visits += len(order)
        self.oracle_calls += len(order)

    # What :mod:`hingeline.solvers.subspace` asks for --------------------------------------

    def masses(self) -> Array:
        """All multipliers, flat."""
        return self.alpha.reshape(-1)

    def owners(self) -> Array:
        """The example of each multiplier."""
        return np.repeat(np.arange(self.alpha.shape[0]), self.alpha.shape[1])

    def products(self, support: Array, vector: Array) -> Array:
        """``a·Δf·vector`` of the planes in ``support``."""
        out = np.empty(len(support))
        scores_of(self.compiled.problem, self.form, support, self.alpha.shape[1], vector, out)
        return out

    def hinges_of(self, support: Array) -> Array:
        """``b − a·w·Δf`` of the planes in ``support``."""
        return self.offsets.reshape(-1)[support] - self.products(support, self.w)

    def combine(self, support: Array, steps: Array, out: Array) -> None:
        """``out += Σ steps·a·Δf``."""
        spread = np.zeros(self.alpha.shape)
        spread.reshape(-1)[support] = steps
        add_all(self.compiled.problem, self.form, spread, 1.0, out)

    def _find_violations(self) -> None:
        kept = self.gaps.copy()
        self._look(self.w, self.form)
        self.gaps = kept

    def _linear(self) -> float:
        return float(np.vdot(self.alpha, self.offsets))

    def _sums(self) -> Array:
        return np.asarray(self.alpha.sum(axis=1))

    def _reach(self) -> float:
        return float(largest_reach(self.compiled.problem, self.form, *self.alpha.shape))

    def _add_drift(self, factor: float, w: Array) -> None:
        add_all(self.compiled.problem, self.form, self.drift, factor, w)

    def _clear_drift(self) -> None:
        self.drift[:] = 0.0
