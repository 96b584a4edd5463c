"""Defaults of graphs and label sets: do edges count, what do single labels cost, do scales hurt?

One command: ``python benchmarks/defaults.py``. Grids and label sets are generated; *emotions*, with
its features as they come, is read where ``HINGELINE_DATA`` has it.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.svm import LinearSVC

from datasets import BenchmarkError
from harness import argument_parser, console, entry_point, write_results
from hingeline import Graph, GraphSSVM, MultilabelSSVM
from published import load_multilabel

Row = dict[str, Any]


def make_grids(seed: int, n: int, size: int = 6, labels: int = 3) -> tuple[list[Graph], list[Any]]:
    """Labels that like to be those of their neighbours (Gibbs samples), and noisy features."""
    rng = np.random.default_rng(seed)
    cells = np.arange(size * size).reshape(size, size)
    across = np.column_stack([cells[:, :-1].ravel(), cells[:, 1:].ravel()])
    edges = np.vstack([across, np.column_stack([cells[:-1].ravel(), cells[1:].ravel()])])
    near = [[*edges[edges[:, 0] == v, 1], *edges[edges[:, 1] == v, 0]] for v in range(size * size)]
    truth = rng.integers(0, labels, (n, size * size))
    for _ in range(15):
        for v, others in enumerate(near):
            liking = 1.1 * (truth[:, others, None] == np.arange(labels)).sum(axis=1)
            truth[:, v] = (liking + rng.gumbel(size=liking.shape)).argmax(axis=1)
    seen = np.eye(labels)[truth] + rng.normal(size=(n, size * size, labels))
    return [Graph(x, edges) for x in seen], list(truth)


def timed_fit(model: Any, X: Any, y: Any) -> float:
    """CPU seconds of a fit."""
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    return time.process_time() - started


def run_grids(sizes: tuple[int, ...]) -> list[Row]:
    """Right nodes without edges, as the paper prints ρ, by default and with ``sdm``."""
    test, truth = make_grids(999, 100)
    rows: list[Row] = []
    for n in sizes:
        X, y = make_grids(n, n)
        ways: dict[str, Any] = {
            "no edges": GraphSSVM(C=0.1, random_state=0),
            "rho = 1 as printed": GraphSSVM(
                C=0.1,
                random_state=0,
                solver="soft-bcfw",
                solver_options={"rho": 1.0, "rho_scale": "printed"},
            ),
            "default": GraphSSVM(C=0.1, random_state=0),
            "sdm": GraphSSVM(C=0.1, random_state=0, solver="sdm", inference="lp"),
        }
        for name, model in ways.items():
            bare = name == "no edges"
            seen = [Graph(x.node_features) for x in X] if bare else X
            asked = [Graph(x.node_features) for x in test] if bare else test
            seconds = timed_fit(model, seen, y)
            right = 100.0 * model.score(asked, truth)
            rows.append({"part": "grids", "n": n, "way": name, "right %": right, "cpu": seconds})
            console.print(f"grids {n:4}  {name:20s} {right:.1f} % right  {seconds:.2f} s of CPU")
    return rows


def run_label_sets(quick: bool) -> list[Row]:
    """Labels by themselves, together, and by LinearSVC, to a gap of 1 %."""
    rng = np.random.default_rng(0)
    n, d, k = (600, 100, 20) if quick else (4500, 499, 120)
    X = sp.random(n, d, density=0.02, random_state=0, format="csr")
    X.data[:] = 1.0
    scores = X @ rng.normal(size=(d, k)) + rng.normal(size=(n, k))
    Y = (scores > np.quantile(scores, 0.95, axis=0)).astype(int)
    timed_fit(MultilabelSSVM(edges="none"), X[:100], Y[:100])
    timed_fit(MultilabelSSVM(edges="none", solver="sdm"), X[:100], Y[:100])
    rows: list[Row] = []
    for C in (0.1, 1.0, 10.0):
        model = MultilabelSSVM(C=C, edges="none", random_state=0)
        row: Row = {"part": "label sets", "n": n, "d": d, "labels": k, "C": C}
        row["by label"] = timed_fit(model, X, Y)
        row["primal"], row["gap"] = model.primal_objective_, model.duality_gap_
        if C < 10.0:
            together = MultilabelSSVM(C=C, edges="none", solver="sdm", random_state=0)
            row["together"] = timed_fit(together, X, Y)
        started, primal = time.process_time(), 0.0
        for column in Y.T:
            # ¼‖v‖² + C·hinges is half of LinearSVC's problem at 2C.
            single = LinearSVC(loss="hinge", C=2.0 * C, random_state=0).fit(X, column)
            v = np.append(single.coef_[0], single.intercept_)
            hinges = np.maximum(1.0 - (2 * column - 1) * single.decision_function(X), 0.0)
            primal += 0.25 * v @ v + C * hinges.sum()
        row["LinearSVC"], row["LinearSVC primal"] = time.process_time() - started, primal
        rows.append(row)
        console.print(row)
    return rows


def run_emotions() -> list[Row]:
    """All pairs of six labels, features as they come."""
    try:
        X, Y = load_multilabel("emotions")[:2]
    except (BenchmarkError, ValueError, OSError) as error:
        console.print(f"emotions left out: {error}")
        return []
    timed_fit(MultilabelSSVM(C=0.01, tol=1e-3), X, Y)
    rows = []
    for C in (0.01, 0.1, 1.0):
        model = MultilabelSSVM(C=C, random_state=0)
        seconds = timed_fit(model, X, Y)
        gap = model.duality_gap_ / model.primal_objective_
        rows.append({"part": "emotions", "C": C, "cpu": seconds, "gap": gap})
        console.print(f"emotions as it comes, C {C}: {seconds:.1f} s of CPU, gap {100 * gap:.2f} %")
    return rows


def main() -> None:
    """Run the three parts."""
    options = argument_parser(__doc__).parse_args()
    rows = run_emotions() + run_label_sets(options.quick)
    rows += run_grids((20,) if options.quick else (20, 100, 400))
    write_results("defaults", rows, quick=options.quick)


if __name__ == "__main__":
    entry_point(main)
