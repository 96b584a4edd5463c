"""Handwritten dates: sequences composed from the digit images that scikit-learn ships."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

Array = np.ndarray[Any, Any]

#: Working days in a sequence.
LENGTH = 8
#: Images before this one are for training only, the others for testing only.
FIRST_TEST_IMAGE = 900

_FIRST_DAY, _AFTER_LAST_DAY = "2000-01-01", "2030-01-01"
_FULL_INK = 16.0


@dataclass(frozen=True)
class DigitDates:
    """Sequences of handwritten digits, what they say, and where they come from."""

    X_train: list[Array]  # pixels of the eight images, (8, 64): 0 for paper and 1 for full ink
    y_train: list[Array]  # the digits, 0 to 9
    X_test: list[Array]
    y_test: list[Array]
    dates_train: list[tuple[str, ...]]  # the eight dates (YYYY-MM-DD) whose last digits are shown
    dates_test: list[tuple[str, ...]]
    images_train: list[Array]  # rows of sklearn.datasets.load_digits that the images come from
    images_test: list[Array]


def load_digit_dates(
    n_train: int = 1000, n_test: int = 400, noise: float = 0.0, random_state: Any = 0
) -> DigitDates:
    """The date column of a timesheet, written by hand: eight working days in a row.

    Of every date one digit is read, the last one: Thursday 29, Friday 30, Monday 2, Tuesday 3
    is 9, 0, 2, 3. A digit is followed by the next one, after a weekend by the third next, and at
    the end of a month the count starts again. All of this comes from the calendar of 2000 to 2029
    (Monday to Friday, no public holidays), none of it from a digit's place in the sequence.

    The images are real: 1797 handwritten digits of 8 × 8 pixels. The first 900 serve only
    training, the other 897 only testing; each part is drawn from with replacement. The sequences
    are composed: the digits of one sequence are in general not from one hand.

    Parameters
    ----------
    n_train, n_test : int, sequences to compose; those for training do not depend on ``n_test``
    noise : float, default=0.0
        Standard deviation of Gaussian noise that is added to every pixel, drawn anew each time an
        image is used. The images are unaltered without it; 0.3 makes them hard to read.
    random_state : int, RandomState or None; for days, images and noise

    Examples
    --------
    >>> data = load_digit_dates(n_train=3, n_test=1)
    >>> len(data.X_train), data.X_train[0].shape, data.y_train[0].shape
    (3, (8, 64), (8,))
    >>> [int(day[-1]) for day in data.dates_train[0]] == data.y_train[0].tolist()
    True
    """
    for name, count in (("n_train", n_train), ("n_test", n_test)):
        if count < 1:
            raise ValueError(f"{name} must be at least 1, got {count!r}.")
    if not (noise >= 0.0 and math.isfinite(noise)):
        raise ValueError(f"noise must be a finite number that is not negative, got {noise!r}.")
    from sklearn.datasets import load_digits  # slow to import, and nobody else wants it

    images, digits = load_digits(return_X_y=True)
    images = images / _FULL_INK
    random = check_random_state(random_state)
    train_seed, test_seed = random.randint(2**31 - 1, size=2)
    rows = np.arange(len(digits))
    train = _compose(images, digits, rows[:FIRST_TEST_IMAGE], n_train, noise, train_seed)
    test = _compose(images, digits, rows[FIRST_TEST_IMAGE:], n_test, noise, test_seed)
    return DigitDates(*train[:2], *test[:2], train[2], test[2], train[3], test[3])


def _compose(
    images: Array, digits: Array, allowed: Array, count: int, noise: float, seed: int
) -> tuple[list[Array], list[Array], list[tuple[str, ...]], list[Array]]:
    """Sequences from the ``allowed`` rows of ``images``: pixels, digits, dates and rows."""
    random = np.random.RandomState(seed)
    by_digit = [allowed[digits[allowed] == digit] for digit in range(10)]
    days = np.arange(_FIRST_DAY, _AFTER_LAST_DAY, dtype="datetime64[D]")
    days = days[np.is_busday(days)]
    last_digits = ((days - days.astype("datetime64[M]")).astype(np.int64) + 1) % 10
    X, y, dates, chosen = [], [], [], []
    for start in random.randint(len(days) - LENGTH + 1, size=count):
        shown = last_digits[start : start + LENGTH].copy()
        rows = np.array([random.choice(by_digit[digit]) for digit in shown])
        pixels = images[rows]
        if noise > 0.0:
            pixels = pixels + noise * random.standard_normal(pixels.shape)
        X.append(pixels)
        y.append(shown)
        dates.append(tuple(str(day) for day in days[start : start + LENGTH]))
        chosen.append(rows)
    return X, y, dates, chosen
