"""Training in blocks: the optimum of one machine, its certificate, and the same bits anywhere."""

from __future__ import annotations

import copy
import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from hingeline import (
    SSVM,
    ChainSSVM,
    Checkpoint,
    Graph,
    GraphSSVM,
    MulticlassSSVM,
    MultilabelSSVM,
    Structure,
)
from hingeline.data import load_notes
from hingeline.distributed import fit_blocks
from hingeline.distributed.executors import Calls, WorkersLost
from hingeline.features import PerToken, TokenTemplates
from hingeline.solvers import newton

# isort: split
from marks import slow
from reference import EnumeratedProblem, random_multiclass, solve

pytestmark = pytest.mark.subprocess


def digits(n=400):
    X, y = load_digits(return_X_y=True)
    return X[:n] / 16.0, y[:n]


def cut(X, y, blocks):
    return [(X[k::blocks], y[k::blocks]) for k in range(blocks)]


def notes():
    data = load_notes()
    X, y = data.X_train, data.y_train
    return [(X[k : k + 15], y[k : k + 15]) for k in range(0, 60, 15)]


class Here:
    """Blocks in this very process, where the workers are not the point."""

    def __init__(self, n):
        self.n = n

    def open(self, n_blocks, make):
        self.hosts = [make() for _ in range(self.n)]

    def call(self, method, common, own):
        found = {}
        for at, host in enumerate(self.hosts):
            if mine := {k: v for k, v in own.items() if k % self.n == at}:
                found |= host.call(method, common, mine)
        return copy.deepcopy(found)  # as if it were sent

    sent = received = 0

    def n_alive(self):
        return self.n

    def rebalance(self):
        return []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.fixture
def here(monkeypatch):
    monkeypatch.setattr("hingeline.distributed.fit._open", lambda *_, **__: Here(2))


TAGGER = ChainSSVM(C=0.3, tol=0.02, random_state=0)


@pytest.fixture(scope="module")
def tagger():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hingeline.distributed.fit._open", lambda *_, **__: Here(1))
        return fit_blocks(TAGGER, notes())


@pytest.mark.parametrize("slack", ["max", "squared"])
def test_the_gap_holds_the_optimum_of_one_machine(slack, here):
    X, y = digits()
    whole = MulticlassSSVM(C=0.1, slack=slack, tol=1e-5, random_state=0).fit(X, y)
    model = fit_blocks(MulticlassSSVM(C=0.1, slack=slack, tol=0.01, random_state=0), cut(X, y, 3))
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


@pytest.mark.parametrize("slack", ["max", "squared"])
def test_the_gap_holds_the_optimum_of_an_independent_qp(slack, here):
    X, y = random_multiclass(np.random.default_rng(1), 20, 4, 3, False)
    y[:3] = np.arange(3)
    best = solve(EnumeratedProblem.from_multiclass(X, y, 3), 1.0, slack, "margin", None).objective
    given = {"C": 1.0, "slack": slack, "tol": 1e-3, "fit_intercept": False, "random_state": 0}
    model = fit_blocks(MulticlassSSVM(**given), cut(X, y, 3))
    assert model.dual_objective_ <= best * (1 + 1e-9)
    assert best * (1 - 1e-9) <= model.primal_objective_ <= 1.0011 * best


def test_rounds_follow_from_latency_and_bandwidth(here):
    def fit(tol=0.3, **options):  # not so far that Newton steps begin
        model = fit_blocks(clone(TAGGER).set_params(tol=tol), notes(), options=options)
        assert model.duality_gap_ <= tol * model.primal_objective_
        return model.history_[-1].rounds, model.n_iter_

    rounds, passes = fit(0.1, latency=1e-9, bandwidth=1e15)
    assert 17 * passes < rounds <= 21 * passes  # 16 pieces, and up to 5 rounds over known planes
    rounds, passes = fit(latency=1e-9, bandwidth=1.0)
    assert rounds == 17 * passes
    rounds, passes = fit(0.5, latency=10.0)
    assert rounds == 5 * passes  # no fewer than 4 pieces, and one round after them
    rounds, passes = fit(pieces=2, bandwidth=1.0)
    assert rounds == 3 * passes


def test_a_tagger_has_the_features_and_the_optimum_of_one_machine(tagger):
    X = [x for part in notes() for x in part[0]]
    y = [labels for part in notes() for labels in part[1]]
    whole = ChainSSVM(C=0.3, tol=1e-3, random_state=0).fit(X, y)
    assert list(tagger.feature_names_) == list(whole.feature_names_)
    assert tagger.dual_objective_ <= whole.primal_objective_
    assert whole.dual_objective_ <= tagger.primal_objective_ <= 1.03 * whole.primal_objective_
    assert tagger.history_[-1].rounds > 0
    assert tagger.worker_memory_ > 0


