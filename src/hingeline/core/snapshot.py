"""The whole state of a run as numbers and arrays, so that it can be taken up again, bit for bit.

A snapshot holds what decides the rest of a run: multipliers, weights, the averages under way, the
generator's state and the loop's own bookkeeping. What can be computed again without a difference
(inner products of tokens, say) is left out. Classes list the names of what belongs to it in
``saved_numbers`` and ``saved_arrays``; a dot leads into a part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import reduce
from typing import Any

import numpy as np

from hingeline.core.primitives import Compiled
from hingeline.core.results import HistoryRow

Array = np.ndarray[Any, Any]

#: Metadata that JSON can hold, and named arrays.
Snapshot = tuple[dict[str, Any], dict[str, Array]]


def take(solver: Any, progress: Any) -> Snapshot:
    """The state after a pass; arrays are not copied."""
    arrays: dict[str, Array] = {
        "solver.numbers": _numbers(solver, solver.saved_numbers),
        "solver.stages": np.array(solver.stages, dtype=np.float64),
        "progress.numbers": _numbers(progress, progress.saved_numbers),
        "progress.history": np.array(progress.history, dtype=np.float64).reshape(
            -1, len(HistoryRow._fields)
        ),
    }
    for name in solver.saved_arrays:
        value = getattr(solver, name)
        if value is not None:
            arrays[f"solver.{name}"] = value
    for name, value in solver.tables().items():
        arrays[f"planes.{name}"] = value
    return {"generator": _generator_state(solver.rng)}, arrays


def restore(solver: Any, progress: Any, snapshot: Snapshot) -> None:
    """Put a fresh solver and loop where those of the snapshot were."""
    meta, arrays = snapshot
    try:
        _set_numbers(solver, solver.saved_numbers, arrays["solver.numbers"])
        solver.stages = arrays["solver.stages"].tolist()
        _set_numbers(progress, progress.saved_numbers, arrays["progress.numbers"])
        progress.history = [_row(values) for values in arrays["progress.history"]]
        for name in solver.saved_arrays:
            _set_array(solver, name, arrays.get(f"solver.{name}"))
        solver.set_tables({n[7:]: v for n, v in arrays.items() if n.startswith("planes.")})
        state: Any = solver.rng.bit_generator.state
        state["state"] = {name: int(value) for name, value in meta["generator"]["state"].items()}
        state["has_uint32"] = int(meta["generator"]["has_uint32"])
        state["uinteger"] = int(meta["generator"]["uinteger"])
        solver.rng.bit_generator.state = state
    except (KeyError, TypeError, IndexError, OverflowError) as error:
        raise ValueError(f"the checkpoint lacks a part of the state ({error}).") from None


def identity(compiled: Compiled, *parts: Any) -> str:
    """A hash of the problem and of whatever else must be the same for a run to go on."""
    digest = hashlib.blake2b(digest_size=16)
    for name, value in _fields_of(compiled.problem):
        if name != "token_gram" and isinstance(value, (np.ndarray, int, float)):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(value).data)
    digest.update(np.ascontiguousarray(compiled.lengths).data)
    for part in parts:
        digest.update(np.ascontiguousarray(part).data if isinstance(part, np.ndarray) else b"")
        digest.update(repr(part).encode() if not isinstance(part, np.ndarray) else b"")
    return digest.hexdigest()


def _fields_of(problem: Any) -> Iterator[tuple[str, Any]]:
    """Names and values of a problem, those of tuples inside it included."""
    if hasattr(problem, "_fields"):
        for name, value in zip(problem._fields, problem, strict=True):
            yield name, value
            yield from _fields_of(value)


def _numbers(owner: Any, names: tuple[str, ...]) -> Array:
    return np.array([reduce(getattr, n.split("."), owner) for n in names], dtype=np.float64)


def _set_numbers(owner: Any, names: tuple[str, ...], values: Array) -> None:
    if len(values) != len(names):
        raise KeyError("numbers")
    for name, value in zip(names, values.tolist(), strict=True):
        *path, last = name.split(".")
        part = reduce(getattr, path, owner)
        setattr(part, last, type(getattr(part, last))(value))


def _set_array(solver: Any, name: str, value: Array | None) -> None:
    current = getattr(solver, name)
    if value is None:
        if current is not None:
            raise KeyError(name)
        return
    if current is None:
        current = np.empty_like(solver.w)
        setattr(solver, name, current)
    if value.shape != current.shape or value.dtype != current.dtype:
        raise KeyError(f"{name} of shape {current.shape}")
    current[...] = value


def _row(values: Array) -> HistoryRow:
    kinds = HistoryRow.__annotations__
    numbers = zip(HistoryRow._fields, values.tolist(), strict=True)
    return HistoryRow(*(int(v) if kinds[name] == "int" else v for name, v in numbers))


def _generator_state(rng: np.random.Generator) -> dict[str, Any]:
    state = rng.bit_generator.state
    return {
        "state": {name: str(value) for name, value in state["state"].items()},
        "has_uint32": int(state["has_uint32"]),
        "uinteger": int(state["uinteger"]),
    }
