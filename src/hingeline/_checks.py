"""Checks of parameters and inputs: one clear sentence each, before any kernel runs."""

import math
import numbers
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp

from hingeline.schemes import SCHEMES, scheme_name

Array = np.ndarray[Any, Any]

#: Parameters that are true or false, where an estimator has them.
_SWITCHES = ("fit_intercept", "boundary", "warm_start", "scale")


def effective_n_jobs(n_jobs: int | None) -> int:
    """Threads for joblib's convention: None is 1, −1 all cores, −2 all but one."""
    if n_jobs is None:
        return 1
    whole = isinstance(n_jobs, numbers.Integral) and not isinstance(n_jobs, bool)
    require(whole, f"n_jobs must be None or an integer, got {show(n_jobs)}.", TypeError)
    require(n_jobs != 0, "n_jobs=0 has no meaning: use 1 for one thread or -1 for all cores.")
    if n_jobs < 0:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        return max(1, (cores or 1) + 1 + n_jobs)
    return n_jobs


def show(value: Any) -> str:
    """A value in a message: on one line, and cut where it is long."""
    return f"{' '.join(repr(value).split()):.60}"


def one_of(name: str, value: Any, allowed: Sequence[str]) -> None:
    """Refuse a word that is not among the allowed ones, naming them."""
    if not isinstance(value, str) or value not in allowed:
        words = ", ".join(repr(word) for word in allowed)
        raise ValueError(f"{name}={show(value)} is not known; choose one of {words}.")


def is_list(value: Any) -> bool:
    """Whether a value is a sequence, not a text, a mapping or an array without dimensions."""
    plain = hasattr(value, "__iter__") and not isinstance(value, (str, bytes, dict))
    return plain and getattr(value, "ndim", 1) > 0


def is_missing(label: Any) -> bool:
    """Whether a label is None, NaN or of their kind."""
    try:
        return label is None or bool(label != label)
    except ValueError:  # an array
        return False
    except TypeError:  # pandas.NA, which compares to nothing
        return True


