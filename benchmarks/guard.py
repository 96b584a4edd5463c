"""The guard of a restructuring: the same numbers, in the same time, before and after.

``python benchmarks/guard.py record`` fits the fixed grid of `guard_cases.py` on tiny generated data
and writes a digest of each model to ``results/guard_digests.json``; ``check`` fits it again and
names what differs. ``time`` and ``compile`` compare two versions of the package: `guard_times.py`.

A digest has three parts: the bytes of the weights, those of objectives, gap and passes, and the
predictions. Every case is fitted with one thread and with two, which must agree. A combination of
options that is refused with ValueError has the digest "refused": it must stay refused.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import re
import sys
import time
import warnings
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
import scipy.sparse as sp

import guard_times
from guard_cases import FAMILIES, Case, Fitted

DIGESTS = Path(__file__).parent / "results" / "guard_digests.json"

#: What a fit leaves behind beside its weights, where it does.
NUMBERS = (
    *("primal_objective_", "dual_objective_", "duality_gap_", "n_iter_", "converged_"),
    *("restricted_objective_", "restricted_gap_", "oracle_exact_", "relaxed_objective_"),
    *("relaxed_gap_", "fractional_", "soft_rho_", "structured_objective_", "nu_", "rho_", "C_"),
    *("margin_error_risk_", "support_vector_risk_", "n_margin_errors_", "selected_"),
)


def plain(value: Any) -> Any:
    """Return predictions as lists of plain values; floats as their exact text."""
    if sp.issparse(value):
        return plain(value.toarray())
    if isinstance(value, np.ndarray):
        return [list(value.shape), plain(value.ravel().tolist())]
    if isinstance(value, Mapping):
        return [[str(key), plain(value[key])] for key in value]
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (float, np.floating)):
        return float(value).hex()
    return str(value)


def short(data: bytes) -> str:
    """Return the first digits of a SHA-256 digest."""
    return hashlib.sha256(data).hexdigest()[:10]


def digest(fitted: Fitted) -> str:
    """Return weights, objectives and predictions of a case as three short digests."""
    weights, numbers = [], []
    for model in fitted.models:
        array = np.ascontiguousarray(model.weights_)
        weights.append(f"{array.dtype} {array.shape}".encode() + array.tobytes())
        # Every fit has a C_; that of ν is a result.
        names = [n for n in NUMBERS if n != "C_" or hasattr(model, "nu_")]
        found = [(name, getattr(model, name, None)) for name in names]
        numbers.append([f"{name}={plain(value)}" for name, value in found if value is not None])
    parts = (b"".join(weights), repr(numbers).encode(), repr(plain(fitted.predictions)).encode())
    return " ".join(short(part) for part in parts)


def run_case(case: Case) -> str:
    """Fit a case with one thread and with two, and return the digest on which they agree."""
    found = []
    for n_jobs in (1, 2):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found.append(digest(case.fit(n_jobs)))
        except ValueError:
            found.append("refused")
        except Exception as error:  # a crash is a finding, and the other cases go on
            found.append(f"{type(error).__name__}: {error}"[:100])
    return found[0] if found[0] == found[1] else f"two threads differ from one: {found}"


def run_family(name: str, only: str) -> tuple[str, dict[str, str], float]:
    """Return a family's name, the digests of the cases that `only` matches, and its CPU seconds."""
    began = time.process_time()
    digests: dict[str, str] = {}
    for case in FAMILIES[name]():
        if re.search(only, case.name):
            if case.name in digests:
                raise SystemExit(f"two cases are called {case.name}")
            digests[case.name] = run_case(case)
    return name, digests, time.process_time() - began


def run_grid(only: str, processes: int) -> dict[str, str]:
    """Run all families, each in one process, and return the digests by name."""
    digests: dict[str, str] = {}
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(run_family, name, only) for name in FAMILIES]):
            name, found, seconds = done.result()
            if found:
                print(f"{name:16s} {len(found):5d} cases {seconds:7.1f} s of CPU", file=sys.stderr)
            digests |= found
    return dict(sorted(digests.items()))


# --- commands --------------------------------------------------------------------------------


def versions() -> dict[str, str]:
    """Return what the bits of a float may depend on beside the code."""
    return {
        "machine": platform.machine(),
        "processor": str(llvm.get_host_cpu_name()),
        "numba": numba.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def record(only: str, processes: int) -> int:
    """Write the digests; with `only`, of the cases that match it."""
    found = run_grid(only, processes)
    kept = json.loads(DIGESTS.read_text())["digests"] if only and DIGESTS.exists() else {}
    kept = {name: value for name, value in kept.items() if not re.search(only, name)}
    text = {"versions": versions(), "digests": dict(sorted((kept | found).items()))}
    DIGESTS.write_text(json.dumps(text, indent=1, ensure_ascii=False) + "\n")
    print(f"{len(found)} digests written to {DIGESTS}")
    return 0


def check(only: str, processes: int) -> int:
    """Compare with the digests on record and return 1 where any differs."""
    stored = json.loads(DIGESTS.read_text())
    now = versions()
    for name, value in stored["versions"].items():
        if now[name] != value:
            print(f"recorded with {name} {value}, this is {now[name]}: bits may differ for that")
    expected = {name: value for name, value in stored["digests"].items() if re.search(only, name)}
    found = run_grid(only, processes)
    wrong = [name for name in sorted({*expected, *found}) if expected.get(name) != found.get(name)]
    for name in wrong:
        print(f"{name}\n    was {expected.get(name, 'not there')}")
        print(f"    is  {found.get(name, 'not there')}")
    print(f"{len(wrong)} of {len(expected)} cases differ")
    return int(bool(wrong))


def main() -> int:
    """Run the command asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (("record", "write the digests"), ("check", "compare with the record")):
        command = commands.add_parser(name, help=text)
        command.add_argument("--only", default="", metavar="REGEX", help="cases whose name matches")
        command.add_argument("-j", "--processes", type=int, default=1)
    guard_times.add_commands(commands)
    options = parser.parse_args()
    if options.command in ("time", "compile"):
        return guard_times.run(options)
    return (record if options.command == "record" else check)(options.only, options.processes)


if __name__ == "__main__":
    sys.exit(main())
