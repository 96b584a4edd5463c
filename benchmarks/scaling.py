"""How training time grows with the number of examples, to a fixed certified gap.

One command: ``python benchmarks/scaling.py``. Fits growing prefixes (each twice the last) of
CoNLL-2000, MNIST and news20 with both solvers, fits the exponent of ``time ~ n^k`` on the log-log
plot, and writes the curves to ``results/scaling.json`` and ``results/scaling.png``.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from datasets import (
    FlatData,
    conll2000_task,
    mnist,
    news20_split,
    news20_tfidf,
    with_constant_column,
)
from harness import (
    Timing,
    argument_parser,
    console,
    entry_point,
    print_table,
    result_path,
    write_results,
)
from ours import (
    WARM_UP_NOTE,
    Params,
    TimeLimit,
    certificate,
    encode_task,
    fit_chain,
    fit_multiclass,
    flat_prefix,
    warm_up_chain,
    warm_up_multiclass,
)

SOLVERS = ("sdm", "fsmo")
LARGE_POINTS = 4
QUICK_EXAMPLES = 400


class Problem(NamedTuple):
    """A training set whose prefixes can be fitted.

    ``fit(n, params)`` fits the first n examples; ``cost(n)`` is the C for n examples;
    ``warm_up(params)`` compiles.
    """

    name: str
    size: int
    fit: Callable[[int, Params], tuple[Any, Timing]]
    warm_up: Callable[[Params], None]
    cost: Callable[[int], float]


@dataclass(frozen=True)
class Point:
    """One fit: examples, seconds, certified gap in percent, passes, why it stopped.

    ``reached`` is False where a ceiling (time or passes) ended the fit, not its own rule.
    """

    n: int
    wall: float
    cpu: float
    gap_percent: float
    passes: float
    stop_reason: str
    reached: bool


@dataclass(frozen=True)
class Curve:
    """Training time against n for one solver.

    ``exponent`` is fitted over all points that reached the gap, ``exponent_large`` over the
    largest ones, where fixed costs no longer flatten the curve.
    """

    dataset: str
    solver: str
    points: list[Point]
    exponent: float
    exponent_large: float


def chain_problem(limit: int | None, cost: Callable[[int], float]) -> Problem:
    """Return CoNLL-2000 as a scaling problem."""
    task = encode_task(conll2000_task(limit))
    return Problem(
        "CoNLL-2000",
        len(task.lengths),
        lambda n, params: fit_chain(task.prefix(n), params),
        lambda params: warm_up_chain(task, params),
        cost,
    )


def flat_problem(name: str, data: FlatData, limit: int | None, cost: Callable) -> Problem:
    """Return a multi-class data set, with a constant column, as a scaling problem."""
    data = with_constant_column(data)
    return Problem(
        name,
        min(data.train.shape[0], limit or data.train.shape[0]),
        lambda n, params: fit_multiclass(flat_prefix(data, n), params),
        lambda params: warm_up_multiclass(data, params),
        cost,
    )


PROBLEMS: dict[str, Callable[[int | None], Problem]] = {
    "conll": lambda limit: chain_problem(limit, lambda n: 0.1),
    "mnist": lambda limit: flat_problem("MNIST", mnist(), limit, lambda n: 0.1),
    "news20": lambda limit: flat_problem("news20 tf-idf", news20_tfidf(), limit, lambda n: 1.0),
}
# The settings of the FSMO paper, whose C is divided by n.
PAPER_PROBLEMS: dict[str, Callable[[int | None], Problem]] = {
    "conll": lambda limit: chain_problem(limit, lambda n: 1000 / n),
    "mnist": lambda limit: flat_problem("MNIST", mnist(), limit, lambda n: 2000 / n),
    "news20": lambda limit: flat_problem("news20", news20_split(), limit, lambda n: 100 / n),
}


def doubling_sizes(size: int, count: int) -> list[int]:
    """Return at most `count` sizes that end at `size`, each half of the next."""
    sizes = [size // 2**k for k in range(count)]
    return [n for n in reversed(sizes) if n >= 1]


def log_log_slope(points: Sequence[Point]) -> float:
    """Return the least-squares exponent of time in n; nan from fewer than two points."""
    if len(points) < 2:
        return float("nan")
    n, seconds = ([getattr(point, name) for point in points] for name in ("n", "wall"))
    return float(np.polyfit(np.log(n), np.log(seconds), 1)[0])


def _fit_point(problem: Problem, n: int, params: Params, time_limit: float) -> Point:
    limit = TimeLimit(time_limit)
    limited = {**params, "C": problem.cost(n), "callbacks": [limit]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator, timing = problem.fit(n, limited)
    proved = certificate(estimator)
    return Point(
        n,
        timing.wall,
        timing.cpu,
        proved["gap %"],
        proved["passes"],
        str(estimator.stop_reason_),
        bool(estimator.converged_) or not (limit.hit or estimator.n_iter_ >= estimator.max_iter),
    )


def measure_curve(
    problem: Problem, solver: str, params: Params, sizes: Sequence[int], time_limit: float
) -> Curve:
    """Fit growing prefixes until all are done or one passes the time limit."""
    params = {"solver": solver, **params}
    problem.warm_up({**params, "C": problem.cost(sizes[0])})
    points: list[Point] = []
    for n in sizes:
        point = _fit_point(problem, n, params, time_limit)
        points.append(point)
        console.print(
            f"  {problem.name} {solver} n={n}: {point.wall:.3f} s, gap {point.gap_percent:.3g} %, "
            f"{point.stop_reason}",
            style="dim",
        )
        if not point.reached:
            console.print("  not reached within the limits: larger n left out", style="dim")
            break
    good = [point for point in points if point.reached]
    return Curve(
        problem.name, solver, points, log_log_slope(good), log_log_slope(good[-LARGE_POINTS:])
    )


def plot_curves(curves: Sequence[Curve], title: str, path: Path) -> None:
    """Draw the curves on log-log axes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6.0, 4.5), layout="constrained")
    for curve in curves:
        label = f"{curve.dataset}, {curve.solver}: n^{curve.exponent_large:.2f}"
        seconds = [point.wall for point in curve.points]
        axes.loglog([point.n for point in curve.points], seconds, marker="o", label=label)
    axes.set_xlabel("training examples")
    axes.set_ylabel("training time, seconds")
    axes.set_title(title)
    axes.grid(True, which="both", alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=120)
    plt.close(figure)
    console.print(f"written: {path.parent.name}/{path.name}")


