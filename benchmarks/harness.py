"""Timing, bookkeeping and printing shared by all benchmarks.

A `Measurement` is one timed run of one system. `interleave` runs several systems in turn, so that
a slow spell of the machine meets all of them. A `Comparison` sets ours beside a peer and judges
the ratio against its `Target`; what is missed is printed as missed.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from datasets import BenchmarkError

RESULTS = Path(__file__).resolve().parent / "results"
PACKAGES = (
    "hingeline",
    "numpy",
    "scipy",
    "numba",
    "scikit-learn",
    "python-crfsuite",
    "liblinear-official",
)
T = TypeVar("T")
console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)


class Timing(NamedTuple):
    """Elapsed and processor seconds (user and system, all threads) of one piece of work."""

    wall: float
    cpu: float


NO_TIME = Timing(0.0, 0.0)


@dataclass(frozen=True)
class Measurement:
    """One timed run of one system on one task.

    Parameters
    ----------
    system : str
        Who ran, with the settings that matter.
    timing : Timing
        Seconds of the piece of work that is compared.
    parts : dict of str to float
        Elapsed seconds of pieces reported apart and counted in the total (feature encoding).
    quality : dict of str to float
        What the run reached: scores, objectives, gaps.
    """

    system: str
    timing: Timing
    parts: dict[str, float] = field(default_factory=dict)
    quality: dict[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """Elapsed seconds with the parts."""
        return self.timing.wall + sum(self.parts.values())


class Series(NamedTuple):
    """The repeated runs of one system and their median."""

    median: Measurement
    runs: list[Measurement]


class Target(NamedTuple):
    """The ratio that must be reached and the one aimed at."""

    must: float
    aim: float


@dataclass(frozen=True)
class Comparison:
    """Ours beside a peer.

    Parameters
    ----------
    task : str
        Name of the row.
    ours, peer : Series
        The runs of both sides; the ratio is peer seconds over our seconds.
    target : Target or None
        None where the row is only for information.
    conditions : dict of str to bool
        What must hold besides the ratio, such as the score.
    judged : bool
        False on a quick run, whose ratios mean nothing.
    """

    task: str
    ours: Series
    peer: Series
    target: Target | None = None
    conditions: dict[str, bool] = field(default_factory=dict)
    judged: bool = True

    @property
    def ratio(self) -> float:
        """Median elapsed seconds of the peer over ours."""
        return self.peer.median.timing.wall / self.ours.median.timing.wall

    @property
    def cpu_ratio(self) -> float:
        """Median processor seconds of the peer over ours."""
        return self.peer.median.timing.cpu / self.ours.median.timing.cpu

    @property
    def total_ratio(self) -> float:
        """The ratio with the parts that are reported apart."""
        return self.peer.median.total / self.ours.median.total

    @property
    def verdict(self) -> str:
        """Return "aim reached", "reached" or "missed" with the reason."""
        if not self.judged:
            return "not judged (quick)"
        failed = [name for name, holds in self.conditions.items() if not holds]
        if failed:
            return "missed: not " + ", not ".join(failed)
        if self.target is None:
            return "for information"
        if self.ratio < self.target.must:
            return "missed"
        return "aim reached" if self.ratio >= self.target.aim else "reached"

    def record(self) -> dict[str, Any]:
        """Return everything as plain data for the result file."""
        return {
            "task": self.task,
            "ratio": self.ratio,
            "cpu_ratio": self.cpu_ratio,
            "total_ratio": self.total_ratio,
            "target": None if self.target is None else self.target._asdict(),
            "conditions": self.conditions,
            "verdict": self.verdict,
            "ours": _series_record(self.ours),
            "peer": _series_record(self.peer),
        }


def _series_record(series: Series) -> dict[str, Any]:
    return {"median": record_of(series.median), "runs": [record_of(run) for run in series.runs]}


def record_of(measurement: Measurement) -> dict[str, Any]:
    """Return a measurement as plain data, with its timing by name and its total."""
    plain = asdict(measurement) | {"timing": measurement.timing._asdict()}
    return plain | {"total": measurement.total}


# --- timing ----------------------------------------------------------------------------------


def cpu_seconds() -> float:
    """Return the processor seconds of this process so far, user and system, all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def settle() -> None:
    """Collect garbage and exempt what is loaded from later collections, for both sides alike."""
    gc.collect()
    gc.freeze()


def timed(work: Callable[..., T], *args: Any, **kwargs: Any) -> tuple[T, Timing]:
    """Call `work` and return its result with the seconds it took."""
    gc.collect()
    cpu, wall = cpu_seconds(), time.perf_counter()
    result = work(*args, **kwargs)
    return result, Timing(time.perf_counter() - wall, max(cpu_seconds() - cpu, 1e-6))


def _median(runs: Sequence[Measurement]) -> Measurement:
    def over(mapping: str) -> dict[str, float]:
        names = getattr(runs[0], mapping)
        return {n: statistics.median(getattr(run, mapping)[n] for run in runs) for n in names}

    columns = zip(*(run.timing for run in runs), strict=True)
    timing = Timing(*(statistics.median(column) for column in columns))
    return Measurement(runs[0].system, timing, over("parts"), over("quality"))


