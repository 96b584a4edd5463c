"""Limits of a model file, and checks of what it says before anything is allocated for it."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import numpy as np

UNKNOWN = "it is in no format known here"
_PICKLE = "it seems to be a Python pickle, which can run code and is never opened here"
_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"\x1f\x8b", "it seems to be a gzip file; decompress it first if a model is inside"),
    (b"PK\x03\x04", "it seems to be a ZIP archive, as torch.save and numpy.savez write"),
    (b"\x89HDF\r\n\x1a\n", "it seems to be an HDF5 file"),
    (b"\x93NUMPY", "it seems to be a NumPy array (.npy)"),
    (b"BZh", "it seems to be a bzip2 file; decompress it first if a model is inside"),
    (b"\xfd7zXZ\x00", "it seems to be an xz file; decompress it first if a model is inside"),
    (b"\x28\xb5\x2f\xfd", "it seems to be a Zstandard file; decompress it first"),
    (b"lCRF", "it seems to be a CRFsuite model; dump it as text and use import_crfsuite"),
    (b"FILEHEADER = {", "it seems to be a dump of a CRFsuite model; use import_crfsuite"),
    (b"solver_type ", "it seems to be a LIBLINEAR model; use import_liblinear"),
    *((bytes([0x80, protocol]), _PICKLE) for protocol in range(2, 6)),
)


def seems_to_be(first: bytes) -> str:
    """What a file that is no model seems to be, from its first bytes."""
    if not first:
        return "it is empty"
    for signature, what in _SIGNATURES:
        if first.startswith(signature):
            return what
    try:
        text = first.decode()
    except UnicodeDecodeError as error:
        if error.start < len(first) - 3:  # the last character may be cut in two
            return UNKNOWN
        text = first[: error.start].decode()
    if text and all(c.isprintable() or c.isspace() for c in text):
        return "it seems to be a text file"
    return UNKNOWN


#: Version of the format that is written; older ones are read.
VERSION = 1
#: Limits of the JSON: bytes, nesting, and values of the file's own header and of the model's.
MAX_JSON_BYTES = 4 * 2**20
MAX_NESTING = 64
MAX_FILE_VALUES = 100_000
MAX_HEADER_VALUES = 250_000
MAX_DIGITS = 1000
MAX_DIMENSIONS = 8

DTYPES: dict[str, np.dtype[Any]] = {"I8": np.dtype("i1"), "U8": np.dtype("u1")}
DTYPES |= {f"{kind}{8 * n}": np.dtype(f"<{kind.lower()}{n}") for kind in "IUF" for n in (2, 4, 8)}
DTYPES |= {"BOOL": np.dtype("?")}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}

#: Key of a safetensors file's own texts.
METADATA = "__metadata__"
DAMAGED = "it is damaged or was not written by Hingeline; get a fresh copy"


class ModelFileError(ValueError):
    """A file that is not a model this version can read; the message names it and the remedy."""


class TensorInfo(NamedTuple):
    """An array of a file: what there is to know without reading it."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int  # bytes after the JSON
    end: int


def check_version(version: str, name: str) -> None:
    """Refuse what a newer version wrote, naming both."""
    if not re.fullmatch("[1-9][0-9]{0,8}", version):
        raise ModelFileError(f"{name} has format version {version[:20]!r}: {DAMAGED}.")
    if int(version) > VERSION:
        raise ModelFileError(
            f"{name} was written by a newer Hingeline (format {version}, this is {VERSION}): "
            "upgrade Hingeline to read it."
        )


def check_tensors(table: dict[str, Any], size: int, name: str) -> dict[str, TensorInfo]:
    """The arrays in the order of their bytes, which must fill the file without gap or overlap."""
    tensors = []
    for key, entry in table.items():
        where = f"{name} describes its array {key[:60]!r}"
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise ModelFileError(f"{where} wrongly: {DAMAGED}.")
        kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(kind, str) or kind not in DTYPES:
            raise ModelFileError(f"{where} with an unknown dtype: {DAMAGED}.")
        if not _are_counts(shape) or len(shape) > MAX_DIMENSIONS:
            raise ModelFileError(f"{where} with an impossible shape: {DAMAGED}.")
        if not _are_counts(offsets) or len(offsets) != 2 or not offsets[0] <= offsets[1]:
            raise ModelFileError(f"{where} with impossible offsets: {DAMAGED}.")
        count, extent = 1, DTYPES[kind].itemsize
        for dimension in shape:
            count *= dimension
            extent *= max(dimension, 1)
        # NumPy refuses extents beyond its integers, even where a dimension is 0.
        if extent >= 2**62 or count * DTYPES[kind].itemsize != offsets[1] - offsets[0]:
            raise ModelFileError(f"{where} with a shape that is not its bytes: {DAMAGED}.")
        tensors.append((key, TensorInfo(DTYPES[kind], tuple(shape), *offsets)))
    tensors.sort(key=lambda item: (item[1].begin, item[1].end))
    at = 0
    for key, tensor in tensors:
        if tensor.begin != at:
            raise ModelFileError(
                f"{name} has a gap or an overlap before its array {key[:60]!r}: {DAMAGED}."
            )
        at = tensor.end
    if at > size:
        raise ModelFileError(
            f"{name} is cut short (its arrays have {at} bytes, the file {size} for them): copy or "
            "download it again."
        )
    if at < size:
        raise ModelFileError(f"{name} has {size - at} bytes too many at its end: {DAMAGED}.")
    return dict(tensors)


def _are_counts(values: Any) -> bool:
    return isinstance(values, list) and all(type(v) is int and v >= 0 for v in values)


def parse_json(content: bytes | bytearray, max_values: int) -> dict[str, Any]:
    """A JSON object within limits; a ``ValueError`` says what is wrong with it.

    Size, nesting and the number of values are bounded before the parser runs; repeated keys,
    NaN and infinity are refused.
    """
    if len(content) > MAX_JSON_BYTES:
        raise ValueError(f"it has {len(content)} bytes, over the limit of {MAX_JSON_BYTES}")
    plain = np.frombuffer(
        content.replace(b"\\\\", b"").replace(b'\\"', b""), dtype=np.uint8
    )  # every quote that is left opens or closes a text
    outside = np.cumsum(plain == ord('"'), dtype=np.uint8) % 2 == 0
    opening = ((plain == ord("[")) | (plain == ord("{"))) & outside
    closing = ((plain == ord("]")) | (plain == ord("}"))) & outside
    n_open = int(np.count_nonzero(opening))
    if n_open + int(np.count_nonzero((plain == ord(",")) & outside)) >= max_values:
        raise ValueError(f"it has more than {max_values} values")
    if n_open != np.count_nonzero(closing):
        raise ValueError("it is not JSON")
    if np.cumsum(np.where(opening[opening | closing], 1, -1)).max(initial=0) > MAX_NESTING:
        raise ValueError(f"it is nested deeper than {MAX_NESTING}")
    try:
        parsed = json.loads(
            content.decode(),
            object_pairs_hook=_refuse_duplicates,
            parse_int=_parse_integer,
            parse_constant=_refuse_constant,
        )
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except json.JSONDecodeError:
        raise ValueError("it is not JSON") from None
    if not isinstance(parsed, dict):
        raise ValueError("it is not a JSON object")
    return parsed


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is repeated")
    return found


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON number")


def _parse_integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:  # converting them takes time that grows with the square
        raise ValueError(f"a number has more than {MAX_DIGITS} digits")
    return int(digits)
