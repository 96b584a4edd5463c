"""Estimators in model files: exact round trips, compact ones with an honest report, refusals."""

from __future__ import annotations

import copy
import math
import pickle
import re

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

import hingeline
from hingeline import SSVM, ChainSSVM, MulticlassSSVM
from hingeline.estimators.base import BaseModel
from hingeline.modelfile import estimators as storage
from hingeline.modelfile.estimators import CERTIFICATE, load
from hingeline.modelfile.files import ModelFileError, read_header, read_model, write_model


def chain_data(seed=0, n=12, d=6, labels=("a", "b", "c")):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 6, n)
    X = [sp.csr_matrix(rng.normal(size=(t, d)) * (rng.random((t, d)) < 0.5)) for t in lengths]
    y = [[labels[k] for k in rng.integers(0, len(labels), t)] for t in lengths]
    return X, y


def class_data(seed=0, n=60, d=5, labels=(0, 1, 2)):
    rng = np.random.default_rng(seed)
    numbers = np.arange(n) % len(labels)
    X = rng.normal(size=(n, d)) + 2 * rng.normal(size=(len(labels), d))[numbers]
    return X, np.array(labels)[numbers]


def make(kind, **params):
    if kind == "chain":
        X, y = chain_data()
        return ChainSSVM(C=1.0, tol=1e-3, random_state=0, **params).fit(X, y), X, y
    X, y = class_data()
    return MulticlassSSVM(C=1.0, tol=1e-3, random_state=0, **params).fit(X, y), X, y


def flat(predictions):
    return np.concatenate(predictions) if isinstance(predictions, list) else predictions


def same_number(a, b):
    return a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.hinge"


SETTINGS = [
    ("chain", {}),
    ("chain", {"boundary": False}),
    ("chain", {"fit_intercept": False}),
    ("chain", {"fit_intercept": False, "boundary": False}),
    ("multiclass", {}),
    ("multiclass", {"fit_intercept": False}),
]


@pytest.mark.parametrize(("kind", "params"), SETTINGS)
@pytest.mark.parametrize("sparse", [False, True])
def test_exact_round_trip(path, kind, params, sparse):
    model, X, y = make(kind, **params)
    report = model.save(path, sparse=sparse)
    assert report["exact"] is True
    assert report["largest_relative_change"] == 0
    assert report["bytes"] == path.stat().st_size
    back = type(model).load(path)
    assert type(back) is type(model)
    check_is_fitted(back)
    assert back.weights_.tobytes() == model.weights_.tobytes()
    assert back.weights_.dtype == np.float64
    assert back.get_params() == model.get_params()
    assert back.classes_.tolist() == model.classes_.tolist()
    assert back.n_features_in_ == model.n_features_in_
    assert flat(back.predict(X)).tolist() == flat(model.predict(X)).tolist()
    assert flat(back.decision_function(X)).tobytes() == flat(model.decision_function(X)).tobytes()
    assert back.score(X, y) == model.score(X, y)
    for name in CERTIFICATE:
        np.testing.assert_equal(getattr(back, name), getattr(model, name), name)
        assert type(getattr(back, name)) in (float, int, bool, str)
    assert len(back.history_) == len(model.history_)
    for mine, theirs in zip(back.history_, model.history_, strict=True):
        assert all(map(same_number, mine, theirs))
        assert type(mine.passes) is int


@pytest.mark.parametrize("kind", ["chain", "multiclass"])
def test_what_a_loaded_model_can_do(path, kind):
    model, X, y = make(kind)
    model.save(path)
    back = load(path)
    for other in (pickle.loads(pickle.dumps(back)), copy.deepcopy(back)):
        assert flat(other.predict(X)).tolist() == flat(model.predict(X)).tolist()
    fresh = clone(back)
    assert fresh.get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        fresh.predict(X)
    assert np.isnan(back.with_weights(0 * back.weights_).duality_gap_)
    back.fit(X, y)
    assert back.weights_.tobytes() == model.weights_.tobytes()
    back.partial_fit(X, y)  # fitted here: the refusal below is of the file's model only
    again = path.with_name("again.hinge")
    load(path).save(again)
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("kind", ["chain", "multiclass"])
def test_partial_fit_says_why_it_cannot(path, kind):
    model, X, y = make(kind)
    model.save(path)
    back = load(path)
    with pytest.raises(ValueError, match=r"loaded from a file.*call fit with all data"):
        back.partial_fit(X, y)
    assert back.weights_.tobytes() == model.weights_.tobytes()
    assert flat(back.predict(X)).tolist() == flat(model.predict(X)).tolist()


