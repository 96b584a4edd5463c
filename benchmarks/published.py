"""The published data sets, read by the package's own readers: text, label sets, images, digits.

Every loader takes the folder of the data collection (default: the environment variable
``HINGELINE_DATA``) and whether to compare the SHA-256 sums of the files with the known ones.
"""

from __future__ import annotations

import zipfile
import zlib
from array import array
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from datasets import LETTER_FEATURES, NEWS20_FEATURES, data_file
from hingeline.data.arff import read_arff
from hingeline.data.conll import ConlluDocument, read_conll, read_conllu
from hingeline.data.images import LetterWords, read_idx, read_letters
from hingeline.data.samples import MultilabelData
from hingeline.data.svmlight import read_multilabel, read_svmlight
from hingeline.data.text import open_text
from hingeline.data.trees import Tree, read_trees
from hingeline.features.tables import TokenTable

Array = np.ndarray[Any, Any]

#: Data sets of :func:`load_multilabel`.
MULTILABEL = ("yeast", "scene", "emotions", "enron", "medical", "bibtex", "reuters21578")

_REUTERS = "multilabel/reuters21578"
_TAGGED = ("word", "label")
_SPLITS = 5


@dataclass(frozen=True)
class TaggedText:
    """Sentences in columns, in the parts of a data set.

    Attributes
    ----------
    train, test : TokenTable
    dev : TokenTable or None
        For tuning, where the data set has such a part.
    """

    train: TokenTable
    test: TokenTable
    dev: TokenTable | None = None


def load_ocr_letters(folder: Any = None, check: bool = True) -> LetterWords:
    """Handwritten words of Kassel as prepared by Taskar: 6,877 words, 26 letters, 10 folds.

    The usual protocols train on fold 0 and test on the others, or the reverse.

    Returns
    -------
    LetterWords
    """
    return read_letters(data_file("ocr_letters/letter.data.gz", folder, check))


def load_conll2000(folder: Any = None, check: bool = True) -> TaggedText:
    """Chunking of CoNLL-2000: 8,936 / 2,012 sentences, columns ``word, pos, chunk``."""
    train, test = (
        read_conll(data_file(f"conll2000/{part}.txt.gz", folder, check), ("word", "pos", "chunk"))
        for part in ("train", "test")
    )
    return TaggedText(train, test)


def load_conll2002(folder: Any = None, check: bool = True) -> TaggedText:
    """Spanish names of CoNLL-2002: 8,323 / 1,915 / 1,517 sentences, ``word, pos, entity``.

    dev is ``esp.testa``, test is ``esp.testb``.
    """
    train, dev, test = (
        read_conll(data_file(f"conll2002/esp.{part}.gz", folder, check), ("word", "pos", "entity"))
        for part in ("train", "testa", "testb")
    )
    return TaggedText(train, test, dev)


@dataclass(frozen=True)
class Citations:
    """Citations with their fields.

    Attributes
    ----------
    train, dev, test : TokenTable
        Columns ``word, label``.
    unlabelled : TokenTable
        Column ``word``.
    small : tuple of TokenTable
        Five random choices of 25 training citations.
    """

    train: TokenTable
    dev: TokenTable
    test: TokenTable
    unlabelled: TokenTable
    small: tuple[TokenTable, ...]


def load_citations(folder: Any = None, check: bool = True) -> Citations:
    """Fields of citations: 300 / 100 / 100 labelled and 1,000 unlabelled, 13 labels."""

    def part(name: str, names: tuple[str, ...] = _TAGGED) -> TokenTable:
        return read_conll(data_file(f"citations/citations_{name}.gz", folder, check), names, "\t")

    return Citations(
        part("train.tsv"),
        part("dev.tsv"),
        part("test.tsv"),
        part("unlabelled.txt", ("word",)),
        tuple(part(f"train25_{k}.tsv") for k in range(_SPLITS)),
    )


def load_umass_citations(folder: Any = None, check: bool = True) -> TaggedText:
    """Fields of citations (UMass): 1,448 / 655 / 362, 31 labels, columns ``word, label``."""
    train, dev, test = (
        read_conll(data_file(f"umass_citations/{part}.tsv.gz", folder, check), _TAGGED, "\t")
        for part in ("train", "dev", "test")
    )
    return TaggedText(train, test, dev)


