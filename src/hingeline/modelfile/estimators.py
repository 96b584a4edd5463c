"""Estimators as model files: what ``save`` stores and ``load`` restores.

Stored are the parameters, the labels, the weights by block without their padding, the
certificate, the curve, the encoder and the versions of the libraries; with ``state=True`` also
training data and multipliers (:mod:`hingeline.modelfile.stream_state`). Files of the same model
are the same byte for byte.

Weights may be stored smaller: as float32 or float16, or only those that are not 0 (or not below
a threshold): one bit for every weight, then the values. What that changes is measured when the
file is written, and a model whose weights changed has no certificate.
"""

from __future__ import annotations

import importlib
import json
import numbers
import os
import platform
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from hingeline._checks import one_of
from hingeline._files import pack_texts, unpack_texts
from hingeline.core.results import HistoryRow
from hingeline.estimators import nu
from hingeline.estimators.base import FINDINGS, NU_FITTED
from hingeline.modelfile import ModelFileError, read_model, write_model
from hingeline.modelfile.stream_state import PREFIX, StoredState, state_to_arrays
from hingeline.modelfile.typed_json import (
    NotStorable,
    encoder_from_json,
    encoder_to_json,
    from_json,
    to_json,
)
from hingeline.modelfile.weights import compact, restore_weights

Array = np.ndarray[Any, Any]

#: Estimators that can be stored.
ESTIMATORS = {
    "ChainCRF": "hingeline.estimators.crf:ChainCRF",
    "ChainSSVM": "hingeline.estimators.chain:ChainSSVM",
    "GraphSSVM": "hingeline.estimators.graph:GraphSSVM",
    "MulticlassSSVM": "hingeline.estimators.multiclass:MulticlassSSVM",
    "MultilabelSSVM": "hingeline.estimators.multilabel:MultilabelSSVM",
}
#: Fitted attribute -> its key in the stored certificate.
CERTIFICATE = {
    "primal_objective_": "primal",
    "dual_objective_": "dual",
    "duality_gap_": "gap",
    "restricted_objective_": "restricted_objective",
    "restricted_gap_": "restricted_gap",
    "n_iter_": "n_iter",
    "converged_": "converged",
    "oracle_exact_": "oracle_exact",
    "stop_reason_": "stop_reason",
}
#: Kind of ``classes_`` -> types of its labels.
LABEL_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "bool": (bool,),
    "int": (int,),
    "uint": (int,),
    "float": (float,),
    "object": (str, int, float, bool),
}
_COUNTS = ("passes", "oracle_calls", "planes")
#: Columns that the curve of every file has.
_FIRST_FIELDS = 8
#: More threads than this are a mistake in a file, and would take memory.
MAX_JOBS = 4096


# Saving ------------------------------------------------------------------------------------------


