"""Files that are not what they say: one sentence, little memory, no hang, no other exception."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import subprocess
import sys
import time
import tracemalloc
import zipfile

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from hingeline import load
from hingeline.callbacks import Checkpoint
from hingeline.modelfile.files import (
    MAX_FILE_VALUES,
    MAX_JSON_BYTES,
    ModelFileError,
    parse_json,
    read_header,
    read_model,
    write_model,
)

LIMIT = 100 * 2**20
METADATA = {"format": "hingeline", "version": "3", "header": "{}"}


def raw(table, data=b"", length=None):
    """A file with this table, which may be bytes, and these array bytes."""
    text = table if isinstance(table, bytes) else json.dumps(table).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def tensor(dtype="F64", shape=(1,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def with_tensors(data=b"\0" * 8, **tensors):
    return raw({"__metadata__": METADATA, **tensors}, data)


def sentence(error):
    text = str(error)
    assert text.endswith(".")
    assert "\n" not in text
    assert len(text) < 600
    return text


def attempt(path):
    """Read a file; the memory and the time that takes are bounded."""
    tracemalloc.start()
    began = time.perf_counter()
    try:
        result = read_model(path)
    except ModelFileError as error:
        result = error
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    if isinstance(result, ModelFileError):
        assert os.fspath(path) in sentence(result)
    assert peak < LIMIT
    assert time.perf_counter() - began < 20
    return result


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "good.hinge"
    header = {"labels": ["a", "b"], "n": 3, "x": {"y": [1.5, None]}}
    arrays = {
        "w": np.arange(4.0),
        "f": np.array([True, False]),
        "t": np.frombuffer(b"abc", np.uint8),
        "empty": np.zeros((0, 2)),
    }
    write_model(path, header, arrays)
    return path


HUGE = 2**62
BAD = {
    "header longer than the file": raw(b"{}", length=1000),
    "header of 2**63 bytes": raw(b"{}", length=2**63),
    "header over the limit": raw(b'{"a":' + b" " * MAX_JSON_BYTES + b"1}"),
    "header of no bytes": raw(b"", length=0),
    "no JSON": raw(b"{nonsense}"),
    "no UTF-8": raw(b'{"\xff":1}'),
    "no object": raw(b"[1]       "),
    "not closed": raw(b'{"a":"'),
    "escaped quotes, not closed": raw(b'{"a":"' + b'\\"' * 100_000),
    "quotes only": raw(b"{" + b'"' * 1_000_001),
    "deep": raw(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "deep and not closed": raw(b'{"a":' + b"[" * 3_000_000),
    "many lists": raw(b'{"a":[' + b"[]," * 1_000_000 + b"[]]}"),
    "many keys": raw(b"{" + b",".join(b'"%x":1' % k for k in range(400_000)) + b"}"),
    "many numbers": raw(b'{"a":[' + b"1," * 2_000_000 + b"1]}"),
    "digits": raw(b'{"a":' + b"9" * 3_000_000 + b"}"),
    "repeated key": raw(b'{"__metadata__":{},"a":1,"a":2}'),
    "repeated metadata": raw(b'{"__metadata__":{},"__metadata__":{}}'),
    "NaN": raw(b'{"__metadata__":NaN}'),
    "metadata of numbers": raw({"__metadata__": {"format": 1}}),
    "metadata is a list": raw({"__metadata__": ["format"]}),
    "version 0": raw({"__metadata__": {**METADATA, "version": "0"}}),
    "version of words": raw({"__metadata__": {**METADATA, "version": "one"}}),
    "version of many digits": raw({"__metadata__": {**METADATA, "version": "9" * 5000}}),
    "no version": raw({"__metadata__": {"format": "hingeline", "header": "{}"}}),
    "no model header": raw({"__metadata__": {"format": "hingeline", "version": "3"}}),
    "model header is no JSON": raw({"__metadata__": {**METADATA, "header": "{"}}),
    "model header is no object": raw({"__metadata__": {**METADATA, "header": "[]"}}),
    "model header is deep": raw(
        {"__metadata__": {**METADATA, "header": '{"a":' + "[" * 9999 + "]" * 9999 + "}"}}
    ),
    "model header repeats a key": raw({"__metadata__": {**METADATA, "header": '{"a":1,"a":1}'}}),
    "model header is a surrogate": raw({"__metadata__": {**METADATA, "header": "\ud800"}}),
    "tensor is a number": with_tensors(w=1),
    "tensor lacks a key": with_tensors(w={"dtype": "F64", "shape": [1]}),
    "tensor has a key too many": with_tensors(w={**tensor(), "x": 1}),
    "unknown dtype": with_tensors(w=tensor("C128")),
    "dtype is a list": with_tensors(w=tensor(["F64"])),
    "negative dimension": with_tensors(w=tensor(shape=[-1])),
    "two negative dimensions": with_tensors(w=tensor(shape=[-1, -1])),
    "fractional dimension": with_tensors(w=tensor(shape=[1.0])),
    "dimension is true": with_tensors(w=tensor(shape=[True])),
    "dimension is text": with_tensors(w=tensor(shape=["1"])),
    "shape is a number": with_tensors(w={**tensor(), "shape": 1}),
    "many dimensions": with_tensors(w=tensor(shape=[1] * 9)),
    "huge dimension": with_tensors(w=tensor(shape=[HUGE])),
    "product wraps to the bytes": with_tensors(w=tensor(shape=[2**32, 2**32, 2])),
    "product wraps to 1": with_tensors(w=tensor(shape=[2**64 + 1])),
    "huge but empty": with_tensors(b"", w=tensor(shape=[0, HUGE, HUGE], offsets=[0, 0])),
    "shape and bytes differ": with_tensors(w=tensor(shape=[2])),
    "offsets are one": with_tensors(w=tensor(offsets=[0])),
    "offsets are text": with_tensors(w=tensor(offsets=["0", "8"])),
    "offsets fall": with_tensors(w=tensor(offsets=[8, 0])),
    "offsets negative": with_tensors(w=tensor(offsets=[-8, 0])),
    "offsets beyond": with_tensors(w=tensor(shape=[HUGE // 8], offsets=[0, HUGE])),
    "gap before": with_tensors(b"\0" * 16, w=tensor(offsets=[8, 16])),
    "gap between": with_tensors(b"\0" * 24, a=tensor(), b=tensor(offsets=[16, 24])),
    "overlap": with_tensors(b"\0" * 12, a=tensor(), b=tensor(offsets=[4, 12])),
    "the same bytes twice": with_tensors(a=tensor(), b=tensor()),
    "data missing": with_tensors(b"", w=tensor()),
    "data cut": with_tensors(b"\0" * 7, w=tensor()),
    "data too long": with_tensors(b"\0" * 9, w=tensor()),
    "data without tensors": with_tensors(b"\0" * 9),
    "boolean that is 2": with_tensors(b"\2", w=tensor("BOOL", offsets=[0, 1])),
    "many tensors": raw(
        {
            "__metadata__": METADATA,
            **{f"t{k}": tensor(shape=[0], offsets=[0, 0]) for k in range(MAX_FILE_VALUES // 5)},
        }
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused(tmp_path, name):
    path = tmp_path / "bad.hinge"
    path.write_bytes(BAD[name])
    assert isinstance(attempt(path), ModelFileError)
    if name != "boolean that is 2":
        with pytest.raises(ModelFileError):
            read_header(path)


def test_the_builder_of_bad_files_can_build_good_ones(tmp_path):
    path = tmp_path / "good.hinge"
    path.write_bytes(
        with_tensors(np.array([1.5, 2.5]).tobytes(), w=tensor(shape=[2], offsets=[0, 16]))
    )
    header, arrays = attempt(path)
    assert header == {}
    assert arrays["w"].tolist() == [1.5, 2.5]


def test_newer_files_say_so(tmp_path):
    path = tmp_path / "m.hinge"
    path.write_bytes(raw({"__metadata__": {**METADATA, "version": "4"}, "w": "another format"}))
    with pytest.raises(
        ModelFileError, match=r"written by a newer Hingeline \(format 4, this is 3\): upgrade"
    ):
        read_model(path)


def test_older_files_name_the_remedy(tmp_path):
    """A model or a checkpoint of the format before, whatever its header and arrays look like."""
    path = tmp_path / "m.hinge"
    path.write_bytes(raw({"__metadata__": {**METADATA, "version": "2"}, "w": "another format"}))
    message = r"m\.hinge was written by an older Hingeline \(format 2, this is 3\): train again"
    for read in (read_model, read_header, load, lambda p: Checkpoint(p, resume=True).begin({}, id)):
        with pytest.raises(ModelFileError, match=message):
            read(path)


def zipped():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("archive/data.pkl", b"x")
    return out.getvalue()


FOREIGN = {
    "empty": (b"", "empty"),
    "gzip": (gzip.compress(b"x" * 100), "gzip"),
    "pickle 2": (pickle.dumps({"a": 1}, protocol=2), "pickle"),
    "pickle 4": (pickle.dumps({"a": 1}, protocol=4), "pickle"),
    "pickle 5": (pickle.dumps(np.zeros(30), protocol=5), "pickle"),
    "zip": (zipped(), "ZIP"),
    "hdf5": (b"\x89HDF\r\n\x1a\n" + b"\0" * 100, "HDF5"),
    "npy": (b"\x93NUMPY\x01\x00" + b"\0" * 100, "NumPy"),
    "text": (b"Hello,\nthis is text with \xc3\xa4.\n", "text file"),
    "long text, cut in a character": (b"x" * 511 + "ä".encode() * 100, "text file"),
    "json": (b'{"a": "this is JSON, but no model file"}', "text file"),
    "json with a brace in the right place": (b'{"abcde"{"b": 1}}' * 10, "text file"),
    "crfsuite": (b"lCRF$\x14\0\0FOMCd\0\0\0" + b"\0" * 100, "import_crfsuite"),
    "crfsuite dump": (b"FILEHEADER = {\n  magic: lCRF\n", "import_crfsuite"),
    "liblinear": (b"solver_type MCSVM_CS\nnr_class 3\n", "import_liblinear"),
    "noise": (bytes(range(256)) * 4, "its format is not known"),
    "one byte": (b"\xfe", "its format is not known"),
    "zeros": (b"\0" * 1000, "its format is not known"),
    "safetensors": (
        raw({"__metadata__": {"format": "pt"}, "w": tensor()}, b"\0" * 8),
        "safetensors",
    ),
    "safetensors without metadata": (raw({"w": tensor()}, b"\0" * 8), "safetensors"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_files_are_named(tmp_path, name):
    content, word = FOREIGN[name]
    path = tmp_path / "foreign"
    path.write_bytes(content)
    error = attempt(path)
    assert isinstance(error, ModelFileError)
    assert word in str(error)


def test_folders_and_pipes_are_refused_at_once(tmp_path):
    with pytest.raises(ModelFileError, match="folder"):
        read_model(tmp_path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(ModelFileError, match="regular file"):
            read_model(tmp_path / "pipe")


def test_truncation_at_every_byte(model, tmp_path):
    content = model.read_bytes()
    path = tmp_path / "cut"
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(ModelFileError) as caught:
            read_model(path)
        sentence(caught.value)


def test_every_changed_byte_is_noticed_or_harmless(model, tmp_path):
    """A change that is not refused, such as a space for a space, changes nothing that is read."""
    content = bytearray(model.read_bytes())
    header, arrays = read_model(model)
    path = tmp_path / "changed"
    harmless = 0
    for at in range(len(content)):
        old = content[at]
        for new in {old ^ 1, old ^ 0x80, 0, ord('"'), ord("{"), ord("9"), ord(" ")} - {old}:
            content[at] = new
            path.write_bytes(content)
            try:
                got_header, got = read_model(path)
            except ModelFileError as error:
                sentence(error)
                continue
            harmless += 1
            assert got_header == header
            assert set(got) == set(arrays)
            assert all(got[k].tobytes() == arrays[k].tobytes() for k in arrays)
            assert all(got[k].dtype == arrays[k].dtype for k in arrays)
        content[at] = old
    assert harmless < len(content)


def test_damage_to_arrays_is_found_by_the_checksum(model):
    content = bytearray(model.read_bytes())
    content[-1] ^= 1
    model.write_bytes(content)
    with pytest.raises(ModelFileError, match="checksum"):
        read_model(model)


@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    edits=st.lists(
        st.tuples(
            st.integers(0, 10_000),
            st.integers(0, 12),
            st.binary(max_size=12)
            | st.sampled_from([b"[", b"{", b'"', b",", b"null", b"-1", b"1e9"]),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_cut_and_pasted_files(model, edits):
    content = model.read_bytes()
    for at, count, new in edits:
        at %= len(content) + 1
        content = content[:at] + new + content[at + count :]
    path = model.parent / "edited"
    path.write_bytes(content)
    attempt(path)


keys = st.sampled_from(["dtype", "shape", "data_offsets", "x"])
numbers = st.integers(-2, 40) | st.sampled_from([2**31, 2**32, 2**62, 2**63, 2**64, 10**30])
parts = st.recursive(
    st.none()
    | st.booleans()
    | numbers
    | st.floats(allow_nan=False)
    | st.sampled_from(["F64", "U8"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)
entries = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F64", "F32", "U8", "BOOL", "I64"]) | parts,
        "shape": st.lists(numbers, max_size=4) | parts,
        "data_offsets": st.tuples(numbers, numbers).map(list) | parts,
    }
)


@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    table=st.dictionaries(st.sampled_from("abc"), entries | parts, max_size=3),
    data=st.binary(max_size=40),
)
def test_tables_of_anything(tmp_path, table, data):
    path = tmp_path / "table"
    path.write_bytes(raw({"__metadata__": METADATA, **table}, data))
    result = attempt(path)
    if not isinstance(result, ModelFileError):  # then it must be consistent
        assert sum(array.nbytes for array in result[1].values()) == len(data)


@settings(max_examples=120, deadline=None)
@given(st.text(st.sampled_from('[]{}",:\\1a '), max_size=60))
def test_json_that_is_accepted_is_what_python_reads(text):
    try:
        found = parse_json(text.encode(), 100)
    except ValueError:
        return
    assert found == json.loads(text)


@settings(max_examples=80, deadline=None)
@given(
    st.recursive(
        st.text(st.sampled_from('[]{}",:\\a'), max_size=6) | st.integers() | st.booleans(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=10,
    )
)
def test_json_within_the_limits_is_accepted(value):
    """Brackets, commas and quotes inside texts count for nothing."""
    text = json.dumps({"a": value, "b": "[" * 1000 + "," * 1000})
    assert parse_json(text.encode(), 200) == {"a": value, "b": "[" * 1000 + "," * 1000}


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss in kilobytes")
def test_memory_of_the_process_stays_small(tmp_path):
    """As the system sees it, over all bad files, in a process of its own."""
    for number, content in enumerate(BAD.values()):
        (tmp_path / f"{number}.hinge").write_bytes(content)
    code = """
import pathlib, resource, sys
from hingeline.modelfile.files import ModelFileError, read_model
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in pathlib.Path(sys.argv[1]).glob("*.hinge"):
    try:
        read_model(path)
    except ModelFileError:
        pass
    else:
        sys.exit(f"{path} was read")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) * 1024 < LIMIT
