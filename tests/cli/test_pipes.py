"""Pipes: standard input and output, named ones, and readers that have enough."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading

import pytest

import hingeline
from cli.commands import (
    conll,
    conllu,
    crfsuite,
    done,
    refused,
    sentences,
    spawn,
    svmhmm,
    svmlight,
    write,
)

# isort: split
from marks import slow

TRAIN, TEST = sentences(30, 0), sentences(10, 1)
CONTENTS = {
    "conll": lambda data: conll(data, 0, 1, 2),
    "conllu": conllu,
    "crfsuite": crfsuite,
    "svmhmm": svmhmm,
    "svmlight": svmlight,
}


@pytest.mark.parametrize("name", CONTENTS)
def test_standard_input_and_output(name, tmp_path):
    train, test = (CONTENTS[name](data).encode() for data in (TRAIN, TEST))
    model = tmp_path / "m.hinge"
    done("train", "-", "--model", model, input=train)
    first = hingeline.load(model)
    assert first.metadata_["data"] == [{"name": "-", "sha256": None}]
    file = write(tmp_path / "train", train)
    done("train", file, "--model", model)
    assert hingeline.load(model).weights_.tobytes() == first.weights_.tobytes()
    expected = done("predict", model, write(tmp_path / "test", test))
    assert done("predict", model, "-", "-o", "-", input=test) == expected
    assert done("predict", model, input=test) == expected
    assert done("predict", model, input=gzip.compress(test)) == expected
    assert done("evaluate", model, "-", input=test) == done("evaluate", model, tmp_path / "test")
    assert done("explain", model, input=test) == done("explain", model, tmp_path / "test")
    result = json.loads(done("train", file, "-m", model, "--json", "--dev", "-", input=test))
    assert result["tried"][0]["dev"] > 0.5


def test_errors_name_the_standard_input(tmp_path):
    arguments = ("train", "-", "-m", tmp_path / "m.hinge")
    assert "standard input:2:" in refused(*arguments, "-f", "conll", input="a b\nc\n")
    assert "standard input has a single column" in refused(*arguments, input="a\nb\n")
    assert "empty" in refused(*arguments, input="")
    assert "empty" in refused(*arguments, "-f", "conll", input="")


@pytest.mark.skipif(sys.platform == "win32", reason="named pipes")
@pytest.mark.parametrize("name", CONTENTS)
def test_named_pipes(name, tmp_path):
    """As of ``<(...)`` in a shell: what is read once is gone, and the format is guessed."""
    content = CONTENTS[name](TRAIN).encode()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def fill():
        with open(pipe, "wb") as file:
            file.write(content)

    def filled(*arguments):
        writer = threading.Thread(target=fill)
        writer.start()
        try:
            return done(*arguments)
        finally:
            writer.join(60)

    file = write(tmp_path / "file", content)
    models = [tmp_path / "a.hinge", tmp_path / "b.hinge"]
    filled("train", pipe, "-m", models[0])
    done("train", file, "-m", models[1])
    a, b = map(hingeline.load, models)
    assert a.weights_.tobytes() == b.weights_.tobytes()
    assert filled("predict", models[0], pipe) == done("predict", models[0], file)
    if name != "conllu":
        assert filled("convert", pipe, "-t", name) == done("convert", file, "-t", name)


@pytest.mark.subprocess
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX pipes")
@pytest.mark.parametrize("options", [(), slow(("--nbest", 2))])
def test_a_reader_that_has_enough(tmp_path, options):
    """``hingeline predict … | head -1`` is no error."""
    train = write(tmp_path / "train", CONTENTS["conll"](TRAIN))
    done("train", train, "-m", tmp_path / "m.hinge")
    test = write(tmp_path / "test", CONTENTS["conll"](sentences(4000, 2)))
    process = spawn(
        *("predict", tmp_path / "m.hinge", test, *options),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(300) == 0


@pytest.mark.subprocess
def test_a_process_that_refuses_its_input(tmp_path):
    file = write(tmp_path / "train", "a O\nb\n" + "c O\n" * 20)
    process = spawn(
        *("train", file, "-m", tmp_path / "m.hinge"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, err = process.communicate(timeout=300)
    assert process.returncode == 2
    assert out == ""
    assert err.startswith(f"hingeline: {file}:2: ")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX terminals")
def test_a_terminal_is_told_that_it_is_read(capsys, monkeypatch):
    ours, theirs = os.openpty()
    os.write(ours, b"Ann B\n\x04")
    with os.fdopen(theirs) as keyboard:
        monkeypatch.setattr(sys, "stdin", keyboard)
        assert hingeline.data.read_conll("-").n_tokens == 1
    os.close(ours)
    assert capsys.readouterr().err == "Reading from the keyboard; end with Ctrl-D on a new line.\n"


@pytest.mark.subprocess
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX file descriptors")
@pytest.mark.parametrize("closed", [0, slow(1), slow(2)])
def test_a_closed_stream(tmp_path, closed):
    """As a daemon leaves it, or ``>&-``: the stream is None in Python."""
    source = write(tmp_path / "t", CONTENTS["conll"](TRAIN)) if closed == 1 else "-"
    process = spawn(
        *("convert", source, "-", "--to", "jsonl", "--format", "conll"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: os.close(closed),
    )
    _, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (0, b"")


@pytest.mark.subprocess
def test_text_for_a_pipe_is_utf_8_whatever_the_system_writes(monkeypatch):
    """The help has an ellipsis, explanations arrows and words of any language."""
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    process = spawn("train", "-h", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (0, b"")
    assert "hingeline train [OPTIONS] {DATA…}" in out.decode()
