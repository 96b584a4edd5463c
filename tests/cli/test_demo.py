"""The command line: what it prints, what it writes and how it ends."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import hingeline
from hingeline import ChainSSVM
from hingeline.cli.app import app
from hingeline.report import figures

pytest.importorskip("matplotlib")

SMALL = ["--n-train", "60", "--n-test", "40"]


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_version():
    result = run("--version")
    assert result.exit_code == 0
    assert result.stdout == f"hingeline {hingeline.__version__}\n"


def test_help_names_the_commands():
    result = run("--help")
    assert result.exit_code == 0
    assert "demo" in result.stdout


def test_demo(tmp_path):
    picture = tmp_path / "curve.png"
    result = run("demo", "--output", picture, "--seed", 1, *SMALL)
    assert result.exit_code == 0, result.output
    assert "MulticlassSSVM" in result.stdout
    assert "ChainSSVM" in result.stdout
    assert "not converged" not in result.stdout
    assert str(picture) in result.stdout.replace("\n", "")
    assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert [p.name for p in tmp_path.iterdir()] == ["curve.png"]
    # Not a terminal: plain lines, and on the standard error.
    assert "digit by digit: pass" in result.stderr
    assert "as a sequence: converged" in result.stderr
    assert "\x1b" not in result.output


def test_quiet_demo_shows_results_only(tmp_path):
    result = run("demo", "-o", tmp_path / "a.svg", "--quiet", "--n-jobs", 2, *SMALL)
    assert result.exit_code == 0
    assert all("compiling kernels" in line for line in result.stderr.splitlines())
    assert "ChainSSVM" in result.stdout
    assert "<svg" in (tmp_path / "a.svg").read_text(encoding="utf-8")


def test_demo_goes_on_without_matplotlib(tmp_path, monkeypatch):
    def missing(*arguments, **options):
        raise ImportError("plots need matplotlib: install hingeline[plot].")

    monkeypatch.setattr(figures, "plot_curve", missing)
    result = run("demo", "-o", tmp_path / "a.png", "-q", *SMALL)
    assert result.exit_code == 0
    assert "ChainSSVM" in result.stdout
    assert "No plot was written: plots need matplotlib" in result.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-o", "missing/a.png"], "no folder"),
        (["-o", "a.txt"], ".png or .svg"),
        (["-o", "."], ".png or .svg"),
        (["--n-jobs", "0"], "--n-jobs"),
        (["--seed", str(2**32)], "--seed"),
        (["--noise", "inf"], "--noise"),
    ],
)
def test_bad_input_is_one_sentence(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("demo", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("hingeline: ")
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [["nonsense"], ["demo", "--n-train", "x"], ["demo", "--no"]])
def test_wrong_usage(arguments):
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_a_command_that_is_nearly_right():
    assert "Did you mean 'train'?" in run("trian").stderr


def test_a_write_that_fails_late(tmp_path, monkeypatch):
    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(figures, "plot_curve", full)
    result = run("demo", "-o", tmp_path / "a.png", "-q", *SMALL)
    assert result.exit_code == 2
    assert "No space left on device" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_fit_ends_the_command(tmp_path, monkeypatch):
    """A fit swallows Ctrl-C and returns its best weights; the command must not go on."""
    fit = ChainSSVM.fit

    def interrupted(self, X, y):
        fit(self, X, y)
        self.stop_reason_ = "interrupted"
        return self

    monkeypatch.setattr(ChainSSVM, "fit", interrupted)
    result = run("demo", "-o", tmp_path / "a.png", *SMALL)
    assert result.exit_code == 130
    assert result.stdout == ""
    assert result.stderr.endswith("hingeline: interrupted\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.subprocess
@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_ctrl_c(tmp_path):
    command = [sys.executable, "-m", "hingeline", "demo", "-o", "a.png", "--n-train", "4000"]
    # A shell's background jobs ignore SIGINT, and so would their children: hand it on as default.
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        process = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    finally:
        signal.signal(signal.SIGINT, before)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("digit by digit: pass"):
            process.send_signal(signal.SIGINT)
            break
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert out == ""
    assert err.endswith("hingeline: interrupted\n")
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []
