"""Pictures: what they draw, in which format, whole or not at all; and those inside the page."""

from __future__ import annotations

import builtins
import math
import re
import sys
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from hingeline import ChainSSVM, MulticlassSSVM, MultilabelSSVM
from hingeline.core.results import HistoryRow
from hingeline.report import figures
from hingeline.report.figures import (
    draw_charts,
    label_affinities,
    label_colours,
    plot_affinities,
    plot_curve,
    plot_reliability,
    plot_segmentation,
)

# isort: split
from marks import slow

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
    objectives, gaps = plot_curve(history, title="A title")
    primal, dual = objectives.lines
    np.testing.assert_allclose(primal.get_xydata(), [[0.2, 4.0], [0.3, 3.0]])
    np.testing.assert_allclose(dual.get_xydata(), [[0.1, 1.0], [0.2, 2.0], [0.3, 2.7]])
    np.testing.assert_allclose(gaps.lines[0].get_xydata(), [[0.2, 50.0], [0.3, 10.0]])
    assert gaps.get_yscale() == "log"
    assert objectives.figure.get_suptitle() == "A title"
    gaps.figure.draw_without_rendering()
    number, inside = (artist.get_window_extent() for artist in (gaps.texts[0], gaps))
    assert number.y0 > inside.y0  # not across the axis and its labels


@pytest.mark.parametrize(
    ("last", "text"), [((3.0, 3.0, 0.0), "the gap is zero"), ((NAN, 2.0, NAN), "no certified gap")]
)
def test_without_a_gap_to_draw(last, text, tmp_path):
    _, gaps = plot_curve([row(0.1, NAN, 1.0, NAN), row(0.2, *last)], tmp_path / "a.png")
    assert [t.get_text() for t in gaps.texts] == [text]


def test_several_panels_show_themselves_in_a_notebook(history):
    panels = plot_curve(history)
    assert panels._repr_png_().startswith(PNG)
    assert list(panels) == panels.figure.axes


def test_one_panel_is_axes_and_takes_those_of_others():
    from matplotlib.figure import Figure

    own, mine = Figure().subplots(1, 2)
    for ax, draw in (
        (own, lambda **more: plot_affinities(np.eye(2), "ab", **more)),
        (mine, lambda **more: plot_reliability([0.2, 0.8], [False, True], **more)),
    ):
        assert draw(ax=ax, title="mine") is ax
        assert ax.get_title() == "mine"
        assert ax.figure.get_suptitle() == ""
        fresh = draw()
        assert fresh.figure is not ax.figure
        assert fresh._repr_png_().startswith(PNG)  # in a notebook without pyplot
    with pytest.raises(ValueError, match="confidence has 1 values and right has 2"):
        plot_reliability([0.2], [True, False])


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
    with pytest.raises(FileExistsError, match="is a folder: name a file"):
        plot_curve(history, tmp_path / "folder.png")


def test_empty_history():
    with pytest.raises(ValueError, match="fitted"):
        plot_curve([])
    with pytest.raises(ValueError, match="no history: pass an estimator that has been fitted"):
        plot_curve(ChainSSVM())


def test_without_matplotlib(history, monkeypatch):
    real = builtins.__import__

    def missing(name, *arguments):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ImportError, match=r"install hingeline\[plot\]"):
        plot_curve(history)


# Charts of the page ------------------------------------------------------------------------------


def chart(history, number, tol=0.01):
    return draw_charts(history, tol)[number]


def axes_of(history, number, tol=0.01):
    """The axes behind a chart of the page."""
    axes = figures.new_figure().subplots()
    x = ("time", "passes")[number % 2]
    if number < 2:
        figures._draw_objectives(axes, history, x)
    else:
        figures._draw_gaps(axes, history, x, tol)
    return axes


def long_row(time, passes, primal, dual, gap):
    return HistoryRow(time, passes, 10 * passes, primal, dual, gap, 1.0, 5)


FALLING = [
    long_row(1.0, 1, NAN, 1.0, NAN),
    long_row(2.0, 2, 5.0, 2.0, 3.0),
    long_row(3.0, 3, NAN, 2.5, NAN),
    long_row(4.0, 4, 4.0, 3.0, 1.0),
]


