"""What a finished fit leaves for the next one, and how it is made feasible there."""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline.core.formulations import Formulation, feasible
from hingeline.core.planes import FIRST_CAPACITY, WorkingSet, copy_planes, empty_working_set
from hingeline.core.primitives import Compiled
from hingeline.core.results import DualMemory, same_costs
from hingeline.core.solver import CertifiedSolver
from hingeline.solvers.enumerated import EnumeratedSDM
from hingeline.solvers.one_slack import CutMemory, OneSlack, carried
from hingeline.solvers.relaxed.soft import Marginals, SoftBCFW
from hingeline.streaming.passes import as_table

Array = np.ndarray[Any, Any]


def same_examples(a: Any, b: Any) -> bool:
    """Whether two problems hold the same examples (a table that fills up apart)."""
    return type(a) is type(b) and all(
        same_examples(x, y) if hasattr(x, "_fields") else np.array_equal(x, y)
        for name, x, y in zip(a._fields, a, b, strict=True)
        if name != "token_gram"
    )


def carried_over(
    start: DualMemory, compiled: Compiled, form: Formulation, solver_class: type[CertifiedSolver]
) -> WorkingSet | Array | CutMemory | Marginals | None:
    """Multipliers made feasible for another C, other weights or more examples; None if impossible.

    Under linear slack an example's multipliers are scaled with its bound, so that those at the
    bound stay there. Planes of another rescaling are other planes: nothing is carried over.
    Aggregated planes only serve their own solver, and only where all bounds change by one factor.
    """
    before = start.form
    multipliers = start.multipliers
    table = issubclass(solver_class, EnumeratedSDM)
    if table and isinstance(multipliers, WorkingSet) and compiled.n_outputs is not None:
        multipliers = as_table(multipliers, compiled.n_outputs)  # of a stream
    dense = isinstance(multipliers, np.ndarray)
    if isinstance(multipliers, Marginals) or issubclass(solver_class, SoftBCFW):
        # Marginals are feasible for any C; the layout of other examples is another.
        same = start.compiled.problem is compiled.problem or same_examples(
            start.compiled.problem, compiled.problem
        )
        fits = isinstance(multipliers, Marginals) and issubclass(solver_class, SoftBCFW)
        return multipliers if fits and same else None
    kinds = [(f.root, f.rescaled, f.summed) for f in (before, form)]
    if multipliers is None or not issubclass(solver_class, CertifiedSolver):
        return None
    if kinds[0] != kinds[1] or dense != table:
        return None
    costs: list[Any] = [getattr(c.problem, "cost", None) for c in (start.compiled, compiled)]
    if not dense and not same_costs(costs[0], costs[1]):
        return None  # the planes ask for other margins now
    if isinstance(multipliers, CutMemory) or issubclass(solver_class, OneSlack):
        if not isinstance(multipliers, CutMemory) or not issubclass(solver_class, OneSlack):
            return None
        return carried(multipliers, before, form)
    known = len(before.cap)
    cap = form.cap[:known]
    finite = np.isfinite(cap) & np.isfinite(before.cap) & (before.cap > 0)
    factor = np.where(finite, cap / np.where(finite, before.cap, 1.0), 1.0)
    if isinstance(multipliers, np.ndarray):
        alpha = np.zeros((compiled.n, compiled.n_outputs or multipliers.shape[1]))
        alpha[:known, : multipliers.shape[1]] = multipliers * factor[:, None]
        owners = np.repeat(np.arange(compiled.n), alpha.shape[1])
        return feasible(form, alpha.reshape(-1), owners).reshape(alpha.shape)
    old = multipliers
    capacity = np.full(compiled.n, FIRST_CAPACITY)
    capacity[:known] = old.capacity
    ws = empty_working_set(compiled.lengths, capacity, len(old.gram) > 0)
    copy_planes(old, ws)
    ws.alpha[: len(old.alpha)] *= np.repeat(factor, old.capacity)
    ws.alpha[:] = feasible(form, ws.alpha, np.repeat(np.arange(compiled.n), capacity))
    ws.drift[:] = 0.0
    ws.stamp[:] = 0
    return ws
