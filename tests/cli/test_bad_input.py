"""Bad input: one sentence, exit code 2, and nothing half-written."""

from __future__ import annotations

import os
import re
import stat
import sys

import pytest

import hingeline
from cli.commands import (
    conll,
    conllu,
    crfsuite,
    done,
    idx,
    letters,
    refused,
    run,
    sentences,
    svmhmm,
    svmlight,
    write,
)

TRAIN, TEST = sentences(20, 0), sentences(8, 1)
CONTENTS = {
    "conll": lambda data: conll(data, 0, 2),
    "conllu": conllu,
    "crfsuite": crfsuite,
    "svmhmm": svmhmm,
    "svmlight": svmlight,
    "letters": letters,
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A model of each format."""
    folder = tmp_path_factory.mktemp("models")
    for name, content in CONTENTS.items():
        done("train", write(folder / name, content(TRAIN)), "-m", folder / f"{name}.hinge")
    return folder


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "train", conll(TRAIN, 0, 2))
    write(tmp_path / "test", conll(TEST, 0, 2))
    return tmp_path


def everywhere(models, file, name="conll"):
    """What train, predict, evaluate and explain say to a file; none of them writes anything."""
    folder = file.parent
    before = sorted(folder.iterdir())
    model = models / f"{name}.hinge"
    found = [refused("train", file, "-m", folder / "m.hinge", "-q", "--format", name)]
    found += [refused("train", file, "-m", folder / "m.hinge", "-q")]
    found += [refused("predict", model, file, "-o", folder / "out")]
    found += [refused(command, model, file) for command in ("predict", "evaluate", "explain")]
    assert sorted(folder.iterdir()) == before
    return found


# Files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["--foo", "bogus"])
def test_there_is_no_such_command_or_option(word):
    assert re.match(rf"no such \w+:? '?{word}'?; see hingeline --help\.$", refused(word))


def test_missing_files_and_folders(models, tmp_path):
    for file in (tmp_path / "none", tmp_path / "none" / "none"):
        for command in ("train", "predict", "evaluate", "explain", "info"):
            first = [] if command in ("train", "info") else [models / "conll.hinge"]
            last = ["-m", tmp_path / "m"] if command == "train" else []
            assert str(file) in refused(command, *first, file, *last)
    # A variable of the shell that is not set.
    assert refused("train", "", "-m", tmp_path / "m") == "'': No such file or directory."
    file = tmp_path / "folder"
    file.mkdir()
    for message in everywhere(models, file):
        assert f"{file} is a folder: name a file in it, or all of them" in message
    assert "folder" in refused("info", file)
    assert "folder" in refused("predict", file, models / "conll")


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf"])
def test_empty_files(models, tmp_path, name, content):
    file = write(tmp_path / "file", content)
    for message in everywhere(models, file, name):
        assert "empty" in message
        assert str(file) in message


@pytest.mark.parametrize("name", CONTENTS)
def test_binary_files(models, tmp_path, name):
    file = write(tmp_path / "file", bytes(range(256)) * 3)
    for message in everywhere(models, file, name):
        assert str(file) in message


@pytest.mark.parametrize("name", CONTENTS)
def test_other_encodings(models, tmp_path, name):
    """Latin-1 in the fourth line."""
    lines = CONTENTS[name](TRAIN).encode().splitlines(keepends=True)
    lines[3] = "é\t".encode("latin-1") + lines[3]
    file = write(tmp_path / "file", b"".join(lines))
    for message in everywhere(models, file, name):
        assert f"{file}:4" in message
        assert "UTF-8" in message


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("conll", "one too many\n"),
        ("conllu", "1\tfew\tcolumns\n"),
        ("crfsuite", "O\tsize:many\n"),
        ("svmhmm", "1 qid:9 3:1 2:1\n"),
        ("svmhmm", "1 3:1\n"),
        ("svmlight", "1 3:one\n"),
        ("svmlight", "word 3:1\n"),
        ("letters", "1\ta\n"),
    ],
)
def test_malformed_lines(models, tmp_path, name, line):
    lines = CONTENTS[name](TRAIN).splitlines(keepends=True)
    start = 40
    while name == "conllu" and lines[start].strip():
        start += 1
    file = write(tmp_path / "file", "".join([*lines[: start + 1], line, *lines[start + 1 :]]))
    model = models / f"{name}.hinge"
    for message in (
        refused("train", file, "-m", tmp_path / "m.hinge", "--format", name),
        refused("predict", model, file),
        refused("evaluate", model, file),
        refused("explain", model, file),
    ):
        assert message.startswith(f"{file}:{start + 2}: ")
    assert list(tmp_path.iterdir()) == [file]


def test_gzip_that_ends_early(models, tmp_path):
    whole = write(tmp_path / "whole.gz", conll(TRAIN, 0, 2)).read_bytes()
    file = tmp_path / "file"
    file.write_bytes(whole[:-20])
    for message in everywhere(models, file):
        assert "gzip" in message


def test_unlabelled_training_data(models, folder):
    bare = write(folder / "bare", conll(TRAIN, 0))
    assert "single column" in refused("train", bare, "-m", folder / "m.hinge")
    bare = write(folder / "bare", '{"tokens": ["a", "b"], "tags": ["O"]}\n')
    said = refused("train", bare, "-m", folder / "m.hinge")
    assert said.endswith("one list of items, not two: give each object words, and as many labels.")
    bare = write(folder / "bare", conllu(TRAIN, upos=False))
    assert "no labels to learn from" in refused("train", bare, "-m", folder / "m.hinge")
    bare = write(folder / "bare", idx([[[1, 2], [3, 4]]] * 3))
    assert "no labels to learn from" in refused("train", bare, "-m", folder / "m.hinge")
    assert not (folder / "m.hinge").exists()


@pytest.mark.parametrize("columns", [(0, 1, 2), (0, 1, 1, 2)])
def test_wrong_number_of_columns(models, folder, columns):
    file = write(folder / "file", conll(TEST, *columns))
    for command in ("predict", "evaluate", "explain"):
        message = refused(command, models / "conll.hinge", file)
        assert f"{file} has {len(columns)} columns" in message
        assert "(word, col1)" in message
    arguments = ("train", folder / "train", "-m", folder / "m.hinge", "--dev", file)
    assert f"{file} has {len(columns)} columns" in refused(*arguments)
    assert not (folder / "m.hinge").exists()


@pytest.mark.parametrize(
    ("model", "file"),
    [
        ("conll", "svmlight"),
        ("svmlight", "conll"),
        ("svmhmm", "crfsuite"),
        ("crfsuite", "svmhmm"),
        ("letters", "svmlight"),
        ("conllu", "crfsuite"),
    ],
)
def test_files_of_another_kind(models, model, file):
    path = models / file
    refused("predict", models / f"{model}.hinge", path)
    message = refused("predict", models / f"{model}.hinge", path, "--format", file)
    assert str(path) in message
    assert file in message
    assert "format" in refused("predict", models / f"{model}.hinge", path, "-f", "nope")


def test_kinds_that_cannot_be_learnt(tmp_path):
    file = write(tmp_path / "file", "(S (N dogs) (V bark))\n")
    assert "trees" in refused("train", file, "-m", tmp_path / "m.hinge")


def test_labels_that_training_has_not_seen(models, folder):
    """They count as errors, in evaluation and while stopping early."""
    file = write(folder / "file", conll(TEST, 0, 2).replace("B-LOC", "B-ORG"))
    text = done("evaluate", models / "conll.hinge", file, "--labels")
    row = next(line.split() for line in text.splitlines() if line.startswith("B-ORG"))
    assert row[1:4] == ["0.0000"] * 3
    assert int(row[4]) == file.read_text().count("B-ORG") > 0
    done("train", folder / "train", "-m", folder / "m.hinge", "--dev", file)
    rows = write(folder / "rows", "9 1:1\n1 2:1\n")
    assert "9" in done("evaluate", models / "svmlight.hinge", rows)
    rows = write(folder / "rows", "8 1:1\n9 2:1\n")
    assert "none of the labels (8, 9)" in refused("evaluate", models / "svmlight.hinge", rows)
    file = write(folder / "file", "a 1:0.5\nb 1:1\n")
    assert "none of the labels" in refused("evaluate", models / "conll.hinge", file)


def test_one_label(models, folder):
    file = write(folder / "file", "a O\nb O\n\nc O\n\n")
    done("train", file, "-m", folder / "m.hinge")
    assert done("predict", folder / "m.hinge", file) == "a O O\nb O O\n\nc O O\n\n"
    assert "one label only" in refused("explain", folder / "m.hinge", file)


# Options ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--format", "nope"], "no format 'nope'"),
        (["--solver", "nope"], "'sdm'"),
        (["--slack", "nope"], "'squared'"),
        (["--loss", "nope"], "'hamming', 'zero_one'"),
        (["--loss", "zero_one", "--slack", "sum"], "--loss zero_one"),
        (["--rescale", "nope"], "'margin'"),
        (["--scheme", "nope"], "IOB2"),
        (["--dtype", "float8"], "float16"),
        (["-C", "0"], "C must be greater than 0 (infinity is a hard margin)"),
        (["-C", "-1"], "C must be greater than 0"),
        (["-C", "nan"], "C must be greater than 0"),
        (["--tol", "0"], "tol must be greater than 0"),
        (["--tol", "nan"], "'--tol'"),
        (["--tol", "5"], "less than or equal to 1"),  # not per cent
        (["--max-time", "0"], "--max-time must be greater than 0"),
        (["--n-jobs", "0"], "--n-jobs"),
        (["--seed", str(2**32)], "--seed"),
        (["--grid", "C=1"], "--dev"),
        (["--dev", "test", "--grid", "D=1"], "C=0.01,0.1,1"),
        (["--dev", "test", "--grid", "C="], "C=0.01,0.1,1"),
        (["--dev", "test", "--grid", "C=1,x"], "C=0.01,0.1,1"),
        (["--dev", "test", "--grid", "C=1,0"], "--grid: C must be greater than 0"),
        (["--dev", "test", "--grid", "C=1,nan"], "--grid: C must be greater than 0"),
        (["--dev", "test", "--grid", "C=1", "--checkpoint", "c"], "use one of them"),
        (["--patience", "3"], "--patience waits for a better score"),
        (["--checkpoint-every", "3"], "pass --checkpoint FILE"),
        (["--violators", "2"], "leave it out for --slack max"),
        (["--resume"], "--checkpoint"),
        (["--checkpoint", "none/c"], "no folder none"),
        (["--checkpoint", "."], "is a folder"),
        (["--checkpoint", "m.hinge"], "name another file"),
        (["--checkpoint", "train"], "name another file"),
        (["--checkpoint", "./test"], "is not a checkpoint"),
        (["--checkpoint", "c", "--checkpoint-every", "inf"], "--checkpoint-every"),
        (["--model", "none/m.hinge"], "no folder none"),
        (["--model", "."], "is a folder"),
        (["--model", "-"], "--model: the standard output will not do"),
        (["--model", "../folder/train"], "name another file"),
        (["--dev", "test", "--model", "test"], "name another file"),
    ],
)
def test_options_are_checked_before_the_data_are_read(tmp_path, monkeypatch, options, words):
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    write(folder / "train", conll(TRAIN, 0, 2))
    write(folder / "test", conll(TEST, 0, 2))
    before = {file: file.read_bytes() for file in folder.iterdir()}
    result = run("train", "train", "-m", "m.hinge", *options)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1  # not even that the file was read
    assert result.stderr.startswith("hingeline: ")
    assert words in result.stderr
    assert {file: file.read_bytes() for file in folder.iterdir()} == before


@pytest.mark.parametrize(
    "options",
    [
        ["--C", "x"],
        ["--patience", "0"],
        ["--hash-bits", "99"],
        ["--min-count", "0"],
        ["--nonsense"],
    ],
)
def test_options_that_are_no_numbers(folder, options):
    result = run("train", folder / "train", "-m", folder / "m.hinge", *options)
    assert result.exit_code == 2
    assert result.stderr.startswith("hingeline: ")
    assert result.stderr.count("\n") == 1
    assert options[0] in result.stderr
    assert "Traceback" not in result.stderr
    assert not (folder / "m.hinge").exists()


def test_held_out_files(folder):
    arguments = ("train", folder / "train", "-m", folder / "m.hinge", "--dev")
    bare = write(folder / "bare", conll(TEST, 0))
    assert refused(*arguments, bare).startswith("--dev: ")
    assert "none" in refused(*arguments, folder / "none")
    assert "empty" in refused(*arguments, write(folder / "bare", b""))
    assert "twice" in refused("train", "-", "-m", folder / "m.hinge", "--dev", "-")
    assert not (folder / "m.hinge").exists()


def test_options_of_predict(models, folder):
    sequences, rows = models / "conll.hinge", models / "svmlight.hinge"
    assert "cannot be combined" in refused(
        "predict", sequences, folder / "test", "--margin", "--nbest", 2
    )
    for option in (["--margin"], ["--nbest", 2]):
        assert "not for svmlight" in refused("predict", rows, models / "svmlight", *option)
    said = refused("predict", models / "conllu.hinge", models / "conllu", "--margin")
    assert said.endswith("CoNLL-U has no room for one."), said  # no word of --raw
    for output in (folder / "none" / "out", folder):
        for option in ([], ["--nbest", 2]):
            message = refused("predict", sequences, folder / "test", "-o", output, *option)
            assert message.startswith(f"--output: cannot write {output}: ")
    for output in (folder / "test", sequences):
        assert "is also an input" in refused("predict", sequences, folder / "test", "-o", output)
    assert "is also an input" in refused("info", sequences, "--weights", sequences)
    assert "also an input" in refused("convert", folder / "test", folder / "test", "--to", "conll")
    said = refused("evaluate", sequences, folder / "test", "--scheme", "x")
    assert said.startswith("--scheme must be one of")  # not a fault of the file
    assert "not for svmlight" in refused("evaluate", rows, models / "svmlight", "--strict")
    raw = ("predict", sequences, folder / "test", "--raw", "--format")
    assert "leave --format out" in refused(*raw, "conll")


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(folder):
    closed = folder / "closed"
    closed.mkdir(mode=0o500)
    message = refused("train", folder / "train", "-m", closed / "m.hinge")
    assert f"no permission to write in {closed}: name another folder" in message


@pytest.mark.skipif(sys.platform == "win32", reason="named pipes")
def test_what_is_no_file_is_not_replaced(folder):
    """A device or a pipe would be gone for everybody."""
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        done("train", folder / "train", "-m", pipe, "--dtype", "float32")
        assert stat.S_ISFIFO(pipe.stat().st_mode)
        assert b"hingeline" in os.read(reader, 200)
    finally:
        os.close(reader)
    message = refused("train", folder / "train", "-m", folder / "m.hinge", "--checkpoint", pipe)
    assert "is not a checkpoint" in message
    assert "not a regular file" in refused("predict", pipe, folder / "test")


# Models -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["predict", "evaluate", "explain", "info"])
def test_files_that_are_no_models(models, folder, command):
    content = (models / "conll.hinge").read_bytes()
    flipped = bytearray(content)
    flipped[-9] ^= 1
    cases = {
        "empty": (b"", "empty"),
        "text": (conll(TRAIN, 0, 2).encode(), "text file"),
        "pickle": (b"\x80\x04\x95" + bytes(100), "pickle"),
        "short": (content[: len(content) // 2], "cut short"),
        "shorter": (content[:40], "cut short"),
        "longer": (content + b"more", "longer.hinge"),
        "huge": (b"\xff" * 8 + content[8:], "header"),
    }
    if command != "info":
        cases["damaged"] = (bytes(flipped), "checksum")
    for name, (wrong, words) in cases.items():
        model = write(folder / f"{name}.hinge", wrong)
        file = [] if command == "info" else [folder / "test"]
        message = refused(command, model, *file)
        assert str(model) in message
        assert words in message


@pytest.mark.parametrize(
    "layout",
    [
        "text",
        5,
        [],
        {},
        {"format": "conll", "kind": "tokens"},
        {"format": ["conll"], "kind": "tokens", "columns": ["word"], "label": "tag"},
        {"format": "nope", "kind": "tokens", "columns": ["word"], "label": "tag"},
        {"format": "conll", "kind": "flat", "columns": ["word"], "label": "tag"},
        {"format": "conll", "kind": "tokens", "columns": 5, "label": "tag"},
        {"format": "conll", "kind": "tokens", "columns": [5], "label": "tag"},
        {"format": "conll", "kind": "tokens", "columns": ["word"], "label": "word"},
        {"format": "conll", "kind": "tokens", "columns": ["word"], "label": "t", "names": ["t"]},
        {"format": "conll", "kind": "tokens", "columns": ["word"], "label": "tag", "more": 1},
        {"format": "svmlight", "kind": "flat"},
        {"format": "svmhmm", "kind": "sequences", "zero_based": "perhaps"},
        {"format": "trees", "kind": "trees"},
    ],
)
def test_hostile_descriptions_of_files(models, folder, layout):
    model = hingeline.load(models / "conll.hinge")
    model.save(folder / "m.hinge", metadata={"layout": layout})
    for command in ("predict", "evaluate", "explain"):
        assert "makes no sense" in refused(command, folder / "m.hinge", folder / "test")
    done("info", folder / "m.hinge")


# The machine ------------------------------------------------------------------------------------


def test_too_little_memory(folder, monkeypatch):
    def fit(self, X, y):
        raise MemoryError("Unable to allocate 60 GiB")

    monkeypatch.setattr(hingeline.ChainSSVM, "fit", fit)
    message = refused("train", folder / "train", "-m", folder / "m.hinge")
    assert "60 GiB" in message
    assert "fewer features" in message


def test_a_disk_that_is_full(folder, monkeypatch):
    done("train", folder / "train", "-m", folder / "m.hinge")
    before = (folder / "m.hinge").read_bytes()

    def full(number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    arguments = ("train", folder / "train", "-m", folder / "m.hinge", "-C", "7")
    assert refused(*arguments) == f"--model: {folder / 'm.hinge'}: No space left on device."
    checkpoint = ("--checkpoint", folder / "c", "--checkpoint-every", 0, "--tol", "1e-6")
    said = run(*arguments, *checkpoint).stderr
    assert f"the checkpoint {folder / 'c'} cannot be written (No space left on device)" in said
    assert said.endswith(f"--model: {folder / 'm.hinge'}: No space left on device.\n")
    assert (folder / "m.hinge").read_bytes() == before
    assert {file.name for file in folder.iterdir()} == {"train", "test", "m.hinge"}


def test_running_text_without_raw_is_told_of_it(models, folder):
    text = write(folder / "notes.txt", "Ann met Bob .\nShe sat .\n")
    for content in ("Ann met Bob .\nShe sat .\n", "Ann met Bob .\n"):
        said = refused("predict", models / "conll.hinge", write(text, content))
        assert said.endswith("(for running text, pass --raw)."), said
    assert "B-PER" in done("predict", models / "conll.hinge", text, "--raw")
    table = "word,tag\n" + conll(TRAIN, 0, 2).replace(" ", ",")
    done("train", write(folder / "t.csv", table), "-m", folder / "csv.hinge")
    said = refused("predict", folder / "csv.hinge", write(text, "Ann met Bob .\nShe sat .\n"))
    assert said.endswith("for running text, pass --raw."), said


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_full_disk(models, folder):
    said = refused("predict", models / "conll.hinge", folder / "test", "-o", "/dev/full")
    assert said.endswith("/dev/full: No space left on device."), said
