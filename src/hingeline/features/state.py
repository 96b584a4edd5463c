"""Fitted encoders as plain metadata and arrays, so that model files need no pickle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hingeline._files import pack_texts, unpack_texts

Array = np.ndarray[Any, Any]


def pack_strings(texts: Sequence[str]) -> tuple[Array, Array]:
    """Texts as UTF-8 bytes in one array, and the end of each."""
    try:
        return pack_texts(texts, "strict")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"the value {error.object!r} is not valid Unicode and cannot be stored."
        ) from None


def get_array(arrays: Mapping[str, Any], name: str, dtype: Any) -> Array:
    """A one-dimensional array of this very dtype."""
    if not isinstance(arrays, Mapping) or name not in arrays:
        raise ValueError(f"the encoder has no array {name!r}.")
    array = arrays[name]
    if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype != np.dtype(dtype):
        raise ValueError(f"array {name!r} of the encoder must be a vector of {np.dtype(dtype)}.")
    return array


def get_ends(arrays: Mapping[str, Any], name: str, total: int) -> Array:
    """Ends of consecutive pieces: not falling, and ending at ``total``."""
    ends = get_array(arrays, name, np.int64)
    last = int(ends[-1]) if len(ends) else 0
    if last != total or (len(ends) and ends[0] < 0) or (np.diff(ends) < 0).any():
        raise ValueError(f"array {name!r} of the encoder must rise from 0 to {total}.")
    return ends


def get_strings(arrays: Mapping[str, Any], name: str) -> list[str]:
    """Texts stored as ``name`` (bytes) and ``name_ends``."""
    data = get_array(arrays, name, np.uint8)
    ends = get_ends(arrays, f"{name}_ends", len(data))
    try:
        return unpack_texts(data, ends, "strict")
    except UnicodeDecodeError:
        raise ValueError(f"array {name!r} of the encoder does not hold UTF-8 text.") from None


def get_meta(meta: Any, name: str, kind: type | tuple[type, ...], what: str) -> Any:
    """An entry of the metadata with its type checked."""
    if not isinstance(meta, Mapping):
        raise ValueError("the encoder's metadata must be a mapping.")
    value = meta.get(name)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"the encoder's metadata need {name!r}, {what}, got {value!r:.100}.")
    return value


def check_kind(meta: Any, kind: str) -> None:
    """Refuse another encoder's state, or that of a later version."""
    if get_meta(meta, "encoder", str, "its class") != kind:
        raise ValueError(f"the state is one of {meta['encoder']}, not of {kind}.")
    if get_meta(meta, "version", int, "a number") != 1:
        raise ValueError(f"the encoder's state has version {meta['version']}, this reads 1.")


def encoder_from_state(meta: Any, arrays: Mapping[str, Any]) -> Any:
    """The encoder whose ``to_state`` returned this; ``ValueError`` if it is not consistent."""
    from hingeline.features.dicts import DictEncoder
    from hingeline.features.templates import TokenTemplates

    known = {"DictEncoder": DictEncoder, "TokenTemplates": TokenTemplates}
    kind = get_meta(meta, "encoder", str, "its class")
    if kind not in known:
        raise ValueError(f"there is no encoder {kind!r}: there are {', '.join(known)}.")
    return known[kind].from_state(meta, arrays)
