"""Estimators as model files: what ``save`` stores and ``load`` restores.

Stored are the parameters, the labels, the weights by block without their padding, the
certificate, the curve, the encoder and the versions of the libraries; with ``state=True`` also
training data and multipliers (:mod:`hingeline.streaming.memory`). Files of the same model
are the same byte for byte.

Of weights there is one bit each, then the values that are not 0; or whole tables. A model whose
weights were rounded for the file has no certificate.

Parameters, labels and numbers are JSON that keeps their types. What JSON has is itself;
everything else is an object with one key that names its type: ``{"float": "inf"}``,
``{"tuple": [...]}``, ``{"set": [...]}``, ``{"dict": [[key, value], ...]}``,
``{"array": name}`` (an array of the file), ``{"type": "float32"}`` (a type of numbers),
``{"encoder": {...}}`` (a feature encoder) and ``{"taxonomy": [parents, cost]}``.
"""

import importlib
import json
import math
import numbers
import os
import platform
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from hingeline._checks import Array, check_finite, one_of, require, retell
from hingeline._files import pack_texts, unpack_texts
from hingeline.core.results import HistoryRow, read_history
from hingeline.estimators.base import FINDINGS, NU_FITTED, forget_extras
from hingeline.features.tables import SCALING
from hingeline.modelfile.files import DTYPE_NAMES, NOT_JSON, ModelFileError, read_model, write_model
from hingeline.taxonomy import Taxonomy

#: Encoders that can be stored; code is never looked up by a name from a file but through this.
ENCODERS = ("ArcFeatures", "DictEncoder", "SegmentTemplates", "TokenTemplates")
_NOT_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
#: Types of numbers that parameters may ask for.
_SCALAR_TYPES = {t.__name__: t for t in (np.float64, np.float32, np.float16, np.int64, np.int32)}
_PLAIN = (type(None), bool, int, str)
#: What every fit leaves.
CERTIFICATE = (
    *("primal_objective_", "dual_objective_", "duality_gap_", "restricted_objective_"),
    *("restricted_gap_", "n_iter_", "converged_", "oracle_exact_", "oracle_bounds_"),
    "stop_reason_",
)
#: What only some leave.
EXTRAS = ("C_", *(name for name in NU_FITTED if name != "nu_path_"), *FINDINGS)
#: Kind of ``classes_`` -> types of its labels.
LABEL_TYPES: dict[str, tuple[type, ...]] = {
    **{"str": (str,), "bool": (bool,), "int": (int,), "uint": (int,), "float": (float,)},
    "object": (str, int, float, bool),
}
STATE = "state/"  # Arrays of what ``partial_fit`` goes on from have names that begin with this.
MAX_JOBS = 4096  # More threads than this are a mistake in a file, and would take memory.


class NotStorable(TypeError):
    """A value that has no form in a model file."""


def to_json(value: Any, arrays: dict[str, Array], name: str) -> Any:
    """A value as typed JSON; arrays in it go to ``arrays`` under names that begin with ``name``."""
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) in _PLAIN:
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": str(value)}
    if type(value) in (list, tuple):
        parts = [to_json(part, arrays, f"{name}/{k}") for k, part in enumerate(value)]
        return parts if type(value) is list else {"tuple": parts}
    if type(value) in (set, frozenset):
        return {"set": to_json(sorted(value), arrays, name)}
    if isinstance(value, Mapping):
        own = [to_json(part, arrays, f"{name}/{k}") for k, part in enumerate(value.values())]
        pairs = [[to_json(key, arrays, name), part] for key, part in zip(value, own, strict=True)]
        return {"dict": pairs}
    if isinstance(value, np.ndarray) and value.dtype in DTYPE_NAMES:
        arrays[name] = value
        return {"array": name}
    if isinstance(value, type) and value in _SCALAR_TYPES.values():
        return {"type": value.__name__}
    if hasattr(value, "to_state"):
        return {"encoder": encoder_to_json(value, arrays, name)}
    if type(value) is Taxonomy:
        return {"taxonomy": to_json([value.parents, value.cost], arrays, name)}
    raise NotStorable(f"{name} holds {value!r:.60}, of type {type(value).__name__}")


