"""What readers return: labelled rows, label sets, labelled sequences, and a vocabulary."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from hingeline._checks import Array, require
from hingeline.data.text import File, atomic_text, open_text, shown
from hingeline.features.tables import SparseSequences


class FlatData(NamedTuple):
    """Labelled rows."""

    X: sp.csr_matrix
    y: Array | None  # integers if all labels are whole, else floats; None for images without
    qid: Array | None = None  # query numbers, where the file has them
    comments: list[str] | None = None  # what followed # in each row, where any row has it


class MultilabelData(NamedTuple):
    """Rows with any number of labels, and names where the format has them.

    Y is 1 where a row has a label. It is sparse, because a file of a few bytes can name a huge
    label; ``Y.toarray()`` is the usual indicator matrix.
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

    def line_of(self, entry: int) -> int:
        """The line that an entry of the matrix comes from."""
        return self.lines[int(np.searchsorted(self.starts, entry, side="right")) - 1]

    def matrix(self, width: int, first: int = 0) -> sp.csr_matrix:
        """All rows; ``first`` is the index of the first column."""
        indices = (np.array(self.indices) - first).astype(np.int32)
        parts = (np.array(self.values), indices, np.array(self.starts))
        return sp.csr_matrix(parts, shape=(len(self.lines), width))


@dataclass(frozen=True)
class Vocabulary:
    """Names in the order of their numbers.

    Attribute k is column k of a matrix and number k + 1 in a file; if there are none, numbers are
    their own names. Label k has the number k + 1 in a file.

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
        """All names in some sequences: attributes as they first occur, labels sorted."""
        labels = tuple(sorted(set(chain.from_iterable(data.y))))
        if isinstance(data.X, SparseSequences):
            return cls((), labels)
        tokens = chain.from_iterable(data.X)
        return cls(tuple(dict.fromkeys(chain.from_iterable(tokens))), labels)

    def encode(self, data: LabelledSequences) -> LabelledSequences:
        """The sequences with numbers for names; attributes that have none are left out."""
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
        """The sequences with names for numbers; the inverse of :meth:`encode`."""
        matrix, names = data.X.matrix, self.attributes
        highest = int(matrix.indices.max(initial=-1)) + 1
        what = f"there is a feature {highest}, but the vocabulary has {len(names)} attributes: use"
        require(not names or highest <= len(names), f"{what} the one made from the training data.")
        labels = {str(k + 1): label for k, label in enumerate(self.labels)}
        indices, values = matrix.indices.tolist(), matrix.data.tolist()
        tokens = [
            {
                names[k] if names else str(k + 1): value
                for k, value in zip(indices[lo:hi], values[lo:hi], strict=True)
            }
            for lo, hi in pairwise(matrix.indptr.tolist())
        ]
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