@pytest.mark.parametrize("kind", ["chain", "multiclass"])
def test_warm_start_of_a_loaded_model_begins_afresh(path, kind):
    model, X, y = make(kind, warm_start=True)
    model.save(path)
    back = load(path)
    with pytest.warns(UserWarning, match="starting afresh"):
        back.fit(X, y)
    assert back.converged_


def test_files_are_reproducible(path):
    model, _, _ = make("chain")
    model.save(path, metadata={"command": "train"})
    first = path.read_bytes()
    model.save(path, metadata={"command": "train"})
    assert path.read_bytes() == first


def test_module_function_and_base_class_load_anything(path):
    for kind in ("chain", "multiclass"):
        model, _, _ = make(kind)
        model.save(path)
        assert type(load(path)) is type(model)
        assert type(BaseModel.load(path)) is type(model)


def test_wrong_class_names_the_right_one(path):
    make("chain")[0].save(path)
    with pytest.raises(ModelFileError, match=r"holds a ChainSSVM, not a MulticlassSSVM: .*load"):
        MulticlassSSVM.load(path)
    with pytest.raises(ModelFileError, match="holds a ChainSSVM, not a SSVM"):
        SSVM.load(path)


def test_not_fitted(path):
    with pytest.raises(NotFittedError):
        ChainSSVM().save(path)
    assert not path.exists()


# Parameters, labels, names ----------------------------------------------------------------------


def test_parameters_keep_their_types(path):
    X, y = class_data()
    cost = 1.0 - np.eye(3)
    model = MulticlassSSVM(
        C=np.float64(0.5),
        loss=(2.0, cost),
        class_weight={0: 1.0, 1: 2.0, 2: 0.5},
        max_time=60.0,
        n_jobs=np.int64(1),
        solver_options={"passes": 3},
        random_state=np.int64(4),
    )
    model.fit(X, y).save(path)
    back = load(path).get_params()
    assert back["C"] == 0.5
    assert type(back["loss"]) is tuple
    assert back["loss"][0] == 2.0
    assert np.array_equal(back["loss"][1], cost)
    assert back["class_weight"] == {0: 1.0, 1: 2.0, 2: 0.5}
    assert back["solver_options"] == {"passes": 3}
    assert back["random_state"] == 4
    assert load(path).fit(X, y).weights_.tobytes() == model.weights_.tobytes()


def test_hard_margin(path):
    X, y = class_data(n=12)
    model = MulticlassSSVM(C=float("inf"), random_state=0).fit(X, y)
    model.save(path)
    assert math.isinf(load(path).C)


def test_callbacks_and_generators_are_left_out_and_named(path):
    X, y = class_data()
    model = MulticlassSSVM(callbacks=[lambda state: None], random_state=np.random.RandomState(0))
    report = model.fit(X, y).save(path)
    assert report["left_out"] == ["callbacks", "random_state"]
    assert read_header(path)[0]["left_out"] == ["callbacks", "random_state"]
    back = load(path)
    assert back.callbacks is None
    assert back.random_state is None


def test_other_parameters_are_refused_by_name(path):
    model, _, _ = make("chain")
    model.class_weight = {"a": object()}
    with pytest.raises(TypeError, match=r"parameters/class_weight/0 holds <object.*class_weight\."):
        model.save(path)
    assert not path.exists()


@pytest.mark.parametrize(
    "labels",
    [
        ["B-NP", "I-NP", "Ö \u2028"],
        [3, -1, 2**40],
        [0.5, -1.25, float("inf")],
        [True, False],
        ["x", 1, 2.5],
        [1, 2.5],
        [10**30, 5],
        ["", "a"],
    ],
)
def test_labels_of_chains_keep_value_and_type(path, labels):
    X, y = chain_data(labels=labels)
    model = ChainSSVM(tol=0.1).fit(X, y)
    model.save(path)
    back = load(path)
    assert back.classes_.dtype == model.classes_.dtype
    assert back.classes_.tolist() == model.classes_.tolist()
    assert list(map(type, back.classes_.tolist())) == list(map(type, model.classes_.tolist()))


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "float64", "bool", "U3", object])
def test_labels_of_classes_keep_their_dtype(path, dtype):
    labels = [0, 1] if dtype == "bool" else [0, 1, 2]
    X, y = class_data(labels=labels)
    y = y.astype("U3").astype(object) if dtype is object else y.astype(dtype)
    model = MulticlassSSVM(tol=0.1).fit(X, y)
    model.save(path)
    back = load(path)
    assert back.classes_.dtype.kind == model.classes_.dtype.kind
    assert np.array_equal(back.predict(X), model.predict(X))