def save(
    model: Any,
    path: str | os.PathLike[str],
    *,
    dtype: str = "float64",
    sparse: bool | float = False,
    check: tuple[Any, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    state: bool = False,
) -> dict[str, Any]:
    """Write a fitted estimator to a model file; see :meth:`hingeline.ChainSSVM.save`."""
    kind = type(model).__name__
    if kind not in ESTIMATORS or type(model) is not estimator_class(kind):
        raise TypeError(why_not(model))
    check_is_fitted(model, "weights_")
    model.check_parameters()
    one_of("dtype", dtype, ("float64", "float32", "float16"))
    threshold = check_sparse(sparse)
    if check is not None and (not isinstance(check, tuple) or len(check) != 2):
        raise TypeError("check must be a pair (X, y) of data to compare predictions on.")
    try:
        json.dumps(metadata, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"metadata cannot be written as JSON: {error}.") from None
    arrays: dict[str, Array] = {}
    parameters, left_out = parameters_to_json(model, arrays)
    if state and not hasattr(model, "partial_fit"):
        raise ValueError(
            f"state=True is for estimators with partial_fit, which {kind} does not have: leave it "
            "out."
        )
    kept = state_to_arrays(model) if state else None
    header: dict[str, Any] = {
        "estimator": kind,
        "parameters": parameters,
        "left_out": left_out,
        "classes": classes_to_json(model.classes_),
        "n_features_in": int(model.n_features_in_),
    }
    if hasattr(model, "feature_names_in_"):
        content, ends = pack_texts(list(model.feature_names_in_))
        arrays["feature_names/bytes"], arrays["feature_names/ends"] = content, ends
    if hasattr(model, "scheme"):
        header["scheme"] = getattr(model, "scheme_", None)
    if hasattr(model, "encoder_"):
        try:
            header["encoder"] = model.encoder_ and encoder_to_json(
                model.encoder_, arrays, "encoder"
            )
        except NotStorable as error:
            raise TypeError(f"the model cannot be stored, because its {error}.") from None
    if hasattr(model, "_fitted_to_json"):  # what graphs know beside labels and features
        header["fitted"] = model._fitted_to_json(arrays)
    stored, restored, report = compact(model, dtype, threshold)
    arrays.update(stored)
    if check is not None:
        report.update(compare(model, model._layout.join(restored), *check))
    header["certificate"] = {
        key: to_json(getattr(model, name), {}, name) for name, key in CERTIFICATE.items()
    }
    if hasattr(model, "nu_"):
        header["nu"] = nu_to_json(model)
    found = {name: getattr(model, name) for name in FINDINGS if hasattr(model, name)}
    if found:
        header["relaxation"] = {name: to_json(float(v), {}, name) for name, v in found.items()}
    header["history"] = list(HistoryRow._fields)
    arrays["history"] = np.array(model.history_, dtype=np.float64).reshape(
        -1, len(HistoryRow._fields)
    )
    header["weights"] = report
    if kept is not None:
        header["state"] = kept[0]
        arrays.update(kept[1])
    header["versions"] = versions()
    header["metadata"] = dict(metadata or {})
    n_bytes = write_model(path, header, arrays)
    return {"bytes": n_bytes, **report, "left_out": left_out}


def why_not(model: Any) -> str:
    """Why an estimator of this class cannot be stored, and what to do instead."""
    kind = type(model).__name__
    if hasattr(model, "structure"):
        return (
            f"{kind} runs the code of your Structure, which a model file cannot hold safely: keep "
            "the weights with numpy.save(path, model.weights_), and later set weights_ = "
            "numpy.load(path) on an SSVM with the same structure."
        )
    return (
        f"{kind} is not one of the estimators that model files hold ({', '.join(ESTIMATORS)}), "
        "and its code cannot be stored safely: keep model.weights_ with numpy.save, and give them "
        "back with with_weights."
    )


def check_sparse(sparse: Any) -> float | None:
    """The threshold below which weights are dropped; None for all weights."""
    if isinstance(sparse, (bool, np.bool_)):
        return 0.0 if sparse else None
    if not isinstance(sparse, numbers.Real) or not 0 <= float(sparse) < float("inf"):
        raise ValueError(f"sparse must be True, False or a threshold ≥ 0, got {sparse!r}.")
    return float(sparse)


def parameters_to_json(model: Any, arrays: dict[str, Array]) -> tuple[dict[str, Any], list[str]]:
    """Constructor parameters, and the names of those that a file cannot hold."""
    stored, left_out = {}, []
    for name, value in model.get_params(deep=False).items():
        try:
            stored[name] = to_json(value, arrays, f"parameters/{name}")
        except NotStorable as error:
            if name not in ("callbacks", "random_state"):  # these do not change predictions
                raise TypeError(
                    f"the model cannot be stored, because {error}: use text, numbers, lists, "
                    f"dicts or arrays for {name}."
                ) from None
            left_out.append(name)
    return stored, left_out


def nu_to_json(estimator: Any) -> dict[str, Any]:
    """What a fit left, for a model file."""
    trials = getattr(estimator, "nu_path_", None)
    numbers = {name: getattr(estimator, name) for name in NU_FITTED if name != "nu_path_"}
    return {
        "numbers": {name: to_json(value, {}, name) for name, value in numbers.items()},
        "tried": trials and [[to_json(v, {}, "nu_path_") for v in trial] for trial in trials],
    }


def classes_to_json(classes: Array) -> dict[str, Any]:
    """Labels with their types."""
    kind = "str" if classes.dtype.kind in "UT" else classes.dtype.name
    labels = []
    for label in classes.tolist():
        if type(label) not in LABEL_TYPES["object"]:
            raise TypeError(
                f"the model cannot be stored, because classes_ holds {label!r:.60}, of type "
                f"{type(label).__name__}: train with labels that are text, numbers or booleans."
            )
        labels.append(to_json(label, {}, "classes"))
    return {"kind": kind, "labels": labels}


def compare(model: Any, weights: Array, X: Any, y: Any) -> dict[str, Any]:
    """Predictions and score before and after the weights were changed."""
    other = model.with_weights(weights)
    before, after = model.predict(X), other.predict(X)
    if isinstance(before, list):
        before, after = np.concatenate(before), np.concatenate(after)
    return {
        "n_checked": len(before),
        "changed_predictions": float(np.mean(before != after)),
        "score_before": float(model.score(X, y)),
        "score_after": float(other.score(X, y)),
    }


def versions() -> dict[str, str]:
    """Versions of the libraries that this process runs."""
    found = {"python": platform.python_version()}
    for name in ("hingeline", "numpy", "scipy", "sklearn", "numba"):
        found[name] = str(getattr(sys.modules.get(name), "__version__", "unknown"))
    return found


# Loading -----------------------------------------------------------------------------------------


def load(path: str | os.PathLike[str], expected: type | None = None) -> Any:
    """The fitted estimator that a model file holds.

    Parameters
    ----------
    path : str or path
    expected : class, optional
        Refuse estimators of other classes.

    Returns
    -------
    estimator
        It predicts, and can be fitted anew; with training data and multipliers, if the file
        holds them, ``partial_fit`` goes on from these.

    Raises
    ------
    ModelFileError
        Where the file is not a model that this version reads.
    """
    header, arrays = read_model(path)
    name = os.fspath(path)
    kind = header.get("estimator")
    if not isinstance(kind, str) or kind not in ESTIMATORS:
        raise ModelFileError(
            f"{name} holds a {kind!r:.40}, which this version of Hingeline does not know: upgrade."
        )
    cls = estimator_class(kind)
    if expected is not None and not issubclass(cls, expected):
        raise ModelFileError(
            f"{name} holds a {kind}, not a {expected.__name__}: load it with {kind}.load or "
            "hingeline.load."
        )
    try:
        model = restore(cls, header, arrays)
        model.metadata_ = dict(header.get("metadata") or {})
        return model
    except MemoryError:
        raise ModelFileError(f"{name} needs more memory than there is.") from None
    except Exception as error:  # also of an encoder; whatever is wrong, the file is
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise ModelFileError(
            f"{name} does not hold a model that this version can restore ({reason}): get a fresh "
            "copy, or upgrade Hingeline if a newer one wrote it."
        ) from error


def estimator_class(kind: str) -> Any:
    """The class of an estimator by its name in files."""
    module, attribute = ESTIMATORS[kind].split(":")
    return getattr(importlib.import_module(module), attribute)


def restore(cls: Any, header: dict[str, Any], arrays: dict[str, Array]) -> Any:
    """The estimator that header and arrays describe; any exception where they do not."""
    parameters = {k: from_json(v, arrays) for k, v in header["parameters"].items()}
    model = cls(**parameters)
    model.check_parameters()
    if model.n_jobs is not None and model.n_jobs > MAX_JOBS:
        raise ValueError(f"n_jobs={model.n_jobs}")
    model.classes_ = classes_from_json(header["classes"])
    n_features = header["n_features_in"]
    if type(n_features) is not int or n_features < 0:
        raise ValueError("n_features_in must be a count")
    model.n_features_in_ = n_features
    if "feature_names/ends" in arrays:
        names = unpack_texts(arrays["feature_names/bytes"], arrays["feature_names/ends"])
        if len(names) != n_features:
            raise ValueError(f"{len(names)} feature names for {n_features} features")
        model.feature_names_in_ = np.array(names, dtype=object)
    if hasattr(model, "scheme"):
        if not isinstance(header["scheme"], (str, type(None))):
            raise ValueError("scheme must be text")
        model.scheme_ = header["scheme"]
    if "encoder" in header or hasattr(model, "features"):
        stored = header["encoder"]
        model.encoder_ = None if stored is None else encoder_from_json(stored, arrays)
    if hasattr(model, "_fitted_from_json"):
        model._fitted_from_json(header["fitted"], arrays)
    restore_weights(model, header["weights"], arrays)
    restore_certificate(model, header, arrays)
    if "state" in header and hasattr(model, "partial_fit"):
        model._stored = StoredState(model, header["state"], arrays)
    elif any(name.startswith(PREFIX) for name in arrays):
        raise ValueError("arrays of a state that the header does not mention")
    elif hasattr(model, "partial_fit"):
        model._stored = None  # whoever wants to go on is told that there is nothing to go on from
    return model


def nu_from_json(estimator: Any, stored: dict[str, Any]) -> None:
    """Restore what :func:`nu_to_json` stored; any exception where it is something else."""
    for name in NU_FITTED:
        if name == "nu_path_":
            continue
        value = from_json(stored["numbers"][name], {})
        if type(value) is not (int if name.startswith("n_") else float):
            raise ValueError(f"{name} has the wrong type")
        setattr(estimator, name, value)
    if stored["tried"] is not None:
        trials = [nu.NuTrial(*(from_json(v, {}) for v in trial)) for trial in stored["tried"]]
        if not all(type(value) is float for trial in trials for value in trial):
            raise ValueError("nu_path_ must hold numbers")
        estimator.nu_path_ = trials


def classes_from_json(stored: dict[str, Any]) -> Array:
    """The labels with their types."""
    labels = [from_json(label, {}) for label in stored["labels"]]
    kind = stored["kind"]
    allowed = LABEL_TYPES[kind.rstrip("0123456789")]
    if (
        not labels
        or type(stored["labels"]) is not list
        or any(type(label) not in allowed for label in labels)
    ):
        raise ValueError("the labels are not of the type that is stated")
    classes = np.empty(len(labels), dtype=object)
    classes[:] = labels
    return classes if kind == "object" else classes.astype(kind)


def restore_certificate(model: Any, header: dict[str, Any], arrays: dict[str, Array]) -> None:
    """Certificate and curve; a certificate of other weights is none."""
    kinds = {"n_iter": int, "converged": bool, "oracle_exact": bool, "stop_reason": str}
    for name, key in CERTIFICATE.items():
        value = from_json(header["certificate"][key], {})
        if type(value) is not kinds.get(key, float):
            raise ValueError(f"{key} has the wrong type")
        setattr(model, name, value)
    report = header["weights"]
    if report["exact"] is True and "nu" in header:
        nu_from_json(model, header["nu"])
    if report["exact"] is True:
        for name, stored_value in header.get("relaxation", {}).items():
            value = from_json(stored_value, {})
            if name not in FINDINGS or type(value) is not float:
                raise ValueError(f"{name!r:.40} is no number of a relaxation")
            setattr(model, name, value)
    if report["exact"] is not True:
        model.primal_objective_ = model.duality_gap_ = float("nan")
        model.restricted_objective_ = model.restricted_gap_ = float("nan")
        model.converged_ = False
        model.stop_reason_ = (
            f"weights were rounded when they were stored (dtype {report['dtype']}, threshold "
            f"{report['threshold']}), so the certificate of the fit is not theirs"
        )
    rows = arrays["history"]
    fields = HistoryRow._fields
    stored = header["history"]
    # Files of before a column was added lack it.
    known = len(stored) >= _FIRST_FIELDS and stored == list(fields)[: len(stored)]
    if rows.dtype != np.float64 or rows.ndim != 2 or not known:
        raise ValueError("history must be a table of numbers")
    counts = [field in _COUNTS for field in stored]
    model.history_ = [
        HistoryRow(*(int(v) if count else v for v, count in zip(row, counts, strict=True)))
        for row in rows.tolist()
    ]
