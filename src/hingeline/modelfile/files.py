"""Model files: a JSON header and named arrays in one safetensors file, written atomically.

The file is an ordinary safetensors file, which any safetensors library opens:

* 8 bytes: length of the JSON that follows, little-endian;
* JSON: ``{"__metadata__": {...}, name: {"dtype", "shape", "data_offsets"}, ...}``, where the
  metadata, all text, is ``{"format": "hingeline", "version": "3", "header": "<JSON>",
  "crc32": "<8 hex digits>"}``; the checksum is of the header's text and of all arrays
  with their names, and tells damage, not malice;
* the arrays' bytes, little-endian and C-contiguous, without gaps, the widest numbers first so
  that all are aligned.

Nothing in it is code. A file is not trusted: sizes are checked against the file before anything is
allocated for them, so reading takes no more memory than the file has bytes, plus a bounded header.
Arrays are read, not mapped: a mapped file that is cut short later ends the process.

The safetensors library neither writes nor reads the files here: it writes metadata in an order that
differs from process to process, maps a file or takes twice its size, and accepts headers that are
refused here (unknown keys, dimensions without limit, booleans that are neither 0 nor 1).
"""

import contextlib
import json
import math
import os
import re
import stat
import zlib
from collections.abc import Iterator, Mapping
from functools import partial
from io import BufferedReader
from typing import Any, NamedTuple

import numpy as np

from hingeline._checks import Array, require, retell
from hingeline._files import replacing

NOT_JSON = (TypeError, ValueError, RecursionError)  # What JSON's writer raises.
FileName = str | os.PathLike[str]
UNKNOWN = "its format is not known here"
_PACKED = "file; decompress it first if a model is inside"
_PICKLE = "a Python pickle, which can run code and is never opened here"
_SIGNATURES: dict[bytes, str] = {
    b"\x1f\x8b": f"a gzip {_PACKED}",
    b"PK\x03\x04": "a ZIP archive, as torch.save and numpy.savez write",
    b"\x89HDF\r\n\x1a\n": "an HDF5 file",
    b"\x93NUMPY": "a NumPy array (.npy)",
    b"BZh": f"a bzip2 {_PACKED}",
    b"\xfd7zXZ\x00": f"an xz {_PACKED}",
    b"\x28\xb5\x2f\xfd": f"a Zstandard {_PACKED}",
    b"lCRF": "a CRFsuite model; dump it as text and use import_crfsuite",
    b"FILEHEADER = {": "a dump of a CRFsuite model; use import_crfsuite",
    b"solver_type ": "a LIBLINEAR model; use import_liblinear",
    **{bytes([0x80, protocol]): _PICKLE for protocol in range(2, 6)},
}


def seems_to_be(first: bytes) -> str:
    """What a file that is not a model seems to be, from its first bytes."""
    if not first:
        return "it is empty"
    for signature, what in _SIGNATURES.items():
        if first.startswith(signature):
            return f"it seems to be {what}"
    text = first.decode(errors="replace").removesuffix("\ufffd")  # the end may be cut in two
    if text and all((c.isprintable() or c.isspace()) and c != "\ufffd" for c in text):
        return "it seems to be a text file"
    return UNKNOWN


#: Version of the format, the only one that is read: raise it when older files no longer load.
VERSION = 3
#: Limits of the JSON: bytes, nesting, and values of the file's own header and of the model's.
MAX_JSON_BYTES = 4 * 2**20
MAX_NESTING = 64
MAX_FILE_VALUES = 100_000
MAX_HEADER_VALUES = 250_000
MAX_DIMENSIONS = 8

DTYPES: dict[str, np.dtype[Any]] = {"I8": np.dtype("i1"), "U8": np.dtype("u1")}
DTYPES |= {f"{kind}{8 * n}": np.dtype(f"<{kind.lower()}{n}") for kind in "IUF" for n in (2, 4, 8)}
DTYPES |= {"BOOL": np.dtype("?")}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}

METADATA = "__metadata__"  # Key of a safetensors file's own texts.
DAMAGED = "it is damaged or was not written by Hingeline; get a fresh copy"


class ModelFileError(ValueError):
    """A file that is not a model this version can read; the message names file and remedy."""


#: Refuses a file; :func:`_open` puts its name before what is wrong with it.
_demand = partial(require, error=ModelFileError)