@pytest.mark.slow  # the next one says so of two workers
def test_bits_do_not_depend_on_the_workers(tagger):
    other = fit_blocks(TAGGER, notes(), workers=3)
    assert np.array_equal(other.weights_, tagger.weights_)


def test_a_lost_worker_changes_no_bit(tagger):
    passes = []

    def kill(state):
        passes.append(state.row.passes)
        if len(passes) == 2:
            os.kill(multiprocessing.active_children()[-1].pid, signal.SIGKILL)

    with pytest.warns(UserWarning, match="a worker was lost"):
        other = fit_blocks(
            ChainSSVM(**TAGGER.get_params() | {"callbacks": kill}), notes(), workers=2
        )
    assert len(passes) > 3
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
        left = 60

        def call(self, *given):
            self.left -= 1
            if not self.left:
                raise WorkersLost("The Dask scheduler is gone.")
            return super().call(*given)

    monkeypatch.setattr("hingeline.distributed.fit._open", lambda *_, **__: Dying(1))
    with pytest.warns(ConvergenceWarning, match="The Dask scheduler is gone"):
        model = fit_blocks(TAGGER, notes())
    assert not model.converged_
    assert 0 < model.duality_gap_ < np.inf
    assert model.primal_objective_ >= model.dual_objective_
    Dying.left = 5  # before anything is certified
    with pytest.raises(WorkersLost, match="gone"):
        fit_blocks(TAGGER, notes())


class Losing(Here):
    """Loses the blocks of a worker at some calls, at others gives them to another one."""

    def __init__(self, lose=(), moves=()):
        super().__init__(2)
        self.lose, self.moves, self.calls, self.turn, self.told = lose, moves, 0, 0, []

    def call(self, method, common, own):
        from hingeline.distributed.executors import LOST

        self.calls += 1
        self.told.append(method)
        if self.calls in self.lose:
            self.hosts[1] = self.make()
            mine = {k: v for k, v in own.items() if k % 2 == 0}
            return dict.fromkeys(own, LOST) | super().call(method, common, mine)
        return super().call(method, common, own)

    def open(self, n_blocks, make):
        self.make = make
        super().open(n_blocks, make)

    def rebalance(self):
        self.turn += 1
        if self.turn not in self.moves:
            return []
        self.call("drop", (None,), {1: (), 3: ()})
        return [1, 3]


@pytest.mark.parametrize(
    ("lose", "moves"),
    [((2, 3, 5), ()), ((9, 10), ()), ((), (1, 2)), *(slow((k,), ()) for k in (1, 3, 4))],
)
def test_blocks_may_be_lost_or_moved_at_any_time(tagger, monkeypatch, lose, moves):
    """While they are read, posed or begun, twice, and in a round."""
    executor = Losing(lose, moves)
    monkeypatch.setattr("hingeline.distributed.fit._open", lambda *_, **__: executor)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = fit_blocks(TAGGER, notes())
    assert np.array_equal(other.weights_, tagger.weights_)
    assert executor.told.count("read") > 1
    assert executor.turn >= 2
    assert {len(host.blocks) for host in executor.hosts} == {2}


def test_lost_blocks_may_go_to_a_worker_that_has_others(tagger, monkeypatch):
    """Which has the weights of now, where they begin with those of their last state."""

    class Gathering(Losing):
        def call(self, method, common, own):
            if self.calls + 1 in self.lose:
                self.n, self.hosts = 1, [self.hosts[0], self.make()]
            return super().call(method, common, own)

    executor = Gathering((40,))
    monkeypatch.setattr("hingeline.distributed.fit._open", lambda *_, **__: executor)
    with pytest.warns(UserWarning, match="2 blocks are rebuilt"):
        other = fit_blocks(TAGGER, notes())
    assert len(executor.hosts[0].blocks) == 4
    assert np.array_equal(other.weights_, tagger.weights_)


def crowded(blocks):
    """Chains of few features at a large C, for which passes alone would crawl."""
    rng = np.random.default_rng(0)
    moves, centres = rng.dirichlet(np.full(3, 0.5), 3), rng.normal(size=(3, 4))
    y = [np.array([rng.choice(3, p=moves[k % 3]) for _ in range(6)]) for k in range(40)]
    X = [centres[own] + rng.normal(size=(6, 4)) for own in y]
    return [(X[k::blocks], y[k::blocks]) for k in range(blocks)]


CROWDED = ChainSSVM(C=100.0, tol=0.01, random_state=0)


