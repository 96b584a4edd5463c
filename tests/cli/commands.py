"""Small files of every format, and the command line on them."""

from __future__ import annotations

import gzip
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

import hingeline
from hingeline.cli.app import app

SOURCES = Path(hingeline.__file__).parents[1]
WORDS = {
    "B-PER": ("Ann", "Bob", "Eve"),
    "I-PER": ("Lee", "Kim"),
    "B-LOC": ("Rome", "Oslo"),
    "O": ("ran", "sat", "to", "the"),
}


def run(*arguments, input=None):
    """The command in this process; any exception but an exit is the test's failure."""
    result = CliRunner().invoke(app, [str(a) for a in arguments], input=input)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def done(*arguments, input=None):
    """The standard output of a command that must succeed."""
    result = run(*arguments, input=input)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments, input=None):
    """The sentence of a command that must refuse its input."""
    result = run(*arguments, input=input)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    *progress, last = result.stderr.splitlines()
    assert last.startswith("hingeline: "), result.stderr
    noise = [line for line in progress if "compiling kernels" not in line]
    assert not any(line.startswith("hingeline: ") for line in noise), result.stderr
    assert "Traceback" not in result.stderr
    assert last.endswith((".", "?")), last
    return last.removeprefix("hingeline: ")


def environment():
    """Of a process that imports this very package."""
    return {**os.environ, "PYTHONPATH": str(SOURCES)}


def spawn(*arguments, **options):
    """The command in a process of its own."""
    command = [sys.executable, "-m", "hingeline", *map(str, arguments)]
    return subprocess.Popen(command, env=environment(), **options)


# Data -------------------------------------------------------------------------------------------


def sentences(n, seed, noise=0.1):
    """Sentences of (word, tag of speech, IOB2 tag); some words tell nothing."""
    rng = random.Random(seed)
    found = []
    for _ in range(n):
        rows = []
        for _ in range(rng.randint(2, 7)):
            inside = ["I-PER"] * 3 if rows and rows[-1][2].endswith("PER") else []
            tag = rng.choice(["O", "O", "B-PER", "B-LOC", *inside])
            word = rng.choice(WORDS[tag]) if rng.random() >= noise else "x"
            rows.append((word, "N" if word[0].isupper() else "V", tag))
        found.append(rows)
    return found


def conll(data, *columns):
    """Some of the columns, separated by spaces."""
    lines = ["".join(" ".join(row[k] for k in columns) + "\n" for row in rows) for rows in data]
    return "\n".join(lines) + "\n"


def conllu(data, upos=True):
    """With comments, and the tag as upos."""
    blocks = []
    for i, rows in enumerate(data):
        lines = [f"# sent_id = {i}\n"]
        for t, (word, speech, tag) in enumerate(rows, start=1):
            fields = [str(t), word, "_", tag if upos else "_", speech, *"_____"]
            lines.append("\t".join(fields) + "\n")
        blocks.append("".join(lines))
    return "\n".join(blocks) + "\n"


def crfsuite(data):
    """Attributes of the word, one with a value."""
    lines = [
        "".join(f"{tag}\tw={word}\tsize:{len(word) / 5}\n" for word, _, tag in rows)
        for rows in data
    ]
    return "\n".join(lines) + "\n"


def _numbers():
    words = sorted({word for group in WORDS.values() for word in group} | {"x"})
    return {word: k for k, word in enumerate(words, start=1)}


TAGS = {tag: k for k, tag in enumerate(sorted(WORDS), start=1)}


def svmhmm(data, first=1):
    """Words by number, counted from ``first``."""
    number = _numbers()
    lines = []
    for i, rows in enumerate(data, start=1):
        for word, speech, tag in rows:
            k = number[word] + first - 1
            lines.append(f"{TAGS[tag]} qid:{i} {k}:1 {20 + (speech == 'N')}:0.5\n")
    return "".join(lines)


def svmlight(data, first=1):
    """Tokens as rows of their own."""
    lines = []
    for line in svmhmm(data, first).splitlines():
        label, _, *pairs = line.split()
        lines.append(" ".join([label, *pairs]) + "\n")
    return "".join(lines)


def letters(data):
    """Tags as letters, and pixels that mostly tell them."""
    rng = random.Random(len(data))
    lines, number = [], 0
    for i, rows in enumerate(data):
        for t, (_, _, tag) in enumerate(rows):
            number += 1
            following = number + 1 if t + 1 < len(rows) else -1
            pixels = [int(k // 32 == TAGS[tag] - 1) ^ (rng.random() < 0.05) for k in range(128)]
            fields = [number, "abcd"[TAGS[tag] - 1], following, i, t, i % 10, *pixels]
            lines.append("\t".join(map(str, fields)) + "\t\n")
    return "".join(lines)


def idx(array):
    """Unsigned bytes in the format of MNIST."""
    array = np.asarray(array, dtype=np.uint8)
    shape = np.array(array.shape, dtype=">u4").tobytes()
    return bytes([0, 0, 8, array.ndim]) + shape + array.tobytes()


def write(path, content):
    """Write text or bytes, gzipped if the name says so; the path."""
    content = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    return path


def labels_of(data, k=2):
    return [row[k] for rows in data for row in rows]