def test_four_charts_of_a_fit():
    charts = draw_charts(FALLING, 0.01)
    assert [c.title for c in charts] == [
        "Objective over time",
        "Objective over passes",
        "Relative gap over time",
        "Relative gap over passes",
    ]
    assert len({c.name for c in charts}) == 4
    assert charts[0].description == (
        "Line chart: primal (best so far) from 5.000 to 4.000 and dual from 1.000 to 3.000."
    )
    # The relative gap falls from 3/5 to 1/4.
    assert charts[3].description.endswith("relative gap from 60\u00a0% to 25\u00a0%.")
    primal, dual = axes_of(FALLING, 0).lines
    np.testing.assert_allclose(primal.get_xydata(), [[2.0, 5.0], [4.0, 4.0]])
    np.testing.assert_allclose(dual.get_ydata(), [1.0, 2.0, 2.5, 3.0])


def test_axes_hold_their_curves():
    axes = axes_of(FALLING, 0)
    low, high = axes.get_ylim()
    assert low < 1.0 < 5.0 < high
    assert axes.get_xlim()[0] == 0.0
    assert axes.get_xlim()[1] >= 4.0
    gaps = axes_of(FALLING, 3)
    low, high = gaps.get_ylim()
    assert low < 25.0 < 60.0 < high
    assert gaps.get_yscale() == "log"


def points(body):
    """Corners of the widest curve of a drawing."""
    curves = [re.findall(r"[ML] ([\d.]+) ([\d.]+)", d) for d in re.findall(r' d="([^"]*)"', body)]
    longest = max(curves, key=lambda found: len({x for x, _ in found}))
    return [(float(x), float(y)) for x, y in longest]


def test_a_falling_gap_falls_in_the_drawing():
    # y grows downwards in a drawing, and so does a gap that falls; the dual rises.
    history = [long_row(k, k, 10.0 + 10.0 / k, 10.0, 10.0 / k) for k in range(1, 9)]
    gap = points(chart(history, 3).body)
    assert len(gap) == 8
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(gap))
    history = [long_row(k, k, NAN, float(k), NAN) for k in range(1, 9)]
    dual = points(chart(history, 0).body)
    assert all(a[1] > b[1] for a, b in pairwise(dual))


@pytest.mark.parametrize(("tol", "shown"), [(0.01, False), (0.03, True), (NAN, False)])
def test_the_tolerance_is_drawn_where_it_is_near(tol, shown):
    axes = axes_of(FALLING, 2, tol)
    assert (len(axes.lines) == 2) == shown
    assert any("tol 3" in text.get_text() for text in axes.texts) == shown
    if shown:
        assert axes.lines[1].get_ydata() == pytest.approx([3.0, 3.0])


@pytest.mark.parametrize(
    ("last", "message"),
    [((4.0, 4.0, 0.0), "the gap is zero"), ((NAN, 2.0, NAN), "no certified gap")],
)
def test_no_gap_to_draw(last, message):
    history = [long_row(0.1, 1, NAN, 1.0, NAN), long_row(0.2, 2, *last)]
    found = draw_charts(history, 0.01)[2:]
    assert [c.description for c in found] == [message, message]
    assert f">{message}</text>" in found[0].body


def test_an_infinite_primal_is_not_drawn():
    history = [long_row(0.1, 1, math.inf, 1.0, math.inf), long_row(0.2, 2, 3.0, 2.0, 1.0)]
    primal, dual = axes_of(history, 0).lines
    np.testing.assert_allclose(primal.get_xydata(), [[0.2, 3.0]])
    assert len(dual.get_xdata()) == 2


@pytest.mark.parametrize("low", [-1e308, slow(0.0), 1e-320, 1e308])
@pytest.mark.parametrize("high", [slow(1e-310), slow(1.0), slow(1e250), 1e308])
def test_curves_that_overflow_are_drawn_without_the_overflow(low, high):
    history = [
        long_row(0.1, 1, high, low, high - low),
        long_row(0.2, 2, 0.5 * high, 0.5 * low, 0.5 * (high - low)),
    ]
    assert len(draw_charts(history, 0.01)) == 4


def test_scales_suit_their_values():
    far = [long_row(0.1, 1, 5000.0, 1.0, 4999.0), long_row(0.2, 2, 3.0, 2.0, 1.0)]
    assert axes_of(far, 0).get_ylabel() == "objective, logarithmic"
    assert axes_of(FALLING, 0).get_ylabel() == "objective"
    late = [long_row(1e-3, 1, NAN, 1.0, NAN), long_row(100.0, 2, NAN, 2.0, NAN)]
    assert axes_of(late, 0).get_xlabel().endswith("logarithmic")
    compiled = [long_row(90.0, 1, NAN, 1.0, NAN), long_row(92.0, 2, NAN, 2.0, NAN)]
    assert axes_of(compiled, 0).get_xlim()[0] > 80.0


