"""Aggregated planes of a cutting plane method: storage, Gram matrix, and the small dual over them.

A *cut* ``(g, b)`` sums planes of all examples, weighted by their caps, so that ``max(0, b − g·w)``
bounds the cost of all slack from below. Over the cuts known the dual is small::

    max_β  Σ_k β_k b_k − ½‖Σ_k β_k g_k‖²,     β ≥ 0,  Σ_k β_k ≤ 1

and with the hinges ``h = b − G·β`` its gap is ``max(0, max_k h_k) − Σ_k β_k h_k``, exactly.

It is one example's dual in :mod:`hingeline.solvers.sdm`, and solved by the same steps. Single ones
(Hildreth) stall where the sum is tight; the rest ``1 − Σβ`` is therefore a cut like any other
(g = 0, b = 0), and mass moves between two. Cuts of late rounds are nearly parallel and such steps
crawl. Once they have found which cuts have mass, Newton steps on that face may follow, each up to
its first bound.

Only the inner products of a new cut are computed. Memory for K cuts and N weights: ``8·N·K`` bytes
for up to ``SHORT`` weights and 12 bytes per non-zero beyond, at most twice that while it grows, and
as much again as ``8·K²``.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from hingeline.solvers.sdm import pair_steps

Array = np.ndarray[Any, Any]

#: Weight vectors up to this length are stored as they are.
SHORT = 2**17


class Vectors(Protocol):
    """Where the g of the cuts are kept. Nothing that was stored is ever changed."""

    def with_row(self, count: int, new: Array) -> Vectors:
        """The first ``count`` vectors and a new one."""

    def subset(self, which: Array) -> Vectors:
        """Some of the vectors."""

    def scaled(self, factor: float) -> Vectors:
        """All of them, multiplied."""

    def inner(self, count: int, other: Array) -> Array:
        """Products of the first ``count`` vectors with another."""

    def combine(self, steps: Array, out: Array) -> None:
        """``out += Σ steps_k·g_k``."""

    def tables(self, count: int) -> dict[str, Array]:
        """The first ``count`` vectors, as named arrays."""


class DenseVectors:
    """Rows of one table, which may have more room than is used."""

    def __init__(self, rows: Array) -> None:
        self.rows = rows

    def with_row(self, count: int, new: Array) -> DenseVectors:
        """The first ``count`` vectors and a new one."""
        rows = self.rows
        if count == len(rows):
            rows = np.empty((max(2 * count, 16), len(new)))
            rows[:count] = self.rows
        rows[count] = new
        return DenseVectors(rows)

    def subset(self, which: Array) -> DenseVectors:
        """Some of the vectors."""
        return DenseVectors(self.rows[which])

    def scaled(self, factor: float) -> DenseVectors:
        """All of them, multiplied."""
        return DenseVectors(factor * self.rows)

    def inner(self, count: int, other: Array) -> Array:
        """Products of the first ``count`` vectors with another."""
        return np.asarray(self.rows[:count] @ other)

    def combine(self, steps: Array, out: Array) -> None:
        """``out += Σ steps_k·g_k``."""
        out += steps @ self.rows[: len(steps)]

    def tables(self, count: int) -> dict[str, Array]:
        """The first ``count`` vectors, as named arrays."""
        return {"rows": self.rows[:count]}


class SparseVectors:
    """Places and values of what is not 0, vector by vector."""

    def __init__(self, parts: list[tuple[Array, Array]]) -> None:
        self.parts = parts

    def with_row(self, count: int, new: Array) -> SparseVectors:
        """The first ``count`` vectors and a new one."""
        places = np.flatnonzero(new).astype(np.int32)
        return SparseVectors([*self.parts[:count], (places, new[places])])

    def subset(self, which: Array) -> SparseVectors:
        """Some of the vectors."""
        return SparseVectors([self.parts[k] for k in which])

    def scaled(self, factor: float) -> SparseVectors:
        """All of them, multiplied."""
        return SparseVectors([(places, factor * values) for places, values in self.parts])

    def inner(self, count: int, other: Array) -> Array:
        """Products of the first ``count`` vectors with another."""
        return np.array([values @ other[places] for places, values in self.parts[:count]])

    def combine(self, steps: Array, out: Array) -> None:
        """``out += Σ steps_k·g_k``."""
        for k in np.flatnonzero(steps):
            places, values = self.parts[k]
            out[places] += steps[k] * values

    def tables(self, count: int) -> dict[str, Array]:
        """The first ``count`` vectors, as named arrays."""
        parts = self.parts[:count]
        return {
            "counts": np.array([len(places) for places, _ in parts], dtype=np.int64),
            "places": np.concatenate([np.empty(0, np.int32), *(places for places, _ in parts)]),
            "values": np.concatenate([np.empty(0), *(values for _, values in parts)]),
        }


def stored(size: int, tables: dict[str, Array]) -> Vectors:
    """The vectors of length ``size`` that :meth:`Vectors.tables` wrote."""
    if size <= SHORT:
        rows = tables["rows"]
        if rows.shape[1:] != (size,) or rows.dtype != np.float64:
            raise KeyError(f"cuts of {size} weights")
        return DenseVectors(rows.copy())
    places, values, counts = (tables[name] for name in ("places", "values", "counts"))
    fits = (
        len(places) == len(values) == counts.sum()
        and (places.dtype, values.dtype, counts.dtype) == (np.int32, np.float64, np.int64)
        and (counts >= 0).all()
        and (len(places) == 0 or 0 <= places.min() <= places.max() < size)
    )
    if not fits:
        raise KeyError(f"cuts of {size} weights")
    ends = np.cumsum(counts)
    parts = [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]
    return SparseVectors([(places[at].copy(), values[at].copy()) for at in parts])


def _room(count: int) -> int:
    """Rows of the Gram matrix for so many cuts: a power of two."""
    return max(16, 1 << max(count - 1, 0).bit_length())


class Cuts(NamedTuple):
    """The cuts known and their multipliers β.

    Adding and dropping make new ones, so that an interruption leaves one or the other.
    """

    vectors: Vectors
    gram: Array  # (room, room), of which the first len(beta) rows and columns are in use
    offset: Array  # (count,) b
    beta: Array  # (count,)
    stamp: Array  # (count,) the last round in which the cut had mass

    @property
    def known(self) -> int:
        """Number of cuts."""
        return len(self.beta)

    def with_cut(self, g: Array, b: float, clock: int) -> Cuts:
        """One more cut, without mass."""
        count = self.known
        gram = self.gram
        if count == len(gram):
            gram = np.zeros((_room(count + 1), _room(count + 1)))
            gram[:count, :count] = self.gram
        products = self.vectors.inner(count, g)
        gram[:count, count] = products
        gram[count, :count] = products
        gram[count, count] = g @ g
        return Cuts(
            self.vectors.with_row(count, g),
            gram,
            np.append(self.offset, b),
            np.append(self.beta, 0.0),
            np.append(self.stamp, clock),
        )

    def without_idle(self, clock: int, patience: int) -> Cuts:
        """Without cuts that had no mass for more than ``patience`` rounds, once they are many."""
        self.stamp[self.beta > 0.0] = clock
        keep = np.flatnonzero(self.stamp + patience >= clock)
        if 10 * len(keep) > 9 * self.known:
            return self
        gram = np.zeros((_room(len(keep)), _room(len(keep))))
        gram[: len(keep), : len(keep)] = self.gram[np.ix_(keep, keep)]
        rest = (self.offset[keep], self.beta[keep], self.stamp[keep])
        return Cuts(self.vectors.subset(keep), gram, *rest)

    def scaled(self, factor: float) -> Cuts:
        """The cuts of a problem whose caps are all ``factor`` times as large; β is kept."""
        return Cuts(
            self.vectors.scaled(factor),
            self.gram * (factor * factor),
            self.offset * factor,
            self.beta.copy(),
            np.zeros_like(self.stamp),
        )

    # The small dual ------------------------------------------------------------------------

    def linear(self) -> float:
        """``Σ β·b``."""
        return float(self.beta @ self.offset)

    def slack_at(self, weights: Array) -> float:
        """``max(0, max_k b_k − g_k·weights)``."""
        hinges = self.offset - self.vectors.inner(self.known, weights)
        return float(hinges.max(initial=0.0))

    def optimise(self, tolerance: float, newton: bool) -> None:
        """Solve the small dual from where β is until its gap is at most ``tolerance``."""
        count = self.known
        used = self.gram[:count, :count]
        for _ in range(20):
            hinge = self.offset - used @ self.beta
            if hinge.max(initial=0.0) - float(self.beta @ hinge) <= tolerance:
                break
            # A spread of the hinges with mass bounds the gap, because β sums up to 1 at most.
            limit = 10 * count + 10 if newton else 1000 * (count + 10)
            pair_steps(self.gram, self.beta, hinge, 1.0, 0.0, tolerance, limit)
            if newton:
                for _ in range(50):
                    if not self._newton(used):
                        break
        self.restrain()

    def restrain(self) -> None:
        """Cut back what left the feasible set, by rounding or after an interruption."""
        np.maximum(self.beta, 0.0, out=self.beta)
        total = float(self.beta.sum())
        if total > 1.0:
            self.beta[:] /= total

    def _newton(self, gram: Array) -> bool:
        """A Newton step on the face of the cuts with mass; whether a bound cut it short."""
        face = np.flatnonzero(self.beta)
        if len(face) == 0:
            return False
        before = self.beta[face]
        total = float(before.sum())
        tight = int(total >= 1.0 - 1e-12)
        hinge = (self.offset - gram @ self.beta)[face]
        m = len(face)
        system = np.ones((m + tight, m + tight))
        system[:m, :m] = gram[np.ix_(face, face)]
        # Parallel cuts make it singular; so little does not move the solution of others.
        system[np.arange(m), np.arange(m)] += 1e-13 * np.trace(system[:m, :m]) / m + 1e-300
        system[m:, m:] = 0.0
        try:
            step = np.linalg.solve(system, np.append(hinge, np.zeros(tight)))[:m]
        except np.linalg.LinAlgError:
            return False
        if not np.isfinite(step).all() or float(step @ hinge) <= 0.0:
            return False
        falling = step < 0.0
        own = np.where(falling, before / np.where(falling, -step, 1.0), np.inf)
        rise = 0.0 if tight else float(step.sum())
        length = min(1.0, float(own.min()), (1.0 - total) / rise if rise > 0.0 else np.inf)
        self.beta[face] = np.where(own <= length, 0.0, np.maximum(before + length * step, 0.0))
        return length < 1.0

    # Snapshots -----------------------------------------------------------------------------

    def tables(self) -> dict[str, Array]:
        """The whole state, as named arrays."""
        count = self.known
        own = {name: getattr(self, name) for name in ("offset", "beta", "stamp")}
        return {**own, "gram": self.gram[:count, :count], **self.vectors.tables(count)}


def empty_cuts(size: int) -> Cuts:
    """No cuts, for weights of this length."""
    vectors = DenseVectors(np.empty((0, size))) if size <= SHORT else SparseVectors([])
    return Cuts(vectors, np.zeros((16, 16)), np.empty(0), np.empty(0), np.empty(0, np.int64))


def cuts_from(tables: dict[str, Array], size: int) -> Cuts:
    """Cuts as :meth:`Cuts.tables` wrote them; KeyError where they do not fit together."""
    count = len(tables["beta"])
    own = [tables[name] for name in ("offset", "beta", "stamp")]
    kinds = [(np.float64, (count,)), (np.float64, (count,)), (np.int64, (count,))]
    if (
        [(part.dtype, part.shape) for part in own] != kinds
        or tables["gram"].shape != (count, count)
        or len(tables.get("rows", tables.get("counts", ()))) != count
    ):
        raise KeyError("cuts that fit together")
    gram = np.zeros((_room(count), _room(count)))
    gram[:count, :count] = tables["gram"]
    return Cuts(stored(size, tables), gram, *(part.copy() for part in own))
