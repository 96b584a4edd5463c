"""The sequential dual method: when conjugate gradients over all planes are worth their price."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hingeline.solvers import sdm


@pytest.mark.parametrize(("growth", "tries"), [(1.0, 0), (0.6, 0), (0.2, 1), (0.0, 1)])
@pytest.mark.parametrize("heavy", [False, True])
def test_conjugate_gradients_wait_for_the_planes(
    growth: float, tries: int, heavy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long sequences find a plane at every decode: the best mass of those known is no use yet.

    Few planes of much data (heavy) are no small problem.
    """
    tried: list[Any] = []
    monkeypatch.setattr(sdm, "_ascend", lambda *args: bool(tried.append(args)))
    count = sdm.SMALL if heavy else sdm.SMALL + 1
    solver: Any = SimpleNamespace(
        clock=20,
        plane_size=sdm.SMALL_PLANE + heavy,
        multipliers=lambda: SimpleNamespace(mass=np.ones(count)),
        dual=lambda: 1.0,
    )
    accelerate = sdm.Accelerator(30)
    for _ in range(accelerate.wait):
        accelerate(solver, 1.0, 1.0, growth)
    assert len(tried) == tries
