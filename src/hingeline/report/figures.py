"""Pictures, all drawn by matplotlib: training curves, paths, segmentations, weights of pairs.

What has several panels is returned as a tuple of axes, what has one as axes, which ``ax=`` may
give. Figures are made without pyplot, so there is nothing to close; what is returned shows itself
in notebooks, has its ``figure``, and is there to be changed. Files appear whole or not at all.
"""

from __future__ import annotations

import io
import math
import os
import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from hingeline._checks import Array, require
from hingeline._files import check_target, replacing
from hingeline._words import SPACE, brief, percent_at_most, significant
from hingeline.core.results import HistoryRow
from hingeline.estimators.paths import Path as ModelPath

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FileName = str | os.PathLike[str]
FORMATS = ("png", "svg")  # File formats of pictures, by the ending of the name.

_TEXT, _MUTED, _LINE, _BACK = "#1c2126", "#5a6570", "#d9dfe5", "#ffffff"
_ORANGE, _BLUE = "#b04200", "#0a5fa5"
#: In the page, colours follow its style sheet: light, dark or print.
_VARIABLES = {
    _TEXT: "var(--text)", _MUTED: "var(--muted)", _LINE: "var(--line)", _BACK: "var(--back)",
    _ORANGE: "rgb(var(--orange))", _BLUE: "rgb(var(--blue))", "'DejaVu Sans'": "var(--sans)",
}  # fmt: skip
#: Text stays text, measured by the one font that comes with matplotlib; names of parts are fixed.
_SETTINGS = {
    "svg.fonttype": "none", "svg.hashsalt": "hingeline", "font.family": ["DejaVu Sans"],
    "font.size": 12.0, "path.simplify": True,
}  # fmt: skip
MOST_MARKERS = 40  # A curve of more points than this has no markers.
_LOG_FROM = 100.0  # Values that differ by more than this factor are shown on a logarithmic scale.
#: Larger values have no place on an axis, smaller ones than its inverse none on a logarithmic one.
_LARGEST = 1e200


def new_figure(width: float = 7.0, height: float = 5.2) -> Figure:
    """An empty figure that belongs to no window; ImportError where matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        how = "install hingeline[plot] (pip install 'hingeline[plot]')"
        raise ImportError(f"plots need matplotlib: {how}.") from error
    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def draw_png(figure: Figure, dpi: int = 100) -> bytes:
    """A figure as the bytes of a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()


class Panels(tuple["Axes", ...]):
    """The axes of a picture of several panels, which shows itself in a notebook."""

    figure = property(lambda self: self[0].figure, doc="The figure that they are in.")

    def _repr_png_(self) -> bytes:
        return draw_png(self.figure)


def _take_axes(given: Axes | None, width: float, height: float) -> Any:
    """The axes to draw in: those given, or those of a new figure, which show themselves."""
    if given is not None:
        return given
    figure = new_figure(width, height)
    axes: Any = figure.subplots()
    axes._repr_png_ = partial(draw_png, figure)
    return axes


def _finish(figure: Figure, title: str, path: FileName | None, given: Axes | None = None) -> Panels:
    """Add the title, and write the file if there is to be one."""
    if given is None:
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    else:  # the figure is somebody else's
        given.set_title(title)
    if path is not None:
        target = check_target(path, FORMATS)
        with replacing(target) as file:
            figure.savefig(file, format=target.suffix.lower().lstrip("."))
    return Panels(figure.axes)