def from_json(value: Any, arrays: Mapping[str, Array]) -> Any:
    """The value that :func:`to_json` encoded."""
    if type(value) in (*_PLAIN, float):
        return value
    if type(value) is list:
        return [from_json(part, arrays) for part in value]
    ((kind, content),) = value.items()
    if kind == "tuple" and type(content) is list:
        return tuple(from_json(part, arrays) for part in content)
    if kind == "set":
        return set(from_json(content, arrays))
    if kind == "dict":
        return {from_json(key, arrays): from_json(part, arrays) for key, part in content}
    if kind == "encoder":
        return encoder_from_json(content, arrays)
    if kind == "taxonomy":
        return Taxonomy(*from_json(content, arrays))
    tables: dict[str, Any] = {"float": _NOT_FINITE, "array": arrays, "type": _SCALAR_TYPES}
    require(kind in tables, f"there is no type {kind!r:.40}")
    return tables[kind][content]


def encoder_to_json(encoder: Any, arrays: dict[str, Array], name: str) -> dict[str, Any]:
    """Class and state of a feature encoder; its arrays go to ``arrays`` below ``name``."""
    kind = type(encoder).__name__
    if kind not in ENCODERS or not isinstance(encoder, encoder_class(kind)):
        ours = f"Hingeline's own encoders ({', '.join(ENCODERS)})"
        raise NotStorable(f"{name} is a {kind}, which is not one of {ours}")
    own = {k: to_json(v, arrays, f"{name}/{k}") for k, v in encoder.get_params(False).items()}
    stored = {"class": kind, "parameters": own}
    try:
        meta, parts = encoder.to_state()
    except NotFittedError:  # a constructor parameter: its own parameters are all there is
        return stored
    arrays.update({f"{name}/{key}": part for key, part in parts.items()})
    return {**stored, "name": name, "meta": meta, "arrays": list(parts)}


def encoder_from_json(stored: Any, arrays: Mapping[str, Array]) -> Any:
    """The encoder that :func:`encoder_to_json` stored."""
    kind = stored["class"]
    require(kind in ENCODERS, f"there is no encoder {kind!r:.40}")
    own = {key: from_json(value, arrays) for key, value in stored["parameters"].items()}
    encoder = encoder_class(kind)(**own)
    if "meta" not in stored:
        return encoder
    parts = {key: arrays[f"{stored['name']}/{key}"] for key in stored["arrays"]}
    return encoder.restore(stored["meta"], parts)


def encoder_class(kind: str) -> Any:
    """The class of an encoder, imported when a file needs it."""
    return getattr(importlib.import_module("hingeline.features"), kind)


