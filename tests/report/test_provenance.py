"""Where a model comes from: hashes, names as given, seeds."""

from __future__ import annotations

import datetime
import hashlib

import numpy as np
import pytest

from hingeline.report import render_report
from hingeline.report.provenance import command_text, data_files, seed_words


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "train.txt"
    path.write_bytes(b"some data\n" * 1000)
    return path


def test_files_are_hashed(file):
    digest = hashlib.sha256(b"some data\n" * 1000).hexdigest()
    assert data_files(file) == [("", str(file), 10_000, digest)]
    assert data_files([str(file)]) == data_files(file)
    assert data_files({"training": file}) == [("training", str(file), 10_000, digest)]
    assert data_files(None) == []


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
    assert data_files(known) == [("training", "a.txt", 7, "12ab")]
    assert data_files({"t": {"name": "a", "sha256": "b"}}) == [("t", "a", None, "b")]


def test_bad_data(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"data\['t'\]: cannot read .*nothing: No such"):
        data_files({"t": tmp_path / "nothing"})
    with pytest.raises(IsADirectoryError, match="cannot read"):
        data_files([tmp_path])
    with pytest.raises(ValueError, match=r"data\['t'\] must have a 'name' and a 'sha256'"):
        data_files({"t": {"name": "a"}})
    with pytest.raises(TypeError, match="got int"):
        data_files(3)
    with pytest.raises(TypeError, match="must be a path, got int"):
        data_files([3])


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
