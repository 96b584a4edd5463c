"""The tasks of the benchmarks in forms that every library takes; nothing here imports ours.

The data folder is named by the environment variable ``HINGELINE_DATA`` and by nothing else. It
holds one sub-folder per data set, with the files in the formats of their publishers, gzipped.
"""

from __future__ import annotations

import gzip
import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import sparse
from sklearn.datasets import load_svmlight_file
from sklearn.feature_extraction.text import TfidfTransformer

DATA_VARIABLE = "HINGELINE_DATA"
NEWS20_FEATURES = 62_061
LETTER_FEATURES = 16
HOLD_OUT_SEED = 0

Attributes = list[list[str]]
"""One sequence: the attribute strings of each of its tokens."""


class BenchmarkError(RuntimeError):
    """A benchmark cannot go on; the message is one sentence for the user."""


class OcrWord(NamedTuple):
    """One handwritten word: pixels of shape (letters, 128), its letters, its fold."""

    pixels: np.ndarray
    labels: list[str]
    fold: int


class FlatData(NamedTuple):
    """A multi-class problem with a training and a test part."""

    train: sparse.csr_matrix
    train_labels: np.ndarray
    test: sparse.csr_matrix
    test_labels: np.ndarray


class Encoded(NamedTuple):
    """Stacked tokens as a sparse matrix, the length of every sequence, attribute -> column."""

    matrix: sparse.csr_matrix
    lengths: np.ndarray
    vocabulary: dict[str, int]


@dataclass(frozen=True)
class ChainData:
    """A sequence labelling task as attribute strings, the form that every peer accepts.

    Parameters
    ----------
    name : str
        Name for tables and files.
    train_attributes, test_attributes : list of list of list of str
        Attributes of each token of each sequence.
    train_labels, test_labels : list of list of str
        One label per token.
    score_name : str
        What `score` measures.
    score : callable
        ``score(true, predicted)``, a percentage.
    """

    name: str
    train_attributes: list[Attributes]
    train_labels: list[list[str]]
    test_attributes: list[Attributes]
    test_labels: list[list[str]]
    score_name: str
    score: Callable[[Sequence[Sequence[str]], Sequence[Sequence[str]]], float]

    def prefix(self, n: int) -> ChainData:
        """Return the same task with only the first `n` training sequences."""
        return ChainData(
            self.name,
            self.train_attributes[:n],
            self.train_labels[:n],
            self.test_attributes,
            self.test_labels,
            self.score_name,
            self.score,
        )


#: Path and size and time of the files whose sums were right in this process.
_verified: set[tuple[str, int, int]] = set()


@cache
def known_sums() -> dict[str, str]:
    """Return path below the data folder -> SHA-256 of the file that is meant."""
    lines = Path(__file__).with_name("sums.sha256").read_text(encoding="ascii").splitlines()
    return {name: digest for digest, name in (line.split("  ") for line in lines)}


