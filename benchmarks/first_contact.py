"""Where a new user waits: feature dicts, single sentences, a cold start; beside python-crfsuite.

One command: ``python benchmarks/first_contact.py``. The dicts are those of the tutorials of
CRFsuite's wrappers, on CoNLL-2000. Reading them for training is ``DictEncoder.fit_transform``
against ``Trainer.append``; tagging is ``predict`` against ``Tagger.tag``, dicts to labels on both
sides. Small matrices, one for each sentence, are beside the same rows stacked by their owner, which
are checked as often. A cold start is a process of its own that loads a model and tags one sentence,
with and without kernels on disk; which kernels it compiled is in the result.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pycrfsuite
import scipy.sparse as sp

from datasets import conll2000
from defaults import tutorial_dicts
from harness import argument_parser, console, entry_point, print_table, settle, timed, write_results
from hingeline import ChainSSVM, load
from hingeline.features import DictEncoder

Row = dict[str, Any]
#: Sentences that both models learn from: the speed of tagging does not depend on more.
LEARNT = 1000
COLD = """
import json, sys, time
started = time.perf_counter()
import numba.core.event as event
names = []
class Listener(event.Listener):
    def on_start(self, found): names.append(found.data["dispatcher"].__name__)
    def on_end(self, found): pass
event.register("numba:compile", Listener())
import hingeline
model = hingeline.load(sys.argv[1])
loaded = time.perf_counter() - started
model.predict([json.loads(sys.argv[2])])
print(json.dumps([loaded, time.perf_counter() - started, time.process_time(), names]))
"""


def read(part: str, quick: bool) -> tuple[list[Any], list[Any]]:
    """Feature dicts and labels of a part of CoNLL-2000."""
    sentences = conll2000(part)[: 200 if quick else None]
    dicts = [tutorial_dicts([token[:2] for token in sentence]) for sentence in sentences]
    return dicts, [[token[2] for token in sentence] for sentence in sentences]


def append_all(X: list[Any], y: list[Any]) -> pycrfsuite.Trainer:
    """What python-crfsuite does with training data before it trains."""
    trainer = pycrfsuite.Trainer(verbose=False)
    for dicts, labels in zip(X, y, strict=True):
        trainer.append(dicts, labels)
    return trainer


def train_both(X: list[Any], y: list[Any], folder: Path) -> tuple[Any, pycrfsuite.Tagger]:
    """Models loaded from files, as a service has them."""
    trainer = append_all(X, y)
    trainer.set_params({"max_iterations": 50})
    trainer.train(str(folder / "peer"))
    tagger = pycrfsuite.Tagger()
    tagger.open(str(folder / "peer"))
    ChainSSVM(tol=0.1, random_state=0).fit(X, y).save(folder / "m.hinge")
    return load(folder / "m.hinge"), tagger


def compare(
    what: str, repeat: int, tokens: int, ours: Callable[[], Any], theirs: Callable[[], Any]
) -> Row:
    """Tokens a CPU second on either side, in turn; medians."""
    seconds = np.array([[timed(work)[1].cpu for work in (ours, theirs)] for _ in range(repeat)])
    mine, peer = np.median(seconds, axis=0)
    return {"work": what, "ours": tokens / mine, "peer": tokens / peer, "ratio": peer / mine}


def compare_matrices(
    model: ChainSSVM, X: list[Any], X_train: list[Any], y_train: list[Any], repeat: int
) -> list[Row]:
    """A matrix for each sentence, beside all of them stacked by their owner beforehand."""
    matrices, own = (list(model.encoder_.transform(part)) for part in (X, X_train))
    (stacked, lengths), (all_own, own_lengths) = (
        (sp.vstack(part).tocsr(), [m.shape[0] for m in part]) for part in (matrices, own)
    )
    labels = [label for labels in y_train for label in labels]
    new = ChainSSVM(tol=0.1, random_state=0)
    rows = [
        compare(
            "predict: a list of small matrices, beside one stacked",
            20 * repeat,
            sum(lengths),
            lambda: model.predict(matrices),
            lambda: model.predict(as_new(stacked), lengths),
        ),
        compare(
            "fit: a list of small matrices, beside one stacked",
            repeat,
            sum(own_lengths),
            lambda: new.fit(own, y_train),
            lambda: new.fit(as_new(all_own), labels, own_lengths),
        ),
    ]
    return rows


def as_new(matrix: sp.csr_matrix) -> sp.csr_matrix:
    """The same arrays in a matrix that does not remember that it was checked before."""
    return sp.csr_matrix((matrix.data, matrix.indices, matrix.indptr), shape=matrix.shape)


def tag_singly(tag: Callable[[Any], Any], X: list[Any]) -> float:
    """Median milliseconds of a sentence."""
    return 1e3 * float(np.median([timed_quietly(tag, x) for x in X]))


def timed_quietly(tag: Callable[[Any], Any], x: Any) -> float:
    """CPU seconds of one call, without the collection of garbage that `timed` makes before."""
    started = time.process_time()
    tag(x)
    return time.process_time() - started


def start_cold(model: Path, sentence: Any, cache: str) -> Row:
    """A process that loads a model and tags a sentence."""
    command = [sys.executable, "-c", COLD, str(model), json.dumps(sentence)]
    environment = {**os.environ, "HINGELINE_CACHE_DIR": cache}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    loaded, tagged, cpu, names = json.loads(done.stdout.splitlines()[-1])
    return {"loaded": loaded, "first labels": tagged, "cpu": cpu, "compiled": names}


def main() -> None:
    """Run all parts."""
    parser = argument_parser(__doc__)
    options = parser.parse_args()
    X, y = read("train", options.quick)
    X_test, _ = read("test", options.quick)
    tokens, test_tokens = (sum(map(len, part)) for part in (X, X_test))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model, tagger = train_both(X[:LEARNT], y[:LEARNT], folder)
        model.predict(X_test[:3])
        DictEncoder().fit(X[:3])
        settle()
        rows = [
            compare(
                "dicts to numbers, for training",
                options.repeat,
                tokens,
                lambda: DictEncoder().fit_transform(X),
                lambda: append_all(X, y),
            ),
            compare(
                "dicts to labels, all sentences",
                options.repeat,
                test_tokens,
                lambda: model.predict(X_test),
                lambda: [tagger.tag(x) for x in X_test],
            ),
        ]
        single = [tag_singly(lambda x: model.predict([x]), X_test[:500])]
        single.append(tag_singly(tagger.tag, X_test[:500]))
        rows += compare_matrices(model, X_test, X[:LEARNT], y[:LEARNT], options.repeat)
        with tempfile.TemporaryDirectory() as empty:
            cold = start_cold(folder / "m.hinge", X_test[0], empty)
            warm = start_cold(folder / "m.hinge", X_test[0], empty)
    print_table(
        "Tokens a CPU second",
        ("work", "ours", "peer", "ratio"),
        [
            [r["work"], *(f"{r[k] / 1e6:.2f} M" for k in ("ours", "peer")), f"{r['ratio']:.1f}x"]
            for r in rows
        ],
    )
    console.print(
        f"one sentence from a loaded model: {single[0]:.2f} ms, python-crfsuite {single[1]:.2f} ms"
    )
    for what, found in (("without kernels on disk", cold), ("with them", warm)):
        console.print(
            f"a new process, {what}: first labels after {found['first labels']:.1f} s "
            f"({found['loaded']:.1f} s to load), compiled {sorted(set(found['compiled']))}"
        )
    rows += [{"work": "one sentence, ms", "ours": single[0], "peer": single[1]}]
    rows += [{"work": "cold start, empty cache", **cold}, {"work": "cold start", **warm}]
    write_results("first_contact", rows, quick=options.quick)


if __name__ == "__main__":
    entry_point(main)
