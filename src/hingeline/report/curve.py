"""The training curve as a picture: primal, dual and the certified gap over time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hingeline._files import check_target
from hingeline.core.results import HistoryRow
from hingeline.modelfile import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = np.ndarray[Any, Any]

#: File formats of :func:`plot_curve`, by the ending of the name.
FORMATS = ("png", "svg")

_PRIMAL, _DUAL, _GAP, _GREY = "#c2491d", "#1f5f8b", "#333333", "#8a8a8a"


def plot_curve(
    history: Sequence[HistoryRow],
    path: str | os.PathLike[str] | None = None,
    title: str = "Training curve",
) -> Figure:
    """Plot primal, dual and relative gap over time.

    Parameters
    ----------
    history : list of HistoryRow
        ``history_`` of a fitted estimator.
    path : path, optional
        Where to write the picture; its ending, ``.png`` or ``.svg``, says in which format. The
        file appears whole or not at all.
    title : str

    Returns
    -------
    matplotlib.figure.Figure
        Made without pyplot, so there is nothing to close.

    Raises
    ------
    ImportError
        If matplotlib is missing: ``pip install 'hingeline[plot]'``.
    """
    if len(history) == 0:
        raise ValueError("history is empty: pass history_ of an estimator that has been fitted.")
    target = None if path is None else check_picture_path(path)
    figure = new_figure()
    objectives, gaps = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    _draw_objectives(objectives, history)
    _draw_gap(gaps, history)
    for axes in (objectives, gaps):
        tidy(axes)
    gaps.set_xlabel("seconds")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    if target is not None:
        with replacing(target) as file:
            figure.savefig(file, format=target.suffix.lower().lstrip("."))
    return figure


def new_figure() -> Figure:
    """An empty figure that belongs to no window; ImportError where matplotlib is missing."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "plots need matplotlib: install hingeline[plot] (pip install 'hingeline[plot]')."
        ) from error
    figure = Figure(figsize=(7.0, 5.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def check_picture_path(path: str | os.PathLike[str]) -> Path:
    """The path of a picture that can be written, or an error that says why it cannot."""
    return check_target(path, FORMATS)


def _column(history: Sequence[HistoryRow], name: str) -> Array:
    return np.array([getattr(row, name) for row in history], dtype=np.float64)


def _draw_objectives(axes: Axes, history: Sequence[HistoryRow]) -> None:
    time, primal, dual = (_column(history, name) for name in ("time", "primal", "dual"))
    label = "primal (best so far)"
    if not np.isfinite(primal).any():
        primal = _column(history, "restricted")
        label = "primal over the outputs found"
    certified = np.isfinite(primal)
    axes.plot(
        time[certified],
        primal[certified],
        color=_PRIMAL,
        marker="o",
        markersize=3.5,
        linewidth=1.5,
        label=label,
    )
    known = np.isfinite(dual)
    axes.plot(time[known], dual[known], color=_DUAL, linewidth=1.5, label="dual")
    axes.set_ylabel("objective")
    axes.legend(frameon=False, fontsize=9)


def _draw_gap(axes: Axes, history: Sequence[HistoryRow]) -> None:
    time, gap, relative = (_column(history, name) for name in ("time", "gap", "relative_gap"))
    # A gap of exactly zero has no place on a logarithmic axis.
    shown = np.isfinite(relative) & (relative > 0.0)
    axes.set_ylabel("relative gap")
    if not shown.any():
        axes.set_yticks([])
        nothing = "no gap" if (gap <= 0.0).any() else "no certified gap"
        axes.text(0.5, 0.5, nothing, transform=axes.transAxes, ha="center", color=_GREY)
        return
    time, relative = time[shown], relative[shown]
    axes.plot(time, relative, color=_GAP, marker="o", markersize=3.5, linewidth=1.5)
    axes.set_yscale("log")
    axes.margins(y=0.18)
    axes.annotate(
        f"{100 * relative[-1]:.2g} %",
        (time[-1], relative[-1]),
        xytext=(0, -12),
        textcoords="offset points",
        ha="right",
        fontsize=9,
        color=_GAP,
    )


def tidy(axes: Axes) -> None:
    """Light axes: no frame, a faint grid behind the curves."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(_GREY)
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(color=_GREY, labelsize=9)
    axes.margins(x=0.02)
