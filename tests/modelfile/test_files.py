"""Model files as others see them: round trips, the safetensors format, atomic replacement."""

from __future__ import annotations

import json
import os
import stat
import sys

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from hingeline._files import pack_texts, replacing, unpack_texts
from hingeline.modelfile.files import DTYPES, ModelFileError, read_header, read_model, write_model

ARRAYS = {
    "w": np.arange(6.0).reshape(2, 3),
    "half": np.array([1.5, -0.0], dtype=np.float16),
    "bytes": np.frombuffer(b"abc", dtype=np.uint8),
    "flags": np.array([True, False, True]),
    "scalar": np.array(7, dtype=np.int64),
    "nothing": np.zeros((0, 4), dtype=np.int32),
}
HEADER = {"name": 'Ä \ud800 "quoted" \\ {[', "list": [1, 2.5, None, True, {"a": []}]}

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
any_array = st.sampled_from(list(DTYPES.values())).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0))
)


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def test_round_trip(tmp_path):
    path = tmp_path / "m.hinge"
    n_bytes = write_model(path, HEADER, ARRAYS)
    assert n_bytes == path.stat().st_size
    header, arrays = read_model(path)
    assert header == HEADER
    assert set(arrays) == set(ARRAYS)
    for name, array in arrays.items():
        assert same(array, ARRAYS[name]), name
        assert array.flags.aligned
        assert array.flags.writeable
        assert array.flags.owndata


@settings(max_examples=30, deadline=None)
@given(
    header=st.dictionaries(st.text(), json_values, max_size=4),
    arrays=st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(
            lambda name: name != "__metadata__"
        ),
        any_array,
        max_size=4,
    ),
)
def test_round_trip_of_anything(tmp_path_factory, header, arrays):
    path = tmp_path_factory.getbasetemp() / "any.hinge"
    write_model(path, header, arrays)
    got_header, got = read_model(path)
    assert got_header == header
    assert set(got) == set(arrays)
    assert all(same(got[name], array) for name, array in arrays.items())
    same_header, tensors = read_header(path)
    assert same_header == header
    assert {k: (t.dtype, t.shape) for k, t in tensors.items()} == {
        k: (a.dtype, a.shape) for k, a in arrays.items()
    }


def test_other_byte_order_and_layout(tmp_path):
    given = {"big": np.arange(4, dtype=">f8"), "fortran": np.asfortranarray(np.eye(3)[:, :2])}
    write_model(tmp_path / "m", {}, given)
    _, arrays = read_model(tmp_path / "m")
    assert arrays["big"].tolist() == [0, 1, 2, 3]
    assert arrays["fortran"].tolist() == np.eye(3)[:, :2].tolist()


def test_the_safetensors_library_reads_it(tmp_path):
    safetensors = pytest.importorskip("safetensors")
    numpy_side = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "m.hinge"
    write_model(path, HEADER, ARRAYS)
    for name, array in numpy_side.load_file(path).items():
        assert same(array, ARRAYS[name])
    with safetensors.safe_open(path, "numpy") as file:
        metadata = file.metadata()
    assert metadata["format"] == "hingeline"
    assert metadata["version"] == "3"
    assert json.loads(metadata["header"]) == HEADER


def test_we_read_what_the_safetensors_library_writes(tmp_path):
    """Its order of arrays and its padding are its own; there is no checksum."""
    numpy_side = pytest.importorskip("safetensors.numpy")
    metadata = {"format": "hingeline", "version": "3", "header": json.dumps({"a": [1]})}
    numpy_side.save_file(ARRAYS, tmp_path / "m", metadata=metadata)
    header, arrays = read_model(tmp_path / "m")
    assert header == {"a": [1]}
    assert all(same(arrays[name], array) for name, array in ARRAYS.items())


def test_same_model_same_bytes(tmp_path):
    write_model(tmp_path / "a", HEADER, ARRAYS)
    write_model(tmp_path / "b", HEADER, ARRAYS)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_data_is_aligned_in_the_file(tmp_path):
    write_model(tmp_path / "m", HEADER, ARRAYS)
    length = int.from_bytes((tmp_path / "m").read_bytes()[:8], "little")
    assert length % 8 == 0
    for tensor in read_header(tmp_path / "m")[1].values():
        assert tensor.begin % tensor.dtype.itemsize == 0


