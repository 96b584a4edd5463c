"""Handwritten dates: valid, reproducible, and no image on both sides."""

from __future__ import annotations

from datetime import date, timedelta
from itertools import pairwise

import numpy as np
import pytest
from sklearn.datasets import load_digits

from hingeline.data.samples import load_digit_dates


@pytest.fixture(scope="module")
def data():
    return load_digit_dates(n_train=200, n_test=100)


def test_shapes(data):
    assert len(data.X_train) == len(data.y_train) == len(data.dates_train) == 200
    assert len(data.X_test) == len(data.y_test) == len(data.dates_test) == 100
    for x, y in zip(data.X_train + data.X_test, data.y_train + data.y_test, strict=True):
        assert x.shape == (8, 64)
        assert x.dtype == np.float64
        assert y.shape == (8,)
        assert x.min() >= 0.0
        assert x.max() <= 1.0


def test_no_image_is_in_both_parts(data):
    train = set(np.concatenate(data.images_train).tolist())
    test = set(np.concatenate(data.images_test).tolist())
    assert not train & test
    # Nor is any image of one part a copy of one of the other.
    pixels = load_digits().data
    rows = {pixels[i].tobytes() for i in train}
    assert not any(pixels[i].tobytes() in rows for i in test)


def test_images_show_the_digits_they_stand_for(data):
    pixels, digits = load_digits(return_X_y=True)
    for x, y, rows in zip(data.X_test, data.y_test, data.images_test, strict=True):
        np.testing.assert_array_equal(digits[rows], y)
        np.testing.assert_array_equal(pixels[rows] / 16.0, x)


def test_dates_are_successive_working_days(data):
    for dates, y in zip(
        data.dates_train + data.dates_test, data.y_train + data.y_test, strict=True
    ):
        days = [date.fromisoformat(text) for text in dates]
        assert [day.day % 10 for day in days] == y.tolist()
        assert all(day.weekday() < 5 for day in days)
        for before, after in pairwise(days):
            assert after - before == timedelta(days=3 if before.weekday() == 4 else 1)


def test_same_seed_same_data():
    a, b = (load_digit_dates(20, 10, noise=0.2, random_state=3) for _ in range(2))
    np.testing.assert_array_equal(a.X_train, b.X_train)
    np.testing.assert_array_equal(a.X_test, b.X_test)
    assert a.dates_train == b.dates_train
    other = load_digit_dates(20, 10, noise=0.2, random_state=4)
    assert a.dates_train != other.dates_train


def test_training_part_does_not_depend_on_the_size_of_the_other():
    a, b = load_digit_dates(20, 10), load_digit_dates(20, 50)
    np.testing.assert_array_equal(a.X_train, b.X_train)


def test_noise_is_added():
    noisy = np.array(load_digit_dates(100, 1, noise=0.3).X_train)
    rows = np.array(load_digit_dates(100, 1, noise=0.3).images_train)
    difference = noisy - load_digits().data[rows] / 16.0
    assert difference.std() == pytest.approx(0.3, rel=0.05)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"n_train": 0}, "n_train"),
        ({"n_test": 0}, "n_test"),
        ({"noise": -1.0}, "noise"),
        ({"noise": float("inf")}, "noise"),
    ],
)
def test_bad_arguments_are_named(arguments, word):
    with pytest.raises(ValueError, match=word):
        load_digit_dates(**arguments)