def interleave(repeat: int, *systems: Callable[[], Measurement]) -> list[Series]:
    """Run the systems in turn, `repeat` rounds, every second round in reverse order."""
    runs: list[list[Measurement]] = [[] for _ in systems]
    order = list(range(len(systems)))
    for _ in range(repeat):
        for k in order:
            runs[k].append(systems[k]())
            done = runs[k][-1]
            console.print(f"  {done.system}: {done.timing.wall:.3f} s", style="dim")
        order.reverse()
    return [Series(_median(series), series) for series in runs]


# --- what ran where --------------------------------------------------------------------------


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages measured."""
    return {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES}


def machine() -> dict[str, Any]:
    """Describe the machine: processor, cores, memory, system, load."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "system": platform.platform(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def peak_rss_mb() -> float:
    """Return the largest resident size of this process so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def result_path(name: str, quick: bool, suffix: str = ".json") -> Path:
    """Return where a result goes; quick runs never overwrite full ones."""
    RESULTS.mkdir(exist_ok=True)
    return RESULTS / f"{name}{'-quick' if quick else ''}{suffix}"


def commit() -> str:
    """Name the commit measured; a plus sign says that the tree had changes other than results."""
    git = ["git", "-C", str(RESULTS.parents[1])]
    named = [*git, "describe", "--always", "--abbrev=7", "--exclude=*"]
    found = subprocess.run(named, capture_output=True, text=True, check=False).stdout.strip()
    compared = [*git, "diff", "--quiet", "HEAD", "--", ".", ":!benchmarks/results"]
    changed = subprocess.run(compared, capture_output=True, check=False).returncode == 1
    return f"{found}{'+' * changed}" if found else "unknown"


#: The runs that made the rows of a result file so far, where `kept_rows` has read it.
_runs: dict[Path, list[dict[str, str]]] = {}
_COMMIT = commit()


def kept_rows(name: str, *, quick: bool) -> list[dict[str, Any]]:
    """Return the rows of a result file that this run adds to; each keeps the run that made it."""
    path = result_path(name, quick)
    if not path.is_file():
        return []
    document = json.loads(path.read_text(encoding="utf-8"))
    last = {key: document.get(key, "unknown") for key in ("command", "commit", "finished")}
    _runs[path] = document.get("runs", [last])
    rows: list[dict[str, Any]] = document["rows"]
    return [{"run": 0} | row for row in rows]


def write_results(name: str, rows: Any, *, quick: bool) -> Path:
    """Write rows, command, commit, versions and machine to ``results/<name>.json``, atomically.

    Where `kept_rows` has read the file before, ``runs`` lists the command and commit of every run
    that rows are from, and the ``run`` of a row is its place in that list.
    """
    path = result_path(name, quick)
    now = {
        "command": " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "commit": _COMMIT,
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    document: dict[str, Any] = now | {"machine": machine(), "versions": versions(), "rows": rows}
    if path in _runs:
        runs = [*_runs[path], now]
        document["rows"] = [{"run": len(runs) - 1} | row for row in rows]
        document["runs"] = runs
    draft = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        draft.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    console.print(f"written: {path.parent.name}/{path.name}")
    return path


# --- printing and the command line -----------------------------------------------------------


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; the first column is flush left."""
    table = Table(title=title, title_justify="left")
    for k, column in enumerate(columns):
        table.add_column(column, justify="left" if k == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def print_comparisons(title: str, comparisons: Sequence[Comparison]) -> None:
    """Print the ratios with targets and verdicts, then what each side reached."""
    columns = ("task", "ours s", "peer s", "ratio", "CPU ratio", "with encoding", "must", "aim")
    rows = [
        [
            c.task,
            f"{c.ours.median.timing.wall:.3f}",
            f"{c.peer.median.timing.wall:.3f}",
            f"{c.ratio:.2f}x",
            f"{c.cpu_ratio:.2f}x",
            f"{c.total_ratio:.2f}x",
            "" if c.target is None else f"{c.target.must:g}x",
            "" if c.target is None else f"{c.target.aim:g}x",
            c.verdict,
        ]
        for c in comparisons
    ]
    print_table(title, [*columns, "verdict"], rows)
    for c in comparisons:
        for series in (c.ours, c.peer):
            facts = series.median.quality | {f"{k} s": v for k, v in series.median.parts.items()}
            text = ", ".join(f"{name} {value:.6g}" for name, value in facts.items())
            console.print(f"{c.task}: {series.median.system}: {text}", style="dim")


def argument_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options every benchmark has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--repeat", type=int, default=3, help="rounds; medians are reported")
    parser.add_argument("--n-jobs", type=int, default=1, help="threads that our side may use")
    parser.add_argument("--quick", action="store_true", help="small subsets, to test the code")
    return parser


def entry_point(main: Callable[[], None]) -> None:
    """Run a benchmark's main function with one BLAS thread; bad input exits with code 2."""
    try:
        with threadpool_limits(1, user_api="blas"):
            main()
    except BenchmarkError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
