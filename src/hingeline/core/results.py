"""What a run leaves behind: its curve, the state a callback sees, and multipliers to go on from."""

import math
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, NamedTuple

import numpy as np

from hingeline._checks import Array
from hingeline.core.formulations import Formulation
from hingeline.core.primitives import Compiled


def align(rows: Sequence[Sequence[Any]], left: Collection[int] = (0,)) -> str:
    """Rows of a table as lines of text, the columns ``left`` flush left, the others right."""
    cells = [[f"{v:.4f}" if isinstance(v, float) else str(v) for v in row] for row in rows]
    columns = enumerate(zip(*cells, strict=True))
    forms = [f"{'<' if k in left else '>'}{max(map(len, column))}" for k, column in columns]
    return "\n".join("  ".join(map(format, row, forms)).rstrip() for row in cells)


class Rows(list[Any]):
    """Named tuples, as a list that shows itself as a table, in a notebook, too."""

    _form, _most = "{:+.4f}", sys.maxsize

    def __getitem__(self, at: Any) -> Any:
        """A row, or a part of the table, which is a table, too."""
        found = super().__getitem__(at)
        return type(self)(found) if isinstance(at, slice) else found

    def _cells(self) -> list[list[str]]:
        """Names of the columns, and the rows; columns that are all NaN, and rows amid many, go."""
        kept = [k for k in range(len(self[0])) if any(row[k] == row[k] for row in self)]
        rows = [[self[0]._fields[k] for k in kept]]
        for row in self:
            values = [row[k] for k in kept]
            rows.append([self._form.format(v) if type(v) is float else str(v) for v in values])
        if len(self) > self._most:
            rows[1 + self._most // 2 : -self._most // 2] = [["…"] * len(kept)]
        return rows

    def __repr__(self) -> str:
        left = [k for k, value in enumerate(self[0]) if isinstance(value, str)] if self else ()
        return align(self._cells(), left) if self else "[]"

    def _repr_html_(self) -> str:
        head, *rows = self._cells() if self else [[]]
        lines = [(f"<th>{escape(cell)}" for cell in head)]
        lines += [(f"<td>{escape(cell)}" for cell in row) for row in rows]
        return "<table>" + "".join(f"<tr>{''.join(line)}" for line in lines) + "</table>"


class History(Rows):
    """A training curve: :class:`HistoryRow` by pass, of which some are shown."""

    _form, _most = "{:.6g}", 20


class HistoryRow(NamedTuple):
    """One pass. Primal and gap are ``nan`` between certificates; objectives are in units of P."""

    time: float  # seconds since the fit began, without those of compiling
    passes: int  # passes over the data
    oracle_calls: int  # decodes
    primal: float  # best certified primal so far
    dual: float
    gap: float  # best primal − best dual
    estimate: float  # gap over the planes known, summed while the pass went on
    planes: int  # planes in the working set
    restricted: float = math.nan  # primal over the planes known, where that is all there is
    scale: float = math.nan  # what the gap is relative to: the primal's non-negative part
    relaxed: float = math.nan  # graphs: LP-relaxed objective g(w, δ) of the best weights
    fractional: float = math.nan  # graphs: share of variables whose marginals are not integral
    rounds: float = math.nan  # in blocks: round trips,
    bytes: float = math.nan  # what travelled,
    work: float = math.nan  # CPU seconds of the busiest block,
    waiting: float = math.nan  # and seconds that the driver waited beyond those

    @property
    def relative_gap(self) -> float:
        """The gap as a share of the primal's non-negative part."""
        return relative(self.gap, self.primal if math.isnan(self.scale) else self.scale)


def read_history(table: Array) -> History:
    """The curve that a table of numbers holds, a row for each of its rows."""
    kinds = [int if HistoryRow.__annotations__[n] is int else float for n in HistoryRow._fields]
    rows = (zip(kinds, row, strict=True) for row in table.tolist())
    return History(HistoryRow._make(kind(value) for kind, value in row) for row in rows)


@dataclass
class PassState:
    """What a callback is given after each pass.

    Attributes
    ----------
    row : HistoryRow; the latest row of the curve
    relative_gap : float; certified relative gap, ``nan`` where this pass made no certificate
    restricted_gap : float
        Relative gap of the problem restricted to the outputs found, where that is all there is.
    out_of_time : bool; whether ``max_time`` ends the fit after this pass
    place : str; how far the fit has come, in words
    """

    row: HistoryRow
    relative_gap: float
    restricted_gap: float
    _weights: Callable[[], Array] = field(repr=False)
    _snapshot: Callable[[], Any] = field(repr=False, default=lambda: None)
    out_of_time: bool = False
    place: str = ""
    _chosen: Array | None = field(default=None, repr=False)
    _reason: str | None = field(default=None, repr=False)

    @property
    def weights(self) -> Array:
        """A copy of the flat weights a fit that stopped now would try (the running average)."""
        return self._weights()

    def snapshot(self) -> Any:
        """The whole state of the run, to go on from; arrays change with the next pass."""
        return self._snapshot()

    def stop(self, reason: str, weights: Array | None = None) -> None:
        """End the fit after this pass, keeping ``weights`` if they are given."""
        self._reason = reason
        self._chosen = weights


@dataclass
class Result:
    """Outcome of a run: weights, certificate and how it came to stop."""

    weights: Array
    primal: float
    dual: float
    gap: float
    relative_gap: float
    n_iter: int
    converged: bool
    exact: bool  # decoding found the best outputs
    bounded: bool  # the gap is a true bound, or would be one
    restricted: bool  # primal and gap are those over the planes found
    stop_reason: str
    history: list[HistoryRow]
    #: What the solver says of its weights beside the certificate, by the name of the attribute.
    findings: dict[str, float] = field(default_factory=dict)


def finite(value: Any) -> Any:
    """JSON has neither NaN nor infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def list_rows(rows: Iterable[Any]) -> list[dict[str, Any]]:
    """Named tuples for JSON."""
    return [{name: finite(value) for name, value in row._asdict().items()} for row in rows]


def relative(gap: float, primal: float) -> float:
    """``(P − D)/P₊``, where 0/0 counts as converged."""
    if math.isnan(gap):
        return math.nan
    if gap <= 0.0:
        return 0.0
    return gap / primal if 0.0 < primal < math.inf else math.inf


@dataclass
class DualMemory:
    """The multipliers of a finished fit, for the next one to start from."""

    compiled: Compiled
    form: Formulation
    multipliers: Any  # what the solver's memory() gave; None: it keeps none
    weights: Array = field(default_factory=lambda: np.empty(0))  # of the examples, as given
    settings: Mapping[str, Any] = field(default_factory=dict)  # what they were found under

    def planes(self) -> Any:
        """The multipliers, those of parts joined to whole outputs."""
        if hasattr(self.multipliers, "join"):
            self.multipliers = self.multipliers.join(self.compiled, self.form)
        return self.multipliers

    def same_kind(self, form: Formulation) -> bool:
        """Whether multipliers mean the same under another formulation."""
        a, b = ((f.root, f.rescaled, f.summed) for f in (self.form, form))
        return a == b

    def same_planes(self, compiled: Compiled, form: Formulation) -> bool:
        """Whether an output is the same plane in another problem, which may have more labels."""
        before, now = (getattr(c.problem, "cost", None) for c in (self.compiled, compiled))
        return self.same_kind(form) and same_costs(before, now)


def same_costs(before: Any, now: Any) -> bool:
    """Whether known labels cost what they did; new ones may have come."""
    if before is None or now is None:
        return before is now
    m = len(before)
    return len(now) >= m and np.array_equal(before[:, :m], now[:m, :m])


def same_examples(a: Any, b: Any) -> bool:
    """Whether two problems hold the same examples (a table that fills up apart)."""
    return type(a) is type(b) and all(
        same_examples(x, y) if hasattr(x, "_fields") else np.array_equal(x, y)
        for name, x, y in zip(a._fields, a, b, strict=True)
        if name != "token_gram"
    )