@pytest.fixture(scope="module")
def large():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hingeline.distributed.fit._open", lambda *_, **__: Here(1))
        return fit_blocks(CROWDED, crowded(4))


def test_a_large_C_takes_few_rounds(large):
    """Where 300 passes, 1500 rounds, had left a gap of a third."""
    X, y = crowded(1)[0]
    whole = clone(CROWDED).set_params(tol=1e-4).fit(X, y)
    assert large.converged_
    assert large.history_[-1].rounds <= 250
    assert large.dual_objective_ <= whole.primal_objective_
    assert whole.dual_objective_ <= large.primal_objective_ <= 1.011 * whole.primal_objective_


@pytest.mark.parametrize("slack", ["max", "squared"])
def test_a_large_C_takes_few_rounds_for_classes(slack, here):
    X, y = digits(120)
    given = {"C": 100.0, "slack": slack, "random_state": 0}
    whole = MulticlassSSVM(**given, tol=1e-4).fit(X, y)
    model = fit_blocks(MulticlassSSVM(**given), cut(X, y, 4))
    assert model.duality_gap_ <= 0.01 * model.primal_objective_
    assert model.history_[-1].rounds <= 250
    assert model.dual_objective_ <= whole.primal_objective_
    assert whole.dual_objective_ <= model.primal_objective_ <= 1.011 * whole.primal_objective_


def test_newton_steps_over_many_planes_and_weights_take_conjugate_gradients(
    large, monkeypatch, here
):
    taken, inner = [], newton.conjugate_gradients

    def solve(*given):
        taken.append(inner(*given))
        return taken[-1]

    monkeypatch.setattr(newton, "conjugate_gradients", solve)
    monkeypatch.setattr("hingeline.distributed.block.LARGE", 5)
    monkeypatch.setattr("hingeline.distributed.driver.LARGE", 5)
    model = fit_blocks(clone(CROWDED).set_params(tol=0.1), crowded(4))
    assert taken
    assert model.duality_gap_ <= 0.1 * model.primal_objective_
    assert model.dual_objective_ <= large.primal_objective_
    assert large.dual_objective_ <= model.primal_objective_


def test_blocks_may_be_lost_between_newton_steps(large, monkeypatch):
    executor = Losing()
    monkeypatch.setattr("hingeline.distributed.fit._open", lambda *_, **__: executor)
    assert np.array_equal(fit_blocks(CROWDED, crowded(4)).weights_, large.weights_)
    steps = [at for at, method in enumerate(executor.told, 1) if method == "tell_point"]
    assert len(steps) > 10
    executor = Losing((steps[3], steps[-1]))
    with pytest.warns(UserWarning, match="a worker was lost"):
        other = fit_blocks(CROWDED, crowded(4))
    assert executor.told.count("read") > 2
    assert np.array_equal(other.weights_, large.weights_)


def test_blocks_are_told_few_trials_again(large, monkeypatch):
    """Weights of every trial of a proximal point would take the driver's memory, and all the time
    that a block which is lost had taken."""

    class Often(Losing):
        def call(self, method, common, own):
            asked = method in ("tell_point", "end_point")
            self.turns = getattr(self, "turns", 0) + asked
            if asked and self.turns % 6 == 0 and len(own) > 2:
                self.lose = (self.calls + 1,)
            return super().call(method, common, own)

    executor, logged, inner = Often(), [], Calls.ask

    def ask(calls, *given, **options):
        found = inner(calls, *given, **options)
        logged.append([method for method, *_ in calls.log].count("tell_point"))
        return found

    monkeypatch.setattr(Calls, "ask", ask)
    monkeypatch.setattr("hingeline.distributed.fit._open", lambda *_, **__: executor)
    with pytest.warns(UserWarning, match="a worker was lost"):
        other = fit_blocks(CROWDED, crowded(4))
    assert np.array_equal(other.weights_, large.weights_)
    assert executor.told.count("read") > 5
    assert executor.turns > 40
    assert max(logged) <= 3 * 4  # in four passes between two states


def test_workers_may_be_lost_when_all_is_done(tagger, monkeypatch):
    class Ending(Here):
        def call(self, method, *given):
            if method == "weigh":
                raise WorkersLost("The Dask scheduler is gone.")
            return super().call(method, *given)

    monkeypatch.setattr("hingeline.distributed.fit._open", lambda *_, **__: Ending(1))
    model = fit_blocks(TAGGER, notes())
    assert model.converged_
    assert np.array_equal(model.weights_, tagger.weights_)


