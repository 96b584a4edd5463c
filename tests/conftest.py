"""Structures of a user's own, and how tests are imported."""

from __future__ import annotations

import gc
from typing import Any

import hypothesis
import numba
import numpy as np
import pytest

from hingeline import Structure, _jit

N_LABELS = 3

# The same examples in every run: a change is judged by what it changed. For a search with new
# ones: pytest --hypothesis-profile=search
# How long a machine takes that is busy with something else is no fault of the code.
hypothesis.settings.register_profile(
    "same",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile("search", derandomize=False)
hypothesis.settings.load_profile("same")


def pytest_configure(config: pytest.Config) -> None:
    """Test files in different folders may share a name."""
    config.option.importmode = "importlib"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Kernels around a user's compiled structure are not cached: one process runs them all."""
    items.sort(key=lambda item: "compiled_chain" not in getattr(item, "fixturenames", ()))


def pytest_collection_finish() -> None:
    """What is loaded by now stays: nobody need look through it for garbage again."""
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _kernels_can_be_read_again() -> Any:
    """NumPy expressions on arrays cannot: their kernel would be compiled by every process."""

    def dumps(code: Any) -> bytes:
        text = original(code)
        assert b"__numba_array_expr" not in text, "write a loop"
        return text

    original, _jit.dumps = _jit.dumps, dumps
    yield
    _jit.dumps = original


# A chain without boundary weights, in the layout of naive.chain_joint_feature. All outputs are
# enumerated, so that decode and decode_by_loss are plainly right.


def _output(number: int, length: int) -> Any:
    """The labels of output ``number``, in lexicographic order."""
    y = np.empty(length, dtype=np.int32)
    for t in range(length - 1, -1, -1):
        y[t] = number % N_LABELS
        number //= N_LABELS
    return y


def _joint_feature(x: Any, y: Any) -> Any:
    length, d = x.shape
    f = np.zeros((d + N_LABELS) * N_LABELS)
    for t in range(length):
        for k in range(d):
            f[k * N_LABELS + y[t]] += x[t, k]
        if t > 0:
            f[(d + y[t - 1]) * N_LABELS + y[t]] += 1.0
    return f


def _loss(y_true: Any, y: Any) -> float:
    errors = 0.0
    for t in range(len(y_true)):
        if y_true[t] != y[t]:
            errors += 1.0
    return errors


def _structure_methods(wrap: Any) -> dict[str, Any]:
    output, joint_feature, loss = wrap(_output), wrap(_joint_feature), wrap(_loss)

    def decode(x: Any, w: Any, y_true: Any, loss_scale: float) -> Any:
        length = x.shape[0]
        best = -np.inf
        best_y = output(0, length)
        for number in range(N_LABELS**length):
            y = output(number, length)
            value = np.sum(w * joint_feature(x, y))
            if loss_scale != 0.0:
                value += loss_scale * loss(y_true, y)
            if value > best:
                best = value
                best_y = y
        return best_y

    def decode_by_loss(x: Any, w: Any, y_true: Any) -> Any:
        length = x.shape[0]
        best = np.full(length + 1, -np.inf)
        ys = np.zeros((length + 1, length), dtype=np.int32)
        for number in range(N_LABELS**length):
            y = output(number, length)
            errors = int(loss(y_true, y))
            value = np.sum(w * joint_feature(x, y))
            if value > best[errors]:
                best[errors] = value
                ys[errors] = y
        return np.arange(length + 1).astype(np.float64), ys

    def decode_best(x: Any, w: Any, y_true: Any, loss_scale: float, k: int) -> Any:
        length = x.shape[0]
        values = np.empty(N_LABELS**length)
        for number in range(len(values)):
            y = output(number, length)
            values[number] = -np.sum(w * joint_feature(x, y)) - loss_scale * loss(y_true, y)
        order = np.argsort(values)[:k]
        ys = np.empty((len(order), length), dtype=np.int32)
        for j in range(len(order)):
            ys[j] = output(order[j], length)
        return ys

    return {
        "joint_feature": joint_feature,
        "loss": loss,
        "decode": wrap(decode),
        "decode_by_loss": wrap(decode_by_loss),
        "decode_best": wrap(decode_best),
    }


def _make_structure(name: str, wrap: Any) -> Any:
    methods = {key: staticmethod(value) for key, value in _structure_methods(wrap).items()}
    return type(name, (Structure,), methods)


PythonChain = _make_structure("PythonChain", lambda function: function)
CompiledChain = _make_structure("CompiledChain", numba.njit)


class PythonMulticlass(Structure):
    """Three classes in the layout of naive.multiclass_joint_feature."""

    def joint_feature(self, x: Any, y: Any) -> Any:
        table = np.zeros((len(x), N_LABELS))
        table[:, y[0]] = x
        return table.ravel()

    def loss(self, y_true: Any, y: Any) -> float:
        return float(y_true[0] != y[0])

    def decode(self, x: Any, w: Any, y_true: Any, loss_scale: float) -> Any:
        scores = x @ w.reshape(-1, N_LABELS)
        if loss_scale:
            scores = scores + loss_scale * (np.arange(N_LABELS) != y_true[0])
        return np.array([np.argmax(scores)])

    def decode_by_loss(self, x: Any, w: Any, y_true: Any) -> Any:
        scores = x @ w.reshape(-1, N_LABELS)
        scores[y_true[0]] = -np.inf
        return np.array([0.0, 1.0]), np.array([[y_true[0]], [np.argmax(scores)]])


@pytest.fixture(scope="session")
def python_multiclass() -> Any:
    """Class of an interpreted structure with three classes; outputs are ints."""
    return PythonMulticlass


@pytest.fixture(scope="session")
def python_chain() -> Any:
    """Class of an interpreted chain with three labels, no boundary weights."""
    return PythonChain


@pytest.fixture(scope="session")
def compiled_chain() -> Any:
    """The same chain, compiled; one class for all tests, because its kernels are not cached."""
    return CompiledChain