def test_other_labels_are_refused(path):
    X, y = chain_data(labels=[("a", 1), ("b", 2)])
    model = ChainSSVM(tol=0.1).fit(X, y)
    with pytest.raises(TypeError, match=r"classes_ holds \('a', 1\), of type tuple: train with"):
        model.save(path)


def test_feature_names(path):
    pd = pytest.importorskip("pandas")
    X, y = class_data()
    frame = pd.DataFrame(X, columns=[f"Feature ä{k}" for k in range(X.shape[1])])
    model = MulticlassSSVM(tol=0.1).fit(frame, y)
    model.save(path)
    back = load(path)
    assert back.feature_names_in_.tolist() == model.feature_names_in_.tolist()
    assert np.array_equal(back.predict(frame), model.predict(frame))
    with pytest.raises(ValueError, match="feature names"):
        back.predict(frame[frame.columns[::-1]])


def test_feature_names_without_pandas(path):
    model, X, _ = make("multiclass")
    model.feature_names_in_ = np.array([f"f{k}" for k in range(X.shape[1])], dtype=object)
    model.save(path)
    assert load(path).feature_names_in_.tolist() == model.feature_names_in_.tolist()


def test_scheme(path):
    model, _, _ = make("chain")
    for scheme in ("IOB2", None):
        model.scheme_ = scheme
        model.save(path)
        assert load(path).scheme_ == scheme
    del model.scheme_  # as an imported model has it
    model.save(path)
    assert load(path).scheme_ is None


def test_metadata_and_versions(path):
    model, _, _ = make("chain")
    metadata = {"command": "hingeline train x", "evaluation": {"f1": 0.9, "table": [[1, 2]]}}
    model.save(path, metadata=metadata, sparse=False)
    header, tensors = read_header(path)
    assert header["metadata"] == metadata
    assert header["versions"]["numpy"] == np.__version__
    assert header["estimator"] == "ChainSSVM"
    assert tensors["weights/emission"].shape == (6, 3)
    for bad in ({"x": float("nan")}, {"x": object()}):
        with pytest.raises(TypeError, match="metadata cannot be written"):
            model.save(path, metadata=bad)


# Refusals ---------------------------------------------------------------------------------------


def test_own_structures_keep_weights_and_certificate_but_no_code(path, python_multiclass):
    X, y = class_data(n=12, d=3)
    structure = python_multiclass()
    model = SSVM(structure, C=2.0, max_iter=5, tol=0.5).fit(list(X), y.tolist())
    report = model.save(path)
    assert report["left_out"] == ["structure"]
    for other in (load(path, structure=structure), SSVM.load(path, structure)):
        assert other.predict(list(X)) == model.predict(list(X))
        assert other.weights_.tobytes() == model.weights_.tobytes()
        assert (other.C, other.duality_gap_) == (2.0, model.duality_gap_)
        assert other.structure is structure
    named = type(structure).__name__
    with pytest.raises(
        ModelFileError, match=rf"structure {named}, not its code: pass it, .*{named}\(\)"
    ):
        load(path)
    with pytest.raises(ModelFileError, match=f"your structure {named}, not its code"):
        load(path, structure=object())
    X, y = chain_data()
    ChainSSVM(tol=0.1).fit(X, y).save(path)
    with pytest.raises(ModelFileError, match="leave structure out"):
        load(path, structure=structure)


def test_subclasses_are_refused(path):
    class Mine(ChainSSVM):
        pass

    X, y = chain_data()
    model = Mine(tol=0.1).fit(X, y)
    with pytest.raises(TypeError, match="Mine is not one of the estimators"):
        model.save(path)
    same_name = type("ChainSSVM", (ChainSSVM,), {})
    with pytest.raises(TypeError, match="not one of the estimators"):
        same_name(tol=0.1).fit(X, y).save(path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dtype": "int8"}, "dtype='int8' is not known"),
        ({"sparse": -1.0}, "sparse must be"),
        ({"sparse": float("nan")}, "sparse must be"),
        ({"sparse": "yes"}, "sparse must be"),
        ({"check": [1, 2, 3]}, r"check must be a pair \(X, y\)"),
    ],
)
def test_bad_arguments(path, arguments, words):
    with pytest.raises((TypeError, ValueError), match=words):
        make("chain")[0].save(path, **arguments)
    assert not path.exists()


def test_weights_that_do_not_fit_are_refused(path):
    model, _, _ = make("chain")
    wide = model.with_weights(model.weights_ * 1e6)
    with pytest.raises(ValueError, match="too large for dtype='float16'"):
        wide.save(path, dtype="float16")
    wide.save(path, dtype="float32")
    with pytest.raises(ValueError, match="NaN"):
        model.with_weights(model.weights_ * np.nan).save(path)
    model.boundary = False
    with pytest.raises(ValueError, match="fit again after changing"):
        model.save(path)


