"""What the estimators share: parameters, the run of a solver, and the certificate it leaves."""

import math
import re
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from html import escape
from inspect import cleandoc, signature
from itertools import pairwise
from typing import Any, TypeVar, cast

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from hingeline import _checks as checks
from hingeline._checks import Array, require
from hingeline._jit import announce_compiling, working_time
from hingeline._words import bound_text, count_of
from hingeline.core import registry
from hingeline.core.formulations import make_formulation
from hingeline.core.loop import Limits, Reporter, identity, run
from hingeline.core.primitives import PART, Compiled, Workers, mean_loss, provides
from hingeline.core.results import DualMemory, History, Result, same_examples
from hingeline.core.solver import CertifiedSolver
from hingeline.features.input import with_constant
from hingeline.features.tables import scale_columns

Class = TypeVar("Class", bound=type)

#: Attributes that only a fit with ``slack="nu"`` leaves.
NU_FITTED = (
    *("nu_", "rho_", "margin_error_risk_", "support_vector_risk_", "n_margin_errors_"),
    *("n_on_margin_", "n_beyond_margin_", "nu_path_"),
)
#: What only relaxations leave behind, those of decoding included.
FINDINGS = (
    *("relaxed_objective_", "relaxed_gap_", "structured_objective_", "fractional_", "soft_rho_"),
    "integrality_gap_",
)
OTHER_DATA = "warm_start=True, but the training data are not those of the previous fit: starting"
OTHER_DATA += " afresh (use partial_fit to add examples)."


def forget_extras(estimator: Any) -> None:
    """Drop what only earlier fits left: of ``slack="nu"``, of ``C="auto"``, of a relaxation."""
    for name in (*NU_FITTED, *FINDINGS, "C_path_"):
        vars(estimator).pop(name, None)


def positive_part(estimator: Any) -> float:
    """The non-negative part of a fitted estimator's primal objective: P, or ``P + νρ``."""
    primal = float(estimator.primal_objective_)
    return primal + getattr(estimator, "nu_", 0.0) * getattr(estimator, "rho_", 0.0)


def share_docs(cls: Class) -> Class:
    """Complete a class's docstring by what its bases say of parameters it has, and attributes."""
    own: dict[str, list[str]] = {}
    parameters = {*signature(cls).parameters}
    for base in cls.__mro__:
        if base.__module__.startswith("hingeline.") and base.__doc__:
            head, *parts = re.split(r"\n\n(\w+)\n-+\n", cleandoc(base.__doc__))
            own.setdefault("", [head])
            for title, body in zip(parts[::2], parts[1::2], strict=True):
                known = set().union(*map(_read_names, own.get(title, ())))
                for entry in re.split(r"\n(?=\S)", body):
                    names = _read_names(entry)
                    if not names & known and (title != "Parameters" or names <= parameters):
                        own.setdefault(title, []).append(entry)
    text = "".join(own.pop("", []))
    for title in sorted(own, key=["Parameters", "Attributes", "Examples"].index):
        text += f"\n\n{title}\n{'-' * len(title)}\n" + "\n".join(own[title])
    cls.__doc__ = text
    return cls


def _read_names(entry: str) -> set[str]:
    """What an entry ``names : type`` with lines below it describes."""
    return set(entry.partition("\n")[0].partition(" : ")[0].split(", "))


class _Lacking:
    """A method that is not there, so that ``hasattr`` says no; the error says what is instead."""

    def __get__(self, model: Any, cls: Any) -> Any:
        raise AttributeError(f"{cls.__name__} has no predict_proba: {cls._probabilities}.")


