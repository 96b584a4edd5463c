"""Result files: every row keeps the command and the commit of the run that made it."""

from __future__ import annotations

import json
import sys

import pytest

import harness


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Write rows as the run of a command and a commit."""
    monkeypatch.setattr(harness, "RESULTS", tmp_path)

    def write(arguments, commit, rows):
        monkeypatch.setattr(sys, "argv", ["x.py", *arguments])
        monkeypatch.setattr(harness, "COMMIT", commit)
        harness.write_results("x", rows, quick=False)
        return json.loads((tmp_path / "x.json").read_text())

    return write


def test_a_single_run_states_its_command_and_commit(run):
    document = run(["--fold", "0"], "aaa", [{"fold": 0}])
    assert document["command"] == "python benchmarks/x.py --fold 0"
    assert document["commit"] == "aaa"
    assert document["rows"] == [{"fold": 0}]


def test_pieces_keep_their_own_command_and_commit(run):
    run(["--fold", "0"], "aaa", [{"fold": 0}, {"fold": 1}])
    rows = harness.read_rows("x", quick=False)
    run(["--fold", "2"], "bbb", [*rows, {"fold": 2}])
    rows = harness.read_rows("x", quick=False)
    # Fold 1 is run again, and the file is written twice on the way.
    rows = [row for row in rows if row["fold"] != 1]
    run(["--fold", "1"], "ccc", [{"fold": 1}, *rows])
    document = run(["--fold", "1"], "ccc", [{"fold": 1}, *rows])
    of = {row["fold"]: document["runs"][row["run"]] for row in document["rows"]}
    assert {fold: made["commit"] for fold, made in of.items()} == {0: "aaa", 1: "ccc", 2: "bbb"}
    assert all(made["command"].endswith(f"--fold {fold}") for fold, made in of.items())
    assert len(document["runs"]) == 3


def test_without_a_file_there_are_no_rows(run):
    assert harness.read_rows("x", quick=False) == []
