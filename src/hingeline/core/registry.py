"""Which solvers there are: every solver class declares what it solves, and this collects it.

What a class says of itself is listed in :class:`hingeline.core.solver.CertifiedSolver`. A module is
imported when one of its solvers is asked for, so that nobody loads the solvers of other structures:
the file has the name of the solver, or its first word, and names as ``VARIANTS`` others that
declare it too. A new solver is one file.
"""

import math
import numbers
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from hingeline._checks import one_of, require, show
from hingeline.core.formulations import RESCALINGS, SLACKS

AUTOMATIC = ("sdm", "sdcd")  # ``"auto"`` is the first of these that solves the slack.


def _modules() -> dict[str, str]:
    """The modules of ``hingeline.solvers`` by the names of their files; none is imported."""
    home = import_module("hingeline.solvers")
    found: list[Any] = [*iter_modules(home.__path__)]
    for place, folder, is_folder in tuple(found):
        if is_folder:
            found += iter_modules([os.path.join(place.path, folder)], f"{folder}.")
    names = (name for _, name, is_folder in found if not is_folder)
    return {name.rpartition(".")[2]: f"{home.__name__}.{name}" for name in names}


@cache
def _classes(module: str) -> list[Any]:
    own = (v for v in vars(import_module(module)).values() if isinstance(v, type))
    return [value for value in own if value.__module__ == module and hasattr(value, "slacks")]


def list_names() -> list[str]:
    """All solvers, those of ``"auto"`` first; every module is imported for it."""
    found = (solver.name for module in _modules().values() for solver in _classes(module))
    return list(dict.fromkeys((*AUTOMATIC, *found)))


@cache
def _homes(name: str) -> list[str]:
    """The modules that may declare a solver of this name."""
    known = _modules()
    home = known.get(name.replace("-", "_")) or known.get(name.partition("-")[0])
    if home is None:
        return []
    return [home, *(known[file] for file in getattr(import_module(home), "VARIANTS", ()))]


def declared(name: str) -> Iterator[Any]:
    """The solver classes of a name, one for each kind of slack and of working set."""
    for module in _homes(name):  # one by one: nobody loads what is not asked for
        yield from (solver for solver in _classes(module) if solver.name == name)


def find(name: str, slack: str, all_outputs: bool = False, in_parts: bool = False) -> Any:
    """The solver class for a slack; one that works on all outputs or parts of them, if there is."""
    one_of("slack", slack, SLACKS)
    for known in AUTOMATIC if str(name) == "auto" else (str(name),):
        other = None
        for solver in declared(known):
            kind = (solver.all_outputs, solver.in_parts)
            if slack in solver.slacks and kind == (all_outputs, in_parts):
                return solver
            if slack in solver.slacks and not any(kind):
                other = solver
        if other is not None:
            return other
    one_of("solver", name, ("auto", *list_names()))
    slacks = dict.fromkeys(known for solver in declared(name) for known in solver.slacks)
    what = f"solver={name!r} does not solve slack={slack!r}; choose one of {_list_solvers(slack)}"
    raise ValueError(f"{what}, or slack={' or '.join(map(repr, slacks))}.")


def _list_solvers(slack: str, *, hard: bool = False) -> str:
    known = ((name, solver) for name in list_names() for solver in declared(name))
    able = [n for n, solver in known if slack in solver.slacks and not (hard and solver.soft_only)]
    return ", ".join(repr(name) for name in dict.fromkeys(["auto", *able]))


def check(solver: Any, name: str, slack: str, rescale: str, C: Any) -> None:
    """Refuse what a solver class, asked for by this name, does not solve, naming what does."""
    one_of("rescale", rescale, RESCALINGS)
    if math.inf == C and solver.soft_only:
        what = f"solver={name!r} needs a finite C, because {solver.soft_only}; for a hard margin"
        raise ValueError(f"{what} (C=inf) choose one of {_list_solvers(slack, hard=True)}.")
    who = f"slack={slack!r}" if slack == "nu" else f"solver={name!r}"
    what = f"{who} knows {' or '.join(solver.rescalings)} rescaling only, not rescale={rescale!r}."
    require(rescale in solver.rescalings, what)


@dataclass(frozen=True)
class SolverOptions:
    """What a solver can be told. Users give what :func:`option` made, estimators the rest."""

    def unused(self, slack: str) -> Iterable[str]:
        """Options that have no meaning beside the others, and are refused."""
        return ()


def option(
    default: Any, doc: str, *, words: Any = (), least: float | None = None, most: float = math.inf
) -> Any:
    """A field of a solver's ``Options``: one of ``words``, or a number as the field's type says.

    Numbers are greater than 0, or at least ``least``. None may be given where it is the default.
    """
    about = {"doc": doc, "words": tuple(words), "least": least, "most": most}
    return field(default=default, metadata=about)


@cache
def option_names(solver: Any) -> frozenset[str]:
    """All that a solver class can be told, by users and estimators."""
    return frozenset(known.name for known in fields(solver.Options))


def check_options(
    solver: Any,
    given: Any,
    name: str,
    slack: str,
    added: Mapping[str, Any] | None = None,
    place: str = "solver_options",
) -> None:
    """Refuse ``solver_options`` that a solver class does not know, and values without meaning.

    ``added`` is what the estimator tells the solver beside them; users know them by ``place``.
    """
    if given is None:
        return
    require(isinstance(given, Mapping), f"{place} must be a mapping, got {show(given)}.", TypeError)
    asked = {known.name: known for known in fields(solver.Options) if known.metadata}
    understood = {key: value for key, value in given.items() if key in asked}
    options = solver.Options(**{**(added or {}), **understood})
    for key in options.unused(slack):
        if asked.pop(key, None) is not None and key in given:
            others = ((f.name, getattr(options, f.name)) for f in fields(options) if f.name != key)
            words = ", ".join(f"{k}={v!r}" for k, v in others if isinstance(v, str))
            what = f"{place} has {key!r}, which has no effect on solver={name!r} with"
            raise ValueError(f"{what} slack={slack!r}{words and f' and {words}'}: leave it out.")
    for key in sorted(set(given) - set(asked), key=str):
        what = f"{place} has {key!r}, which solver={name!r} does not know"
        raise ValueError(f"{what}; it knows {', '.join(sorted(asked)) or 'none'}.")
    for key, value in given.items():
        _check_option(f"{place}[{key!r}]", value, asked[key])


def _check_option(place: str, value: Any, known: Any) -> None:
    about = known.metadata
    if about["words"]:
        one_of(place, value, about["words"])
        return
    if value is None and known.default is None:
        return
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{place} must be a number, got {show(value)}.")
    if "float" not in str(known.type) and not isinstance(value, numbers.Integral):
        raise TypeError(f"{place} must be an integer, got {show(value)}.")
    least = about["least"]
    if not math.isfinite(value) or (value <= 0 if least is None else value < least):
        word = "positive" if least is None else f"at least {least:g}"
        raise ValueError(f"{place} must be {word}, got {show(value)}.")
    if value > about["most"]:
        raise ValueError(f"{place} must be at most {about['most']:g}, got {show(value)}.")
