"""Pictures of graphs: labels of images beside the truth, and weights of pairs of labels."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hingeline.modelfile import replacing
from hingeline.report.curve import check_picture_path, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = np.ndarray[Any, Any]

#: Colours of the first labels; more are taken around the circle of hues.
_COLOURS = (
    "#4c78a8",
    "#f58518",
    "#54a24b",
    "#e45756",
    "#b279a2",
    "#eeca3b",
    "#72b7b2",
    "#9d755d",
    "#ff9da6",
    "#79706e",
)
_VOID = (0.0, 0.0, 0.0)
#: Weights are printed in the cells of matrices up to this size.
_MOST_NUMBERS = 12


def label_colours(n: int) -> Array:
    """Colours of n labels as (n, 3) shares of red, green and blue."""
    from matplotlib.colors import hsv_to_rgb, to_rgb

    known = [to_rgb(c) for c in _COLOURS[:n]]
    more = n - len(known)
    ring = [hsv_to_rgb((k / more, 0.9 - 0.35 * (k % 2), 0.85)) for k in range(more)]
    return np.array([*known, *ring]).reshape(n, 3)


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
    path: str | os.PathLike[str] | None = None,
    title: str = "Segmentation",
) -> Figure:
    """Draw the labels of one image over it, the truth beside the prediction.

    Parameters
    ----------
    predicted : array-like
        Labels of the pixels, of shape (rows, columns); or one label for each node of a graph, in
        the order of its nodes, together with ``regions`` or ``shape``.
    truth : array-like, optional
        Likewise; its nodes that are not void are compared with the predicted ones.
    image : array-like of shape (rows, columns) or (rows, columns, 3), optional
        Grey values or colours, from 0 to 1 or as integers from 0 to 255, shown first and under
        the labels.
    regions : integer array-like of shape (rows, columns), optional
        Number of the node that each pixel belongs to (superpixels).
    shape : (rows, columns), optional
        Where nodes are the pixels themselves, row by row.
    classes : sequence, optional
        Labels in the order of their colours; by default those that occur, sorted.
    void_label : label, optional
        Shown in black, and not counted.
    opacity : float, default=0.6
        Of the labels over an image.
    path : path, optional
        Where to write the picture, ``.png`` or ``.svg``; it appears whole or not at all.
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
    target = None if path is None else check_picture_path(path)
    places = None if regions is None else _regions(regions)
    maps = {"predicted": _label_map(predicted, "predicted", places, shape)}
    if truth is not None:
        maps = {"truth": _label_map(truth, "truth", places, shape)} | maps
        if maps["truth"].shape != maps["predicted"].shape:
            raise ValueError(
                f"truth has shape {maps['truth'].shape} and predicted "
                f"{maps['predicted'].shape}: they must agree."
            )
    size = maps["predicted"].shape
    below = None if image is None else _image(image, size)
    known = _classes(maps, classes, void_label)
    figure = new_figure()
    panels = len(maps) + (below is not None)
    figure.set_size_inches(0.4 + 3.1 * panels, 1.2 + 3.1 * min(size[0] / size[1], 1.6))
    axes = list(figure.subplots(1, panels, squeeze=False)[0])
    if below is not None:
        first = axes.pop(0)
        first.imshow(below, interpolation="nearest")
        first.set_title("image", fontsize=9)
        _bare(first)
    colours = np.vstack([label_colours(len(known)), _VOID])
    for own, (name, labels) in zip(axes, maps.items(), strict=True):
        shown = colours[_numbers(labels, known, void_label)]
        if below is not None:
            shown = opacity * shown + (1.0 - opacity) * below
        own.imshow(shown, interpolation="nearest")
        own.set_title(name, fontsize=9)
        _bare(own)
    if truth is not None:
        axes[-1].set_title(f"predicted, {_share(maps, void_label)}", fontsize=9)
    _legend(figure, known, colours)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    if target is not None:
        with replacing(target) as file:
            figure.savefig(file, format=target.suffix.lower().lstrip("."))
    return figure