def save(
    model: Any, path: Any, dtype: str, sparse: bool | float, check: Any, metadata: Any, state: bool
) -> dict[str, Any]:
    """Write a fitted estimator to a model file; see :meth:`hingeline.ChainSSVM.save`."""
    kind = type(model).__name__
    if type(model) is not estimator_class(kind):
        held = filter(estimator_class, importlib.import_module("hingeline").__all__)
        what = f"{kind} is not one of the estimators that model files hold ({', '.join(held)})"
        how = "keep model.weights_ with numpy.save, and give them back with with_weights"
        raise TypeError(f"{what}, and its code cannot be stored safely: {how}.")
    check_is_fitted(model, "weights_")
    model._check_values()
    one_of("dtype", dtype, ("float64", "float32", "float16"))
    given = isinstance(sparse, (numbers.Real, np.bool_)) and 0 <= float(sparse) < float("inf")
    require(given, f"sparse must be True, False or a threshold ≥ 0, got {sparse!r}.")
    whole = isinstance(sparse, (bool, np.bool_))
    threshold = (0.0 if sparse else None) if whole else float(sparse)
    paired = check is None or (isinstance(check, tuple) and len(check) == 2)
    require(paired, "check must be a pair (X, y) of data to compare predictions on.", TypeError)
    with retell("metadata cannot be written as JSON: ", ".", *NOT_JSON, error=TypeError):
        json.dumps(metadata, allow_nan=False)
    arrays: dict[str, Array] = {}
    parameters, left_out = parameters_to_json(model, arrays)
    header: dict[str, Any] = {"estimator": kind, "parameters": parameters, "left_out": left_out}
    if state:
        text = f"state=True is for estimators with partial_fit, which {kind} lacks: leave it out."
        require(hasattr(model, "partial_fit"), text)
        from hingeline.streaming.memory import state_to_arrays

        header["state"], kept = state_to_arrays(model)
        arrays |= {STATE + name: array for name, array in kept.items()}
    if hasattr(model, "structure"):
        header["structure"] = type(model.structure).__name__
    else:
        header["classes"] = classes_to_json(model.classes_)
    header["n_features_in"] = int(model.n_features_in_)
    if hasattr(model, "feature_names_in_"):
        packed = pack_texts(list(model.feature_names_in_))
        arrays["feature_names/bytes"], arrays["feature_names/ends"] = packed
    if hasattr(model, "scheme"):
        header["scheme"] = getattr(model, "scheme_", None)
    if hasattr(model, "encoder_"):
        with retell("the model cannot be stored, because its ", ".", NotStorable, error=TypeError):
            encoder = model.encoder_
            header["encoder"] = encoder and encoder_to_json(encoder, arrays, "encoder")
    if hasattr(model, "_fitted_to_json"):  # what graphs know beside labels and features
        header["fitted"] = model._fitted_to_json(arrays)
    arrays |= {name: getattr(model, name) for name in SCALING if hasattr(model, name)}
    restored, header["weights"] = compact(model, dtype, threshold, arrays)
    if check is not None:
        header["weights"] |= compare(model, model._layout.join(restored), *check)
    found = {n: getattr(model, n) for n in (*CERTIFICATE, *EXTRAS) if hasattr(model, n)}
    found |= {name: float(found[name]) for name in FINDINGS if name in found}
    header["certificate"] = {name: to_json(value, {}, name) for name, value in found.items()}
    trials = getattr(model, "nu_path_", None)
    header["tried"] = trials and [[to_json(v, {}, "nu_path_") for v in trial] for trial in trials]
    header["history"] = fields = list(HistoryRow._fields)
    arrays["history"] = np.array(model.history_, dtype=np.float64).reshape(-1, len(fields))
    header["versions"] = versions()
    header["metadata"] = dict(metadata or {})
    return {"bytes": write_model(path, header, arrays), **header["weights"], "left_out": left_out}


def parameters_to_json(model: Any, arrays: dict[str, Array]) -> tuple[dict[str, Any], list[str]]:
    """Parameters, and the names of those that a file cannot hold."""
    stored, left_out = {}, []
    for name, value in model.get_params(deep=False).items():
        try:
            stored[name] = to_json(value, arrays, f"parameters/{name}")
        except NotStorable as error:
            if name not in ("callbacks", "random_state", "structure"):  # who loads it knows them
                how = f"use text, numbers, lists, dicts or arrays for {name}"
                raise TypeError(f"the model cannot be stored, because {error}: {how}.") from None
            left_out.append(name)
    return stored, left_out


def classes_to_json(classes: Array) -> dict[str, Any]:
    """Labels with their types."""
    kind = "str" if classes.dtype.kind in "UT" else classes.dtype.name
    for label in classes.tolist():
        if type(label) not in LABEL_TYPES["object"]:
            what = f"classes_ holds {label!r:.60}, of type {type(label).__name__}"
            how = "train with labels that are text, numbers or booleans"
            raise TypeError(f"the model cannot be stored, because {what}: {how}.")
    return {"kind": kind, "labels": to_json(classes.tolist(), {}, "classes")}


