"""Learning from a stream: batches, labels and features that come, examples that go."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from hingeline import ChainSSVM, MulticlassSSVM
from hingeline.core.primitives import pad_row
from hingeline.features import DictEncoder, TokenTemplates
from hingeline.solvers.sdm import SDM
from hingeline.streaming.memory import LiveWeights
from hingeline.streaming.stream import FINISH, REPEATS, REPEATS_ONCE, REPEATS_SEQUENCE_ONCE, Stream

# isort: split
from marks import slow

KINDS = ["chain", "multiclass"]
#: With summed slack, too; over all outputs, so that there is one solution.
ALL_KINDS = [*KINDS, slow("chain sum"), slow("multiclass sum")]
TIGHT = 1e-9
#: Relative gap g of a strongly convex problem: ‖w − w*‖² ≤ 2·g·P.
CLOSE = 1e-4


def make(kind, n=24, seed=0, d=6, m=4):
    """Noisy examples with m labels and d features, sparse rows."""
    rng = np.random.default_rng(seed)
    direction = np.random.default_rng(99).normal(size=(d, m))
    if kind.startswith("multiclass"):
        X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.7)
        y = np.argmax(X @ direction + rng.normal(size=(n, m)), axis=1)
        return X, y
    X, y = [], []
    for _ in range(n):
        x = rng.normal(size=(int(rng.integers(1, 5 if kind.endswith("sum") else 6)), d))
        X.append(x)
        y.append(np.argmax(x @ direction + rng.normal(size=(len(x), m)), axis=1))
    return X, y


def estimator(kind, **parameters):
    cls = ChainSSVM if kind.startswith("chain") else MulticlassSSVM
    if kind.endswith("sum"):
        parameters = {"slack": "sum", "violators": "all", **parameters}
    return cls(**{"C": 0.3, "tol": TIGHT, "random_state": 0, "max_iter": 5000, **parameters})


def blocks(model):
    """Everything learned, by name, with labels in sorted order."""
    order = np.argsort(model.classes_)
    if isinstance(model, MulticlassSSVM):
        return {"coef": model.coef_[order], "intercept": model.intercept_[order]}
    return {
        "emission": model.emission_coef_[order],
        "intercept": model.intercept_[order],
        "transition": model.transition_coef_[np.ix_(order, order)],
        "start": model.start_coef_[order],
        "end": model.end_coef_[order],
    }


def assert_same_weights(model, other, tolerance=CLOSE):
    mine, theirs = blocks(model), blocks(other)
    flat = [np.concatenate([b.reshape(-1) for b in part.values()]) for part in (mine, theirs)]
    assert np.linalg.norm(flat[0] - flat[1]) <= tolerance * np.linalg.norm(flat[1])


def dual_weights(model):
    """``Σ α·a·Δf`` of the multipliers kept, in the layout of ``weights_``."""
    stream = model._stream
    before = stream.live, stream.visits
    stream.live, stream.visits = None, 0.0
    flat = stream.average()
    stream.live, stream.visits = before
    return flat


# Streams ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("passes", [None, 1, 3])
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_stream_converges_to_the_batch_solution(kind, passes):
    X, y = make(kind)
    batch = estimator(kind).fit(X, y)
    stream = estimator(kind)
    for lo in range(0, 20, 5):
        stream.partial_fit(X[lo : lo + 5], y[lo : lo + 5], classes=range(4), passes=passes)
    stream.partial_fit(X[20:], y[20:])
    assert stream.converged_
    assert stream.n_examples_ == 24
    assert stream.primal_objective_ == pytest.approx(batch.primal_objective_, rel=1e-8)
    assert_same_weights(stream, batch)


@pytest.mark.parametrize(
    ("slack", "rescale"), [("max", "margin"), ("squared", "margin"), ("max", "slack")]
)
@pytest.mark.parametrize("kind", KINDS)
def test_multipliers_of_a_stream_are_feasible_and_make_its_weights(kind, slack, rescale):
    """Weak duality and ``w = Σ α·a·Δf``, whatever was visited."""
    X, y = make(kind)
    batch = estimator(kind, slack=slack, rescale=rescale).fit(X, y)
    stream = estimator(kind, slack=slack, rescale=rescale)
    for lo in range(0, 24, 8):
        stream.partial_fit(X[lo : lo + 8], y[lo : lo + 8], classes=range(4), passes=2)
    live = stream._stream.live.w.copy()
    np.testing.assert_allclose(dual_weights(stream), live, atol=1e-12)  # nothing grew: tight
    dual = stream._stream.merge()
    form, ws = dual.form, dual.multipliers
    sums = np.add.reduceat(ws.alpha, ws.slot)
    assert (ws.alpha >= 0).all()
    assert (sums <= form.cap * (1 + 1e-12)).all()
    value = ws.alpha @ ws.offset - 0.5 * live @ live - 0.5 * form.ridge @ sums**2
    assert 0 < value <= batch.primal_objective_ * (1 + 1e-12)


def test_steps_over_all_planes_leave_a_stream_alone():
    """They would make the weights of one batch's planes only, and drop those of the others."""
    rng = np.random.default_rng(5)
    y = rng.integers(4, size=1200)
    X = rng.normal(size=(4, 8))[y] + 2.0 * rng.normal(size=(1200, 8))
    X = (X + 3.0) * 10.0 ** np.linspace(-2.0, 3.0, 8)  # passes crawl on these scales
    model = MulticlassSSVM(C=1.0, random_state=0)
    for part in np.array_split(np.arange(1200), 2):
        model.partial_fit(X[part], y[part], classes=np.arange(4), passes=30)
    stream = model._stream
    kept = stream.live.w.copy()
    stream.live = None
    made = stream.go_live().w
    np.testing.assert_allclose(kept, made, rtol=0, atol=1e-9 * np.abs(made).max())