# Compact files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["chain", "multiclass"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("sparse", [False, True, 0.05])
def test_compact_files_hold_rounded_weights_and_no_certificate(path, kind, dtype, sparse):
    model, X, y = make(kind)
    expected = model.weights_.astype(dtype).astype(np.float64)
    if sparse == 0.05:
        expected[np.abs(model.weights_) < 0.05] = 0
    report = model.save(path, dtype=dtype, sparse=sparse, check=(X, y))
    back = load(path)
    assert back.weights_.dtype == np.float64
    assert np.array_equal(back.weights_, expected)
    assert np.isnan(back.duality_gap_)
    assert np.isnan(back.primal_objective_)
    assert not back.converged_
    assert "rounded" in back.stop_reason_
    assert back.dual_objective_ == model.dual_objective_  # still a bound on the optimum
    # The report, recomputed.
    known = model.weights_ != 0
    assert report["largest_change"] == np.abs(expected - model.weights_).max() > 0
    change = np.abs(expected - model.weights_)[known] / np.abs(model.weights_[known])
    assert report["largest_relative_change"] == change.max() > 0
    assert report["exact"] is False
    before, after = flat(model.predict(X)), flat(back.predict(X))
    assert report["changed_predictions"] == np.mean(before != after)
    assert report["score_before"] == model.score(X, y)
    assert report["score_after"] == back.score(X, y)
    assert report["n_checked"] == len(before)
    stored = read_header(path)[0]["weights"]
    assert stored == {k: v for k, v in report.items() if k not in ("bytes", "left_out")}


def test_report_sees_a_change_of_predictions(path):
    model, X, y = make("multiclass")
    threshold = float(np.abs(model.weights_).max()) * 2
    report = model.save(path, sparse=threshold, check=(X, y))
    assert report["n_stored"] == 0
    assert report["largest_relative_change"] == 1
    assert report["changed_predictions"] > 0.5
    assert report["score_after"] < report["score_before"]
    assert set(load(path).predict(X)) == {model.classes_[0]}


def test_rounding_that_changes_nothing_keeps_the_certificate(path):
    model, _, _ = make("chain")
    short = model.with_weights(np.round(model.weights_ * 64) / 64)
    short.primal_objective_, short.duality_gap_, short.converged_ = 2.0, 0.5, True
    report = short.save(path, dtype="float16", sparse=True)
    assert report["exact"] is True
    back = load(path)
    assert (back.primal_objective_, back.duality_gap_, back.converged_) == (2.0, 0.5, True)
    assert np.array_equal(back.weights_, short.weights_)


def test_compact_files_are_smaller(path):
    rng = np.random.default_rng(0)
    d = 4000
    model, _, _ = make("multiclass")
    model.n_features_in_, model.history_ = d, model.history_[:9]
    table = np.zeros((d + 1, 4))
    table[:, :3] = np.where(rng.random((d + 1, 3)) < 0.2, rng.normal(size=(d + 1, 3)), 0)
    model.weights_ = table.ravel()
    n = 3 * (d + 1)
    n_stored = np.count_nonzero(table)
    sizes = {
        (dtype, sparse): model.save(path, dtype=dtype, sparse=sparse)["bytes"]
        for dtype in ("float64", "float32", "float16")
        for sparse in (False, True)
    }
    overhead = 4000  # header and curve
    for (dtype, sparse), size in sizes.items():
        width = np.dtype(dtype).itemsize
        ideal = n_stored * width + n / 8 if sparse else n * width  # the padding is not stored
        assert ideal <= size <= ideal + overhead


def test_negative_zero_survives(path):
    model, _, _ = make("chain")
    weights = model.weights_.copy()
    weights[[0, 1]] = -0.0, 0.0
    model.with_weights(weights).save(path, sparse=True)
    assert load(path).weights_.tobytes() == weights.tobytes()


# Encoders ---------------------------------------------------------------------------------------


class FakeEncoder:
    """What an encoder promises: its state as plain metadata and arrays."""

    def __init__(self, lower=False, table=None):
        self.lower = lower
        self.table = table

    def get_params(self, deep=True):
        return {"lower": self.lower, "table": self.table}

    def to_state(self):
        if not hasattr(self, "names_"):
            raise NotFittedError("not fitted")
        return {"n": len(self.names_)}, {"names": self.names_}

    def restore(self, meta, arrays):
        if meta["n"] != len(arrays["names"]):
            raise ValueError("a number of names that is wrong")
        self.names_ = arrays["names"]
        return self


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr("hingeline.features.FakeEncoder", FakeEncoder, raising=False)
    monkeypatch.setattr(storage, "ENCODERS", (*storage.ENCODERS, "FakeEncoder"))
    return FakeEncoder