def compact(
    model: Any, dtype: str, threshold: float | None, arrays: dict[str, Array]
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Put weights into ``arrays``; tables of them as they will be restored, and what changes."""
    check_finite(model.weights_, "weights_")
    restored: dict[str, Array] = {}
    n_stored = n_weights = 0
    change = relative = 0.0
    for name, block in model._layout.split(model.weights_).items():
        with np.errstate(over="ignore"):
            table = block.astype(dtype)
        what = f"a weight of {np.abs(block).max(initial=0.0):.3g} is too large for dtype={dtype!r}"
        require(np.isfinite(table).all(), f"{what}: use 'float32' or 'float64'.")
        if threshold:
            table[np.abs(block) < threshold] = 0.0
        restored[name] = values = table
        if dtype != "float64" or threshold:
            known = block != 0
            moved = np.abs(table[known] - block[known])
            change = max(change, float(moved.max(initial=0.0)))
            relative = max(relative, float((moved / np.abs(block[known])).max(initial=0.0)))
        if threshold is not None:
            # Bits are compared, so that −0 is stored and an exact model is exact.
            kept = np.ascontiguousarray(table).view(f"u{table.itemsize}") != 0
            arrays[f"weights/{name}/mask"] = np.packbits(kept)
            values = table[kept]
        arrays[f"weights/{name}/values" if threshold is not None else f"weights/{name}"] = values
        n_weights += block.size
        n_stored += values.size
    report = {"dtype": dtype, "sparse": threshold is not None, "threshold": threshold}
    report |= {"n_weights": n_weights, "n_stored": n_stored, "exact": change == 0.0}
    report |= {"largest_change": change, "largest_relative_change": relative}
    return restored, report


def compare(model: Any, weights: Array, X: Any, y: Any) -> dict[str, Any]:
    """Predictions and score before and after the weights were changed."""
    other = model.with_weights(weights)
    before, after = model.predict(X), other.predict(X)
    scores = {"score_before": float(model.score(X, y)), "score_after": float(other.score(X, y))}
    if isinstance(before, list) and hasattr(model, "to_tags") and model.scheme_ is None:
        differ = np.array([a != b for a, b in zip(before, after, strict=True)])  # lists of spans
    elif isinstance(before, list):
        differ = np.concatenate(before) != np.concatenate(after)
    else:
        differ = before != after
    return {"n_checked": len(differ), "changed_predictions": float(np.mean(differ)), **scores}


def versions() -> dict[str, str]:
    """Versions of the libraries that this process runs."""
    found = {"python": platform.python_version()}
    for name in ("hingeline", "numpy", "scipy", "sklearn", "numba"):
        found[name] = str(getattr(sys.modules.get(name), "__version__", "unknown"))
    return found


def load(path: str | os.PathLike[str], expected: type | None = None, structure: Any = None) -> Any:
    """Load the fitted estimator that a model file holds.

    It predicts, and can be fitted again; if the file holds training data and multipliers,
    ``partial_fit`` continues from them. If weights were rounded to save space, there is no
    certificate: ``duality_gap_`` is ``nan`` and ``stop_reason_`` says why. A file that is not a
    model this version reads raises ModelFileError.

    Parameters
    ----------
    path : str or path
    expected : class, optional
        Estimators of other classes are refused; of a SemiSupervisedSSVM, the base is loaded.
    structure : Structure, optional
        For an :class:`hingeline.SSVM`, whose file holds weights and certificate, but never code.

    Examples
    --------
    >>> import hingeline
    >>> model = hingeline.MulticlassSSVM().fit([[0.0, 1.0], [1.0, 0.0]], ["a", "b"])
    >>> told = model.save("letters.hinge")
    >>> hingeline.load("letters.hinge").predict([[0.0, 2.0]]).tolist()
    ['a']
    """
    header, arrays = read_model(path)
    name = os.fspath(path)
    plain, kind = header.get("kind") != "checkpoint", header.get("estimator")
    what = f"{name} is a checkpoint, not a model: to continue it, train with --resume"
    require(plain, f"{what} or Checkpoint(…, resume=True).", ModelFileError)
    cls: Any = estimator_class(kind) if isinstance(kind, str) else None
    what = f"{name} holds a {kind!r:.40}, which this version of Hingeline does not know"
    require(cls, f"{what}: upgrade.", ModelFileError)
    if expected is not None and not issubclass(cls, expected):
        what = f"{name} holds a {kind}, not a {expected.__name__}"
        raise ModelFileError(f"{what}: load it with {kind}.load or hingeline.load.")
    if (of := header.get("structure")) != (None if structure is None else type(structure).__name__):
        what = f"{name} holds a {kind} without a structure of your own: leave structure out"
        if of is not None:
            of = "".join(c for c in str(of) if c.isidentifier() or c.isdigit())[:60]
            what = f"{name} holds the weights of your structure {of}, not its code: pass it, "
            what += f"hingeline.load(path, structure={of}())"
        raise ModelFileError(f"{what}.")
    try:
        model = restore(cls, header, arrays, structure)
        model.metadata_ = dict(header.get("metadata") or {})
        if expected is None and "semisupervised" in model.metadata_:
            return importlib.import_module("hingeline").SemiSupervisedSSVM.around(model) or model
        return model
    except MemoryError:
        raise ModelFileError(f"{name} needs more memory than there is.") from None
    except Exception as error:  # also of an encoder; whatever is wrong, the file is
        reason = f"it lacks {error}" if isinstance(error, KeyError) else f"{error}"
        reason = " ".join(reason.split())[:200] or type(error).__name__
        what = f"{name} does not hold a model that this version can restore ({reason})"
        raise ModelFileError(f"{what}: train again, or use the Hingeline that wrote it.") from error


def estimator_class(kind: str) -> Any:
    """The public estimator of this name that knows where its weights lie; None: files hold none."""
    home = importlib.import_module("hingeline")._HOME.get(kind, "")
    if not home.startswith("hingeline.estimators."):
        return None
    cls = getattr(importlib.import_module(home), kind)
    return cls if hasattr(cls, "_layout") else None


def restore(cls: Any, header: dict[str, Any], arrays: dict[str, Array], structure: Any) -> Any:
    """The estimator that header and arrays describe; any exception where they do not."""
    parameters = {k: from_json(v, arrays) for k, v in header["parameters"].items()}
    require(hasattr(cls, "structure") == (structure is not None), "it names no structure")
    model = cls(**parameters)
    model._check_values()
    require(model.n_jobs is None or model.n_jobs <= MAX_JOBS, f"n_jobs={model.n_jobs}")
    if structure is None:
        model.classes_ = classes_from_json(header["classes"])
    else:
        model.structure = structure
    n_features = header["n_features_in"]
    require(type(n_features) is int and n_features >= 0, "n_features_in must be a count")
    model.n_features_in_ = n_features
    if "feature_names/ends" in arrays:
        names = unpack_texts(arrays["feature_names/bytes"], arrays["feature_names/ends"])
        require(len(names) == n_features, f"{len(names)} feature names for {n_features} features")
        model.feature_names_in_ = np.array(names, dtype=object)
    if hasattr(model, "scheme"):
        require(isinstance(header["scheme"], (str, type(None))), "scheme must be text")
        model.scheme_ = header["scheme"]
    if "encoder" in header or hasattr(model, "features"):
        stored = header["encoder"]
        model.encoder_ = None if stored is None else encoder_from_json(stored, arrays)
    if hasattr(model, "_fitted_from_json"):
        model._fitted_from_json(header["fitted"], arrays)
    scaled = getattr(model, "scale", False)
    for name in SCALING if scaled or (scaled is None and {*SCALING} & {*arrays}) else ():
        values = arrays[name]
        fine = values.dtype == np.float64 and values.shape == (n_features,)
        fine = fine and np.isfinite(values).all() and (name == SCALING[0] or (values > 0.0).all())
        require(fine, f"{name} must be a number for every feature")
        setattr(model, name, values)
    restore_weights(model, header["weights"], arrays)
    restore_certificate(model, header, arrays)
    kept = {name.removeprefix(STATE): a for name, a in arrays.items() if name.startswith(STATE)}
    if hasattr(model, "partial_fit"):
        model._stored = None  # whoever wants to go on is told that there is nothing to go on from
    if hasattr(model, "partial_fit") and "state" in header:
        from hingeline.streaming.memory import StoredState

        model._stored = StoredState(model, header["state"], kept)
    else:
        require(not kept, "arrays of a state that the header does not mention")
    return model


def restore_weights(model: Any, report: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Fill ``weights_``; a mask of bits bounds what a small file can ask for."""
    dtype = {"float64": np.float64, "float32": np.float32, "float16": np.float16}[report["dtype"]]
    layout = model._layout
    parts = {True: ("/mask", "/values"), False: ("",)}[report["sparse"]]
    expected = {f"weights/{name}{part}" for name in layout for part in parts}
    fine = expected == {name for name in arrays if name.startswith("weights/")}
    require(fine, "the blocks of weights are not those that the parameters ask for")
    tables: dict[str, Array] = {}
    for name, block in layout.items():
        shape = block.rows, block.columns
        if report["sparse"]:
            mask, values = arrays[f"weights/{name}/mask"], arrays[f"weights/{name}/values"]
            count = math.prod(shape)
            fine = mask.dtype == np.uint8 and mask.shape == ((count + 7) // 8,)
            require(fine, f"the mask of block {name!r} has a wrong size")
            kept = np.unpackbits(mask, count=count).view(np.bool_)
            fine = values.shape == (np.count_nonzero(kept),)
            require(fine, f"the values of block {name!r} do not fit its mask")
            table = np.zeros(shape, dtype=dtype)
            table.reshape(-1)[kept] = values
        else:
            values = table = arrays[f"weights/{name}"]
        fine = table.shape == shape and values.dtype == dtype
        require(fine, f"block {name!r} has a wrong shape or dtype")
        check_finite(table, f"block {name!r}")
        tables[name] = table
    model.weights_ = layout.join(tables)


def classes_from_json(stored: dict[str, Any]) -> Array:
    """The labels with their types."""
    labels = [from_json(label, {}) for label in stored["labels"]]
    kind = stored["kind"]
    allowed = LABEL_TYPES[kind.rstrip("0123456789")]
    fine = labels and type(stored["labels"]) is list and {*map(type, labels)} <= {*allowed}
    require(fine, "the labels are not of the type that is stated")
    classes = np.array(labels, dtype=object)
    return classes if kind == "object" else classes.astype(kind)


def restore_certificate(model: Any, header: dict[str, Any], arrays: dict[str, Array]) -> None:
    """Certificate and curve; a certificate of other weights does not count."""
    flags = dict.fromkeys(("converged_", "oracle_exact_", "oracle_bounds_"), bool)
    kinds: dict[str, type] = {**flags, "stop_reason_": str}
    stored, report = header["certificate"], header["weights"]
    known = {*CERTIFICATE} <= {*stored} <= {*CERTIFICATE, *EXTRAS}
    require(known, "the certificate has other parts than it should")
    for name, stored_value in stored.items():
        value = from_json(stored_value, {})
        kind = kinds.get(name, int if name.startswith("n_") else float)
        require(type(value) is kind, f"{name} has the wrong type")
        setattr(model, name, value)
    if header["tried"] is not None:
        from hingeline.estimators.paths import NuTrial

        model.nu_path_ = [NuTrial(*(from_json(v, {}) for v in row)) for row in header["tried"]]
        fine = all(type(value) is float for trial in model.nu_path_ for value in trial)
        require(fine, "nu_path_ must hold numbers")
    if report["exact"] is not True:
        forget_extras(model)
        how = f"(dtype {report['dtype']}, threshold {report['threshold']})"
        what = f"weights were rounded when they were stored {how}"
        model._drop_certificate(f"{what}, so the certificate of the fit is not theirs")
    rows, fields = arrays["history"], HistoryRow._fields
    fine = rows.dtype == np.float64 and rows.ndim == 2 and header["history"] == list(fields)
    require(fine, "history must be a table of numbers")
    model.history_ = read_history(rows)
