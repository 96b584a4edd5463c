"""Stub: costs of single tokens, with the interface of the compiled constraints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hingeline._numba import helper

Array = np.ndarray[Any, Any]


class CompiledConstraints(NamedTuple):
    """Costs (tokens, labels)."""

    offsets: Array
    costs: Array


class State(NamedTuple):
    """The penalty so far."""

    total: Array


def compile_constraints(
    constraints: Sequence[Any], tokens: Any, classes: Sequence[Any]
) -> CompiledConstraints:
    """Sum tables."""
    lengths = [len(x) for x in tokens]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    costs = np.zeros((int(offsets[-1]), len(classes)))
    for constraint in constraints:
        costs += constraint
    return CompiledConstraints(offsets, costs)


@helper
def start_state(compiled: CompiledConstraints, offsets: Array, labels: Array) -> State:
    total = np.zeros(1)
    for t in range(labels.shape[0]):
        total[0] += compiled.costs[t, labels[t]]
    return State(total)


@helper
def switch_costs(
    compiled: CompiledConstraints, state: State, labels: Array, i: int, t: int, out: Array
) -> None:
    row = compiled.costs[compiled.offsets[i] + t]
    now = row[labels[compiled.offsets[i] + t]]
    for k in range(row.shape[0]):
        out[k] = row[k] - now


@helper
def commit_switch(
    compiled: CompiledConstraints, state: State, labels: Array, i: int, t: int, k: int
) -> None:
    """Labels are changed by the caller afterwards."""
    at = compiled.offsets[i] + t
    state.total[0] += compiled.costs[at, k] - compiled.costs[at, labels[at]]


@helper
def total_penalty(compiled: CompiledConstraints, state: State) -> float:
    return state.total[0]
