"""The contract every structure must keep, as a function to call in your own tests."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hingeline._checks import Array
from hingeline.core import primitives as base
from hingeline.structures import custom
from hingeline.structures.custom import Structure

__all__ = ["check_structure"]


def check_structure(
    structure: Structure,
    X: Sequence[Any],
    y: Sequence[Any],
    *,
    outputs: Any = None,
    n_trials: int = 10,
    random_state: int = 0,
    tol: float = 1e-8,
) -> None:
    """Check that the methods of a structure fit together.

    It tries them on a few small examples with random weights:

    * ``joint_feature`` always has the same length, is finite and does not change its arguments;
    * ``loss`` is zero for the true output and never negative;
    * ``decode`` returns an output of the right length whose augmented score no other output
      beats (all outputs if they can be listed, else those seen in other trials);
    * ``plane_score``, ``plane_add`` and ``plane_sqdist`` agree with ``joint_feature``;
    * ``decode_by_loss``, if there is one, returns outputs with the losses it states, and no output
      of the same loss has a better score.

    An ``AssertionError`` names the method, the example and what disagrees.

    Parameters
    ----------
    structure : Structure
    X, y : sequences of the same length; a handful of small examples
    outputs : callable, optional
        ``outputs(x)`` lists every output of x, for the comparison with brute force; by default
        ``structure.outputs`` if it exists.
    n_trials, random_state : int, default=10, 0; random weight vectors to try, and their seed
    tol : float, default=1e-8; relative tolerance of comparisons

    Examples
    --------
    >>> from hingeline.testing import check_structure
    >>> check_structure(MyStructure(), X[:5], y[:5], outputs=all_outputs)  # doctest: +SKIP
    """
    methods = {**custom.methods_of(structure), "loss": custom.find_loss(structure)}
    if len(X) != len(y) or len(X) == 0:
        raise ValueError(f"X and y must have the same length, above 0, got {len(X)} and {len(y)}.")
    if custom.is_compiled(structure):
        X = [np.ascontiguousarray(x) for x in X]
    truths = [structure.pack(output) for output in y]
    compiled = custom.compile_problem(structure, X, truths)
    check = _Check(structure, methods, compiled, X, truths, tol)
    listing = outputs if outputs is not None else getattr(structure, "outputs", None)
    pools: list[list[Array]] = [
        [structure.pack(o) for o in listing(x)] if listing is not None else [truth]
        for x, truth in zip(X, truths, strict=True)
    ]
    rng = np.random.default_rng(random_state)
    check.features()
    for trial in range(n_trials):
        w = np.zeros(compiled.n_weights) if trial == 0 else rng.standard_normal(compiled.n_weights)
        for i in range(len(X)):
            for scale in (0.0, 1.0, float(rng.uniform(0.1, 5.0))):
                found = check.decode(i, w, scale, pools[i])
                if listing is None and not any(np.array_equal(found, o) for o in pools[i]):
                    pools[i].append(found)
            for output in pools[i][:: max(1, len(pools[i]) // 10)]:
                check.planes(i, output, pools[i][-1], w, rng)
            if "decode_by_loss" in methods:
                check.by_loss(i, w, pools[i])
            if "decode_best" in methods:
                check.best(i, w, pools[i], complete=listing is not None)


@dataclass
class _Check:
    """The single checks, with what they need at hand."""

    structure: Structure
    methods: dict[str, Any]
    compiled: base.Compiled
    X: Sequence[Any]
    truths: list[Array]
    tol: float

    def expect(self, condition: bool, i: int, what: str) -> None:
        if not condition:
            raise AssertionError(f"{type(self.structure).__name__}, example {i}: {what}")

    def close(self, a: float, b: float) -> bool:
        return math.isclose(a, b, rel_tol=self.tol, abs_tol=self.tol)

    def no_better(self, rival: float, value: float) -> bool:
        return rival <= value or self.close(rival, value)

    def feature(self, i: int, y: Array) -> Array:
        return np.asarray(self.methods["joint_feature"](self.X[i], y), dtype=np.float64)

    def loss(self, i: int, y: Array) -> float:
        return float(self.methods["loss"](self.X[i], self.truths[i], y))

    def features(self) -> None:
        for i, truth in enumerate(self.truths):
            copy = truth.copy()
            f = self.feature(i, truth)
            self.expect(f.shape == (self.compiled.n_weights,), i, "joint_feature varies in length")
            self.expect(bool(np.isfinite(f).all()), i, "joint_feature is not finite")
            self.expect(np.array_equal(copy, truth), i, "joint_feature changes its arguments")
            loss = self.loss(i, truth)
            self.expect(loss == 0.0, i, f"loss of the true output is {loss}, not 0")

    def augment(self, i: int, y: Array, w: Array, scale: float) -> float:
        loss = self.loss(i, y)
        self.expect(loss >= 0.0, i, f"loss is negative ({loss}) for {y}")
        return float(w @ self.feature(i, y)) + scale * loss

    def decode(self, i: int, w: Array, scale: float, pool: list[Array]) -> Array:
        found = np.asarray(self.methods["decode"](self.X[i], w, self.truths[i], scale))
        self.expect(found.dtype.kind in "iu", i, f"decode returns {found.dtype}, not ints")
        shape = self.truths[i].shape
        reason = f"decode returns shape {found.shape}, the true output has {shape}"
        self.expect(found.shape == shape, i, reason)
        found = found.astype(np.int32)
        value = self.augment(i, found, w, scale)
        decode, problem = self.compiled.bind(base.decode), self.compiled.problem
        returned = decode(problem, i, w, scale, np.empty_like(found))
        self.expect(self.close(value, returned), i, "decode's value is not its output's score")
        if self.structure.exact:
            rivals = [self.augment(i, other, w, scale) for other in pool]
            k = int(np.argmax(rivals))
            lead = f"worth {value:.6g}, but {pool[k]} is worth {rivals[k]:.6g}"
            reason = f"decode(loss_scale={scale:.3g}) returns {found} {lead}"
            self.expect(self.no_better(rivals[k], value), i, reason)
        return found

    def planes(self, i: int, y: Array, z: Array, w: Array, rng: np.random.Generator) -> None:
        problem, bind = self.compiled.problem, self.compiled.bind
        difference = self.feature(i, self.truths[i]) - self.feature(i, y)
        score = bind(base.plane_score)(problem, i, y, w)
        self.expect(self.close(score, float(w @ difference)), i, f"plane_score is wrong for {y}")
        step = float(rng.standard_normal())
        added = w.copy()
        bind(base.plane_add)(problem, i, y, step, added)
        scale = 1.0 + float(np.abs(w).max(initial=0.0))
        worst = float(np.abs(added - (w + step * difference)).max(initial=0.0))
        self.expect(worst <= self.tol * scale, i, f"plane_add is wrong for {y}")
        apart = self.feature(i, y) - self.feature(i, z)
        distance = bind(base.plane_sqdist)(problem, i, y, z, np.zeros(1))
        self.expect(self.close(distance, float(apart @ apart)), i, f"plane_sqdist is wrong for {y}")

    def best(self, i: int, w: Array, pool: list[Array], complete: bool) -> None:
        most, decode = len(pool) + 1, self.methods["decode_best"]
        rows = [np.asarray(row) for row in decode(self.X[i], w, self.truths[i], 1.0, most)]
        self.expect(len(rows) <= most, i, f"decode_best returns {len(rows)} rows for k={most}")
        values = [self.augment(i, row, w, 1.0) for row in rows]
        for k in range(1, len(rows)):
            in_order = self.no_better(values[k], values[k - 1])
            self.expect(in_order, i, f"decode_best: row {k} is better than the one before")
            again = any(np.array_equal(rows[k], row) for row in rows[:k])
            self.expect(not again, i, f"decode_best returns {rows[k]} twice")
        if complete:
            self.expect(len(rows) == len(pool), i, "decode_best leaves outputs out")
        for other in pool if self.structure.exact else []:
            rival = self.augment(i, other, w, 1.0)
            known = any(np.array_equal(other, row) for row in rows)
            beaten = not rows or self.no_better(rival, values[-1])
            self.expect(known or beaten, i, f"decode_best leaves out {other}")

    def by_loss(self, i: int, w: Array, pool: list[Array]) -> None:
        losses, ys = self.methods["decode_by_loss"](self.X[i], w, self.truths[i])
        best: dict[float, float] = {}
        for loss, y in zip(losses, ys, strict=True):
            own = self.loss(i, y)
            self.expect(self.close(own, loss), i, f"decode_by_loss says loss {loss} for {y}: {own}")
            best[round(float(loss), 9)] = float(w @ self.feature(i, y))
        for other in pool:
            loss = round(self.loss(i, other), 9)
            self.expect(loss in best, i, f"decode_by_loss leaves out loss {loss} of {other}")
            rival = float(w @ self.feature(i, other))
            reason = f"decode_by_loss: {other} beats the output given for loss {loss}"
            self.expect(self.no_better(rival, best[loss]), i, reason)