def test_a_checkpoint_between_newton_steps_is_taken_up_bit_for_bit(large, tmp_path, here):
    path = tmp_path / "state"
    first = clone(CROWDED).set_params(max_iter=large.n_iter_ - 1, callbacks=Checkpoint(path, 0.0))
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        fit_blocks(first, crowded(4))
    first.set_params(max_iter=1000, callbacks=Checkpoint(path, 0.0, resume=True))
    other = fit_blocks(first, crowded(4))
    assert other.n_iter_ == large.n_iter_
    assert np.array_equal(other.weights_, large.weights_)


def interrupt(after):
    def callback(state):
        if state.row.passes == after:
            raise KeyboardInterrupt

    return callback


def test_ctrl_c_keeps_the_best_certified_weights(here):
    with pytest.warns(ConvergenceWarning, match="interrupted.*with a Checkpoint"):
        model = fit_blocks(ChainSSVM(**TAGGER.get_params() | {"callbacks": interrupt(5)}), notes())
    assert model.stop_reason_ == "interrupted"
    assert 0 < model.duality_gap_ < np.inf
    with pytest.raises(KeyboardInterrupt):  # before anything was certified
        fit_blocks(ChainSSVM(**TAGGER.get_params() | {"callbacks": interrupt(1)}), notes())


@pytest.mark.slow
def test_ctrl_c_leaves_no_process_behind():
    def callback(state):
        if state.row.passes == 5:
            threading.Timer(0.01, os.kill, [os.getpid(), signal.SIGINT]).start()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.warns(ConvergenceWarning, match="interrupted"):
            model = fit_blocks(
                ChainSSVM(**TAGGER.get_params() | {"callbacks": callback, "tol": 1e-9}),
                notes(),
                workers=2,
            )
    finally:
        signal.signal(signal.SIGINT, before)
    assert 0 < model.duality_gap_ < np.inf
    assert not multiprocessing.active_children()


def test_a_full_disk_does_not_end_the_training(tagger, tmp_path, here, monkeypatch):
    written = []

    def write(path, *_):
        written.append(path)
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("hingeline.callbacks.write_model", write)
    given = TAGGER.get_params() | {"callbacks": Checkpoint(tmp_path / "state", 0.0)}
    with pytest.warns(UserWarning, match=r"state cannot be written \(No space left on dev") as seen:
        model = fit_blocks(ChainSSVM(**given), notes())
    assert len(written) > 3
    assert len(seen) == 1
    # Saving states changes when blocks are asked, not what they come to.
    assert np.array_equal(model.weights_, tagger.weights_)


