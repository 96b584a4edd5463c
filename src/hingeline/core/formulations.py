"""Formulations: which multipliers are feasible, and what slack costs.

For every example i the planes ``(a·Δf, b)`` and the multipliers α solve::

    max_α  Σ_i Σ_y α_i(y)·b_i(y) − ½‖w‖² − ½ Σ_i r_i A_i²,     A_i = Σ_y α_i(y) ≤ cap_i, α ≥ 0
    w = Σ_i Σ_y α_i(y)·a_i(y)·Δf_i(y)

Two numbers per example tell the formulations apart, so that solvers need no cases:

===============  ==========  ===========  =======================
``slack``        ``cap``     ``r``        cost of slack h ≥ 0
===============  ==========  ===========  =======================
``"max"``        ``C·s_i``   0            ``C·s_i·h``
``"squared"``    ∞           ``1/(C·s_i)``  ``½·C·s_i·h²``
``"sum"``        ``C·s_i``   0            ``C·s_i·h``
``"nu"``         ``s̄_i``     0            ``s̄_i·h``, s̄ = s/Σs
``C=inf``        ∞           0            0 if h = 0, else ∞
===============  ==========  ===========  =======================

The slack h of an example is its largest hinge; with ``slack="sum"`` it is the sum of all positive
ones, and cap bounds every single multiplier instead of their sum (``summed``): OP2 and OP3 of
P. Balamurugan, S. Shevade, T. Ravindra Babu, *Efficient Algorithms for Linear Summed Error
Structural SVMs*, (III.1) and (IV.1). For multi-class that is the SVM of Weston and Watkins (1999).

With ``slack="nu"`` the planes ask for ``ρ·l`` instead of l, the primal has ``−νρ`` more, and the
dual no linear term but the constraint ``Σ α·l ≥ ν``: (7) and (12) of S. Kim, J. Kim, S. Yun,
C. D. Yoo, *ν-Structured Support Vector Machines* (2010). :mod:`hingeline.solvers.nu` solves it by
way of ``"max"``.

Two more numbers say what a plane is: ``b = l`` or, for squared slack, ``√l``; ``a = 1`` under
margin rescaling and ``a = b`` under slack rescaling, where the hinge ``l·(1 − w·Δf)`` is the plane
``(l·Δf, l)``. (C. Lee, M.-G. Jang, *Fast Training of Structured SVM Using Fixed-Threshold
Sequential Minimal Optimization*, Algorithm 1, line 5. The paper clips α to [0, 1] under slack
rescaling, which contradicts its own dual (16); in our scaled planes the bound is ``Σ α ≤ C·s_i``.)
"""

from typing import Any, NamedTuple

import numpy as np

from hingeline._checks import Array, require
from hingeline._jit import by_reference, helper, kernel
from hingeline._simd import copy
from hingeline.core.primitives import (
    decode_by_loss,
    decode_excess,
    output_length,
    plane_loss,
    plane_score,
)

SLACKS = ("max", "squared", "sum", "nu")
RESCALINGS = ("margin", "slack")
#: A share of the largest margin below which ``w·Δf ≥ 0`` is missed by rounding only.
ZERO_ROUNDING = 1e-10


@by_reference
class Formulation(NamedTuple):
    """Feasible set and plane transformation, as flat data for the kernels."""

    cap: Array  # (n,) bound on the sum of an example's multipliers, or on each of them
    ridge: Array  # (n,) r_i: quadratic term of that sum in the dual
    root: int  # 1: the loss enters as its square root
    rescaled: int  # 1: slack rescaling
    summed: int  # 1: slack is the sum of the hinges, and cap bounds each multiplier


def make_formulation(C: float, slack: str, rescale: str, weights: Array) -> Formulation:
    """Lay out a formulation for examples of the given weights (0 drops an example).

    ``slack="nu"`` has no C: its bounds are the shares of the examples in the total weight.
    """
    if slack == "nu":
        C = 1.0 / float(weights.sum())
    kept = weights > 0
    least = C * float(weights[kept].min(initial=np.inf)) if slack == "squared" else 1.0
    what = f"C times the weight of an example is {least:.3g}, and its inverse square overflows"
    require(least > 1e-150, f"{what}: raise C or sample_weight (0 drops an example).")
    cap = C * weights if slack != "squared" and np.isfinite(C) else np.inf
    ridge = 1.0 / (C * np.where(kept, weights, 1.0)) if slack == "squared" else 0.0
    return Formulation(
        cap=np.where(kept, cap, 0.0).astype(np.float64),
        ridge=np.where(kept, ridge, 0.0).astype(np.float64),
        root=int(slack == "squared"),
        rescaled=int(rescale == "slack"),
        summed=int(slack == "sum"),
    )


def cut_back(form: Formulation, masses: Array, owners: Array) -> Array:
    """The multipliers, cut back to the feasible set where they left it.

    Those of an example whose sum is too large are scaled; with ``summed`` each is clipped.
    """
    if form.summed:
        return np.minimum(masses, form.cap[owners])
    sums = np.bincount(owners, weights=masses, minlength=len(form.cap))
    over = sums > form.cap
    return masses * np.where(over, form.cap / np.where(over, sums, 1.0), 1.0)[owners]