class BaseModel(BaseEstimator):
    """What every fitted estimator has: flat weights, a certificate and a file to be kept in.

    Parameters
    ----------
    fit_intercept : bool, default=True
        Append a constant feature. Its weights are regularised like any other.
    n_jobs : int, optional; threads; the weights do not depend on it

    Attributes
    ----------
    weights_ : ndarray; the flat vector that the solver works on
    primal_objective_, dual_objective_, duality_gap_ : float; the certificate; the gap is absolute
    n_iter_, converged_, stop_reason_, history_
        How the run went.
    oracle_exact_ : bool; whether decoding finds the best output, whatever the weights are
    oracle_bounds_ : bool
        Whether decoding at least bounds the best value from above: the gap is then a true bound.
    restricted_objective_, restricted_gap_ : float
        For ``slack="sum"`` over the outputs found, if primal and gap of the whole problem are
        ``nan``; otherwise ``nan``. The dual always bounds the whole problem.
    n_features_in_ : int; features of a token, row or node, without the constant
    metadata_ : dict; for a loaded model, what its file says about versions, data and columns
    """

    @property
    def weights_(self) -> Array:
        """The flat vector the solver works on; of a stream the average, made when asked for."""
        known = self.__dict__
        if "weights_" not in known:
            require(known.get("_stream"), f"{type(self).__name__} is not fitted.", AttributeError)
            known["weights_"] = known["_stream"].average()
        return cast("Array", known["weights_"])

    @weights_.setter
    def weights_(self, weights: Array) -> None:
        self.__dict__["weights_"] = weights

    def __getstate__(self) -> dict[str, Any]:
        _ = getattr(self, "weights_", None)  # made now, if they were not yet
        state = dict(super().__getstate__())
        # What is private is training data and multipliers: it stays behind.
        return {k: v for k, v in state.items() if k[0] != "_" or k == "_sklearn_version"}

    def _html_repr(self) -> str:
        """What a notebook shows: scikit-learn's diagram and, of a fitted model, the certificate."""
        html: str = super()._html_repr()
        if not hasattr(self, "stop_reason_"):
            return html
        primal, dual, scale = self.primal_objective_, self.dual_objective_, positive_part(self)
        found = "no certified gap"
        if math.isfinite(self.duality_gap_):
            share = f" ({bound_text(self.duality_gap_ / scale)})" if scale > 0.0 else ""
            found = f"gap {self.duality_gap_:.3g}{share} = primal {primal:.6g} − dual {dual:.6g}"
        passes = count_of(self.n_iter_, "pass", "passes")
        return f"{html}<p>{found}; {passes}: {escape(self.stop_reason_)}</p>"

    predict_proba = _Lacking()
    _probabilities = "its scores are not probabilities"
    _centres_far = False  # whether columns far from 0 are centred, whatever their size is

    @property
    def _layout(self) -> Any:
        """Where the blocks of ``weights_`` lie."""
        return self._make_layout(int(self.n_features_in_), len(self.classes_))

    def _view(self, name: str) -> Array:
        """A block of ``weights_`` (rows, columns); one row of zeros where there is none."""
        check_is_fitted(self, "weights_")
        block = self._layout.get(name)
        return np.zeros((1, len(self.classes_))) if block is None else block.table(self.weights_)

    def _with_constant(self, matrix: Any) -> Any:
        """Rows with the constant feature, if there is one, as the last column."""
        return with_constant(matrix) if self.fit_intercept else matrix

    def _wants_scale(self: Any, dense: bool) -> bool:
        """Whether columns are scaled: as asked, else dense ones where C is not a number.

        Unasked, sparse ones are scaled where dense ones are, but less (`choose_sparse_scales`).
        """
        if self.scale is not None:
            return bool(self.scale)
        return dense and isinstance(self.C, str)

    def _over(self, kernel: Any, problem: Any, *out: Any) -> None:
        """Let a kernel predict for all examples of a problem, in threads."""
        n_jobs, everyone = checks.effective_n_jobs(self.n_jobs), np.arange(len(problem.offsets) - 1)
        with announce_compiling(again=False), Workers(n_jobs, 0) as workers:
            workers.over(everyone, kernel, problem, PART, self.weights_, *out)

    def _n_best(self, kernel: Any, problem: Any, n: Any) -> Iterator[tuple[Array, list[float]]]:
        """Of every example the n best outputs, or all it has, one a row, and their scores."""
        checks.positive("n", n, integer=True)
        offsets, n = problem.offsets, int(n)
        outputs = np.zeros(n * offsets[-1], dtype=np.int32)
        scores = np.empty((len(offsets) - 1, n))
        counts = np.empty(len(scores), dtype=np.int64)
        self._over(kernel, problem, outputs, scores, counts)
        for i, (lo, hi) in enumerate(pairwise((n * offsets).tolist())):
            own = outputs[lo:hi].reshape(n, -1)
            yield own[: counts[i]], scores[i, : counts[i]].tolist()

    def _store(self, result: Result) -> None:
        """Take over weights, certificate and curve of a run."""
        self.weights_ = result.weights
        # The dual of the outputs found bounds the whole problem, their primal does not.
        whole, found = (math.nan, math.nan), (result.primal, result.gap)
        if not result.restricted:
            whole, found = found, whole
        self.primal_objective_, self.duality_gap_ = whole
        self.restricted_objective_, self.restricted_gap_ = found
        self.dual_objective_, self.n_iter_ = result.dual, result.n_iter
        self.oracle_exact_, self.oracle_bounds_ = result.exact, result.bounded
        self.converged_, self.stop_reason_ = result.converged, result.stop_reason
        self.history_ = History(result.history)
        self.__dict__.update(result.findings)

    def with_weights(self, weights: Array) -> Any:
        """A fitted copy that predicts with other flat weights, e.g. those a callback kept.

        The copy has no certificate: its gap is ``nan``.
        """
        check_is_fitted(self, "weights_")
        given, expected = np.shape(weights), np.shape(self.weights_)
        require(given == expected, f"weights has shape {given}, expected {expected}.")
        other = copy(self)
        other.weights_ = np.array(weights, dtype=np.float64)
        other._drop_certificate("weights were replaced")
        other.history_ = History()
        forget_extras(other)
        return other

    def _drop_certificate(self, reason: str) -> None:
        """Say that the weights are not those of a certified run."""
        self.primal_objective_ = self.duality_gap_ = math.nan
        self.restricted_objective_ = self.restricted_gap_ = math.nan
        self.converged_, self.stop_reason_ = False, reason

    def _check_values(self) -> None:
        """Check what a prediction needs."""
        self.check_parameters()

    def save(
        self,
        path: Any,
        *,
        dtype: str = "float64",
        sparse: bool | float = True,
        check: tuple[Any, Any] | None = None,
        metadata: dict[str, Any] | None = None,
        state: bool = False,
    ) -> dict[str, Any]:
        """Write the fitted estimator to a model file (``.hinge``), atomically and without pickle.

        Parameters
        ----------
        path : str or path
        dtype : {"float64", "float32", "float16"}, default="float64"
            How weights are stored; only float64 is exact. A loaded model computes in float64.
        sparse : bool or float, default=True
            Store only nonzero weights, which loses nothing; a number also drops smaller weights.
            False stores whole tables, for other readers of safetensors files.
        check : (X, y), optional; data on which predictions before and after saving are compared
        metadata : dict, optional; anything JSON can hold, e.g. the command and a hash of the data
        state : bool, default=False
            Also store the remembered examples and their multipliers, so that ``partial_fit``
            continues after :meth:`load`, bit for bit as it would have here. The file then holds
            the training data.

        Returns
        -------
        dict
            ``bytes``; ``exact``, and ``largest_change`` and ``largest_relative_change`` of a
            weight; with ``check`` also ``changed_predictions`` (a share), ``score_before`` and
            ``score_after``; ``left_out`` names parameters that a file cannot hold (callbacks, a
            generator as random_state).
        """
        from hingeline.modelfile import estimators as storage

        return storage.save(self, path, dtype, sparse, check, metadata, state)

    @classmethod
    def load(cls, path: Any, structure: Any = None) -> Any:
        """Load a fitted estimator of this class from a file; see :func:`hingeline.load`."""
        from hingeline.modelfile import estimators as storage

        return storage.load(path, cls, structure)


