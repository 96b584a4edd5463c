"""Dual states in model files: they go on bit for bit, and files are not trusted."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hingeline import ChainSSVM, MulticlassSSVM
from hingeline.modelfile.estimators import load
from hingeline.modelfile.files import ModelFileError, read_model, write_model

KINDS = ["chain", "multiclass"]
CLASSES = ["B-X", "I-X", "O"]


def make(kind, n=12, seed=0, d=5):
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        x = rng.normal(size=(int(rng.integers(1, 5)), d)) * (rng.random(d) < 0.8)
        labels = np.array(["O"] * len(x), dtype=object)
        labels[x[:, 0] > 0.3] = "B-X"
        for t in range(1, len(x)):
            if labels[t - 1] != "O" and x[t, 1] > 0:
                labels[t] = "I-X"
        X.append(x)
        y.append(labels.tolist())
    if kind == "chain":
        return X, y
    return np.array([x[0] for x in X]), [
        labels[0] if k % 3 else "I-X" for k, labels in enumerate(y)
    ]


def estimator(kind, **parameters):
    if kind == "chain":
        return ChainSSVM(**{"random_state": 0, "tol": 1e-4, "scheme": "IOB2", **parameters})
    return MulticlassSSVM(**{"random_state": 0, "tol": 1e-4, **parameters})


@pytest.mark.parametrize("passes", [None, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_state_goes_on_bit_for_bit(kind, passes, tmp_path):
    model = estimator(kind)
    for seed in range(3):
        model.partial_fit(*make(kind, seed=seed), classes=CLASSES, passes=passes)
    model.save(tmp_path / "m.hinge", state=True)
    back = load(tmp_path / "m.hinge")
    assert back.n_examples_ == 36
    np.testing.assert_array_equal(back.weights_, model.weights_)
    probe, _ = make(kind, seed=9)
    for step in (2, None, 1):
        for one in (model, back):
            X, y = make(kind, seed=5 + (step or 0), d=6)
            y = [["B-Y"] * len(t) for t in y] if kind == "chain" else ["B-Y"] * len(y)
            one.partial_fit(X, y, passes=step)
            one.forget([0, 3])
        assert back.classes_.tolist() == model.classes_.tolist()
        np.testing.assert_array_equal(back.weights_, model.weights_)
        assert back.n_examples_ == model.n_examples_
    for one in (model, back):
        one.save(tmp_path / f"{id(one)}.hinge", state=True)
    first, second = (tmp_path / f"{id(one)}.hinge" for one in (model, back))
    assert first.read_bytes() == second.read_bytes()
    assert (
        len(
            back.predict(
                np.pad(probe, ((0, 0), (0, 1)))
                if kind == "multiclass"
                else [np.pad(x, ((0, 0), (0, 1))) for x in probe]
            )
        )
        == 12
    )


@pytest.mark.parametrize("kind", KINDS)
def test_saving_the_state_does_not_disturb_the_stream(kind, tmp_path):
    """Multipliers and the average stay; only rounding of the weights is made anew."""
    model = estimator(kind)
    for seed in range(2):
        model.partial_fit(*make(kind, seed=seed), classes=CLASSES, passes=2)
    before, visits = model._stream.live, model._stream.visits
    average, weights = before.average(5, visits), model.weights_.copy()
    model.save(tmp_path / "m.hinge", state=True)
    np.testing.assert_array_equal(model.weights_, weights)
    after = model._stream.go_live()
    assert after is not before
    assert model._stream.visits == visits > 0
    np.testing.assert_allclose(after.w, before.w, atol=1e-13)
    np.testing.assert_allclose(after.average(5, visits), average, atol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_a_warm_start_from_a_file(kind, tmp_path):
    X, y = make(kind, n=30)
    model = estimator(kind, warm_start=True).fit(X, y)
    model.save(tmp_path / "m.hinge", state=True)
    back = load(tmp_path / "m.hinge").fit(X, y)
    assert back.n_iter_ <= 2 < model.n_iter_ + 2
    assert back.converged_


def test_a_model_without_a_state_says_so(tmp_path):
    X, y = make("chain")
    model = estimator("chain").fit(X, y)
    with pytest.raises(ValueError, match="remembers no examples"):
        model.save(tmp_path / "m.hinge", state=True)
    model.save(tmp_path / "m.hinge")
    with pytest.raises(ValueError, match="state=True"):
        load(tmp_path / "m.hinge").partial_fit(X, y)
    with pytest.raises(ValueError, match="remembers no examples"):
        load(tmp_path / "m.hinge").save(tmp_path / "n.hinge", state=True)
    changed = estimator("chain").partial_fit(X, y).set_params(C=3.0)
    with pytest.raises(ValueError, match="C was 'scale'"):
        changed.save(tmp_path / "m.hinge", state=True)


# Hostile files ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Header and arrays of both kinds."""
    folder = tmp_path_factory.mktemp("states")
    found = {}
    for kind in KINDS:
        model = estimator(kind)
        for seed in range(2):
            model.partial_fit(*make(kind, seed=seed), classes=CLASSES, passes=2)
        model.save(folder / "m.hinge", state=True, sparse=False)
        found[kind] = read_model(folder / "m.hinge")
    return folder / "x.hinge", found