def test_header_is_read_without_the_arrays(tmp_path, monkeypatch):
    write_model(tmp_path / "m", HEADER, ARRAYS)
    monkeypatch.setattr(np, "empty", None)
    header, tensors = read_header(tmp_path / "m")
    assert header == HEADER
    assert tensors["w"].shape == (2, 3)


@pytest.mark.parametrize(
    ("header", "arrays", "error", "words"),
    [
        ({"a": object()}, {}, TypeError, "JSON"),
        ({"a": float("nan")}, {}, TypeError, "JSON"),
        ({1: 2, "1": 3}, {}, ValueError, "repeated"),
        ({"a": "x" * 5_000_000}, {}, ValueError, "limit"),
        ({"a": [0] * 300_000}, {}, ValueError, "values"),
        ({}, {"__metadata__": np.zeros(1)}, ValueError, "named"),
        ({}, {"": np.zeros(1)}, ValueError, "named"),
        ({}, {"\ud800": np.zeros(1)}, ValueError, "named"),
        ({}, {"a": np.array(["text"])}, TypeError, "dtype"),
        ({}, {"a": np.array([None])}, TypeError, "dtype"),
        ({}, {"a": np.zeros(2, dtype=complex)}, TypeError, "dtype"),
        ({}, {"a": np.zeros((1,) * 9)}, TypeError, "dimensions"),
    ],
)
def test_what_cannot_be_read_is_not_written(tmp_path, header, arrays, error, words):
    with pytest.raises(error, match=words):
        write_model(tmp_path / "m", header, arrays)
    assert list(tmp_path.iterdir()) == []


def test_deep_headers_are_not_written(tmp_path):
    deep: list = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(ValueError, match="nested"):
        write_model(tmp_path / "m", {"a": deep}, {})


# Atomic replacement -----------------------------------------------------------------------------


def test_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "m"
    path.write_text("old")

    def interrupted():
        with replacing(path) as file:
            file.write(b"half of the new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_failing_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "m"
    path.write_text("old")

    def full(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_model(path, {}, {"w": np.zeros(3)})
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_missing_folder_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_model(tmp_path / "none" / "m", {}, {})
    with pytest.raises(FileNotFoundError):
        read_model(tmp_path / "none")


def test_a_folder_is_not_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        write_model(tmp_path / "folder", {}, {})
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions and links")
def test_permissions_are_those_of_ordinary_files_and_links_stay(tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("")
    write_model(tmp_path / "m", {}, {})
    assert stat.S_IMODE((tmp_path / "m").stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
    (tmp_path / "link").symlink_to("m")
    write_model(tmp_path / "link", {"new": 1}, {})
    assert (tmp_path / "link").is_symlink()
    assert read_model(tmp_path / "m")[0] == {"new": 1}


# Texts ------------------------------------------------------------------------------------------


@given(st.lists(st.text(st.characters(exclude_categories=()))))
def test_texts_round_trip(texts):
    content, ends = pack_texts(texts)
    assert content.dtype == np.uint8
    assert ends.dtype == np.int64
    assert unpack_texts(content, ends) == texts


@pytest.mark.parametrize(
    ("content", "ends"),
    [
        (b"abc", [2]),
        (b"abc", [4]),
        (b"abc", [2, 1, 3]),
        (b"abc", [-1, 3]),
        (b"abc", []),
        (b"", [1]),
        (b"abc", [2**63 - 1, -2, 3]),  # its differences wrap around to be positive
        (b"\xff\xff\xff", [3]),
        (b"\xc3\xa4", [1, 2]),
    ],
)
def test_wrong_ends_are_refused(content, ends):
    with pytest.raises(ValueError):
        unpack_texts(np.frombuffer(content, dtype=np.uint8), np.array(ends, dtype=np.int64))


def test_wrong_arrays_of_texts_are_refused():
    good = pack_texts(["a", "b"])
    for content, ends in (
        (good[0].astype(np.int32), good[1]),
        (good[0], good[1].astype(np.float64)),
        (good[0][:, None], good[1]),
    ):
        with pytest.raises(ValueError, match="packed texts"):
            unpack_texts(content, ends)


def test_error_is_a_value_error():
    assert issubclass(ModelFileError, ValueError)