class Streams:
    """What estimators with ``partial_fit`` have: examples that are remembered between calls.

    Attributes
    ----------
    n_examples_ : int; how many examples are remembered for ``partial_fit``
    """

    def _open_stream(self) -> Any:
        """What ``partial_fit`` keeps, from the first call on."""
        known = self.__dict__
        if known.get("_stream") is None:
            from hingeline.streaming.stream import Stream

            known["_stream"] = Stream(self)
        return known["_stream"]

    @property
    def n_examples_(self) -> int:
        """The number of examples remembered for ``partial_fit``."""
        known = self.__dict__
        if known.get("_stream") is not None:
            return len(known["_stream"])
        kept = known.get("_dual") or known.get("_stored")
        return 0 if kept is None else len(kept.weights)

    def forget(self, which: Any = None, *, keep_last: int | None = None) -> Any:
        """Forget examples and remove their multipliers.

        The weights are then exactly those of the multipliers that remain; the next ``partial_fit``
        without ``passes`` certifies them for the remaining examples.

        Parameters
        ----------
        which : array-like of int or bool, optional
            The examples to forget: their numbers among those still remembered, in order of
            arrival, or a mask.
        keep_last : int, optional; instead of ``which``: keep only this many of the newest
        """
        check_is_fitted(self, "classes_")
        self._open_stream().forget(which, keep_last)
        return self


