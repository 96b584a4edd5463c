"""From a file to a tagger: ``hingeline train`` against the same job with python-crfsuite.

One command: ``python benchmarks/chunking_end_to_end.py``. Each side is a process of its own on the
same gzipped CoNLL-2000 file; the clock runs from the start of the process to the written model
(reading, encoding, training, writing, and for ours the start of Python with all imports). The
peer's clock starts after its imports. Kernels and the modules' bytecode are compiled before, as
after an installation and a first run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from datasets import data_file
from harness import (
    Comparison,
    Measurement,
    Target,
    Timing,
    argument_parser,
    console,
    entry_point,
    interleave,
    print_comparisons,
    timed,
    write_results,
)
from hingeline.data import read_conll
from hingeline.features import TokenTemplates

TOTAL = Target(15, 30)
ENCODING = Target(6, 12)
LEAST_F1 = 93.7


def _run(*arguments: str) -> tuple[dict[str, Any], Timing]:
    """The JSON that a process prints, and what it took, with its imports."""
    environment = dict(os.environ)
    # An installed package has its bytecode; a checkout may keep it only without this variable.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, *arguments]
    began, before = time.perf_counter(), os.times()
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    wall, after = time.perf_counter() - began, os.times()
    cpu = sum(after[2:4]) - sum(before[2:4])
    return json.loads(done.stdout), Timing(wall, cpu)


def _ours(train: str, test: str, folder: str, n_jobs: int) -> Measurement:
    model = str(Path(folder) / "m.hinge")
    command = ["-m", "hingeline", "train", train, "--model", model, "--json"]
    result, timing = _run(*command, "--n-jobs", str(n_jobs))
    scores, _ = _run("-m", "hingeline", "evaluate", model, test, "--json")
    quality = {f"{name} s": value for name, value in result["seconds"].items()}
    words = read_conll(train).select([0, 1])  # encoded in training; here again, for its time alone
    quality["encode s"] = timed(TokenTemplates().fit_transform, words)[1].wall
    quality |= {"gap %": 100 * result["relative_gap"], "passes": result["passes"]}
    quality |= {"chunk F1 %": 100 * scores["span_f1"], "model MB": result["bytes"] / 1e6}
    quality["start s"] = timing.wall - sum(result["seconds"].values())
    return Measurement("hingeline train", timing, quality=quality)


def _peer(train: str, test: str) -> Measurement:
    script = Path(__file__).with_name("crfsuite_job.py")
    result, _ = _run(str(script), train, test)
    quality = {f"{name} s": value for name, value in result["seconds"].items()}
    quality["chunk F1 %"] = result["f1"]
    return Measurement("python-crfsuite", Timing(result["total"], result["cpu"]), quality=quality)


def main() -> None:
    """Run both sides, print ratios."""
    parser = argument_parser(__doc__)
    options = parser.parse_args()
    train = str(data_file("conll2000/train.txt.gz"))
    test = str(data_file("conll2000/test.txt.gz"))
    with tempfile.TemporaryDirectory() as folder:
        if not options.quick:
            _ours(train, test, folder, options.n_jobs)  # compiles, where nothing is on disk yet
        ours, peer = interleave(
            options.repeat,
            lambda: _ours(train, test, folder, options.n_jobs),
            lambda: _peer(train, test),
        )
    reached = ours.median.quality["chunk F1 %"]
    conditions = {f"chunk F1 >= {LEAST_F1}": reached >= LEAST_F1}
    whole = Comparison("file to model", ours, peer, TOTAL, conditions, not options.quick)
    comparisons = [whole, _encoding(ours, peer, not options.quick)]
    print_comparisons("CoNLL-2000, file to tagger: seconds", comparisons)
    console.print(f"F1: ours {reached:.2f}, peer {peer.median.quality['chunk F1 %']:.2f}")
    rows = [comparison.record() for comparison in comparisons]
    write_results("chunking_end_to_end", rows, quick=options.quick)


def _encoding(ours: Any, peer: Any, judged: bool) -> Comparison:
    """The encoding alone: text in columns to features."""

    def only(series: Any) -> Any:
        runs = [
            Measurement(run.system, Timing(run.quality["encode s"], float("nan")))
            for run in series.runs
        ]
        runs.sort(key=lambda run: run.timing.wall)
        return type(series)(runs[len(runs) // 2], runs)

    return Comparison("encoding alone", only(ours), only(peer), ENCODING, {}, judged)


if __name__ == "__main__":
    entry_point(main)
