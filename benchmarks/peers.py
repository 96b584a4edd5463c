"""The systems we compare with, each behind one function that also says how long it took."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pycrfsuite
from liblinear import liblinearutil
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from datasets import Attributes
from harness import NO_TIME, Timing, timed

# --- CRFsuite --------------------------------------------------------------------------------


@dataclass(frozen=True)
class CrfsuiteModel:
    """A trained CRFsuite model; seconds for handing over the data and for training; iterations."""

    model: bytes
    append: Timing
    train: Timing
    iterations: int


def crfsuite_fit(
    attributes: Sequence[Attributes],
    labels: Sequence[Sequence[str]],
    algorithm: str = "lbfgs",
    params: Mapping[str, Any] | None = None,
) -> CrfsuiteModel:
    """Train python-crfsuite.

    Parameters
    ----------
    attributes : sequence of list of list of str
        Attributes of each token of each sequence.
    labels : sequence of sequence of str
        One label per token.
    algorithm : str
        ``"lbfgs"``, ``"pa"`` and so on, as python-crfsuite names them.
    params : mapping, optional
        Settings that differ from the algorithm's defaults.

    Returns
    -------
    CrfsuiteModel
        The model file's bytes, both times and the iterations made.
    """
    trainer = pycrfsuite.Trainer(verbose=False)
    trainer.select(algorithm)
    trainer.set_params(dict(params or {}))

    def append_all() -> None:
        for sequence, tags in zip(attributes, labels, strict=True):
            trainer.append(sequence, tags)

    _, append = timed(append_all)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model")
        _, train = timed(trainer.train, str(path))
        rounds = len(trainer.logparser.iterations)
        return CrfsuiteModel(path.read_bytes(), append, train, rounds)


def crfsuite_predict(
    model: bytes, attributes: Sequence[Attributes], copies: int = 1
) -> tuple[list[list[str]], Timing]:
    """Tag the sequences `copies` times; return the labels of one round and the seconds of all."""
    tagger = pycrfsuite.Tagger()
    tagger.open_inmemory(model)

    def tag_all() -> list[list[str]]:
        for _ in range(copies):
            predicted = [tagger.tag(sequence) for sequence in attributes]
        return predicted

    return timed(tag_all)


# --- flat multi-class ------------------------------------------------------------------------


@dataclass(frozen=True)
class LinearModel:
    """A linear multi-class model: one row of `coef` per class, largest score wins.

    ``convert`` is the time of turning the matrix into the peer's own form, where it has one.
    """

    coef: np.ndarray
    classes: np.ndarray
    train: Timing
    convert: Timing = NO_TIME

    def predict(self, x: sparse.csr_matrix) -> np.ndarray:
        """Return the class of every row."""
        return self.classes[np.argmax(x @ self.coef.T, axis=1)]

    def accuracy(self, x: sparse.csr_matrix, y: np.ndarray) -> float:
        """Return the percentage of rows with the right class."""
        return 100.0 * float(np.mean(self.predict(x) == y))


def liblinear_fit(x: sparse.csr_matrix, y: np.ndarray, c: float) -> LinearModel:
    """Train LIBLINEAR's Crammer-Singer solver (``-s 4``) at its default tolerance.

    The bias must already be a column of `x`. Turning `x` into LIBLINEAR's form is timed apart.
    """
    problem, convert = timed(liblinearutil.problem, y, x)
    model, train = timed(liblinearutil.train, problem, f"-s 4 -c {c!r} -q")
    shape = (model.nr_feature, model.nr_class)
    weights = np.ctypeslib.as_array(model.w, shape=(shape[0] * shape[1],)).reshape(shape)
    coef = np.zeros((shape[1], x.shape[1]))
    coef[:, : shape[0]] = weights.T
    return LinearModel(coef, np.array(model.get_labels()), train, convert)


def crammer_singer_primal(
    model: LinearModel, x: sparse.csr_matrix, y: np.ndarray, c: float
) -> float:
    """Return ``0.5 |w|^2 + c sum_i max_y (1[y != y_i] + w_y.x_i - w_{y_i}.x_i)``."""
    scores = x @ model.coef.T
    rows = np.arange(len(y))
    column = {label: k for k, label in enumerate(model.classes.tolist())}
    truth = np.array([column[label] for label in y.tolist()])
    own = scores[rows, truth]
    augmented = scores + 1.0
    augmented[rows, truth] -= 1.0
    slack = augmented.max(axis=1) - own
    return 0.5 * float(np.sum(model.coef**2)) + c * float(slack.sum())


def _sklearn_model(estimator: Any, x: sparse.csr_matrix, y: np.ndarray) -> LinearModel:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted, train = timed(estimator.fit, x, y)
    return LinearModel(fitted.coef_, fitted.classes_, train)


def logistic_fit(x: sparse.csr_matrix, y: np.ndarray, c: float) -> LinearModel:
    """Train scikit-learn's multinomial logistic regression; more than two classes."""
    return _sklearn_model(LogisticRegression(C=c, fit_intercept=False, max_iter=1000), x, y)


def one_vs_rest_fit(x: sparse.csr_matrix, y: np.ndarray, c: float) -> LinearModel:
    """Train scikit-learn's one-vs-rest SVM with the plain hinge; more than two classes."""
    estimator = LinearSVC(C=c, loss="hinge", dual=True, fit_intercept=False, random_state=0)
    return _sklearn_model(estimator, x, y)