class WithFeatures(ChainSSVM):
    """ChainSSVM as it will be, with a parameter for its encoder."""

    def __init__(self, C=0.1, *, features=None, tol=1e-2):
        super().__init__(C, tol=tol)
        self.features = features


@pytest.fixture
def with_features(monkeypatch):
    monkeypatch.setattr("hingeline.estimators.chain.WithFeatures", WithFeatures, raising=False)
    monkeypatch.setitem(hingeline._HOME, "WithFeatures", "hingeline.estimators.chain")
    return WithFeatures


def test_estimators_are_limited_to_our_own_that_know_their_layout():
    kinds = {name for name in hingeline.__all__ if storage.estimator_class(name)}
    assert kinds >= {
        "ChainCRF",
        "ChainSSVM",
        "GraphSSVM",
        "MulticlassSSVM",
        "MultilabelSSVM",
        "SSVM",
    }
    for kind in kinds:
        assert storage.estimator_class(kind).__module__.startswith("hingeline.estimators.")
    for kind in ("C_path", "Path", "Checkpoint", "SemiSupervisedSSVM", "re", "_HOME", ""):
        assert storage.estimator_class(kind) is None


def test_encoders_are_limited_to_our_own_features():
    assert storage.ENCODERS
    for kind in storage.ENCODERS:
        assert storage.encoder_class(kind).__module__.startswith("hingeline.features.")


def test_encoder_round_trip(path, fake):
    model, _, _ = make("chain")
    model.encoder_ = fake(lower=True)
    model.encoder_.names_ = np.arange(6)
    model.save(path)
    assert "encoder/names" in read_header(path)[1]
    back = load(path)
    assert type(back.encoder_) is fake
    assert back.encoder_.lower is True
    assert back.encoder_.names_.tolist() == list(range(6))
    model.encoder_ = None
    model.save(path)
    assert load(path).encoder_ is None


@pytest.mark.parametrize("fitted", [True, False])
def test_encoder_as_a_parameter(path, fake, with_features, fitted):
    X, y = chain_data()
    features = fake(lower=np.float32, table=np.arange(3.0))
    if fitted:
        features.lower, features.names_ = True, np.arange(6)
    model = with_features(tol=0.1).fit(X, y)
    model.features = features  # it could not encode anything
    model.save(path)
    back = load(path)
    assert type(back.features) is fake
    assert back.features.lower is (True if fitted else np.float32)
    assert hasattr(back.features, "names_") == fitted
    if not fitted:
        assert back.features.table.tolist() == [0, 1, 2]


def test_foreign_encoders_are_refused(path, fake):
    model, _, _ = make("chain")
    for bad in (type("Other", (fake,), {})(), type("FakeEncoder", (), {"to_state": None})(), 7):
        model.encoder_ = bad
        with pytest.raises(TypeError, match="not one of Hingeline's own encoders"):
            model.save(path)


def test_files_cannot_name_other_code(path, fake):
    model, _, _ = make("chain")
    model.encoder_ = fake()
    model.encoder_.names_ = np.arange(6)
    model.save(path)
    header, arrays = read_model(path)
    for name in ("os:system", "subprocess.Popen", "hingeline.estimators.chain:ChainSSVM", ["x"]):
        header["encoder"]["class"] = name
        write_model(path, header, arrays)
        with pytest.raises(ModelFileError):
            load(path)
    header["encoder"] = None
    header["estimator"] = "SSVM"
    write_model(path, header, arrays)
    with pytest.raises(ModelFileError, match="it names no structure"):
        load(path)
    for name in ("os:system", None, ["ChainSSVM"], "hingeline.estimators.chain:ChainSSVM"):
        header["estimator"] = name
        write_model(path, header, arrays)
        with pytest.raises(ModelFileError, match=re.escape(f"holds a {name!r}"[:30])):
            load(path)


def test_damaged_encoders_are_damaged_files(path, fake):
    model, _, _ = make("chain")
    model.encoder_ = fake()
    model.encoder_.names_ = np.arange(6)
    model.save(path)
    header, arrays = read_model(path)
    header["encoder"]["meta"]["n"] = 7
    write_model(path, header, arrays)
    with pytest.raises(ModelFileError, match="a number of names that is wrong"):
        load(path)
