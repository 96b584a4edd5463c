"""How large the house is and how far a reader must walk: the table in CONTRIBUTING.md.

    python tools/measure.py                       this tree
    python tools/measure.py --before OTHER/src    and an older one beside it

Counted are the package's own Python files, stubs (``.pyi``) among them.

files, lines
    all of ``src``, blank lines and comments included
lines without later rooms
    the same without the files of :data:`LATER`, which are features that came after the aim
    for lines was set
files run by a fit
    distinct files in which code runs while ``ChainSSVM.fit`` trains on a few sentences of words,
    seen by a trace; kernels are interpreted so that it sees them. Files that were imported
    before and of which nothing is called do not count
files run by train and predict
    the same for the commands ``hingeline train`` and ``hingeline predict``
import depth
    the longest chain of imports that importing a module sets off, itself counted: module-level
    imports only, cycles cut
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Training in blocks, segments, dependencies, trees of classes and of labels, tables and JSON as
#: files, scales of columns, calibrated models, the page to look at, errors and comparisons in
#: reports.
LATER = (
    *("distributed/*", "*/segment.py", "*/segments.py", "*/dependency.py", "*/dependencies.py"),
    *("features/arcs.py", "features/scales.py", "report/parses.py", "taxonomy.py"),
    *(
        "solvers/label_tree.py",
        "data/records.py",
        "cli/calibrate.py",
        "cli/serve.py",
        "report/errors.py",
    ),
)

#: Runs in a process of its own, with the measured tree first on the path.
TRACE = """
import json, os, sys, threading, warnings
warnings.simplefilter("ignore")
job, folder = sys.argv[1:]
import hingeline
home = os.path.dirname(hingeline.__file__) + os.sep
seen = set()

def note(frame, event, argument):
    name = frame.f_code.co_filename
    if name.startswith(home):
        seen.add(name[len(home):])

threading.setprofile(note)
sentences = [["the", "cat", "sat"], ["a", "dog", "ran", "off"], ["it", "rains"]] * 4
tags = [["D", "N", "V"], ["D", "N", "V", "P"], ["P", "V"]] * 4
if job == "fit":
    from hingeline import ChainSSVM
    words = [[(word,) for word in s] for s in sentences]
    for count in (False, True):  # the first time imports, which run files without calling them
        model = ChainSSVM(C=0.1)
        sys.setprofile(note if count else None)
        model.fit(words, tags)
        sys.setprofile(None)
else:
    from hingeline.cli.app import app
    data, model = os.path.join(folder, "a.conll"), os.path.join(folder, "a.hinge")
    with open(data, "w") as file:
        for s, t in zip(sentences, tags):
            file.write("".join(f"{a} {b}\\n" for a, b in zip(s, t)) + "\\n")
    sys.stdout = open(os.devnull, "w")
    for count in (False, True):  # likewise
        for command in (["train", data, "--model", model], ["predict", model, data]):
            sys.setprofile(note if count else None)
            app(command, standalone_mode=False)
            sys.setprofile(None)
    sys.stdout = sys.__stdout__
print(json.dumps(sorted(seen)))
"""


def files_run(source: Path, job: str) -> list[str]:
    """The files whose functions run in a job; kernels are interpreted so that they are seen."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(source), "NUMBA_DISABLE_JIT": "1"}
        done = subprocess.run(
            [sys.executable, "-c", TRACE, job, folder],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        sys.exit(f"The job {job!r} failed in {source}:\n{done.stderr}")
    return list(json.loads(done.stdout.strip().splitlines()[-1]))


def modules_of(source: Path) -> dict[str, Path]:
    """Module name -> file."""
    found = {}
    for file in sorted((source / "hingeline").rglob("*.py")):
        parts = list(file.relative_to(source).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imports_of(file: Path, modules: dict[str, Path]) -> set[str]:
    """The package's modules that a file imports when it is imported itself."""
    found: set[str] = set()
    todo: list[ast.stmt] = list(ast.parse(file.read_text(encoding="utf-8")).body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in modules else node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        elif isinstance(node, ast.If | ast.Try | ast.With):
            todo.extend(node.body)
    return {name for name in found if name in modules}


def import_depth(source: Path, module: str) -> int:
    """The longest chain of imports from a module down; a module on the way is not met twice."""
    modules = modules_of(source)
    graph = {name: imports_of(file, modules) - {name} for name, file in modules.items()}
    on_the_way: set[str] = set()

    @cache
    def depth(name: str) -> int:
        on_the_way.add(name)
        below = [depth(part) for part in sorted(graph[name]) if part not in on_the_way]
        on_the_way.discard(name)
        return 1 + max(below, default=0)

    return depth(module)


def measure(source: Path) -> dict[str, int]:
    """All figures of one tree."""
    home = source / "hingeline"
    files = [*home.rglob("*.py"), *home.rglob("*.pyi")]
    lines = {file: len(file.read_text(encoding="utf-8").splitlines()) for file in files}
    later = [f for f in files if any(f.relative_to(home).match(pattern) for pattern in LATER)]
    return {
        "files": len(files),
        "lines": sum(lines.values()),
        "lines without later rooms": sum(lines.values()) - sum(lines[file] for file in later),
        "files run by `ChainSSVM.fit`": len(files_run(source, "fit")),
        "files run by `train` and `predict`": len(files_run(source, "command")),
        "import depth of `estimators.chain`": import_depth(source, "hingeline.estimators.chain"),
        "import depth of `cli.train`": import_depth(source, "hingeline.cli.train"),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, help="the src folder of an older tree")
    parser.add_argument("--list", choices=("fit", "command"), help="name the files a job runs")
    chosen = parser.parse_args()
    if chosen.list:
        print("\n".join(files_run(ROOT / "src", chosen.list)))
        return
    now = measure(ROOT / "src")
    before = measure(chosen.before.resolve()) if chosen.before else {}
    print(f"| | {'before | ' if before else ''}now |\n| --- |{' ---: |' * (1 + bool(before))}")
    for name, value in now.items():
        print(f"| {name} | {f'{before[name]:,} | ' if before else ''}{value:,} |")


if __name__ == "__main__":
    main()
