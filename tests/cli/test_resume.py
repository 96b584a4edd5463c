"""A training that is killed or interrupted goes on, and ends as if nothing had happened."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import hingeline
from cli.commands import conll, done, refused, run, sentences, spawn, write
from hingeline import ChainSSVM
from hingeline.modelfile.files import read_header, read_model

# isort: split
from marks import slow

#: Some hundred passes, in a second or two with a checkpoint after each.
LONG = ("-C", "1", "--tol", "5e-4")
KILLS = 6
#: Seconds after which a process that should have got somewhere has not.
PATIENCE = 300


class Killed(Exception):
    """Stands for the end of the process."""


def prepare(folder, n=300):
    return write(folder / "train", conll(sentences(n, 0, noise=0.4), 0, 1, 2))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Weights, passes and curve of the long training."""
    folder = tmp_path_factory.mktemp("undisturbed")
    done("train", prepare(folder), "-m", folder / "m.hinge", *LONG)
    return hingeline.load(folder / "m.hinge")


def assert_same(model, expected):
    assert model.weights_.tobytes() == expected.weights_.tobytes()
    assert model.n_iter_ == expected.n_iter_
    assert model.duality_gap_ == expected.duality_gap_
    assert model.stop_reason_ == expected.stop_reason_
    times, others = zip(*((row[0], row[1:]) for row in model.history_), strict=True)
    assert list(times) == sorted(times)
    np.testing.assert_array_equal(others, [row[1:] for row in expected.history_])


def passes_of(checkpoint):
    """Passes in the checkpoint, 0 if there is none; a file that is there is complete."""
    if not checkpoint.exists():
        return 0
    read_model(checkpoint)
    return read_header(checkpoint)[0]["passes"]


def number_of(file):
    """Another one for every file that took the place."""
    try:
        state = file.stat()
    except FileNotFoundError:
        return None
    return state.st_ino, state.st_mtime_ns


def wait_for(condition, process):
    """Whether the condition came true while the process ran."""
    end = time.monotonic() + PATIENCE
    while process.poll() is None:
        if condition():
            return True
        assert time.monotonic() < end
        time.sleep(0.005)
    return False


@pytest.mark.slow
@pytest.mark.subprocess
def test_killed_again_and_again(tmp_path, undisturbed):
    """SIGKILL at random moments: before, while and after checkpoints and models are written."""
    assert undisturbed.n_iter_ > 100
    train, model, checkpoint = prepare(tmp_path), tmp_path / "m.hinge", tmp_path / "c"
    command = ["train", train, "-m", model, *LONG]
    command += ["--checkpoint", checkpoint, "--checkpoint-every", 0, "--resume"]
    rng = random.Random(0)
    went_on = []  # passes that killed runs began after
    kills = 0
    for attempt in range(5 * KILLS):
        before, first = passes_of(checkpoint), number_of(checkpoint)
        with open(tmp_path / "stderr", "w") as errors:
            process = spawn(*command, stdout=subprocess.DEVNULL, stderr=errors)
            if attempt % 4 == 3:  # perhaps before the training began
                time.sleep(rng.uniform(0.0, 1.0))
            else:
                wait_for(lambda: number_of(checkpoint) != first, process)  # noqa: B023
                time.sleep(rng.uniform(0.0, 0.4))
            process.kill()
            process.wait(PATIENCE)
        said = (tmp_path / "stderr").read_text()
        if process.returncode == 0:  # it was faster: the model is complete, start over
            assert_same(hingeline.load(model), undisturbed)
            continue
        assert process.returncode == -signal.SIGKILL, said
        kills += 1
        found = re.search(r"resumed after pass (\d+)", said)
        if found:
            assert int(found[1]) == before > 0
            went_on.append(before)
        elif not before:
            assert not said or "went on" not in said
        left = {file.name for file in tmp_path.iterdir()} - {"train", "m.hinge", "c", "stderr"}
        # At most one temporary file of the process that was killed.
        assert len(left) <= 1
        assert all(re.fullmatch(r"\.(c|m\.hinge)\.[0-9a-f]{16}\.tmp", name) for name in left)
        if kills >= KILLS and len(went_on) >= 3:  # some die before they went on
            break
    assert kills >= KILLS
    assert len(went_on) >= 3, went_on
    print("killed runs resumed after passes", went_on)
    result = run(*command)
    assert result.exit_code == 0
    assert "afresh" in result.stderr or "resumed after pass" in result.stderr
    assert_same(hingeline.load(model), undisturbed)
    # No checkpoint, and nothing that a killed process left.
    assert {file.name for file in tmp_path.iterdir()} == {"train", "m.hinge", "stderr"}


