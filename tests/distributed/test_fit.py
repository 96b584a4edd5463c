"""Training in blocks: the optimum of one machine, its certificate, and the same bits anywhere."""

from __future__ import annotations

import multiprocessing
import os
import signal

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

from hingeline import ChainSSVM, Checkpoint, MulticlassSSVM, MultilabelSSVM
from hingeline.data import load_notes
from hingeline.distributed import fit_blocks
from hingeline.distributed.executors import WorkersLost

pytestmark = pytest.mark.subprocess


def digits(n=400):
    X, y = load_digits(return_X_y=True)
    return X[:n] / 16.0, y[:n]


def cut(X, y, blocks):
    return [(X[k::blocks], y[k::blocks]) for k in range(blocks)]


def notes():
    data = load_notes()
    X, y = data.X_train, data.y_train
    return [(X[k : k + 40], y[k : k + 40]) for k in range(0, 160, 40)]


class Here:
    """Blocks in this very process, where the workers are not the point."""

    def __init__(self, n):
        self.n = n

    def open(self, n_blocks, make):
        self.hosts = [make() for _ in range(self.n)]

    def call(self, method, common, own):
        found = {}
        for at, host in enumerate(self.hosts):
            found |= host.call(method, common, {k: v for k, v in own.items() if k % self.n == at})
        return found

    def sent(self):
        return 0

    received = sent

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.fixture
def here(monkeypatch):
    monkeypatch.setattr("hingeline.distributed.fit._open", lambda *_: Here(2))


TAGGER = ChainSSVM(C=0.3, tol=0.02, random_state=0)


@pytest.fixture(scope="module")
def tagger():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hingeline.distributed.fit._open", lambda *_: Here(1))
        return fit_blocks(TAGGER, notes())


@pytest.mark.parametrize("slack", ["max", "squared"])
@pytest.mark.parametrize("combine", ["master", "line", "average", "add"])
def test_the_gap_holds_the_optimum_of_one_machine(slack, combine, here):
    X, y = digits()
    whole = MulticlassSSVM(C=0.1, slack=slack, tol=1e-5, random_state=0).fit(X, y)
    model = fit_blocks(
        MulticlassSSVM(C=0.1, slack=slack, tol=0.01, random_state=0),
        cut(X, y, 3),
        options={"combine": combine},
    )
    assert model.converged_
    assert model.duality_gap_ <= 0.01 * model.primal_objective_
    assert model.dual_objective_ <= whole.primal_objective_
    assert model.primal_objective_ >= whole.dual_objective_
    # The primal is that of the weights, by a computation of its own.
    scores = X @ model.coef_.T + model.intercept_
    hinge = (scores - scores[np.arange(len(y)), y][:, None] + (np.arange(10) != y[:, None])).max(1)
    cost = hinge if slack == "max" else 0.5 * hinge**2
    primal = 0.5 * model.weights_ @ model.weights_ + 0.1 * cost.sum()
    assert primal == pytest.approx(model.primal_objective_, rel=1e-9)


def test_a_tagger_has_the_features_and_the_optimum_of_one_machine(tagger):
    X = [x for part in notes() for x in part[0]]
    y = [labels for part in notes() for labels in part[1]]
    whole = ChainSSVM(C=0.3, tol=1e-3, random_state=0).fit(X, y)
    assert list(tagger.feature_names_) == list(whole.feature_names_)
    assert tagger.dual_objective_ <= whole.primal_objective_
    assert whole.dual_objective_ <= tagger.primal_objective_ <= 1.03 * whole.primal_objective_
    assert tagger.history_[-1].rounds > 0
    assert tagger.worker_memory_ > 0


