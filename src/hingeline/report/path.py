"""A path as a picture: the risks that bound ν, and the certified gaps."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from hingeline.estimators.paths import Path
from hingeline.modelfile import replacing
from hingeline.report.curve import check_picture_path, new_figure, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ERRORS, _SUPPORT, _GAP, _GREY = "#c2491d", "#1f5f8b", "#333333", "#8a8a8a"


def plot_path(
    path: Path, target: str | os.PathLike[str] | None = None, title: str | None = None
) -> Figure:
    """Plot the risks of margin errors and support vectors, and the gaps, along a path.

    Parameters
    ----------
    path : Path
        What :func:`hingeline.nu_path` or :func:`hingeline.C_path` returned.
    target : path, optional
        Where to write the picture, ``.png`` or ``.svg``; it appears whole or not at all.
    title : str, optional

    Returns
    -------
    matplotlib.figure.Figure
        Made without pyplot, so there is nothing to close.

    Raises
    ------
    ImportError
        If matplotlib is missing: ``pip install 'hingeline[plot]'``.
    """
    if len(path) == 0:
        raise ValueError("the path is empty: pass what nu_path or C_path returned.")
    file_name = None if target is None else check_picture_path(target)
    figure = new_figure()
    risks, gaps = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    x = path.values
    for values, color, label in (
        (path.support_vector_risks, _SUPPORT, "risk of support vectors"),
        (path.margin_error_risks, _ERRORS, "risk of margin errors"),
    ):
        risks.plot(x, values, color=color, marker="o", markersize=3.5, linewidth=1.5, label=label)
    if path.parameter == "nu":
        risks.plot(x, x, color=_GREY, linewidth=1.0, linestyle="--", label="ν")
    risks.set_ylabel("mean loss")
    risks.legend(frameon=False, fontsize=9)
    shown = np.isfinite(path.relative_gaps) & (path.relative_gaps > 0.0)
    gaps.plot(x[shown], path.relative_gaps[shown], color=_GAP, marker="o", markersize=3.5)
    gaps.set_ylabel("relative gap")
    if shown.any():
        gaps.set_yscale("log")
    gaps.set_xlabel("ν" if path.parameter == "nu" else "C")
    if path.parameter == "C":
        gaps.set_xscale("log")
    for axes in (risks, gaps):
        tidy(axes)
    heading = title or f"Path of {'ν' if path.parameter == 'nu' else 'C'}"
    figure.suptitle(heading, x=0.01, ha="left", fontsize=12, fontweight="bold")
    if file_name is not None:
        with replacing(file_name) as file:
            figure.savefig(file, format=file_name.suffix.lower().lstrip("."))
    return figure