def warn(text: str, kind: type[Warning] = UserWarning) -> None:
    """Warn, and name the line of the user's own code that called the library."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("hingeline."):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, kind, stacklevel=level)


def require(fine: Any, message: str, error: type[Exception] = ValueError) -> None:
    """Raise an error with this message unless all is fine."""
    if not fine:
        raise error(message)


@contextmanager
def retell(
    before: str, after: str = "", *caught: type[Exception], error: type[Exception] = ValueError
) -> Iterator[None]:
    """Tell errors of some types (ValueError where none is named) as others, with more around."""
    caught = caught or (ValueError,)
    try:
        yield
    except caught as first:
        raise error(f"{before}{first}{after}") from None


def require_type(fine: Any, name: str, wanted: str, value: Any) -> None:
    """Raise a TypeError that says what a value must be, and of what type it is, unless it fits."""
    require(fine, f"{name} must be {wanted}, got {type(value).__name__}.", TypeError)


def positive(name: str, value: Any, *, infinite: bool = False, integer: bool = False) -> None:
    """Refuse what is not a positive (finite) number."""
    most = sys.maxsize if integer else sys.float_info.max
    if (type(value) is int or (type(value) is float and not integer)) and 0 < value <= most:
        return
    kind = numbers.Integral if integer else numbers.Real
    word = "an integer" if integer else "a number"
    fine = isinstance(value, kind) and not isinstance(value, bool)
    require(fine, f"{name} must be {word}, got {show(value)}.", TypeError)
    more = " (infinity is a hard margin)" if infinite else " and finite" * (not value <= 0)
    fine = 0 < value <= most or (infinite and value == math.inf)
    require(fine, f"{name} must be greater than 0{more}, got {show(value)}.")


def whole_number(name: str, value: Any, least: int, most: float = math.inf) -> int:
    """The value as an int; what is no integer within these bounds is refused."""
    fine = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    bounds = f"≥ {least}" if math.isinf(most) else f"from {least} to {most}"
    text = f"{name} must be an integer {bounds}, got {show(value)}."
    require(fine and least <= value <= most, text)
    return int(value)


def check_common(estimator: Any) -> None:
    """Check the parameters that all estimators share; the registry checks those of solvers."""
    if not isinstance(estimator.C, str):
        positive("C", estimator.C, infinite=True)
    elif estimator.C not in ("auto", type(estimator).C):
        scales = type(estimator).C == "scale"
        known = "a number, 'auto' or 'scale'" if scales else "a number or 'auto'"
        raise TypeError(f"C must be {known}, got {show(estimator.C)}.")
    violators = estimator.violators
    what = f"violators={show(violators)} needs slack='sum'; leave it out for"
    require(violators is None or estimator.slack == "sum", f"{what} slack={estimator.slack!r}.")
    if isinstance(violators, str):
        one_of("violators", violators, ("argmax", "all"))
    elif violators is not None:
        positive("violators", violators, integer=True)
    positive("tol", estimator.tol)
    positive("max_iter", estimator.max_iter, integer=True)
    if estimator.max_time is not None:
        positive("max_time", estimator.max_time)
    verbose = estimator.verbose
    fine = isinstance(verbose, (bool, numbers.Integral, type(None)))
    require(fine, f"verbose must be None, 0, 1 or 2, got {show(verbose)}.", TypeError)
    check_nu(estimator)
    effective_n_jobs(estimator.n_jobs)
    check_switches(estimator)
    if str(getattr(estimator, "scheme", None)) not in ("None", "none", "auto"):
        try:
            scheme_name(estimator.scheme)
        except ValueError:
            known = f"'none', 'auto' or one of {', '.join(SCHEMES)}"
            raise ValueError(f"scheme must be {known}, got {show(estimator.scheme)}.") from None
    for callback in as_callbacks(estimator.callbacks):
        require(callable(callback), f"callbacks must be callable, got {show(callback)}.", TypeError)


def check_switches(estimator: Any) -> None:
    """Refuse switches that are neither true nor false."""
    for name in _SWITCHES:
        value, default = getattr(estimator, name, False), getattr(type(estimator), name, False)
        fine = isinstance(value, (bool, np.bool_, int)) and value in (0, 1)
        fine = fine or value is default is None
        require(fine, f"{name} must be True or False, got {show(value)}.", TypeError)


def check_nu(estimator: Any) -> None:
    """Refuse ν where it does not belong or is missing, and a C beside it."""
    nu = estimator.nu
    if estimator.slack != "nu":
        require(nu is None, f"nu={show(nu)} needs slack='nu'; leave it out and set C.")
        return
    require(nu is not None, "slack='nu' needs nu: a mean loss, e.g. nu=1.0, or nu='auto'.")
    default = type(estimator).C
    what = f"C={estimator.C!r} has no meaning with slack='nu', which nu controls"
    require(default == estimator.C, f"{what}: leave C at its default of {default!r}.")
    if not isinstance(nu, str):
        positive("nu", nu)
    elif nu != "auto":
        raise ValueError(f"nu={nu!r} is not known; give a number greater than 0 or 'auto'.")


def draw_seed(random_state: Any) -> int:
    """The seed of a solver, from what scikit-learn calls a random state."""
    if type(random_state) is int and 0 <= random_state < 2**32:
        return _draw_of_number(random_state)
    from sklearn.utils import check_random_state

    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError:
        how = "give an integer from 0 to 2**32 - 1, a RandomState or None"
        raise ValueError(f"random_state={show(random_state)} is no seed: {how}.") from None


@lru_cache  # to set up a generator takes a tenth of a millisecond, as long as a small partial_fit
def _draw_of_number(number: int) -> int:
    return int(np.random.RandomState(number).randint(2**31 - 1))


def as_callbacks(callbacks: Any) -> list[Any]:
    """None, one callback or several, as a list."""
    if callbacks is None:
        return []
    if callable(callbacks):
        return [callbacks]
    if not isinstance(callbacks, Sequence) or isinstance(callbacks, str):
        raise TypeError(f"callbacks must be a callable or a list of them, got {show(callbacks)}.")
    return list(callbacks)


def bind_callbacks(estimator: Any) -> list[Any]:
    """The callbacks of an estimator that is about to be fitted.

    Those that watch an estimator watch this one: a clone has copies that know a copy of another.
    """
    callbacks = as_callbacks(estimator.callbacks)
    for callback in callbacks:
        if hasattr(callback, "watch"):
            callback.watch(estimator)
    return callbacks


def check_loss(loss: Any, default: str, labels: Any, *, vector: bool, whole: str = "") -> Array:
    """``loss`` as a cost matrix (true label, predicted label).

    Accepts the structure's own word, a matrix in the order of ``classes_``, with ``vector`` also
    one cost per true label, and ``(scale, loss)`` for a multiple of any of these. The word
    ``whole``, if there is one, stands for the same cost everywhere, also where labels are right.
    ``labels`` are listed, or counted where they have no names: then there is no taxonomy of them.
    """
    n_labels = labels if isinstance(labels, int) else len(labels)
    plain: Array = 1.0 - np.eye(n_labels)
    if isinstance(loss, str):
        one_of("loss", loss, (default, whole) if whole else (default,))
        return plain if loss == default else np.ones((n_labels, n_labels))
    if isinstance(loss, tuple) and len(loss) == 2 and isinstance(loss[0], numbers.Real):
        positive("loss scale", loss[0])
        return float(loss[0]) * check_loss(loss[1], default, labels, vector=vector, whole=whole)
    if hasattr(loss, "to_matrix") and not isinstance(labels, int):
        loss = loss.to_matrix(labels)
    known = f"{default!r}, a cost matrix or (scale, loss)"
    costs = as_floats(loss, f"loss must be {known}, got {show(loss)}.")
    if vector and costs.shape == (n_labels,):
        costs = costs[:, None] * plain
    what = f"loss has shape {costs.shape}, but there are {n_labels} classes"
    remedy = f"give a {plain.shape} matrix in the order of classes_"
    require(costs.shape == plain.shape, f"{what}: {remedy}.")
    fine = np.isfinite(costs).all() and (costs >= 0).all() and not np.diag(costs).any()
    require(fine, "loss must be finite and non-negative, with a zero diagonal.")
    return costs


def check_class_weight(class_weight: Any, classes: Sequence[Any], labels: Array) -> Array:
    """One weight per class, from None, ``"balanced"`` or a mapping."""
    weights = np.ones(len(classes))
    if class_weight is None:
        return weights
    if isinstance(class_weight, str):
        what = f"class_weight must be 'balanced' or a dict, got {show(class_weight)}."
        require(class_weight == "balanced", what)
        counts = np.bincount(labels, minlength=len(classes))
        return np.where(counts > 0, len(labels) / (len(classes) * np.maximum(counts, 1)), 1.0)
    what = f"class_weight must be None, 'balanced' or a mapping, got {show(class_weight)}."
    require(isinstance(class_weight, Mapping), what, TypeError)
    index = {label: k for k, label in enumerate(classes)}
    for label, weight in class_weight.items():
        if not isinstance(weight, numbers.Real) or not math.isfinite(weight) or weight < 0:
            raise ValueError(f"class_weight[{label!r}] must be a number ≥ 0, got {show(weight)}.")
        if label in index:
            weights[index[label]] = float(weight)
        else:  # a fold may lack a label
            warn(f"class_weight has {label!r}, which is not a label of y: is it misspelt?")
    return weights


def weigh_costs(estimator: Any, labels: Array, whole: str = "") -> Array:
    """The cost matrix of Hamming loss and the like, rows times the weight of their class."""
    classes = list(estimator.classes_)
    cost = check_loss(estimator.loss, "hamming", classes, vector=True, whole=whole)
    return check_class_weight(estimator.class_weight, classes, labels)[:, None] * cost


def check_sample_weight(sample_weight: Any, n: int) -> Array:
    """Finite weights ≥ 0, one per example, not all zero."""
    if sample_weight is None:
        return np.ones(n)
    if isinstance(sample_weight, numbers.Real):
        sample_weight = [sample_weight] * n
    weights = as_weights("sample_weight", sample_weight, n, "example")
    require(weights.any(), "sample_weight is zero everywhere: give at least one example a weight.")
    return weights


def as_floats(values: Any, message: str) -> Array:
    """Values as an array of float64; a TypeError with this message where they are no numbers."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(message) from error


