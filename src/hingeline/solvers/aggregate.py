"""One pass over examples at fixed weights that adds violated planes up to a single cut.

For the examples of ``order``, ``g += Σ_i cap_i Σ_{y ∈ S_i} a·Δf_i(y)`` and the result is the sum of
``cap_i·b_i(y)`` over the same outputs. ``violation[i]`` becomes the slack of the example, so that
``b − g·w = Σ_i cap_i·violation_i``: the true primal comes with every cut. S_i is

* the most violated output, if its hinge is positive (``slack="max"``);
* all outputs with a positive hinge (``slack="sum"``), found among all classes, by k-best decoding,
  or only in a set V_i of outputs met so far, into which decoding puts new ones. Then violation is
  the slack over V_i.

Examples are cut into blocks of a fixed number, each with a vector of its own, and these are summed
in order: the same numbers for any count of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._jit import helper, kernel
from hingeline.formulations import (
    Formulation,
    joined,
    most_violated,
    most_violated_sum,
    plane_offset,
    plane_scale,
)
from hingeline.solvers.dual_state import longest_output
from hingeline.solvers.enumerated_visit import hinges
from hingeline.solvers.violators import FIRST, add_violators, violated
from hingeline.structures.base import (
    PADDING,
    Compiled,
    all_add,
    output_length,
    plane_add,
    plane_loss,
    plane_score,
    planes_add,
    planes_score,
)
from hingeline.working_set import WorkingSet, checked, empty_working_set, grown, planes

Array = np.ndarray[Any, Any]

#: V_i only grows.
KEEP = 2**30


@helper
def add_worst(problem: Any, form: Formulation, i: int, y: Array, h: float, g: Array) -> float:
    """Add the plane of output y, if its hinge h is positive; its share in b."""
    if h <= 0.0:
        return 0.0
    loss = plane_loss(problem, i, y)
    plane_add(problem, i, y, form.cap[i] * plane_scale(form, loss), g)
    return form.cap[i] * plane_offset(form, loss)


@kernel
def cut_worst_sum(
    problem: Any, form: Formulation, order: Array, w: Array, g: Array, violation: Array
) -> float:
    """The most violated outputs, where the hinge is a sum of score and loss."""
    buffer = np.empty(longest_output(problem, order), dtype=np.int32)
    b = 0.0
    for i in order:
        y = buffer[: output_length(problem, i)]
        h = most_violated_sum(problem, form, i, w, 1.0, y)
        violation[i] = max(h, 0.0)
        b += add_worst(problem, form, i, y, h, g)
    return b


@kernel
def cut_worst(
    problem: Any, form: Formulation, order: Array, w: Array, g: Array, violation: Array
) -> float:
    """The most violated outputs, for any hinge."""
    buffer = np.empty(longest_output(problem, order), dtype=np.int32)
    b = 0.0
    for i in order:
        y = buffer[: output_length(problem, i)]
        h = most_violated(problem, form, i, w, 1.0, y)
        violation[i] = max(h, 0.0)
        b += add_worst(problem, form, i, y, h, g)
    return b


@kernel
def cut_all(
    problem: Any, form: Formulation, m: int, order: Array, w: Array, g: Array, violation: Array
) -> float:
    """All violated ones of the m outputs that every example has."""
    losses = np.empty(m + PADDING)
    values = np.empty(m + PADDING)
    b = 0.0
    for i in order:
        hinges(problem, form, i, m, w, losses, values)
        slack = 0.0
        some = False
        for k in range(m):
            slack = joined(form, slack, values[k])
            if values[k] > 0.0:
                some = True
                b += form.cap[i] * plane_offset(form, losses[k])
                values[k] = form.cap[i] * plane_scale(form, losses[k])
            else:
                values[k] = 0.0
        violation[i] = slack
        if some:
            all_add(problem, i, values, g)
    return b


@kernel
def cut_violated(
    problem: Any,
    form: Formulation,
    limit: int,
    order: Array,
    w: Array,
    g: Array,
    violation: Array,
) -> float:
    """All violated outputs, by k-best decoding; over ``limit`` of them: violation ``inf``."""
    b = 0.0
    for i in order:
        k = FIRST
        ys = violated(problem, form, i, w, k)
        while ys.shape[0] == k and k < limit:
            k = min(4 * k, limit)
            ys = violated(problem, form, i, w, k)
        slack = 0.0
        steps = np.empty(ys.shape[0])
        for j in range(ys.shape[0]):
            loss = plane_loss(problem, i, ys[j])
            a = plane_scale(form, loss)
            offset = plane_offset(form, loss)
            slack = joined(form, slack, offset - a * plane_score(problem, i, ys[j], w))
            steps[j] = form.cap[i] * a
            b += form.cap[i] * offset
        planes_add(problem, i, ys, steps, g)
        violation[i] = np.inf if ys.shape[0] == k else slack
    return b


@kernel
def cut_known(
    problem: Any,
    form: Formulation,
    ws: WorkingSet,
    order: Array,
    w: Array,
    wanted: int,
    clock: int,
    scratch: Array,
    g: Array,
    violation: Array,
) -> float:
    """Lines 8 to 18 of Algorithm 1: the violated outputs in V_i; ``wanted=0`` leaves V_i alone."""
    b = 0.0
    for i in order:
        left_out = 0.0
        if wanted != 0:
            left_out = add_violators(problem, form, ws, i, w, wanted, clock, KEEP, scratch)
        m = ws.used[i]
        slack = 0.0
        if m > 0:
            s = ws.slot[i]
            steps = np.empty(m)
            planes_score(problem, i, planes(ws, i), w, steps)
            for j in range(m):
                h = ws.offset[s + j] - ws.scale[s + j] * steps[j]
                slack = joined(form, slack, h)
                steps[j] = 0.0
                if h > 0.0:
                    steps[j] = form.cap[i] * ws.scale[s + j]
                    b += form.cap[i] * ws.offset[s + j]
            planes_add(problem, i, planes(ws, i), steps, g)
        violation[i] = slack + left_out
    return b


class WorstOracle:
    """``slack="max"``: one output an example."""

    restricted = False
    known: WorkingSet | None = None  # the sets V_i

    def __init__(self, compiled: Compiled, form: Formulation, options: dict[str, Any]) -> None:
        plain = form.rescaled == 0 and form.root == 0
        self.kernel = compiled.bind(cut_worst_sum if plain else cut_worst)
        self.fixed: tuple[Any, ...] = (compiled.problem, form)

    @property
    def n_known(self) -> int:
        """Σ|V_i|."""
        return 0

    def prepare(self, clock: int) -> None:
        """Make room before a pass."""

    def cut(
        self, order: Array, w: Array, clock: int, decode: bool, scratch: Array, *out: Array
    ) -> float:
        """``b``; ``out`` is g, which is added to, and violation."""
        return float(self.kernel(*self.fixed, order, w, *out))

    def set_known(self, known: WorkingSet | None) -> None:
        """Take over the sets V_i of an earlier run."""

    def set_tables(self, tables: dict[str, Array]) -> None:
        """Take over the sets V_i of a snapshot."""


class ClassesOracle(WorstOracle):
    """``slack="sum"`` over all classes: no violator step."""

    def __init__(self, compiled: Compiled, form: Formulation, options: dict[str, Any]) -> None:
        self.kernel = compiled.bind(cut_all)
        self.fixed = (compiled.problem, form, compiled.n_outputs)


class ViolatedOracle(WorstOracle):
    """``slack="sum"`` over all outputs, by k-best decoding."""

    def __init__(self, compiled: Compiled, form: Formulation, options: dict[str, Any]) -> None:
        self.kernel = compiled.bind(cut_violated)
        self.fixed = (compiled.problem, form, int(options["max_outputs"]))


class KnownOracle(WorstOracle):
    """``slack="sum"`` over the outputs V_i that decoding has met."""

    restricted = True
    known: WorkingSet

    def __init__(self, compiled: Compiled, form: Formulation, options: dict[str, Any]) -> None:
        self.kernel = compiled.bind(cut_known)
        self.fixed = (compiled.problem, form)
        self.wanted = int({"argmax": 1}.get(options["violators"], options["violators"]))
        self.known = empty_working_set(compiled.lengths, gram=False)

    @property
    def n_known(self) -> int:
        """Σ|V_i|."""
        return self.known.n_planes

    def prepare(self, clock: int) -> None:
        """A free slot for everyone."""
        self.known = grown(self.known, clock, KEEP)

    def cut(
        self, order: Array, w: Array, clock: int, decode: bool, scratch: Array, *out: Array
    ) -> float:
        """``b``; ``out`` is g, which is added to, and violation."""
        wanted = self.wanted if decode else 0
        return float(self.kernel(*self.fixed, self.known, order, w, wanted, clock, scratch, *out))

    def set_known(self, known: WorkingSet | None) -> None:
        """Take over the sets V_i of an earlier run."""
        self.known = self.known if known is None else known

    def set_tables(self, tables: dict[str, Array]) -> None:
        """Take over the sets V_i of a snapshot."""
        fields = {name: tables[name] for name in WorkingSet._fields}
        self.known = checked(WorkingSet(**fields), self.known)


def make_oracle(compiled: Compiled, form: Formulation, options: dict[str, Any]) -> WorstOracle:
    """The oracle for a formulation and the outputs to be summed over."""
    if not form.summed:
        return WorstOracle(compiled, form, options)
    if options["violators"] != "all":
        return KnownOracle(compiled, form, options)
    kind = ViolatedOracle if compiled.n_outputs is None else ClassesOracle
    return kind(compiled, form, options)
