"""What readers return: labelled rows, label sets, sequences, a vocabulary; and built-in data."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state

from hingeline._checks import Array, require, whole_number
from hingeline.data.text import File, atomic_text, open_text, shown
from hingeline.features.tables import SparseSequences


class FlatData(NamedTuple):
    """Labelled rows."""

    X: Any  # sparse, or dense of tables
    y: Array | None  # integers if all labels are whole, else floats, or text; None without labels
    qid: Array | None = None  # query numbers, where the file has them
    comments: list[str] | None = None  # what followed # in each row, where any row has it
    feature_names: list[str] | None = None  # of tables
    label_name: str = ""


class MultilabelData(NamedTuple):
    """Rows with any number of labels, and names where the format has them.

    Y is 1 where a row has a label. It is sparse, because a small file can name a huge label;
    ``Y.toarray()`` is the usual indicator matrix.
    """

    X: Any  # sparse or dense as the file is
    Y: sp.csr_matrix  # uint8
    feature_names: list[str] | None = None
    label_names: list[str] | None = None


class LabelledSequences(NamedTuple):
    """Labelled sequences: attributes and label of each token of each sequence."""

    X: Any  # list of lists of dicts of names to numbers, or SparseSequences
    y: list[list[str]]


def check_lengths(lengths: Sequence[int], y: Sequence[Sequence[Any]]) -> None:
    """Refuse labels that do not fit sequences of these lengths."""
    require(len(y) == len(lengths), f"X has {len(lengths)} sequences and y has {len(y)}.")
    for i, (n, labels) in enumerate(zip(lengths, y, strict=True)):
        what = f"X[{i}] has {n} tokens and y[{i}] has {len(labels)} labels"
        require(len(labels) == n > 0, f"{what}: they must have the same length, at least 1.")


class SparseRows:
    """Rows of a sparse matrix as they are gathered, and the lines that they come from."""

    def __init__(self) -> None:
        self.lines, self.starts = array("q"), array("q", [0])
        self.indices, self.values = array("q"), array("d")

    def add(self, indices: Iterable[int], values: Iterable[float], line: int = 0) -> None:
        """Append a row."""
        self.indices.extend(indices)
        self.values.extend(values)
        self.starts.append(len(self.values))
        self.lines.append(line)

    def matrix(self, width: int, first: int = 0) -> sp.csr_matrix:
        """All rows; ``first`` is the index of the first column."""
        indices = (np.array(self.indices) - first).astype(np.int32)
        parts = (np.array(self.values), indices, np.array(self.starts))
        return sp.csr_matrix(parts, shape=(len(self.lines), width))


@dataclass(frozen=True)
class Vocabulary:
    """Names in the order of their numbers.

    Attribute k is column k of a matrix and number k + 1 in a file; without attributes, the numbers
    are the names. Label k has the number k + 1 in a file.

    Examples
    --------
    >>> data = LabelledSequences([[{"w=a": 1.0}, {"w=b": 2.0}]], [["B", "O"]])
    >>> vocabulary = Vocabulary.of(data)
    >>> numbered = vocabulary.encode(data)
    >>> numbered.X.matrix.toarray().tolist(), numbered.y
    ([[1.0, 0.0], [0.0, 2.0]], [['1', '2']])
    >>> vocabulary.decode(numbered) == data
    True
    """

    attributes: tuple[str, ...]
    labels: tuple[str, ...]

    @classmethod
    def of(cls, data: LabelledSequences) -> Vocabulary:
        """All names in some sequences: attributes in order of first occurrence, labels sorted."""
        labels = tuple(sorted(set(chain.from_iterable(data.y))))
        if isinstance(data.X, SparseSequences):
            return cls((), labels)
        tokens = chain.from_iterable(data.X)
        return cls(tuple(dict.fromkeys(chain.from_iterable(tokens))), labels)

    def encode(self, data: LabelledSequences) -> LabelledSequences:
        """The sequences with numbers instead of names; unknown attributes are left out."""
        known = {label: str(k + 1) for k, label in enumerate(self.labels)}
        try:
            y = [[known[label] for label in labels] for labels in data.y]
        except KeyError as error:
            what = f"the label {shown(str(error.args[0]))} is not in the vocabulary"
            raise ValueError(f"{what}: use the one made from the training data.") from None
        if isinstance(data.X, SparseSequences):
            return LabelledSequences(data.X, y)
        column = {name: k for k, name in enumerate(self.attributes)}
        rows = SparseRows()
        for token in chain.from_iterable(data.X):
            pairs = sorted((column[name], value) for name, value in token.items() if name in column)
            rows.add((k for k, _ in pairs), (value for _, value in pairs))
        offsets = np.cumsum([0, *map(len, data.X)])
        return LabelledSequences(SparseSequences(rows.matrix(len(column)), offsets), y)

    def decode(self, data: LabelledSequences) -> LabelledSequences:
        """The sequences with names instead of numbers; the inverse of :meth:`encode`."""
        matrix, names = data.X.matrix, self.attributes
        highest = int(matrix.indices.max(initial=-1)) + 1
        what = f"there is a feature {highest}, but the vocabulary has {len(names)} attributes: use"
        require(not names or highest <= len(names), f"{what} the one made from the training data.")
        labels = {str(k + 1): label for k, label in enumerate(self.labels)}
        texts = [names[k] if names else str(k + 1) for k in matrix.indices.tolist()]
        pairs = list(zip(texts, matrix.data.tolist(), strict=True))
        tokens = [dict(pairs[lo:hi]) for lo, hi in pairwise(matrix.indptr.tolist())]
        X = [tokens[lo:hi] for lo, hi in pairwise(data.X.offsets.tolist())]
        return LabelledSequences(X, [[labels.get(label, label) for label in row] for row in data.y])


def read_vocabulary(source: File) -> Vocabulary:
    """Read a vocabulary: lines ``label TAB name`` and ``attribute TAB name``, in order."""
    names: dict[str, list[str]] = {"label": [], "attribute": []}
    with open_text(source) as text:
        for _, line in text.lines():
            kind, tab, name = line.partition("\t")
            if not line:
                continue
            if not tab or kind not in names:
                expected = "expected 'label' or 'attribute', a tab and a name"
                raise text.error(f"{expected}, found {shown(line)}; is this a vocabulary?")
            names[kind].append(name)
    return Vocabulary(tuple(names["attribute"]), tuple(names["label"]))


def write_vocabulary(target: File, vocabulary: Vocabulary) -> None:
    """Write a vocabulary for :func:`read_vocabulary`."""
    for name in (*vocabulary.labels, *vocabulary.attributes):
        if "\n" in name or "\r" in name:
            raise ValueError(f"the name {shown(name)} has a line end: rename it.")
    with atomic_text(target) as out:
        out.writelines(f"label\t{name}\n" for name in vocabulary.labels)
        out.writelines(f"attribute\t{name}\n" for name in vocabulary.attributes)


# Built-in: handwritten dates, composed from scikit-learn's digit images, and short notes.

LENGTH, FIRST_TEST_IMAGE = 8, 900  # days in a sequence; images before are for training only


@dataclass(frozen=True)
class DigitDates:
    """Sequences of handwritten digits, with their labels and their origin."""

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

    Only the last digit of each date is read: Thursday 29, Friday 30, Monday 2, Tuesday 3 gives 9,
    0, 2, 3. Digits rise by one, by three over a weekend, and start again with each month, by the
    calendar of 2000 to 2029. The images, 8 × 8 pixels, are real: the first 900 are used only for
    training, the other 897 only for testing, drawn with replacement. The digits of a sequence are
    usually from different hands.

    Parameters
    ----------
    n_train, n_test : int, sequences to compose; those for training do not depend on ``n_test``
    noise : float, default=0.0
        Standard deviation of Gaussian noise added to every pixel; 0.3 makes them hard to read.
    random_state : int, RandomState or None; for days, images and noise

    Examples
    --------
    >>> data = load_digit_dates(n_train=3, n_test=1)
    >>> len(data.X_train), data.X_train[0].shape, data.y_train[0].shape
    (3, (8, 64), (8,))
    >>> [int(day[-1]) for day in data.dates_train[0]] == data.y_train[0].tolist()
    True
    """
    whole_number("n_train", n_train, 1)
    whole_number("n_test", n_test, 1)
    if not (noise >= 0.0 and math.isfinite(noise)):
        raise ValueError(f"noise must be a finite number that is not negative, got {noise!r}.")
    from sklearn.datasets import load_digits  # slow to import, and nobody else wants it

    images, digits = load_digits(return_X_y=True)
    images = images / 16.0  # full ink
    train_seed, test_seed = check_random_state(random_state).randint(2**31 - 1, size=2)
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
    days = np.arange("2000-01-01", "2030-01-01", dtype="datetime64[D]")
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


