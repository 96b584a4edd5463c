"""Calibrated probabilities: monotone, within [0, 1], and closer to the truth than raw margins."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from hingeline import ChainSSVM, load
from hingeline.evaluation.calibration import CalibratedChain, calibration_error
from hingeline.modelfile.files import ModelFileError
from hingeline.schemes import spans

METHODS = ("isotonic", "sigmoid")
LABELS = ("O", "B-X", "I-X", "B-Y", "I-Y")


def sequences(seed: int, n: int) -> Any:
    """Noisy hints at random IOB2 labels."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        labels: list[str] = []
        for _ in range(int(rng.integers(3, 12))):
            before = labels[-1] if labels else "O"
            go_on = [] if before == "O" else ["I-" + before[2:]] * 3
            labels.append(str(rng.choice(["O", "O", "B-X", "B-Y", *go_on])))
        hints = np.eye(len(LABELS))[[LABELS.index(k) for k in labels]]
        X.append(hints + 0.5 * rng.normal(size=hints.shape))
        y.append(labels)
    return X, y


@pytest.fixture(scope="module")
def model() -> Any:
    """Larger weights predict the same with larger margins: too sure, if margins were log-odds."""
    fitted = ChainSSVM(C=1.0, scheme="IOB2", random_state=0).fit(*sequences(0, 100))
    return fitted.with_weights(4.0 * fitted.weights_)


@pytest.fixture(scope="module", params=METHODS)
def calibrated(request: Any, model: Any) -> Any:
    return CalibratedChain(model, request.param).fit(*sequences(1, 800))


@pytest.fixture(scope="module")
def fresh() -> Any:
    return sequences(2, 800)


def test_tokens(calibrated: Any, model: Any, fresh: Any) -> None:
    X, y = fresh
    found = calibrated.predict_proba_tokens(X)
    predicted = model.predict(X)
    assert [len(p) for p in found] == [len(x) for x in X]
    p = np.concatenate(found)
    margin = np.concatenate([table.max(axis=1) for table in model.decision_function(X)])
    assert (p >= 0).all()
    assert (p <= 1).all()
    order = np.argsort(margin)
    assert (np.diff(p[order]) >= 0).all()
    assert p[order[-1]] > p[order[0]] + 0.1
    right = np.concatenate(predicted) == np.concatenate(y)
    error = calibration_error(p, right)
    assert error < 0.5 * calibration_error(expit(margin), right)
    assert error < 0.03
    assert calibrated.calibration_error(X, y)["tokens"] == error
    assert abs(calibrated.calibration_error_["tokens"] - error) < 0.03
    for a, b in zip(calibrated.predict(X), predicted, strict=True):
        np.testing.assert_array_equal(a, b)


def test_spans(calibrated: Any, model: Any, fresh: Any) -> None:
    X, y = fresh
    found = calibrated.predict_proba_spans(X)
    assert [[span[:3] for span in row] for row in found] == [spans(p) for p in model.predict(X)]
    p = np.array([span[3] for row in found for span in row])
    right = np.array(
        [span[:3] in spans(true) for row, true in zip(found, y, strict=True) for span in row]
    )
    margin = calibrated._predict(X, None).span_margins
    assert 0 <= p.min() < p.max() <= 1
    assert (np.diff(p[np.argsort(margin)]) >= 0).all()
    error = calibration_error(p, right)
    assert error < 0.5 * calibration_error(expit(margin), right)
    assert error < 0.05
    assert calibrated.calibration_error(X, y)["spans"] == error
    assert abs(calibrated.calibration_error_["spans"] - error) < 0.05


def test_span_margins_are_those_of_the_best_labelling_without_the_span(
    calibrated: Any, model: Any, fresh: Any
) -> None:
    """Read off the n best labellings, where one of them lacks the span."""
    compared = 0
    X = fresh[0][:15]
    for x, best in zip(X, model.predict_nbest(X, 300), strict=True):
        read = [(spans(labels), score) for labels, score in best]
        found = calibrated._predict([x], None)
        for (kind, first, stop), margin in zip(
            found.spans.tolist(), found.span_margins, strict=True
        ):
            span = (found.types[kind], first, stop)
            without = [score for others, score in read if span not in others]
            if without:
                compared += 1
                assert margin == pytest.approx(best[0][1] - without[0], abs=1e-9)
    assert compared > 15


def test_forms_of_input_and_pickling(calibrated: Any, fresh: Any) -> None:
    X, y = fresh[0][:20], fresh[1][:20]
    stacked, lengths = np.concatenate(X), [len(x) for x in X]
    again = pickle.loads(pickle.dumps(calibrated))
    assert again.predict_proba_spans(stacked, lengths=lengths) == calibrated.predict_proba_spans(X)
    flat = np.concatenate(y)
    errors = calibrated.calibration_error(stacked, flat, lengths=lengths)
    assert errors == calibrated.calibration_error(X, y)


def test_a_file_keeps_the_calibration(
    calibrated: Any, model: Any, fresh: Any, tmp_path: Any
) -> None:
    X, y = fresh[0][:50], fresh[1][:50]
    path = tmp_path / "m.hinge"
    calibrated.save(path, metadata={"by": "me"})
    again = CalibratedChain.load(path)
    assert again.method == calibrated.method
    assert again.calibration_error_ == calibrated.calibration_error_
    assert again.predict_proba_spans(X) == calibrated.predict_proba_spans(X)
    for found, wanted in zip(
        again.predict_proba_tokens(X), calibrated.predict_proba_tokens(X), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)
    assert again.calibration_error(X, y) == calibrated.calibration_error(X, y)
    plain = load(path)
    assert plain.metadata_["by"] == "me"
    np.testing.assert_array_equal(plain.weights_, model.weights_)
    model.save(path)
    with pytest.raises(ModelFileError, match="holds a model without a calibration: hingeline"):
        CalibratedChain.load(path)


