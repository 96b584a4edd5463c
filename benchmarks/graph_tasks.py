"""Graphs of the benchmarks: superpixels with what separates them, and grids of coloured pixels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hingeline import Graph
from published import GridImages, Superpixels

Array = np.ndarray[Any, Any]

#: Columns of the features of superpixels.
LAB, HEIGHT = [0, 2, 4], 53
HISTOGRAMS = (slice(9, 33), slice(33, 43))
#: What edges of superpixels say: 1, and the length of the boundary times how alike the colours are.
EDGE_FEATURES = ("constant", "boundary x alike")
#: Codes of the colours of snakes, red + 2 green + 4 blue; the fourth is background.
COLOURS, BACKGROUND = (1, 2, 3, 4, 6), 3


class GraphPart(NamedTuple):
    """Graphs and the labels of their nodes."""

    X: list[Graph]
    y: list[Array]

    def bare(self) -> GraphPart:
        """Return the same nodes without any edges."""
        return GraphPart(
            [Graph(x.node_features, node_weights=x.node_weights) for x in self.X], self.y
        )


# --- superpixels -----------------------------------------------------------------------------


def superpixel_features(data: Superpixels) -> Array:
    """Return the features, histograms as roots, every column standardised by the training part."""
    X = data.features.astype(np.float64)
    textons = slice(57, X.shape[1])
    for columns in (*HISTOGRAMS, textons):
        X[:, columns] = np.sqrt(np.maximum(X[:, columns], 0.0))
    train = np.concatenate([_nodes(data, i) for i in data.images(0)])
    mean, spread = X[train].mean(axis=0), X[train].std(axis=0)
    X = (X - mean) / np.where(spread > 0.0, spread, 1.0)
    return X / np.sqrt(X.shape[1])  # rows of length about 1


def _nodes(data: Superpixels, image: int) -> Array:
    return np.arange(data.node_ptr[image], data.node_ptr[image + 1])


def superpixel_part(data: Superpixels, features: Array, split: int) -> GraphPart:
    """Return the graphs of a part; nodes weigh their known pixels, over those of the image.

    Edges lead from the upper superpixel to the lower one.
    """
    X, y = [], []
    for image in data.images(split):
        own = _nodes(data, image)
        edges = data.edges[data.edge_ptr[image] : data.edge_ptr[image + 1]].astype(np.int64)
        boundary = data.edge_boundary[data.edge_ptr[image] : data.edge_ptr[image + 1]]
        raw = data.features[own].astype(np.float64)
        edges, features_of_edges = _edges(raw, edges, boundary.astype(np.float64))
        known = data.pixel_counts[own, :-1].sum(axis=1).astype(np.float64)
        X.append(Graph(features[own], edges, features_of_edges, len(own) * known / known.sum()))
        y.append(data.labels[own].astype(np.int64))
    return GraphPart(X, y)


def _edges(raw: Array, edges: Array, boundary: Array) -> tuple[Array, Array]:
    """Return the edges, upper end first, and the columns that `EDGE_FEATURES` names."""
    height = raw[:, HEIGHT]
    upwards = height[edges[:, 1]] < height[edges[:, 0]]
    edges = np.where(upwards[:, None], edges[:, ::-1], edges)
    colour = raw[:, LAB]
    apart = ((colour[edges[:, 0]] - colour[edges[:, 1]]) ** 2).sum(axis=1)
    alike = np.exp(-apart / (2.0 * max(apart.mean(), 1e-12)))
    return edges, np.column_stack([np.ones(len(edges)), boundary / boundary.mean() * alike])


def cross_fitted(
    parts: list[GraphPart], fit: Callable[[GraphPart], Any], folds: int = 5
) -> list[GraphPart]:
    """Return the parts with the scores of a model without edges as features of their nodes.

    Images of the training part are scored by models that have not seen them, so that scores are as
    good on all parts; those of the others by the model of the whole training part.
    """
    bare = [part.bare() for part in parts]
    n = len(parts[0].X)
    scores: list[list[Any]] = [[None] * n]
    for held in np.array_split(np.random.default_rng(0).permutation(n), folds):
        rest = np.setdiff1d(np.arange(n), held)
        model = fit(GraphPart([bare[0].X[i] for i in rest], [bare[0].y[i] for i in rest]))
        for i in held:
            scores[0][i] = _scores(model, bare[0].X[i])
    model = fit(bare[0])
    scores += [[_scores(model, x) for x in part.X] for part in bare[1:]]
    every = np.vstack(scores[0])
    scale = 2.0 / (every.std() * np.sqrt(every.shape[1]))  # rows of length about 2
    return [
        GraphPart(
            [
                Graph(scale * s, x.edges, x.edge_features, x.node_weights)
                for x, s in zip(part.X, own, strict=True)
            ],
            part.y,
        )
        for part, own in zip(parts, scores, strict=True)
    ]


def _scores(model: Any, graph: Graph) -> Array:
    return np.asarray(graph.node_features @ model.unary_coef_.T + model.intercept_)


def pixel_accuracy(data: Superpixels, split: int, labels: list[Array]) -> float:
    """Return the share of the known pixels of a part that lie in superpixels labelled rightly."""
    own = np.concatenate([_nodes(data, i) for i in data.images(split)])
    counts = data.pixel_counts[own, :-1].astype(np.int64)
    found = counts[np.arange(len(own)), np.concatenate(labels)]
    return float(found.sum() / counts.sum())


# --- grids -----------------------------------------------------------------------------------


def grid_edges(rows: int, columns: int) -> tuple[Array, Array]:
    """Return the pairs (left, right) and (upper, lower) of a grid numbered row by row."""
    number = np.arange(rows * columns).reshape(rows, columns)
    across = np.column_stack([number[:, :-1].ravel(), number[:, 1:].ravel()])
    down = np.column_stack([number[:-1].ravel(), number[1:].ravel()])
    return across, down


def window_colours(pixels: Array) -> Array:
    """Return one-hot colours of the 3 x 3 pixels around each; outside there is background."""
    codes = (pixels > 127).astype(np.int64) @ (1, 2, 4)
    rows, columns = codes.shape
    padded = np.pad(codes, 1, constant_values=COLOURS[BACKGROUND])
    views = [padded[a : a + rows, b : b + columns] for a in range(3) for b in range(3)]
    return (
        (np.stack(views)[..., None] == COLOURS)
        .astype(float)
        .transpose(1, 2, 0, 3)
        .reshape(rows * columns, -1)
    )


def snake_part(images: GridImages, *, ends: bool) -> GraphPart:
    """Return grids whose edges say their direction and, with ``ends``, what both ends show."""
    X, y = [], []
    for i, (rows, columns) in enumerate(images.shape.tolist()):
        own = slice(images.ptr[i], images.ptr[i + 1])
        features = window_colours(images.pixels[own].reshape(rows, columns, 3))
        across, down = grid_edges(rows, columns)
        edges = np.concatenate([across, down])
        direction = np.repeat(np.eye(2), [len(across), len(down)], axis=0)
        shown = direction
        if ends:  # both ends' features, in columns of their own for either direction
            both = np.hstack([features[edges[:, 0]], features[edges[:, 1]]])
            shown = (direction[:, :, None] * both[:, None, :]).reshape(len(edges), -1)
        X.append(Graph(features, edges, shown))
        y.append(images.labels[own].astype(np.int64))
    return GraphPart(X, y)
