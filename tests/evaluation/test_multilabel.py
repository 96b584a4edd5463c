"""Measures of sets of labels, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from hingeline.evaluation.metrics import multilabel_scores

TRUE = np.array([[1, 0, 1], [0, 0, 0], [1, 1, 0], [0, 1, 0]])
FOUND = np.array([[1, 0, 0], [0, 0, 0], [1, 1, 0], [1, 0, 0]])


def test_by_hand() -> None:
    scores = multilabel_scores(TRUE, FOUND)
    assert scores.hamming_loss == pytest.approx(3 / 12)
    assert scores.example_f1 == pytest.approx((2 / 3 + 1 + 1 + 0) / 4)
    assert scores.subset_accuracy == pytest.approx(2 / 4)
    assert scores.micro_f1 == pytest.approx(2 * 3 / (2 * 3 + 1 + 2))
    assert scores.macro_f1 == pytest.approx((4 / 5 + 2 / 3 + 0) / 3)
    assert multilabel_scores(sp.csr_matrix(TRUE), sp.csr_matrix(FOUND)) == pytest.approx(scores)


def test_weights() -> None:
    scores = multilabel_scores(TRUE, FOUND, sample_weight=[1, 0, 0, 1])
    assert scores.subset_accuracy == 0.0
    assert scores.hamming_loss == pytest.approx(3 / 6)


def test_a_single_label() -> None:
    """Sets of one label or none: an empty one that is rightly predicted is right."""
    scores = multilabel_scores(TRUE[:, :1], FOUND[:, :1])
    assert scores == pytest.approx((1 / 4, 3 / 4, 3 / 4, 4 / 5, 4 / 5))