#: ``C="scale"`` is this over the mean squared norm of a row; see ``benchmarks/defaults.py``.
SCALE = 3.0


@dataclass(eq=False, repr=False, kw_only=True)
class TableModel:
    """For estimators of tables, one example a row.

    Parameters
    ----------
    scale : bool, optional
        Standardise the columns of a dense X (mean 0, deviation 1), and divide those of a sparse X
        by their largest absolute value; None: as in :class:`hingeline.ChainSSVM`. Weights are then
        those of the scaled features.

    Attributes
    ----------
    feature_means_, feature_scales_ : ndarray of shape (features,); where columns were scaled
    """

    scale: bool | None = None

    def _check_rows(self, X: Any, *y: Any, **how: Any) -> Any:
        """Input as arrays, X dense or CSR."""
        X = checks.check_indices(X, "X") if sp.issparse(X) else X
        if y:  # to be learnt from
            checks.refuse_text(X)
            checks.refuse_none(y[0])
        types = [np.float64, np.float32]
        if how.get("reset", True) and y and is_plain(X, y[0]):
            # What scikit-learn would find after half a millisecond: nothing to convert or refuse.
            self.n_features_in_ = X.shape[1]
            vars(self).pop("feature_names_in_", None)
            return X, y[0]
        with checks.retell("X or y holds a number that is too large: ", ".", OverflowError):
            return validate_data(self, X, *y, accept_sparse="csr", dtype=types, **how)

    def _new_rows(self, X: Any) -> Any:
        """Rows to predict for, scaled."""
        check_is_fitted(self, "weights_")
        return scale_columns(self, self._check_rows(X, reset=False))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.sparse = True
        return tags


def is_plain(X: Any, y: Any) -> bool:
    """Whether X is a plain table, dense or CSR, of finite floats, and y has an integer a row."""
    sparse = sp.issparse(X) and X.format == "csr"
    if not (sparse or type(X) is np.ndarray) or X.dtype not in (np.float64, np.float32):
        return False
    fine = X.ndim == 2 and min(X.shape) > 0 and type(y) is np.ndarray and y.dtype.kind == "i"
    return fine and y.shape == X.shape[:1] and bool(np.isfinite(X.data if sparse else X).all())


def weigh_rows(problem: Any, weights: Array) -> Array:
    """The weights of examples for each of their rows of features."""
    if len(problem.indptr) == len(weights) + 1:
        return weights
    return np.repeat(weights, np.diff(problem.offsets))


def scale_C(values: Array, indptr: Array, constant: bool, weights: Any = 1.0) -> float:
    """What ``C="scale"`` stands for; ``constant`` says whether that feature is among the values.

    Features s times as large make the same model with C/s². ``weights`` are those of the rows.
    """
    weights = np.broadcast_to(weights, len(indptr) - 1)
    with np.errstate(over="ignore"):  # refused later
        squares = np.square(values, dtype=np.float64)
        squares *= np.repeat(weights, np.diff(indptr))
        norm = float(squares.sum()) / float(weights.sum())  # no product: its bits follow threads
    return SCALE / (norm if constant else norm + 1.0)


