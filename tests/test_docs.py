"""The Python code on the pages runs, page by page, as a reader would run it."""

from __future__ import annotations

import doctest
import importlib
import inspect
import json
import os
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from sklearn.base import BaseEstimator

from hingeline.cli.app import app
from test_commands import make_files

ROOT = Path(__file__).resolve().parent.parent
#: Code, and what it prints if the next block shows that.
BLOCK = re.compile(r"^```python\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])

OUTSIDE = re.compile(r"\]\((https?:[^)\s]*)\)|^(?:url|repository-code): *(\S+)$", re.MULTILINE)

NOTES = """
from hingeline.data import load_notes
notes = load_notes(n_train=90, n_test=40)
X_train, y_train, X_test, y_test = notes.X_train, notes.y_train, notes.X_test, notes.y_test
"""
#: What a page takes for granted.
BEFORE = {
    "online": NOTES
    + """
batches = [(X_train[k:k + 30], y_train[k:k + 30]) for k in (0, 30)]
X_more, y_more, X_new, y_new = X_train[60:80], y_train[60:80], X_train[80:], y_train[80:]
""",
    "migrating": NOTES
    + """
from hingeline import ChainSSVM
X_train, X_test = ([[{"word": w} for w in x] for x in X] for X in (X_train, X_test))
with open("train.dat", "w") as file:
    file.writelines(f"2 qid:{k} 1:1 3:{k}\\n1 qid:{k} 2:1\\n" for k in range(1, 9))
""",
    "semisupervised": """
words = "A . Berg . Fast trees . Journal of Words , pages 3 - 9 , 1999 .".split()
labels = ["author"] * 4 + ["title"] * 3 + ["journal"] * 4 + ["pages"] * 5 + ["date"] * 2
labelled_X, labelled_y = [words] * 3, [labels] * 3
unlabelled_X = dev_X = test_X = [words] * 5
dev_y = [labels] * 5
""",
    "cheat_sheet": "",
}
#: The pages that read files, for which small ones do.
FILES = {"dependencies"}
#: The pages that use published data.
PUBLISHED = {"tagging": "conll2002"}


#: What a page shows of a line that prints: a number behind it, or the line below.
SHOWN = re.compile(r"^print\(.*\)(?:  # ([\d.]+)|\n# (.+))$", re.MULTILINE)
#: A score, and what the page says of it.
SCORE = re.compile(r"^(\w+\.score\(.*\))  # ([\d.]+)", re.MULTILINE)


def round_numbers(text: str) -> str:
    return re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.3g}", text)


def find_blocks() -> list:
    cases = []
    for page in PAGES:
        blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
        if blocks:
            marks = [pytest.mark.data] if page.stem in PUBLISHED else []
            marks += [pytest.mark.slow] if page.stem in {"nu", "distributed", *PUBLISHED} else []
            cases.append(pytest.param(page.stem, blocks, id=page.stem, marks=marks))
    return cases