SCHEDULER = """
import time
from distributed import LocalCluster

if __name__ == "__main__":
    cluster = LocalCluster(1, processes=False, protocol="tcp", dashboard_address=None)
    print(cluster.scheduler_address, flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
def test_a_scheduler_that_goes_away_leaves_certified_weights():
    pytest.importorskip("distributed.client", reason="Dask is not installed")
    import dask

    command = [sys.executable, "-c", SCHEDULER]
    soon = dask.config.set({"distributed.comm.timeouts.connect": "3s"})  # 30 s by default
    with soon, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as scheduler:

        def end(state):
            if state.row.passes == 5:
                scheduler.kill()

        given = TAGGER.get_params() | {"callbacks": end, "tol": 1e-9}
        with pytest.warns(ConvergenceWarning, match="The Dask scheduler is gone"):
            model = fit_blocks(
                ChainSSVM(**given), notes(), client=scheduler.stdout.readline().strip()
            )
    assert 0 < model.duality_gap_ < np.inf


def test_a_checkpoint_is_taken_up_bit_for_bit(tagger, tmp_path, here):
    path = tmp_path / "state"
    parameters = TAGGER.get_params()
    first = parameters | {"max_iter": 3, "callbacks": Checkpoint(path, 0.0)}
    with pytest.warns(UserWarning, match="max_iter"):
        fit_blocks(ChainSSVM(**first), notes())
    again = parameters | {"callbacks": Checkpoint(path, 0.0, resume=True)}
    other = fit_blocks(ChainSSVM(**again), notes())
    assert np.array_equal(other.weights_, tagger.weights_)


def test_a_checkpoint_of_classes_is_taken_up_bit_for_bit(tmp_path, here):
    """Whose blocks keep gaps of examples, which those of parts do not."""
    X, y = digits(120)
    model = MulticlassSSVM(C=1.0, tol=0.01, random_state=0)
    whole = fit_blocks(model, cut(X, y, 3))
    model.set_params(max_iter=whole.n_iter_ - 2, callbacks=Checkpoint(tmp_path / "state", 0.0))
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        fit_blocks(model, cut(X, y, 3))
    again = Checkpoint(tmp_path / "state", 0.0, resume=True)
    other = fit_blocks(model.set_params(max_iter=1000, callbacks=again), cut(X, y, 3))
    assert np.array_equal(other.weights_, whole.weights_)


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


def rings(n=24):
    """Rings of four nodes; which of two labels a node has shows in its neighbours, too."""
    rng = np.random.default_rng(0)
    edges = np.array([[0, 1], [1, 2], [2, 3], [3, 0]])
    y = [np.repeat(rng.integers(0, 2, 2), 2) for _ in range(n)]
    return [Graph(rng.normal(size=(4, 3)) + own[:, None], edges) for own in y], y


@pytest.mark.parametrize("void", [None, slow(2)])
def test_graphs_train_in_blocks(void, here):
    X, y = rings()
    weights = np.linspace(0.5, 1.5, len(X))
    if void is not None:
        y = [np.where([True, True, k % 3 > 0, True], own, void) for k, own in enumerate(y)]
        y[5][:] = void
    given = {"C": 0.3, "solver": "sdm", "void_label": void, "random_state": 0}
    whole = GraphSSVM(**given, tol=1e-5).fit(X, y, weights)
    parts = [(X[k : k + 6], y[k : k + 6], weights[k : k + 6]) for k in range(0, 24, 6)]
    model = fit_blocks(GraphSSVM(**given, tol=0.01), parts)
    assert model.duality_gap_ <= 0.01 * model.primal_objective_
    assert model.dual_objective_ <= whole.primal_objective_ * (1 + 1e-12)
    assert whole.dual_objective_ <= model.primal_objective_ <= 1.011 * whole.primal_objective_
    assert model.weights_ == pytest.approx(whole.weights_, abs=0.2)
    assert np.mean(np.concatenate(model.predict(X)) == np.concatenate(whole.predict(X))) > 0.95
    other = [(X[:6], y[:6]), ([Graph(np.zeros((2, 5)), [[0, 1]])], [[0, 1]])]
    with pytest.raises(ValueError, match="block 0 has 3 features and block 1 has 5"):
        fit_blocks(GraphSSVM(), other)
    with pytest.raises(ValueError, match="a block holds nothing but the void label 7: leave"):
        fit_blocks(GraphSSVM(void_label=7), [(X[:6], y[:6]), (X[6:8], np.full((2, 4), 7))])


class Sign(Structure):
    """The sign of every coordinate, with what the first and the second have in common."""

    def joint_feature(self, x, y):
        return np.append(x * (2 * y - 1), float(y[0] == y[1]))

    def loss(self, y_true, y):
        return float(np.sum(y_true != y))

    def decode(self, x, w, y_true, loss_scale):
        outputs = [np.array(y, dtype=np.int32) for y in np.ndindex(*(2,) * len(x))]
        value = [w @ self.joint_feature(x, y) for y in outputs]
        if loss_scale > 0:
            value = np.add(value, [loss_scale * self.loss(y_true, y) for y in outputs])
        return outputs[int(np.argmax(value))]


def test_a_structure_of_ones_own_trains_in_blocks(here):
    rng = np.random.default_rng(1)
    X = [rng.normal(size=3) for _ in range(30)]
    y = [(x + 0.3 * rng.normal(size=3) > 0).astype(int) for x in X]
    whole = SSVM(Sign(), C=0.5, tol=1e-6, random_state=0).fit(X, y)
    model = fit_blocks(SSVM(Sign(), C=0.5, tol=0.01, random_state=0), cut(X, y, 3))
    assert model.duality_gap_ <= 0.01 * model.primal_objective_
    assert model.dual_objective_ <= whole.primal_objective_ * (1 + 1e-12)
    assert whole.dual_objective_ <= model.primal_objective_ <= 1.011 * whole.primal_objective_
    again = fit_blocks(SSVM(Sign(), C=0.5, tol=0.01, random_state=0), cut(X, y, 3))
    assert np.array_equal(again.weights_, model.weights_)


@pytest.mark.slow
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


def test_blocks_in_which_all_is_right_are_legal(here):
    """They have no part of a sequence that could be decoded or joined."""
    rng = np.random.default_rng(33)
    X = [rng.normal(size=(n, 2)) for n in (3, 3, 1, 1)]
    y = [np.array(own) for own in ([0, 1, 1], [1, 0, 0], [0], [1])]
    whole = ChainSSVM(C=1.0, tol=1e-5, scale=False).fit(X, y)
    parts = [([a], [b]) for a, b in zip(X, y, strict=True)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = fit_blocks(ChainSSVM(C=1.0, scale=False), parts)
    assert model.dual_objective_ <= whole.primal_objective_
    assert whole.dual_objective_ <= model.primal_objective_ <= 1.011 * whole.primal_objective_


def test_one_label_is_one_label_in_blocks(here):
    X = np.random.default_rng(0).normal(size=(40, 2))
    y = np.where(X[:, 0] > 0.0, "on", "off")
    whole = MultilabelSSVM(tol=1e-6).fit(X, y)
    model = fit_blocks(MultilabelSSVM(edges="full", tol=1e-6), cut(X, y, 2))
    assert model.n_labels_ == 1
    assert model.predict(X).tolist() == whole.predict(X).tolist()
    assert model.primal_objective_ == pytest.approx(whole.primal_objective_, rel=1e-5)


def test_label_sets_train_in_blocks(here):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    Y = (X @ rng.normal(size=(5, 3)) > 0).astype(int)
    whole = MultilabelSSVM(C=1.0, tol=1e-4, random_state=0).fit(X, Y)
    model = fit_blocks(MultilabelSSVM(C=1.0, random_state=0), cut(X, Y, 2))
    assert model.dual_objective_ <= whole.primal_objective_
    assert model.primal_objective_ >= whole.dual_objective_
    assert (model.predict(X) == whole.predict(X)).mean() > 0.95


@pytest.mark.parametrize("kind", ["classes", "sets", "chains", "graphs"])
def test_C_is_that_of_one_machine_by_default(kind, here):
    """Also where examples, classes and nodes have weights."""
    rng = np.random.default_rng(0)
    if kind == "chains":
        X, y = ([one for part in of for one in part] for of in zip(*notes(), strict=True))
        model = ChainSSVM()
    elif kind == "graphs":
        X, y = rings()
        model = GraphSSVM(class_weight={0: 1.0, 1: 3.0}, solver="sdm")
    else:
        X, y = digits(60)
        model = MulticlassSSVM(class_weight="balanced")
        if kind == "sets":
            y, model = (rng.random((60, 3)) < 0.5).astype(int), MultilabelSSVM()
    model.set_params(tol=0.5, random_state=0)
    weights = rng.integers(0, 4, len(X)) / 2.0
    whole = clone(model).fit(X, y, sample_weight=weights)
    other = fit_blocks(model, [(X[k::3], y[k::3], weights[k::3]) for k in range(3)])
    assert pytest.approx(other.C_, rel=1e-12) == whole.C_
    assert abs(whole.C_ - clone(model).fit(X, y).C_) > 1e-3 * whole.C_
    with pytest.raises(ValueError, match="sample_weight is zero everywhere"):
        fit_blocks(model, [(X, y, 0.0 * weights)])


@pytest.mark.parametrize(("size", "C"), [(1e160, 1.0), (1.0, 1e151), (1e200, "scale")])
def test_what_overflows_is_refused(size, C, here):
    X, y = digits(60)
    model = MulticlassSSVM(C=C, scale=False)
    with pytest.raises(ValueError, match="overflow") as refused:
        model.fit(size * X, y)
    with pytest.raises(ValueError, match=str(refused.value)[-30:]):
        fit_blocks(model, [(size * X, y)])


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


def write_parts(folder, *texts):
    for k, text in enumerate(texts):
        (folder / f"part-{k}.conll").write_text(text)
    return str(folder / "part-*.conll")


ONE = "Ann B\nran O\n\nBob B\nsat O\n"
TWO = "Eve B\nran O\n\n"


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_names_for_fsspec_are_read_on_the_worker(tmp_path, here, kind):
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    pattern = write_parts(tmp_path, ONE, TWO)
    expected = fit_blocks(TAGGER, pattern)
    if kind == "memory":
        for k, text in enumerate((ONE, TWO)):
            fsspec.filesystem("memory").pipe(f"/corpus/part-{k}.conll", text.encode())
        pattern = "/corpus/part-*.conll"
    model = fit_blocks(TAGGER, f"{kind}://{pattern}")
    assert np.array_equal(model.weights_, expected.weights_)
    with pytest.raises(ValueError, match="no file is called"):
        fit_blocks(TAGGER, f"{kind}:///nowhere-*")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        fit_blocks(TAGGER, f"{kind}:///nowhere.conll")
    if kind == "memory":
        fsspec.filesystem("memory").pipe("/corpus/part-1.conll", b"Ann B\nran\n")
        with pytest.raises(ValueError, match=r"memory://.*part-1.conll:2: "):
            fit_blocks(TAGGER, f"{kind}://{pattern}", format="conll")


@pytest.mark.parametrize("kind", ["idx", "arff"])
def test_labels_in_a_file_beside_are_found_through_fsspec(here, kind):
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 255, (20, 2, 2), dtype=np.uint8), rng.integers(0, 2, 20, dtype=np.uint8)
    system = fsspec.filesystem("memory")
    if kind == "idx":
        shape = np.array(X.shape, dtype=">i4").tobytes()
        system.pipe("/beside/a-images-idx3-ubyte", b"\0\0\x08\x03" + shape + X.tobytes())
        with pytest.raises(ValueError, match="labels-idx1-ubyte"):
            fit_blocks(MulticlassSSVM(), "memory:///beside/a-images-*")
        shape = np.array(y.shape, dtype=">i4").tobytes()
        system.pipe("/beside/a-labels-idx1-ubyte", b"\0\0\x08\x01" + shape + y.tobytes())
        model = fit_blocks(MulticlassSSVM(C=1e-4, tol=0.1), "memory:///beside/a-images-*")
        assert (model.n_features_in_, len(model.classes_)) == (4, 2)
        return
    head = "@relation r\n@attribute x numeric\n@attribute a {0,1}\n@attribute b {0,1}\n@data\n"
    rows = "".join(f"{x},{int(x > 99)},{int(x < 99)}\n" for x in X[:, 0, 0])
    names = '<labels><label name="a"></label><label name="b"></label></labels>'
    system.pipe({"/beside/r.arff": (head + rows).encode(), "/beside/r.xml": names.encode()})
    model = fit_blocks(MultilabelSSVM(C=0.1, tol=0.1), "memory:///beside/r.arff")
    assert model.n_labels_ == 2


def test_without_fsspec_there_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(ValueError, match=r"s3://a/\*.conll cannot be read .*: install it, or name"):
        fit_blocks(TAGGER, "s3://a/*.conll")


def test_bags_and_delayed_parts(tagger, here):
    dask = pytest.importorskip("dask", reason="Dask is not installed")
    bags = pytest.importorskip("dask.bag", reason="Dask is not installed")
    parts = [dask.delayed(lambda part: part)(part) for part in notes()]
    assert np.array_equal(fit_blocks(TAGGER, parts).weights_, tagger.weights_)
    pairs = [pair for X, y in notes() for pair in zip(X, y, strict=True)]
    bag = bags.from_sequence(pairs, npartitions=4)
    assert np.array_equal(fit_blocks(TAGGER, bag).weights_, tagger.weights_)
    with pytest.raises(TypeError, match="a part of the source is a int: each must be the name of"):
        fit_blocks(TAGGER, [dask.delayed(lambda: 3)()])


@pytest.mark.parametrize("kind", ["rows", "sequences", "sets"])
def test_weights_of_examples_count_as_on_one_machine(here, kind):
    rng = np.random.default_rng(0)
    if kind == "sequences":
        X, y = load_notes().X_train[:60], load_notes().y_train[:60]
        estimator = ChainSSVM(C=0.01, tol=0.01, random_state=0)
    elif kind == "rows":
        X, y = digits(120)
        estimator = MulticlassSSVM(C=0.1, tol=0.01, random_state=0, class_weight="balanced")
    else:
        X = rng.normal(size=(60, 5))
        y = (X @ rng.normal(size=(5, 3)) + rng.normal(size=(60, 3)) > 0).astype(int)
        estimator = MultilabelSSVM(C=1.0, tol=0.01, random_state=0)
    weights = rng.choice([0.0, 0.1, 0.5], len(y))
    weights[20:40] = 1.0
    whole = clone(estimator).set_params(tol=1e-4).fit(X, y, sample_weight=weights)
    parts = [(X[:20], y[:20], weights[:20]), (X[20:40], y[20:40]), (X[40:], y[40:], weights[40:])]
    for blocks in (3, 2):
        model = fit_blocks(estimator, parts, blocks=blocks)
        assert model.converged_
        assert model.dual_objective_ <= whole.primal_objective_
        assert model.primal_objective_ >= whole.dual_objective_
    plain = fit_blocks(estimator, [part[:2] for part in parts])
    assert plain.dual_objective_ > 1.05 * whole.primal_objective_ or (
        plain.primal_objective_ < 0.95 * whole.dual_objective_
    )
    with pytest.raises(ValueError, match="sample_weight has shape"):
        fit_blocks(estimator, [(X, y, weights[:3])])
    with pytest.raises(ValueError, match="finite and ≥ 0"):
        fit_blocks(estimator, [(X, y, -weights)])


def test_parts_are_given_as_to_fit(here):
    """Frames, and sparse indicators; two parts in a block are put together."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(48, 4))
    Y = (X[:, :3] > 0).astype(int)
    estimator = MultilabelSSVM(C=1.0, tol=0.1, edges="none", random_state=0)
    plain = fit_blocks(estimator, cut(X, Y, 4), blocks=2)
    names = ["red", "green", "blue"]
    for form in (sp.csr_matrix, lambda y: pd.DataFrame(y, columns=names)):
        model = fit_blocks(estimator, cut(pd.DataFrame(X), form(Y), 4), blocks=2)
        np.testing.assert_array_equal(model.weights_, plain.weights_)
    assert model.classes_.tolist() == names
    with pytest.raises(ValueError, match="y is a list of label sets: turn it into indicators"):
        fit_blocks(estimator, [(X, [["red"], ["green", "blue"]] * 24)])