@pytest.mark.parametrize("workers", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_bits_do_not_depend_on_the_workers(tagger, workers):
    other = fit_blocks(TAGGER, notes(), workers=workers)
    assert np.array_equal(other.weights_, tagger.weights_)


def test_a_lost_worker_changes_no_bit(tagger):
    passes = []

    def kill(state):
        passes.append(state.row.passes)
        if len(passes) in (2, 6):
            os.kill(multiprocessing.active_children()[-1].pid, signal.SIGKILL)

    with pytest.warns(UserWarning, match="a worker was lost"):
        other = fit_blocks(
            ChainSSVM(**TAGGER.get_params() | {"callbacks": kill}), notes(), workers=2
        )
    assert len(passes) > 6
    assert np.array_equal(other.weights_, tagger.weights_)
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_dask_gives_the_same_bits(tagger):
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    options = {"threads_per_worker": 1, "dashboard_address": None}
    with (
        distributed.LocalCluster(n_workers=2, **options) as cluster,
        distributed.Client(cluster) as client,
    ):
        other = fit_blocks(TAGGER, notes(), client=client)
    assert np.array_equal(other.weights_, tagger.weights_)


def test_without_workers_the_best_certified_weights_remain(monkeypatch):
    class Dying(Here):
        left = 30

        def call(self, *given):
            self.left -= 1
            if not self.left:
                raise WorkersLost("The Dask scheduler is gone.")
            return super().call(*given)

    monkeypatch.setattr("hingeline.distributed.fit._open", lambda *_: Dying(1))
    with pytest.warns(ConvergenceWarning, match="The Dask scheduler is gone"):
        model = fit_blocks(TAGGER, notes())
    assert not model.converged_
    assert 0 < model.duality_gap_ < np.inf
    assert model.primal_objective_ >= model.dual_objective_
    Dying.left = 5  # before anything is certified
    with pytest.raises(WorkersLost, match="gone"):
        fit_blocks(TAGGER, notes())


def test_a_checkpoint_is_taken_up_bit_for_bit(tagger, tmp_path, here):
    path = tmp_path / "state"
    parameters = TAGGER.get_params()
    first = parameters | {"max_iter": 3, "callbacks": Checkpoint(path, 0.0)}
    with pytest.warns(UserWarning, match="max_iter"):
        fit_blocks(ChainSSVM(**first), notes())
    again = parameters | {"callbacks": Checkpoint(path, 0.0, resume=True)}
    other = fit_blocks(ChainSSVM(**again), notes())
    assert np.array_equal(other.weights_, tagger.weights_)


def test_a_checkpoint_of_other_data_is_refused(tmp_path, here):
    path, X, y = tmp_path / "state", *digits(200)
    first = MulticlassSSVM(
        C=0.1, max_iter=3, tol=1e-6, random_state=0, callbacks=Checkpoint(path, 0.0)
    )
    with pytest.warns(UserWarning, match="max_iter"):
        fit_blocks(first, cut(X, y, 2))
    first.set_params(callbacks=Checkpoint(path, 0.0, resume=True))
    with pytest.raises(ValueError, match="data"):
        fit_blocks(first, cut(X[::-1], y[::-1], 2))


def test_predictions_keep_to_the_scheme(here):
    model = fit_blocks(ChainSSVM(**TAGGER.get_params() | {"scheme": "IOB2"}), notes())
    assert model.scheme_ == "IOB2"
    allowed = model.predict_nbest([["Anna", "Berg", "came"]], 50)[0]
    assert not any(labels[0].startswith("I-") for labels, _ in allowed)


def test_balanced_classes_are_counted_over_all_blocks(here):
    X, y = digits(200)
    given = {"C": 0.1, "class_weight": "balanced", "random_state": 0}
    whole = MulticlassSSVM(tol=1e-5, **given).fit(X, y)
    parts = [(X[y < 4], y[y < 4]), (X[y >= 4], y[y >= 4])]
    model = fit_blocks(MulticlassSSVM(**given), parts)
    assert model.class_weight == "balanced"
    assert model.dual_objective_ <= whole.primal_objective_
    assert model.primal_objective_ >= whole.dual_objective_


def test_empty_blocks_and_blocks_of_one_class_are_legal(here):
    X, y = digits(200)
    parts = [(X[:0], y[:0]), (X[y == 3], y[y == 3]), (X[y != 3], y[y != 3])]
    model = fit_blocks(MulticlassSSVM(C=0.1, random_state=0), parts)
    assert model.converged_
    assert model.score(X, y) > 0.95


def test_label_sets_train_in_blocks(here):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    Y = (X @ rng.normal(size=(5, 3)) > 0).astype(int)
    whole = MultilabelSSVM(C=1.0, tol=1e-4, random_state=0).fit(X, Y)
    model = fit_blocks(MultilabelSSVM(C=1.0, random_state=0), cut(X, Y, 2))
    assert model.dual_objective_ <= whole.primal_objective_
    assert model.primal_objective_ >= whole.dual_objective_
    assert (model.predict(X) == whole.predict(X)).mean() > 0.95


def test_files_are_read_where_they_are_trained_on(tmp_path, here):
    for k, (X, y) in enumerate(notes()[:2]):
        lines = [
            "".join(f"{w} {t}\n" for w, t in zip(x, own, strict=True))
            for x, own in zip(X, y, strict=True)
        ]
        (tmp_path / f"part-{k}.conll").write_text("\n".join(lines))
    model = fit_blocks(TAGGER, str(tmp_path / "part-*.conll"))
    lists = [([[(w,) for w in x] for x in X], y) for X, y in notes()[:2]]
    same = fit_blocks(TAGGER, lists)
    assert list(model.feature_names_) == list(same.feature_names_)
    assert np.array_equal(model.weights_, same.weights_)
    assert model.score(*notes()[0]) > 0.9


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"solver": "bcfw"}, "does not work in blocks"),
        ({"slack": "sum"}, "cannot be solved in blocks"),
        ({"C": float("inf")}, "finite"),
        ({"C": "auto"}, "finite"),
        ({"warm_start": True}, "has no effect in blocks"),
        ({"solver_options": {"cg_steps": 3}}, "'cg_steps', which blocks do not use"),
    ],
)
def test_what_blocks_do_not_solve_is_refused_by_name(change, text):
    with pytest.raises(ValueError, match=text):
        fit_blocks(ChainSSVM(**change), notes())


def test_bad_sources_are_refused(tmp_path, here):
    with pytest.raises(ValueError, match="no file is called"):
        fit_blocks(TAGGER, str(tmp_path / "*.conll"))
    with pytest.raises(ValueError, match="blocks must be"):
        fit_blocks(TAGGER, notes(), blocks=0)
    with pytest.raises(TypeError, match="not for str"):
        fit_blocks("tagger", notes())
    with pytest.raises(ValueError, match="empty"):
        fit_blocks(TAGGER, [])
    with pytest.raises(ValueError, match="'keep', which has no effect"):
        fit_blocks(TAGGER, notes(), options={"combine": "line", "keep": 3})
    with pytest.raises(ValueError, match="at most 1"):
        fit_blocks(TAGGER, notes(), options={"share": 2.0})
    with pytest.raises(ValueError, match="same columns"):
        fit_blocks(MulticlassSSVM(), [(np.eye(2), [0, 1]), (np.eye(3), [0, 1, 2])])
    with pytest.raises(ValueError, match="same columns"):
        fit_blocks(ChainSSVM(), [([np.eye(2)], [["a", "b"]]), ([np.eye(3)], [["a", "b", "a"]])])
