"""Taggers as users train them: default templates, default C, against CRFsuite on equal features.

One command: ``python benchmarks/taggers.py``. Nothing is tuned: `TokenTemplates()` and
`ChainSSVM()` at their defaults; python-crfsuite's L-BFGS at its own. CRFsuite gets the very
features of our encoder, by name, and three attributes more for what a chain of ours has besides:
the constant, the beginning and the end of a sequence. Scores are what counts here; the seconds in
the table are processor seconds, which other jobs on the machine disturb less than elapsed ones.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from datasets import Attributes
from harness import (
    Comparison,
    Measurement,
    argument_parser,
    console,
    entry_point,
    interleave,
    print_table,
    settle,
    timed,
    write_results,
)
from hingeline import ChainSSVM
from hingeline.evaluation.metrics import evaluate
from hingeline.features import SparseSequences, TokenTable, TokenTemplates
from ours import WARM_UP_NOTE, WARM_UP_SEQUENCES, certificate
from peers import crfsuite_fit, crfsuite_predict
from published import load_conll2002, load_seminars, load_ud_english_ewt, load_umass_citations

QUICK_SEQUENCES = 150
RESAMPLES = 1000

Labels = Sequence[Sequence[str]]
Scores = dict[str, float]


class Part(NamedTuple):
    """Tokens to predict from, and their labels."""

    tokens: TokenTable
    labels: Labels

    def first(self, n: int) -> Part:
        """Return the part with only its first `n` sequences."""
        return Part(self.tokens[:n], self.labels[:n])


class Task(NamedTuple):
    """Data, what is scored, and the settings of the peer that differ from its defaults."""

    load: Callable[[], tuple[Part, Part]]
    score: Callable[[Labels, Labels], Scores]
    peer: dict[str, Any]


def _part(table: TokenTable, inputs: Sequence[str], label: str) -> Part:
    return Part(table.select(inputs), table.sentences(label))


def spanish() -> tuple[Part, Part]:
    """Return esp.train and esp.testb: words and parts of speech to names."""
    data = load_conll2002()
    train, test = (_part(part, ["word", "pos"], "entity") for part in (data.train, data.test))
    return train, test


def english() -> tuple[Part, Part]:
    """Return the training and test part of the English Web Treebank: words to UPOS."""
    data = load_ud_english_ewt()
    train, test = (_part(part.table, ["form"], "upos") for part in (data.train, data.test))
    return train, test


def citations() -> tuple[Part, Part]:
    """Return the UMass citations, training and test part: words to fields."""
    data = load_umass_citations()
    train, test = (_part(part, ["word"], "label") for part in (data.train, data.test))
    return train, test


def seminars() -> tuple[Part, Part]:
    """Return split 0: labelled and unlabelled documents, with their true labels, against test."""
    labelled, unlabelled, test = load_seminars().split(0)
    both = [_part(part, ["word"], "label") for part in (labelled, unlabelled)]
    sentences = [*both[0].tokens, *both[1].tokens]
    tokens = TokenTable.from_sentences(sentences, ["word"])
    return Part(tokens, [*both[0].labels, *both[1].labels]), _part(test, ["word"], "label")


def _scores(true: Labels, predicted: Labels, names: Sequence[str], scheme: str | None) -> Scores:
    result = evaluate(true, predicted, scheme=scheme, bootstrap=RESAMPLES)
    scores = {}
    for name in names:
        low, high = result.intervals[name]
        scores[name] = 100.0 * getattr(result, name)
        scores[f"{name} low"], scores[f"{name} high"] = 100.0 * low, 100.0 * high
    return scores


def spans(true: Labels, predicted: Labels) -> Scores:
    """Return the F1 of spans of tags, as conlleval counts them, in per cent."""
    return _scores(true, predicted, ["span_f1"], "IOB2")


def tokens(true: Labels, predicted: Labels) -> Scores:
    """Return the per cent of tokens labelled right."""
    return _scores(true, predicted, ["token_accuracy"], None)


def fields(true: Labels, predicted: Labels) -> Scores:
    """Return the per cent of tokens labelled right, and the F1 of runs of one label but O."""

    def runs(labels: Labels) -> Labels:
        return [["O" if tag == "O" else f"I-{tag}" for tag in sequence] for sequence in labels]

    return _scores(runs(true), runs(predicted), ["token_accuracy", "span_f1"], "IO")


TASKS = {
    "conll2002 (names)": Task(spanish, spans, {}),
    "EWT (UPOS)": Task(english, tokens, {}),
    "UMass citations": Task(citations, fields, {}),
    "seminars": Task(seminars, spans, {}),
}


def attributes(encoded: SparseSequences, names: np.ndarray) -> list[Attributes]:
    """Return the names of every token's features, with the constant and the boundaries."""
    matrix = encoded.matrix
    # One Python string per distinct feature: a corpus is then lists of references.
    columns, cuts = names[matrix.indices].tolist(), matrix.indptr.tolist()
    tokens = [["(constant)", *columns[lo:hi]] for lo, hi in pairwise(cuts)]
    sequences = [tokens[lo:hi] for lo, hi in pairwise(encoded.offsets.tolist())]
    for sequence in sequences:
        sequence[0].append("(start)")
        sequence[-1].append("(end)")
    return sequences