def data_file(name: str, folder: str | os.PathLike[str] | None = None, check: bool = True) -> Path:
    """Return the path of a data file, or raise `BenchmarkError` with what to do.

    Parameters
    ----------
    name : str
        Below the data folder, such as ``"conll2000/train.txt.gz"``.
    folder : path, optional
        The data folder. Default: the environment variable ``HINGELINE_DATA``.
    check : bool, default=True
        Compare the file's SHA-256 sum with the known one, once per process.
    """
    root = folder if folder is not None else os.environ.get(DATA_VARIABLE)
    if not root:
        raise BenchmarkError(f"Set the environment variable {DATA_VARIABLE} to the data folder.")
    path = Path(root, name)
    if not path.is_file():
        raise BenchmarkError(f"The data folder {root} has no file {name}: put it there.")
    status = path.stat()
    key = (str(path.resolve()), status.st_size, status.st_mtime_ns)
    if check and key not in _verified:
        with open(path, "rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found != known_sums()[name]:
            raise BenchmarkError(
                f"{path} is not the file that is meant: its SHA-256 is {found}, not "
                f"{known_sums()[name]}; fetch it again, or pass check=False to read it anyway."
            )
        _verified.add(key)
    return path


# --- CoNLL-2000 ------------------------------------------------------------------------------


def conll2000(part: str) -> list[list[tuple[str, str, str]]]:
    """Read the ``"train"`` or ``"test"`` sentences as lists of (word, pos, chunk)."""
    sentences: list[list[tuple[str, str, str]]] = [[]]
    with gzip.open(data_file(f"conll2000/{part}.txt.gz"), "rt", encoding="utf-8") as lines:
        for line in lines:
            fields = line.split()
            if fields:
                word, pos, chunk = fields
                sentences[-1].append((word, pos, chunk))
            elif sentences[-1]:
                sentences.append([])
    if not sentences[-1]:
        sentences.pop()
    return sentences


def chunking_features(sentence: Sequence[tuple[str, str, str]]) -> Attributes:
    """Return the attributes of every token under CRFsuite's chunking template.

    Words at -2..2 and the two pairs around the token, parts of speech at -2..2 with their
    neighbouring pairs and triples, and a mark on the first and the last token. A template that
    reaches beyond the sentence gives no attribute. The training part of CoNLL-2000 has 335,674
    distinct attributes.
    """
    words = [token[0] for token in sentence]
    tags = [token[1] for token in sentence]
    length = len(sentence)
    features: Attributes = [[] for _ in sentence]
    for values, name, width in (
        (words, "w", 1),
        (words, "w", 2),
        (tags, "pos", 1),
        (tags, "pos", 2),
        (tags, "pos", 3),
    ):
        joined = ["|".join(values[k : k + width]) for k in range(length - width + 1)]
        first, last = (-1, 0) if (name, width) == ("w", 2) else (-2, 3 - width)
        for offset in range(first, last + 1):
            prefix = "|".join(f"{name}[{offset + k}]" for k in range(width)) + "="
            for position in range(max(0, -offset), min(length, len(joined) - offset)):
                features[position].append(prefix + joined[position + offset])
    if features:
        features[0].append("__BOS__")
        features[-1].append("__EOS__")
    return features


def conll2000_task(limit: int | None = None) -> ChainData:
    """Return CoNLL-2000 chunking with `chunking_features`; `limit` cuts both parts."""
    train, test = conll2000("train")[:limit], conll2000("test")[:limit]
    return ChainData(
        "CoNLL-2000",
        [chunking_features(sentence) for sentence in train],
        [[token[2] for token in sentence] for sentence in train],
        [chunking_features(sentence) for sentence in test],
        [[token[2] for token in sentence] for sentence in test],
        "chunk F1 %",
        lambda true, predicted: 100.0 * span_f1(true, predicted),
    )


# --- attribute strings to a sparse matrix ----------------------------------------------------


def encode_attributes(
    sequences: Sequence[Attributes], vocabulary: dict[str, int] | None = None
) -> Encoded:
    """Encode attribute strings as a sparse matrix of ones, tokens stacked.

    Parameters
    ----------
    sequences : sequence of list of list of str
        Attributes of each token of each sequence.
    vocabulary : dict, optional
        Column of every known attribute; others are ignored. Without it, columns are numbered
        in the order of first occurrence.

    Returns
    -------
    Encoded
        Matrix (float64, sorted indices), lengths and vocabulary.
    """
    lengths = np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences))
    tokens = list(chain.from_iterable(sequences))
    indptr = np.zeros(len(tokens) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, tokens), dtype=np.int64, count=len(tokens)), out=indptr[1:])
    flat: Iterable[str] = chain.from_iterable(tokens)
    if vocabulary is None:
        growing: defaultdict[str, int] = defaultdict()
        growing.default_factory = growing.__len__
        indices = np.fromiter(map(growing.__getitem__, flat), dtype=np.int32, count=indptr[-1])
        vocabulary = dict(growing)
    else:
        known = vocabulary.get
        indices = np.fromiter((known(a, -1) for a in flat), dtype=np.int32, count=indptr[-1])
        kept = indices >= 0
        indptr = np.concatenate([[0], np.cumsum(kept)])[indptr]
        indices = indices[kept]
    shape = (len(tokens), len(vocabulary))
    matrix = sparse.csr_matrix((np.ones(len(indices)), indices, indptr), shape=shape)
    matrix.sort_indices()
    return Encoded(matrix, lengths, vocabulary)


# --- OCR letters -----------------------------------------------------------------------------


def ocr() -> list[OcrWord]:
    """Read the handwritten words, in the order of the file."""
    words: list[OcrWord] = []
    rows: list[bytes] = []
    letters: list[str] = []
    with gzip.open(data_file("ocr_letters/letter.data.gz"), "rb") as lines:
        for line in lines:
            _, letter, following, _, _, fold, pixels = line.split(b"\t", 6)
            letters.append(letter.decode())
            rows.append(pixels[:256:2])
            if following == b"-1":
                image = np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(-1, 128) - ord("0")
                words.append(OcrWord(image, letters, int(fold)))
                rows, letters = [], []
    return words


def ocr_attributes(word: OcrWord) -> Attributes:
    """Return the lit pixels of every letter and a bias, as attribute strings."""
    return [["bias", *(f"p{k}" for k in np.flatnonzero(row))] for row in word.pixels]


def ocr_task(train_folds: Iterable[int], limit: int | None = None) -> ChainData:
    """Return the OCR task that trains on `train_folds` and tests on the other folds."""
    folds = set(train_folds)
    words = ocr()
    train = [word for word in words if word.fold in folds][:limit]
    test = [word for word in words if word.fold not in folds][:limit]
    return ChainData(
        "OCR letters",
        [ocr_attributes(word) for word in train],
        [word.labels for word in train],
        [ocr_attributes(word) for word in test],
        [word.labels for word in test],
        "letters %",
        lambda true, predicted: 100.0 * token_accuracy(true, predicted),
    )


# --- multi-class data ------------------------------------------------------------------------


def _idx(name: str, header: int) -> np.ndarray:
    with gzip.open(data_file(f"mnist/{name}.gz"), "rb") as stream:
        return np.frombuffer(stream.read(), dtype=np.uint8, offset=header)


