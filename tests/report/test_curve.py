"""The picture of a training curve: right format, whole or not at all."""

from __future__ import annotations

import builtins
import sys

import numpy as np
import pytest

from hingeline.core.results import HistoryRow
from hingeline.report.curve import plot_curve

pytest.importorskip("matplotlib")

NAN = float("nan")
PNG = b"\x89PNG\r\n\x1a\n"


def row(time, primal, dual, gap):
    return HistoryRow(time, 1, 10, primal, dual, gap, 1.0, 5)


@pytest.fixture
def history():
    return [row(0.1, NAN, 1.0, NAN), row(0.2, 4.0, 2.0, 2.0), row(0.3, 3.0, 2.7, 0.3)]


def test_writes_png_and_svg(history, tmp_path):
    plot_curve(history, tmp_path / "a.png")
    plot_curve(history, str(tmp_path / "b.SVG"))
    assert (tmp_path / "a.png").read_bytes().startswith(PNG)
    assert "<svg" in (tmp_path / "b.SVG").read_text(encoding="utf-8")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.png", "b.SVG"]


def test_draws_what_the_history_says(history):
    objectives, gaps = plot_curve(history, title="A title").axes
    primal, dual = objectives.lines
    np.testing.assert_allclose(primal.get_xydata(), [[0.2, 4.0], [0.3, 3.0]])
    np.testing.assert_allclose(dual.get_xydata(), [[0.1, 1.0], [0.2, 2.0], [0.3, 2.7]])
    np.testing.assert_allclose(gaps.lines[0].get_xydata(), [[0.2, 0.5], [0.3, 0.1]])
    assert gaps.get_yscale() == "log"
    assert objectives.figure.get_suptitle() == "A title"


@pytest.mark.parametrize(
    ("last", "text"), [((3.0, 3.0, 0.0), "no gap"), ((NAN, 2.0, NAN), "no certified gap")]
)
def test_without_a_gap_to_draw(last, text, tmp_path):
    figure = plot_curve([row(0.1, NAN, 1.0, NAN), row(0.2, *last)], tmp_path / "a.png")
    assert [t.get_text() for t in figure.axes[1].texts] == [text]


def test_leaves_pyplot_alone(history):
    code = "matplotlib.pyplot"
    before = code in sys.modules
    plot_curve(history)
    assert (code in sys.modules) == before


def test_a_failed_write_leaves_the_old_file_and_no_other(history, tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    def fail(self, file, **options):
        file.write(PNG)
        raise OSError(28, "No space left on device")

    (tmp_path / "a.png").write_bytes(b"old")
    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(OSError, match="No space"):
        plot_curve(history, tmp_path / "a.png")
    assert [p.name for p in tmp_path.iterdir()] == ["a.png"]
    assert (tmp_path / "a.png").read_bytes() == b"old"


def test_a_link_stays_a_link(history, tmp_path):
    (tmp_path / "link.png").symlink_to(tmp_path / "real.png")
    plot_curve(history, tmp_path / "link.png")
    assert (tmp_path / "link.png").is_symlink()
    assert (tmp_path / "real.png").read_bytes().startswith(PNG)


def test_bad_paths_are_named(history, tmp_path):
    with pytest.raises(ValueError, match=r"a\.txt.*\.png or \.svg"):
        plot_curve(history, tmp_path / "a.txt")
    with pytest.raises(FileNotFoundError, match="no folder"):
        plot_curve(history, tmp_path / "missing" / "a.png")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(FileExistsError, match="not a file"):
        plot_curve(history, tmp_path / "folder.png")


def test_empty_history():
    with pytest.raises(ValueError, match="fitted"):
        plot_curve([])


def test_without_matplotlib(history, monkeypatch):
    real = builtins.__import__

    def missing(name, *arguments):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ImportError, match=r"install hingeline\[plot\]"):
        plot_curve(history)
