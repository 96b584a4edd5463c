"""Noisy images labelled pixel by pixel: a graph of neighbours against every pixel on its own.

Run: python examples/segmentation.py [--picture FILE.png]
"""

import argparse
import time

import numpy as np

from hingeline import Graph, GraphSSVM

ROWS, COLUMNS, NOISE = 12, 14, 0.6
SKY, GRASS, HOUSE = 0, 1, 2
COLOURS = np.array([[0.3, 0.5, 0.9], [0.3, 0.7, 0.3], [0.8, 0.4, 0.3]])
NAMES = ["sky", "grass", "house"]


def make_images(n: int, rng: np.random.Generator) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Sky above grass with a house on the horizon, in colours with much noise."""
    images, labels = [], []
    for _ in range(n):
        horizon = rng.integers(4, 8)
        y = np.where(np.arange(ROWS)[:, None] < horizon, SKY, GRASS) * np.ones((1, COLUMNS), int)
        left, wide, high = rng.integers(1, 8), rng.integers(3, 6), rng.integers(2, 4)
        y[horizon - high : horizon + 2, left : left + wide] = HOUSE
        images.append(COLOURS[y] + NOISE * rng.normal(size=(ROWS, COLUMNS, 3)))
        labels.append(y)
    return images, labels


def to_graph(image: np.ndarray, edges: bool = True) -> Graph:
    """Pixels as nodes, joined to the right (type 0) and downwards (type 1)."""
    colours = image.reshape(-1, 3)
    if not edges:
        return Graph(colours)
    number = np.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS)
    right = np.column_stack([number[:, :-1].ravel(), number[:, 1:].ravel()])
    down = np.column_stack([number[:-1].ravel(), number[1:].ravel()])
    kinds = np.repeat([0, 1], [len(right), len(down)])
    return Graph(colours, np.concatenate([right, down]), edge_types=kinds)


def main() -> None:
    """Train with and without edges, and say what is known of the predictions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--picture", help="write a test image with its labels (.png or .svg)")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    images, labels = make_images(40, rng)
    y = [own.ravel() for own in labels]
    for edges in (False, True):
        X = [to_graph(image, edges) for image in images]
        began = time.perf_counter()
        model = GraphSSVM(C=0.1, random_state=0).fit(X[:20], y[:20])
        seconds = time.perf_counter() - began
        accuracy = model.score(X[20:], y[20:])
        print(
            f"{'with edges' if edges else 'no edges':10s}  pixels right {accuracy:.4f}, gap "
            f"{100 * model.duality_gap_ / model.primal_objective_:.2f} % in {seconds:.1f} s"
        )
    print("weights of pairs, upper label by lower label:")
    for name, row in zip(NAMES, model.pairwise_coef_[1], strict=True):
        print(f"  {name:6s}" + "".join(f"{value:8.2f}" for value in row))
    found = model.certify(X[20:])
    print(f"best labelling proven for {int(found.exact.sum())} of {len(found.exact)} test images")
    if options.picture:
        from hingeline.report import plot_segmentation

        plot_segmentation(
            np.array(NAMES)[found.labels[0]],
            np.array(NAMES)[y[20]],
            image=images[20],
            shape=(ROWS, COLUMNS),
            classes=NAMES,
            path=options.picture,
        )
        print(f"picture: {options.picture}")


if __name__ == "__main__":
    main()
