"""How the fit went: primal, dual and gap over time and over passes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hingeline.report.axes import make_axis, suits_log
from hingeline.report.charts import Rule, Series, empty_chart, line_chart
from hingeline.report.markup import paragraph, section, table
from hingeline.report.words import count, counted, fixed, percent, significant
from hingeline.solvers.history import HistoryRow, relative

Array = np.ndarray[Any, Any]

#: Most rows of the table of certificates.
MOST_ROWS = 24


def convergence_section(history: Sequence[HistoryRow], tol: float) -> str:
    """Charts and figures of a fit; one sentence where the model has no history."""
    if not history:
        return section(
            "convergence",
            "Convergence",
            paragraph(
                "This model carries no history of its training, so there are no curves to show."
            ),
        )
    columns = {
        name: np.array([getattr(row, name) for row in history], dtype=np.float64)
        for name in ("time", "passes", "primal", "dual", "gap")
    }
    columns["relative"] = np.array([relative(row.gap, row.primal) for row in history])
    charts = [
        draw(columns, x, tol)
        for draw in (_objectives, _gaps)
        for x in ("time", "passes")
        if np.isfinite(columns[x]).all()
    ]
    certified = int(np.isfinite(columns["relative"]).sum())
    about = (
        f"{counted(len(history), 'pass was', 'passes were')} recorded and "
        f"{counted(certified, 'certificate')} made. A certificate bounds the optimum from both "
        "sides: it is never above the primal and never below the dual. Both are the best so far."
    )
    return section(
        "convergence",
        "Convergence",
        paragraph(about),
        '<div class="charts">\n' + "\n".join(charts) + "\n</div>",
        _certificates(history),
    )


def _x_axis(values: Array, x: str) -> tuple[Any, str]:
    log = suits_log(values) and bool(values.max() > 1e4 * values.min())
    axis = make_axis(values, log=log, from_zero=not log, whole=x == "passes")
    label = "seconds" if x == "time" else "passes over the data"
    return axis, label + (", logarithmic" if log else "")


def _objectives(columns: dict[str, Array], x: str, tol: float) -> str:
    name = f"objective-{x}"
    over = "time" if x == "time" else "passes"
    title = f"Objective over {over}"
    series = []
    for kind in ("primal", "dual"):
        known = np.isfinite(columns[kind])
        if known.any():
            series.append(Series(kind, kind, columns[x][known], columns[kind][known]))
    if not series:
        return empty_chart(name, title, "no objective is known")
    values = np.concatenate([s.y for s in series])
    log = suits_log(values)
    x_axis, x_label = _x_axis(columns[x], x)
    ends = " and ".join(
        f"{s.kind} from {significant(s.y[0])} to {significant(s.y[-1])}" for s in series
    )
    return line_chart(
        name,
        series,
        x_axis,
        make_axis(values, log=log),
        title=title,
        description=f"Line chart: {ends}.",
        x_label=x_label,
        y_label="objective, logarithmic" if log else "objective",
    )


def _gaps(columns: dict[str, Array], x: str, tol: float) -> str:
    name = f"gap-{x}"
    over = "time" if x == "time" else "passes"
    title = f"Relative gap over {over}"
    share = columns["relative"]
    # A gap of exactly zero has no place on a logarithmic axis.
    shown = np.isfinite(share) & (share > 0.0)
    if not shown.any():
        return empty_chart(name, title, "the gap is zero" if (share == 0).any() else "no gap")
    values = 100.0 * share[shown]
    held = [*values, 100.0 * tol] if 0.0 < tol < math.inf else values
    x_axis, x_label = _x_axis(columns[x], x)
    return line_chart(
        name,
        [Series("relative gap", "gap", columns[x][shown], values)],
        x_axis,
        make_axis(held, log=True),
        title=title,
        description=(
            f"Line chart, logarithmic: relative gap from {significant(values[0], 2)} % to "
            f"{significant(values[-1], 2)} %."
        ),
        x_label=x_label,
        y_label="gap in % of the primal",
        rule=Rule(f"tol {significant(100.0 * tol, 2)} %", 100.0 * tol),
    )


def _certificates(history: Sequence[HistoryRow]) -> str:
    rows = [row for row in history if not math.isnan(row.primal)]
    if not rows:
        return ""
    chosen = rows
    caption = "Certificates"
    if len(rows) > MOST_ROWS:  # the last is the model's own
        numbers = np.unique(np.linspace(0, len(rows) - 1, MOST_ROWS).round().astype(int))
        chosen = [rows[k] for k in numbers]
        caption += f": {len(chosen)} of {count(len(rows))}, evenly spaced"
    cells = []
    for row in chosen:
        share = relative(row.gap, row.primal)
        decimals = 2 if share >= 0.01 or share == 0 else 4
        cells.append(
            [
                count(row.passes),
                fixed(row.time, 2),
                count(row.oracle_calls),
                count(row.planes),
                significant(row.primal, 6),
                significant(row.dual, 6),
                percent(share, decimals) if math.isfinite(share) else "–",
            ]
        )
    head = ("pass", "seconds", "decodes", "planes", "primal", "dual", "relative gap")
    return table(caption, head, cells, words=())