@dataclass(frozen=True)
class Seminars:
    """Announcements of seminars.

    Attributes
    ----------
    documents : TokenTable
        One "sentence" per announcement, columns ``word, label``.
    names : list of str
        Names of the documents.
    roles : ndarray of str of shape (documents, 5)
        ``"labelled"``, ``"unlabelled"``, ``"test"`` or ``"-"`` (unused) in each split.
    """

    documents: TokenTable
    names: list[str]
    roles: Array

    def split(self, number: int) -> tuple[TokenTable, TokenTable, TokenTable]:
        """Labelled, unlabelled and test documents of split 0 to 4; all keep their labels."""
        if not 0 <= number < self.roles.shape[1]:
            raise ValueError(f"number must be from 0 to {self.roles.shape[1] - 1}, got {number!r}.")
        role = self.roles[:, number]
        labelled, unlabelled, test = (
            self.documents[role == name] for name in ("labelled", "unlabelled", "test")
        )
        return labelled, unlabelled, test


def load_seminars(folder: Any = None, check: bool = True) -> Seminars:
    """Announcements of seminars: 485 documents, 9 tags, five splits of 25 / 313 / 145."""
    documents = read_conll(data_file("seminars/seminars.tsv.gz", folder, check), _TAGGED, "\t")
    rows = _read_list(data_file("seminars/splits.tsv", folder, check), _SPLITS + 1)
    return Seminars(documents, [row[0] for row in rows], np.array([row[1:] for row in rows]))


@dataclass(frozen=True)
class Brown:
    """The Brown corpus.

    Attributes
    ----------
    table : TokenTable
        Columns ``word, tag``.
    files : list of str
        Names of the 500 texts.
    genres : list of str
        Genre of each text.
    file_of : int64 ndarray of shape (sentences,)
        Number of the text each sentence is from.
    """

    table: TokenTable
    files: list[str]
    genres: list[str]
    file_of: Array


def load_brown(folder: Any = None, check: bool = True) -> Brown:
    """Part-of-speech tags of the Brown corpus: 57,340 sentences, 472 tags, 500 texts, 15 genres."""
    table = read_conll(
        data_file("brown/brown_tagged.tsv.gz", folder, check), ("word", "tag"), separator="\t"
    )
    rows = _read_list(data_file("brown/files.tsv", folder, check), 4)
    return Brown(
        table,
        [row[0] for row in rows],
        [row[1] for row in rows],
        np.repeat(np.arange(len(rows)), [int(row[2]) for row in rows]),
    )


@dataclass(frozen=True)
class TreebankSample:
    """The sample of the Penn Treebank.

    Attributes
    ----------
    trees : list of Tree
        With traces (leaves ``-NONE-``).
    tagged : TokenTable
        Columns ``word, tag``, without traces.
    dependencies : TokenTable
        Columns ``word, tag, head``; heads count words from 1, 0 is the root.
    files : list of str
        Names of the 199 files.
    file_of : int64 ndarray of shape (sentences,)
        Number of the file each sentence is from.
    """

    trees: list[Tree]
    tagged: TokenTable
    dependencies: TokenTable
    files: list[str]
    file_of: Array


def load_treebank_sample(folder: Any = None, check: bool = True) -> TreebankSample:
    """Trees, tags and dependencies of 3,914 sentences of the Penn Treebank."""
    rows = _read_list(data_file("treebank_sample/files.tsv", folder, check), 3)
    tagged = data_file("treebank_sample/wsj_sample_tagged.tsv.gz", folder, check)
    dependencies = data_file("treebank_sample/wsj_sample.dp.gz", folder, check)
    return TreebankSample(
        read_trees(data_file("treebank_sample/wsj_sample.mrg.gz", folder, check)),
        read_conll(tagged, ("word", "tag"), "\t"),
        read_conll(dependencies, ("word", "tag", "head"), "\t"),
        [row[0] for row in rows],
        np.repeat(np.arange(len(rows)), [int(row[1]) for row in rows]),
    )


@dataclass(frozen=True)
class UniversalDependencies:
    """A treebank of Universal Dependencies.

    Attributes
    ----------
    train, dev, test : ConlluDocument
        Their ``table`` has the words, with all columns but the number.
    """

    train: ConlluDocument
    dev: ConlluDocument
    test: ConlluDocument


def load_ud_english_ewt(folder: Any = None, check: bool = True) -> UniversalDependencies:
    """English Web Treebank, release 2.16: 12,544 / 2,001 / 2,077 sentences."""
    train, dev, test = (
        read_conllu(data_file(f"ud_english_ewt/en_ewt-ud-{part}.conllu.gz", folder, check))
        for part in ("train", "dev", "test")
    )
    return UniversalDependencies(train, dev, test)


