"""What single sections say: the fit, and where a model comes from."""

from __future__ import annotations

import datetime
import hashlib
import math

import numpy as np
import pytest

from hingeline.core.results import HistoryRow
from hingeline.report import render_report
from hingeline.report.sections import (
    Facts,
    command_text,
    describe_convergence,
    hash_files,
    seed_words,
)

NAN = float("nan")

# The fit -----------------------------------------------------------------------------------------


def row(time, passes, primal, dual, gap):
    return HistoryRow(time, passes, 10 * passes, primal, dual, gap, 1.0, 5)


def facts(history, gap=1.0, tol=0.01, **more):
    last = history[-1] if history else row(0, 0, NAN, NAN, NAN)
    return Facts(
        last.primal, last.dual, gap, len(history), True, True, "converged", history, tol, **more
    )


def test_history_between_certificates():
    history = [
        row(1.0, 1, NAN, 1.0, NAN),
        row(2.0, 2, 5.0, 2.0, 3.0),
        row(3.0, 3, NAN, 2.5, NAN),
        row(4.0, 4, 4.0, 3.0, 1.0),
    ]
    found = describe_convergence(facts(history))
    assert len(found["charts"]) == 4
    assert "2 certificates were made" in found["about"]
    rows = found["certificates"].rows
    assert [r[0] for r in rows] == ["2", "4"]
    assert [r[-1] for r in rows] == ["60.00\u00a0%", "25.00\u00a0%"]


def test_an_infinite_primal_stays_in_the_table():
    history = [row(0.1, 1, math.inf, 1.0, math.inf), row(0.2, 2, 3.0, 2.0, 1.0)]
    assert describe_convergence(facts(history))["certificates"].rows[0][4] == "∞"


def test_no_history():
    found = describe_convergence(facts([]))
    assert found["charts"] == []
    assert "no training history" in found["about"]


def test_many_certificates_are_sampled():
    history = [row(k / 10, k, 100.0 - k / 10, 50.0, 50.0 - k / 10) for k in range(1, 301)]
    table = describe_convergence(facts(history))["certificates"]
    assert len(table.rows) == 24
    assert (table.rows[0][0], table.rows[-1][0]) == ("1", "300")
    assert "24 of 300" in table.caption


def test_changed_weights_are_told_from_the_curve():
    history = [row(0.5, 1, 4.0, 3.0, 1.0)]
    assert "changed since" in describe_convergence(facts(history, gap=NAN))["about"]
    unbounded = describe_convergence(facts(history, gap=NAN, oracle_bounds=False))
    assert "changed since" not in unbounded["about"]


# Provenance --------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "train.txt"
    path.write_bytes(b"some data\n" * 1000)
    return path


def test_files_are_hashed(file):
    digest = hashlib.sha256(b"some data\n" * 1000).hexdigest()
    assert hash_files(file) == [("", str(file), 10_000, digest)]
    assert hash_files([str(file)]) == hash_files(file)
    assert hash_files({"training": file}) == [("training", str(file), 10_000, digest)]
    assert hash_files(None) == []


def test_names_are_shown_as_given(file, monkeypatch, chain, parse):
    monkeypatch.chdir(file.parent)
    page = render_report(chain[0], data={"training": "train.txt"})
    assert str(file.parent) not in page
    (table,) = parse(page).one(id="provenance").all("table", class_="files")
    cells = [c.text for c in table.one("tbody").one("tr").children]
    assert cells[:3] == ["training", "train.txt", "10,000"]
    assert cells[3] == hashlib.sha256(b"some data\n" * 1000).hexdigest()


def test_files_without_roles(file, chain, parse):
    (table,) = parse(render_report(chain[0], data=[file])).all("table", class_="files")
    assert [th.text for th in table.one("thead").all("th")] == ["file", "bytes", "SHA-256"]


def test_hashes_of_files_that_are_not_at_hand():
    known = {"training": {"name": "a.txt", "sha256": "12ab", "bytes": 7}}
    assert hash_files(known) == [("training", "a.txt", 7, "12ab")]
    assert hash_files({"t": {"name": "a", "sha256": "b"}}) == [("t", "a", None, "b")]


def test_bad_data(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"data\['t'\]: cannot read .*nothing: No such"):
        hash_files({"t": tmp_path / "nothing"})
    with pytest.raises(IsADirectoryError, match="cannot read"):
        hash_files([tmp_path])
    with pytest.raises(ValueError, match=r"data\['t'\] must have a 'name' and a 'sha256'"):
        hash_files({"t": {"name": "a"}})
    with pytest.raises(TypeError, match="got int"):
        hash_files(3)
    with pytest.raises(TypeError, match="must be a path, got int"):
        hash_files([3])


def test_commands():
    assert command_text("a 'b'") == "a 'b'"
    assert command_text(["train", "my file", "-C", "1"]) == "train 'my file' -C 1"
    with pytest.raises(TypeError, match="command must be text or a list"):
        command_text(3)


def test_seeds():
    assert seed_words(7) == "7"
    assert seed_words(np.int64(7)) == "7"
    assert "none was set" in seed_words(None)
    assert seed_words(np.random.default_rng(0)) == "a Generator, whose state is not recorded"


def test_date_only_if_given(chain, parse):
    def names(page):
        section = parse(page).one(id="provenance")
        return {row.all("th")[0].text: row.all("td")[0].text for row in section.all("tr")}

    assert "date" not in names(render_report(chain[0]))
    found = names(render_report(chain[0], date=datetime.date(2026, 1, 2)))
    assert found["date"] == "2026-01-02"
    assert found["seed"] == "0"
    assert {"Python", "Hingeline", "NumPy", "Numba"} <= set(found)
    assert found["NumPy"] == np.__version__
