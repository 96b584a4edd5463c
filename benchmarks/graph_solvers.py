"""Which solver is best for graphs at equal time: ``sdm``, ``bcfw``, ``soft-bcfw``, and ``auto``.

One command: ``python benchmarks/graph_solvers.py --seconds 10``. Every solver trains on every
problem, one thread, kernels compiled, until its CPU time is spent or its gap is 1 %; the time is
looked at after each pass. Label sets have all pairs; emotions' features are standardised. Beside
the published sets there are generated grids, for which no choice was made by hand.
Score: right nodes (pixels of MSRC-21 and horses) or micro F1 of label sets, of the test part, in %.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from defaults import make_grids
from graph_tasks import pixel_accuracy, snake_part, superpixel_features, superpixel_part
from harness import argument_parser, console, entry_point, print_table, write_results
from hingeline import GraphSSVM, MultilabelSSVM
from hingeline.evaluation.metrics import multilabel_scores
from published import load_msrc21, load_multilabel, load_snakes, load_weizmann_horses

SOLVERS = ("sdm", "bcfw", "soft-bcfw")
LABEL_SETS = ("scene", "yeast", "emotions", "medical", "bibtex")
#: Generated grids: training graphs, side, labels.
GRIDS = {"grids 6x6x3": (100, 6, 3), "grids 12x12x2": (50, 12, 2), "grids 8x8x8": (50, 8, 8)}
TOL = 0.01


class Task(NamedTuple):
    """A problem: the estimator without its solver, training data, and the score of a model."""

    model: Any
    X: Any
    y: Any
    score: Callable[[Any], float]


def superpixels(data: Any, void: int | None) -> Task:
    """Images of MSRC-21 or horses."""
    features = superpixel_features(data)
    train, test = (superpixel_part(data, features, split) for split in (0, 2))

    def score(model: Any) -> float:
        labels = [found.astype(int) for found in model.predict(test.X)]
        return 100.0 * pixel_accuracy(data, 2, labels)

    return Task(GraphSSVM(1.0, void_label=void), *train, score)


def label_set(name: str) -> Task:
    """All pairs of labels."""
    data = load_multilabel(name)
    X, X_test = data.X_train, data.X_test
    if name == "emotions":
        mean, spread = X.mean(axis=0), X.std(axis=0)
        X, X_test = (X - mean) / spread, (X_test - mean) / spread

    def score(model: Any) -> float:
        return 100.0 * multilabel_scores(data.Y_test, model.predict(X_test)).micro_f1

    return Task(MultilabelSSVM(0.1), X, data.Y_train, score)


def make_task(name: str) -> Task:
    """A problem by its name."""
    if name == "MSRC-21":
        return superpixels(load_msrc21(), -1)
    if name == "horses":
        return superpixels(load_weizmann_horses(), None)
    if name in LABEL_SETS:
        return label_set(name)
    if name == "snakes":
        train, test = (snake_part(part, ends=True) for part in load_snakes())
    else:
        n, size, labels = GRIDS[name]
        train, test = make_grids(n, n, size, labels), make_grids(999, 50, size, labels)
    return Task(GraphSSVM(0.1), *train, lambda model: 100.0 * model.score(*test))


def run(task: Task, solver: str, seconds: float) -> dict[str, Any]:
    """Train for so much CPU time, and judge."""
    model = task.model.set_params(solver=solver, tol=TOL, max_iter=10**6, n_jobs=1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.set_params(callbacks=lambda state: True).fit(task.X[:12], task.y[:12])
        began = time.process_time()
        model.set_params(callbacks=lambda state: time.process_time() - began >= seconds)
        model.fit(task.X, task.y)
    spent = time.process_time() - began
    gap = 100.0 * model.duality_gap_ / model.primal_objective_
    relaxed = hasattr(model, "relaxed_objective_")
    return {"solver": solver, "cpu": spent, "gap %": gap, "relaxed": relaxed} | {
        "passes": model.n_iter_,
        "score": task.score(model),
    }


def main() -> None:
    """Run all problems, or those asked for."""
    parser = argument_parser(__doc__)
    names = ("MSRC-21", "horses", "snakes", *LABEL_SETS, *GRIDS)
    parser.add_argument("--seconds", type=float, default=10.0, help="CPU seconds of a fit")
    parser.add_argument("--only", nargs="*", default=names, choices=names, help="some problems")
    options = parser.parse_args()
    seconds = min(options.seconds, 1.0) if options.quick else options.seconds
    rows: list[dict[str, Any]] = []
    for name in options.only:
        task = make_task(name)
        chosen = auto_choice(task)
        for solver in SOLVERS:
            row = {"problem": name, "seconds": seconds, "auto": chosen} | run(task, solver, seconds)
            rows.append(row)
            console.print(row)
        write_results(f"graph_solvers_{options.seconds:g}s", rows, quick=options.quick)
    shown = [
        [r["problem"], r["solver"], *(f"{r[k]:.4g}" for k in ("cpu", "gap %", "score"))]
        for r in rows
    ]
    for cells, row in zip(shown, rows, strict=True):
        cells.append("auto" if row["solver"] == row["auto"] else "")
    print_table("equal CPU time", ["problem", "solver", "CPU s", "gap %", "score", ""], shown)


def auto_choice(task: Task) -> str:
    """The solver that ``"auto"`` takes for a problem."""
    found: list[Any] = []
    model = task.model.set_params(solver="auto", callbacks=None)
    model._fit_graphs = lambda problem, weights: found.append(problem)
    try:
        model.fit(task.X, task.y)
    finally:
        del model._fit_graphs
    return str(model._solver_class(model._compile(found[0])).name)


if __name__ == "__main__":
    entry_point(main)
