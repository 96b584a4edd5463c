"""Line charts as inline SVG; colours are the page's, by class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from hingeline.report.axes import Axis

Array = np.ndarray[Any, Any]

WIDTH, HEIGHT = 460, 280
LEFT, RIGHT, TOP, BOTTOM = 70, 14, 34, 46
#: A curve of more points than this has no markers.
MOST_MARKERS = 40
#: Points of a curve that are closer than this to the one before are left out.
_CLOSE = 0.7


@dataclass(frozen=True)
class Series:
    """One curve: its name in the legend, its class in the style sheet, and its points."""

    name: str
    kind: str  # "primal", "dual" or "gap"
    x: Array
    y: Array


@dataclass(frozen=True)
class Rule:
    """A horizontal line at a value that matters."""

    name: str
    y: float


def to_x(axis: Axis, values: Any) -> Any:
    """Horizontal places of values in the drawing."""
    return LEFT + axis.place(values) * (WIDTH - LEFT - RIGHT)


def to_y(axis: Axis, values: Any) -> Any:
    """Vertical places of values in the drawing; larger values are higher up."""
    return HEIGHT - BOTTOM - axis.place(values) * (HEIGHT - TOP - BOTTOM)


def line_chart(
    name: str,
    series: Sequence[Series],
    x_axis: Axis,
    y_axis: Axis,
    *,
    title: str,
    description: str,
    x_label: str,
    y_label: str,
    rule: Rule | None = None,
) -> str:
    """A chart of curves.

    Parameters
    ----------
    name : str
        Unique in the page; ids begin with it.
    series : sequence of Series
        Finite points in the order of x.
    x_axis, y_axis : Axis
        Which hold all points.
    title, description : str
        Read out in place of the picture.
    x_label, y_label : str
    rule : Rule, optional
        Left out where it is not within the axis.
    """
    parts = [_grid(x_axis, y_axis, x_label, y_label)]
    if rule is not None and y_axis.low <= rule.y <= y_axis.high:
        at = _number(to_y(y_axis, rule.y))
        parts.append(
            f'<path class="rule" d="M{LEFT} {at}H{WIDTH - RIGHT}"/>'
            f'<text class="note" x="{LEFT + 6}" y="{_number(float(at) - 5)}">'
            f"{escape(rule.name)}</text>"
        )
    parts.extend(_curve(s, x_axis, y_axis) for s in series)
    parts.append(_legend(series))
    return _svg(name, title, description, "\n".join(parts))


def empty_chart(name: str, title: str, message: str) -> str:
    """A frame that says why there is nothing to draw."""
    frame = (
        f'<rect class="frame" x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" '
        f'height="{HEIGHT - TOP - BOTTOM}"/>'
        f'<text class="note" x="{(LEFT + WIDTH - RIGHT) // 2}" y="{(TOP + HEIGHT - BOTTOM) // 2}" '
        f'text-anchor="middle">{escape(message)}</text>'
    )
    return _svg(name, title, message, frame)


def _svg(name: str, title: str, description: str, body: str) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-labelledby="{name}-title {name}-about">\n'
        f'<title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-about">{escape(description)}</desc>\n{body}\n</svg>'
    )


def _grid(x_axis: Axis, y_axis: Axis, x_label: str, y_label: str) -> str:
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    parts = []
    for tick, label in zip(y_axis.ticks, y_axis.labels, strict=True):
        at = float(to_y(y_axis, tick))
        parts.append(
            f'<path class="grid" d="M{LEFT} {_number(at)}H{right}"/>'
            f'<text x="{LEFT - 7}" y="{_number(at + 4)}" text-anchor="end">{escape(label)}</text>'
        )
    for tick, label in zip(x_axis.ticks, x_axis.labels, strict=True):
        at = float(to_x(x_axis, tick))
        # A label at the very edge would stick out.
        anchor = "end" if at > right - 8 and len(label) > 3 else "middle"
        parts.append(
            f'<path class="tick" d="M{_number(at)} {bottom}v5"/>'
            f'<text x="{_number(at)}" y="{bottom + 18}" text-anchor="{anchor}">'
            f"{escape(label)}</text>"
        )
    parts.append(f'<path class="axis" d="M{LEFT} {TOP}V{bottom}H{right}"/>')
    parts.append(
        f'<text class="name" x="{(LEFT + right) // 2}" y="{HEIGHT - 8}" text-anchor="middle">'
        f"{escape(x_label)}</text>"
        f'<text class="name" transform="translate(13 {(TOP + bottom) // 2}) rotate(-90)" '
        f'text-anchor="middle">{escape(y_label)}</text>'
    )
    return "\n".join(parts)


def _curve(series: Series, x_axis: Axis, y_axis: Axis) -> str:
    points = np.stack([to_x(x_axis, series.x), to_y(y_axis, series.y)], axis=1)
    points = _thinned(points)
    shown = [(_number(x), _number(y)) for x, y in points.tolist()]
    parts = []
    if len(shown) > 1:
        path = " ".join(f"{x},{y}" for x, y in shown)
        parts.append(f'<polyline class="curve {series.kind}" points="{path}"/>')
    if len(shown) <= MOST_MARKERS:
        parts.extend(_marker(series.kind, x, y) for x, y in shown)
    return "\n".join(parts)


def _marker(kind: str, x: str, y: str) -> str:
    if kind == "dual":
        corner = f'x="{_number(float(x) - 2.5)}" y="{_number(float(y) - 2.5)}"'
        return f'<rect class="mark {kind}" {corner} width="5" height="5"/>'
    return f'<circle class="mark {kind}" cx="{x}" cy="{y}" r="3"/>'


def _thinned(points: Array) -> Array:
    """Leave out points that cannot be told from the one before; the first and last stay."""
    keep = [0]
    for k in range(1, len(points)):
        if k == len(points) - 1 or np.abs(points[k] - points[keep[-1]]).max() >= _CLOSE:
            keep.append(k)
    return points[keep]


def _legend(series: Sequence[Series]) -> str:
    parts, x = [], LEFT
    for s in series:
        parts.append(
            f'<path class="curve {s.kind}" d="M{x} 16h24"/>'
            + _marker(s.kind, str(x + 12), "16")
            + f'<text x="{x + 30}" y="20">{escape(s.name)}</text>'
        )
        x += 46 + round(7.2 * len(s.name))
    return "\n".join(parts)


def _number(value: float) -> str:
    """Tenths of a unit are finer than any screen."""
    shown = f"{value:.1f}"
    return shown[:-2] if shown.endswith(".0") else shown
