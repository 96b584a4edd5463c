"""Reading and writing of model files: the format is described in :mod:`hingeline.modelfile`.

It is that of the safetensors library, which can open the files but does not write or read them
here: it writes metadata in an order that differs from process to process, so that files of one
model differ; it maps a file or takes twice its size, and a mapped file that is cut short ends the
process; and it accepts headers that are refused here (unknown keys, dimensions without limit,
booleans that are neither 0 nor 1).
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np

from hingeline._files import replacing
from hingeline.modelfile.checks import (
    DAMAGED,
    DTYPE_NAMES,
    MAX_DIMENSIONS,
    MAX_FILE_VALUES,
    MAX_HEADER_VALUES,
    MAX_JSON_BYTES,
    METADATA,
    UNKNOWN,
    VERSION,
    ModelFileError,
    TensorInfo,
    check_tensors,
    check_version,
    parse_json,
    seems_to_be,
)

Array = np.ndarray[Any, Any]


def write_model(
    path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, Array]
) -> int:
    """Write a model file atomically.

    Parameters
    ----------
    path : str or path
    header : dict
        What JSON can hold; within the limits of this module.
    arrays : dict of ndarray
        Numbers or booleans, of the types in ``DTYPES``.

    Returns
    -------
    int
        Bytes written.
    """
    try:
        text = json.dumps(header, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"the header cannot be written as JSON: {error}.") from None
    ready = {name: _prepare(name, array) for name, array in arrays.items()}
    order = sorted(ready, key=lambda name: -ready[name].itemsize)
    checksum = zlib.crc32(text.encode())
    metadata = {"format": "hingeline", "version": str(VERSION), "header": text}
    entries: dict[str, Any] = {METADATA: metadata}
    at = 0
    for name in order:
        array = ready[name]
        span = [at, at + array.nbytes]
        kind = DTYPE_NAMES[array.dtype]
        entries[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": span}
        at += array.nbytes
        checksum = _add_checksum(checksum, name, array)
    metadata["crc32"] = f"{checksum:08x}"
    table = json.dumps(entries, separators=(",", ":")).encode()
    table += b" " * (-len(table) % 8)
    try:  # what is written can be read
        parse_json(text.encode(), MAX_HEADER_VALUES)
        parse_json(table, MAX_FILE_VALUES)
    except ValueError as error:
        raise ValueError(f"the header cannot be stored: {error}.") from None
    with replacing(path) as file:
        file.write(len(table).to_bytes(8, "little"))
        file.write(table)
        for name in order:
            file.write(_view_bytes(ready[name]))
    return 8 + len(table) + at


def _prepare(name: str, array: Array) -> Array:
    """The array as it goes into the file: little-endian, C-contiguous."""
    wrong = not isinstance(name, str) or not name or name == METADATA
    if wrong or any("\ud800" <= c <= "\udfff" for c in name):  # surrogates are no UTF-8
        raise ValueError(f"an array cannot be named {name!r}: use a non-empty text.")
    array = np.asarray(array)
    dtype = array.dtype.newbyteorder("<") if array.dtype.itemsize > 1 else array.dtype
    if dtype not in DTYPE_NAMES or array.ndim > MAX_DIMENSIONS:
        raise TypeError(
            f"array {name!r} has dtype {array.dtype} and {array.ndim} dimensions: only numbers "
            f"and booleans of at most {MAX_DIMENSIONS} dimensions can be stored."
        )
    return np.asarray(array, dtype=dtype, order="C")


def _add_checksum(before: int, name: str, array: Array) -> int:
    """Checksum that goes on with an array: what it is, then its bytes."""
    kind = json.dumps([name, DTYPE_NAMES[array.dtype], list(array.shape)])
    return zlib.crc32(_view_bytes(array), zlib.crc32(kind.encode(), before))


def _view_bytes(array: Array) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def read_header(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, TensorInfo]]:
    """Header of a model file, and what arrays it has, without reading them."""
    with _open(path) as file:
        metadata, tensors, _ = _read_table(file, os.fspath(path))
    return _parse_header(metadata, os.fspath(path)), tensors


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Array]]:
    """Header and arrays of a model file; these are aligned, writable and nobody else's."""
    name = os.fspath(path)
    with _open(path) as file:
        metadata, tensors, start = _read_table(file, name)
        header = _parse_header(metadata, name)
        checksum = zlib.crc32(metadata["header"].encode("utf-8", "surrogatepass"))
        arrays = {}
        file.seek(start)
        for key, tensor in tensors.items():
            try:
                array = np.empty(tensor.shape, dtype=tensor.dtype)
            except MemoryError:
                raise ModelFileError(
                    f"{name} needs {(tensor.end - tensor.begin) / 1e9:.1f} GB of memory, which "
                    "this machine does not give: use a larger one."
                ) from None
            _fill(file, _view_bytes(array), name)
            checksum = _add_checksum(checksum, key, array)
            if tensor.dtype == np.bool_ and array.size and array.view(np.uint8).max() > 1:
                raise ModelFileError(f"{name} cannot be read: {DAMAGED}.")
            native = array.dtype.newbyteorder("=")
            arrays[key] = array if sys.byteorder == "little" else array.astype(native)
    if metadata.get("crc32", f"{checksum:08x}") != f"{checksum:08x}":
        raise ModelFileError(
            f"{name} is damaged (its contents do not match its checksum): get a fresh copy."
        )
    return header, arrays


