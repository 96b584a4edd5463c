"""The sequential dual method where outputs fall apart: its blocks are parts of examples.

See :mod:`hingeline.core.parts` for the parts, :mod:`hingeline.solvers.sdm` for the method. Passes
decode whole examples; what is found inside a part is a plane of it at once, the rest waits until
there is so much of it that new parts are worth making, or for the end of the pass.

It converges as the method on whole examples does: from some pass on, all of the most violated
output enters the parts, where the largest hinges add up to no less than its own.
"""

from typing import Any, ClassVar

import numpy as np

from hingeline._checks import Array
from hingeline.core import parts
from hingeline.core.blocks import WorkingSet, check_planes, empty_working_set, spread
from hingeline.core.formulations import Formulation
from hingeline.core.primitives import Compiled
from hingeline.core.results import DualMemory
from hingeline.core.solver import PlaneSolver, carry_over
from hingeline.solvers.sdm import SDM, Accelerator, Pair


class SDMInParts(PlaneSolver):
    """Sequential dual method over planes of parts; margin rescaling, C finite."""

    name = "sdm"
    slacks: ClassVar[tuple[str, ...]] = ("max",)
    rescalings: ClassVar[tuple[str, ...]] = ("margin",)
    soft_only = "parts need a bound on their mass"
    in_parts = True
    Options = SDM.Options
    saved_numbers = SDM.saved_numbers
    saved_arrays = tuple(name for name in SDM.saved_arrays if name != "gaps")

    def _begin(self, start: Any) -> None:
        self.fresh = start is None
        self.rule = Pair(self.options.precision)
        few = len(self.w) <= self.options.newton_weights
        self.accelerate = Accelerator(self.options.cg_steps, len(self.w) if few else np.inf)
        self.lost = np.zeros_like(self.w)  # of the averaging sum, that of planes no longer there
        self.late: list[Array] = []  # examples with positions that wait for a part
        self.n_waiting = 0  # such positions
        self.parts = parts.whole_examples(self.compiled)
        if isinstance(start, WorkingSet):
            self._set(self.parts, start, self.gaps)
            self.make_room()
        else:
            none = np.zeros(0, dtype=np.int64)
            known = start or parts.PartSet(empty_working_set(none), none, none)
            self._place(known, np.zeros(len(known.start)))
        self.add(self.ws.alpha, 1.0, self.w)
        self.plan_stages_by_sample()

    def _set(self, new: parts.Parts, ws: WorkingSet, gaps: Array) -> None:
        problem, form = parts.pose(self.compiled, self.form, new)
        # No call in between, so that an interruption leaves all of it or nothing.
        self.parts, self.ws, self.gaps = new, ws, gaps
        self._problem, self._form = problem, form

    def _place(self, known: parts.PartSet, gaps: Array) -> None:
        """Take over planes of parts, after a check that they fit."""
        start, stop = known.start, known.stop
        placed, lengths = parts.place_parts(self.parts, start, stop)
        room = placed.base[placed.owner + 1] - stop
        apart = start[1:] > stop[:-1] - (placed.owner[1:] != placed.owner[:-1])
        if not ((start >= 0) & (start < stop) & (room >= 0)).all() or not apart.all():
            raise KeyError("parts that lie apart")
        self._set(placed, check_planes(known.ws, empty_working_set(lengths)), gaps)

    def make_room(self) -> None:
        """Fit the parts to the planes in use and to what decoding found."""
        known = (self.ws, self.parts, self.clock, self.patience, self.workers.scratch[0])
        new, ws, sources, same = parts.regroup(self.compiled, self.form, *known)
        gone = np.ones(len(self.gaps), dtype=bool)
        gone[sources[same, 0]] = False
        drift = np.where(np.repeat(gone, self.ws.capacity), self.ws.drift, 0.0)
        if drift.any():
            self.add(drift, 1.0, self.lost)
        sums = np.concatenate([[0.0], np.cumsum(self.gaps)])
        gaps = np.maximum(sums[sources[:, 1]] - sums[sources[:, 0]], 0.0)
        gaps[~same] += gaps.sum() / max(len(gaps), 1)  # worth a visit
        self._set(new, ws, gaps)
        self.late, self.n_waiting = [], 0

    @classmethod
    def start_from(cls, before: DualMemory, compiled: Compiled, form: Formulation) -> Any:
        old = before.multipliers
        if not isinstance(old, parts.PartSet) or not before.same_planes(compiled, form):
            return super().start_from(before, compiled, form)
        ws = WorkingSet(*(table.copy() for table in old.ws))
        placed, _ = parts.place_parts(parts.whole_examples(compiled), old.start, old.stop)
        known, now = parts.restrict(before.form, placed), parts.restrict(form, placed)
        ws.alpha[:] = carry_over(known, now, ws.alpha, ws.capacity)
        ws.drift[:] = 0.0
        ws.stamp[:] = 0
        return old._replace(ws=ws)

    @property
    def block_problem(self) -> Any:
        return self._problem

    @property
    def active_blocks(self) -> Array:
        return np.arange(len(self.gaps))

    @property
    def plane_size(self) -> float:
        shown = float(self.ws.length.sum()) / max(len(self.gaps), 1)
        return self.compiled.size * shown / len(self.parts.gold)

    def by_block(self, form: Formulation) -> Formulation:
        return self._form if form is self.form else parts.restrict(form, self.parts)

    def find(self, order: Array, patience: int, epsilon: float = -1.0) -> None:
        early = self.fresh and self.clock <= parts.FIRST_PASSES
        longest = parts.LONGEST_AT_FIRST if early else 0
        find = self.compiled.bind(parts.find_stretches)
        known = (self.compiled.problem, self.form, self._problem, self._form, self.ws, self.parts)
        asked = (self.w, longest, self.clock, patience)
        self.workers.map(
            lambda part, scratch: find(*known, part, *asked, scratch, self.violation), order
        )

    def blocks_of(self, examples: Array) -> Array:
        waiting = self.parts.waiting[examples]
        self.n_waiting += int(waiting.sum())
        if 2 * self.n_waiting >= len(self.gaps):
            examples = np.concatenate([examples, *self.late])
            self.make_room()
        else:
            self.late.append(examples[waiting > 0])
        first = self.parts.first
        return spread(first[examples], first[examples + 1] - first[examples])

    def mean_square(self) -> float:
        if not self.n_planes:
            self.find(self.active[:100], self.patience)
            self.make_room()
        return super().mean_square()

    def _find_violations(self) -> None:
        super()._find_violations()
        self.make_room()

    def _add_drift(self, out: Array, back: bool = False) -> None:
        super()._add_drift(out, back)
        factor = 1.0 / (self.visits * (self.visits + 1.0))
        out += (factor if back else -factor) * self.lost

    def restart_average(self) -> None:
        super().restart_average()
        self.lost[:] = 0.0

    def memory(self) -> Any:
        return parts.PartSet(self.ws, self.parts.start, self.parts.stop)

    def tables(self) -> dict[str, Array]:
        own = {"start": self.parts.start, "stop": self.parts.stop}
        return {**super().tables(), **own, "part_gaps": self.gaps, "lost": self.lost}

    def set_tables(self, tables: dict[str, Array]) -> None:
        ws = WorkingSet(*(tables[name] for name in WorkingSet._fields))
        start, stop, gaps, lost = (tables[n] for n in ("start", "stop", "part_gaps", "lost"))
        if not (start.dtype == stop.dtype == np.int64 and start.shape == stop.shape == gaps.shape):
            raise KeyError("start, stop and part_gaps of one shape")
        self._place(parts.PartSet(ws, start, stop), gaps)
        self.lost[:] = lost
