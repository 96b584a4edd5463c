"""A fit that was cut short and taken up again ends with the very same weights."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_classification

from hingeline import SSVM, ChainSSVM, Checkpoint, EarlyStopping, MulticlassSSVM, Structure
from hingeline.modelfile.files import ModelFileError, read_model, write_model


class Killed(Exception):
    """Stands for the end of the process."""


class KillAt:
    """Raise after some pass, once its checkpoint is written."""

    def __init__(self, passes):
        self.passes = passes

    def begin(self, identity, restore):  # among the last callbacks, as a checkpoint is
        return False

    def __call__(self, state):
        if state.row.passes == self.passes:
            raise Killed


def chains(seed=0, n=40):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(rng.integers(2, 7), 5)) for _ in range(n)]
    y = [[("a", "b", "c")[k] for k in x[:, :3].argmax(1)] for x in X]
    for labels in y[::4]:
        labels[0] = "b"
    return X, y


def flat():
    return make_classification(120, 8, n_informative=6, n_classes=4, random_state=0)


CASES = {
    "sdm": (ChainSSVM(C=1.0, tol=1e-4, random_state=0), chains()),
    "fsmo": (ChainSSVM(C=1.0, tol=1e-4, random_state=0, solver="fsmo"), chains()),
    "bcfw": (ChainSSVM(C=1.0, tol=1e-4, random_state=0, solver="bcfw"), chains()),
    "bcfw by gaps": (
        ChainSSVM(
            C=1.0,
            tol=1e-4,
            random_state=0,
            solver="bcfw",
            solver_options={"steps": "away", "sampling": "gap"},
        ),
        chains(),
    ),
    "bcfw plain": (
        ChainSSVM(C=1.0, random_state=0, solver="bcfw", solver_options={"steps": "plain"}),
        chains(),
    ),
    "enumerated": (MulticlassSSVM(C=1.0, tol=1e-7, random_state=0), flat()),
    "sdcd": (ChainSSVM(C=1.0, slack="sum", tol=1e-5, random_state=0), chains()),
    "published": (
        ChainSSVM(
            C=1.0,
            slack="sum",
            tol=1e-2,
            random_state=0,
            solver_options={"schedule": "published", "kappa1": 3, "kappa2": 2},
        ),
        chains(),
    ),
    "enumerated sum": (MulticlassSSVM(C=1.0, slack="sum", tol=1e-7, random_state=0), flat()),
    "squared": (ChainSSVM(C=1.0, slack="squared", tol=1e-4, random_state=0), chains()),
}


@pytest.mark.parametrize("name", CASES)
def test_resumed_fits_are_bit_identical(name, tmp_path):
    model, (X, y) = CASES[name]
    whole = model.fit(X, y)
    weights, history = whole.weights_.copy(), whole.history_
    assert len(history) >= 6
    path = tmp_path / "fit.ckpt"
    for passes in (1, len(history) // 2, len(history) - 1):
        model.set_params(callbacks=[Checkpoint(path, every=0, resume=True), KillAt(passes)])
        with pytest.raises(Killed):
            model.fit(X, y)
    last = Checkpoint(path, every=0, resume=True)
    model.set_params(callbacks=last).fit(X, y)
    assert last.resumed_ == len(history) - 1
    np.testing.assert_array_equal(model.weights_, weights)
    assert len(model.history_) == len(history)
    for a, b in zip(model.history_, history, strict=True):
        np.testing.assert_array_equal(a[1:], b[1:])  # all but the time
    times = [row.time for row in model.history_]
    assert times == sorted(times)
    model.set_params(callbacks=None)


def test_early_stopping_goes_on(tmp_path):
    X, y = chains(n=60)
    path = tmp_path / "fit.ckpt"

    def fit(*others):
        model = ChainSSVM(C=1.0, tol=1e-9, random_state=0)
        stopping = EarlyStopping(model, X[40:], y[40:], patience=4)
        return model.set_params(callbacks=[*others, stopping]).fit(X[:40], y[:40]), stopping

    whole, scores = fit()
    with pytest.raises(Killed):
        fit(Checkpoint(path, every=0), KillAt(3))
    again, more = fit(Checkpoint(path, every=0, resume=True))
    assert more.scores_ == scores.scores_
    assert again.stop_reason_ == whole.stop_reason_
    np.testing.assert_array_equal(again.weights_, whole.weights_)


def test_without_a_file_it_starts_afresh(tmp_path):
    X, y = chains()
    checkpoint = Checkpoint(tmp_path / "none.ckpt", resume=True)
    ChainSSVM(random_state=0, callbacks=checkpoint).fit(X, y)
    assert checkpoint.resumed_ == 0
    assert not checkpoint.path.exists()  # the fit took less than ten seconds


@pytest.mark.parametrize(
    ("change", "word"),
    [({"C": 2.0}, "C"), ({"tol": 1e-3}, "tol"), ({"random_state": 1}, "random_state")],
)
def test_another_fit_is_refused(tmp_path, change, word):
    X, y = chains()
    path = tmp_path / "fit.ckpt"
    params = {"C": 1.0, "tol": 1e-4, "random_state": 0}
    ChainSSVM(**params, callbacks=Checkpoint(path, every=0)).fit(X, y)
    other = ChainSSVM(**{**params, **change}, callbacks=Checkpoint(path, resume=True))
    with pytest.raises(ModelFileError, match=f"another fit .*{word}"):
        other.fit(X, y)


def test_other_data_and_other_files_are_refused(tmp_path):
    X, y = chains()
    path = tmp_path / "fit.ckpt"
    model = ChainSSVM(random_state=0, callbacks=Checkpoint(path, every=0)).fit(X, y)
    resumed = ChainSSVM(random_state=0, callbacks=Checkpoint(path, every=0, resume=True))
    with pytest.raises(ModelFileError, match="other data"):
        resumed.fit(*chains(seed=1))
    model.set_params(callbacks=None).save(path)
    with pytest.raises(ModelFileError, match="is a model, not a checkpoint"):
        resumed.fit(X, y)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ModelFileError):
        resumed.fit(X, y)
    with pytest.raises(ValueError, match="every must be at least 0"):
        Checkpoint(path, every=-1.0)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_arrays_that_kernels_cannot_read_are_refused(tmp_path):
    X, y = chains()
    path = tmp_path / "fit.ckpt"
    model = ChainSSVM(C=1.0, tol=1e-9, max_iter=4, random_state=0)
    model.set_params(callbacks=Checkpoint(path, every=0)).fit(X, y)
    header, arrays = read_model(path)
    model.set_params(callbacks=Checkpoint(path, resume=True))
    for name, value in (("planes.y", 3), ("planes.y", 2**31 - 1), ("solver.stages", 0)):
        wrong = arrays[name].copy() if len(arrays[name]) else np.zeros(1)
        wrong[-1] = value
        write_model(path, header, {**arrays, name: wrong})
        with pytest.raises(ModelFileError, match="Remove it to start afresh"):
            model.fit(X, y)


class Best(Structure):
    """The best of some items, or -1: none is better than 0."""

    def joint_feature(self, x, y):
        return x[y[0]] if y[0] >= 0 else np.zeros(x.shape[1])

    def loss(self, y_true, y):
        return float(y_true[0] != y[0])

    def decode(self, x, w, y_true, loss_scale):
        outputs = np.append(np.arange(len(x)), -1)
        scores = np.append(x @ w, 0.0)
        if loss_scale:
            scores += loss_scale * (outputs != y_true[0])
        return outputs[[np.argmax(scores)]]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_outputs_of_minus_one_are_resumed(tmp_path):
    rng = np.random.default_rng(0)
    X = list(rng.normal(size=(20, 4, 3)))
    y = [int(x[:, 0].argmax()) if x[:, 0].max() > 1.0 else -1 for x in X]
    path = tmp_path / "fit.ckpt"
    params = {"C": 1.0, "tol": 1e-9, "random_state": 0}
    SSVM(Best(), **params, max_iter=3, callbacks=Checkpoint(path, every=0)).fit(X, y)
    resumed = SSVM(Best(), **params, max_iter=6, callbacks=Checkpoint(path, resume=True)).fit(X, y)
    assert resumed.callbacks.resumed_ == 2
    assert (resumed.weights_ == SSVM(Best(), **params, max_iter=6).fit(X, y).weights_).all()