def plot_affinities(
    weights: Any,
    labels: Sequence[Any],
    *,
    path: str | os.PathLike[str] | None = None,
    title: str = "Affinity of labels",
) -> Figure:
    """Draw the weights of pairs of labels as a heat map, orange for and blue against.

    Parameters
    ----------
    weights : array-like of shape (labels, labels)
        Row: label of the first node, column: of the second, such as ``pairwise_coef_`` of a
        :class:`hingeline.GraphSSVM` without edge features or what :func:`label_affinities` makes
        of a :class:`hingeline.MultilabelSSVM`. Entries that are NaN stay empty.
    labels : sequence
        Their names.
    path : path, optional
        Where to write the picture, ``.png`` or ``.svg``; it appears whole or not at all.
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
    table = np.asarray(weights, dtype=np.float64)
    n = len(labels)
    if table.shape != (n, n):
        raise ValueError(
            f"weights has shape {table.shape}, expected ({n}, {n}): one row and one column for "
            "each label."
        )
    target = None if path is None else check_picture_path(path)
    figure = new_figure()
    side = min(max(2.4 + 0.32 * n, 4.2), 14.0)
    figure.set_size_inches(side + 0.9, side)
    axes = figure.subplots()
    finite = np.abs(table[np.isfinite(table)])
    most = float(finite.max(initial=0.0)) or 1.0
    drawn = axes.imshow(table, cmap="PuOr_r", vmin=-most, vmax=most)
    names = [_short(name) for name in labels]
    axes.set_xticks(range(n), names, rotation=90, fontsize=8)
    axes.set_yticks(range(n), names, fontsize=8)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    if n <= _MOST_NUMBERS:
        for a, b in np.argwhere(np.isfinite(table)):
            ink = "white" if abs(table[a, b]) > 0.6 * most else "black"
            axes.text(b, a, f"{table[a, b]:.2g}", ha="center", va="center", fontsize=7, color=ink)
    figure.colorbar(drawn, ax=axes, shrink=0.8, label="weight")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    if target is not None:
        with replacing(target) as file:
            figure.savefig(file, format=target.suffix.lower().lstrip("."))
    return figure


def label_affinities(model: Any) -> Array:
    """What the pairs of a :class:`hingeline.MultilabelSSVM` add to having both labels.

    Parameters
    ----------
    model : MultilabelSSVM, fitted

    Returns
    -------
    ndarray of shape (labels, labels)
        ``T[1, 1] + T[0, 0] − T[0, 1] − T[1, 0]``, which does not depend on how single labels are
        scored: positive for labels that go together. Symmetric; NaN where there is no edge.
    """
    table = np.full((model.n_labels_, model.n_labels_), np.nan)
    pairs = model.pairwise_coef_
    first, second = model.edges_.T
    value = pairs[:, 1, 1] + pairs[:, 0, 0] - pairs[:, 0, 1] - pairs[:, 1, 0]
    table[first, second] = value
    table[second, first] = value
    return table


# Parts -------------------------------------------------------------------------------------------


def _regions(values: Any) -> Array:
    regions = np.asarray(values)
    if regions.ndim != 2 or regions.dtype.kind not in "iu" or regions.size == 0:
        raise ValueError(
            f"regions has shape {regions.shape} and dtype {regions.dtype}, expected whole numbers "
            "of shape (rows, columns): the node of each pixel."
        )
    return regions


def _label_map(
    values: Any, name: str, regions: Array | None, shape: tuple[int, int] | None
) -> Array:
    """Labels as an image."""
    labels = np.asarray(values)
    if labels.ndim == 1 and regions is not None:
        if regions.min() < 0 or regions.max() >= len(labels):
            raise ValueError(
                f"regions holds {int(regions.min())} to {int(regions.max())}, but {name} has "
                f"{len(labels)} labels: nodes are counted from 0."
            )
        return np.asarray(labels[regions])
    if labels.ndim == 1 and shape is not None:
        if len(labels) != shape[0] * shape[1]:
            raise ValueError(
                f"{name} has {len(labels)} labels, but shape={tuple(shape)} has "
                f"{shape[0] * shape[1]} pixels."
            )
        return labels.reshape(shape)
    if labels.ndim != 2 or labels.size == 0:
        raise ValueError(
            f"{name} has shape {labels.shape}: give labels of shape (rows, columns), or one for "
            "each node with regions=… or shape=…."
        )
    return labels


def _image(values: Any, size: tuple[int, ...]) -> Array:
    """Colours from 0 to 1."""
    image = np.asarray(values)
    whole = image.dtype.kind in "iu"
    image = image.astype(np.float64) / (255.0 if whole else 1.0)
    if image.ndim == 2:
        image = np.repeat(image[:, :, None], 3, axis=2)
    if image.shape != (*size, 3):
        raise ValueError(
            f"image has shape {image.shape}, but the labels have shape {size}: it must be "
            f"{size} or {(*size, 3)}."
        )
    return np.clip(image, 0.0, 1.0)


def _classes(maps: dict[str, Array], classes: Sequence[Any] | None, void: Any) -> list[Any]:
    seen = set().union(*(labels.ravel().tolist() for labels in maps.values())) - {void}
    if classes is None:
        try:
            return sorted(seen)
        except TypeError:  # of several types
            return sorted(seen, key=str)
    known = list(np.asarray(classes).tolist())
    missing = seen - set(known)
    if missing:
        raise ValueError(f"the label {sorted(missing, key=str)[0]!r} is not among classes: add it.")
    return known


def _numbers(labels: Array, known: list[Any], void: Any) -> Array:
    """Places in the list of colours; void has the last."""
    place = {label: k for k, label in enumerate(known)} | {void: len(known)}
    values, inverse = np.unique(labels, return_inverse=True)
    return np.array([place[v] for v in values.tolist()])[inverse].reshape(labels.shape)


def _share(maps: dict[str, Array], void: Any) -> str:
    truth = maps["truth"]
    known = np.ones(truth.shape, dtype=bool) if void is None else truth != void
    if not known.any():
        return "nothing known"
    return f"{100.0 * float((truth == maps['predicted'])[known].mean()):.1f} % of pixels right"


def _bare(axes: Axes) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)


def _legend(figure: Figure, known: list[Any], colours: Array) -> None:
    from matplotlib.patches import Patch

    patches = [
        Patch(color=tuple(colour), label=_short(label))
        for label, colour in zip(known, colours, strict=False)
    ]
    figure.legend(
        handles=patches,
        loc="outside lower left",
        ncols=min(len(patches), 7) or 1,
        frameon=False,
        fontsize=8,
    )


def _short(name: Any) -> str:
    text = " ".join(str(name).split())
    # A dollar would begin mathematics, which stray input need not be.
    return (text if len(text) <= 24 else text[:23] + "…").replace("$", r"\$")