# fmt: off
_FIRST = ("Ana", "Boris", "Chen", "Dora", "Emil", "Fatima", "Goran", "Hana", "Igor", "Jana", "Kofi")
_LAST = ("Almeida", "Berg", "Castro", "Duarte", "Ek", "Fuchs", "Garcia", "Horvat", "Keller", "Ito")
_PLACES = ("Porto", "New York", "San Marino", "Bergen", "Cape Town", "Leiden", "Graz", "San Remo",
           "New Haven", "Tartu", "Cape Cod", "Lima")
_MONTHS = ("January", "March", "May", "July", "September", "November")
_FORMS = (
    "meet {PER} in {LOC} on {DATE}", "{PER} from {LOC} calls {PER} on {DATE}",
    "no train to {LOC} on {DATE}", "ask {PER} about the room in {LOC}",
    "{LOC} office : {PER} , since {DATE}", "in May the fair moves to {LOC}",
    "tickets for {PER} , back on {DATE}", "tickets for {LOC} , back on {DATE}",
    "visit {PER} and {PER} in {LOC}", "visit {LOC} and {LOC}",
)
# fmt: on


@dataclass(frozen=True)
class Notes:
    """Words and tags of notes, one list per note."""

    X_train: list[list[str]]
    y_train: list[list[str]]  # B-PER, I-PER, B-LOC, I-LOC, B-DATE, I-DATE and O
    X_test: list[list[str]]
    y_test: list[list[str]]


