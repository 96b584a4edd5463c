"""Part-of-speech tagging of the whole Brown corpus with its full set of 472 tags.

One command: ``python benchmarks/brown.py``. Of the 57,340 sentences 48,242 are drawn at random for
training and the others are the test part. Two taggers are trained: on the tags as they are, and on
the tags without the suffixes -TL (title), -HL (headline) and -NC (cited word). Each runs in a
process of its own, whose largest resident size is reported: it covers reading the corpus, encoding,
training and prediction. The seconds are those of the fit, encoding included, after a small
warm-up fit has compiled the kernels.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import warnings
from typing import Any

import numpy as np

from datasets import BenchmarkError
from harness import (
    argument_parser,
    console,
    entry_point,
    peak_rss_mb,
    print_table,
    timed,
    write_results,
)
from hingeline import ChainSSVM
from hingeline.features import TokenTemplates
from ours import WARM_UP_NOTE, WARM_UP_SEQUENCES, certificate
from published import load_brown

TRAIN_SENTENCES = 48_242
QUICK_SENTENCES = 1_000
SEED = 0
PARAMS = {"C": 0.1, "tol": 0.01}
MIN_COUNT = 2
TEMPLATES = [
    *(f"word[{place}]" for place in (-2, -1, 0, 1, 2)),
    "lower(word[0])",
    *(f"prefix(word[0],{n})" for n in (1, 2, 3, 4)),
    *(f"suffix(word[0],{n})" for n in (1, 2, 3, 4)),
    *(f"suffix(word[{place}],{n})" for place in (-1, 1) for n in (2, 3)),
    *(f"shape(word[{place}],collapse)" for place in (-1, 0, 1)),
    "match(word[0],'[0-9]')",
    "match(word[0],'-')",
]
MOST_SECONDS = 15 * 60
MOST_MB = 6 * 1024
LEAST_ACCURACY = {"full": 94.0, "stripped": 96.0}

SUFFIXES = re.compile(r"(-(TL|HL|NC))+$")


def tags_for(task: str, sentences: list[list[str]]) -> list[list[str]]:
    """Return the tags of a task: all of them, or without the suffixes."""
    if task == "full":
        return sentences
    return [[SUFFIXES.sub("", tag) for tag in sentence] for sentence in sentences]


def train_and_test(options: argparse.Namespace) -> dict[str, Any]:
    """Train one tagger in this process, and return what it took and reached."""
    table = load_brown().table
    words, tags = table.select(["word"]), tags_for(options.child, table.sentences("tag"))
    order = np.random.default_rng(SEED).permutation(len(table))
    chosen, others = np.sort(order[:TRAIN_SENTENCES]), np.sort(order[TRAIN_SENTENCES:])
    if options.quick:
        chosen, others = chosen[:QUICK_SENTENCES], others[:QUICK_SENTENCES]
    classes = sorted({tag for sentence in tags for tag in sentence})
    known = {tag for i in chosen for tag in tags[i]}

    def fit(part: np.ndarray, **changes: Any) -> ChainSSVM:
        tagger = ChainSSVM(
            **PARAMS | changes,
            features=TokenTemplates(TEMPLATES, min_count=MIN_COUNT),
            random_state=SEED,
            n_jobs=options.n_jobs,
        )
        # Not plain fit: the tag set is the corpus's, also where the draw has no token of a tag.
        return tagger.partial_fit(words[part], [tags[i] for i in part], classes=classes)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is not meant to converge
        fit(chosen[:WARM_UP_SEQUENCES], max_iter=3).predict(words[others[:1]])
    before = peak_rss_mb()
    tagger, training = timed(fit, chosen, verbose=2)
    predicted, prediction = timed(tagger.predict, words[others])
    right = tokens = sentences = 0
    for i, found in zip(others, predicted, strict=True):
        correct = sum(map(str.__eq__, tags[i], found))
        right += correct
        tokens += len(found)
        sentences += correct == len(found)
    return {
        "training sentences": len(chosen),
        "training tokens": int(words[chosen].n_tokens),
        "test sentences": len(others),
        "test tokens": tokens,
        "tags": len(classes),
        "tags in the training part": len(known),
        "features": int(tagger.n_features_in_),
        "weights, MiB": tagger.weights_.nbytes / 2**20,
        "fit, s": training.wall,
        "fit, processor s": training.cpu,
        "predict, s": prediction.wall,
        "peak before the fit, MiB": before,
        "peak, MiB": peak_rss_mb(),
        **certificate(tagger),
        "converged": bool(tagger.converged_),
        "token accuracy %": 100.0 * right / tokens,
        "sentences all right %": 100.0 * sentences / len(others),
    }


def run_child(task: str, options: argparse.Namespace) -> dict[str, Any]:
    """Train one tagger in a fresh process."""
    command = [sys.executable, __file__, "--child", task, "--n-jobs", str(options.n_jobs)]
    command += ["--quick"] * options.quick
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise BenchmarkError(f"The process for {task!r} tags failed with code {done.returncode}.")
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {"task": task, "verdict": verdict(task, row, options.quick)} | row


def verdict(task: str, row: dict[str, Any], quick: bool) -> str:
    """Return "reached" or "missed" with what was."""
    if quick:
        return "not judged (quick)"
    conditions = {
        f"gap <= {100 * PARAMS['tol']:g} %": row["converged"],
        f"{MOST_SECONDS} s": row["fit, s"] <= MOST_SECONDS,
        f"{MOST_MB} MiB": row["peak, MiB"] <= MOST_MB,
        f"accuracy >= {LEAST_ACCURACY[task]:g} %": row["token accuracy %"] >= LEAST_ACCURACY[task],
    }
    failed = [name for name, holds in conditions.items() if not holds]
    return "missed: " + ", ".join(failed) if failed else "reached"


def main() -> None:
    """Train both taggers, or be one of the children."""
    parser = argument_parser(__doc__)
    parser.set_defaults(repeat=1, n_jobs=2)
    parser.add_argument("--task", choices=[*LEAST_ACCURACY, "all"], default="all")
    parser.add_argument("--child", choices=LEAST_ACCURACY, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(train_and_test(options)))
        return
    console.print(WARM_UP_NOTE)
    tasks = list(LEAST_ACCURACY) if options.task == "all" else [options.task]
    rows = [run_child(task, options) for task in tasks]
    settings = {
        **PARAMS,
        "seed": SEED,
        "n_jobs": options.n_jobs,
        "min_count": MIN_COUNT,
        "templates": TEMPLATES,
    }
    write_results("brown", {"settings": settings, "runs": rows}, quick=options.quick)
    text = [
        [
            name,
            *(
                f"{row[name]:.6g}" if isinstance(row[name], float) else str(row[name])
                for row in rows
            ),
        ]
        for name in rows[0]
        if name != "task"
    ]
    print_table("Brown corpus, all tags", ("what", *tasks), text)


if __name__ == "__main__":
    entry_point(main)