@helper
def plane_offset(form: Formulation, loss: float) -> float:
    """``b``: what a plane asks for."""
    return np.sqrt(loss) if form.root == 1 else loss


@helper
def plane_scale(form: Formulation, loss: float) -> float:
    """``a``: the factor on ``Δf``."""
    return 1.0 if form.rescaled == 0 else plane_offset(form, loss)


@helper
def add_hinge(form: Formulation, slack: float, h: float) -> float:
    """An example's slack after one more hinge h: their maximum, or the sum of positive ones."""
    if form.summed == 1:
        return slack + max(h, 0.0)
    return max(slack, h)


@helper
def slack_cost(form: Formulation, i: int, h: float) -> float:
    """What slack h of example i adds to the primal."""
    if h <= 0.0 or form.cap[i] == 0.0:
        return 0.0
    if form.ridge[i] > 0.0:
        return 0.5 * h * h / form.ridge[i]
    return form.cap[i] * h


@helper
def example_gap(form: Formulation, i: int, slack: float, total: float, linear: float) -> float:
    """Example i's share of ``P − D`` at equal weights, over the planes looked at.

    ``slack`` is that of the hinges, ``total`` the sum of the multipliers and ``linear`` that of
    multipliers times hinges. A hard margin's slack costs infinitely much: there it is what the
    dual can still gain, up to scale.
    """
    if form.cap[i] == np.inf and form.ridge[i] == 0.0:
        return max(slack, 0.0) * (1.0 + total) - linear
    return slack_cost(form, i, slack) + 0.5 * form.ridge[i] * total * total - linear


@helper
def most_violated_sum(
    problem: Any, form: Formulation, i: int, w: Array, stretch: float, y_out: Array
) -> float:
    """:func:`most_violated` where the hinge is a sum of score and loss: one augmented decode.

    That is margin rescaling with linear slack. Kernels for it alone compile in half the time.
    Where decoding is not exact the value is an upper bound, so that primals stay true bounds.
    """
    excess = decode_excess(problem, i, w, 1.0 / stretch, y_out)
    hinge = plane_loss(problem, i, y_out) - stretch * plane_score(problem, i, y_out, w)
    return hinge + stretch * excess


@helper
def most_violated(
    problem: Any, form: Formulation, i: int, w: Array, stretch: float, y_out: Array
) -> float:
    """``max_y b(y) − stretch·a(y)·w·Δf_i(y)``, its maximiser in ``y_out``.

    Under margin rescaling with linear slack this is one loss-augmented decode. Otherwise the
    hinge is not a sum of score and loss, and the best output of every loss value is compared.
    ``stretch`` asks for the weights ``stretch·w`` without making them.
    """
    if form.root == 0 and form.rescaled == 0:
        return most_violated_sum(problem, form, i, w, stretch, y_out)
    losses, ys = decode_by_loss(problem, i, w)
    best = -np.inf
    for k in range(losses.shape[0]):
        a = plane_scale(form, losses[k])
        value = plane_offset(form, losses[k]) - stretch * a * plane_score(problem, i, ys[k], w)
        if value > best:
            best = value
            copy(ys[k], y_out)
    return best


@kernel
def feasible_stretch(problem: Any, form: Formulation, w: Array, least: float) -> float:
    """Smallest c ≥ ``least`` at which ``c·w`` violates no constraint; inf if there is none."""
    c = least
    unit = 0.0  # largest margin met
    short = 0.0  # worst violation of w·Δf ≥ 0
    for i in range(form.cap.shape[0]):
        if form.cap[i] == 0.0:
            continue
        y = np.empty(output_length(problem, i), dtype=np.int32)
        while True:
            if not most_violated(problem, form, i, w, c, y) > 0.0:  # also where it is NaN
                break
            loss = plane_loss(problem, i, y)
            score = plane_scale(form, loss) * plane_score(problem, i, y, w)
            if loss == 0.0:  # asks for w·Δf ≥ 0, which rounding may miss at equality
                short = max(short, -score)
                break
            if not score > 0.0:
                return np.inf
            unit = max(unit, plane_offset(form, loss))
            better = plane_offset(form, loss) / score
            if better <= c * (1.0 + 1e-15):  # violated by rounding only
                break
            c = better
    return c if short * c <= ZERO_ROUNDING * unit else np.inf


@kernel
def find_hinges(
    problem: Any, order: Array, w: Array, rho: float, hinges: Array, excess: Array, losses: Array
) -> None:
    """``ρ·l − w·Δf`` of the outputs found, how far the largest may lie above it, and l.

    For margin rescaling with linear slack, as :func:`most_violated_sum`.
    """
    for i in order:
        y = np.empty(output_length(problem, i), dtype=np.int32)
        excess[i] = decode_excess(problem, i, w, rho, y)
        losses[i] = plane_loss(problem, i, y)
        hinges[i] = rho * losses[i] - plane_score(problem, i, y, w)


@kernel
def total_slack_cost(form: Formulation, violation: Array) -> float:
    """``Σ_i cost_i(violation_i)``, summed in the order of the examples."""
    total = 0.0
    for i in range(violation.shape[0]):
        total += slack_cost(form, i, violation[i])
    return total