def test_broken_sparse_rows_are_refused(here):
    broken = sp.csr_matrix(np.eye(4))
    broken.indices[-1] = 1_000_000
    for estimator, y in ((MulticlassSSVM(), [0, 1, 2, 0]), (MultilabelSSVM(), np.eye(4, 2))):
        with pytest.raises(ValueError, match="whose indices do not fit its shape"):
            fit_blocks(estimator, [(broken, y)])


def test_labels_that_differ_by_case_are_named(tmp_path, here):
    with pytest.warns(UserWarning, match="the labels 'B' and 'b' differ by case only"):
        fit_blocks(TAGGER, write_parts(tmp_path, ONE, "Eve b\nran O\n"))


def test_encoders_that_were_fitted_elsewhere_are_refused(here):
    parts = [(TokenTemplates().fit_transform(X), y) for X, y in notes()]
    with pytest.raises(ValueError, match="all parts must have the same columns"):
        fit_blocks(TAGGER, parts)
    encoder = PerToken(StandardScaler())
    rows = [
        ([np.eye(2)[: len(x) % 2 + 1] for x in X], [u[: len(u) % 2 + 1] for u in y])
        for X, y in notes()
    ]
    with pytest.raises(ValueError, match="cannot learn its features from blocks of data: use"):
        fit_blocks(ChainSSVM(features=encoder), rows)