class TensorInfo(NamedTuple):
    """An array of a file: what there is to know without reading it."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int  # bytes after the JSON
    end: int


def check_tensors(table: dict[str, Any], size: int) -> dict[str, TensorInfo]:
    """The arrays in the order of their bytes, which must fill the file without gap or overlap."""
    tensors = []
    for key, entry in table.items():
        fine = False
        match entry:
            case {"dtype": str(kind), "shape": [*shape], "data_offsets": [begin, end]}:
                fine = len(entry) == 3 and kind in DTYPES and len(shape) <= MAX_DIMENSIONS
                fine = fine and all(type(n) is int and n >= 0 for n in (*shape, begin, end))
        # NumPy refuses extents beyond its integers, even where a dimension is 0.
        fine = fine and 8 * math.prod(max(length, 1) for length in shape) < 2**62
        fine = fine and DTYPES[kind].itemsize * math.prod(shape) == end - begin
        _demand(fine, f"describes its array {key[:60]!r} wrongly: {DAMAGED}.")
        tensors.append((key, TensorInfo(DTYPES[kind], tuple(shape), begin, end)))
    tensors.sort(key=lambda item: (item[1].begin, item[1].end))
    at = 0
    for key, tensor in tensors:
        told = f"has a gap or an overlap before its array {key[:60]!r}"
        _demand(tensor.begin == at, f"{told}: {DAMAGED}.")
        at = tensor.end
    short = f"is cut short (its arrays have {at} bytes, the file {size} for them)"
    _demand(at <= size, f"{short}: copy or download it again.")
    _demand(at == size, f"has {size - at} bytes too many at its end: {DAMAGED}.")
    return dict(tensors)


def parse_json(content: bytes | bytearray, max_values: int) -> dict[str, Any]:
    """A JSON object within limits; a ``ValueError`` says what is wrong with it.

    Size, nesting and the number of values are bounded before the parser runs; repeated keys,
    NaN and infinity are refused.
    """
    size = len(content)
    require(size <= MAX_JSON_BYTES, f"it has {size} bytes, over the limit of {MAX_JSON_BYTES}")
    bare = content.replace(b"\\\\", b"").replace(b'\\"', b"")
    plain = np.frombuffer(bare, dtype=np.uint8)  # every quote left opens or closes a text
    outside = np.cumsum(plain == ord('"'), dtype=np.uint8) % 2 == 0
    opening = ((plain == ord("[")) | (plain == ord("{"))) & outside
    closing = ((plain == ord("]")) | (plain == ord("}"))) & outside
    n_open = int(np.count_nonzero(opening))
    commas = int(np.count_nonzero((plain == ord(",")) & outside))
    require(n_open + commas < max_values, f"it has more than {max_values} values")
    require(n_open == np.count_nonzero(closing), "it is not JSON")
    depth = np.cumsum(np.where(opening[opening | closing], 1, -1)).max(initial=0)
    require(depth <= MAX_NESTING, f"it is nested deeper than {MAX_NESTING}")
    try:
        hooks: Any = {"object_pairs_hook": _refuse_duplicates, "parse_constant": _refuse_constant}
        parsed = json.loads(content.decode(), **hooks)
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except json.JSONDecodeError:
        raise ValueError("it is not JSON") from None
    require(isinstance(parsed, dict), "it is not a JSON object")
    return parsed


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    require(len(found) == len(pairs), "a key is repeated")
    return found


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON number")


def write_model(path: FileName, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> int:
    """Write a model file atomically; returns the bytes written."""
    with retell("the header cannot be written as JSON: ", ".", *NOT_JSON, error=TypeError):
        text = json.dumps(header, allow_nan=False, separators=(",", ":"))
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
    with retell("the header cannot be stored: ", "."):  # what is written can be read
        parse_json(text.encode(), MAX_HEADER_VALUES)
        parse_json(table, MAX_FILE_VALUES)
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
        what = f"array {name!r} has dtype {array.dtype} and {array.ndim} dimensions"
        fine = f"numbers and booleans of at most {MAX_DIMENSIONS} dimensions"
        raise TypeError(f"{what}: only {fine} can be stored.")
    return np.asarray(array, dtype=dtype, order="C")


def _add_checksum(before: int, name: str, array: Array) -> int:
    """Checksum that goes on with an array: what it is, then its bytes."""
    kind = json.dumps([name, DTYPE_NAMES[array.dtype], list(array.shape)])
    return zlib.crc32(_view_bytes(array), zlib.crc32(kind.encode(), before))


def _view_bytes(array: Array) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def read_header(path: FileName) -> tuple[dict[str, Any], dict[str, TensorInfo]]:
    """Header of a model file, and what arrays it has, without reading them."""
    with _open(path) as file:
        return _read_table(file)[:2]


def read_model(path: FileName) -> tuple[dict[str, Any], dict[str, Array]]:
    """Header and arrays of a model file; the arrays are aligned, writable and not shared."""
    with _open(path) as file:
        header, tensors, metadata, start = _read_table(file)
        arrays, checksum = {}, zlib.crc32(metadata["header"].encode("utf-8", "surrogatepass"))
        file.seek(start)
        for key, tensor in tensors.items():
            try:
                array = np.empty(tensor.shape, dtype=tensor.dtype)
            except MemoryError:
                size = f"{(tensor.end - tensor.begin) / 1e9:.1f} GB of memory"
                why = "which this machine does not have: use a larger one"
                raise ModelFileError(f"needs {size}, {why}.") from None
            _fill(file, _view_bytes(array))
            checksum = _add_checksum(checksum, key, array)
            odd = tensor.dtype == np.bool_ and array.view(np.uint8).max(initial=0) > 1
            _demand(not odd, f"cannot be read: {DAMAGED}.")
            arrays[key] = array.astype(array.dtype.newbyteorder("="), copy=False)
        fine = metadata.get("crc32", f"{checksum:08x}") == f"{checksum:08x}"
        _demand(fine, "is damaged (its contents do not match its checksum): get a fresh copy.")
    return header, arrays


@contextlib.contextmanager
def _open(path: FileName) -> Iterator[BufferedReader]:
    """The file; what is found wrong with it is said of its name."""
    with retell(f"{os.fspath(path)} ", "", ModelFileError, error=ModelFileError):
        # Before opening: to open a pipe would wait for a writer.
        kind = "a folder" if os.path.isdir(path) else "not a regular file"
        _demand(stat.S_ISREG(os.stat(path).st_mode), f"is {kind}: give the path of a model file.")
        with open(path, "rb") as file:
            yield file


def _fill(file: BufferedReader, content: memoryview) -> None:
    """Read exactly as many bytes as ``content`` has."""
    _demand(file.readinto(content) == len(content), "became shorter while it was read: try again.")


def _read_table(file: BufferedReader) -> tuple[Any, dict[str, TensorInfo], dict[str, str], int]:
    """Header, arrays in the order of their bytes, metadata, and where the arrays begin."""
    size = os.fstat(file.fileno()).st_size
    first = bytearray(min(size, 512))
    _fill(file, memoryview(first))
    length = int.from_bytes(first[:8], "little")
    what = seems_to_be(bytes(first))
    strange = size < 10 or length < 2 or first[8:9] != b"{"
    strange = strange or (length > MAX_JSON_BYTES and what != UNKNOWN)
    _demand(not strange, f"is not a Hingeline model: {what}.")
    told = f"has a header of {length} bytes, over the limit of {MAX_JSON_BYTES}"
    _demand(length <= MAX_JSON_BYTES, f"{told}: {DAMAGED}.")
    told = f"is cut short (its header has {length} bytes, the file {size})"
    _demand(length <= size - 8, f"{told}: copy or download it again.")
    content = bytearray(length)
    file.seek(8)
    _fill(file, memoryview(content))
    table = _parse(content, MAX_FILE_VALUES, "header")
    metadata = table.pop(METADATA, None)
    ours = isinstance(metadata, dict) and all(isinstance(v, str) for v in metadata.values())
    ours = ours and metadata.get("format") == "hingeline"
    what = "it seems to be a safetensors file of another program"
    _demand(ours, f"is not a Hingeline model: {what}.")
    version = metadata.get("version", "")
    counted = re.fullmatch("[1-9][0-9]{0,8}", version)
    _demand(counted, f"has format version {version[:20]!r}: {DAMAGED}.")
    told = f"Hingeline (format {version}, this is {VERSION})"
    newer = f"was written by a newer {told}: upgrade Hingeline to read it."
    older = f"was written by an older {told}: train again, or use the Hingeline that wrote it."
    _demand(int(version) == VERSION, newer if int(version) > VERSION else older)
    _demand("header" in metadata, f"has no model header: {DAMAGED}.")
    text = metadata["header"].encode("utf-8", "surrogatepass")
    header = _parse(text, MAX_HEADER_VALUES, "model header")
    return header, check_tensors(table, size - 8 - length), metadata, 8 + length


def _parse(content: bytes | bytearray, max_values: int, what: str) -> dict[str, Any]:
    with retell(f"has a {what} that is wrong (", f"): {DAMAGED}.", error=ModelFileError):
        return parse_json(content, max_values)