@pytest.mark.parametrize(
    "values",
    [(1.0, 1.0), (1948.35, 1948.35 + 1e-9), (9e7, 11e7), (0.0, 2e-7), (-3.0, 5.0), (1.5, 9.0)]
    + [(1e-12, 1.0), (0.2, 0.21)],
)
@pytest.mark.parametrize("number", [0, 2])
def test_ticks_are_few_and_their_labels_differ_and_are_short(values, number):
    low, high = values
    history = [long_row(1.0, 1, high, low, high - low), long_row(2.0, 2, high, high - low, low)]
    axes = axes_of(history, number)
    axes.figure.canvas.draw()
    inside = [
        label.get_text()
        for place, label in zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)
        if axes.get_ylim()[0] <= place <= axes.get_ylim()[1] and label.get_text()
    ]
    assert len(inside) == len(set(inside)) <= 9
    assert max(map(len, inside), default=0) <= 9


def test_labels_keep_their_digits_in_the_drawing():
    history = [long_row(0.005, 1, NAN, 1.0, NAN), long_row(0.023, 2, NAN, 1.08, NAN)]
    labels = re.findall(r"<text[^>]*>([^<]*)</text>", chart(history, 0).body)
    assert {"0.005", "0.010", "0.015", "0.020", "1.02", "1.04"} <= set(labels)
    assert (
        max(map(len, re.findall(r"\.(\d+)", re.sub(r">[^<]*<", "><", chart(history, 0).body)))) == 1
    )


def test_passes_have_whole_ticks():
    ticks = axes_of(FALLING, 1).get_xticks()
    assert (ticks == np.round(ticks)).all()


def test_one_row_is_a_point_in_the_middle():
    axes = axes_of([long_row(0.5, 1, 4.0, 3.0, 1.0)], 0)
    low, high = axes.get_xlim()
    assert 0.5 * (low + high) == pytest.approx(0.5)
    assert axes.lines[0].get_marker() == "o"


def test_many_points_make_a_small_drawing():
    history = [
        long_row(k / 10, k, NAN, 100.0 - 99.0 / k + math.sin(k), NAN) for k in range(1, 20_001)
    ]
    assert len(chart(history, 0).body) < 60_000


def test_drawings_live_together_in_a_page():
    charts = draw_charts(FALLING, 0.3)
    bodies = [c.body for c in charts]
    assert bodies == [c.body for c in draw_charts(FALLING, 0.3)]
    found = [name for body in bodies for name in re.findall(r'id="([^"]*)"', body)]
    assert len(found) == len(set(found))
    for body in bodies:
        assert set(re.findall(r'(?:href="|url\()#([^")]+)', body)) <= set(found)
        assert "<style" not in body
        assert "metadata" not in body
        # Every colour is the page's, so that the dark one and paper are readable.
        assert not re.search(r"#[0-9a-fA-F]{3,6}[;\"]", body)
        assert "var(--text)" in body
        assert "DejaVu" not in body


# Labels of graphs --------------------------------------------------------------------------------


def drawn(panels):
    return {axes.get_title(): axes.images[0].get_array() for axes in panels}


def test_labels_get_their_colours():
    panels = drawn(plot_segmentation([["sky", "grass"], ["sky", "sky"]], classes=["sky", "grass"]))
    sky, grass = label_colours(["sky", "grass"])
    assert sky.argmax() == 2
    assert grass.argmax() == 1  # blue and green, whatever their order is
    np.testing.assert_allclose(panels["predicted"][0], [sky, grass])
    np.testing.assert_allclose(panels["predicted"][1], [sky, sky])


def test_truth_stands_beside_and_void_is_not_counted():
    axes = plot_segmentation([1, 1, 0, 0], [1, 0, 0, -1], shape=(2, 2), void_label=-1)
    panels = drawn(axes)
    assert list(panels) == ["truth", "predicted, 66.7 % of pixels right"]
    np.testing.assert_allclose(panels["truth"][1, 1], [0, 0, 0])
    assert [text.get_text() for text in axes.figure.legends[0].get_texts()] == ["0", "1"]


