"""What ``@njit`` brings to a structure of one's own: the gallery's, compiled and interpreted.

One command: ``python benchmarks/own_structures.py``. CPU time of one decode with the loss, and of a
fit of some examples to a gap of 5 %; compilation is told apart. The interpreted structure has the
same lines, run by Python, as has the solver around it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from harness import argument_parser, console, entry_point, write_results
from hingeline import SSVM

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
PAGES = {
    "ranking": ("Ranking", ("discount", "gains")),
    "grammar": ("Grammar", ()),
    "alignment": ("Alignment", ("lengths",)),
}


def open_page(name: str) -> dict[str, Any]:
    """The names that a gallery page defines before it trains."""
    cells = (EXAMPLES / f"own_{name}.py").read_text(encoding="utf-8").split("# %%")
    training = next(k for k, cell in enumerate(cells) if "SSVM(" in cell)
    lines = "\n".join(cells[:training]).splitlines()
    text = "\n".join(line for line in lines if not line.startswith("check_structure("))
    scope: dict[str, Any] = {"__name__": "page"}
    exec(compile(text, name, "exec"), scope)
    return scope


def measure(structure: Any, X: Any, y: Any, repeat: int) -> dict[str, float]:
    """Seconds of the first fit, of a fit after it and of one decode."""
    found: dict[str, float] = {}
    outputs = [structure.pack(output) for output in y]
    for word in ("first fit", "fit"):
        started = time.process_time()
        model = SSVM(structure, C=1.0, tol=0.05, random_state=0).fit(X, y)
        found[word] = time.process_time() - started
    started = time.process_time()
    for _ in range(repeat):
        for x, truth in zip(X, outputs, strict=True):
            structure.decode(x, model.weights_, truth, 1.0)
    found["decode, µs"] = 1e6 * (time.process_time() - started) / (repeat * len(X))
    return {**found, "gap": model.duality_gap_ / model.primal_objective_}


def main() -> None:
    """Print a row per structure."""
    options = argument_parser(__doc__).parse_args()
    n = 5 if options.quick else 30
    rows = []
    for name, (kind, helpers) in PAGES.items():
        page = open_page(name)
        structure, X, y = page[kind](), page["X"][:n], page["y"][:n]
        compiled = measure(structure, X, y, 100)
        for helper in helpers:
            page[helper] = page[helper].py_func
        methods = {m: getattr(page[kind], m) for m in ("joint_feature", "loss", "decode")}
        plain = type(kind, (page[kind],), {m: staticmethod(f.py_func) for m, f in methods.items()})
        python = measure(plain(), X, y, 1)
        row = {
            "structure": name,
            "examples": len(X),
            "compiled": compiled,
            "python": python,
            "decode, times as fast": python["decode, µs"] / compiled["decode, µs"],
            "fit, times as fast": python["fit"] / compiled["fit"],
            "compilation": compiled["first fit"] - compiled["fit"],
        }
        console.print(row)
        rows.append(row)
    write_results("own_structures", rows, quick=options.quick)


if __name__ == "__main__":
    entry_point(main)
