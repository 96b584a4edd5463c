"""Structures beside labels of tokens: what they reach, and what decoding costs.

``python benchmarks/structures.py --part segments``: `SegmentSSVM` beside `ChainSSVM` and
python-crfsuite, with the same features of tokens (`TokenTemplates()`), all at their defaults, on
the names of CoNLL-2002 (Spanish) and the chunks of CoNLL-2000. Then what a lexicon over whole
segments gains: made of the training spans (``seen``: in the training data a phrase counts where it
is a span of another sentence), and as a gazetteer, with 1,000 labelled sentences and the phrases
that are spans in the other training sentences. Last, the time of a decode by length, labels and
longest segment, with the exponents, as a picture too. Processor seconds.

``--part dependencies``: `dependencies.py`.
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

import dependencies
from datasets import conll2000
from harness import (
    argument_parser,
    console,
    cpu_seconds,
    entry_point,
    print_table,
    result_path,
    timed,
    write_results,
)
from hingeline import ChainSSVM, SegmentSSVM
from hingeline.features import SegmentTemplates, TokenTable, TokenTemplates
from hingeline.schemes import spans
from hingeline.structures import chain_batch, segment
from ours import WARM_UP_NOTE, WARM_UP_SEQUENCES, certificate
from peers import crfsuite_fit, crfsuite_predict
from taggers import Part, attributes, spanish
from taggers import spans as score_spans

QUICK_SEQUENCES = 150
LABELLED = 1000  # Sentences with labels, where the others give a gazetteer.


# --- segments --------------------------------------------------------------------------------


def chunks() -> tuple[Part, Part]:
    """Return the training and test part of CoNLL-2000: words and parts of speech to chunks."""
    found = []
    for part in ("train", "test"):
        sentences = conll2000(part)
        table = TokenTable.from_sentences([[t[:2] for t in s] for s in sentences], ["word", "pos"])
        found.append(Part(table, [[t[2] for t in s] for s in sentences]))
    return found[0], found[1]


def make_gazetteer(part: Part) -> dict[str, set[str]]:
    """Return the phrases that are spans, by their types."""
    found = defaultdict(set)
    for words, tags in zip(part.tokens.sentences("word"), part.labels, strict=True):
        for kind, first, stop in spans(tags):
            found[kind].add(" ".join(words[first:stop]))
    return dict(found)


def fit_ours(model: Any, train: Part, test: Part) -> dict[str, Any]:
    """Fit and score; seconds are with encoding."""
    _, fitting = timed(model.fit, train.tokens, train.labels)
    predicted, predicting = timed(model.predict, test.tokens)
    row = {"fit CPU s": fitting.cpu, "predict CPU s": predicting.cpu}
    row |= certificate(model) | score_spans(test.labels, predicted)
    kept = getattr(model, "segment_encoder_", None)
    if kept is not None:  # what features of segments take: two int32 each, and their offsets
        entries = len(kept.transform(train.tokens)[1])
        row["segment features MB"] = (8 * entries + 8 * train.tokens.n_tokens) / 2**20
    return row


def fit_peer(train: Part, test: Part) -> dict[str, Any]:
    """Train CRFsuite on the same features of tokens."""
    encoder = TokenTemplates().fit(train.tokens)
    names = encoder.get_feature_names_out()
    lists = [attributes(encoder.transform(part.tokens), names) for part in (train, test)]
    model = crfsuite_fit(lists[0], train.labels, "lbfgs")
    predicted, timing = crfsuite_predict(model.model, lists[1])
    row = {"fit CPU s": model.train.cpu + model.append.cpu, "predict CPU s": timing.cpu}
    return row | score_spans(test.labels, predicted)


def compare_segments(
    name: str, train: Part, test: Part, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Run all systems on one task."""
    common: dict[str, Any] = {"n_jobs": options.n_jobs, "random_state": 0}
    seen = SegmentTemplates(seen=True)
    few = train.first(LABELLED)
    rest = Part(train.tokens[LABELLED:], train.labels[LABELLED:])
    gazetteer = SegmentTemplates(lexicon=make_gazetteer(rest) if len(rest.labels) else {"": [""]})
    runs: dict[str, Callable[[], dict[str, Any]]] = {
        "ChainSSVM": lambda: fit_ours(ChainSSVM(**common), train, test),
        "SegmentSSVM": lambda: fit_ours(SegmentSSVM(**common), train, test),
        "SegmentSSVM, spans": lambda: fit_ours(SegmentSSVM(loss="spans", **common), train, test),
        "SegmentSSVM, seen": lambda: fit_ours(
            SegmentSSVM(segment_features=seen, **common), train, test
        ),
        f"ChainSSVM, {LABELLED} sentences": lambda: fit_ours(ChainSSVM(**common), few, test),
        f"SegmentSSVM, {LABELLED} sentences": lambda: fit_ours(SegmentSSVM(**common), few, test),
        f"SegmentSSVM, {LABELLED} sentences, gazetteer": lambda: fit_ours(
            SegmentSSVM(segment_features=gazetteer, **common), few, test
        ),
    }
    if not options.without_peer:
        runs["python-crfsuite lbfgs"] = lambda: fit_peer(train, test)
    rows = []
    for system, run in runs.items():
        rows.append({"task": name, "system": system, **run()})
        console.print(f"{system}: F1 {rows[-1]['span_f1']:.2f}")
    return rows


