"""Nothing that writes a file ever takes the place of a device or a pipe."""

from __future__ import annotations

import os
import stat
import sys
import threading
import types

import numpy as np
import pytest

from cli.commands import run
from hingeline import ChainSSVM, Checkpoint
from hingeline.data import convert
from hingeline.report import write_report
from hingeline.report.figures import plot_curve

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX pipes and devices")

TEXT = "Ann B-PER\nran O\n\nBob B-PER\nsat O\n\n" * 5
X = [np.eye(2)] * 6
Y = [["a", "b"]] * 6


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a file of words and a model of it."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "train.txt").write_text(TEXT)
    assert run("train", folder / "train.txt", "-m", folder / "m.hinge", "-q").exit_code == 0
    return types.SimpleNamespace(text=folder / "train.txt", model=folder / "m.hinge")


def fitted():
    return ChainSSVM(random_state=0).fit(X, Y)


#: Ending of the file's name, and what writes it.
WAYS = {
    "save": (".hinge", lambda path, made: fitted().save(path)),
    "checkpoint": (
        "",
        lambda path, made: ChainSSVM(
            tol=1e-9, max_iter=3, callbacks=[Checkpoint(path, every=0.0)]
        ).fit(X, Y),
    ),
    "train": (".hinge", lambda path, made: run("train", made.text, "-m", path, "-q")),
    "convert": (".crfsuite", lambda path, made: convert(made.text, path, "crfsuite")),
    "predict": (".txt", lambda path, made: run("predict", made.model, made.text, "-o", path)),
    "report": (".html", lambda path, made: write_report(path, fitted())),
    "plot": (".png", lambda path, made: plot_curve(fitted().history_, path)),
    "compressed": (".crfsuite.gz", lambda path, made: convert(made.text, path, "crfsuite")),
}


def attempt(way, path, made):
    """Write; a refusal is as good as a device that is written to."""
    try:
        WAYS[way][1](path, made)
    except (OSError, ValueError):
        pass
    except ImportError as error:
        pytest.skip(str(error))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("way", WAYS)
def test_a_pipe_stays_a_pipe(way, tmp_path, made):
    pipe = tmp_path / f"pipe{WAYS[way][0]}"
    os.mkfifo(pipe)
    # Held open at both ends, so that neither a writer waits for a reader nor the other way round.
    held = os.open(pipe, os.O_RDWR)
    stop = threading.Event()
    os.set_blocking(held, False)

    def drain():
        while not stop.wait(0.001):
            try:
                while os.read(held, 1 << 20):
                    pass
            except BlockingIOError:
                pass

    reader = threading.Thread(target=drain)
    reader.start()
    try:
        attempt(way, pipe, made)
    finally:
        stop.set()
        reader.join()
        os.close(held)
    assert stat.S_ISFIFO(os.lstat(pipe).st_mode)
    assert os.listdir(tmp_path) == [pipe.name]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("way", WAYS)
def test_a_device_stays_a_device(way, tmp_path, made):
    link = tmp_path / f"full{WAYS[way][0]}"
    link.symlink_to("/dev/full")
    before = os.stat("/dev/full")
    attempt(way, link, made)
    after = os.stat("/dev/full")
    assert link.is_symlink()
    assert os.readlink(link) == "/dev/full"
    assert stat.S_ISCHR(after.st_mode)
    assert (after.st_ino, after.st_mode, after.st_rdev) == (
        before.st_ino,
        before.st_mode,
        before.st_rdev,
    )
    assert os.listdir(tmp_path) == [link.name]