def _tidy(axes: Axes) -> None:
    """Light axes: no frame, a faint grid behind the curves."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_MUTED)
    axes.grid(axis="y", color=_LINE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", color=_MUTED, labelcolor=_MUTED)
    axes.xaxis.label.set_color(_TEXT)
    axes.yaxis.label.set_color(_TEXT)


def plot_curve(history: Any, path: FileName | None = None, title: str = "Training curve") -> Panels:
    """Plot primal, dual and relative gap over time.

    Parameters
    ----------
    history : a fitted estimator, or its ``history_``
    path : path of a ``.png`` or ``.svg`` file to write, optional
    title : str

    Returns
    -------
    objectives, gaps : matplotlib's axes, in a tuple with their ``figure``

    Examples
    --------
    >>> from hingeline import MulticlassSSVM
    >>> model = MulticlassSSVM().fit([[0.0, 1.0], [1.0, 0.0]], ["a", "b"])
    >>> objectives, gaps = plot_curve(model, "curve.png")
    """
    history = getattr(history, "history_", history)
    if not isinstance(history, Sequence) or not history:
        raise ValueError("there is no history: pass an estimator that has been fitted.")
    figure = new_figure()
    objectives, gaps = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    _draw_objectives(objectives, history, "time")
    _draw_gaps(gaps, history, "time")
    objectives.set_xlabel("")
    return _finish(figure, title, path)


class Chart(NamedTuple):
    """A drawing for the page: SVG without its outermost element, and what is read out instead."""

    name: str
    title: str
    description: str
    body: str


def draw_charts(history: Sequence[HistoryRow], tol: float) -> list[Chart]:
    """Objectives and gap, each over time and over passes, for the page."""
    return [
        draw_chart(f"{name}-{x}", f"{title} over {x}", draw, history, x, *more)
        for name, title, draw, more in (
            ("objective", "Objective", _draw_objectives, ()),
            ("gap", "Relative gap", _draw_gaps, (tol,)),
        )
        for x in ("time", "passes")
        if all(math.isfinite(getattr(row, x)) for row in history)
    ]


def draw_chart(name: str, title: str, draw: Any, *arguments: Any) -> Chart:
    """A drawing for the page: ``draw`` takes axes and the arguments, and says what it shows."""
    from matplotlib import rc_context

    figure = new_figure(460 / 72, 290 / 72)
    with rc_context(_SETTINGS):
        description = draw(figure.subplots(), *arguments)
        buffer = io.BytesIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    return Chart(name, title, description, _inline(buffer.getvalue(), name))


def _inline(picture: bytes, name: str) -> str:
    """The inside of an SVG file, made to live in a page with others and to follow its style."""
    body = picture.decode("utf-8").partition("<svg")[2].partition(">")[2].rpartition("</svg>")[0]
    # Matplotlib's own style sheet would reach the whole page.
    body = re.sub(r"<metadata>.*?</metadata>|<defs>\s*<style.*?</defs>", "", body, flags=re.DOTALL)
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', body))
    names = re.compile(r'\s+id="([^"]*)"')
    body = names.sub(lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", body)
    body = re.sub(r'(href="|url\()#', rf"\g<1>#{name}-", body)
    # Tenths of a unit are finer than any screen; what stands between tags is text.
    long = re.compile(r"\d+\.\d{2,}")
    body = re.sub(r"<[^>]*>", lambda tag: long.sub(lambda m: f"{float(m[0]):.1f}", tag[0]), body)
    for given, variable in _VARIABLES.items():
        body = body.replace(given, variable)
    return re.sub(r"\s*\n\s*", " ", body)


def _column(history: Sequence[HistoryRow], name: str) -> Array:
    values = np.array([getattr(row, name) for row in history], dtype=np.float64)
    return np.where(np.abs(values) > _LARGEST, np.inf, values)


def _draw_objectives(axes: Axes, history: Sequence[HistoryRow], x: str) -> str:
    """Draw the primal and the dual; what the drawing says, in words."""
    at = _column(history, x)
    _set_x(axes, at, x)
    ends, shown = [], []
    for name, label, colour, style in (
        ("primal", "primal (best so far)", _ORANGE, "-"),
        ("restricted", "primal over the outputs found", _ORANGE, "-"),
        ("dual", "dual", _BLUE, "--"),
    ):
        values = _column(history, name)
        known = np.isfinite(values)
        if known.any():
            _draw_line(axes, at[known], values[known], colour, style, label)
            first, last = values[known][[0, -1]]
            ends.append(f"{label} from {significant(first)} to {significant(last)}")
            shown.append(values[known])
    if not shown:
        return _say(axes, "no objective is known")
    values = np.concatenate(shown)
    log = bool(values.min() > 0 and values.max() > _LOG_FROM * values.min())
    _set_scale(axes, "y", values, log)
    axes.set_ylabel("objective, logarithmic" if log else "objective")
    axes.legend(
        frameon=False, labelcolor=_MUTED, fontsize="small", loc="lower left", ncols=2,
        bbox_to_anchor=(0.0, 1.0), borderaxespad=0.2, columnspacing=1.5,
    )  # fmt: skip
    return f"Line chart: {' and '.join(ends)}."


def _draw_gaps(axes: Axes, history: Sequence[HistoryRow], x: str, tol: float = math.nan) -> str:
    """Draw the relative gap in per cent, and the tolerance; what the drawing says, in words."""
    at, share = _column(history, x), _column(history, "relative_gap")
    _set_x(axes, at, x)
    # A gap of exactly zero has no place on a logarithmic axis.
    shown = np.isfinite(share) & (share > 0.0)
    if not shown.any():
        return _say(axes, "the gap is zero" if (share == 0.0).any() else "no certified gap")
    values, bound = 100.0 * share[shown], 100.0 * tol
    _draw_line(axes, at[shown], values, _TEXT, "-")
    # The tolerance is shown where it is near; one far away would flatten the curve.
    held = values
    if values.min() <= 10.0 * bound < math.inf:
        held = np.append(values, bound)
        axes.axhline(bound, color=_MUTED, linewidth=1.2, linestyle=(0, (2, 3)))
        axes.annotate(
            f"tol {brief(bound)}{SPACE}%", (0.01, bound), xycoords=axes.get_yaxis_transform(),
            xytext=(0, 4), textcoords="offset points", fontsize="small", color=_MUTED,
        )  # fmt: skip
    _set_scale(axes, "y", held, log=True)
    axes.set_ylabel("gap in % of the primal")
    first, last = map(percent_at_most, share[shown][[0, -1]].tolist())
    if math.isnan(tol):
        low, high = axes.get_ylim()
        axes.set_ylim(low * (low / high) ** 0.25, high)  # room for the number
        axes.annotate(
            last, (at[shown][-1], values[-1]), xytext=(0, -14), textcoords="offset points",
            ha="right", fontsize="small", color=_TEXT,
        )  # fmt: skip
    return f"Line chart, logarithmic: relative gap from {first} to {last}."


def _draw_line(axes: Axes, x: Array, y: Array, colour: str, style: str, label: str = "") -> None:
    marker = ("s" if style == "--" else "o") if len(x) <= MOST_MARKERS else None
    axes.plot(
        x, y, color=colour, linestyle=style, linewidth=1.8, marker=marker, markersize=5.0,
        markeredgecolor=_BACK, markeredgewidth=0.8, solid_joinstyle="round", label=label,
    )  # fmt: skip


def _say(axes: Axes, message: str) -> str:
    axes.set_yticks([])
    axes.text(0.5, 0.5, message, transform=axes.transAxes, ha="center", color=_MUTED)
    return message


def _set_x(axes: Axes, values: Array, x: str) -> None:
    low, high = float(values.min()), float(values.max())
    log = low > 0 and high > 1e4 * low
    _set_scale(axes, "x", values, log)
    # Where nothing is known of the first half, as with compilation at first, it is not drawn.
    if not log and 0.0 <= low <= 0.5 * high:
        axes.set_xlim(0.0, 1.02 * high)
    if x == "passes" and not log:
        from matplotlib.ticker import MaxNLocator

        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    label = "seconds since the fit began" if x == "time" else "passes over the data"
    axes.set_xlabel(label + (", logarithmic" if log else ""))
    _tidy(axes)


def _set_scale(axes: Any, which: str, values: Array, log: bool) -> None:
    """Ends, ticks and their labels of an axis that holds all values."""
    from matplotlib import ticker

    axis, set_limits = getattr(axes, f"{which}axis"), getattr(axes, f"set_{which}lim")
    low, high = float(np.min(values)), float(np.max(values))
    if not log:
        # A range far narrower than its values would need labels of many digits.
        room = max(0.06 * (high - low), 5e-4 * max(abs(low), abs(high)))
        if low == high:
            room = 0.1 * abs(low) or 1.0
        set_limits(low - room, high + room)
        axis.set_major_locator(ticker.MaxNLocator(6, steps=[1, 2, 5, 10]))
        axes.ticklabel_format(axis=which, useOffset=False, scilimits=(-4, 6))
        return
    low, high = (math.log10(max(end, 1.0 / _LARGEST)) for end in (low, high))
    decades = max(high - low, 0.3)
    middle, half = 0.5 * (low + high), 0.57 * decades
    getattr(axes, f"set_{which}scale")("log")
    set_limits(10 ** (middle - half), 10 ** (middle + half))
    if decades < 0.7:  # so short a range is nearly linear
        axis.set_major_locator(ticker.MaxNLocator(5, steps=[1, 2, 5, 10]))
    else:
        axis.set_major_locator(ticker.LogLocator(subs=(1.0,) if decades > 2.5 else (1.0, 2.0, 5.0)))
    axis.set_minor_locator(ticker.NullLocator())
    axis.set_major_formatter(ticker.FuncFormatter(lambda v, _: brief(v).removeprefix("1 × ")))


def plot_reliability(
    confidence: Any,
    right: Any,
    *,
    measure: str = "probability",
    n_bins: int = 12,
    ax: Axes | None = None,
    path: FileName | None = None,
    title: str = "Reliability",
) -> Axes:
    """Plot how often predictions are right at each level of confidence, with 95 % intervals.

    Predictions are sorted and cut into groups of equal size; equal values stay together.

    Parameters
    ----------
    confidence : array-like, or list of arrays, such as
        :meth:`CalibratedChain.predict_proba_tokens
        <hingeline.evaluation.calibration.CalibratedChain.predict_proba_tokens>` gives
    right : array-like, or list of arrays; whether each prediction is right
    measure : str, default="probability"; the name of the confidence
        For probabilities, a line shows where they would be exactly right.
    n_bins : int, default=12
    ax : matplotlib axes to draw in; default: those of a new figure
    path : path of a ``.png`` or ``.svg`` file to write, optional
    title : str

    Examples
    --------
    >>> axes = plot_reliability([0.9, 0.6, 0.8], [True, False, True], path="reliability.png")
    """
    sure, true = (np.concatenate([np.ravel(part) for part in v]) for v in (confidence, right))
    what = f"confidence has {len(sure)} values and right has {len(true)}"
    require(len(sure) == len(true) > 0, f"{what}: they must have the same length above 0.")
    axes = _take_axes(ax, 5.4, 4.2)
    draw_reliability(axes, sure.astype(float), true.astype(float), measure, n_bins)
    _finish(axes.figure, title, path, ax)
    return cast("Axes", axes)


def draw_reliability(axes: Axes, confidence: Array, right: Array, measure: str, n_bins: int) -> str:
    """Draw how often predictions are right by confidence; returns the drawing in words."""
    order = np.argsort(confidence, kind="stable")
    # Equal values stay together, as in the calibration error.
    bins = np.searchsorted(confidence[order], confidence[order]) * n_bins // len(order)
    points = []
    for k in np.unique(bins):
        own = order[bins == k]
        n, p, x = len(own), float(right[own].mean()), float(confidence[own].mean())
        if math.isfinite(x):
            # Wilson's interval, which holds for shares near 0 and 1, too.
            middle, half = p + 1.92 / n, 1.96 * math.sqrt((p * (1 - p) + 0.96 / n) / n)
            points.append((x, p, *((middle + side) / (1 + 3.84 / n) for side in (-half, half))))
    if not points:
        return _say(axes, "nothing to draw")
    x, share, low, high = np.array(points).T
    if measure == "probability":
        ends = (min(float(x.min()), float(low.min())), 1.0)
        axes.plot(ends, ends, color=_MUTED, linewidth=1.2, linestyle=(0, (2, 3)))
    axes.vlines(x, low, high, color=_BLUE, linewidth=1.2)
    _draw_line(axes, x, share, _BLUE, "-")
    _tidy(axes)
    axes.set_xlabel("probability that the model gives" if measure == "probability" else measure)
    axes.set_ylabel("share that is right")
    change = f"from {brief(float(share[0]))} to {brief(float(share[-1]))}"
    return f"Line chart: the share of right labels goes {change} as the {measure} grows."


def plot_path(path: ModelPath, target: FileName | None = None, title: str | None = None) -> Panels:
    """Plot risks of margin errors and support vectors, and gaps, along a path: two axes.

    Parameters
    ----------
    path : Path, as :func:`hingeline.nu_path` and :func:`hingeline.C_path` return it
    target : path of a ``.png`` or ``.svg`` file to write, optional
    title : str, optional

    Examples
    --------
    >>> from hingeline import C_path, MulticlassSSVM
    >>> path = C_path(MulticlassSSVM(), [[0.0, 1.0], [1.0, 0.0]], ["a", "b"], Cs=[0.1, 1.0])
    >>> risks, gaps = plot_path(path, "path.svg")
    """
    known = hasattr(path, "relative_gaps")
    what = "empty" if known else f"{path!r:.40}"
    require(known and len(path), f"path is {what}: pass what nu_path or C_path returned.")
    figure = new_figure()
    risks, gaps = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    x = path.values
    symbol = "ν" if path.parameter == "nu" else "C"
    _draw_line(risks, x, path.support_vector_risks, _BLUE, "-", "risk of support vectors")
    _draw_line(risks, x, path.margin_error_risks, _ORANGE, "-", "risk of margin errors")
    if path.parameter == "nu":
        risks.plot(x, x, color=_MUTED, linewidth=1.0, linestyle="--", label="ν")
    risks.set_ylabel("mean loss")
    risks.legend(frameon=False, fontsize="small")
    shown = np.isfinite(path.relative_gaps) & (path.relative_gaps > 0.0)
    percent = 100.0 * path.relative_gaps[shown]
    _draw_line(gaps, x[shown], percent, _TEXT, "-")
    gaps.set(xlabel=symbol, ylabel="gap in %")
    if shown.any():
        _set_scale(gaps, "y", percent, log=True)
    if path.parameter == "C":
        gaps.set_xscale("log")
    _tidy(risks)
    _tidy(gaps)
    return _finish(figure, title or f"Path of {symbol}", target)


#: Colours of the first labels; more are taken around the circle of hues.
_COLOURS = (
    "#4c78a8", "#f58518", "#54a24b", "#e45756", "#b279a2",
    "#eeca3b", "#72b7b2", "#9d755d", "#ff9da6", "#79706e",
)  # fmt: skip
#: Labels that have the colour of what they name.
_SIMILAR = {
    "sky air": "#9ecae9", "water sea river": "#2f6db3", "grass meadow field": "#6cb33f",
    "tree trees forest": "#1f6b35", "road street path": "#8c8c8c", "sand beach ground": "#e0c57f",
    "mountain rock": "#8a6d54", "building house roof": "#c0504d", "sun flower": "#f2c018",
}  # fmt: skip
_NATURAL = {name: colour for names, colour in _SIMILAR.items() for name in names.split()}
_VOID = (0.0, 0.0, 0.0)
_MOST_NUMBERS = 12  # Weights are printed in the cells of matrices up to this size.


def label_colours(labels: Sequence[Any]) -> Array:
    """Colours of labels as (labels, 3) shares of red, green and blue, all different."""
    from matplotlib.colors import hsv_to_rgb, to_rgb

    colours: dict[int, Any] = {}
    for k, label in enumerate(labels):
        natural = _NATURAL.get(str(label).lower())
        if natural and to_rgb(natural) not in colours.values():
            colours[k] = to_rgb(natural)
    taken = np.array([*colours.values()]).reshape(-1, 3)
    pool = [c for c in map(to_rgb, _COLOURS) if (abs(taken - c).max(axis=1) > 0.2).all()]
    rest = [k for k in range(len(labels)) if k not in colours]
    more = max(len(rest) - len(pool), 0)
    pool += [tuple(hsv_to_rgb((k / more, 0.9 - 0.35 * (k % 2), 0.85))) for k in range(more)]
    colours.update(zip(rest, pool, strict=False))
    return np.array([colours[k] for k in range(len(labels))]).reshape(-1, 3)


def plot_segmentation(
    predicted: Any,
    truth: Any = None,
    *,
    image: Any = None,
    regions: Any = None,
    shape: tuple[int, int] | None = None,
    classes: Sequence[Any] | None = None,
    void_label: Any = None,
    opacity: float = 0.6,
    path: FileName | None = None,
    title: str = "Segmentation",
) -> Panels:
    """Draw the labels of an image over it: prediction and truth side by side, on two axes.

    Parameters
    ----------
    predicted, truth : array-like
        Labels of the pixels, of shape (rows, columns); or one label for each node of a graph, in
        the order of its nodes, together with ``regions`` or ``shape``.
    image : array-like of shape (rows, columns) or (rows, columns, 3), optional
        Grey values or colours, from 0 to 1 or as integers from 0 to 255.
    regions : integer array-like (rows, columns); the node of each pixel (superpixels), optional
    shape : (rows, columns), if nodes are the pixels themselves, row by row, optional
    classes : sequence of labels in the order of their colours; default: those that occur, sorted
    void_label : label that is shown in black and not counted, optional
    opacity : float, default=0.6; of the labels over an image
    path : path of a ``.png`` or ``.svg`` file to write, optional
    title : str

    Examples
    --------
    >>> predicted, truth = [["sky", "sky"], ["sea", "sky"]], [["sky", "sky"], ["sea", "sea"]]
    >>> panels = plot_segmentation(predicted, truth, path="labels.png")
    """
    given = {"truth": truth, "predicted": predicted}
    maps = {n: _label_map(y, n, regions, shape) for n, y in given.items() if y is not None}
    size = maps["predicted"].shape
    found = "predicted"
    if truth is not None:
        other = maps["truth"]
        what = f"truth has shape {other.shape}, predicted {size}"
        require(other.shape == size, f"{what}: they must agree.")
        right = (other == maps["predicted"])[other != void_label]
        share = f"{100.0 * right.mean():.1f} % of pixels right" if right.size else "nothing known"
        found += f", {share}"
    known = _classes(maps, classes, void_label)
    colours = np.vstack([label_colours(known), _VOID])
    panels = {} if image is None else {"image": _image(image, size)}
    place = {label: k for k, label in enumerate(known)} | {void_label: len(known)}
    for name, labels in maps.items():
        values, inverse = np.unique(labels, return_inverse=True)
        shown = colours[[place[value] for value in values.tolist()]][inverse].reshape(*size, 3)
        if image is not None:
            shown = opacity * shown + (1.0 - opacity) * panels["image"]
        panels[found if name == "predicted" else name] = shown
    figure = new_figure(0.4 + 3.1 * len(panels), 1.2 + 3.1 * min(size[0] / size[1], 1.6))
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for own, (name, panel) in zip(axes, panels.items(), strict=True):
        own.imshow(panel, interpolation="nearest")
        own.set_title(name, fontsize=9)
        own.set_axis_off()
    from matplotlib.patches import Patch

    named = zip(known, colours, strict=False)
    patches = [Patch(color=tuple(colour), label=_short(label)) for label, colour in named]
    figure.legend(
        handles=patches, loc="outside lower left", ncols=min(len(patches), 7) or 1, frameon=False,
        fontsize=8,
    )  # fmt: skip
    return _finish(figure, title, path)


def plot_affinities(
    weights: Any,
    labels: Sequence[Any] | None = None,
    *,
    ax: Axes | None = None,
    path: FileName | None = None,
    title: str = "Affinity of labels",
) -> Axes:
    """Draw the weights of pairs of labels as a heat map: positive blue, negative orange.

    Parameters
    ----------
    weights : fitted model, or array-like of shape (labels, labels)
        Row: label of the first node, column: of the second. Of a :class:`hingeline.GraphSSVM`
        without edge features these are ``pairwise_coef_``, of a chain ``transition_coef_``, of a
        :class:`hingeline.MultilabelSSVM` what :func:`label_affinities` returns. Entries that are
        NaN stay empty.
    labels : sequence of their names; default: those of the model
    ax : matplotlib axes to draw in; default: those of a new figure
    path : path of a ``.png`` or ``.svg`` file to write, optional
    title : str

    Examples
    --------
    >>> axes = plot_affinities([[0.5, -0.2], [-0.2, 0.4]], ["beach", "field"], path="pairs.png")
    """
    labels = getattr(weights, "classes_", ()) if labels is None else labels
    if hasattr(weights, "get_params"):  # a model
        names = [n for n in ("edges_", "transition_coef_", "pairwise_coef_") if hasattr(weights, n)]
        what = f"{type(weights).__name__} has no weights of pairs of labels, or is not fitted"
        require(names, f"{what}: pass another model, or a matrix and the names of its labels.")
        weights = label_affinities(weights) if names[0] == "edges_" else getattr(weights, names[0])
    table = np.asarray(weights, dtype=np.float64)
    n = len(labels)
    what = f"weights has shape {table.shape}, expected ({n}, {n})"
    require(table.shape == (n, n), f"{what}: one row and one column for each label.")
    side = min(max(2.4 + 0.32 * n, 4.2), 14.0)
    axes = _take_axes(ax, side + 0.9, side)
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("signs", [_ORANGE, _BACK, _BLUE])
    most = float(np.abs(table[np.isfinite(table)]).max(initial=0.0)) or 1.0
    drawn = axes.imshow(table, cmap=colours, vmin=-most, vmax=most)
    names = [_short(name) for name in labels]
    axes.set_xticks(range(n), names, rotation=90, fontsize=8)
    axes.set_yticks(range(n), names, fontsize=8)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    if n <= _MOST_NUMBERS:
        for a, b in np.argwhere(np.isfinite(table)):
            ink = "white" if abs(table[a, b]) > 0.6 * most else "black"
            axes.text(b, a, f"{table[a, b]:.2g}", ha="center", va="center", fontsize=7, color=ink)
    axes.figure.colorbar(drawn, ax=axes, shrink=0.8, label="weight")
    _finish(axes.figure, title, path, ax)
    return cast("Axes", axes)


def label_affinities(model: Any) -> Array:
    """What the pairs of a fitted :class:`hingeline.MultilabelSSVM` add to having both labels.

    That is ``T[1, 1] + T[0, 0] − T[0, 1] − T[1, 0]``, which does not depend on how single labels
    are scored: positive for labels that go together. The matrix (labels, labels) is symmetric, and
    NaN where there is no edge.
    """
    table = np.full((model.n_labels_, model.n_labels_), np.nan)
    pairs = model.pairwise_coef_
    first, second = model.edges_.T
    value = pairs[:, 1, 1] + pairs[:, 0, 0] - pairs[:, 0, 1] - pairs[:, 1, 0]
    table[first, second] = table[second, first] = value
    return table


def _label_map(values: Any, name: str, regions: Any, shape: tuple[int, int] | None) -> Array:
    labels = np.asarray(values)
    if regions is not None:
        regions = np.asarray(regions)
        fine = regions.ndim == 2 and regions.dtype.kind in "iu" and regions.size
        found = f"regions has shape {regions.shape} and dtype {regions.dtype}"
        wanted = "whole numbers of shape (rows, columns): the node of each pixel"
        require(fine, f"{found}, expected {wanted}.")
    has = f"{name} has {len(labels)} labels" if labels.ndim else ""
    if labels.ndim == 1 and regions is not None:
        low, high = int(regions.min()), int(regions.max())
        what = f"regions holds {low} to {high}, but {has}"
        require(low >= 0 and high < len(labels), f"{what}: nodes are counted from 0.")
        return np.asarray(labels[regions])
    if labels.ndim == 1 and shape is not None:
        size = shape[0] * shape[1]
        require(len(labels) == size, f"{has}, but shape={tuple(shape)} has {size} pixels.")
        return labels.reshape(shape)
    what = f"{name} has shape {labels.shape}: give labels of shape (rows, columns)"
    how = "one for each node with regions=… or shape=…"
    require(labels.ndim == 2 and labels.size, f"{what}, or {how}.")
    return labels


def _image(values: Any, size: tuple[int, ...]) -> Array:
    """Colours from 0 to 1."""
    image = np.asarray(values)
    image = image / (255.0 if image.dtype.kind in "iu" else 1.0)
    if image.ndim == 2:
        image = np.repeat(image[:, :, None], 3, axis=2)
    what = f"image has shape {image.shape}, but the labels have shape {size}"
    require(image.shape == (*size, 3), f"{what}: it must be {size} or {(*size, 3)}.")
    return np.clip(image, 0.0, 1.0)


def _classes(maps: dict[str, Array], classes: Sequence[Any] | None, void: Any) -> list[Any]:
    seen = set().union(*(labels.ravel().tolist() for labels in maps.values())) - {void}
    if classes is None:
        return sorted(seen, key=lambda label: (type(label).__name__, label))
    known = list(np.asarray(classes).tolist())
    if missing := sorted(seen - set(known), key=str):
        raise ValueError(f"the label {missing[0]!r} is not among classes: add it.")
    return known


def _short(name: Any) -> str:
    text = " ".join(str(name).split())
    # A dollar would begin mathematics, which stray input need not be.
    return (text if len(text) <= 24 else text[:23] + "…").replace("$", r"\$")
