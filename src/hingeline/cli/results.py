"""What training leaves besides the model: where it came from, and a line about it."""

from __future__ import annotations

import json
import math
import platform
import shlex
import sys
import time
from datetime import UTC, datetime
from typing import Any

import numba
import numpy as np
import typer

from hingeline import __version__
from hingeline.cli.progress import percent, relative_gap
from hingeline.cli.samples import Layout
from hingeline.core.results import relative


class Clock:
    """Seconds by phase."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.seconds = seconds
        self.restart()

    def restart(self) -> None:
        """Start the next phase now."""
        self.began = time.perf_counter()

    def took(self, phase: str) -> None:
        """The phase ends now."""
        now = time.perf_counter()
        self.seconds[phase] = now - self.began
        self.began = now


def metadata_of(layout: Layout, sources: list[dict[str, Any]]) -> dict[str, Any]:
    """Where a model came from, for its file."""
    return {
        "layout": layout.to_dict(),
        "command": shlex.join(["hingeline", *sys.argv[1:]]),
        "data": sources,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "hingeline": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "numba": numba.__version__,
        },
    }


def finite(value: float) -> float | None:
    """JSON has neither NaN nor infinity."""
    return value if math.isfinite(value) else None


def gaps_of(estimator: Any) -> dict[str, float | None]:
    """The certified gap as a share of the primal, or that over the outputs found."""
    found = relative(estimator.restricted_gap_, estimator.restricted_objective_)
    return {"relative_gap": finite(relative_gap(estimator)), "restricted_gap": finite(found)}


def balance_of(model: Any) -> dict[str, Any]:
    """C, or with ``slack="nu"`` the ν that was used, ρ, the equivalent C and the two risks."""
    if not hasattr(model, "nu_"):
        return {"C": float(model.C)}
    facts = {
        "C": finite(model.C_),
        "nu": model.nu_,
        "rho": model.rho_,
        "margin_error_risk": model.margin_error_risk_,
        "support_vector_risk": model.support_vector_risk_,
    }
    if hasattr(model, "nu_path_"):
        facts["nu_tried"] = [
            {name: finite(value) for name, value in trial._asdict().items()}
            for trial in model.nu_path_
        ]
    return facts


def print_annealed(result: dict[str, Any], as_json: bool) -> None:
    """The outcome of a semi-supervised fit in a line, or as JSON."""
    if as_json:
        typer.echo(json.dumps(result))
        return
    seconds = ", ".join(f"{name} {value:.1f} s" for name, value in result["seconds"].items())
    stopped = ", interrupted" if result["stop_reason"] == "interrupted" else ""
    typer.echo(
        f"{result['model']}: C={result['C']:g}, C_u={result['C_u']:g}, no certificate (not "
        f"convex{stopped}); {seconds}; {result['bytes'] / 1e6:.1f} MB"
    )


def print_result(result: dict[str, Any], as_json: bool) -> None:
    """The outcome in a line, or as JSON."""
    if as_json:
        typer.echo(json.dumps(result))
        return
    gap = result["relative_gap"]
    found = result["restricted_gap"]
    bound = "no certificate" if gap is None else f"certified gap {percent(gap)}"
    if found is not None:
        bound = f"gap over the outputs found {percent(found)}"
    seconds = ", ".join(f"{name} {value:.1f} s" for name, value in result["seconds"].items())
    passes = result["passes"]
    balance = "C is infinite" if result["C"] is None else f"C={result['C']:g}"
    if "nu" in result:
        balance = f"nu={result['nu']:g} ({balance}, rho={result['rho']:.4g})"
    typer.echo(
        f"{result['model']}: {balance}, {bound} ({result['stop_reason']}, "
        f"{passes} {'pass' if passes == 1 else 'passes'}); {seconds}; "
        f"{result['bytes'] / 1e6:.1f} MB"
    )
    if result["stop_reason"].startswith(("max_iter", "max_time")):
        typer.echo(
            "The gap asked for was not reached: raise --max-iter or --max-time, lower -C, or scale "
            "the features to similar sizes.",
            err=True,
        )