@contextlib.contextmanager
def _open(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    # Before opening: to open a pipe would wait for a writer.
    if not stat.S_ISREG(os.stat(path).st_mode):
        kind = "a folder" if os.path.isdir(path) else "no regular file"
        raise ModelFileError(f"{os.fspath(path)} is {kind}: give the path of a model file.")
    with open(path, "rb", buffering=0) as file:
        yield file


def _fill(file: BinaryIO, content: memoryview, name: str) -> None:
    """Read exactly as many bytes as ``content`` has."""
    at = 0
    while at < len(content):
        count = file.readinto(content[at:])  # type: ignore[attr-defined]
        if not count:
            raise ModelFileError(f"{name} became shorter while it was read: try again.")
        at += count


def _read_table(file: BinaryIO, name: str) -> tuple[dict[str, str], dict[str, TensorInfo], int]:
    """Metadata, arrays in the order of their bytes, and where these begin."""
    size = os.fstat(file.fileno()).st_size
    first = bytearray(min(size, 512))
    _fill(file, memoryview(first), name)
    length = int.from_bytes(first[:8], "little")
    what = seems_to_be(bytes(first))
    strange = size < 10 or length < 2 or first[8:9] != b"{"
    if strange or (length > MAX_JSON_BYTES and what != UNKNOWN):
        raise ModelFileError(f"{name} is no Hingeline model: {what}.")
    if length > MAX_JSON_BYTES:
        raise ModelFileError(
            f"{name} has a header of {length} bytes, over the limit of {MAX_JSON_BYTES}: {DAMAGED}."
        )
    if length > size - 8:
        raise ModelFileError(
            f"{name} is cut short (its header has {length} bytes, the file {size}): copy or "
            "download it again."
        )
    content = bytearray(length)
    file.seek(8)
    _fill(file, memoryview(content), name)
    try:
        table = parse_json(content, MAX_FILE_VALUES)
    except ValueError as error:
        raise ModelFileError(f"{name} has a header that is wrong ({error}): {DAMAGED}.") from None
    metadata = table.pop(METADATA, None)
    texts = isinstance(metadata, dict) and all(isinstance(v, str) for v in metadata.values())
    if not texts or metadata.get("format") != "hingeline":
        raise ModelFileError(
            f"{name} is no Hingeline model: it seems to be a safetensors file of another program."
        )
    check_version(metadata.get("version", ""), name)
    return metadata, check_tensors(table, size - 8 - length, name), 8 + length


def _parse_header(metadata: dict[str, str], name: str) -> dict[str, Any]:
    try:
        text = metadata["header"].encode("utf-8", "surrogatepass")
        return parse_json(text, MAX_HEADER_VALUES)
    except KeyError:
        raise ModelFileError(f"{name} has no model header: {DAMAGED}.") from None
    except ValueError as error:
        raise ModelFileError(
            f"{name} has a model header that is wrong ({error}): {DAMAGED}."
        ) from None
