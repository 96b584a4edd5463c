"""The gallery's structures of one's own: decoding against brute force, and the pages themselves.

By default a page is run up to its training, so that its class is at hand. The slow tests run all
of it: the certificate holds and the baseline is beaten.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from hingeline.structures.custom import is_compiled
from hingeline.testing import check_structure
from marks import slow

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def open_page(name: str, whole: bool) -> dict:
    """The names that a page defines; its own check is left out, ours is harder."""
    cells = (EXAMPLES / f"own_{name}.py").read_text(encoding="utf-8").split("# %%")
    training = next(k for k, cell in enumerate(cells) if "SSVM(" in cell)
    scope: dict = {"__name__": "page"}
    for cell in cells if whole else cells[:training]:
        lines = [line for line in cell.splitlines() if not line.startswith("check_structure(")]
        exec(compile("\n".join(lines), f"own_{name}.py", "exec"), scope)
    return scope


def list_trees(labels: int, start: int, end: int) -> list:
    below = [
        [*left, *right]
        for cut in range(start + 1, end)
        for left in list_trees(labels, start, cut)
        for right in list_trees(labels, cut, end)
    ]
    return [[start, end, a, *parts] for a in range(labels) for parts in below or [[]]]


def draw(name: str, page: dict, random: np.random.Generator) -> tuple:
    """The structure, small examples, and a list of all outputs where the page has none."""
    if name == "matching":
        X, y, _ = page["make_pictures"](4, random, points=3, strangers=1)
        return page["Matching"](), X, y, None
    if name == "ranking":
        return page["Ranking"](), *page["make_queries"](3, random, items=5), None
    if name == "alignment":
        return page["Alignment"](), *page["make_pairs"](4, random, 1, 5), None
    if name == "selection":
        return page["Selection"](), *page["make_texts"](3, random, sentences=8), None
    X, y = page["make_sentences"](40, random)
    short = [k for k in range(len(X)) if len(X[k]) <= 3][:2]
    few = [X[k] for k in short], [y[k] for k in short]
    return page["Grammar"](), *few, lambda x: list_trees(page["LABELS"], 0, len(x))


def uncompile(structure):
    """The structure with its numba functions as plain Python: the same lines, nothing compiled."""
    own = type(structure)
    methods = {name: getattr(own, name) for name in ("joint_feature", "loss", "decode")}
    return type(own.__name__, (own,), {k: staticmethod(m.py_func) for k, m in methods.items()})()


@pytest.mark.parametrize("name", ["matching", "ranking", "grammar", "alignment", "selection"])
def test_decoding_is_exact(name):
    """What pages compile is interpreted here, which takes no seconds of compilation."""
    page = open_page(name, whole=False)
    for helper in {"discount", "gains", "lengths"} & {*page}:
        page[helper] = page[helper].py_func
    structure, X, y, outputs = draw(name, page, np.random.default_rng(5))
    if name in ("ranking", "grammar", "alignment"):
        assert is_compiled(structure)
        structure = uncompile(structure)
    check_structure(structure, X, y, outputs=outputs, n_trials=3, random_state=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ranking", "grammar", "alignment"])
def test_compiled_decoding_is_exact(name):
    structure, X, y, outputs = draw(name, open_page(name, whole=False), np.random.default_rng(6))
    check_structure(structure, X, y, outputs=outputs, random_state=2)


#: What a page calls the score of the model and that of the baseline; larger is better, or smaller.
SCORES = {
    "matching": ("learnt", "alike", 1),
    "ranking": ("ours", "single", 1),
    "grammar": ("error", "baseline", -1),
    "alignment": ("learnt", "plain", 1),
    "selection": ("ours", "greedy", -1),
}


@pytest.mark.parametrize(
    "name", ["matching", *map(slow, ("ranking", "grammar", "alignment", "selection"))]
)
def test_pages_end_with_a_certificate_and_beat_their_baseline(name, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    page = open_page(name, whole=True)
    model, (ours, other, sign) = page["model"], SCORES[name]
    assert model.converged_
    assert 0.0 <= model.duality_gap_ <= model.tol * model.primal_objective_
    assert sign * np.mean(page[ours]) > sign * np.mean(page[other])
    pyplot = pytest.importorskip("matplotlib.pyplot")
    assert pyplot.get_fignums()
    pyplot.close("all")


def test_pages_are_short_and_use_public_names_only():
    for path in EXAMPLES.glob("own_*.py"):
        text = path.read_text(encoding="utf-8")
        assert text.count("\n") <= 150, path.name
        assert "hingeline._" not in text, path.name
        found = re.findall(r"^from (hingeline[\w.]*) import", text, re.MULTILINE)
        assert {*found} <= {"hingeline", "hingeline.testing"}, path.name