def _read_list(file: Any, width: int) -> list[list[str]]:
    """Rows of a small table with a header, separated by tabs."""
    rows = []
    with open_text(file) as text:
        for _, line in text.lines():
            row = line.split("\t")
            if len(row) != width:
                what = f"expected {width} fields, found {len(row)}"
                raise text.error(f"{what}; fetch the file again.")
            rows.append(row)
    return rows[1:]


# Rows ----------------------------------------


class FlatSplit(NamedTuple):
    """A multi-class problem in two parts.

    Attributes
    ----------
    X_train, X_test : csr_matrix or ndarray of shape (rows, features)
    y_train, y_test : int64 ndarray of shape (rows,)
    """

    X_train: Any
    y_train: Array
    X_test: Any
    y_test: Array


class MultilabelSplit(NamedTuple):
    """A multi-label problem in two parts.

    Attributes
    ----------
    X_train, X_test : csr_matrix or ndarray of shape (rows, features)
        Dense where the features are real numbers.
    Y_train, Y_test : uint8 ndarray of shape (rows, labels)
        1 where a row has a label.
    feature_names, label_names : list of str
    """

    X_train: Any
    Y_train: Array
    X_test: Any
    Y_test: Array
    feature_names: list[str]
    label_names: list[str]


def load_multilabel(name: str, folder: Any = None, check: bool = True) -> MultilabelSplit:
    """A multi-label data set in its published split.

    Parameters
    ----------
    name : {"yeast", "scene", "emotions", "enron", "medical", "bibtex", "reuters21578"}

    Returns
    -------
    MultilabelSplit
    """
    if name not in MULTILABEL:
        raise ValueError(f"name must be one of {', '.join(MULTILABEL)}, got {name!r}.")
    if name == "reuters21578":
        return _load_reuters(folder, check)
    labels = data_file(f"multilabel/{name}/{name}.xml", folder, check)
    train, test = (
        read_arff(data_file(f"multilabel/{name}/{name}-{part}.arff.gz", folder, check), labels)
        for part in ("train", "test")
    )
    return _split(train, test, train.feature_names or [], train.label_names or [])


def _load_reuters(folder: Any, check: bool) -> MultilabelSplit:
    words = _read_names(data_file(f"{_REUTERS}/vocabulary.txt.gz", folder, check))
    topics = _read_names(data_file(f"{_REUTERS}/labels.txt", folder, check))
    train, test = (
        read_multilabel(
            data_file(f"{_REUTERS}/reuters21578_modapte90_{part}.svm.gz", folder, check),
            n_features=len(words),
            n_labels=len(topics),
            zero_based=False,
        )
        for part in ("train", "test")
    )
    return _split(train, test, words, topics)


def _split(
    train: MultilabelData, test: MultilabelData, features: list[str], labels: list[str]
) -> MultilabelSplit:
    return MultilabelSplit(train.X, train.Y.toarray(), test.X, test.Y.toarray(), features, labels)


def _read_names(file: Path) -> list[str]:
    with open_text(file) as text:
        return [line for _, line in text.lines()]


# Images as graphs -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Superpixels:
    """Images cut into superpixels, with the graph of neighbours.

    Attributes
    ----------
    features : float16 ndarray of shape (superpixels, features)
    node_ptr : int32 ndarray of shape (images + 1,)
        Image i has the superpixels ``node_ptr[i]`` to ``node_ptr[i + 1] − 1``.
    edges : int16 ndarray of shape (edges, 2)
        Neighbours a < b, numbered within their image.
    edge_ptr : int32 ndarray of shape (images + 1,)
    edge_boundary : int16 ndarray of shape (edges,)
        Length of the shared boundary in pixels.
    labels : int8 ndarray of shape (superpixels,)
        Most frequent class, -1 for void.
    pixel_counts : uint16 ndarray of shape (superpixels, classes + 1)
        Pixels of each class, void last.
    image_shape : int16 ndarray of shape (images, 2)
    image_id : ndarray of str of shape (images,)
    classes : ndarray of str of shape (classes,)
    split : int8 ndarray of shape (images,)
        0 for training, 1 for tuning, 2 for testing.
    """

    features: Array
    node_ptr: Array
    edges: Array
    edge_ptr: Array
    edge_boundary: Array
    labels: Array
    pixel_counts: Array
    image_shape: Array
    image_id: Array
    classes: Array
    split: Array

    def images(self, split: int) -> Array:
        """Numbers of the images of a part: 0 training, 1 tuning, 2 testing."""
        return np.flatnonzero(self.split == split)


def load_msrc21(folder: Any = None, check: bool = True) -> Superpixels:
    """MSRC-21: 591 images (238 / 58 / 295), 21 classes and void."""
    return _load_superpixels(data_file("msrc21/msrc21_superpixels.npz", folder, check))


