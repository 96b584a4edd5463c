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
#: What the section of a file is called; a new file needs a title.
TITLES = {
    "blocks": "Training in blocks",
    "blocks_C": "Training in blocks: values of C",
    "brown": "Many labels: the Brown corpus",
    "choice_of_C": "C chosen automatically",
    "chunking_end_to_end": "From a file to a chunker",
    "conll-early": "Chunks: time to a given F1",
    "conll": "Chunks: time to a small gap",
    "defaults": "Defaults: pairs, scales, tables",
    "defaults_few": "Defaults: few or noisy labels",
    "defaults_moves": "Defaults: cheaper weights of moves",
    "defaults_taggers": "Defaults: C of taggers",
    "few_labels_citations": "Few labels: citations",
    "few_labels_citations_context": "Few labels: citations, features of neighbours",
    "few_labels_citations_context_default": "Few labels: citations, neighbours, default C",
    "few_labels_citations_signs_and_shape": "Few labels: citations, marks and shapes",
    "few_labels_citations_wide_shapes": "Few labels: citations, wide shapes",
    "few_labels_citations_wider_shapes": "Few labels: citations, wider shapes",
    "few_labels_search_annealed": "Few labels: search of DASO's settings",
    "few_labels_search_features": "Few labels: search of features",
    "few_labels_seminars": "Few labels: seminars",
    "few_labels_seminars_default": "Few labels: seminars, default C",
    "few_labels_umass": "Few labels: UMass citations",
    "few_labels_umass_default": "Few labels: UMass citations, default C",
    "first_contact": "Feature dicts and a cold start",
    "first_hour": "The first hour",
    "graph_solvers": "Solvers for graphs and label sets",
    "graphs_bibtex": "Label sets: bibtex",
    "graphs_horses": "Images: horses",
    "graphs_msrc": "Images: MSRC-21",
    "graphs_scene": "Label sets: scene",
    "graphs_snakes": "Graphs: snakes",
    "graphs_yeast": "Label sets: yeast",
    "guard_compile": "Two versions: compilation",
    "guard_time": "Two versions: time, since the rebuilding",
    "guard_time_last": "Two versions: time, since the last change",
    "guard_two_processes": "Two versions: compiling in two processes",
    "label_switching": "Label switching",
    "lengths": "Long sequences",
    "lengths_weights": "Long sequences: weights by length",
    "memory": "Memory and a first fit",
    "multiclass": "Single labels beside LIBLINEAR",
    "ocr-large": "Handwriting, 6,251 words",
    "ocr-small": "Handwriting, 626 words",
    "online": "Streams",
    "own_structures": "Your own structures",
    "paper_fsmo_figures": "FSMO paper: figures",
    "paper_fsmo_table2": "FSMO paper: table 2",
    "paper_fsmo_table3": "FSMO paper: table 3",
    "paper_lse_figure1": "LSE paper: figure 1",
    "paper_lse_figure2": "LSE paper: figure 2",
    "paper_lse_improved": "LSE paper: tables 3 and 4, improved",
    "paper_lse_printed": "LSE paper: tables 3 and 4, as printed",
    "paper_lse_table5": "LSE paper: table 5",
    "paper_lse_violators": "LSE paper: more violators",
    "paper_nu_auto": "ν paper: ν chosen automatically",
    "paper_nu_figure1": "ν paper: figure 1",
    "paper_nu_path": "ν paper: a path of ν",
    "paper_nu_start": "ν paper: starts at a Gaussian HMM",
    "paper_nu_table1": "ν paper: table 1",
    "paper_nu_tables": "ν paper: tables 2 and 3",
    "paper_nu_timing": "ν paper: times",
    "paper_semisupervised_citations": "Semi-supervised paper: citations",
    "paper_semisupervised_citations_context": "Semi-supervised paper: citations, neighbours",
    "paper_semisupervised_seminars": "Semi-supervised paper: seminars",
    "paper_soft_msrc": "Soft constraints paper: MSRC-21",
    "paper_soft_reuters": "Soft constraints paper: Reuters",
    "paper_soft_yeast": "Soft constraints paper: yeast",
    "predict": "Tagging ready features",
    "scaling": "Training time by size",
    "structures_dependencies": "Dependencies",
    "structures_segments": "Segments",
    "tables": "Tables beside LIBLINEAR: first grid",
    "tables_fresh": "Tables beside LIBLINEAR: third grid",
    "tables_held_back": "Tables beside LIBLINEAR: second grid",
    "taggers": "Taggers beside CRFsuite",
    "taxonomy": "Trees of classes",
}
HEAD = """# All figures

`python tools/benchmark_page.py` writes this page from `benchmarks/results/*.json`, and a test sees
that it did. Each section is one file: its name, the command, when it ended, and its tables, without
curves and single runs. What the figures mean, and which targets they miss, is told in the pages of
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
        yield f"\n## {TITLES[file.stem]}\n"
        machine = result.get("machine", {})
        where = f", {machine['processor']}, {machine['cores']} cores" if machine else ""
        made = f"`{result['command']}`, {result['finished'][:10]}{where}"
        yield f"<small>`{file.name}`: {made}.</small>\n"
        yield from tables(result["rows"])


def make() -> str:
    """The text of the page."""
    return "\n".join(sections()).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(make(), encoding="utf-8")
