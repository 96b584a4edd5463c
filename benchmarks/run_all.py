"""Run every benchmark, one after the other, each in its own process.

One command: ``python benchmarks/run_all.py [--repeat N] [--n-jobs N] [--quick]``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from harness import argument_parser, console, entry_point

# brown.py is left out: it is measured with two threads, and takes its own time.
SCRIPTS = (
    "chains.py",
    "taggers.py",
    "multiclass.py",
    "tables.py",
    "defaults.py",
    "scaling.py",
    "dependencies.py",
    "lengths.py",
    "first_contact.py",
    "first_hour.py",
    "paper_fsmo.py",
    "paper_lse.py",
    "paper_nu.py",
    "paper_nu_start.py",
    "paper_soft.py",
    "graphs.py",
    "graph_solvers.py",
    "paper_semisupervised.py",
    "online.py",
    "memory.py",
)


def main() -> None:
    """Run the scripts; say at the end which ones failed."""
    options = argument_parser(__doc__).parse_args()
    arguments = ["--repeat", str(options.repeat), "--n-jobs", str(options.n_jobs)]
    arguments += ["--quick"] * options.quick
    failed = []
    for script in SCRIPTS:
        console.rule(script)
        path = Path(__file__).resolve().parent / script
        if subprocess.run([sys.executable, str(path), *arguments], check=False).returncode != 0:
            failed.append(script)
    if failed:
        console.print("failed: " + ", ".join(failed))
        raise SystemExit(1)


if __name__ == "__main__":
    entry_point(main)
