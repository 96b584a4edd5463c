"""Twins of the library's kernels that contain a user's code.

The library's kernels find the code of its own structures by the class of the problem and are
cached on disk. A user's structure must not get there: its functions would end up in the cache's
index and outlive their source. Instead the *source* of a kernel is taken once more, with the names
of the primitives bound to the user's functions: compiled without the cache if the user's methods
are compiled, plain Python otherwise. Both run the very same lines as the library's own structures.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from numba.extending import is_jitted

from hingeline._jit import uncached
from hingeline.core import primitives as base

_STUBS = {getattr(base, name): name for name in base.PRIMITIVES}


def _source(function: Any) -> FunctionType:
    return function.py_func if is_jitted(function) else function


def _names(code: CodeType) -> set[str]:
    """Names a function looks up, those of functions inside it included."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names(constant)
    return names


def _parts(function: Any) -> dict[str, Any]:
    """The functions of this library that ``function`` calls by name."""
    source = _source(function)
    found = {}
    for name in _names(source.__code__):
        value = source.__globals__.get(name)
        ours = isinstance(value, FunctionType) or is_jitted(value)
        if ours and _source(value).__module__.startswith("hingeline."):
            found[name] = value
    return found


def _needs_twin(function: Any) -> bool:
    if not is_jitted(function) and function in _STUBS:
        return True
    return any(_needs_twin(part) for part in _parts(function).values())


def make_binder(primitives: dict[str, Callable[..., Any]], compiled: bool) -> Callable[[Any], Any]:
    """A function that turns a kernel of the library into its twin for these primitives."""
    made: dict[Any, Any] = {}

    def missing(name: str) -> Callable[..., Any]:
        def refuse(*args: Any) -> Any:
            raise NotImplementedError(f"this structure has no {name}()")

        return refuse

    def bind(function: Any) -> Any:
        if not is_jitted(function) and function in _STUBS:
            name = _STUBS[function]
            return primitives[name] if name in primitives else missing(name)
        source = _source(function)
        if source not in made:
            scope = dict(source.__globals__)
            for name, part in _parts(function).items():
                if _needs_twin(part):
                    scope[name] = bind(part)
            clone = FunctionType(source.__code__, scope, source.__name__, source.__defaults__)
            made[source] = uncached(clone) if compiled else clone
        return made[source]

    return bind
