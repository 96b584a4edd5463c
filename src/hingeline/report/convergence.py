"""How the fit went: primal, dual and gap over time and over passes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hingeline.core.results import HistoryRow
from hingeline.report.axes import make_axis, suits_log
from hingeline.report.charts import Rule, Series, empty_chart, line_chart
from hingeline.report.facts import Facts
from hingeline.report.markup import paragraph, section, table
from hingeline.report.words import (
    SPACE,
    brief,
    count,
    counted,
    decimals_for,
    fixed,
    percent,
    significant,
)

Array = np.ndarray[Any, Any]

#: Most rows of the table of certificates.
MOST_ROWS = 24


def convergence_section(facts: Facts) -> str:
    """Charts and figures of a fit; one sentence where the model has no history."""
    history, tol = facts.history, facts.tol
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
        for name in ("time", "passes", "primal", "dual", "gap", "restricted")
    }
    columns["relative"] = np.array([row.relative_gap for row in history])
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
    if not math.isnan(facts.restricted_gap):
        about = (
            f"{counted(len(history), 'pass was', 'passes were')} recorded. The dual bounds the "
            "optimum from below; the primal is that over the outputs found, which grow in number, "
            "so it may rise."
        )
    elif math.isnan(facts.gap) and facts.exact:
        about += " They are of the fit: the model's weights have been changed since."
    return section(
        "convergence",
        "Convergence",
        paragraph(about),
        '<div class="charts">\n' + "\n".join(charts) + "\n</div>",
        _certificates(history),
    )


def _x_axis(values: Array, x: str) -> tuple[Any, str]:
    log = suits_log(values) and bool(values.max() > 1e4 * values.min())
    # Where nothing is known of the first half, as with compilation at first, it is not drawn.
    early = bool(values.min() <= 0.5 * values.max())
    axis = make_axis(values, log=log, from_zero=early and not log, whole=x == "passes")
    label = "seconds since the fit began" if x == "time" else "passes over the data"
    return axis, label + (", logarithmic" if log else "")


def _objectives(columns: dict[str, Array], x: str, tol: float) -> str:
    name = f"objective-{x}"
    over = "time" if x == "time" else "passes"
    title = f"Objective over {over}"
    series = []
    for column, kind in (("primal", "primal"), ("restricted", "primal"), ("dual", "dual")):
        known = np.isfinite(columns[column])
        if known.any():
            series.append(Series(kind, kind, columns[x][known], columns[column][known]))
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
    # The tolerance is shown where it is near; one far away would flatten the curve.
    held = [*values, 100.0 * tol] if values.min() <= 1000.0 * tol < math.inf else values
    x_axis, x_label = _x_axis(columns[x], x)
    return line_chart(
        name,
        [Series("relative gap", "gap", columns[x][shown], values)],
        x_axis,
        make_axis(held, log=True),
        title=title,
        description=(
            f"Line chart, logarithmic: relative gap from {significant(values[0], 2)}{SPACE}% to "
            f"{significant(values[-1], 2)}{SPACE}%."
        ),
        x_label=x_label,
        y_label="gap in % of the primal",
        rule=Rule(f"tol {brief(100.0 * tol)}{SPACE}%", 100.0 * tol),
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
    shares = [row.relative_gap for row in chosen]
    known = [v for row in chosen for v in (row.primal, row.dual) if math.isfinite(v)]
    decimals = decimals_for(max(map(abs, known), default=0.0), 6)
    fine = decimals_for(100 * min((share for share in shares if share > 0), default=1.0), 2)
    cells = [
        [
            count(row.passes),
            fixed(row.time, 2),
            count(row.oracle_calls),
            count(row.planes),
            fixed(row.primal, decimals) if math.isfinite(row.primal) else "∞",
            fixed(row.dual, decimals) if math.isfinite(row.dual) else "–",
            percent(share, max(fine, 2)) if math.isfinite(share) else "–",
        ]
        for row, share in zip(chosen, shares, strict=True)
    ]
    head = ("pass", "seconds", "decodes", "planes", "primal", "dual", "relative gap")
    return table(caption, head, cells, words=())
