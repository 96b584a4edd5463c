"""Label switching: our sweep against the printed one, which decodes for every candidate label.

`python benchmarks/label_switching.py` makes random sequences (120 tokens, 12 labels, by default),
random weights and a set of constraints, and sweeps once from the best labels with

- ours: max-marginals, O(1) for a candidate;
- the printed algorithm compiled by numba in the same way, a loss-augmented decode for a candidate;
- the same with the scores of the tokens gathered once for each sequence;
- the printed algorithm as a Python loop around the compiled decode, on one sequence.

All must end with the same labels. A second row is one sweep of ours over as many sequences as the
citations have (1,000 of 35 tokens, 13 labels).
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from harness import write_results
from hingeline import constraints as cs
from hingeline._jit import uncached
from hingeline.constraints.penalties import Penalties, SwitchEvaluator
from hingeline.constraints.switches import commit_switch, switch_costs
from hingeline.core.primitives import Workers
from hingeline.inference.chain import max_sum, path_score
from hingeline.semisupervised.annealing import find_best_labels, is_lower, sweep_labels
from hingeline.structures import chain
from hingeline.structures.chain import moves, position_scores

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from naive_switching import naive_sweep

Array = np.ndarray[Any, Any]
NO_LIMIT = np.iinfo(np.int64).max


def make(n: int, length: int, n_labels: int, seed: int = 0) -> tuple[Any, Array, Penalties]:
    """Random sequences with 20 of 5,000 features per token, weights, and constraints."""
    rng = np.random.default_rng(seed)
    offsets = np.arange(n + 1) * length
    n_tokens, n_features, per_token = n * length, 5000, 20
    problem = chain.make_problem(
        np.arange(n_tokens + 1) * per_token,
        rng.integers(0, n_features, n_tokens * per_token),
        np.ones(n_tokens * per_token),
        offsets,
        np.zeros(n_tokens, dtype=np.int32),
        n_features,
        1.0 - np.eye(n_labels),
        boundary=True,
        cache_mb=0.0,
    )
    w = 0.3 * rng.normal(size=chain.compile_problem(problem).n_weights)
    words = rng.choice(["w1", "w2", "w3", "w4", ".", ","], size=(n, length)).tolist()
    rules = [
        cs.AtMostOneSegment(weight=0.013),
        cs.StartsWith(0, weight=0.01),
        cs.Words(["w1"], 1, weight=0.007),
        cs.ChangeOnlyAt("[.,]", weight=0.009),
        cs.Share(0, equals=0.3, weight=0.11),
        cs.ChangeShare("[.,]", equals=0.01, weight=1.1),
    ]
    return problem, w, Penalties(rules, words, range(n_labels))


printed = uncached(naive_sweep)


@uncached
def naive_with_scores(
    problem: Any, w: Array, scale: float, compiled: Any, state: Any, limit: int, labels: Array
) -> int:
    """The printed sweep with the scores of the tokens gathered once for each sequence."""
    A = moves(problem, w)
    penalties = np.zeros(problem.n_labels)
    switches = 0
    for i in range(problem.offsets.shape[0] - 1):
        y = labels[problem.offsets[i] : problem.offsets[i + 1]]
        violator = np.empty(y.shape[0], dtype=np.int32)
        scores = position_scores(problem, i, w, 0.0)
        augmented = np.empty_like(scores)
        for t in range(y.shape[0]):
            now = y[t]
            switch_costs(compiled, state, labels, i, t, penalties)
            best = now
            least = 0.0
            held = 0.0
            for step in range(problem.n_labels):
                # The label that is there comes first: its slack is what the others are held to.
                k = now if step == 0 else (step - 1 if step <= now else step)
                y[t] = k
                for s in range(y.shape[0]):
                    row = problem.cost[y[s]]
                    for label in range(scores.shape[1]):
                        augmented[s, label] = scores[s, label] + row[label]
                maximum = max_sum(augmented, A, problem.n_labels, violator)
                slack = maximum - path_score(scores, A, y)
                if step == 0:
                    held = slack
                    continue
                change = scale * (slack - held) + penalties[k]
                if change < least and is_lower(change, scale, maximum, penalties[k]):
                    least = change
                    best = k
            y[t] = now
            if best != now:
                commit_switch(compiled, state, labels, i, t, best)
                switches += 1
                if switches >= limit:
                    return switches
    return switches


@uncached
def decode_one(problem: Any, i: int, w: Array, violator: Array) -> float:
    """The loss-augmented maximum."""
    return chain.decode(problem, i, w, 1.0, violator)


def python_sweep(problem: Any, w: Array, scale: float, penalties: Penalties) -> int:
    """The printed sweep in Python over the first sequence of the problem; penalties of all."""
    evaluator = SwitchEvaluator(penalties, problem.labels)
    length = int(problem.offsets[1])
    violator = np.empty(length, dtype=np.int32)
    m = problem.n_labels
    tables = chain.layout_of(problem).split(w)
    indices = problem.indices.reshape(-1, 20)
    scores = np.array([tables["emission"][indices[t]].sum(axis=0) for t in range(length)])
    scores[0] += tables["start"][0]
    scores[-1] += tables["end"][0]
    y = problem.labels[:length]

    def slack() -> float:
        score = scores[np.arange(length), y].sum() + tables["transition"][y[:-1], y[1:]].sum()
        return float(decode_one(problem, 0, w, violator) - score)

    switches = 0
    for t in range(length):
        now, held = int(y[t]), slack()
        costs = evaluator.switch_costs(0, t)
        best, least = now, -1e-12
        for k in range(m):
            if k == now:
                continue
            y[t] = k
            change = scale * (slack() - held) + costs[k]
            if change < least:
                best, least = k, change
        y[t] = best
        if best != now:
            evaluator.commit_switch(0, t, best)
            switches += 1
    return switches


def sweep(
    problem: Any, w: Array, scale: float, penalties: Penalties, state: Any, labels: Array
) -> None:
    """One sweep of ours over all sequences, in order."""
    n = len(problem.offsets) - 1
    none = np.zeros(0, dtype=np.int64)
    tables, everyone = penalties.compiled, np.arange(n)
    sweep_labels(problem, 0, w, scale, tables, state, everyone, NO_LIMIT, none, none, labels)


def timed(function: Any) -> tuple[float, Any]:
    """Seconds, and what came out."""
    began = time.perf_counter()
    result = function()
    return time.perf_counter() - began, result


def compare(n: int, length: int, n_labels: int, scale: float = 0.01) -> dict[str, Any]:
    """All ways on one set of sequences."""
    problem, w, penalties = make(n, length, n_labels)
    start = find_best_labels(problem, 0, w, Workers(1, 0))
    everyone, slack = np.arange(n), np.empty(n)
    compiled = penalties.compiled

    def ours() -> Array:
        labels = start.copy()
        state = penalties.state(labels)
        sweep(problem, w, scale, penalties, state, labels)
        return labels

    def naive() -> Array:
        problem.labels[:] = start
        state = penalties.state(problem.labels)
        anew = type(state)(*map(np.zeros_like, state))
        printed(problem, 0, w, scale, compiled, state, everyone, NO_LIMIT, slack, anew)
        return problem.labels.copy()

    def with_scores() -> Array:
        labels = start.copy()
        state = penalties.state(labels)
        naive_with_scores(problem, w, scale, compiled, state, NO_LIMIT, labels)
        return labels

    ours()
    repeats = [timed(ours) for _ in range(5)]
    fast = float(np.median([seconds for seconds, _ in repeats]))
    labels = repeats[0][1]
    slow, other = timed(naive)
    scored, another = timed(with_scores)
    problem.labels[:] = start
    in_python, _ = timed(lambda: python_sweep(problem, w, scale, penalties))
    same = np.array_equal(labels, other) and np.array_equal(labels, another)
    return {
        "sequences": n,
        "tokens": length,
        "labels": n_labels,
        "switches": int(np.sum(labels != start)),
        "seconds_ours": fast,
        "seconds_naive": slow,
        "seconds_naive_with_scores": scored,
        "seconds_naive_python_one_sequence": in_python,
        "ratio_naive": slow / fast,
        "ratio_naive_with_scores": scored / fast,
        "ratio_naive_python": in_python * n / fast,
        "same_labels": bool(same),
    }


def sweep_only(n: int, length: int, n_labels: int, scale: float = 0.01) -> dict[str, Any]:
    """One sweep of ours."""
    problem, w, penalties = make(n, length, n_labels)
    start = find_best_labels(problem, 0, w, Workers(1, 0))
    seconds = []
    for _ in range(5):
        labels = start.copy()
        state = penalties.state(labels)
        began = time.perf_counter()
        sweep(problem, w, scale, penalties, state, labels)
        seconds.append(time.perf_counter() - began)
    return {
        "sequences": n,
        "tokens": length,
        "labels": n_labels,
        "seconds_ours": float(np.median(seconds)),
    }


def main() -> int:
    """Run, print and write ``results/label_switching.json``."""
    quick = "--quick" in sys.argv[1:]
    compare(1, 12, 12)  # compiles
    rows = [compare(2 if quick else 10, 120, 12), sweep_only(20 if quick else 1000, 35, 13)]
    for row in rows:
        print(json.dumps(row, indent=2))
    if not rows[0]["same_labels"]:
        print("labels differ: missed")
        return 1
    if rows[0]["ratio_naive"] < 100:
        print(f"{rows[0]['ratio_naive']:.0f} times faster, 100 wanted: missed")
    write_results("label_switching", rows, quick=quick)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