def attempt(path, header, arrays):
    """Load what may be nonsense: a model that goes on, or one sentence."""
    write_model(path, header, arrays)
    text = f"{path}"
    try:
        model = load(path)
    except ModelFileError as error:
        model, text = None, str(error)
    assert str(path) in text
    assert "\n" not in text
    if model is None:
        return None
    kind = "chain" if isinstance(model, ChainSSVM) else "multiclass"
    with contextlib.suppress(ValueError):
        model.partial_fit(*make(kind, n=3, seed=8))
        assert model.dual_objective_ <= model.primal_objective_ * (1 + 1e-9)
        assert model.duality_gap_ >= 0
    return model


def replaced(tree, where, value):
    """A copy of nested dicts with one place changed."""
    if not where:
        return value
    return {**tree, where[0]: replaced(tree[where[0]], where[1:], value)}


def set_at(where, value):
    def change(array):
        array = array.copy()
        array[where] = value
        return array

    return change


DAMAGE = [
    ("indptr", set_at(1, 10**9)),
    ("indptr", set_at(0, 1)),
    ("indptr", set_at(2, 0)),
    ("indptr", set_at(-1, 0)),
    ("indptr", lambda a: a[:-1]),
    ("indices", set_at(0, -1)),
    ("indices", set_at(0, 5)),
    ("indices", set_at(slice(None), 0)),
    ("indices", lambda a: a.astype(np.int64)),
    ("values", set_at(0, np.nan)),
    ("values", set_at(0, np.inf)),
    ("values", lambda a: a[1:]),
    ("values", lambda a: a.astype(np.float16)),
    ("labels", set_at(0, 3)),
    ("labels", set_at(0, -1)),
    ("labels", lambda a: a[:-1]),
    ("weights", set_at(0, -1.0)),
    ("weights", set_at(0, np.nan)),
    ("weights", set_at(slice(None), 0.0)),
    ("weights", set_at(slice(None), 1e-9)),
    ("weights", lambda a: a[1:]),
    ("used", set_at(0, -1)),
    ("used", set_at(0, 2**62)),
    ("used", set_at(0, 10**6)),
    ("used", lambda a: np.zeros_like(a)),
    ("used", lambda a: a[1:]),
    ("y", set_at(0, -1)),
    ("y", set_at(0, 3)),
    ("y", lambda a: a[1:]),
    ("y", lambda a: a[:, None]),
    ("mass", set_at(0, -1e-3)),
    ("mass", set_at(0, np.nan)),
    ("mass", set_at(0, np.inf)),
    ("mass", set_at(0, 1e6)),
    ("mass", lambda a: a[1:]),
    ("mass", lambda a: a.astype(np.float32)),
    ("drift", set_at(0, np.nan)),
    ("drift", lambda a: np.append(a, 0.0)),
]


