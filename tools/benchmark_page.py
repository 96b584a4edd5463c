"""The page of all figures, docs/figures.md, from benchmarks/results: run it after a benchmark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "benchmarks" / "results", ROOT / "docs" / "figures.md"
#: Of a long table; the file has the rest.
MOST_ROWS, MOST_COLUMNS = 24, 9
HEAD = """# All figures

`python tools/benchmark_page.py` writes this page from `benchmarks/results/*.json`, and a test sees
that it did. Each section is one file: the command, when it ended, and its tables, without curves
and single runs. What the figures mean, and which targets they miss, is told in the pages of
[experiments](experiments.md).
"""


def flatten(row: dict[str, Any], before: str = "") -> dict[str, Any]:
    """The numbers and words of a row, those inside of it under the names of both."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if name == "run" or isinstance(value, list):
            continue
        if isinstance(value, dict):
            flat |= flatten(value, f"{before}{name}, ")
        else:
            flat[before + name] = value
    return flat


def compare(row: dict[str, Any]) -> dict[str, Any]:
    """What counts of a comparison with a peer; other rows stay as they are."""
    if not {"task", "ours", "peer", "verdict"} <= row.keys():
        return row
    ours, peer, target = row["ours"]["median"], row["peer"]["median"], row.get("target") or {}
    return {
        "work": row["task"],
        "ours, s": ours["timing"]["wall"],
        "peer": peer["system"],
        "peer, s": peer["timing"]["wall"],
        "ratio": row["ratio"],
        "with features": row["total_ratio"],
        **{name: target.get(name) for name in ("must", "aim")},
        "verdict": row["verdict"],
    }


def show(value: Any) -> str:
    """A value in few digits."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ""}[value]
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    text = f"{value:,}" if isinstance(value, int) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")[:80]


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The lines of a table; columns that no row or every row fills with the same are told first."""
    flat = [flatten(compare(row)) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    names = [name for name in names if any(row.get(name) is not None for row in flat)]
    fixed = [n for n in names if len(flat) > 1 and len({show(row.get(n)) for row in flat}) == 1]
    names = [name for name in names if name not in fixed][:MOST_COLUMNS]
    if fixed:
        yield "; ".join(f"{name}: {show(flat[0][name])}" for name in fixed[:MOST_COLUMNS]) + ".\n"
    if not names:
        return
    yield "| " + " | ".join(show(name) for name in names) + " |"
    yield "| " + " | ".join("---" for _ in names) + " |"
    for row in flat[:MOST_ROWS]:
        yield "| " + " | ".join(show(row.get(name)) for name in names) + " |"
    if len(flat) > MOST_ROWS:
        yield f"\nand {len(flat) - MOST_ROWS} rows more."


def tables(rows: Any, name: str = "") -> Iterator[str]:
    """All tables of a result."""
    if isinstance(rows, list) and rows and isinstance(rows[0], dict):
        yield f"\n**{name}**\n" if name else ""
        yield from table(rows)
    elif isinstance(rows, dict):
        plain = flatten({k: v for k, v in rows.items() if not isinstance(v, (dict, list))})
        if plain:
            yield "\n" + "; ".join(f"{key}: {show(value)}" for key, value in plain.items()) + "."
        for key, value in rows.items():
            inner = f"{name}, {key}" if name else key
            yield from tables([value] if is_row(value) else value, inner)


def is_row(value: Any) -> bool:
    """Whether a dict holds numbers and words only."""
    return isinstance(value, dict) and not any(isinstance(v, (dict, list)) for v in value.values())


def sections() -> Iterator[str]:
    """The page, piece by piece."""
    yield HEAD
    for file in sorted(RESULTS.glob("*.json")):
        result = json.loads(file.read_text(encoding="utf-8"))
        if "rows" not in result:
            continue
        yield f"\n## {file.stem}\n"
        machine = result.get("machine", {})
        where = f", {machine['processor']}, {machine['cores']} cores" if machine else ""
        yield f"`{result['command']}`, {result['finished'][:10]}{where}.\n"
        yield from tables(result["rows"])


def make() -> str:
    """The text of the page."""
    return "\n".join(sections()).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(make(), encoding="utf-8")