def time_decoding(model: Any, length: int, n: int, kernel: Any) -> float:
    """Return the nanoseconds per token to decode random sequences of one length, without features.

    The features of a token are few, so that the time is that of the dynamic program.
    """
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(length, 2)).astype(np.float32) for _ in range(n)]
    more = (None,) if isinstance(model, ChainSSVM) else ()
    problem = model._prepare(X, None, *more)
    found = [np.empty(n * length, np.int32)]
    found += [np.empty(n)] if more else []
    order, seconds = np.arange(n), []
    for _ in range(6):  # the first may compile
        before = cpu_seconds()
        kernel(problem, order, model.weights_, *found)
        seconds.append(cpu_seconds() - before)
    return 1e9 * min(seconds[1:]) / (n * length)


def random_model(n_labels: int, longest: int, length: int = 200) -> tuple[Any, Any]:
    """Return a segment model of so many labels, and a chain of the same tags, hardly trained."""
    rng = np.random.default_rng(1)
    tags = []
    while len(tags) < length:
        kind, size = int(rng.integers(n_labels)), int(rng.integers(1, longest + 1))
        tags += [f"B-{kind}", *[f"I-{kind}"] * (size - 1)]
    for kind in range(n_labels):
        tags += [f"B-{kind}", *[f"I-{kind}"] * (longest - 1)]
    X = [rng.normal(size=(len(tags), 2)).astype(np.float32)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options: dict[str, Any] = {"max_iter": 1, "random_state": 0, "C": 0.1}
        return SegmentSSVM(**options).fit(X, [tags]), ChainSSVM(**options).fit(X, [tags])


def fit_exponent(rows: list[dict[str, Any]], key: str, system: str) -> float:
    """Return the slope of log time over the log of a size, over its upper half."""
    upper = rows[(len(rows) - 1) // 2 :]
    x, y = (np.log([row[name] for row in upper]) for name in (key, system))
    return float(np.polyfit(x, y, 1)[0])


def scale_segments(quick: bool) -> list[dict[str, Any]]:
    """Time decoding by length of sequences, labels, and longest segment."""
    sizes: dict[str, list[int]] = {
        "length": [10, 100] if quick else [10, 30, 100, 300, 1000, 3000],
        "labels": [2, 8] if quick else [2, 4, 8, 16, 32, 64],
        "longest": [2, 8] if quick else [1, 2, 4, 8, 16, 32, 64],
    }
    tokens = 2000 if quick else 60_000
    found = []
    for key, values in sizes.items():
        rows = []
        for value in values:
            size = {"length": 100, "labels": 8, "longest": 8, key: value}
            own, chain = random_model(size["labels"], size["longest"])
            n = max(1, tokens // size["length"])
            row: dict[str, Any] = {**size}
            row["segments ns/token"] = time_decoding(own, size["length"], n, segment.decode_all)
            row["chain ns/token"] = time_decoding(chain, size["length"], n, chain_batch.decode_all)
            rows.append(row)
        ways = {name: fit_exponent(rows, key, name) for name in rows[0] if "ns" in name}
        found.append({"by": key, "exponents": ways, "rows": rows})
    return found


def time_real_decoding(train: Part, test: Part) -> dict[str, float]:
    """Return tokens a second that the kernels decode, features summed, with real weights."""
    found = {}
    for model, kernel in ((SegmentSSVM, segment.decode_all), (ChainSSVM, chain_batch.decode_all)):
        own: Any = model(tol=0.2, random_state=0).fit(train.tokens, train.labels)
        more = (None,) if model is ChainSSVM else ()
        problem = own._prepare(test.tokens, None, *more)
        out = [np.empty(test.tokens.n_tokens, np.int32), np.empty(len(test.labels))]
        seconds = []
        for _ in range(6):
            before = cpu_seconds()
            kernel(problem, np.arange(len(test.labels)), own.weights_, *out[: 1 + len(more)])
            seconds.append(cpu_seconds() - before)
        found[model.__name__] = test.tokens.n_tokens / statistics.median(seconds[1:])
    return found


def run_segments(options: argparse.Namespace) -> None:
    """Compare systems on real data, then time decoding."""
    rows: list[dict[str, Any]] = []
    for name, load in (("conll2002 (names)", spanish), ("conll2000 (chunks)", chunks)):
        train, test = load()
        if options.quick:
            train, test = train.first(QUICK_SEQUENCES), test.first(QUICK_SEQUENCES)
        console.rule(name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a tag of the Spanish data breaks its scheme
            for model in (ChainSSVM, SegmentSSVM):
                few = train.first(WARM_UP_SEQUENCES)
                model(tol=0.1).fit(few.tokens, few.labels).predict(few.tokens)
            found = compare_segments(name, train, test, options)
            decoding = time_real_decoding(train, test)
        rows += [*found, {"task": name, "tokens a second": decoding}]
        title = f"{name}: F1 of spans with its 95 % bootstrap interval"
        print_table(
            title,
            ("system", "F1", "", "fit CPU s", "predict CPU s", "gap %"),
            [
                [
                    row["system"],
                    f"{row['span_f1']:.2f}",
                    f"{row['span_f1 low']:.2f} to {row['span_f1 high']:.2f}",
                    f"{row['fit CPU s']:.1f}",
                    f"{row['predict CPU s']:.2f}",
                    f"{row['gap %']:.2f}" if "gap %" in row else "",
                ]
                for row in found
            ],
        )
        write_results("structures_segments", rows, quick=options.quick)
        speeds = ", ".join(f"{system} {speed:,.0f}" for system, speed in decoding.items())
        console.print(f"tokens decoded a second: {speeds}")
    for table in scale_segments(options.quick):
        rows.append(table)
        names = [*table["rows"][0]]
        cells = [[f"{row[name]:.0f}" for name in names] for row in table["rows"]]
        ways = ", ".join(f"{name} {value:.2f}" for name, value in table["exponents"].items())
        print_table(f"decoding by {table['by']}; exponents: {ways}", names, cells)
    write_results("structures_segments", rows, quick=options.quick)
    draw_scaling(rows, options.quick)


def draw_scaling(rows: list[dict[str, Any]], quick: bool) -> None:
    """Time a token against length, labels and longest segment."""
    from matplotlib.figure import Figure

    tables = [row for row in rows if "by" in row]
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    for axes, table in zip(figure.subplots(1, len(tables), sharey=True), tables, strict=True):
        for system, exponent in table["exponents"].items():
            points = [(row[table["by"]], row[system]) for row in table["rows"]]
            label = f"{system.removesuffix(' ns/token')}: exponent {exponent:.2f}"
            axes.loglog(*zip(*points, strict=True), "o-", label=label)
        ticks = [row[table["by"]] for row in table["rows"]]
        axes.set_xticks(ticks, map(str, ticks))
        axes.set_xticks([], minor=True)
        axes.set(xlabel=table["by"])
        axes.legend(frameon=False, fontsize="small")
    figure.axes[0].set_ylabel("nanoseconds a token")
    figure.savefig(result_path("structures_segments", quick, ".png"), dpi=110)


PARTS = {"segments": run_segments, "dependencies": dependencies.run}


def main() -> None:
    """Run one part, which writes its file."""
    parser = argument_parser(__doc__)
    parser.add_argument("--part", choices=[*PARTS], required=True)
    parser.add_argument("--without-peer", action="store_true", help="leave CRFsuite out")
    options = parser.parse_args()
    console.print(WARM_UP_NOTE)
    PARTS[options.part](options)


if __name__ == "__main__":
    entry_point(main)