def test_superpixels_over_an_image():
    regions = np.array([[0, 0, 1], [2, 2, 1]])
    image = np.full((2, 3), 255, dtype=np.uint8)
    panels = drawn(plot_segmentation(["a", "b", "a"], regions=regions, image=image, opacity=0.25))
    assert list(panels) == ["image", "predicted"]
    np.testing.assert_allclose(panels["image"], 1.0)
    a, b = label_colours("ab")
    expected = 0.25 * np.array([[a, a, b], [a, a, b]]) + 0.75
    np.testing.assert_allclose(panels["predicted"], expected)


def test_many_labels_differ():
    colours = label_colours(["sea", "water", "Grass", *range(27)])
    assert len({tuple(c) for c in colours.round(3).tolist()}) == 30
    np.testing.assert_array_equal(label_colours(["cow", "grass"])[1], colours[2])
    assert (colours >= 0).all()
    assert (colours <= 1).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"predicted": [1, 2]}, "regions=… or shape=…"),
        ({"predicted": [1, 2], "shape": (1, 3)}, "has 2 labels, but shape=.1, 3. has 3 pixels"),
        ({"predicted": [1, 2], "regions": [[0, 2]]}, "regions holds 0 to 2, but predicted has 2"),
        ({"predicted": [1, 2], "regions": [[0.5]]}, "expected whole numbers"),
        ({"predicted": [[1]], "truth": [[1, 2]]}, "they must agree"),
        ({"predicted": [[1]], "image": [[1, 2]]}, "image has shape"),
        ({"predicted": [[1, 7]], "classes": [1]}, "the label 7 is not among classes"),
    ],
)
def test_what_does_not_fit_is_named(given, message):
    with pytest.raises(ValueError, match=message):
        plot_segmentation(**given)


def test_affinities_are_drawn_with_names():
    table = [[1.0, -2.0], [0.5, np.nan]]
    axes = plot_affinities(table, ["sky", "US$ and a very long name indeed"])
    np.testing.assert_array_equal(axes.images[0].get_array().filled(np.nan), table)
    assert axes.images[0].get_clim() == (-2.0, 2.0)
    red, _, blue, _ = axes.images[0].cmap(1.0)
    assert blue > red  # what is for it is blue, as in the report
    assert [text.get_text() for text in axes.texts] == ["1", "-2", "0.5"]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["sky", r"US\$ and a very long nam…"]
    with pytest.raises(ValueError, match=r"expected .2, 2.: one row and one column"):
        plot_affinities([[1.0]], ["a", "b"])


def test_affinities_of_models_need_no_names():
    X, y = [np.eye(2), np.eye(2)[::-1]], [["O", "B"], ["B", "O"]]
    model = ChainSSVM(C=1.0, tol=0.1).fit(X, y)
    axes = plot_affinities(model)
    np.testing.assert_array_equal(axes.images[0].get_array(), model.transition_coef_)
    assert [text.get_text() for text in axes.get_yticklabels()] == ["B", "O"]
    sets = MultilabelSSVM(tol=0.1).fit(np.eye(3), np.eye(3, dtype=int))
    drawn = plot_affinities(sets, "abc").images[0].get_array()
    np.testing.assert_array_equal(drawn.filled(np.nan), label_affinities(sets))
    for other in (ChainSSVM(), MulticlassSSVM(tol=0.1).fit(np.eye(2), [0, 1])):
        with pytest.raises(ValueError, match=r"SSVM has no weights of pairs of labels, or is not"):
            plot_affinities(other)


def test_affinity_of_a_pair_is_its_interaction():
    model = SimpleNamespace(
        n_labels_=3, edges_=np.array([[0, 2]]), pairwise_coef_=np.array([[[1.0, 2.0], [4.0, 8.0]]])
    )
    found = label_affinities(model)
    assert found[0, 2] == found[2, 0] == 8.0 + 1.0 - 2.0 - 4.0
    assert np.isnan(found).sum() == 7


def test_files_and_missing_matplotlib(tmp_path, monkeypatch):
    plot_segmentation([[0, 1]], path=tmp_path / "a.png")
    plot_affinities(np.eye(3), "abc", path=tmp_path / "b.svg")
    assert (tmp_path / "a.png").read_bytes().startswith(PNG)
    assert "<svg" in (tmp_path / "b.svg").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="must end in"):
        plot_segmentation([[0, 1]], path=tmp_path / "a.gif")
    real = builtins.__import__

    def refuse(name, *rest, **more):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **more)

    for name in [name for name in sys.modules if name.startswith("matplotlib")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r"hingeline.plot"):
        plot_affinities(np.eye(2), "ab")
