"""Flat multi-class training against LIBLINEAR's Crammer-Singer solver.

One command: ``python benchmarks/multiclass.py``. Both sides see the bias as a regularised column
and minimise the same objective; the primal values say who got nearer.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

from datasets import FlatData, letter, mnist, news20_tfidf, with_constant_column
from harness import (
    Comparison,
    Measurement,
    Target,
    argument_parser,
    console,
    entry_point,
    interleave,
    print_comparisons,
    write_results,
)
from ours import WARM_UP_NOTE, certificate, fit_multiclass, flat_prefix, warm_up_multiclass
from peers import crammer_singer_primal, liblinear_fit

QUICK_ROWS = 1500
TOL = 0.01
# The certified gap may not exceed TOL, and our primal may not exceed the peer's: tighter where the
# peer's own stopping rule goes further than a gap of one per cent.
TOLERANCES = {
    ("mnist", 0.01): 0.0012,
    ("mnist", 0.1): 0.0023,
    ("mnist", 1.0): 0.0038,
    ("news20", 1.0): 0.004,
    ("letter", 1.0): 0.0025,
}
TARGET = Target(1, 3)
SETTINGS: dict[str, tuple[Callable[[], FlatData], tuple[float, ...]]] = {
    "mnist": (mnist, (0.01, 0.1, 1.0)),
    "news20": (news20_tfidf, (1.0,)),
    "letter": (letter, (1.0,)),
}


def _run_ours(data: FlatData, c: float, tol: float, n_jobs: int) -> Measurement:
    estimator, timing = fit_multiclass(data, {"C": c, "tol": tol, "n_jobs": n_jobs})
    accuracy = 100.0 * float(np.mean(estimator.predict(data.test) == data.test_labels))
    quality = certificate(estimator) | {"test %": accuracy}
    quality["s to a gap of 1 %"] = next(
        (row.time for row in estimator.history_ if row.gap <= TOL * row.primal), float("nan")
    )
    return Measurement(f"hingeline tol={tol:g}", timing, quality=quality)


def _run_liblinear(data: FlatData, c: float) -> Measurement:
    model = liblinear_fit(data.train, data.train_labels, c)
    quality = {
        "primal": crammer_singer_primal(model, data.train, data.train_labels, c),
        "test %": model.accuracy(data.test, data.test_labels),
    }
    return Measurement("LIBLINEAR -s 4", model.train, {"convert": model.convert.wall}, quality)


def compare(name: str, data: FlatData, c: float, options: argparse.Namespace) -> Comparison:
    """Compare both sides at one C; a worse primal than the peer's counts as missed."""
    ours, peer = interleave(
        options.repeat,
        lambda: _run_ours(data, c, TOLERANCES[name, c], options.n_jobs),
        lambda: _run_liblinear(data, c),
    )
    reached, theirs = ours.median.quality, peer.median.quality
    conditions = {
        f"certified gap <= {100 * TOL:g} %": reached["gap %"] <= 100 * TOL,
        "primal <= peer's": reached["primal"] <= theirs["primal"] * (1 + 1e-9),
    }
    return Comparison(f"{name} C={c:g}", ours, peer, TARGET, conditions, not options.quick)


def main() -> None:
    """Run the data sets asked for."""
    parser = argument_parser(__doc__)
    parser.add_argument("--dataset", choices=[*SETTINGS, "all"], default="all")
    options = parser.parse_args()
    console.print(WARM_UP_NOTE, "LIBLINEAR's conversion of the matrix is timed apart.")
    comparisons = []
    for name in SETTINGS if options.dataset == "all" else [options.dataset]:
        load, values = SETTINGS[name]
        data = with_constant_column(load())
        if options.quick:
            data = flat_prefix(data, QUICK_ROWS)
        small = flat_prefix(data, 400)
        liblinear_fit(small.train, small.train_labels, 1.0)
        warm_up_multiclass(data, {"C": values[0], "tol": TOL, "n_jobs": options.n_jobs})
        for c in values:
            comparisons.append(compare(name, data, c, options))
    print_comparisons("Multi-class: seconds of training", comparisons)
    suffix = "" if options.dataset == "all" else f"-{options.dataset}"
    rows = [comparison.record() for comparison in comparisons]
    write_results(f"multiclass{suffix}", rows, quick=options.quick)


if __name__ == "__main__":
    entry_point(main)