def test_a_closed_client_is_refused():
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    if not hasattr(distributed, "Client"):  # the folder of this file has the package's name
        pytest.skip("Dask is not installed")
    cluster = distributed.LocalCluster(1, processes=False, dashboard_address=None)
    with cluster, distributed.Client(cluster) as client:
        client.close()
        with pytest.raises(RuntimeError, match="client is closed: give one that is connected"):
            fit_blocks(TAGGER, notes(), client=client)
        with pytest.raises(ValueError, match="workers is for processes on this machine"):
            fit_blocks(TAGGER, notes(), client=client, workers=2)


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
    for name in ("cached_passes", "block", "cg_steps"):
        tagger = clone(TAGGER).set_params(solver_options={name: 2})
        with pytest.raises(ValueError, match=f"{name!r}, which blocks do not use"):
            fit_blocks(tagger, notes())
    for name in ("pieces", "latency", "bandwidth"):
        with pytest.raises(ValueError, match=rf"^options\['{name}'\] must be"):
            fit_blocks(TAGGER, notes(), options={name: 0})
    with pytest.raises(ValueError, match=r"^options has 'rhythm', which solver='blocks' does not"):
        fit_blocks(TAGGER, notes(), options={"rhythm": 0})
    with pytest.raises(TypeError, match="source is a int: give names of files, or a list of"):
        fit_blocks(TAGGER, 3)
    with pytest.raises(TypeError, match="use say how files are read, but source has no files"):
        fit_blocks(TAGGER, notes(), use=["word"])
    with pytest.raises(ValueError, match="labels are texts in some parts and numbers in others"):
        fit_blocks(MulticlassSSVM(), [(np.eye(2), ["0", "1"]), (np.eye(2), [0, 1])])
    with pytest.raises(ValueError, match=r"different kinds of tokens \(TokenTemplates and numbers"):
        fit_blocks(ChainSSVM(), [notes()[0], ([np.eye(2)], [["a", "b"]])])
    with pytest.raises(ValueError, match="some parts are files and others are not"):
        fit_blocks(TAGGER, [write_parts(tmp_path, ONE), notes()[0]])
    with pytest.raises(ValueError, match=r"has the columns word, col1 and .* has word, col1, col2"):
        fit_blocks(TAGGER, write_parts(tmp_path, ONE, "Ann N B\nran V O\n"))
    with pytest.raises(ValueError, match="same columns"):
        fit_blocks(MulticlassSSVM(), [(np.eye(2), [0, 1]), (np.eye(3), [0, 1, 2])])
    with pytest.raises(ValueError, match="same columns"):
        fit_blocks(ChainSSVM(), [([np.eye(2)], [["a", "b"]]), ([np.eye(3)], [["a", "b", "a"]])])
