"""What a fit left in its model, with defaults for models whose weights came another way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hingeline.core.results import HistoryRow, relative
from hingeline.estimators.nu import positive_part


@dataclass(frozen=True)
class Facts:
    """Certificate and curve of a model."""

    primal: float
    dual: float
    gap: float
    n_iter: int
    converged: bool
    exact: bool
    reason: str  # why the fit stopped, or where the weights come from
    history: Sequence[HistoryRow]
    tol: float
    restricted: float = math.nan  # primal over the outputs found, where that is all there is
    restricted_gap: float = math.nan
    scale: float = math.nan  # non-negative part of the primal, where that is not the primal

    @property
    def relative_gap(self) -> float:
        """Share of the primal's non-negative part, ``nan`` without a certificate."""
        return relative(self.gap, self.primal if math.isnan(self.scale) else self.scale)


def facts_of(model: Any) -> Facts:
    """The facts of a model; weights that were merely assigned have no certificate."""
    return Facts(
        primal=float(getattr(model, "primal_objective_", math.nan)),
        scale=positive_part(model) if hasattr(model, "primal_objective_") else math.nan,
        dual=float(getattr(model, "dual_objective_", math.nan)),
        gap=float(getattr(model, "duality_gap_", math.nan)),
        restricted=float(getattr(model, "restricted_objective_", math.nan)),
        restricted_gap=float(getattr(model, "restricted_gap_", math.nan)),
        n_iter=int(getattr(model, "n_iter_", 0)),
        converged=bool(getattr(model, "converged_", False)),
        exact=bool(getattr(model, "oracle_exact_", True)),
        reason=str(getattr(model, "stop_reason_", "weights were set by hand")).rstrip("."),
        history=getattr(model, "history_", []),
        tol=float(model.tol),
    )