def refuse_overflow(problem: Any, price: float) -> None:
    """Refuse features so large that squares of planes, or of all of them together, overflow."""
    what = f"C times the weights of the examples sums to {price:.3g}, and its square overflows"
    require(price < 1e150 or math.isinf(price), f"{what}: lower C or sample_weight.")
    for name in ("values", "factor_values"):
        values = getattr(problem, name, None)
        if not isinstance(values, np.ndarray) or not values.size:
            continue
        largest = max(abs(float(values.max())), abs(float(values.min())))
        # ‖Σ α Δf‖ is at most the sum of all entries, times the sum of all multipliers.
        reach = 2.0 * largest * values.size * (max(price, 1.0) if math.isfinite(price) else 1.0)
        what = f"a feature has the size {largest:.3g}"
        how = "scale the features"
        if price > largest:
            what += f" and C times the weights of the examples sums to {price:.3g}"
            how = "lower C or sample_weight, or scale the features"
        what += ", and squares of such numbers overflow in training"
        require(reach < 1e150, f"{what}: {how}.")


ENUMERATED_MB = 1024  # A dense (examples, outputs) table of multipliers may take this much memory.


@dataclass(eq=False, repr=False, kw_only=True)
class BaseSSVM:
    """Parameters common to all large-margin estimators, and the fit around a compiled problem.

    Parameters
    ----------
    C : float or "auto", default=1.0
        Weight of an example's slack; ``float("inf")`` for a hard margin, which needs exact
        inference. ``"auto"`` chooses C by the loss on a fifth of the examples, held out; ``C_``
        is the value chosen.
    slack : {"max", "squared", "sum", "nu"}, default="max"
        Linear slack; ``½·slack²`` with the square root of the loss; the sum of the hinges of all
        outputs (Balamurugan et al., OP2; for classes Weston and Watkins); or linear slack with a
        margin ρ that is optimised too, controlled by ``nu`` instead of C.
    nu : float or "auto", optional
        With ``slack="nu"``, instead of C: the largest mean loss allowed for margin errors; "auto"
        chooses it on held-out examples. See :func:`hingeline.nu_path`.
    solver : {"auto", "sdm", "fsmo", "bcfw", "sdcd", "one-slack", "subgradient"}, default="auto"
        ``"auto"`` is ``"sdcd"`` for ``slack="sum"``, otherwise ``"sdm"``. ``"fsmo"`` finds planes
        by cutting planes; ``"bcfw"`` (``"max"``) is block-coordinate Frank-Wolfe; ``"one-slack"``
        (``"max"`` and ``"sum"``) adds the planes of all examples up to one plane per pass;
        ``"subgradient"`` (``"max"`` and ``"nu"``) follows the ν paper.
    tol : float, default=1e-2; training stops at this certified relative gap ``(P − D)/P``
    max_iter : int, default=1000; the largest number of passes over the data
    max_time : float, optional
        Time limit in seconds, not counting compilation; with ``C="auto"`` or ``nu="auto"``,
        which make several fits, it applies to each of them.
    warm_start : bool, default=False
        Start from the multipliers of the previous fit if the data are the same.
    random_state : int, RandomState or None; order of examples; an int makes weights bit-identical
    verbose : int, optional
        0: nothing; 1: a line per certificate; 2: a line per pass. By default, on a terminal or in
        a notebook, one line that is updated once encoding or training takes over two seconds.
    callbacks : callable or list of callables, optional
        Called after each pass with a :class:`hingeline.PassState`.
    solver_options : dict, optional; options of the chosen solver; see :mod:`hingeline.solvers`

    Attributes
    ----------
    C_ : float; the C of the fit; with ``slack="nu"`` the equivalent one
    C_path_ : list of CTrial; the values ``C="auto"`` tried, with their loss on held-out examples
    nu_, rho_, margin_error_risk_, support_vector_risk_
        With ``slack="nu"``: ν, the margin, and the two risks between which ν lies
        (Proposition 1 of S. Kim et al., *ν-Structured Support Vector Machines*, 2010, the smallest
        and the largest loss among tied outputs).
    n_margin_errors_, n_on_margin_, n_beyond_margin_, nu_path_
        With ``slack="nu"``: the sizes of the sets M₋, M₀ and M₊, and what ``nu="auto"`` tried.
    """

    slack: str = "max"
    nu: float | str | None = None
    solver: str = "auto"
    tol: float = 1e-2
    max_iter: int = 1000
    max_time: float | None = None
    warm_start: bool = False
    n_jobs: int | None = None
    random_state: Any = None
    verbose: int | None = None
    callbacks: Any = None
    solver_options: dict[str, Any] | None = None

    # Parameters of most of them; without a type here they are no parameters of all.
    C = cast("float | str", 1.0)
    rescale = "margin"
    violators = cast("str | int | None", None)

    _enumerable = False  # whether outputs may be so few that all are the working set

    def _solver_class(self, compiled: Compiled | None) -> type[CertifiedSolver]:
        """The solver that the parameters ask for; None: as if outputs were few."""
        size = 0.0 if compiled is None else 16.0 * compiled.n * (compiled.n_outputs or math.inf)
        few = self._enumerable and size <= ENUMERATED_MB * 2**20
        few = few and str(self.violators) in ("None", "all")
        parts = compiled is not None and compiled.stretch is not None
        parts = parts and (self.slack, self.rescale) == ("max", "margin") and math.inf != self.C
        return registry.find(self.solver, self.slack, few, parts)

    def _check_values(self) -> None:  # without a solver, which would be imported for it
        checks.check_common(self)

    def check_parameters(self) -> None:
        """Raise an error for parameters that ``fit`` would refuse for any data."""
        solver = self._solver_class(None)
        self._check_values()
        registry.check(solver, self.solver, self.slack, self.rescale, self.C)
        self._check_options(solver, self.solver)

    def _check_options(self, solver: type[CertifiedSolver], name: str) -> None:
        added = self._own_options(solver)
        registry.check_options(solver, self.solver_options, name, self.slack, added)

    def _own_options(self, solver_class: type[CertifiedSolver]) -> dict[str, Any]:
        """Options of the solver that are parameters of the estimator."""
        if "violators" not in registry.option_names(solver_class):
            return {}
        default = "all" if self._enumerable else "argmax"
        return {"violators": default if self.violators is None else self.violators}

    def _weigh(self, weights: Array, labels: Array) -> Array:
        """Weights of the examples with those of their classes."""
        return weights

    def _choose_C(self, problem: Any, weights: Array) -> float:
        """C as a number for this problem and these weights of examples; where "auto" begins."""
        return float(self._scaled_C(problem, weights) if isinstance(self.C, str) else self.C)

    def _scaled_C(self: Any, problem: Any, weights: Array) -> float:
        """What ``C="scale"`` stands for, where that is the default; else the default."""
        if type(self).C != "scale":
            return cast("float", type(self).C)
        rows = weigh_rows(problem, weights)
        by_features = scale_C(problem.values, problem.indptr, bool(self.fit_intercept), rows)
        by_features *= self._times_scale()
        return by_features * mean_loss(problem, weights)  # which has the unit of the margin

    def _times_scale(self) -> float:
        """``C="scale"`` is so many times what :func:`scale_C` says."""
        return 1.0

    def _settings(self) -> dict[str, Any]:
        """What multipliers of different calls must have in common."""
        names = ("C", "slack", "rescale", "fit_intercept", "boundary")
        found = {name: getattr(self, name) for name in names if hasattr(self, name)}
        return found | ({"C": self.C_} if self.C == "auto" else {})

    def _fit_problem(self, problem: Any, weights: Array) -> None:
        """Solve a problem; ``weights`` are those of its examples, as they were given."""
        dual = self._train(problem, weights, self._previous(problem))
        if self.warm_start:
            self._dual = dual

    def _train(self: Any, problem: Any, weights: Array, start: DualMemory | None) -> DualMemory:
        """Solve a problem and take over the certificate; the multipliers."""
        weighted = self._weigh(weights, problem.labels)
        result, dual = self._solve(self._compile(problem), weighted, start)
        self._store(result)
        dual.weights, dual.settings = weights, self._settings()
        return dual

    def _solve(self, compiled: Compiled, weights: Array, start: Any) -> tuple[Result, DualMemory]:
        """Run the solver, after the choice of ν where there is one."""
        name = type(self).__name__
        self._refuse_without_oracle(provides(compiled.problem, "decode_by_loss"), name)
        if not provides(compiled.problem, "decode_best"):
            self._refuse_violators(False, name)
        forget_extras(self)
        self.C_ = self._choose_C(compiled.problem, weights)
        if self.C == "auto":
            from hingeline.estimators.paths import choose_C

            self.C_, start, self.C_path_ = choose_C(self, compiled, weights)
        if self.warm_start:  # for a path, which poses the same problem again
            self._posed = (compiled, weights)
        if self.slack == "nu":
            from hingeline.estimators.paths import solve_nu

            return solve_nu(self, compiled, weights, start)
        return self._solve_with(compiled, weights, start, self.C_)[:2]

    def _solve_with(
        self, compiled: Compiled, weights: Array, start: Any, C: float | None = None, **given: Any
    ) -> tuple[Result, DualMemory, Any]:
        """Run the solver, with options given beside the user's; the result, and the solver."""
        began = working_time()
        C = self._choose_C(compiled.problem, weights) if C is None else C
        refuse_overflow(compiled.problem, C * float(weights.sum()))
        form = make_formulation(C, self.slack, self.rescale, weights)
        solver_class = self._solver_class(compiled)
        options = {**(self.solver_options or {}), **self._own_options(solver_class), **given}
        if "total_weight" in registry.option_names(solver_class):
            options["total_weight"] = float(weights.sum())
        seed = checks.draw_seed(self.random_state)
        multipliers = None if start is None else solver_class.start_from(start, compiled, form)
        limits = Limits(
            tol=float(self.tol),
            max_iter=int(self.max_iter),
            max_time=self.max_time,
            callbacks=checks.bind_callbacks(self),
            report=Reporter(type(self).__name__, self.verbose),
            started=began,
            usual=isinstance(self.C, str),
            identity=lambda: {
                "data": identity(compiled),
                "weights of examples": identity(compiled, form.cap, form.ridge),
                "C": repr(C),
                "formulation": f"{self.slack} slack, {self.rescale} rescaling",
                "solver": f"{solver_class.name} {sorted(options.items())!r}",
                "tol": repr(float(self.tol)),
                "random_state": seed,
                "start": "cold" if multipliers is None else "warm",
            },
        )
        telling = limits.report.while_compiling()
        with announce_compiling(), telling, compiled.workers(self.n_jobs) as workers:
            solver: Any = solver_class(compiled, form, workers, seed, options, multipliers)
            result = run(solver, limits)
        return result, DualMemory(compiled, solver.form, solver.memory()), solver

    def _previous(self: Any, problem: Any) -> DualMemory | None:
        """The dual state to start from, if ``warm_start`` asks for it and the data are the same."""
        loaded = "_stored" in self.__dict__
        if self.warm_start and self.__dict__.get("_stored") is not None:
            self._open_stream()
        dual, stream, _ = (self.__dict__.pop(n, None) for n in ("_dual", "_stream", "_stored"))
        if not self.warm_start:
            return None
        if stream:
            dual = stream.merge()
        if dual is not None and same_examples(dual.compiled.problem, problem):
            return dual
        if dual is not None or loaded:
            checks.warn(OTHER_DATA)
        return None

    def _refuse_without_oracle(self, has_oracle: bool, why: str) -> None:
        """Refuse formulations that need the best output of every loss value, if none is at hand."""
        what = f"slack={self.slack!r} with rescale={self.rescale!r} has no exact oracle for {why}"
        how = "use slack='max' with rescale='margin', which works with any loss"
        needed = self.slack == "squared" or self.rescale == "slack"
        require(has_oracle or not needed, f"{what}: {how}.")

    def _refuse_violators(self, has_best: bool, name: str) -> None:
        """Refuse to look for more violators than the oracles can find exactly."""
        if self.slack != "sum" or self.violators in (None, "argmax", 1):
            return
        what = f"violators={self.violators!r} needs the best outputs in order, which {name}"
        require(has_best, f"{what} cannot give: add decode_best(), or use violators='argmax'.")
        what = f"violators={self.violators!r} has no exact oracle under rescale='slack'"
        fine = self.rescale != "slack" or self.violators == "all"
        require(fine, f"{what}: use 'argmax' or 'all', or rescale='margin'.")
