"""Which solver is best for graphs at equal time: ``sdm``, ``bcfw``, ``soft-bcfw``, and ``auto``.

One command: ``python benchmarks/graph_solvers.py --seconds 10``. Every solver trains on every
problem, one thread, kernels compiled, until its CPU time is spent or its gap is 1 %; the time is
looked at after each pass, and a first pass that takes three times as long is given up.
Label sets have all pairs; emotions' features are standardised. Beside the published sets there are
generated grids and label sets. Score: right nodes (pixels of MSRC-21 and horses) or micro F1 of
label sets, of the test part (of bibtex 300 examples of it), in %.
"""

from __future__ import annotations

import signal
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from defaults import make_grids
from graph_tasks import pixel_accuracy, snake_part, superpixel_features, superpixel_part
from harness import argument_parser, console, entry_point, kept_rows, print_table, write_results
from hingeline import GraphSSVM, MultilabelSSVM
from hingeline.evaluation.metrics import multilabel_scores
from published import load_msrc21, load_multilabel, load_snakes, load_weizmann_horses

SOLVERS = ("sdm", "bcfw", "soft-bcfw")
LABEL_SETS = ("scene", "yeast", "emotions", "medical", "bibtex")
#: Generated grids: training graphs, side, labels.
GRIDS = {"grids 6x6x3": (100, 6, 3), "grids 12x12x2": (50, 12, 2)}
GRIDS |= {"grids 8x8x5": (50, 8, 5), "grids 8x8x8": (50, 8, 8)}
#: Generated label sets: training examples, features, labels.
LABELS = {"labels 10": (500, 40, 10), "labels 20": (500, 40, 20), "labels 40": (500, 40, 40)}
NAMES = ("MSRC-21", "horses", "snakes", *LABEL_SETS, *GRIDS, *LABELS)
TOL = 0.01
MOST_JUDGED = 300  # test examples of bibtex


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


def make_labels(n: int, features: int, labels: int) -> tuple[Any, Any]:
    """Labels by linear rules of the features and of hidden topics that they share, and noise."""
    rng = np.random.default_rng(labels)
    X = rng.normal(size=(n, features)) / np.sqrt(features)
    topics = X @ rng.normal(size=(features, 3)) + rng.normal(size=(n, 3))
    own = X @ rng.normal(size=(features, labels)) + rng.normal(size=(n, labels))
    return X, (own + 1.5 * topics @ rng.normal(size=(3, labels)) > 1.5).astype(int)


def label_set(name: str) -> Task:
    """All pairs of labels."""
    if name in LABELS:
        n, *sizes = LABELS[name]
        X, Y = make_labels(2 * n, *sizes)
        X, Y, X_test, Y_test = X[:n], Y[:n], X[n:], Y[n:]
    else:
        data = load_multilabel(name)
        X, Y, X_test, Y_test = data.X_train, data.Y_train, data.X_test, data.Y_test
    if name == "emotions":
        mean, spread = X.mean(axis=0), X.std(axis=0)
        X, X_test = (X - mean) / spread, (X_test - mean) / spread
    if name == "bibtex":
        X_test, Y_test = X_test[:MOST_JUDGED], Y_test[:MOST_JUDGED]

    def score(model: Any) -> float:
        return 100.0 * multilabel_scores(Y_test, model.predict(X_test)).micro_f1

    return Task(MultilabelSSVM(0.1, edges="full"), X, Y, score)


def make_task(name: str) -> Task:
    """A problem by its name."""
    if name == "MSRC-21":
        return superpixels(load_msrc21(), -1)
    if name == "horses":
        return superpixels(load_weizmann_horses(), None)
    if name in (*LABEL_SETS, *LABELS):
        return label_set(name)
    train: Any
    test: Any
    if name == "snakes":
        train, test = (snake_part(part, ends=True) for part in load_snakes())
    else:
        n, size, labels = GRIDS[name]
        train, test = make_grids(n, n, size, labels), make_grids(999, 50, size, labels)
    return Task(GraphSSVM(0.1), train[0], train[1], lambda model: 100.0 * model.score(*test))


def run(task: Task, solver: str, seconds: float) -> dict[str, Any]:
    """Train for so much CPU time, and judge."""
    model = task.model.set_params(solver=solver, tol=TOL, max_iter=10**6, n_jobs=1, random_state=0)
    row: dict[str, Any] = {"solver": solver}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.set_params(callbacks=lambda state: True).fit(task.X[:12], task.y[:12])
        began = time.process_time()
        passes = []

        def enough(state: Any) -> bool:
            passes.append(time.process_time() - began)
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            return passes[-1] >= seconds

        signal.signal(signal.SIGPROF, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_PROF, 3.0 * seconds)
        try:
            model.set_params(callbacks=enough).fit(task.X, task.y)
        except KeyboardInterrupt:
            return row | {"cpu": time.process_time() - began, "passes": 0}
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
    row |= {"cpu": time.process_time() - began, "passes": model.n_iter_, "first pass": passes[0]}
    row["gap %"] = 100.0 * model.duality_gap_ / model.primal_objective_
    return row | {"relaxed": hasattr(model, "relaxed_objective_"), "score": task.score(model)}


def main() -> None:
    """Run all problems, or those asked for."""
    parser = argument_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="CPU seconds of a fit")
    parser.add_argument("--only", nargs="*", choices=NAMES, help="problems; others are kept")
    parser.add_argument(
        "--solvers", nargs="*", choices=SOLVERS, help="none: only what auto chooses"
    )
    options = parser.parse_args()
    seconds = min(options.seconds, 1.0) if options.quick else options.seconds
    kept = kept_rows("graph_solvers", quick=options.quick) if options.only else []
    rows = {(row["problem"], row["solver"]): row for row in kept}
    for name in options.only or NAMES:
        task = make_task(name)
        for solver in SOLVERS if options.solvers is None else options.solvers:
            row = {"problem": name, "seconds": seconds} | run(task, solver, seconds)
            rows[name, solver] = row
            console.print(row)
        chosen = auto_choice(task)
        for row in rows.values():
            row["auto"] = chosen if row["problem"] == name else row["auto"]
        write_results("graph_solvers", list(rows.values()), quick=options.quick)
    shown = [
        [
            row["problem"],
            row["solver"],
            f"{row['cpu']:.3g}",
            *(f"{row[key]:.4g}" if key in row else "no pass" for key in ("gap %", "score")),
            "auto" if row["solver"] == row["auto"] else "",
        ]
        for row in rows.values()
    ]
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
