"""Pictures of labels over images and of weights of pairs of labels."""

from __future__ import annotations

import builtins
import sys
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from hingeline.report.label_pictures import (
    label_affinities,
    label_colours,
    plot_affinities,
    plot_segmentation,
)

PNG = b"\x89PNG\r\n\x1a\n"


def drawn(figure):
    return {axes.get_title(): axes.images[0].get_array() for axes in figure.axes}


def test_labels_get_their_colours():
    panels = drawn(plot_segmentation([["sky", "grass"], ["sky", "sky"]], classes=["sky", "grass"]))
    sky, grass = label_colours(2)
    np.testing.assert_allclose(panels["predicted"][0], [sky, grass])
    np.testing.assert_allclose(panels["predicted"][1], [sky, sky])


def test_truth_stands_beside_and_void_is_not_counted():
    figure = plot_segmentation([1, 1, 0, 0], [1, 0, 0, -1], shape=(2, 2), void_label=-1)
    panels = drawn(figure)
    assert list(panels) == ["truth", "predicted, 66.7 % of pixels right"]
    np.testing.assert_allclose(panels["truth"][1, 1], [0, 0, 0])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["0", "1"]


def test_superpixels_over_an_image():
    regions = np.array([[0, 0, 1], [2, 2, 1]])
    image = np.full((2, 3), 255, dtype=np.uint8)
    panels = drawn(plot_segmentation(["a", "b", "a"], regions=regions, image=image, opacity=0.25))
    assert list(panels) == ["image", "predicted"]
    np.testing.assert_allclose(panels["image"], 1.0)
    a, b = label_colours(2)
    expected = 0.25 * np.array([[a, a, b], [a, a, b]]) + 0.75
    np.testing.assert_allclose(panels["predicted"], expected)


def test_many_labels_differ():
    colours = label_colours(30)
    assert len({tuple(c) for c in colours.round(3).tolist()}) == 30
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
    figure = plot_affinities(table, ["sky", "US$ and a very long name indeed"])
    axes = figure.axes[0]
    np.testing.assert_array_equal(axes.images[0].get_array().filled(np.nan), table)
    assert axes.images[0].get_clim() == (-2.0, 2.0)
    assert [text.get_text() for text in axes.texts] == ["1", "-2", "0.5"]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["sky", r"US\$ and a very long nam…"]
    with pytest.raises(ValueError, match=r"expected .2, 2.: one row and one column"):
        plot_affinities([[1.0]], ["a", "b"])


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
