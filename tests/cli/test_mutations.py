"""Damaged files: every command ends with exit code 0 or 2, and says why in one sentence."""

from __future__ import annotations

import json
import random
import signal
import time

import pytest

from cli.commands import (
    conll,
    conllu,
    crfsuite,
    done,
    idx,
    letters,
    run,
    sentences,
    svmhmm,
    svmlight,
    write,
)

pytestmark = pytest.mark.fuzz

SMALL = sentences(6, 0)
CONTENTS = {
    "conll": conll(SMALL, 0, 1, 2),
    "conllu": conllu(SMALL),
    "csv": "sentence,word,tag\n"
    + "".join(f"{i},{w},{tag}\n" for i, rows in enumerate(SMALL) for w, _, tag in rows),
    "jsonl": "".join(
        json.dumps({"tokens": [row[0] for row in rows], "tags": [row[2] for row in rows]}) + "\n"
        for rows in SMALL
    ),
    "crfsuite": crfsuite(SMALL),
    "svmhmm": svmhmm(SMALL),
    "svmlight": svmlight(SMALL),
    "letters": letters(SMALL[:3]),
    "idx": idx([[[k, k + 1], [9, 8 * (k % 3)]] for k in range(12)]),
}
BYTES = {
    name: content if isinstance(content, bytes) else content.encode()
    for name, content in CONTENTS.items()
}
#: What readers may stumble over.
PIECES = (
    *(b"\t", b" ", b"\n", b"\n\n", b"\r\n", b"\0", b":", b"\\", b"#", b"-", b"_", b"=", b"("),
    *(b"nan", b"inf", b"1e999", b"-1", b"0", b"0:1", b"qid:", b"qid:7", b"99999", b"1.5", b"{"),
    *("é".encode(), "\u2028".encode(), b"\xef\xbb\xbf", b"\xff", b"\x1f\x8b", b"-DOCSTART-"),
    *(b"O", b"B-PER", b'"'),
)
#: Seconds for each format.
BUDGET = 1.0
#: Seconds of computing after which a command hangs.
HANGS = 60.0


def mutated(content, rng):
    """The content with a few changes, of bytes, pieces, stretches and lines."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice((1, 2, 8, 64)))
        change = rng.randrange(8)
        if change == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif change == 1:
            data[at:at] = bytes([rng.randrange(256)])
        elif change in (2, 3):
            data[at : at + rng.choice((0, 1, 3))] = rng.choice(PIECES)
        elif change == 4:
            del data[at:end]
        elif change == 5:
            data[at:at] = data[at:end]
        elif change == 6:
            lines = data.split(b"\n")
            k = rng.randrange(len(lines))
            lines.insert(rng.randrange(len(lines)), lines.pop(k))
            data = bytearray(b"\n").join(lines)
        else:
            del data[at:]
    return bytes(data)


def bounded(*arguments):
    """Run a command and check how it ends."""

    def hangs(number, frame):
        raise AssertionError(f"{arguments} takes more than {HANGS:g} s")

    timed = hasattr(signal, "setitimer")
    if timed:  # of processor time, as a test may have to wait for its turn
        before = signal.signal(signal.SIGPROF, hangs)
        signal.setitimer(signal.ITIMER_PROF, HANGS)
    try:
        result = run(*arguments)
    finally:
        if timed:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)
    assert result.exit_code in (0, 2), result.output
    if result.exit_code == 2:
        last = result.stderr.splitlines()[-1]
        assert last.startswith("hingeline: "), result.stderr
        assert sum(line.startswith("hingeline: ") for line in result.stderr.splitlines()) == 1
        assert "Traceback" not in result.stderr
    return result


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name, content in BYTES.items():
        file = folder / ("a-images-idx3" if name == "idx" else name)
        write(file, content)
        if name == "idx":
            write(folder / "a-labels-idx1", idx([k % 3 for k in range(12)]))
        done("train", file, "-m", folder / f"{name}.hinge")
    return folder


@pytest.mark.parametrize("name", BYTES)
def test_damaged_data(name, models, tmp_path):
    rng = random.Random(name)
    file = tmp_path / ("a-images-idx3" if name == "idx" else "file")
    labels = tmp_path / "a-labels-idx1"
    model, fresh, output = models / f"{name}.hinge", tmp_path / "m.hinge", tmp_path / "out"
    codes = {0: 0, 2: 0}
    end = time.process_time() + BUDGET
    while time.process_time() < end or min(codes.values()) < 2:
        images, truth = BYTES[name], (models / "a-labels-idx1").read_bytes()
        both = name == "idx" and rng.random() < 0.5
        file.write_bytes(images if both else mutated(images, rng))
        if name == "idx":
            labels.write_bytes(mutated(truth, rng) if both else truth)
        format = rng.choice((name, "auto"))
        limits = ("--max-iter", 20, "-q")
        result = bounded("train", file, "-m", fresh, "--format", format, *limits)
        codes[result.exit_code] += 1
        assert fresh.exists() == (result.exit_code == 0)
        for path in (model, fresh) if fresh.exists() else (model,):
            result = bounded("predict", path, file, "-o", output)
            assert output.exists() == (result.exit_code == 0)
            codes[result.exit_code] += 1
            output.unlink(missing_ok=True)
            bounded("evaluate", path, file, "--json")
        bounded("explain", model, file, "--json")
        target = rng.choice(("conll", "conllu", "crfsuite", "svmhmm", "svmlight"))
        result = bounded("convert", file, output, "--to", target, "--format", format)
        assert output.exists() == (result.exit_code == 0)
        output.unlink(missing_ok=True)
        fresh.unlink(missing_ok=True)
        left = {entry.name for entry in tmp_path.iterdir()} - {file.name, labels.name}
        assert not left


def test_damaged_models(models, tmp_path):
    rng = random.Random(1)
    file = tmp_path / "m.hinge"
    end = time.process_time() + 2 * BUDGET
    codes = {0: 0, 2: 0}
    while time.process_time() < end or codes[2] < 20:
        name = rng.choice(list(BYTES))
        data = models / ("a-images-idx3" if name == "idx" else name)
        file.write_bytes(mutated((models / f"{name}.hinge").read_bytes(), rng))
        for command in ("predict", "evaluate", "explain"):
            codes[bounded(command, file, data).exit_code] += 1
        bounded("info", file)
        bounded("info", file, "--top", 2, "--json")
    assert {entry.name for entry in tmp_path.iterdir()} == {"m.hinge"}