def as_weights(name: str, values: Any, n: int, member: str) -> Array:
    """Finite weights ≥ 0, one for each of n members."""
    weights = as_floats(values, f"{name} must be numbers, one per {member}.")
    what = f"{name} has shape {weights.shape}, but there are {n} {member}s"
    require(weights.shape == (n,), f"{what}: give one weight per {member}.")
    require(np.isfinite(weights).all() and (weights >= 0).all(), f"{name} must be finite and ≥ 0.")
    return weights


def check_finite(values: Array, where: str) -> None:
    """Refuse NaN and infinity, naming the place."""
    if not np.isfinite(values).all():
        kind = "NaN" if np.isnan(values).any() else "infinity"
        raise ValueError(f"{where} contains {kind}: replace or drop such values first.")


def number_classes(y: Array) -> tuple[Array, Array]:
    """The classes, sorted, and each label's number."""
    if y.ndim == 1 and y.dtype.kind == "i" and len(y):
        least = int(y.min())
        if int(y.max()) - least <= 2 * len(y):  # counting is faster than sorting
            places = np.subtract(y, least, dtype=np.int64)
            there = np.bincount(places) > 0
            return (np.flatnonzero(there) + least).astype(y.dtype), (np.cumsum(there) - 1)[places]
    how = "; give texts or numbers, not both."
    with retell("y holds labels without an order: ", how, TypeError, error=TypeError):
        return np.unique(y, return_inverse=True)


