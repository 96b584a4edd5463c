"""A new user's first hour: three pages followed from nothing, and what each step takes.

One command: ``python benchmarks/first_hour.py``. In an empty folder, with an empty cache of
kernels: a tagger from one's own CoNLL file (docs/tagging.md, the Spanish names of CoNLL-2002), a
report on it, and a web service (the code of docs/serving.md as it stands there). Then the same
again, with kernels on disk. Installation is not counted.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from datasets import data_file
from harness import argument_parser, entry_point, print_table, write_results

Row = dict[str, Any]
DOCS = Path(__file__).resolve().parents[1] / "docs"


def run(folder: Path, *command: str) -> tuple[float, float]:
    """Elapsed and CPU seconds of a process, whose cache of kernels is in the folder."""
    environment = {**os.environ, "HINGELINE_CACHE_DIR": str(folder / "kernels")}
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - started, cpu


def read_steps(folder: Path) -> list[tuple[str, str, list[str]]]:
    """Page, step and command of everything a new user does."""
    train, test = (str(data_file(f"conll2002/esp.{part}.gz")) for part in ("train", "testb"))
    page = (DOCS / "serving.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    (folder / "service.py").write_text("\n".join(blocks[:2]), encoding="utf-8")
    columns = ["--columns", "word,pos,entity"]
    steps = [
        ("tagging", "train", ["train", train, "--model", "names.hinge", *columns]),
        ("tagging", "evaluate", ["evaluate", "names.hinge", test]),
        ("tagging", "predict", ["predict", "names.hinge", test, "-o", "out.conll"]),
        ("tagging", "report", ["report", "names.hinge", "--test", test, "-o", "names.html"]),
    ]
    own = [(page, step, [sys.executable, "-m", "hingeline", *rest]) for page, step, rest in steps]
    return [*own, ("serving", "train, load, answer", [sys.executable, "service.py"])]


def main() -> None:
    """Follow the pages twice."""
    options = argument_parser(__doc__).parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kernels in ("none", "on disk"):
            for page, step, command in read_steps(folder):
                seconds, cpu = run(folder, *command)
                row = {"page": page, "step": step, "kernels": kernels}
                rows.append(row | {"seconds": seconds, "cpu": cpu})
    table = [[*(r[k] for k in ("page", "step", "kernels")), f"{r['seconds']:.1f}"] for r in rows]
    print_table("Seconds", ("page", "step", "kernels", "seconds"), table)
    write_results("first_hour", rows, quick=options.quick)


if __name__ == "__main__":
    entry_point(main)
