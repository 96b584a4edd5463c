"""Result files: what is in them, also where several runs make one file."""

from __future__ import annotations

import json

import pytest

import harness


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    monkeypatch.setattr(harness, "_runs", {})

    def run(command, commit):
        monkeypatch.setattr("sys.argv", command.split())
        monkeypatch.setattr(harness, "_COMMIT", commit)
        harness._runs.clear()

    def read():
        return json.loads((tmp_path / "toy.json").read_text())

    return run, read


def test_a_result_names_its_command_and_commit(results):
    run, read = results
    run("toy.py --folds 0", "aaaaaaa")
    harness.write_results("toy", [{"fold": 0}], quick=False)
    document = read()
    assert document["command"] == "python benchmarks/toy.py --folds 0"
    assert document["commit"] == "aaaaaaa"
    assert document["rows"] == [{"fold": 0}]


def test_rows_of_several_runs_keep_the_command_and_commit_of_each(results):
    run, read = results
    for fold, commit in enumerate(("aaaaaaa", "bbbbbbb", "ccccccc")):
        run(f"toy.py --folds {fold} --add", commit)
        rows = harness.kept_rows("toy", quick=False)
        for part in range(2):  # a run writes its file again and again
            rows.append({"fold": fold, "part": part})
            harness.write_results("toy", rows, quick=False)
    document = read()
    made = [document["runs"][row["run"]] for row in document["rows"]]
    assert [row["fold"] for row in document["rows"]] == [0, 0, 1, 1, 2, 2]
    assert [one["commit"] for one in made] == ["aaaaaaa"] * 2 + ["bbbbbbb"] * 2 + ["ccccccc"] * 2
    assert [one["command"].split()[3] for one in made] == ["0", "0", "1", "1", "2", "2"]
    assert len(document["runs"]) == 3
