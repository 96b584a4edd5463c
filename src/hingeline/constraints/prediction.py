"""Prediction under constraints: the labels of the highest score minus penalty."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from hingeline.constraints.base import Constraint, words_of
from hingeline.constraints.compiled import Array, CompiledConstraints
from hingeline.constraints.compiling import as_constraints, compile_constraints
from hingeline.constraints.evaluator import SwitchEvaluator
from hingeline.constraints.exact import exact_search
from hingeline.constraints.instance import InstanceConstraint, Predicate
from hingeline.constraints.search import beam_search, chain_search, switching_search

METHODS = ("beam", "switching", "exact")
_SWEEPS = 100


def constrained_decode(
    constraints: Iterable[Constraint],
    X: Iterable[Sequence[Any]],
    classes: Sequence[Any],
    scores: Array,
    transitions: Array,
    *,
    method: str = "beam",
    beam: int = 32,
    token: Any = None,
    unknown: str = "warn",
) -> Array:
    """Label sequences under constraints.

    The instance constraints count; corpus constraints are left out, so that the labels of a
    sequence do not depend on the sequences beside it.

    Parameters
    ----------
    constraints : iterable of Constraint
    X : iterable of sequences of tokens
    classes : sequence
        The labels, in the order of the columns of ``scores``.
    scores : ndarray of shape (tokens, labels)
        Of all sequences, one after the other; weights of first and last labels are added to the
        first and last row of each sequence.
    transitions : ndarray of shape (labels, labels)
        From the first index to the second.
    method : {"beam", "switching", "exact"}
        Beam search over labels and counts; hill climbing by switches of positions and segments
        from the best chain; or a mixed-integer program (HiGHS), for short sequences. Python
        predicates are known to ``"switching"`` alone.
    beam : int
        Hypotheses that the beam keeps.
    token : callable, str or int, optional
        What of a token is its word.
    unknown : {"warn", "ignore", "error"}
        What to do about labels that are not among ``classes``.

    Returns
    -------
    int32 ndarray of shape (tokens,)
        Numbers into ``classes``.
    """
    found = [c for c in as_constraints(constraints) if isinstance(c, InstanceConstraint)]
    predicates = [c for c in found if isinstance(c, Predicate)]
    _check_method(method, beam)
    if predicates and method != "switching":
        raise ValueError(
            f"method={method!r} cannot keep the Python predicate {predicates[0].title}; "
            "use method='switching'."
        )
    words = words_of(X, token)
    fast = [c for c in found if not isinstance(c, Predicate)]
    compiled = compile_constraints(fast, words, classes, unknown=unknown)
    labels = decode_compiled(compiled, scores, transitions, method=method, beam=beam)
    if predicates:
        labels = _switch_slowly(found, words, classes, scores, transitions, labels)
    return labels


def decode_compiled(
    compiled: CompiledConstraints,
    scores: Array,
    transitions: Array,
    *,
    method: str = "beam",
    beam: int = 32,
) -> Array:
    """The same for constraints that are compiled already; corpus constraints are left out."""
    _check_method(method, beam)
    N, K = compiled.unary.shape
    scores = _finite("scores", scores, (N, K))
    transitions = _finite("transitions", transitions, (K, K))
    labels = np.zeros(N, dtype=np.int32)
    compiled = without_corpus(compiled)
    if method == "beam":
        beam_search(compiled, scores, transitions, labels, beam)
    elif method == "exact":
        exact_search(compiled, scores, transitions, labels)
    else:
        chain_search(compiled, scores, transitions, labels)
        switching_search(compiled, scores, transitions, labels, _SWEEPS)
    return labels


def without_corpus(compiled: CompiledConstraints) -> CompiledConstraints:
    """The instance constraints alone."""
    return compiled._replace(
        bad_change=compiled.bad_change[:0],
        corpus_kind=compiled.corpus_kind[:0],
        corpus_target=compiled.corpus_target[:0],
        corpus_bounds=compiled.corpus_bounds[:0],
        corpus_weight=compiled.corpus_weight[:0],
        corpus_power=compiled.corpus_power[:0],
        corpus_scale=compiled.corpus_scale[:0],
    )


def _check_method(method: str, beam: int) -> None:
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}.")
    if isinstance(beam, bool) or not isinstance(beam, int | np.integer) or beam < 1:
        raise ValueError(f"beam must be a positive integer, got {beam!r}.")


def _finite(name: str, values: Array, shape: tuple[int, int]) -> Array:
    array = np.ascontiguousarray(values, dtype=np.float64)
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}, expected {shape}.")
    if not np.all(np.isfinite(array)):
        raise ValueError(
            f"{name} must be finite; forbid labels by a hard constraint instead of an infinity."
        )
    return array


def _switch_slowly(
    constraints: list[InstanceConstraint],
    words: list[list[Any]],
    classes: Sequence[Any],
    scores: Array,
    transitions: Array,
    labels: Array,
) -> Array:
    """Hill climbing by single switches with predicates evaluated in Python."""
    evaluator = SwitchEvaluator(constraints, words, classes, labels, unknown="ignore")
    offsets, y = evaluator.compiled.offsets, evaluator.labels
    for i, x in enumerate(words):
        lo = int(offsets[i])
        for _ in range(_SWEEPS):
            changed = False
            for t in range(len(x)):
                gain = scores[lo + t] - scores[lo + t, y[lo + t]]
                if t > 0:
                    into = transitions[y[lo + t - 1]]
                    gain = gain + into - into[y[lo + t]]
                if t + 1 < len(x):
                    out = transitions[:, y[lo + t + 1]]
                    gain = gain + out - out[y[lo + t]]
                gain = gain - evaluator.switch_costs(i, t)
                k = int(np.argmax(gain))
                if gain[k] > 1e-9:
                    evaluator.commit_switch(i, t, k)
                    changed = True
            if not changed:
                break
    return evaluator.labels