@pytest.mark.slow
@pytest.mark.subprocess
@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_ctrl_c_keeps_the_best_model(tmp_path, undisturbed):
    train, model, checkpoint = prepare(tmp_path), tmp_path / "m.hinge", tmp_path / "c"
    command = ["train", train, "-m", model, *LONG]
    command += ["--checkpoint", checkpoint, "--checkpoint-every", 0]
    # A shell's background jobs ignore SIGINT, and so would their children: hand it on as default.
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        process = spawn(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    assert wait_for(lambda: passes_of(checkpoint) >= 5, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "interrupted" in out
    assert f"{checkpoint} is kept" in err
    kept = hingeline.load(model)
    assert kept.stop_reason_ == "interrupted"
    assert 0.0 < kept.duality_gap_ < np.inf
    # It is a model like any other, and the training can go on.
    done("evaluate", model, train)
    passes = passes_of(checkpoint)
    result = run(*command, "--resume")
    assert f"resumed after pass {passes} " in result.stderr
    assert_same(hingeline.load(model), undisturbed)
    assert not checkpoint.exists()


def test_the_end_of_time_is_no_end(tmp_path, undisturbed):
    """What --max-time ended goes on from its last pass, whenever the last checkpoint was."""
    train, model, checkpoint = prepare(tmp_path), tmp_path / "m.hinge", tmp_path / "c"
    command = ["train", train, "-m", model, *LONG, "--checkpoint", checkpoint]
    result = run(*command, "--max-time", "0.1", "--checkpoint-every", 1000)
    assert result.exit_code == 0
    assert f"{checkpoint} is kept" in result.stderr
    first = hingeline.load(model)
    assert first.stop_reason_ == "max_time=0.1 seconds"
    assert passes_of(checkpoint) == first.n_iter_
    # The same command has the same time again.
    run(*command, "--max-time", "0.1", "--checkpoint-every", 1000, "--resume")
    assert passes_of(checkpoint) > first.n_iter_ + 1
    result = run(*command, "--resume")
    assert "resumed after pass" in result.stderr
    assert_same(hingeline.load(model), undisturbed)
    assert not checkpoint.exists()


# In this process --------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    prepare(tmp_path, n=40)
    write(tmp_path / "dev", conll(sentences(20, 1, noise=0.4), 0, 1, 2))
    return tmp_path


def arguments(folder, *options):
    command = ["train", folder / "train", "-m", folder / "m.hinge", "--tol", "1e-2"]
    return [*command, "--checkpoint", folder / "c", "--checkpoint-every", 0, *options]


def kill_while_saving(monkeypatch, command):
    """Let the process end after the last pass, when the model is written."""

    def save(self, *arguments, **options):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(ChainSSVM, "save", save)
        with pytest.raises(Killed):
            run(*command)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """What a training leaves that was killed when it wrote its model."""
    folder = tmp_path_factory.mktemp("killed")
    prepare(folder, n=40)
    with pytest.MonkeyPatch.context() as patch:
        kill_while_saving(patch, arguments(folder))
    return (folder / "c").read_bytes()


def test_there_is_no_checkpoint(folder):
    result = run(*arguments(folder, "--resume"))
    assert result.exit_code == 0
    assert f"there is no checkpoint {folder / 'c'}: starting afresh" in result.stderr
    assert "went on" not in result.stderr
    assert not (folder / "c").exists()
    assert run(*arguments(folder)).stderr.count("afresh") == 0


@pytest.mark.parametrize(
    "options",
    [
        slow(()),
        slow(("--max-iter", 7)),
        ("--dev", "dev", "--patience", 2),
        slow(("--solver", "fsmo")),
        slow(("--slack", "squared")),
        ("--n-jobs", 2),
        slow(("--scheme", "auto", "--n-jobs", 2)),
    ],
)
def test_killed_after_the_last_pass(folder, monkeypatch, options):
    """No further pass is made, whatever ended the training."""
    monkeypatch.chdir(folder)
    done(*arguments(folder, *options))
    expected = hingeline.load(folder / "m.hinge")
    (folder / "m.hinge").unlink()
    kill_while_saving(monkeypatch, arguments(folder, *options))
    assert passes_of(folder / "c") >= 1
    assert not (folder / "m.hinge").exists()
    result = run(*arguments(folder, *options, "--resume"))
    assert result.exit_code == 0
    assert f"resumed after pass {expected.n_iter_ - 1} " in result.stderr
    assert_same(hingeline.load(folder / "m.hinge"), expected)
    assert (folder / "c").exists() == ("--max-iter" in options)  # a training that may go on


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("-C", "2"), "C"),
        (("--tol", "1e-4"), "tol"),
        (("--seed", "1"), "random_state"),
        (("--slack", "squared"), "formulation"),
        (("--solver", "fsmo"), "solver"),
        (("--min-count", "2"), "data"),
        slow(("--scheme", "auto"), "data"),
    ],
)
def test_checkpoints_of_another_training(folder, checkpoint, options, word):
    (folder / "c").write_bytes(checkpoint)
    message = refused(*arguments(folder, "--resume", *options))
    assert str(folder / "c") in message
    assert "another fit" in message
    assert word in message
    # It stays for the training that it belongs to.
    assert (folder / "c").read_bytes() == checkpoint
    assert not (folder / "m.hinge").exists()


