"""Planes of sequences whose labels were switched, measured from their new labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._jit import kernel
from hingeline.formulations import Formulation, plane_offset, plane_scale
from hingeline.structures.base import plane_loss, plane_sqdist, truth
from hingeline.working_set import WorkingSet, plane

Array = np.ndarray[Any, Any]


@kernel
def retarget(
    problem: Any, form: Formulation, ws: WorkingSet, changed: Array, scratch: Array
) -> None:
    """Take the true outputs of the examples in ``changed`` anew; their planes keep their mass.

    A plane is an output beside the true one, and the bound on an example's mass does not depend
    on either: the multipliers stay feasible, and are a better start than none. A plane that has
    become the true output asks for nothing and loses its mass.
    """
    for i in changed:
        m = ws.used[i]
        if m == 0:
            continue
        gold = np.empty(ws.length[i], dtype=np.int32)
        truth(problem, i, gold)
        s = ws.slot[i]
        for j in range(m):
            y = plane(ws, i, j)
            loss = plane_loss(problem, i, y)
            ws.offset[s + j] = plane_offset(form, loss)
            ws.scale[s + j] = plane_scale(form, loss)
            ws.sqnorm[s + j] = plane_sqdist(problem, i, gold, y, scratch)
            ws.drift[s + j] = 0.0
            if loss == 0.0:
                ws.alpha[s + j] = 0.0
        if ws.gram.shape[0] == 0:
            continue
        room = ws.capacity[i]
        g = ws.gram_start[i]
        for j in range(m):
            for k in range(j + 1):
                inner = ws.sqnorm[s + j]
                if k < j:
                    apart = plane_sqdist(problem, i, plane(ws, i, j), plane(ws, i, k), scratch)
                    inner = 0.5 * (ws.sqnorm[s + j] + ws.sqnorm[s + k] - apart)
                value = ws.scale[s + j] * ws.scale[s + k] * inner
                ws.gram[g + j * room + k] = value
                ws.gram[g + k * room + j] = value