def _mnist_part(name: str) -> tuple[sparse.csr_matrix, np.ndarray]:
    pixels = sparse.csr_matrix(_idx(f"{name}-images-idx3-ubyte", 16).reshape(-1, 784))
    labels = _idx(f"{name}-labels-idx1-ubyte", 8).astype(np.int64)
    return sparse.csr_matrix(pixels.astype(np.float64) / 255.0), labels


def mnist() -> FlatData:
    """Read MNIST: sparse pixels divided by 255, digits 0 to 9."""
    return FlatData(*_mnist_part("train"), *_mnist_part("t10k"))


def _svmlight(name: str, n_features: int) -> tuple[sparse.csr_matrix, np.ndarray]:
    path = data_file(f"multiclass/{name}.gz")
    matrix, labels = load_svmlight_file(str(path), n_features=n_features, zero_based=False)
    return sparse.csr_matrix(matrix), labels.astype(np.int64)


def news20() -> tuple[sparse.csr_matrix, np.ndarray]:
    """Read the raw word counts and the labels 1 to 20 of news20 (its training part)."""
    return _svmlight("news20", NEWS20_FEATURES)


def news20_split() -> FlatData:
    """Return raw news20 with a fixed random fifth held out."""
    counts, labels = news20()
    order = np.random.default_rng(HOLD_OUT_SEED).permutation(len(labels))
    test, train = np.split(order, [len(labels) // 5])
    return FlatData(counts[train], labels[train], counts[test], labels[test])


def news20_tfidf() -> FlatData:
    """Return `news20_split` as tf-idf rows of unit length; idf from the training part."""
    raw = news20_split()
    transformer = TfidfTransformer().fit(raw.train)
    train, test = (sparse.csr_matrix(transformer.transform(x)) for x in (raw.train, raw.test))
    return FlatData(train, raw.train_labels, test, raw.test_labels)


def letter() -> FlatData:
    """Read letter.scale: 15,000 training and 5,000 test rows, labels 1 to 26."""
    return FlatData(
        *_svmlight("letter.scale", LETTER_FEATURES), *_svmlight("letter.scale.t", LETTER_FEATURES)
    )


def with_constant(matrix: sparse.csr_matrix) -> sparse.csr_matrix:
    """Append a column of ones, so that the bias is an ordinary regularised weight."""
    constant = sparse.csr_matrix(np.ones((matrix.shape[0], 1)))
    return sparse.csr_matrix(sparse.hstack([matrix, constant], format="csr"))


def with_constant_column(data: FlatData) -> FlatData:
    """Apply `with_constant` to both parts."""
    return data._replace(train=with_constant(data.train), test=with_constant(data.test))


# --- scores ----------------------------------------------------------------------------------


def token_accuracy(true: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> float:
    """Return the share of tokens with the right label."""
    gold, guess = (list(chain.from_iterable(sequences)) for sequences in (true, predicted))
    return float(np.mean([a == b for a, b in zip(gold, guess, strict=True)]))


def _spans(
    labels: list[str], first: np.ndarray, kinds: dict[str, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return for every token its span's last token and kind where a span starts, -1 elsewhere."""
    codes = {
        label: (label[:1] == "B", -1 if label == "O" else kinds.setdefault(label[2:], len(kinds)))
        for label in set(labels)
    }
    table = np.array([codes[label] for label in labels])
    begins, kind = table[:, 0].astype(bool), table[:, 1]
    inside = kind >= 0
    starts = inside & (begins | first | (kind != np.roll(kind, 1)))
    stops = inside & np.append(starts[1:] | first[1:] | ~inside[1:], True)
    ends = np.full(len(labels), -1)
    ends[starts] = np.flatnonzero(stops)
    return ends, np.where(starts, kind, -1)


def span_f1(true: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> float:
    """Return the F1 of labelled spans, read from IOB tags as conlleval does.

    A span starts at a ``B-`` tag and at an ``I-`` tag that follows ``O``, the sentence's
    beginning or a span of another kind. It counts as right when both ends and the kind agree.

    Parameters
    ----------
    true, predicted : sequence of sequence of str
        Labels of each token of each sentence, in the same order and of the same lengths.

    Returns
    -------
    float
        F1 between 0 and 1; 0 where neither side has a span.
    """
    lengths = np.array([len(sentence) for sentence in true])
    if not np.array_equal(lengths, [len(sentence) for sentence in predicted]):
        raise ValueError("true and predicted must have the same number of labels per sentence")
    total = int(lengths.sum())
    if total == 0:
        return 0.0
    first = np.zeros(total, dtype=bool)
    first[(np.cumsum(lengths) - lengths)[lengths > 0]] = True
    kinds: dict[str, int] = {}
    gold_ends, gold_kinds = _spans(list(chain.from_iterable(true)), first, kinds)
    ends, kind = _spans(list(chain.from_iterable(predicted)), first, kinds)
    right = np.sum((ends >= 0) & (ends == gold_ends) & (kind == gold_kinds))
    found = np.sum(ends >= 0) + np.sum(gold_ends >= 0)
    return float(2.0 * right / found) if found else 0.0