def print_curves(title: str, curves: Sequence[Curve]) -> None:
    """Print the exponents and the largest fit of every curve."""
    rows = [
        [
            f"{curve.dataset}, {curve.solver}",
            str(len(curve.points)),
            str(curve.points[-1].n),
            f"{curve.points[-1].wall:.2f}" + ("" if curve.points[-1].reached else " (stopped)"),
            f"{curve.exponent:.2f}",
            f"{curve.exponent_large:.2f}",
        ]
        for curve in curves
    ]
    large = f"exponent, last {LARGE_POINTS}"
    print_table(title, ("curve", "points", "largest n", "seconds", "exponent", large), rows)


def add_scaling_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of a scaling run."""
    parser.add_argument("--points", type=int, default=7, help="number of prefixes")
    parser.add_argument(
        "--time-limit", type=float, default=300.0, help="seconds after which a fit is stopped"
    )


def main() -> None:
    """Measure the curves asked for."""
    parser = argument_parser(__doc__)
    add_scaling_arguments(parser)
    parser.add_argument("--dataset", choices=[*PROBLEMS, "all"], default="all")
    parser.add_argument("--solver", choices=[*SOLVERS, "all"], default="all")
    parser.add_argument("--gap", type=float, default=0.05, help="relative gap to train to")
    options = parser.parse_args()
    console.print(WARM_UP_NOTE, "Each point is one fit; --repeat is not used here.")
    params = {"tol": options.gap, "n_jobs": options.n_jobs}
    solvers = SOLVERS if options.solver == "all" else (options.solver,)
    curves = []
    for name in PROBLEMS if options.dataset == "all" else [options.dataset]:
        problem = PROBLEMS[name](QUICK_EXAMPLES if options.quick else None)
        sizes = doubling_sizes(problem.size, 3 if options.quick else options.points)
        for solver in solvers:
            curves.append(measure_curve(problem, solver, params, sizes, options.time_limit))
    title = f"Training time to a certified gap of {100 * options.gap:g} %"
    print_curves(title, curves)
    parts = [options.dataset] * (options.dataset != "all")
    parts += [options.solver] * (options.solver != "all")
    name = "-".join(["scaling", *parts])
    plot_curves(curves, title, result_path(name, options.quick, ".png"))
    write_results(name, [asdict(curve) for curve in curves], quick=options.quick)


if __name__ == "__main__":
    entry_point(main)
