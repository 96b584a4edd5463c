"""Charts against coordinates computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hingeline.core.results import HistoryRow
from hingeline.report.axes import make_axis, nice_step, suits_log
from hingeline.report.charts import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Rule,
    Series,
    empty_chart,
    line_chart,
)
from hingeline.report.convergence import convergence_section
from hingeline.report.facts import Facts

NAN = float("nan")
INNER_X, INNER_Y = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM


def row(time, passes, primal, dual, gap):
    return HistoryRow(time, passes, 10 * passes, primal, dual, gap, 1.0, 5)


def facts(history, gap=1.0, tol=0.01, exact=True):
    last = history[-1] if history else row(0, 0, NAN, NAN, NAN)
    return Facts(last.primal, last.dual, gap, len(history), True, exact, "converged", history, tol)


def points(element):
    return [tuple(map(float, pair.split(","))) for pair in element.attrs["points"].split()]


# Axes --------------------------------------------------------------------------------------------


def test_linear_axis():
    axis = make_axis([0.0, 10.0], from_zero=True)
    assert (axis.low, axis.high) == (0.0, 10.0)
    assert axis.ticks == (0.0, 2.0, 4.0, 6.0, 8.0, 10.0)
    assert axis.labels == ("0", "2", "4", "6", "8", "10")
    assert axis.place([0.0, 2.5, 10.0]).tolist() == [0.0, 0.25, 1.0]


def test_linear_axis_leaves_room():
    axis = make_axis([-1.0, 1.0])
    assert (axis.low, axis.high) == (-1.1, 1.1)
    assert axis.labels == ("−1.0", "−0.5", "0.0", "0.5", "1.0")


def test_log_axis():
    axis = make_axis([0.01, 100.0], log=True)
    # Four decades, and a twentieth of them as room on either side.
    assert (axis.low, axis.high) == pytest.approx((10**-2.2, 10**2.2))
    assert axis.ticks == (0.01, 0.1, 1.0, 10.0, 100.0)
    assert axis.labels == ("0.01", "0.1", "1", "10", "100")
    assert axis.place([0.01, 1.0, 100.0]) == pytest.approx([0.2 / 4.4, 0.5, 4.2 / 4.4])


def test_log_axis_over_one_decade_and_over_many():
    assert make_axis([1.5, 9.0], log=True).ticks == (2.0, 5.0)
    many = make_axis([1e-12, 1.0], log=True)
    assert many.labels == ("10⁻¹²", "10⁻⁹", "10⁻⁶", "10⁻³", "10⁰")


def test_labels_of_large_and_narrow_ranges_are_short():
    assert make_axis([9e7, 11e7]).labels == ("0.90e8", "0.95e8", "1.00e8", "1.05e8", "1.10e8")
    assert make_axis([0.0, 2e-7]).labels[:2] == ("0", "0.5e−7")
    assert max(map(len, make_axis([1948.35, 1948.35 + 1e-9]).labels)) <= 7


@pytest.mark.parametrize("log", [False, True])
def test_one_value_has_an_axis(log):
    axis = make_axis([3.0], log=log)
    assert axis.low < 3.0 < axis.high
    assert float(axis.place(3.0)) == pytest.approx(0.5)
    assert axis.ticks


@given(
    st.lists(st.floats(-1e9, 1e9).filter(lambda v: v == 0 or abs(v) > 1e-6), min_size=1),
    st.booleans(),
)
def test_axes_hold_their_values_and_ticks(values, log):
    if log:
        values = [abs(v) + 1e-6 for v in values]
    axis = make_axis(values, log=log)
    assert np.all(axis.place(values) >= 0)
    assert np.all(axis.place(values) <= 1)
    assert len(axis.ticks) == len(axis.labels) == len(set(axis.labels))
    assert all(-1e-6 <= axis.place(tick) <= 1 + 1e-6 for tick in axis.ticks)
    assert len(axis.ticks) <= 8


@given(st.floats(1e-9, 1e9))
def test_steps_are_round(raw):
    step = nice_step(raw)
    assert raw * (1 - 1e-6) <= step <= 2.5 * raw * (1 + 1e-6)
    mantissa = step / 10 ** math.floor(math.log10(step) + 1e-9)
    assert min(abs(mantissa - m) for m in (1, 2, 5)) < 1e-6


def test_passes_have_whole_ticks():
    assert make_axis([1, 3], from_zero=True, whole=True).labels == ("0", "1", "2", "3")


def test_which_values_suit_a_log_scale():
    assert suits_log([1.0, 101.0])
    assert not suits_log([1.0, 99.0])
    assert not suits_log([0.0, 1000.0])
    assert not suits_log([5.0])


# Drawings ----------------------------------------------------------------------------------------


def test_points_are_where_they_belong(parse):
    x_axis = make_axis([0.0, 10.0], from_zero=True)
    y_axis = make_axis([0.01, 100.0], log=True)
    series = Series("relative gap", "gap", np.array([0.0, 5.0, 10.0]), np.array([100.0, 1.0, 0.01]))
    svg = parse(
        line_chart(
            "a",
            [series],
            x_axis,
            y_axis,
            title="T",
            description="D",
            x_label="seconds",
            y_label="gap",
            rule=Rule("tol", 10.0),
        )
    ).one("svg")
    bottom = HEIGHT - BOTTOM
    expected = [
        (LEFT, bottom - 4.2 / 4.4 * INNER_Y),
        (LEFT + INNER_X / 2, bottom - INNER_Y / 2),
        (WIDTH - RIGHT, bottom - 0.2 / 4.4 * INNER_Y),
    ]
    np.testing.assert_allclose(points(svg.one("polyline")), expected, atol=0.051)
    marks = [(float(c.attrs["cx"]), float(c.attrs["cy"])) for c in svg.all("circle")[:3]]
    np.testing.assert_allclose(marks, expected, atol=0.051)
    rule = svg.one("path", class_="rule").attrs["d"]
    at = float(rule.removeprefix(f"M{LEFT} ").split("H")[0])
    assert at == pytest.approx(bottom - 3.2 / 4.4 * INNER_Y, abs=0.051)
    # Larger values are higher up; y grows downwards in a drawing.
    ticks = {t.text: t for t in svg.all("text", x=str(LEFT - 7))}
    assert float(ticks["100"].attrs["y"]) < float(ticks["0.01"].attrs["y"])
    assert float(ticks["10"].attrs["y"]) == pytest.approx(at + 4, abs=0.11)
    assert svg.attrs["role"] == "img"
    assert svg.attrs["aria-labelledby"] == "a-title a-about"
    assert (svg.one("title").text, svg.one("desc").text) == ("T", "D")


def test_a_rule_beyond_the_axis_is_left_out(parse):
    axis = make_axis([1.0, 2.0])
    series = Series("x", "gap", np.array([1.0, 2.0]), np.array([1.0, 2.0]))
    html = line_chart(
        "a", [series], axis, axis, title="", description="", x_label="", y_label="",
        rule=Rule("tol", 9.0),
    )  # fmt: skip
    assert parse(html).all("path", class_="rule") == []


def test_many_points_are_thinned_but_not_their_ends(parse):
    n = 100_000
    x = np.arange(1, n + 1, dtype=float)
    axis = make_axis(x, from_zero=True)
    html = line_chart(
        "a", [Series("x", "dual", x, x)], axis, make_axis(x), title="", description="",
        x_label="", y_label="",
    )  # fmt: skip
    curve = points(parse(html).one("polyline"))
    assert len(html) < 20_000
    assert curve[0][0] == LEFT
    assert curve[-1][0] == WIDTH - RIGHT


def test_empty_chart_says_why(parse):
    svg = parse(empty_chart("a", "T", "no gap <here>")).one("svg")
    assert svg.one("text").text == "no gap <here>"


# The section -------------------------------------------------------------------------------------


def test_history_between_certificates(parse):
    history = [
        row(1.0, 1, NAN, 1.0, NAN),
        row(2.0, 2, 5.0, 2.0, 3.0),
        row(3.0, 3, NAN, 2.5, NAN),
        row(4.0, 4, 4.0, 3.0, 1.0),
    ]
    root = parse(convergence_section(facts(history)))
    charts = {svg.one("title").text: svg for svg in root.all("svg")}
    assert list(charts) == [
        "Objective over time",
        "Objective over passes",
        "Relative gap over time",
        "Relative gap over passes",
    ]
    objectives = charts["Objective over time"]
    (primal,) = objectives.all("polyline", class_="primal")
    (dual,) = objectives.all("polyline", class_="dual")
    # Time from 0 to 4; objectives from 1 to 5 with room of a twentieth of 4 on either side.
    x = [LEFT + INNER_X * t / 4 for t in (1, 2, 3, 4)]
    y = [HEIGHT - BOTTOM - INNER_Y * (v - 0.8) / 4.4 for v in (1, 2, 2.5, 3, 5, 4)]
    np.testing.assert_allclose(points(dual), list(zip(x, y[:4], strict=True)), atol=0.051)
    np.testing.assert_allclose(points(primal), [(x[1], y[4]), (x[3], y[5])], atol=0.051)
    # The relative gap falls from 3/5 to 1/4, in per cent.
    gap = charts["Relative gap over passes"]
    assert "from 60\u2009%" in gap.one("desc").text.replace("\u00a0", "\u2009")
    first, last = points(gap.one("polyline"))
    assert first[1] < last[1]
    rows = [[c.text for c in tr.children] for tr in root.one("tbody").all("tr")]
    assert [r[0] for r in rows] == ["2", "4"]
    assert [r[-1] for r in rows] == ["60.00\u00a0%", "25.00\u00a0%"]
    assert "2 certificates" in root.text


def test_one_row(parse):
    root = parse(convergence_section(facts([row(0.5, 1, 4.0, 3.0, 1.0)])))
    assert len(root.all("svg")) == 4
    assert root.all("polyline") == []
    objectives = root.all("svg")[0]
    (primal,) = [c for c in objectives.all("circle") if float(c.attrs["cy"]) > TOP]
    assert float(primal.attrs["cx"]) == pytest.approx(LEFT + INNER_X / 2, abs=0.1)


@pytest.mark.parametrize(
    ("last", "message"),
    [((4.0, 4.0, 0.0), "the gap is zero"), ((NAN, 2.0, NAN), "no gap")],
)
def test_no_gap_to_draw(parse, last, message):
    history = [row(0.1, 1, NAN, 1.0, NAN), row(0.2, 2, *last)]
    root = parse(convergence_section(facts(history)))
    assert [svg.one("desc").text for svg in root.all("svg")[2:]] == [message, message]


def test_infinite_primal(parse):
    history = [row(0.1, 1, math.inf, 1.0, math.inf), row(0.2, 2, 3.0, 2.0, 1.0)]
    root = parse(convergence_section(facts(history)))
    assert "∞" in root.one("table").text
    assert root.all("svg")[0].all("polyline", class_="primal") == []


def test_far_objectives_are_logarithmic(parse):
    history = [row(0.1, 1, 5000.0, 1.0, 4999.0), row(0.2, 2, 3.0, 2.0, 1.0)]
    root = parse(convergence_section(facts(history)))
    assert "objective, logarithmic" in [t.text for t in root.all("svg")[0].all("text")]


def test_no_history(parse):
    root = parse(convergence_section(facts([])))
    assert root.all("svg") == []
    assert "no history" in root.text


def test_many_certificates_are_sampled(parse):
    history = [row(k / 10, k, 100.0 - k / 10, 50.0, 50.0 - k / 10) for k in range(1, 301)]
    root = parse(convergence_section(facts(history)))
    rows = root.one("tbody").all("tr")
    assert len(rows) == 24
    assert (rows[0].all("th")[0].text, rows[-1].all("th")[0].text) == ("1", "300")
    assert "24 of 300" in root.one("caption").text


def test_changed_weights_are_told_from_the_curve(parse):
    history = [row(0.5, 1, 4.0, 3.0, 1.0)]
    changed = convergence_section(facts(history, gap=NAN))
    assert "changed since" in changed
    assert "changed since" not in convergence_section(facts(history, gap=NAN, exact=False))