def load_notes(n_train: int = 400, n_test: int = 400, random_state: Any = 0) -> Notes:
    """Short notes, with tags for people, places and dates.

    Every other name and place of the test notes occurs in none of the training notes.

    Parameters
    ----------
    n_train, n_test : int
    random_state : int, RandomState or None, default=0

    Examples
    --------
    >>> notes = load_notes(n_train=100, n_test=1)
    >>> len(notes.X_train), len(notes.X_train[0]) == len(notes.y_train[0])
    (100, True)
    """
    whole_number("n_train", n_train, 1)
    whole_number("n_test", n_test, 1)
    rng = check_random_state(random_state)
    return Notes(*_make(n_train, rng, 2), *_make(n_test, rng, 1))


def _make(count: int, rng: Any, step: int) -> tuple[list[list[str]], list[list[str]]]:
    """Words and tags; with ``step=2`` every other name and place is left out."""

    def draw(names: tuple[str, ...]) -> str:
        return names[step * rng.randint(len(names) // step)]

    def fill(kind: str) -> str:
        if kind == "PER":
            first, last = draw(_FIRST), draw(_LAST)
            return str(rng.choice([first, f"{first} {last}", f"Dr. {last}"]))
        return draw(_PLACES) if kind == "LOC" else f"{rng.randint(1, 29)} {rng.choice(_MONTHS)}"

    X, y = [], []
    for _ in range(count):
        note: list[tuple[str, str]] = []
        for piece in _FORMS[rng.randint(len(_FORMS))].split():
            kind = piece.strip("{}")
            words = fill(kind).split() if kind != piece else [piece]
            tags = [f"{'I' if k else 'B'}-{kind}" for k in range(len(words))]
            note += zip(words, tags if kind != piece else "O", strict=True)
        X.append([word for word, _ in note])
        y.append([tag for _, tag in note])
    return X, y