@pytest.mark.parametrize(
    ("name", "change"), DAMAGE, ids=[f"{n}{k}" for k, (n, _) in enumerate(DAMAGE)]
)
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_states_are_refused(saved, kind, name, change):
    path, found = saved
    header, arrays = found[kind]
    key = f"state/{name}"
    write_model(path, header, {**arrays, key: change(arrays[key])})
    with pytest.raises(ModelFileError):
        load(path)


@pytest.mark.parametrize("kind", KINDS)
def test_parts_must_be_there_and_no_others(saved, kind):
    path, found = saved
    header, arrays = found[kind]
    assert attempt(path, header, arrays) is not None
    for key in [key for key in arrays if key.startswith("state/")]:
        assert attempt(path, header, {k: v for k, v in arrays.items() if k != key}) is None, key
    assert attempt(path, header, {**arrays, "state/more": np.zeros(1)}) is None
    without = {k: v for k, v in header.items() if k != "state"}
    assert attempt(path, without, arrays) is None
    for value in (
        None,
        1,
        {},
        {"visits": -1},
        {"visits": "many"},
        {"visits": 0},
        {"visits": 10**30},
    ):
        assert attempt(path, replaced(header, ("state",), value), arrays) is None, value
    assert attempt(path, replaced(header, ("parameters", "C"), 1e-9), arrays) is None


def test_offsets_must_cut_the_rows(saved):
    path, found = saved
    header, arrays = found["chain"]
    for change in (
        set_at(1, 0),
        set_at(0, 1),
        set_at(-1, 10**6),
        lambda a: a[:-1],
        lambda a: a[:1],
    ):
        other = {**arrays, "state/offsets": change(arrays["state/offsets"])}
        assert attempt(path, header, other) is None


def test_planes_must_be_planes(saved):
    """True outputs, repeated outputs, and outputs that the scheme forbids."""
    path, found = saved
    header, arrays = found["chain"]
    used, y = arrays["state/used"], arrays["state/y"]
    offsets, labels = arrays["state/offsets"], arrays["state/labels"]
    lengths = np.diff(offsets)
    i = int(np.argmax((used >= 2) & (lengths >= 2)))
    at, length = int((used * lengths)[:i].sum()), int(lengths[i])
    true = y.copy()
    true[at : at + length] = labels[offsets[i] : offsets[i + 1]]
    twice = y.copy()
    twice[at : at + length] = y[at + length : at + 2 * length]
    forbidden = y.copy()
    forbidden[at] = CLASSES.index("I-X")
    for other in (true, twice, forbidden):
        assert not np.array_equal(other, y)
        assert attempt(path, header, {**arrays, "state/y": other}) is None


def test_a_small_file_cannot_ask_for_much_memory(saved):
    """Inner products go with the square of an example's planes."""
    path, found = saved
    header, arrays = found["multiclass"]
    many = 60_000
    labels = [f"{k}" for k in range(many + 1)]
    header = replaced(header, ("classes", "labels"), labels)
    for name in ("coef", "intercept"):
        rows = arrays[f"weights/{name}"].shape[0]
        arrays = {**arrays, f"weights/{name}": np.zeros((rows, many + 1))}
    n = len(arrays["state/labels"])
    used = np.zeros(n, dtype=np.int64)
    used[0] = many
    y = np.array([k for k in range(many + 1) if k != arrays["state/labels"][0]], dtype=np.int32)
    extra = {"used": used, "y": y, "mass": np.zeros(many), "drift": np.zeros(many)}
    arrays = {**arrays, **{f"state/{name}": value for name, value in extra.items()}}
    assert attempt(path, header, arrays) is None


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), kind=st.sampled_from(KINDS))
def test_states_of_anything(saved, data, kind):
    """Whatever the numbers are: refused, or a state whose certificate holds."""
    path, found = saved
    header, arrays = found[kind]
    key = data.draw(st.sampled_from([k for k in arrays if k.startswith("state/")]))
    array = arrays[key].copy()
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(array) - 1))
        if array.dtype.kind == "f":
            array[at] = data.draw(st.floats(allow_nan=True, width=32) | st.floats(0, 0.1))
        else:
            array[at] = data.draw(st.integers(-2, 40))
    with np.errstate(all="ignore"):
        attempt(path, header, {**arrays, key: array})
