"""Python values as JSON that keeps their types: tuples, mappings, infinity, arrays, encoders.

What JSON has is itself; everything else is an object with one key that names its type:
``{"float": "inf"}``, ``{"tuple": [...]}``, ``{"dict": [[key, value], ...]}``,
``{"array": name}`` (an array of the file), ``{"type": "float32"}`` (a type of numbers) and
``{"encoder": {...}}`` (a feature encoder).
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from hingeline.modelfile.files import DTYPE_NAMES

Array = np.ndarray[Any, Any]

#: Encoders that can be stored; code is never looked up by a name from a file but through this.
ENCODERS = ("DictEncoder", "TokenTemplates")
_NOT_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
#: Types of numbers that parameters may ask for.
_SCALAR_TYPES = {
    kind.__name__: kind for kind in (np.float64, np.float32, np.float16, np.int64, np.int32)
}
_PLAIN = (type(None), bool, int, str)


class NotStorable(TypeError):
    """A value that has no form in a model file."""


def to_json(value: Any, arrays: dict[str, Array], name: str) -> Any:
    """A value as typed JSON; arrays in it go to ``arrays`` under names that begin with ``name``.

    Raises
    ------
    NotStorable
        Naming the value.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) in _PLAIN:
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": str(value)}
    if type(value) in (list, tuple):
        parts = [to_json(part, arrays, f"{name}/{k}") for k, part in enumerate(value)]
        return parts if type(value) is list else {"tuple": parts}
    if isinstance(value, Mapping):
        pairs = [
            [to_json(key, arrays, name), to_json(part, arrays, f"{name}/{k}")]
            for k, (key, part) in enumerate(value.items())
        ]
        return {"dict": pairs}
    if isinstance(value, np.ndarray) and value.dtype in DTYPE_NAMES:
        arrays[name] = value
        return {"array": name}
    if isinstance(value, type) and value in _SCALAR_TYPES.values():
        return {"type": value.__name__}
    if hasattr(value, "to_state"):
        return {"encoder": encoder_to_json(value, arrays, name)}
    raise NotStorable(f"{name} holds {value!r:.60}, of type {type(value).__name__}")


def from_json(value: Any, arrays: Mapping[str, Array]) -> Any:
    """The value that :func:`to_json` encoded."""
    if type(value) in (*_PLAIN, float):
        return value
    if type(value) is list:
        return [from_json(part, arrays) for part in value]
    ((kind, content),) = value.items()
    if kind == "float":
        return _NOT_FINITE[content]
    if kind == "tuple" and type(content) is list:
        return tuple(from_json(part, arrays) for part in content)
    if kind == "dict":
        return {from_json(key, arrays): from_json(part, arrays) for key, part in content}
    if kind == "array":
        return arrays[content]
    if kind == "type":
        return _SCALAR_TYPES[content]
    if kind == "encoder":
        return encoder_from_json(content, arrays)
    raise ValueError(f"there is no type {kind!r:.40}")


def encoder_to_json(encoder: Any, arrays: dict[str, Array], name: str) -> dict[str, Any]:
    """Class and state of a feature encoder; its arrays go to ``arrays`` below ``name``."""
    kind = type(encoder).__name__
    if kind not in ENCODERS or not isinstance(encoder, encoder_class(kind)):
        raise NotStorable(
            f"{name} is a {kind}, which is none of Hingeline's own encoders ({', '.join(ENCODERS)})"
        )
    try:
        meta, parts = encoder.to_state()
    except NotFittedError:  # a constructor parameter: its own parameters are all there is
        own = {k: to_json(v, arrays, f"{name}/{k}") for k, v in encoder.get_params(False).items()}
        return {"class": kind, "parameters": own}
    arrays.update({f"{name}/{key}": part for key, part in parts.items()})
    return {"class": kind, "name": name, "meta": meta, "arrays": list(parts)}


def encoder_from_json(stored: Any, arrays: Mapping[str, Array]) -> Any:
    """The encoder that :func:`encoder_to_json` stored."""
    kind = stored["class"]
    if kind not in ENCODERS:
        raise ValueError(f"there is no encoder {kind!r:.40}")
    if "parameters" in stored:
        own = {key: from_json(value, arrays) for key, value in stored["parameters"].items()}
        return encoder_class(kind)(**own)
    name = stored["name"]
    parts = {key: arrays[f"{name}/{key}"] for key in stored["arrays"]}
    return encoder_class(kind).from_state(stored["meta"], parts)


def encoder_class(kind: str) -> Any:
    """The class of an encoder, imported when a file needs it."""
    return getattr(importlib.import_module("hingeline.features"), kind)
