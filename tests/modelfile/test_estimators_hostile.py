"""Well-formed files that do not describe a model."""

from __future__ import annotations

import copy
import time
import tracemalloc

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from hingeline import ChainSSVM
from hingeline.modelfile.estimators import load
from hingeline.modelfile.files import ModelFileError, read_model, write_model

X = [np.eye(4)[[0, 1, 2]], np.eye(4)[[2, 3]]]
Y = [["a", "b", "c"], ["c", "b"]]
LIMIT = 100 * 2**20


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Header and arrays of a dense and of a sparse file."""
    path = tmp_path_factory.mktemp("saved") / "m.hinge"
    model = ChainSSVM(tol=0.1, class_weight={"a": 2.0}, loss=np.ones(3)).fit(X, Y)
    found = []
    for sparse in (False, True):
        model.save(path, sparse=sparse)
        found.append(read_model(path))
    return path, found


def attempt(path, header, arrays):
    """Load what may be nonsense: a model that works, or one sentence."""
    write_model(path, header, arrays)
    tracemalloc.start()
    began = time.perf_counter()
    try:
        model = load(path)
    except ModelFileError as error:
        model = None
        text = str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < LIMIT
    assert time.perf_counter() - began < 20
    if model is None:
        assert str(path) in text
        assert "\n" not in text
        assert text.endswith(".")
        return None
    assert len(model.predict(X)) == 2
    return model


def test_what_is_missing_is_named(saved, tmp_path):
    """A header of this format that another state of the library wrote: no bare KeyError."""
    header, arrays = saved[1][0]
    header = {name: value for name, value in header.items() if name != "classes"}
    write_model(tmp_path / "m", header, arrays)
    with pytest.raises(ModelFileError, match=r"\(it lacks 'classes'\): train again, or use the H"):
        load(tmp_path / "m")


def replaced(tree, where, value):
    """A copy of nested dicts and lists with one place changed."""
    tree = copy.deepcopy(tree)
    inner = tree
    for step in where[:-1]:
        inner = inner[step]
    inner[where[-1]] = value
    return tree


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("n_features_in",), 2**50),
        (("n_features_in",), -1),
        (("n_features_in",), 3.0),
        (("n_features_in",), 3),
        (("n_features_in",), True),
        (("classes", "labels"), []),
        (("classes", "labels"), ["a", "b"]),
        (("classes", "labels"), ["a", "b", 1]),
        (("classes", "labels"), ["a", "b", ["c"]]),
        (("classes", "labels"), [{"float": "nan"}] * 3),
        (("classes", "labels"), "abc"),
        (("classes", "kind"), "U1000000000"),
        (("classes", "kind"), "int64"),
        (("classes", "kind"), "O"),
        (("classes", "kind"), None),
        (("parameters", "n_jobs"), 10**9),
        (("parameters", "n_jobs"), "all"),
        (("parameters", "C"), -1.0),
        (("parameters", "C"), {"float": "nan"}),
        (("parameters", "C"), {"unknown": 1}),
        (("parameters", "C"), {}),
        (("parameters", "C"), {"float": "inf", "x": 1}),
        (("parameters", "new_parameter"), 1),
        (("parameters", "boundary"), False),
        (("parameters", "boundary"), [None]),
        (("parameters", "fit_intercept"), False),
        (("parameters", "warm_start"), "yes"),
        (("parameters", "loss"), {"array": "missing"}),
        (("parameters", "class_weight"), {"dict": [[[1], 2]]}),
        (("parameters", "class_weight"), {"dict": [1]}),
        (("parameters",), []),
        (("weights", "dtype"), "float32"),
        (("weights", "dtype"), "object"),
        (("weights", "sparse"), "yes"),
        (("weights", "sparse"), 2),
        (("weights",), None),
        (("certificate", "n_iter_"), "many"),
        (("certificate", "converged_"), 1),
        (("certificate", "stop_reason_"), None),
        (("certificate", "duality_gap_"), "small"),
        (("certificate", "weights_"), 1.0),
        (("certificate", "rho_"), 1),
        (("certificate",), {}),
        (("tried",), 5),
        (("tried",), [[1.0]]),
        (("history",), ["time"]),
        (("scheme",), 5),
        (("encoder",), {"class": "DictEncoder"}),
        (("encoder",), {"class": "Nothing", "name": "", "meta": {}, "arrays": []}),
        (("encoder",), 1),
    ],
)
@pytest.mark.parametrize("sparse", [0, 1])
def test_wrong_headers_are_refused(saved, where, value, sparse):
    path, found = saved
    header, arrays = found[sparse]
    assert attempt(path, replaced(header, where, value), arrays) is None


def test_unchanged_files_are_not_refused(saved):
    path, found = saved
    for header, arrays in found:
        assert attempt(path, header, arrays) is not None


@pytest.mark.parametrize("sparse", [0, 1])
def test_every_missing_part_is_noticed(saved, sparse):
    path, found = saved
    header, arrays = found[sparse]
    for key in header:
        left = {k: v for k, v in header.items() if k != key}
        needless = key in ("left_out", "versions", "metadata")
        assert (attempt(path, left, arrays) is not None) == needless, key
    for key in arrays:
        left = {k: v for k, v in arrays.items() if k != key}
        assert attempt(path, header, left) is None, key


@pytest.mark.parametrize("sparse", [0, 1])
def test_every_array_of_another_kind_is_noticed(saved, sparse):
    path, found = saved
    header, arrays = found[sparse]
    for key, array in arrays.items():
        if key.startswith("parameters/"):
            continue
        others = [array.astype(np.float16), array[..., None], array[1:], array.reshape(-1)[:0]]
        for other in others:
            if other.shape == array.shape and other.dtype == array.dtype:
                continue
            if key == "history" and other.shape == (0, 8):
                continue
            if key == "history" and other.ndim == 2 and other.dtype == np.float64:
                continue  # fewer rows are a shorter curve
            assert attempt(path, header, {**arrays, key: other}) is None, (key, other.shape)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("sparse", [0, 1])
def test_weights_that_are_no_numbers_are_refused(saved, bad, sparse):
    path, found = saved
    header, arrays = found[sparse]
    key = "weights/emission/values" if sparse else "weights/emission"
    wrong = arrays[key].copy()
    wrong.reshape(-1)[0] = bad
    assert attempt(path, header, {**arrays, key: wrong}) is None


def test_small_files_cannot_ask_for_much_memory(saved):
    """One bit for each weight is the most that sparse blocks can be blown up by."""
    path, found = saved
    header, arrays = found[1]
    for features in (10**6, 10**9, 10**15):
        assert attempt(path, replaced(header, ("n_features_in",), features), arrays) is None
    many = [f"{k}" for k in range(100_000)]
    assert attempt(path, replaced(header, ("classes", "labels"), many), arrays) is None


def places(tree, at=()):
    """Paths to everything in nested dicts and lists."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items:
        yield (*at, key)
        if isinstance(value, (dict, list)):
            yield from places(value, (*at, key))


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 10)
    | st.sampled_from([2**31, 2**63, 10**20, 0.5, -1e300])
    | st.sampled_from(["", "a", "ChainSSVM", "float64", "object", "inf", "weights/emission"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["float", "tuple", "dict", "array", "encoder", "class"]),
            inner,
            max_size=2,
        )
    ),
    max_leaves=5,
)


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), sparse=st.integers(0, 1))
def test_headers_of_anything(saved, data, sparse):
    path, found = saved
    header, arrays = found[sparse]
    for _ in range(data.draw(st.integers(1, 2))):
        where = data.draw(st.sampled_from(list(places(header))))
        header = replaced(header, where, data.draw(values))
    attempt(path, header, arrays)