def load_weizmann_horses(folder: Any = None, check: bool = True) -> Superpixels:
    """Weizmann horses: 328 images (131 / 33 / 164), 2 classes."""
    name = "weizmann_horses/weizmann_horses_superpixels.npz"
    return _load_superpixels(data_file(name, folder, check))


def _load_superpixels(file: Path) -> Superpixels:
    names = [field.name for field in fields(Superpixels)]
    return Superpixels(**_load_arrays(file, names))


def _load_arrays(file: Path, names: list[str]) -> dict[str, Array]:
    try:
        # NumPy leaves a file open that it opened and could not read.
        with open(file, "rb") as stream, np.load(stream, allow_pickle=False) as archive:
            return {name: archive[name] for name in names}
    except (KeyError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{file}: the archive cannot be read ({error}); fetch it again.") from None


class GridImages(NamedTuple):
    """Small images, one label per pixel, row by row.

    Attributes
    ----------
    pixels : uint8 ndarray of shape (pixels, 3)
    labels : int8 ndarray of shape (pixels,)
    shape : int16 ndarray of shape (images, 2)
        Rows and columns.
    ptr : int32 ndarray of shape (images + 1,)
        Image i has the pixels ``ptr[i]`` to ``ptr[i + 1] − 1``.
    """

    pixels: Array
    labels: Array
    shape: Array
    ptr: Array


class Snakes(NamedTuple):
    """The snakes data, in two parts; label 0 is background, 1 to 10 the place in the snake."""

    train: GridImages
    test: GridImages


def load_snakes(folder: Any = None, check: bool = True) -> Snakes:
    """Snakes: 200 / 100 images of five colours, 11 labels."""
    file = data_file("snakes/snakes.npz", folder, check)
    parts = []
    for part in ("train", "test"):
        names = [f"{field}_{part}" for field in GridImages._fields]
        parts.append(GridImages(*_load_arrays(file, names).values()))
    return Snakes(*parts)


# Flat data --------------------------------------------------------------------------------------


def load_mnist(folder: Any = None, check: bool = True) -> FlatSplit:
    """MNIST: 60,000 / 10,000 digits, 784 pixels from 0 to 255 as uint8 arrays."""
    parts = []
    for part in ("train", "t10k"):
        images = read_idx(data_file(f"mnist/{part}-images-idx3-ubyte.gz", folder, check))
        labels = read_idx(data_file(f"mnist/{part}-labels-idx1-ubyte.gz", folder, check))
        parts += [images.reshape(len(images), -1), labels.astype(np.int64)]
    return FlatSplit(*parts)


def load_usps(folder: Any = None, check: bool = True) -> FlatSplit:
    """USPS digits: 7,291 / 2,007 images of 16 × 16 pixels from -1 to 1."""
    parts = []
    for part in ("train", "test"):
        parts += _read_numbers(data_file(f"multiclass/zip.{part}.gz", folder, check), 257)
    return FlatSplit(*parts)


def _read_numbers(file: Path, width: int) -> list[Array]:
    """Rows ``label value value …``: values and labels."""
    numbers = array("d")
    with open_text(file) as text:
        for first, lines in text.blocks():
            for number, line in enumerate(lines, first):
                row = line.split()
                try:
                    numbers.extend(map(float, row))
                except ValueError:
                    row = []
                if len(row) != width:
                    raise text.error(f"expected {width} numbers; fetch the file again.", number)
    table = np.array(numbers).reshape(-1, width)
    return [table[:, 1:], table[:, 0].astype(np.int64)]


def load_letter(folder: Any = None, check: bool = True) -> FlatSplit:
    """Letters of Frey and Slate, scaled: 15,000 / 5,000 rows, 16 features, labels 1 to 26."""
    parts: list[Any] = []
    for name in ("letter.scale", "letter.scale.t"):
        file = data_file(f"multiclass/{name}.gz", folder, check)
        data = read_svmlight(file, n_features=LETTER_FEATURES, zero_based=False)
        parts += [data.X, data.y]
    return FlatSplit(*parts)


def load_news20(folder: Any = None, check: bool = True) -> tuple[sp.csr_matrix, Array]:
    """Twenty newsgroups: 15,935 documents as counts of 62,061 words, labels 1 to 20.

    There is no test part: hold out some of the rows.

    Returns
    -------
    X : csr_matrix of shape (15935, 62061)
    y : int64 ndarray of shape (15935,)
    """
    file = data_file("multiclass/news20.gz", folder, check)
    data = read_svmlight(file, n_features=NEWS20_FEATURES, zero_based=False)
    return data.X, data.y
