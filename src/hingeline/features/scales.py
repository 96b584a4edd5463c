"""How columns of numbers are brought to similar sizes: what is subtracted, and the divisors."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from hingeline._checks import Array
from hingeline.features.tables import SCALING

#: Columns are far from 0 whose mean is larger than so many deviations.
FAR = 1.5


def learn_scales(model: Any, X: Any, weights: Array, named: bool) -> dict[str, Array]:
    """How columns of rows are scaled, each row counted by its weight; nothing if they stay."""
    known, dense = X, not sp.issparse(X)
    if not weights.all():
        known, weights = X[np.flatnonzero(weights)], weights[weights > 0.0]
    if not model._wants_scale(dense or named):
        return choose_sparse_scales(model, known, weights)
    if dense:
        return choose_scales(model, *measure_columns(known, weights))
    if named:
        found = measure_named(known, weights / weights.max())
        return choose_scales(model, *found, by_largest=True) if (known.data != 1.0).any() else {}
    largest = abs(known).max(axis=0).toarray().ravel()
    return dict(zip(SCALING, (np.zeros(X.shape[1]), no_zeros(largest)), strict=True))


def measure_columns(X: Array, weights: Array | None = None) -> tuple[Array, ...]:
    """Means and deviations of columns, the share that is not 0, the largest size and the least."""
    with np.errstate(over="ignore", invalid="ignore"):  # too large: refused later
        if weights is not None and (weights != weights[0]).any():
            share = weights / weights.sum()
            means = np.einsum("i,ij->j", share, X)  # the same sum for any number of threads
            sizes = np.sqrt(np.einsum("i,ij->j", share, np.square(X - means)))
            filled = np.einsum("i,ij->j", share, X != 0.0)
        else:
            means, sizes = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
            filled = np.count_nonzero(X, axis=0) / len(X)
    return settle(means, sizes, filled, X.max(axis=0), X.min(axis=0))


def settle(means: Array, sizes: Array, filled: Array, most: Array, least: Array) -> tuple[Any, ...]:
    """What is known of columns; those of one value, but for rounding, have that as their mean."""
    largest = np.maximum(most, -least)
    with np.errstate(over="ignore", invalid="ignore"):
        same = most - least <= 8.0 * np.finfo(least.dtype).eps * largest
    means, sizes = np.where(same, least, means), np.where(same, 0.0, sizes)
    return means, sizes, filled, largest, least


def measure_named(X: sp.csr_matrix, weights: Array) -> tuple[Array, ...]:
    """The same of numbers in dicts; only what all tokens have is centred, small rare ones are 1."""
    values, at, d = X.data.astype(np.float64), X.indices, X.shape[1]
    each, n = np.repeat(weights, np.diff(X.indptr)), weights.sum()
    count = no_zeros(np.bincount(at, each, d))
    whole = np.bincount(at, minlength=d) == X.shape[0]
    means = np.where(whole, np.bincount(at, each * values, d) / count, 0.0)
    squares = np.bincount(at, each * (values - means[at]) ** 2, d)
    most, least = (np.ravel(a.toarray()) for a in (X.max(axis=0), X.min(axis=0)))
    found = settle(means, np.sqrt(squares / count), count / n, most, least)
    small = (2 * count < n) & (found[3] <= 10.0)
    return *found[:3], np.where(small, 1.0, found[3]), least


def choose_scales(
    model: Any,
    means: Array,
    deviations: Array,
    filled: Array,
    largest: Array,
    least: Array,
    *,
    by_largest: bool = False,
) -> dict[str, Array]:
    """What is subtracted from dense columns, and what they are divided by: :data:`SCALING`.

    Unasked, a column that is 0 more often than not (an indicator, a pixel) is like a sparse one,
    since its deviation says how rare it is, not how large (:func:`find_entries`); and columns
    stay as they are whose size is that of an indicator, up to a factor of 2: their root mean square
    or, without negative values (shares, grey values from 0 to 1), the largest. Of single labels
    those are centred that are far from 0 beside their deviation, as a scaler to [0, 1] leaves them:
    C follows the norm, of which their means would have most. Nothing where all stay. Columns with
    deviations that differ by a factor of 5 at most have one unit (embeddings, lengths): one divisor
    for all keeps what their sizes say. ``by_largest``: that is the size of what is mostly 0.
    """
    sizes = no_zeros(deviations)
    if model.scale is None:
        rare = filled < 0.5
        if not by_largest:
            largest = np.where(rare, find_entries(means, deviations, filled, least), largest)
        means, sizes = np.where(rare, 0.0, means), np.where(rare, no_zeros(largest), sizes)
        size = np.where(rare, largest, np.hypot(means, deviations))
        fine = (size <= 2.0) & (np.where(least >= 0.0, largest, size) >= 0.5)
        flat = np.abs(size**2 - filled * largest**2) <= 1e-9 * largest**2  # 0 and 1, −1 and 1
        far = fine & ~flat & (np.abs(means) > FAR * deviations) & (deviations > 0.0)
        far &= model._centres_far
        if (fine & ~far).all():
            return {}
        vary = deviations[deviations > 0.0]
        if vary.size and not rare.any() and vary.max() <= 5.0 * vary.min():
            sizes = no_zeros(np.full(len(sizes), np.sqrt(np.mean(vary**2))))
        else:
            own = deviations[far]
            alike = own.size > 0 and own.max() <= 5.0 * own.min()
            sizes = np.where(fine, 1.0, sizes)
            sizes[far] = np.sqrt(np.mean(own**2)) if alike else 1.0
            means = np.where(fine & ~far, 0.0, means)
    return dict(zip(SCALING, (means, sizes), strict=True))


def choose_edge_scales(
    model: Any, means: Array, deviations: Array, *more: Array
) -> dict[str, Array]:
    """What columns of edges are divided by; centred ones would want a constant beside them."""
    sizes = np.zeros(len(means)), np.hypot(means, deviations)
    found = choose_scales(model, *sizes, *more, by_largest=True)
    return {"edge_feature_scales_": found["feature_scales_"]} if found else {}


def find_entries(means: Array, deviations: Array, filled: Array, least: Array) -> Array:
    """How large the entries of dense columns are that are mostly 0: what these are divided by.

    Their mean, of columns with negative values their root mean square. The largest one would say
    how long a tail is. Columns within a factor of 10 of the median column have one unit (words of a
    text): that the rare ones among them are small says that they matter little.
    """
    filled = np.maximum(filled, 1e-300)
    sizes = np.where(least >= 0.0, means / filled, np.hypot(means, deviations) / np.sqrt(filled))
    known = (filled < 0.5) & (sizes > 0.0)
    unit = float(np.median(sizes[known])) if known.any() else 1.0
    return np.where((sizes > 0.1 * unit) & (sizes < 10.0 * unit), unit, sizes)


def choose_sparse_scales(model: Any, X: sp.csr_matrix, weights: Array) -> dict[str, Array]:
    """What columns of a sparse table are divided by, unasked: :data:`SCALING`; nothing if by 1.

    What is more than half full is a dense table, and smaller as one. In others one column of ages
    or incomes beside indicators would have all of the squared norm that C follows, and nothing else
    would be learnt. So columns are divided by the root mean square of their entries where it is
    large: above 2 in all rows, if most rows have an entry; of others where most entries are above
    10. Counts of words have such entries, but not mostly. Nothing is multiplied: what is small in
    tf-idf or in shares is so because it matters little.
    """
    d, at = X.shape[1], X.indices
    rows = weights / weights.min()
    each = np.repeat(rows, np.diff(X.indptr))
    total = float(rows.sum())
    if 2.0 * each.sum() > total * d:
        return choose_scales(model, *measure_columns(X.toarray(), weights))
    values = abs(X.data)
    if not values.max(initial=0.0) > 2.0:
        return {}
    with np.errstate(over="ignore"):  # refused later
        entries = np.bincount(at, each, minlength=d)
        squares = np.bincount(at, each * np.square(values, dtype=np.float64), minlength=d)
        mostly = 2.0 * np.bincount(at, each * (values > 10.0), minlength=d) > entries
        large = np.where(2.0 * entries >= total, squares > 4.0 * total, mostly)
    sizes = np.ones(d)
    sizes[large] = np.sqrt(squares[large] / entries[large])
    return dict(zip(SCALING, (np.zeros(d), no_zeros(sizes)), strict=True)) if large.any() else {}


def no_zeros(sizes: Array) -> Array:
    """Columns that are constant, or overflow, stay as they are."""
    sizes = sizes.astype(np.float64)
    return np.where((sizes > 0.0) & np.isfinite(sizes), sizes, 1.0)