@pytest.mark.parametrize("kind", KINDS)
def test_a_pass_over_a_batch_makes_no_noise_and_no_claims(kind):
    X, y = make(kind)
    model = estimator(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(X[:12], y[:12], classes=range(4), passes=1)
        model.partial_fit(X[12:], y[12:], passes=1)
    assert np.isnan(model.duality_gap_)
    assert not model.converged_
    assert model.n_iter_ == 1
    repeats = REPEATS_ONCE if kind == "multiclass" else REPEATS_SEQUENCE_ONCE
    assert 24 <= model.history_[0].oracle_calls <= 24 * repeats  # 12 and 12 again
    assert "new examples" in model.stop_reason_
    assert model.score(X, y) > 1.5 / 4


@pytest.mark.parametrize("kind", KINDS)
def test_averaged_weights_are_those_of_the_definition(kind, monkeypatch):
    """``w̄ = Σ_k k·w_k / Σ_k k`` over all visits of all batches, one example a batch."""
    X, y = make(kind, n=6)
    model, iterates, move = estimator(kind), [], SDM.move

    def recorded(self, order, *others):
        result = move(self, order, *others)
        assert len(order) <= 1
        iterates.extend([self.w.copy()] * len(order))
        return result

    monkeypatch.setattr(SDM, "move", recorded)
    for i in range(6):
        model.partial_fit(X[i : i + 1], y[i : i + 1], classes=range(4), passes=1)
        n = len(iterates)
        expected = sum((k + 1) * w for k, w in enumerate(iterates)) / (n * (n + 1) / 2)
        np.testing.assert_allclose(model.weights_, expected, atol=1e-12)
        assert model._stream.visits == n > 2 * i


@pytest.mark.parametrize("kind", KINDS)
def test_weights_count_passes_over_the_latest_planes(kind, monkeypatch):
    """They are the average of the stream's iterates and of these, and change no stream."""
    X, y = make(kind, n=40)
    asked, model, iterates, orders = estimator(kind), estimator(kind), [], []

    def fit(model, lo):
        model.partial_fit(X[lo : lo + 8], y[lo : lo + 8], classes=range(4), passes=1)

    def recorded(self, order, *others):
        orders.append(len(order))
        for i in order:
            move(self, np.array([i]), *others)
            iterates.append(self.w.copy())

    monkeypatch.setattr("hingeline.streaming.stream.LATEST", 3)
    for lo in range(0, 40, 8):
        fit(asked, lo)
        assert len(asked.weights_)
    move = SDM.move
    monkeypatch.setattr(SDM, "move", recorded)
    for lo in range(0, 40, 8):
        fit(model, lo)
    n, done = len(iterates), len(orders)
    weights = model.weights_
    assert len(orders) - done == 3 * FINISH  # the last three blocks
    k = np.arange(1, len(iterates) + 1)
    np.testing.assert_allclose(weights, k @ np.array(iterates) / k.sum(), atol=1e-12)
    np.testing.assert_allclose(weights, asked.weights_, atol=1e-12)
    assert model._stream.visits == asked._stream.visits == n
    np.testing.assert_array_equal(model._stream.live.w, asked._stream.live.w)
    apart = model._stream.live.average(model.n_features_in_, n) - weights
    assert np.abs(apart).max() > 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_examples_of_the_call_before_are_visited_once_more(kind):
    X, y = make(kind)
    model = estimator(kind)
    masses = []
    for lo in range(0, 24, 8):
        model.partial_fit(X[lo : lo + 8], y[lo : lo + 8], classes=range(4), passes=1)
        masses.append([block.multipliers.alpha.copy() for block in model._stream.blocks])
    assert [len(blocks) for blocks in masses] == [1, 2, 3]
    assert not np.array_equal(masses[0][0], masses[1][0])
    assert not np.array_equal(masses[1][1], masses[2][1])
    model.forget(keep_last=3)
    assert model._stream.fresh == 3
    model.partial_fit(X[:2], y[:2])
    assert model._stream.fresh == 0  # all of them are solved


def test_mass_of_older_examples_follows_without_decoding(monkeypatch):
    X, y = make("chain", n=60)
    model, moved, duals = estimator("chain"), [], []

    def dual(stream):
        planes = [block.multipliers for block in stream.blocks]
        linear = sum(float(ws.alpha @ ws.offset) for ws in planes)
        return linear - 0.5 * float(stream.live.w @ stream.live.w)

    follow = Stream._follow

    def recorded(self, others, count):
        before = [block.multipliers.alpha.copy() for block in others]
        value = dual(self)
        follow(self, others, count)
        duals.append(dual(self) - value)
        moved.append(
            sum((a != b.multipliers.alpha).any() for a, b in zip(before, others, strict=True))
        )

    monkeypatch.setattr(Stream, "_follow", recorded)
    for lo in range(0, 60, 10):
        model.partial_fit(X[lo : lo + 10], y[lo : lo + 10], classes=range(4), passes=1)
    assert moved[:3] == [0, 0, 1]  # the new examples and those before them have their own visits
    assert max(moved) >= 3
    assert min(duals) > -1e-12  # visits maximise the dual
    assert duals[-1] > 0.0
    assert model.history_[0].oracle_calls <= 20 * REPEATS_SEQUENCE_ONCE
    live = model._stream.live.w.copy()
    model._stream.live = None
    np.testing.assert_allclose(model._stream.go_live().w, live, atol=1e-12)


def test_a_single_pass_comes_close_to_the_batch_solution():
    """Noisy sequences, where steps of single examples are far too long for the last weights."""
    rng = np.random.default_rng(0)
    means, moves = rng.normal(size=(6, 30)), rng.dirichlet(np.full(6, 0.3), 6)
    X, y = [], []
    for _ in range(600):
        labels = [int(rng.integers(6))]
        for _ in range(int(rng.integers(3, 15))):
            labels.append(int(rng.choice(6, p=moves[labels[-1]])))
        X.append(means[labels] + 3.5 * rng.normal(size=(len(labels), 30)))
        y.append(labels)
    batch = ChainSSVM(C=0.1, random_state=0).fit(X[:400], y[:400])
    stream = ChainSSVM(C=0.1, random_state=0)
    for lo in range(0, 400, 100):
        stream.partial_fit(X[lo : lo + 100], y[lo : lo + 100], passes=1)
    assert stream.score(X[400:], y[400:]) > batch.score(X[400:], y[400:]) - 0.01


def test_results_do_not_depend_on_threads():
    X, y = make("chain", n=200)
    models = []
    for n_jobs in (1, 2):
        model = estimator("chain", n_jobs=n_jobs)
        for lo in range(0, 200, 100):
            model.partial_fit(X[lo : lo + 100], y[lo : lo + 100], passes=2)
        models.append(model)
    np.testing.assert_array_equal(models[0].weights_, models[1].weights_)


def test_weights_are_made_when_asked_for():
    X, y = make("chain")
    model = estimator("chain").partial_fit(X, y, passes=1)
    assert "weights_" not in vars(model)
    assert hasattr(model, "weights_")
    kept = model.weights_
    model.partial_fit(X, y, passes=1)
    assert kept is not model.weights_  # nobody's weights change under their hands
    assert not hasattr(estimator("chain"), "weights_")
    copy = pickle.loads(pickle.dumps(estimator("chain").partial_fit(X, y, passes=1)))
    assert len(copy.predict(X)) == len(X)
    assert copy.n_examples_ == 0


def test_ctrl_c_keeps_the_new_examples(monkeypatch):
    X, y = make("chain")
    model = estimator("chain").partial_fit(X[:12], y[:12], passes=1)
    sweep, calls = SDM.sweep, []

    def interrupted(self):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return sweep(self)

    monkeypatch.setattr(SDM, "sweep", interrupted)
    with pytest.warns(ConvergenceWarning, match="after 1 of 3 passes"):
        model.partial_fit(X[12:], y[12:], passes=3)
    assert model.stop_reason_ == "interrupted"
    assert model.n_examples_ == 24
    np.testing.assert_allclose(dual_weights(model), model._stream.live.w, atol=1e-12)


# Growth ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("passes", [None, 2])
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_late_labels_and_features_give_the_optimum_of_a_batch(kind, passes):
    """Labels 5 to 12 and half of the columns come late: batch by batch, stride by stride."""
    X, y = make(kind, n=60, d=12, m=13)
    order = sorted(range(60), key=lambda i: np.max(y[i]))
    X, y = [X[i] for i in order], [y[i] for i in order]
    X = [np.where(np.arange(12) < 3 + 9 * i // 59, x, 0.0) for i, x in enumerate(X)]
    y = np.array(y) if kind == "multiclass" else y
    batch = estimator(kind, tol=1e-8).fit(X, y)
    stream, before = estimator(kind, tol=1e-8), []
    for lo in range(0, 60, 6):
        width = 3 + 9 * min(lo + 5, 59) // 59
        part = [x[..., :width] for x in X[lo : lo + 6]]
        last = lo == 54
        stream.partial_fit(part, y[lo : lo + 6], passes=None if last else passes)
        known = stream.classes_.tolist()
        assert known[: len(before)] == before
        before = known
        assert stream.n_features_in_ == width
        assert len(stream.predict(part)) == 6
        if not last:
            for name, block in blocks(stream).items():
                assert block.shape[0] == len(known), name
    assert sorted(stream.classes_) == sorted(batch.classes_)
    assert stream.primal_objective_ == pytest.approx(batch.primal_objective_, rel=1e-7)
    assert_same_weights(stream, batch, 1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_growth_changes_no_weight_of_what_was_known(kind):
    X, y = make(kind, m=3)
    model = estimator(kind).partial_fit(X, y, passes=2)
    before = {name: block.copy() for name, block in blocks(model).items()}
    probe = X[:3]
    predicted = model.predict(probe)
    live = model._stream.live
    live.make_room(model.n_features_in_ + 50, 3)
    live.make_room(model.n_features_in_ + 50, 4)
    live.make_room(model.n_features_in_ + 60, 9)
    del model.__dict__["weights_"]  # made again, from what has grown
    model.classes_ = np.array([*model.classes_, *range(10, 16)])
    after = blocks(model)
    for name, block in before.items():
        grown = after[name]
        known = (slice(0, 3), *((slice(0, 3),) if name == "transition" else ()))
        np.testing.assert_array_equal(grown[known], block)
        rest = grown.copy()
        rest[known] = 0.0
        assert not rest.any()
    assert len(predicted) == 3


def test_room_is_made_rarely():
    """Adding features one by one copies O(1) rows each; labels move next to nothing."""
    live = LiveWeights(ChainSSVM(), 100, 5)
    for d in range(101, 20_000):
        live.make_room(d, 5)
    assert live.copies < 16
    live = LiveWeights(ChainSSVM(), 100, 5)
    for m in range(6, 400):
        live.make_room(100, m)
    assert live.copies < 40
    live = LiveWeights(MulticlassSSVM(), 100, 5)
    for m in range(6, 401):
        live.make_room(100, m)
        assert m <= live.stride < m + 8  # kernels over all classes have this much to spare
    assert live.copies <= 80


@pytest.mark.parametrize("features", [DictEncoder(), TokenTemplates(["0[0]", "0[-1]|0[0]"])])
def test_encoders_grow_with_the_model(features):
    text = [["the", "cat"], ["a", "dog", "ran"], ["the", "bird", "sang", "well"], ["dog"]]
    tags = [["D", "N"], ["D", "N", "V"], ["D", "N", "V", "R"], ["N"]]
    batch = ChainSSVM(tol=TIGHT, features=features, random_state=0).fit(text, tags)
    for passes in (None, 1):
        stream = ChainSSVM(tol=TIGHT, features=features, random_state=0)
        for i in range(3):
            stream.partial_fit(text[i : i + 1], tags[i : i + 1], passes=passes)
            assert stream.n_features_in_ == stream.encoder_.n_features_out_
        stream.partial_fit(text[3:], tags[3:])
        names = stream.feature_names_.tolist()
        assert sorted(names) == sorted(batch.feature_names_.tolist())
        columns = [names.index(name) for name in batch.feature_names_]
        mine = stream.emission_coef_[np.argsort(stream.classes_)][:, columns]
        np.testing.assert_allclose(mine, batch.emission_coef_, atol=1e-4)
        assert [list(p) for p in stream.predict(text)] == tags


def test_an_encoder_that_learned_more_does_not_disturb_a_copy():
    model = ChainSSVM(features=DictEncoder(), random_state=0).partial_fit(
        [["a", "b"]], [["A", "B"]], passes=1
    )
    copy = model.with_weights(model.weights_)
    model.partial_fit([["c", "a"]], [["B", "A"]], passes=1)
    assert copy.emission_coef_.shape == (2, 2)
    assert copy.feature_names_.tolist() == ["a", "b"]
    assert len(copy.predict([["c", "a"]])[0]) == 2


def test_sparse_rows_may_grow_and_not_shrink():
    X, y = make("multiclass")
    X = sp.csr_matrix(X)
    model = estimator("multiclass").partial_fit(X, y)
    wide = sp.hstack([X, sp.csr_matrix(np.eye(24)[:, :2])], format="csr")
    model.partial_fit(wide, y)
    assert model.coef_.shape == (4, 8)
    with pytest.raises(ValueError, match="6 features, but MulticlassSSVM is expecting 8"):
        model.partial_fit(X, y)
    with pytest.raises(ValueError, match="6 features"):
        model.predict(X)
    both = sp.vstack([sp.hstack([X, sp.csr_matrix((24, 2))]), wide])
    batch = estimator("multiclass").fit(both, np.concatenate([y, y]))
    assert_same_weights(model, batch)


def test_a_call_that_fails_leaves_everything_as_it_was():
    X, y = make("chain")
    model = estimator("chain").partial_fit(X, y, passes=1)
    before, n = model.weights_.copy(), model.n_examples_
    wide = [np.ones((2, 9))]
    with pytest.raises(ValueError, match="sample_weight"):
        model.partial_fit(wide, [[0, 77]], sample_weight=[-1.0], passes=1)
    with pytest.raises(ValueError, match="same length"):
        model.partial_fit(wide, [[0, 77, 1]], passes=1)
    assert model.classes_.tolist() == [0, 1, 2, 3]
    assert model.n_features_in_ == 6
    assert model.n_examples_ == n
    np.testing.assert_array_equal(model.weights_, before)
    model.partial_fit(X[:2], y[:2], passes=1)
    assert model.n_examples_ == n + 2


def test_frames_grow_behind_known_columns():
    pd = pytest.importorskip("pandas")
    X, y = make("multiclass")
    frame = pd.DataFrame(X, columns=list("abcdef"))
    model = estimator("multiclass").partial_fit(frame, y)
    model.partial_fit(frame.assign(g=1.0), y)
    assert model.feature_names_in_.tolist() == list("abcdefg")
    other = frame.assign(g=1.0, h=2.0)[list("bacdefgh")]
    with pytest.raises(ValueError, match="'b'"):
        model.partial_fit(other, y)
    assert model.feature_names_in_.tolist() == list("abcdefg")
    assert model.n_features_in_ == 7


# Forgetting ------------------------------------------------------------------------------------


@pytest.mark.parametrize("passes", [None, 2])
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_forgetting_equals_a_fit_without(kind, passes):
    X, y = make(kind, n=30)
    gone = np.random.default_rng(1).random(30) < 0.4
    gone[:10] = True  # a whole block, and parts of others
    model = estimator(kind)
    for lo in range(0, 30, 10):
        model.partial_fit(X[lo : lo + 10], y[lo : lo + 10], classes=range(4), passes=passes)
    model.forget(gone)
    assert model.n_examples_ == np.count_nonzero(~gone)
    assert np.isnan(model.duality_gap_)
    np.testing.assert_allclose(dual_weights(model), model._stream.live.w, atol=1e-12)
    more = make(kind, n=5, seed=7)
    model.partial_fit(*more)
    kept = [i for i in range(30) if not gone[i]]
    both = [*(X[i] for i in kept), *more[0]], [*(y[i] for i in kept), *more[1]]
    other = estimator(kind).partial_fit(*both, classes=range(4))
    assert model.primal_objective_ == pytest.approx(other.primal_objective_, rel=1e-8)
    assert_same_weights(model, other)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_follow_at_once(kind):
    """The weights are those of the multipliers kept, and no average knows the others."""
    X, y = make(kind, n=20)
    model = estimator(kind)
    model.partial_fit(X[:10], y[:10], classes=range(4), passes=2)
    model.partial_fit(X[10:], y[10:], passes=2)
    model.forget(np.arange(10, 20))
    np.testing.assert_allclose(model.weights_, dual_weights(model), atol=1e-12)
    model.partial_fit(X[:1], y[:1], passes=1)
    model.forget([10])
    np.testing.assert_allclose(model.weights_, dual_weights(model), atol=1e-12)


def test_ways_to_say_what_to_forget():
    X, y = make("chain")
    model = estimator("chain", tol=1e-2).partial_fit(X, y)
    assert model.forget([0, 0, -1]).n_examples_ == 22
    assert model.forget(keep_last=30).n_examples_ == 22
    assert model.forget([]).n_examples_ == 22
    assert model.forget(keep_last=5).n_examples_ == 5
    labels = np.concatenate(y[18:23])
    np.testing.assert_array_equal(model._stream.merge().compiled.problem.labels, labels)
    for wrong in ([5], [-6], [True] * 4):
        with pytest.raises(ValueError, match="5 examples"):
            model.forget(wrong)
    with pytest.raises(TypeError, match="either"):
        model.forget()
    with pytest.raises(TypeError, match="either"):
        model.forget([0], keep_last=1)
    with pytest.raises(TypeError, match="numbers"):
        model.forget(["a"])
    with pytest.raises(ValueError, match="all 5"):
        model.forget(range(5))
    with pytest.raises(ValueError, match="keep_last"):
        model.forget(keep_last=0)
    with pytest.raises(ValueError, match="no examples"):
        estimator("chain", tol=1e-2).fit(X, y).forget([0])


@pytest.mark.parametrize("passes", [None, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_memory_is_bounded_and_the_certificate_is_of_what_is_kept(kind, passes):
    X, y = make(kind, n=40)
    model = estimator(kind)
    for lo in range(0, 40, 8):
        model.partial_fit(
            X[lo : lo + 8], y[lo : lo + 8], classes=range(4), passes=passes, memory=20
        )
        assert model.n_examples_ <= 20
        if passes and lo:
            n = model.n_examples_
            assert n <= model.history_[0].oracle_calls <= REPEATS * n
            np.testing.assert_allclose(dual_weights(model), model._stream.live.w, atol=1e-12)
    assert model.n_examples_ == 20
    model.partial_fit(X[:1], y[:1], memory=20)
    assert model.converged_
    problem = model._stream.blocks[0].compiled.problem
    assert len(model._stream.blocks[0].weights) == 20
    if kind == "multiclass":
        kept = sp.csr_matrix(
            (problem.values, problem.indices, problem.indptr), shape=(20, problem.n_features)
        )[:, :6]
        other = estimator(kind).partial_fit(kept, model.classes_[problem.labels], classes=range(4))
        assert model.primal_objective_ == pytest.approx(other.primal_objective_, rel=1e-8)


def test_examples_without_mass_go_first():
    X, y = make("multiclass", n=30)
    model = estimator("multiclass", C=10.0, tol=1e-6).partial_fit(X, y)
    mass = model._stream.blocks[0].multipliers.sum(axis=1)
    idle = np.flatnonzero(mass == 0.0)
    assert 3 <= len(idle) < 25
    model.partial_fit(X[:1], y[:1], passes=1, memory=31 - len(idle))
    kept = model._stream.merge().compiled.problem.labels
    np.testing.assert_array_equal(kept, [*np.delete(y, idle), y[0]])
    model.partial_fit(X[:1], y[:1], passes=1, memory=3)
    assert model.n_examples_ == 3


# Refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_stream_cannot_do_is_said(kind):
    X, y = make(kind)
    part = X[:8], y[:8]
    for parameters, words in [
        ({"solver": "fsmo"}, "not with 'fsmo'"),
        ({"solver": "one-slack"}, "one-slack"),
        ({"C": float("inf")}, "finite C"),
        ({"class_weight": "balanced"}, "balanced"),
    ]:
        with pytest.raises(ValueError, match=words):
            estimator(kind, **parameters).partial_fit(*part, passes=1)
    for wrong in (0, -1, 1.5, True):
        with pytest.raises((TypeError, ValueError), match="passes"):
            estimator(kind).partial_fit(*part, passes=wrong)
        with pytest.raises((TypeError, ValueError), match="memory"):
            estimator(kind).partial_fit(*part, memory=wrong)
    with pytest.raises(ValueError, match="memory=5 is less than the 8"):
        estimator(kind).partial_fit(*part, memory=5, passes=1)
    model = estimator(kind).partial_fit(*part, classes=range(4), passes=1)
    for parameters, words in [
        ({"C": 2.0}, "C was 0.3"),
        ({"rescale": "slack"}, "rescale"),
        ({"fit_intercept": False}, "fit_intercept.*fit on all"),
        ({"loss": 2.0 * (1 - np.eye(4))}, "loss or class_weight"),
    ]:
        before = model.get_params()
        model.set_params(**parameters)
        with pytest.raises(ValueError, match=words):
            model.partial_fit(*part, passes=1)
        model.set_params(**before)
    model.set_params(C=2.0).partial_fit(*part)  # a whole solution carries them over
    for fitted in (pickle.loads(pickle.dumps(model)), estimator(kind, tol=0.5).fit(X, y)):
        with pytest.warns(UserWarning, match="an earlier fit were not kept"):
            assert fitted.partial_fit(*part, passes=1).n_examples_ == 8
    both = [*part[0], *part[0]], [*part[1], *part[1]]
    other = estimator(kind, C=2.0).partial_fit(*both, classes=range(4))
    assert model.primal_objective_ == pytest.approx(other.primal_objective_, rel=1e-7)


def test_a_loss_for_more_labels_is_asked_for():
    X, y = make("chain", m=3)
    cost = 1.0 - np.eye(3)
    model = estimator("chain", loss=cost).partial_fit(X, y, passes=1)
    with pytest.raises(ValueError, match="there are 4 classes"):
        model.partial_fit(X[:1], [[3] * len(y[0])], passes=1)
    model.set_params(loss=1.0 - np.eye(4)).partial_fit(X[:1], [[3] * len(y[0])], passes=1)
    assert model.emission_coef_.shape == (4, 6)


@pytest.mark.slow
def test_schemes_of_a_stream():
    X = [["a", "b"], ["b", "c", "d"]]
    model = ChainSSVM(scheme="IOB2", random_state=0)
    model.partial_fit(X[:1], [["B-X", "I-X"]], passes=1)
    model.partial_fit(X[1:], [["B-Y", "I-Y", "O"]], passes=1)
    assert model.scheme_ == "IOB2"
    move = model.predict(X)
    assert all(labels[0] in ("B-X", "B-Y", "O") for labels in move)
    model = ChainSSVM(random_state=0).partial_fit(X[:1], [["B-X", "I-X"]], passes=1)
    model.set_params(scheme="IOB2")
    with pytest.raises(ValueError, match="scheme has changed"):
        model.partial_fit(X[1:], [["B-Y", "I-Y", "O"]], passes=1)
    model.partial_fit(X[1:], [["B-Y", "I-Y", "O"]])
    assert model.scheme_ == "IOB2"


def test_the_flat_vector_of_a_stream_is_that_of_a_fit():
    """Same size and padding, so that files, callbacks and exports need to know nothing."""
    X, y = make("chain", m=5)
    model = estimator("chain").partial_fit(X[:6], [np.minimum(t, 2) for t in y[:6]], passes=1)
    model.partial_fit(X[6:], y[6:], passes=1)
    fitted = estimator("chain", tol=0.1).fit(X, y)
    assert model.weights_.shape == fitted.weights_.shape
    table = model.weights_.reshape(-1, pad_row(5))
    assert not table[:, 5:].any()
