"""Which outputs enter the working set when every hinge counts (``slack="sum"``).

Under ``slack="sum"`` all outputs with a positive hinge share in the slack, not only the worst. The
loss-augmented argmax alone does not find them: once it is in V_i at its bound, no other ever
enters, and on chains the result stays 4 to 370 % above the optimum of OP2 (measured on small
problems). So there is a choice:

``"argmax"``
    what the paper prints (step 10 of Algorithm 2): an estimator of its own, over the outputs found
an integer k
    the k best, exactly: likewise, over more outputs
``"all"``
    so many that some are new as long as any is violated: OP2 itself

With ``"all"`` a certificate enumerates every violated output, and is the true one. Otherwise the
slack is summed over the outputs found: the primal of the *restricted* problem (OP5).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._jit import helper, kernel
from hingeline.formulations import (
    Formulation,
    joined,
    most_violated,
    plane_offset,
    plane_scale,
)
from hingeline.solvers.dual_state import slack_of_known
from hingeline.structures.base import (
    decode_best,
    output_length,
    plane_loss,
    plane_score,
)
from hingeline.working_set import WorkingSet, insert

Array = np.ndarray[Any, Any]

#: With ``"all"``, so many outputs more than are known are looked at in a sweep.
BEYOND = 16
#: The first number of outputs that a certificate looks at; doubled until none is violated.
FIRST = 64


@helper
def hinge(problem: Any, form: Formulation, i: int, y: Array, w: Array) -> float:
    """``b − a·w·Δf`` of an output."""
    loss = plane_loss(problem, i, y)
    return plane_offset(form, loss) - plane_scale(form, loss) * plane_score(problem, i, y, w)


@helper
def violated(problem: Any, form: Formulation, i: int, w: Array, k: int) -> Array:
    """The violated ones among the k best outputs, best first.

    Margin rescaling asks for ``l − w·Δf > 0``, slack rescaling for ``w·Δf < 1``: under each, those
    that are violated are the best outputs with and without the loss.
    """
    ys = np.empty((k, output_length(problem, i)), dtype=np.int32)
    found = decode_best(problem, i, w, 0.0 if form.rescaled == 1 else 1.0, ys)
    count = 0
    while count < found:
        y = ys[count]
        asked = 1.0 if form.rescaled == 1 else plane_loss(problem, i, y)
        if asked - plane_score(problem, i, y, w) <= 0.0:
            break
        count += 1
    return ys[:count]


@helper
def add_violators(
    problem: Any,
    form: Formulation,
    ws: WorkingSet,
    i: int,
    w: Array,
    wanted: int,
    clock: int,
    patience: int,
    scratch: Array,
) -> float:
    """Put violated outputs of example i into its set; the slack of those that found no room."""
    left_out = 0.0
    if wanted == 1:
        y = np.empty(output_length(problem, i), dtype=np.int32)
        h = most_violated(problem, form, i, w, 1.0, y)
        if h > 0.0 and insert(problem, form, ws, i, y, clock, patience, scratch) < 0:
            left_out = h
        return left_out
    ys = violated(problem, form, i, w, wanted if wanted > 0 else ws.used[i] - wanted)
    for j in range(ys.shape[0]):
        if insert(problem, form, ws, i, ys[j], clock, patience, scratch) < 0:
            left_out = joined(form, left_out, hinge(problem, form, i, ys[j], w))
    return left_out


@kernel
def find_violators(
    problem: Any,
    form: Formulation,
    ws: WorkingSet,
    order: Array,
    w: Array,
    wanted: int,
    look: int,
    clock: int,
    patience: int,
    scratch: Array,
    violation: Array,
) -> None:
    """Put violated outputs of the examples of ``order`` into their sets; parts may run in threads.

    ``wanted`` best outputs are looked at, or ``−wanted`` more than are known. With ``look``,
    ``violation[i]`` is the slack over the planes known, those included that found no room.
    """
    for i in order:
        violation[i] = 0.0
        if form.cap[i] == 0.0:
            continue
        left_out = add_violators(problem, form, ws, i, w, wanted, clock, patience, scratch)
        if look == 1:
            violation[i] = slack_of_known(problem, form, ws, i, w) + left_out


@kernel
def sum_violations(
    problem: Any, form: Formulation, order: Array, w: Array, limit: int, violation: Array
) -> None:
    """``violation[i]``: the slack over *all* outputs; ``inf`` where over ``limit`` are violated."""
    for i in order:
        violation[i] = 0.0
        if form.cap[i] == 0.0:
            continue
        k = FIRST
        ys = violated(problem, form, i, w, k)
        while ys.shape[0] == k and k < limit:
            k = min(4 * k, limit)
            ys = violated(problem, form, i, w, k)
        if ys.shape[0] == k:
            violation[i] = np.inf
            continue
        slack = 0.0
        for j in range(ys.shape[0]):
            slack = joined(form, slack, hinge(problem, form, i, ys[j], w))
        violation[i] = slack