def run_ours(task: Task, train: Part, test: Part, n_jobs: int) -> Measurement:
    """Encode, fit and score at the defaults."""
    encoder = TokenTemplates()
    encoded, encoding = timed(encoder.fit_transform, train.tokens)
    estimator, timing = timed(ChainSSVM(n_jobs=n_jobs, random_state=0).fit, encoded, train.labels)
    predicted = estimator.predict(encoder.transform(test.tokens))
    quality = certificate(estimator) | task.score(test.labels, predicted)
    quality["features"] = float(encoded.matrix.shape[1])
    name = f"hingeline C={estimator.C_:.3g} tol={estimator.tol:g}"
    return Measurement(name, timing, {"encode": encoding.wall}, quality)


def run_peer(task: Task, train: Part, test: Part) -> Measurement:
    """Train CRFsuite on the same features and score it in the same way."""
    encoder = TokenTemplates().fit(train.tokens)
    names = encoder.get_feature_names_out()
    lists = [attributes(encoder.transform(part.tokens), names) for part in (train, test)]
    settle()
    model = crfsuite_fit(lists[0], train.labels, "lbfgs", task.peer)
    predicted, _ = crfsuite_predict(model.model, lists[1])
    quality = task.score(test.labels, predicted) | {"iterations": float(model.iterations)}
    settings = "".join(f" {key}={value}" for key, value in task.peer.items()) or " defaults"
    return Measurement(
        f"python-crfsuite lbfgs{settings}", model.train, {"append": model.append.wall}, quality
    )


def compare(name: str, task: Task, options: argparse.Namespace) -> Comparison:
    """Run both sides on one task."""
    train, test = task.load()
    if options.quick:
        train, test = train.first(QUICK_SEQUENCES), test.first(QUICK_SEQUENCES)
    console.print(
        f"{len(train.labels)} training and {len(test.labels)} test sequences, "
        f"{train.tokens.n_tokens} and {test.tokens.n_tokens} tokens"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run_ours(task, train.first(WARM_UP_SEQUENCES), test, options.n_jobs)
    ours, peer = interleave(
        options.repeat,
        lambda: run_ours(task, train, test, options.n_jobs),
        lambda: run_peer(task, train, test),
    )
    return Comparison(name, ours, peer, judged=not options.quick)


def _rows(comparison: Comparison) -> list[list[str]]:
    """One row per score: both sides with their intervals, and the processor seconds."""
    ours, peer = comparison.ours.median, comparison.peer.median
    measured = [name for name in ours.quality if f"{name} low" in ours.quality]

    def cell(side: Measurement, name: str) -> str:
        value, low, high = (side.quality[f"{name}{end}"] for end in ("", " low", " high"))
        return f"{value:.2f} ({low:.2f} to {high:.2f})"

    return [
        [
            comparison.task,
            name.replace("_", " ") + " %",
            cell(ours, name),
            cell(peer, name),
            f"{ours.timing.cpu:.1f}",
            f"{peer.timing.cpu:.1f}",
            f"{comparison.cpu_ratio:.1f}x",
            f"{ours.quality['gap %']:.2f}",
            f"{peer.quality['iterations']:.0f}" + (" (capped)" if peer_is_capped(peer) else ""),
        ]
        for name in measured
    ]


def peer_is_capped(peer: Measurement) -> bool:
    """Tell whether the peer's iterations were limited."""
    return "max_iterations" in peer.system


def main() -> None:
    """Run the tasks asked for and write one file."""
    parser = argument_parser(__doc__)
    parser.add_argument("--task", choices=[*TASKS, "all"], default="all")
    parser.set_defaults(repeat=1)
    options = parser.parse_args()
    console.print(WARM_UP_NOTE)
    comparisons = []
    for name in TASKS if options.task == "all" else [options.task]:
        console.rule(name)
        comparisons.append(compare(name, TASKS[name], options))
    title = "Taggers at the defaults, equal features; scores with 95 % bootstrap intervals"
    columns = ("task", "score", "ours", "CRFsuite", "ours CPU s", "its CPU s", "ratio", "gap %")
    rows = [row for comparison in comparisons for row in _rows(comparison)]
    print_table(title, [*columns, "its iterations"], rows)
    if options.task == "all":
        records = [comparison.record() for comparison in comparisons]
        write_results("taggers", records, quick=options.quick)


if __name__ == "__main__":
    entry_point(main)