@pytest.mark.parametrize(
    "change", [{"shares": [0.9, 0.1]}, {"margins": [2.0, 1.0]}, {"slope": None}, {"shares": [0.5]}]
)
def test_a_calibration_that_makes_no_sense(model: Any, tmp_path: Any, change: Any) -> None:
    curve = {"margins": [1.0, 2.0], "shares": [0.1, 0.9], "slope": 0.0, "intercept": 0.0}
    own = {"method": "isotonic", "errors": {"tokens": None}, "tokens": curve, "spans": None}
    model.save(tmp_path / "m.hinge", metadata={"calibration": own})
    assert np.isnan(CalibratedChain.load(tmp_path / "m.hinge").calibration_error_["tokens"])
    model.save(
        tmp_path / "m.hinge", metadata={"calibration": {**own, "tokens": {**curve, **change}}}
    )
    with pytest.raises(ModelFileError, match="calibration that cannot be read"):
        CalibratedChain.load(tmp_path / "m.hinge")
    for gone in ({"tokens": None}, {"tokens": {}}, {"spans": {}}):
        model.save(tmp_path / "m.hinge", metadata={"calibration": own | gone})
        with pytest.raises(ModelFileError, match="calibration that cannot be read"):
            CalibratedChain.load(tmp_path / "m.hinge")


@pytest.mark.parametrize("method", METHODS)
def test_labels_without_spans(method: str) -> None:
    X, y = sequences(3, 60)
    words = [[label.replace("-", "") for label in row] for row in y]
    model = ChainSSVM(random_state=0).fit(X[:30], words[:30])
    calibrated = CalibratedChain(model, method).fit(X[30:], words[30:])
    assert np.isnan(calibrated.calibration_error_["spans"])
    assert len(calibrated.predict_proba_tokens(X)) == 60
    with pytest.raises(ValueError, match="not span tags such as B-NP and O"):
        calibrated.predict_proba_spans(X)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("right", [True, False])
def test_held_out_data_that_are_all_right_or_all_wrong(method: str, right: bool) -> None:
    X = [np.eye(2)[[0, 1]], np.eye(2)[[1, 0]]] * 5
    y = [["O", "B-X"], ["B-X", "O"]] * 5
    model = ChainSSVM(C=10.0, random_state=0).fit(X, y)
    held_out = y if right else [row[::-1] for row in y]
    calibrated = CalibratedChain(model, method).fit(X, held_out)
    p = np.concatenate(calibrated.predict_proba_tokens(X))
    of_spans = np.array([span[3] for row in calibrated.predict_proba_spans(X) for span in row])
    assert len(of_spans) == 10
    for values in (p, of_spans):
        assert (values > 0.9).all() if right else (values < 0.1).all()


def test_nothing_else_is_possible() -> None:
    """One label: margins are infinite, probabilities are not NaN."""
    X = [np.eye(2)] * 4
    model = ChainSSVM(random_state=0).fit(X, [["O", "O"]] * 4)
    for method in METHODS:
        calibrated = CalibratedChain(model, method).fit(X, [["O", "O"], ["O", "P"]] * 2)
        p = np.concatenate(calibrated.predict_proba_tokens(X))
        np.testing.assert_allclose(p, 0.75, atol=0.1)


def test_no_span_on_the_held_out_data() -> None:
    X = [np.eye(2)[[0, 1]], np.eye(2)[[1, 0]]] * 5
    y = [["O", "B-X"], ["B-X", "O"]] * 5
    model = ChainSSVM(C=10.0, random_state=0).fit(X, y)
    outside = [np.eye(2)[[0, 0]]] * 4
    calibrated = CalibratedChain(model).fit(outside, [["O", "O"]] * 4)
    assert calibrated.predict_proba_spans(outside) == [[], [], [], []]
    with pytest.raises(ValueError, match="no span was predicted on the held-out data"):
        calibrated.predict_proba_spans(X)


def test_bad_arguments(model: Any) -> None:
    X, y = sequences(3, 3)
    with pytest.raises(ValueError, match=r"method='platt' is not known; choose one of 'isotonic'"):
        CalibratedChain(model, "platt").fit(X, y)
    with pytest.raises(TypeError, match="model must be a fitted ChainSSVM"):
        CalibratedChain(object()).fit(X, y)
    with pytest.raises(ValueError, match="not fitted"):
        CalibratedChain(ChainSSVM()).fit(X, y)
    with pytest.raises(ValueError, match="not fitted"):
        CalibratedChain(model).predict_proba_tokens(X)


# The measure ------------------------------------------------------------------------------------


def test_calibration_error_by_hand() -> None:
    p = [0.1, 0.2, 0.8, 0.9]
    assert calibration_error(p, [0, 0, 1, 1], n_bins=2) == pytest.approx(0.15)
    assert calibration_error(p, [1, 1, 0, 0], n_bins=2) == pytest.approx(0.85)
    assert calibration_error(p, [1, 0, 1, 0], n_bins=1) == pytest.approx(0.0)
    assert calibration_error([0.75] * 4, [1, 1, 1, 0], n_bins=4) == 0.0  # ties stay together
    assert np.isnan(calibration_error([], []))
    with pytest.raises(ValueError, match="both must be equally long vectors"):
        calibration_error([0.5], [True, False])


def test_calibration_error_of_honest_probabilities_is_small() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(20_000)
    right = rng.random(20_000) < p
    assert calibration_error(p, right) < 0.02
    assert calibration_error(np.sqrt(p), right) > 0.1
