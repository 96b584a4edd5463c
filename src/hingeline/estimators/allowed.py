"""Which labels and moves are allowed: tag schemes, and what the caller says of single tokens."""

import functools
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from hingeline import schemes
from hingeline._checks import Array, require, retell, warn
from hingeline.features.tables import check_entries, is_mask
from hingeline.structures.chain import ChainProblem

Valid = tuple[Array, Array, Array]

_moves_of = functools.lru_cache(maxsize=8)(schemes.valid_moves)


def moves_of(classes: Array, scheme: str | None) -> Valid | None:
    """Masks (start, move, end) of a scheme; None where there is none."""
    return None if scheme in (None, "none") else _moves_of(tuple(classes.tolist()), scheme)


def choose_scheme(
    scheme: Any, classes: Array, labels: Array, offsets: Array, found: str | None = ""
) -> str | None:
    """The scheme that decoding keeps to, after a look at the training labels.

    ``scheme`` is None, "none", "auto" or a name; ``labels`` are numbers into ``classes``; ``found``
    is what "auto" has found before, None included.
    """
    name, auto = found, scheme == "auto"
    if auto and found == "":
        name = schemes.detect_from_arrays(classes.tolist(), labels, offsets)
    elif not auto:
        name = None if scheme in (None, "none") else schemes.scheme_name(scheme)
    if name is None:
        return None
    with retell(f"scheme={scheme!r} does not suit the labels: "):
        wrong = first_invalid(name, classes, labels, offsets)
    if wrong is None:
        return name
    how = f"the labels with hingeline.schemes.convert_scheme(y, {name!r}, {name!r})"
    require(auto, f"{wrong} Repair {how}, or pass scheme='none'.")
    what = f"scheme='auto' found {name}, but {wrong} No scheme is enforced"
    warn(f"{what}: repair {how}, or pass scheme='none'.")
    return None


def find_scheme(classes: Array, labels: Array, offsets: Array) -> str | None:
    """The scheme that 99 % of the tags keep to, and in which any sequence has some labelling."""
    name = schemes.detect_from_arrays(classes.tolist(), labels, offsets)
    if name is None:
        return None
    start, move, end = valid = _moves_of(tuple(classes.tolist()), name)
    wrong = np.count_nonzero(~schemes.keeps_to(valid, labels, offsets))
    fine = 100 * wrong <= np.count_nonzero((classes != "O")[labels]) and not move.all()
    return name if fine and (start & end & move.diagonal()).any() else None


def first_invalid(scheme: str, classes: Array, labels: Array, offsets: Array) -> str | None:
    """A sentence on the first sequence that breaks the scheme."""
    fine = schemes.keeps_to(_moves_of(tuple(classes.tolist()), scheme), labels, offsets)
    if fine.all():
        return None
    i = int(np.searchsorted(offsets, np.argmin(fine), side="right")) - 1
    names = classes[labels[offsets[i] : offsets[i + 1]]].tolist()
    return f"y[{i}] is not valid {scheme}: {schemes.explain_invalid(names, scheme)[0]}"


def allowed_table(allowed: Any, classes: Array, offsets: Array) -> Array:
    """What the caller allows, given as to ``predict``, as one boolean table (tokens, labels)."""
    n, n_tokens = len(offsets) - 1, int(offsets[-1])
    table = np.ones((n_tokens, len(classes)), dtype=bool)
    index = {label: k for k, label in enumerate(classes.tolist())}
    if is_mask(allowed):
        what = f"allowed has shape {allowed.shape}, expected (tokens, labels) = {table.shape}"
        require(allowed.shape == table.shape, f"{what}, or one entry per sequence.")
        table[:] = allowed
    else:
        check_entries("allowed", allowed, n)
        for i, entry in enumerate(allowed):
            if entry is not None:
                _fill(table[offsets[i] : offsets[i + 1]], entry, index, i)
    for where in np.flatnonzero(~table.any(axis=1)):
        i = int(np.searchsorted(offsets, where, side="right")) - 1
        what = f"allowed[{i}] leaves no label for token {where - offsets[i]}"
        raise ValueError(f"{what}: use None where anything is allowed.")
    return table


def _fill(part: Array, entry: Any, index: dict[Any, int], i: int) -> None:
    """Write what one sequence's entry allows into its rows."""
    length = len(part)
    if isinstance(entry, np.ndarray) and entry.dtype == bool:
        what = f"allowed[{i}] has shape {entry.shape}"
        require(entry.shape == part.shape, f"{what}, expected (tokens, labels) = {part.shape}.")
        part[:] = entry
        return
    if isinstance(entry, (Sequence, np.ndarray)) and not isinstance(entry, (str, bytes)):
        what = f"allowed[{i}] has {len(entry)} entries, but sequence {i} has {length} tokens"
        require(len(entry) == length, f"{what}: give one per token, or a dict of positions.")
        entry = dict(enumerate(entry))
    what = f"allowed[{i}] must be None, a boolean array, a list with one entry per token or"
    require(isinstance(entry, Mapping), f"{what} a dict of positions, got {entry!r}.", TypeError)
    for t, choice in entry.items():
        if isinstance(t, bool) or not isinstance(t, (int, np.integer)) or not 0 <= t < length:
            what = f"allowed[{i}] names token {t!r}"
            raise ValueError(f"{what}, but sequence {i} has the tokens 0 to {length - 1}.")
        if choice is not None:
            part[t] = False
            part[t, _numbers(choice, index, i, t)] = True


def _numbers(choice: Any, index: dict[Any, int], i: int, t: Any) -> list[int]:
    """Numbers of one label or of a collection of labels."""
    several = isinstance(choice, (AbstractSet, Sequence, np.ndarray))
    if isinstance(choice, (str, bytes)) or not several or _number(choice, index) is not None:
        choice = [choice]  # also a label that is itself a tuple or a set
    numbers = []
    for label in choice:
        number = _number(label, index)
        if number is None:
            what = f"allowed[{i}] has {label!r} at token {t}, which is not a label of this model"
            raise ValueError(f"{what}; those are {', '.join(map(repr, index))}.")
        numbers.append(number)
    return numbers


def _number(label: Any, index: dict[Any, int]) -> int | None:
    if isinstance(label, np.generic):
        label = label.item()
    try:
        number = index.get(label)
    except TypeError:  # not hashable
        return None
    if isinstance(label, bool) and not any(isinstance(name, bool) for name in index):
        return None  # True == 1, but a row of a mask is not a set of labels
    return number


def explain_infeasible(problem: ChainProblem, i: int, scheme: str | None) -> str:
    """Why sequence i has no labelling, in a sentence."""
    m = problem.n_labels
    lo, hi = problem.offsets[i], problem.offsets[i + 1]
    limited = len(problem.token_mask) > 0
    tokens = problem.token_mask[lo:hi, :m] if limited else np.zeros((hi - lo, m))
    reached, t = (tokens[0] == 0) & (problem.end_masks[0, :m] == 0), 0
    while reached.any() and t + 1 < hi - lo:
        t += 1
        reached = (reached @ (problem.move_mask[:, :m] == 0)) & (tokens[t] == 0)
    if reached.any():
        place = "no such label may end the sequence"
    elif t == 0:
        place = "no such label may start a sequence"
    else:
        place = f"at token {t} no such label can follow those before it"
    if limited:
        return f"allowed[{i}] leaves no labelling that is valid {scheme}: {place}."
    what = f"sequence {i} has no labelling that is valid {scheme} with the labels of classes_"
    return f"{what}: {place}; fit with scheme='none' to allow any."