def as_csr(matrix: Any) -> sp.csr_matrix:
    """CSR with sorted, summed indices; the caller's matrix is left alone."""
    if isinstance(matrix, np.ndarray) and matrix.ndim == 2 and matrix.size and matrix.all():
        n, d = matrix.shape  # no zeros to leave out, which takes scipy three times as long
        columns = np.empty(matrix.shape, dtype=np.int32)
        columns[:] = np.arange(d)
        kind = np.int32 if matrix.size < 2**31 else np.int64  # scipy's own, so that it copies none
        starts = np.arange(n + 1, dtype=kind) * d
        return sp.csr_matrix((matrix.flatten(), columns.ravel(), starts), matrix.shape)
    matrix = trim(matrix) if isinstance(matrix, sp.csr_matrix) else sp.csr_matrix(matrix)
    if not matrix.has_canonical_format:  # scipy looks once and notes it with the caller's matrix
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix


def trim(matrix: Any) -> Any:
    """A CSR matrix without room behind its entries, which stacking would take for entries."""
    return matrix.copy() if len(matrix.data) > matrix.indptr[-1] else matrix


def check_indices(matrix: Any, where: str) -> Any:
    """A sparse matrix, trimmed; indices that miss its shape are refused: kernels do not look."""
    if not hasattr(matrix, "check_format"):  # none of rows or columns: SciPy makes the indices
        return matrix
    what = f"{where} is a sparse matrix whose indices do not fit its shape {matrix.shape} ("
    with retell(what, "): make it again with the right shape."):
        copy(matrix).check_format()  # which prunes: the caller's matrix is left alone
    return trim(matrix)


def numeric_rows(x: Any, where: str) -> Any:
    """One array or sparse matrix, dense or CSR, of finite numbers, float64 or float32."""
    if sp.issparse(x):
        rows = check_indices(x, where).tocsr()
    else:
        refuse_text(x, where)
        try:
            rows = np.asarray(x)
        except ValueError as error:
            raise ValueError(f"{where} is ragged: its rows must have the same length.") from error
        what = f"{where} has shape {rows.shape}, expected two dimensions"
        require(rows.ndim == 2, f"{what}: one row each, one column per feature.")
    number = rows.dtype.kind in "fiub"
    require(number, f"{where} has dtype {rows.dtype}, expected numbers.", TypeError)
    if rows.dtype not in (np.float64, np.float32):
        rows = rows.astype(np.float64)
    check_finite(rows.data if sp.issparse(rows) else rows, where)
    return rows


def numeric_matrix(x: Any, where: str) -> sp.csr_matrix:
    """The same as CSR with sorted, summed indices."""
    return as_csr(numeric_rows(x, where))


def refuse_text(X: Any, name: str = "X") -> None:
    """Refuse texts or dicts, in a list or in columns of a frame, where numbers are wanted."""
    for column in getattr(X, "columns", ()) if hasattr(X, "dtypes") else ():
        text = next((x for x in X[column].to_numpy().flat[:1] if isinstance(x, str)), None)
        what = f"column {column!r} of {name} holds {text!r:.40}, but numbers are expected"
        require(text is None, f"{what}: leave it out, or use OneHotEncoder() on it.", TypeError)
    if not (isinstance(X, (list, tuple)) and X):
        return
    words = isinstance(X[0], (list, tuple)) and X[0] and isinstance(X[0][0], str)
    if words or isinstance(X[0], (str, Mapping)):
        kind, maker = ("dicts", "Dict") if isinstance(X[0], Mapping) else ("texts", "Tfidf")
        what = f"{name}[0] is {X[0]!r:.40}, but rows of numbers are expected"
        maker += f"Vectorizer({'analyzer=list' if words else ''}).fit_transform(X)"
        raise TypeError(f"{what}: turn {kind} into numbers first, such as {maker}.")


def refuse_none(y: Any) -> None:
    """Refuse labels that are missing."""
    if isinstance(y, (list, tuple)) or getattr(getattr(y, "dtype", None), "kind", "") == "O":
        for i, label in enumerate(y):
            require(not is_missing(label), f"y[{i}] is {label!r}: every example needs a label.")


def require_memory(needed: float, what: str, how: str) -> None:
    """Refuse, before anything is allocated, what needs more bytes than the machine has."""
    most = available_memory()
    text = f"{what} need {needed / 2**30:,.1f} GiB of memory to train, but {most / 2**30:,.1f} GiB"
    require(needed <= most, f"{text} are available: {how}.")


def available_memory() -> float:
    """Bytes that can be had without swapping, as far as the system says; else infinity."""
    with suppress(OSError, KeyError, ValueError), open("/proc/meminfo", encoding="ascii") as file:
        return 1024.0 * int(dict(line.split(":") for line in file)["MemAvailable"].split()[0])
    with suppress(AttributeError, OSError, ValueError):
        return float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")
    return math.inf