@pytest.mark.parametrize(("page", "blocks"), find_blocks())
def test_the_code_on_a_page_runs(page, blocks, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if page in PUBLISHED:
        data = os.environ.get("HINGELINE_DATA")
        if not data:
            pytest.skip("HINGELINE_DATA is not set")
        for path in (Path(data) / PUBLISHED[page]).iterdir():
            Path(path.name).symlink_to(path.resolve())
    if page in FILES:
        make_files(tmp_path)
    scope = {"__name__": "page"}
    exec(BEFORE.get(page, ""), scope)
    for number, (block, below) in enumerate(blocks, start=1):
        exec(compile(block, f"{page}.md, block {number}", "exec"), scope)
        printed = round_numbers(capsys.readouterr().out)
        assert round_numbers(below) in printed, f"{page}.md shows {below}"
        for call, shown in SCORE.findall(block):
            assert eval(call, scope) == pytest.approx(float(shown), abs=5e-4), f"{page}.md: {call}"
        if page == "features":
            table = round_numbers((ROOT / "docs" / "features.md").read_text(encoding="utf-8"))
            scores = re.findall(r"^(\S+) +([\d.]+)$", printed, re.MULTILINE)
            rows = [re.search(rf"`{re.escape(a)}` .* {b} \|", table) for a, b in scores]
            assert [row is not None for row in rows] == [True] * 5, printed
        if page in PUBLISHED:  # the figures are those of its data
            for shown in map("".join, SHOWN.findall(block)):
                assert round_numbers(shown) in printed, f"{page}.md shows {shown}"


def test_pages_show_no_gap_that_differs_between_processors():
    """Below the tolerance, a gap is what rounding made of it; only 0 is 0 everywhere."""
    shown = re.compile(r"at most (?!0\.0)\d+\.\d+ ?% above the optimum")
    for page in PAGES:
        code = "".join(map("".join, BLOCK.findall(page.read_text(encoding="utf-8"))))
        assert not shown.search(code), page.name


def test_commands_on_the_pages_have_the_options_they_name():
    """In blocks and in the text; their files are the reader's."""
    group, seen = typer.main.get_command(app), 0
    command = re.compile(r"(?:^(?:\$ )?|`)hingeline ([a-z][a-z-]* [^`\n]*)", re.MULTILINE)
    for page in PAGES:
        for line in command.findall(page.read_text(encoding="utf-8").replace("\\\n", " ")):
            name, *words = shlex.split(re.split(r"\s+#|\s[|;&>]\s|…", line)[0])
            found = group.get_command(None, name)
            if found is None:
                continue  # hingeline in a sentence
            known = {"--help", *(o for p in found.params for o in (*p.opts, *p.secondary_opts))}
            options = {word.partition("=")[0] for word in words if re.match("--?[A-Za-z]", word)}
            assert options <= known, (page.name, line)
            seen += 1
    assert seen > 40


MODULES = [path for path in (ROOT / "src").rglob("*.py") if ">>> " in path.read_text("utf-8")]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_the_examples_of_docstrings_give_what_they_show(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_every_public_name_has_a_place_in_the_reference():
    import hingeline
    from hingeline import baselines, constraints, data, distributed, features, report, schemes

    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    listed = {line.strip().rpartition(".")[2] for line in text.splitlines()}
    inside = {"PUNCTUATION", "FORMATS", "__version__"}  # constants
    for module in (hingeline, baselines, constraints, data, distributed, features, report):
        assert set(module.__all__) - listed - inside == set(), module.__name__
    own = [f for f in vars(schemes).values() if getattr(f, "__module__", "") == schemes.__name__]
    shown = {f.__name__ for f in own if ">>>" in (f.__doc__ or "")}
    assert shown - listed == set()


def test_every_attribute_is_in_the_docstring_of_its_class():
    import hingeline

    classes = [getattr(hingeline, name) for name in hingeline.__all__]
    for cls in (c for c in classes if isinstance(c, type) and issubclass(c, BaseEstimator)):
        made = {name for name in dir(cls) if re.fullmatch("[a-zA-Z]\\w*_", name)}
        told = inspect.cleandoc(cls.__doc__).partition("\nAttributes\n")[2]
        assert {name for name in made if not re.search(rf"\b{name}\b", told)} == set(), cls


def test_the_reference_links_to_scikit_learn_and_numpy():
    """By roles in docstrings, and by types for which conf.py has addresses."""
    conf = (ROOT / "docs" / "conf.py").read_text(encoding="utf-8")
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]
    for role in (r":func:`sklearn\.", r":class:`sklearn\."):
        assert any(re.search(role, text) for text in sources), role
    assert '"ndarray": "numpy.ndarray"' in conf
    assert any(re.search(r"_ : ndarray\b", text) for text in sources)


def test_the_cheat_sheet_fits_its_columns():
    text = (ROOT / "docs" / "cheat_sheet.md").read_text(encoding="utf-8")
    assert max(len(line) for line in BLOCK.findall(text)[0][0].splitlines()) <= 45
    css = (ROOT / "docs" / "_static" / "site.css").read_text(encoding="utf-8")
    assert "@media print" in css
    assert ":class-container: cheat" in text


def test_the_guide_begins_with_a_tagger_and_ends_with_the_roadmap():
    text = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    pages = re.findall(r"^[a-z_]+$", text, re.MULTILINE)
    assert pages[:5] == ["tagging", "features", "choosing", "cheat_sheet", "formats"]
    assert pages[-1] == "roadmap"


def test_pages_load_nothing_from_elsewhere():
    """What the pages themselves bring in; the theme comes with the site."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"<(script|img|link|iframe)[^>]*(src|href)=.?https?:", text), page.name
        assert not re.search(r"!\[[^\]]*\]\(https?:", text), page.name


def test_the_page_of_figures_is_what_the_results_say():
    root = str(ROOT / "tools")
    sys.path.insert(0, root)
    try:
        from benchmark_page import PAGE, make
    finally:
        sys.path.remove(root)
    hint = "run python tools/benchmark_page.py"
    assert PAGE.read_text(encoding="utf-8") == make(), hint


#: The result files of the tables in a section of docs/benchmarks.md, by how its heading begins.
SOURCES = {
    "From a file to a tagger": ["chunking_end_to_end"],
    "Taggers on other data": ["taggers"],
    "Sequences": ["conll", "conll-early", "ocr-large", "ocr-small", "predict"],
    "Multi-class": ["multiclass"],
    '`C="auto"`': ["choice_of_C"],
    "Tables\n": ["tables", "tables_fresh"],
    "Scaling": ["scaling"],
    "Many labels": ["brown"],
    "Long sequences": ["lengths", "lengths_weights"],
    "The default C": ["defaults_taggers"],
    "Few or noisy labels": ["defaults_few", "defaults_moves"],
    "Numbers of any size": ["defaults"],
    "Tables with one label a row": ["defaults"],
}


def find_numbers(value):
    """All numbers of a result, and by how much the scores of a row differ from its default."""
    if isinstance(value, dict):
        scores = value.get("scores", {})
        yield from (abs(s - scores["default"]) for s in scores.values() if "default" in scores)
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from find_numbers(inner)
    elif isinstance(value, (int, float)):
        yield abs(float(value))


@pytest.mark.parametrize("section", SOURCES)
def test_figures_in_tables_of_benchmarks_are_those_of_the_results(section):
    """After rounding, as they are or in per cent or thousands; not what was measured by hand."""
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    (part,) = [part for part in text.split("\n## ") if part.startswith(section)]
    files = [ROOT / "benchmarks" / "results" / f"{name}.json" for name in SOURCES[section]]
    results = [json.loads(file.read_text(encoding="utf-8"))["rows"] for file in files]
    known = np.array([number for result in results for number in find_numbers(result)])
    known = np.concatenate([known, 100 * known, known / 1000])
    seen = 0
    for row in re.findall(r"^\|.*\|$", part, re.MULTILINE):
        if "before |" in row:  # by hand, as the section says
            continue
        row = re.sub(r"[\d.]+ \(figure \d\)", "", row).replace(",", "")  # of a paper
        for shown in re.findall(r"(?<![\d.])\d+\.\d+", row):
            half = 0.5001 * 10.0 ** -len(shown.partition(".")[2])
            assert np.nanmin(np.abs(known - float(shown))) <= half, (shown, row)
            seen += 1
    assert seen >= 5


@pytest.mark.parametrize("kind", ["guide", "reference"])
def test_targets_and_misses_are_with_the_experiments(kind):
    """Who wants to do something reads what to expect, not which aims there were."""
    docs = ROOT / "docs"
    toctree = (docs / f"{kind}.md").read_text(encoding="utf-8")
    listed = re.findall(r"^[a-z_]+$", toctree, re.MULTILINE)
    assert len(listed) >= 4
    aims = re.compile(r"\*\*(missed|reached|met)\b|asked for:|\| aim \|", re.IGNORECASE)
    for page in listed:
        text = (docs / f"{page}.md").read_text(encoding="utf-8")
        assert not aims.search(text), page
        assert not re.search(r"\bby hand\b", text), f"{page}: notes of measurements"


def test_times_of_a_service_are_those_that_were_measured():
    path = ROOT / "benchmarks" / "results" / "first_contact.json"
    rows = {row["work"]: row for row in json.loads(path.read_text(encoding="utf-8"))["rows"]}
    text = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8").replace("\n", " ")
    assert f"takes {rows['one sentence, ms']['ours']:.2f} ms" in text
    assert f"{rows['dicts to labels, all sentences']['ours'] / 1e6:.2f} million words" in text
    assert f"after {rows['cold start']['first labels']:.1f} s" in text
    assert f"after {rows['cold start, empty cache']['first labels']:.1f} s" in text


def test_links_lead_somewhere():
    """Sphinx checks those of the site; these are the pages that are read beside it."""
    pages = [*ROOT.glob("*.md"), ROOT / "benchmarks" / "README.md"]
    assert len(pages) > 3
    for page in pages:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            if not link.startswith(("http:", "https:", "#")):
                assert (page.parent / link.partition("#")[0]).exists(), f"{page.name}: {link}"


def test_links_to_other_sites_are_well_formed():
    """Whether they still lead somewhere only ``sphinx -b linkcheck`` can tell, with a network."""
    pages = {*PAGES, *ROOT.glob("*.md"), *(ROOT / "benchmarks").glob("*.md"), ROOT / "CITATION.cff"}
    texts = {page.name: page.read_text(encoding="utf-8") for page in pages}
    found = [(n, a or b) for n, text in texts.items() for a, b in OUTSIDE.findall(text)]
    assert len(found) >= 3
    for name, link in found:
        assert re.fullmatch(r"https://([a-z0-9-]+\.)+[a-z]{2,}(/[!-~]*)?", link), (name, link)
    assert "python -m sphinx -b linkcheck docs " in texts["CONTRIBUTING.md"]