def test_checkpoints_of_other_data(folder, checkpoint):
    (folder / "c").write_bytes(checkpoint)
    assert "c is a checkpoint, not a model" in refused("predict", folder / "c", folder / "train")
    write(folder / "train", conll(sentences(40, 5, noise=0.4), 0, 1, 2))
    assert "other data" in refused(*arguments(folder, "--resume"))
    # Without --resume the training begins anew, and says what becomes of the file.
    result = run(*arguments(folder))
    assert result.exit_code == 0
    assert f"{folder / 'c'} is replaced" in result.stderr
    assert not (folder / "c").exists()


def test_early_stopping_and_checkpoints_belong_together(folder, monkeypatch):
    kill_while_saving(monkeypatch, arguments(folder, "--dev", folder / "dev"))
    assert "other callbacks" in refused(*arguments(folder, "--resume"))


def test_damaged_checkpoints(folder, checkpoint):
    damaged = bytearray(checkpoint)
    damaged[-5] ^= 1
    for wrong in (checkpoint[:100], b"", b"text\n", bytes(damaged)):
        (folder / "c").write_bytes(wrong)
        assert str(folder / "c") in refused(*arguments(folder, "--resume"))
        assert (folder / "c").read_bytes() == wrong
    assert not (folder / "m.hinge").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="wants locks of files")
def test_temporary_files_of_dead_and_living_processes(folder):
    """What a killed process left is removed; what another one is writing is not."""
    fcntl = pytest.importorskip("fcntl")
    dead, living = (folder / f".m.hinge.{digit * 16}.tmp" for digit in "0a")
    for file in (dead, living):
        file.write_bytes(b"half")
    foreign = folder / ".m.hinge.txt.0000.tmp"
    foreign.write_bytes(b"")
    with open(living, "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done(*arguments(folder))
        assert not dead.exists()
        assert living.exists()
        assert foreign.exists()
    done(*arguments(folder))
    assert not living.exists()
