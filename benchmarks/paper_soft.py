"""Figure 1 of the soft constraints paper: objective and test measure against time.

O. Meshi, N. Srebro, T. Hazan, "Efficient Training of Structured SVMs via Soft Constraints", 2015,
Section 4. One command: ``python benchmarks/paper_soft.py [--part yeast|reuters|msrc]``.

Data. Yeast as published, all pairs of its 14 labels. Reuters-21578 (ModApte, 90 topics): all
documents, the 20 most frequent topics, all pairs of these, tf-idf rows of length 1. MSRC-21:
superpixels of the training part, neighbours with the edge features of ``graph_tasks.py``. The paper
prints neither λ nor the features; C (= 1/(λM)) is 0.1, 1 and 1.

Time is the CPU time of the solver, one thread: of its passes and of setting it up, once the problem
stands in arrays (``soft-bcfw`` looks at all blocks there, ``dlpw`` tries some steps), but neither
of compiling, nor of certificates that a pass does not need, nor of evaluation. Weights are kept at
times that grow by 15 % (yeast) or a third, and evaluated afterwards: the best of all passes where a
pass finds its primal by itself (``soft-bcfw``), else what a certificate would try (averages for
``bcfw`` and both ``dlpw``, the last iterate for ``soft-bcfw`` as published). The first call of a
solver makes its passes in ``PIECES`` parts, with the examples, the order and the arithmetic of
whole ones, so that curves begin within the first pass, for all methods alike; there the weights of
``soft-bcfw`` are its last iterate. Curves end at ``--max-time``, or where the solver's own relative
gap is below 0.001.

Objective. The hard-constrained g(w, δ) with messages δ made for the weights by block descent on the
relaxation, the same for all methods, on up to ``SAMPLED`` training examples drawn once, and scaled
to all. It lies above the least g over δ by what block descent leaves.

Behind. The times of a curve's points, set-up included, at which the last point of ours (ρ = 1) is
the worse one, or there is none yet; by the objective and by the first test measure.

Plateau. The first time from which on the test measure of a curve stays within 0.5 points of the
best final value of all curves. Where a curve never does, its last time counts, and the ratio is
printed with ">": it is at least that.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from sklearn.feature_extraction.text import TfidfTransformer

from graph_tasks import pixel_accuracy, superpixel_features, superpixel_part
from harness import (
    argument_parser,
    console,
    entry_point,
    kept_rows,
    print_table,
    result_path,
    write_results,
)
from hingeline import GraphSSVM, MultilabelSSVM
from hingeline.core.formulations import find_hinges, make_formulation
from hingeline.core.primitives import Workers
from hingeline.core.results import relative
from hingeline.evaluation.metrics import multilabel_scores
from hingeline.solvers.bcfw import BCFW
from hingeline.solvers.relaxed import passes
from hingeline.solvers.relaxed.dlpw import DLPW, SmoothDLPW
from hingeline.solvers.relaxed.soft import AVERAGED_ITERATES, SoftBCFW
from hingeline.structures.graph import compile_problem
from published import load_msrc21, load_multilabel

Array = np.ndarray[Any, Any]

PARTS = ("yeast", "reuters", "msrc")
RHOS = (0.1, 1.0, 10.0)  # of an example: the paper prints a penalty M times as large
TOPICS = 20
SAMPLED = {"yeast": 300, "reuters": 300, "msrc": 40}
POINTS = 0.5  # of the plateau
NEAR = 0.01  # of the least objective
GROWTH = {"yeast": 1.15, "reuters": 4.0 / 3.0, "msrc": 4.0 / 3.0}  # of times in a curve
TOL = 1e-3
PIECES = 128  # of a pass, in the first call, at most
OURS, PUBLISHED = "soft-bcfw, rho=1", "soft-bcfw published, rho=1"
#: What the paper compares with; the target is on these.
BASELINES = ("bcfw plain, LP", "dlpw", "dlpw-smooth")
#: These too, with steps that suit the test measure; the paper does not say how steps were chosen.
TUNED = ("dlpw, steps x 10", "dlpw-smooth, steps x 10")


class Method(NamedTuple):
    """A solver with its options and the oracle it decodes with, if it does."""

    kind: Any
    options: dict[str, Any]
    inference: str = "lp"


class Task(NamedTuple):
    """A data set, the model that is trained on it, and how weights are judged."""

    name: str
    estimator: Callable[[str], Any]  # of a method of inference
    C: float
    X: Any
    y: Any
    judge: Callable[[Any], dict[str, float]]  # test measures of a model, in points; first: plateau
    exact: bool  # whether "auto" decodes exactly


def methods(task: Task) -> dict[str, Method]:
    """Return what is compared, in the order of the plots."""
    plain = {"steps": "plain", "averaging": "all", "cached_passes": 0}

    found = {f"soft-bcfw, rho={rho:g}": Method(SoftBCFW, {"rho": rho}) for rho in RHOS}
    found["soft-bcfw, default rho"] = Method(SoftBCFW, {})
    found["soft-bcfw, rho=1 as printed"] = Method(SoftBCFW, {"rho": 1.0, "rho_scale": "printed"})
    found[PUBLISHED] = Method(SoftBCFW, {"rho": 1.0, "schedule": "published"})
    found["bcfw pairwise, cache"] = Method(BCFW, {}, "auto")
    found["bcfw plain, LP"] = Method(BCFW, plain)
    if task.exact:
        found["bcfw plain, exact"] = Method(BCFW, plain, "auto")
    found["dlpw"] = Method(DLPW, {})
    found["dlpw, steps x 10"] = Method(DLPW, {"noise": 1.0})
    found["dlpw-smooth"] = Method(SmoothDLPW, {})
    found["dlpw-smooth, steps x 10"] = Method(SmoothDLPW, {"noise": 1.0})
    return found


# --- data ------------------------------------------------------------------------------------


def multilabel_task(name: str, C: float, quick: bool) -> Task:
    """Return yeast or reuters."""
    data = load_multilabel("reuters21578" if name == "reuters" else name)
    X, Y, X_test, Y_test = data.X_train, data.Y_train, data.X_test, data.Y_test
    if name == "reuters":
        often = np.sort(np.argsort(-Y.sum(axis=0, dtype=int), kind="stable")[:TOPICS])
        Y, Y_test = Y[:, often], Y_test[:, often]
        weighting = TfidfTransformer(sublinear_tf=True).fit(X)
        X, X_test = weighting.transform(X), weighting.transform(X_test)
    if quick:
        X, Y, X_test, Y_test = X[:200], Y[:200], X_test[:100], Y_test[:100]

    def judge(model: Any) -> dict[str, float]:
        found = multilabel_scores(Y_test, model.predict(X_test))
        measures = {
            "Hamming accuracy %": 100.0 * (1.0 - found.hamming_loss),
            "micro F1 %": 100.0 * found.micro_f1,
            "example F1 %": 100.0 * found.example_f1,
        }
        first = "micro F1 %" if name == "reuters" else "Hamming accuracy %"
        return {first: measures.pop(first)} | measures

    def estimator(inference: str) -> MultilabelSSVM:
        return MultilabelSSVM(C, edges="full", inference=inference, n_jobs=1)

    return Task(name, estimator, C, X, Y, judge, Y.shape[1] <= 16)


def msrc_task(quick: bool) -> Task:
    """Return MSRC-21."""
    data = load_msrc21()
    features = superpixel_features(data)
    train, test = (superpixel_part(data, features, split) for split in (0, 2))
    X, y = (train.X[:40], train.y[:40]) if quick else train

    def judge(model: Any) -> dict[str, float]:
        found = [classes.astype(int) for classes in model.predict(test.X)]
        return {"pixel accuracy %": 100.0 * pixel_accuracy(data, 2, found)}

    def estimator(inference: str) -> GraphSSVM:
        return GraphSSVM(1.0, inference=inference, void_label=-1, n_jobs=1)

    return Task("msrc", estimator, 1.0, X, y, judge, False)


def posed(task: Task, inference: str) -> tuple[Any, Any, Array]:
    """Return a model that waits for weights, and the problem and example weights of its fit."""
    model = task.estimator(inference)
    found: list[Any] = []
    model._fit_graphs = lambda *problem: found.extend(problem)
    model.fit(task.X, task.y)
    return model, compile_problem(found[0]), found[1]


# --- curves ----------------------------------------------------------------------------------


def make_solver(task: Task, method: Method, examples: int | None = None) -> tuple[Any, float]:
    """Return a solver of the task, or of its first examples only, and the time to set it up."""
    _, compiled, weights = posed(task, method.inference)
    if examples is not None:
        weights = np.where(np.arange(len(weights)) < examples, weights, 0.0)
    form = make_formulation(task.C, "max", "margin", weights)
    options = dict(method.options)
    if method.kind is SoftBCFW:
        options["total_weight"] = float(weights.sum())
    workers = Workers(1, compiled.scratch_size)
    began = time.process_time()
    solver = method.kind(compiled, form, workers, 0, options)
    return solver, time.process_time() - began


@contextmanager
def in_parts(solver: Any, seen: Callable[[], None]) -> Iterator[None]:
    """Make the solver's passes in parts, one after the other, and call ``seen`` after each."""

    def split(count: int, multiple: int) -> list[slice]:
        size = max(count // PIECES // multiple, 1) * multiple
        return [slice(lo, lo + size) for lo in range(0, count, size)]

    def by_order(method: Callable[..., Any], multiple: int) -> Callable[..., float]:
        def parts(order: Array, *others: Any) -> float:
            total = 0.0
            for part in split(len(order), multiple):
                total += method(order[part], *others) or 0.0
                seen()
            return total

        return parts

    kernel = passes.pass_units

    def pass_units(
        problem: Any, dual: Any, units: Any, order: Array, every: int, total: Array
    ) -> tuple[float, float]:
        met = gain = 0.0
        for lo in range(0, len(order), every):  # weights are added up after so many units
            run = order[lo : lo + every]
            size = max(every * AVERAGED_ITERATES // PIECES, 1)
            for at in range(0, len(run), size):
                part = run[at : at + size]
                after = len(part) if at + len(part) == every else len(part) + 1
                some, more = kernel(problem, dual, units, part, after, total)
                met, gain = met + some, gain + more
                seen()
        return met, gain

    if isinstance(solver, DLPW):
        vars(solver)["_descend"] = by_order(solver._descend, 1)
    elif isinstance(solver, BCFW):
        block = len(next(solver.cut_into_blocks(solver.active)))
        vars(solver)["_visit"] = by_order(solver._visit, block)
    vars(passes).update(pass_units=pass_units)
    try:
        yield
    finally:
        vars(passes).update(pass_units=kernel)
        for name in ("_descend", "_visit"):
            vars(solver).pop(name, None)


def warm_up(task: Task, method: Method) -> None:
    """Compile what a curve needs."""
    solver, _ = make_solver(task, method, 5)
    with in_parts(solver, lambda: None):
        solver.sweep()
    solver.candidate()


def run_curve(
    task: Task, method: Method, seconds: float
) -> tuple[float, list[tuple[float, Array]]]:
    """Pass over the data; the time of setting up, and times and weights."""
    warm_up(task, method)
    solver, setup = make_solver(task, method)
    kept: list[tuple[float, Array]] = []
    paused = 0.0
    began = time.process_time()

    def keep(weights: Callable[[], Array], always: bool = False) -> None:
        nonlocal paused
        now = time.process_time()
        at = now - began - paused
        if not kept or always or at >= GROWTH[task.name] * kept[-1][0]:
            kept.append((at, np.array(weights())))
        paused += time.process_time() - now

    def best() -> Array:
        return solver.best()[0] if solver.certifies else solver.candidate()

    with in_parts(solver, lambda: keep(solver.candidate)):
        solver.sweep()
    while True:
        spent = time.process_time() - began - paused
        gap = solver.best()[1] - solver.lower_bound()
        done = spent >= seconds or relative(gap, solver.best()[1]) <= TOL
        keep(best, done)
        if done:
            return setup, kept
        solver.sweep()


class Evaluator:
    """The objective and the test measures of weights."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.model, self.compiled, self.weights = posed(task, "lp")
        n = len(self.weights)
        rng = np.random.default_rng(0)
        self.order = np.sort(rng.permutation(n)[: SAMPLED[task.name]])
        self.scale = task.C * float(self.weights.sum() / self.weights[self.order].sum())

    def __call__(self, w: Array) -> dict[str, float]:
        """Return g and the measures."""
        hinges, excess, losses = np.zeros((3, self.compiled.n))
        find = self.compiled.bind(find_hinges)
        find(self.compiled.problem, self.order, w, 1.0, hinges, excess, losses)
        hinges = np.maximum(hinges + excess, 0.0)
        relaxed = 0.5 * float(w @ w) + self.scale * float(self.weights @ hinges)
        self.model.weights_ = w
        return {"g": relaxed} | self.task.judge(self.model)


def part(task: Task, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run all curves of a data set and write them as they come."""
    evaluate = Evaluator(task)
    rows: list[dict[str, Any]] = []
    file = f"paper_soft_{task.name}"
    before = kept_rows(file, quick=options.quick) if options.only else []
    known = {row["method"]: row for row in before}
    for name, method in methods(task).items():
        if options.only and not name.startswith(options.only):
            rows += [known[name]] if name in known else []
            continue
        setup, kept = run_curve(task, method, options.max_time)
        points = [{"seconds": seconds} | evaluate(w) for seconds, w in kept]
        last = ", ".join(f"{key} {value:.5g}" for key, value in points[-1].items())
        console.print(f"{task.name}: {name}: {last}", style="dim")
        rows.append({"method": name, "C": task.C, "setup s": setup, "curve": points})
        if not options.only:
            write_results(file, rows, quick=options.quick)
    summarise(rows)
    write_results(file, rows, quick=options.quick)
    return rows


# --- what the curves say ---------------------------------------------------------------------


def first_from(curve: list[dict[str, float]], good: Callable[[dict[str, float]], bool]) -> Any:
    """Return the first time from which on all points are good; None if there is none."""
    found = None
    for point in reversed(curve):
        if not good(point):
            break
        found = point["seconds"]
    return found


def behind(ours: dict[str, Any], row: dict[str, Any], key: str) -> list[float]:
    """Return the times of a curve's points at which the last point of ours is worse, or none is."""
    worse = []
    for point in row["curve"]:
        now = row["setup s"] + point["seconds"]
        seen = [p[key] for p in ours["curve"] if ours["setup s"] + p["seconds"] <= now]
        if not seen or (seen[-1] > point[key] if key == "g" else seen[-1] < point[key]):
            worse.append(now)
    return worse


def summarise(rows: list[dict[str, Any]]) -> None:
    """Add plateau times and ratios to the rows."""
    measure = next(key for key in rows[0]["curve"][0] if key.endswith("%"))
    best = max(row["curve"][-1][measure] for row in rows)
    least = min(point["g"] for row in rows for point in row["curve"])
    for row in rows:
        curve = row["curve"]
        good = first_from(curve, lambda p: p[measure] >= best - POINTS)
        near = first_from(curve, lambda p: p["g"] <= (1.0 + NEAR) * least)
        for key, found in (("plateau s", good), ("g within 1 % s", near)):
            row[key] = None if found is None else row["setup s"] + found
    by_name = {row["method"]: row for row in rows}
    for row in rows:
        curve = row["curve"]
        row["behind"] = {key: behind(by_name[OURS], row, key) for key in ("g", measure)}
        for ours in (OURS, PUBLISHED):
            for key in ("plateau s", "g within 1 % s"):
                own = by_name[ours][key]
                known = row[key] is not None
                other = row[key] if known else row["setup s"] + curve[-1]["seconds"]
                row[f"{key} over {ours}"] = None if own is None else other / own
                row[f"{key} reached"] = known


def print_part(name: str, rows: list[dict[str, Any]]) -> None:
    """Print a table with the ratios and the verdict."""
    measures = [key for key in rows[0]["curve"][0] if key.endswith("%")]

    def ratio(row: dict[str, Any], key: str, ours: str) -> str:
        value = row[f"{key} over {ours}"]
        return "" if value is None else f"{'' if row[f'{key} reached'] else '>'}{value:.3g}"

    def seconds(value: float | None) -> str:
        return "never" if value is None else f"{value:.3g}"

    keys = ("plateau s", "g within 1 % s")
    columns = ["method", "set-up s", "s", "passes end at g", *measures]
    columns += ["plateau s", "over soft", "over published", "g within 1 % s", "over soft"]
    print_table(
        f"{name}: {len(rows)} curves, plateau by {measures[0]} within {POINTS} points",
        columns,
        [
            [
                row["method"],
                f"{row['setup s']:.2g}",
                f"{row['curve'][-1]['seconds']:.3g}",
                f"{row['curve'][-1]['g']:.5g}",
                *(f"{row['curve'][-1][key]:.2f}" for key in measures),
                seconds(row[keys[0]]),
                ratio(row, keys[0], OURS),
                ratio(row, keys[0], PUBLISHED),
                seconds(row[keys[1]]),
                ratio(row, keys[1], OURS),
            ]
            for row in rows
        ],
    )
    for what, names in (("the paper's baselines", BASELINES), ("them with longer steps", TUNED)):
        for key in ("g", measures[0]):
            late = [t for row in rows if row["method"] in names for t in row["behind"][key]]
            shown = (
                "never" if not late else f"{len(late)} times, {min(late):.3g} to {max(late):.3g} s"
            )
            console.print(f"{name}: {OURS} behind {what} in {key}: {shown}")
        slower = [r[f"plateau s over {OURS}"] for r in rows if r["method"] in names]
        if not slower:
            continue
        worst = None if None in slower else min(slower)
        verdict = "missed" if worst is None or worst < 10.0 else "met"
        shown = "no plateau" if worst is None else f"{worst:.3g}"
        console.print(f"{name}: least ratio over {what} {shown}; 10 wanted: {verdict}")


def draw(name: str, rows: list[dict[str, Any]], quick: bool) -> None:
    """Plot objective and first measure against time."""
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    measure = next(key for key in rows[0]["curve"][0] if key.endswith("%"))
    figure = Figure(figsize=(11, 4.2), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    least = min(point["g"] for row in rows for point in row["curve"])
    for k, row in enumerate(rows):
        seconds = [row["setup s"] + point["seconds"] for point in row["curve"]]
        published = "published" in row["method"]
        style = {
            "color": colormaps["tab20"](k % 20),
            "linestyle": "--" if published else "-",
            "marker": "." if len(seconds) < 4 else "",
            "label": row["method"],
        }
        left.loglog(seconds, [point["g"] / least for point in row["curve"]], **style)
        right.semilogx(seconds, [point[measure] for point in row["curve"]], **style)
    left.set_ylabel("hard-constrained objective g, over the least found")
    right.set_ylabel(f"test {measure}")
    best = max(row["curve"][-1][measure] for row in rows)
    right.set_ylim(best - 10.0, best + 1.0)
    right.axhline(best - POINTS, color="grey", linewidth=0.8)
    for axes in (left, right):
        axes.set_xlabel("CPU seconds")
        axes.grid(alpha=0.3)
    right.legend(fontsize=7, frameon=False, loc="lower right")
    figure.suptitle(f"{name}, C = {rows[0]['C']:g}")
    path = result_path(f"paper_soft_{name}", quick, ".png")
    figure.savefig(path)
    console.print(f"written: {path.parent.name}/{path.name}")


def main() -> None:
    """Run the parts asked for."""
    parser = argument_parser(__doc__)
    parser.add_argument("--part", choices=(*PARTS, "all"), default="all")
    parser.add_argument("--max-time", type=float, default=30.0, help="CPU seconds of a curve")
    parser.add_argument("--only", help="curves whose name begins so; others of the file are kept")
    options = parser.parse_args()
    options.max_time = min(options.max_time, 1.0) if options.quick else options.max_time
    costs = {"yeast": 0.1, "reuters": 1.0}
    for name in PARTS:
        if options.part not in (name, "all"):
            continue
        quick = options.quick
        task = msrc_task(quick) if name == "msrc" else multilabel_task(name, costs[name], quick)
        rows = part(task, options)
        print_part(name, rows)
        draw(name, rows, quick)


if __name__ == "__main__":
    entry_point(main)
