"""Published data sets of feature vectors and images: label sets, superpixels, digits, topics."""

from __future__ import annotations

import zipfile
import zlib
from array import array
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from hingeline.data.arff import read_arff
from hingeline.data.collection import data_file
from hingeline.data.idx import read_idx
from hingeline.data.samples import MultilabelData
from hingeline.data.svmlight import read_multilabel, read_svmlight
from hingeline.data.text import open_text

Array = np.ndarray[Any, Any]

#: Data sets of :func:`load_multilabel`.
MULTILABEL = ("yeast", "scene", "emotions", "enron", "medical", "bibtex", "reuters21578")

_NEWS20_FEATURES = 62_061
_LETTER_FEATURES = 16
_REUTERS = "multilabel/reuters21578"


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


def load_multilabel(name: str, path: Any = None, check: bool = True) -> MultilabelSplit:
    """A multi-label data set in its published split.

    Parameters
    ----------
    name : {"yeast", "scene", "emotions", "enron", "medical", "bibtex", "reuters21578"}
    path : path, optional
        Folder of the data collection. Default: the environment variable ``HINGELINE_DATA``.
    check : bool, default=True
        Compare the SHA-256 sums of the files with the known ones, once per process.

    Returns
    -------
    MultilabelSplit
    """
    if name not in MULTILABEL:
        raise ValueError(f"name must be one of {', '.join(MULTILABEL)}, got {name!r}.")
    if name == "reuters21578":
        return _load_reuters(path, check)
    labels = data_file(f"multilabel/{name}/{name}.xml", path, check)
    train, test = (
        read_arff(data_file(f"multilabel/{name}/{name}-{part}.arff.gz", path, check), labels)
        for part in ("train", "test")
    )
    return _split(train, test, train.feature_names or [], train.label_names or [])


def _load_reuters(path: Any, check: bool) -> MultilabelSplit:
    words = _read_names(data_file(f"{_REUTERS}/vocabulary.txt.gz", path, check))
    topics = _read_names(data_file(f"{_REUTERS}/labels.txt", path, check))
    train, test = (
        read_multilabel(
            data_file(f"{_REUTERS}/reuters21578_modapte90_{part}.svm.gz", path, check),
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


def load_msrc21(path: Any = None, check: bool = True) -> Superpixels:
    """MSRC-21: 591 images (238 / 58 / 295), 21 classes and void.

    Parameters as in :func:`load_multilabel`.
    """
    return _load_superpixels(data_file("msrc21/msrc21_superpixels.npz", path, check))


def load_weizmann_horses(path: Any = None, check: bool = True) -> Superpixels:
    """Weizmann horses: 328 images (131 / 33 / 164), 2 classes.

    Parameters as in :func:`load_multilabel`.
    """
    name = "weizmann_horses/weizmann_horses_superpixels.npz"
    return _load_superpixels(data_file(name, path, check))


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


def load_snakes(path: Any = None, check: bool = True) -> Snakes:
    """Snakes: 200 / 100 images of five colours, 11 labels.

    Parameters as in :func:`load_multilabel`.
    """
    file = data_file("snakes/snakes.npz", path, check)
    parts = []
    for part in ("train", "test"):
        names = [f"{field}_{part}" for field in GridImages._fields]
        parts.append(GridImages(*_load_arrays(file, names).values()))
    return Snakes(*parts)


# Flat data --------------------------------------------------------------------------------------


def load_mnist(path: Any = None, check: bool = True) -> FlatSplit:
    """MNIST: 60,000 / 10,000 digits, 784 pixels from 0 to 255 as uint8 arrays.

    Parameters as in :func:`load_multilabel`.
    """
    parts = []
    for part in ("train", "t10k"):
        images = read_idx(data_file(f"mnist/{part}-images-idx3-ubyte.gz", path, check))
        labels = read_idx(data_file(f"mnist/{part}-labels-idx1-ubyte.gz", path, check))
        parts += [images.reshape(len(images), -1), labels.astype(np.int64)]
    return FlatSplit(*parts)


def load_usps(path: Any = None, check: bool = True) -> FlatSplit:
    """USPS digits: 7,291 / 2,007 images of 16 × 16 pixels from -1 to 1.

    Parameters as in :func:`load_multilabel`.
    """
    parts = []
    for part in ("train", "test"):
        parts += _read_numbers(data_file(f"multiclass/zip.{part}.gz", path, check), 257)
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
                    raise text.error(number, f"expected {width} numbers; fetch the file again.")
    table = np.array(numbers).reshape(-1, width)
    return [table[:, 1:], table[:, 0].astype(np.int64)]


def load_letter(path: Any = None, check: bool = True) -> FlatSplit:
    """Letters of Frey and Slate, scaled: 15,000 / 5,000 rows, 16 features, labels 1 to 26.

    Parameters as in :func:`load_multilabel`.
    """
    parts: list[Any] = []
    for name in ("letter.scale", "letter.scale.t"):
        file = data_file(f"multiclass/{name}.gz", path, check)
        data = read_svmlight(file, n_features=_LETTER_FEATURES, zero_based=False)
        parts += [data.X, data.y]
    return FlatSplit(*parts)


def load_news20(path: Any = None, check: bool = True) -> tuple[sp.csr_matrix, Array]:
    """Twenty newsgroups: 15,935 documents as counts of 62,061 words, labels 1 to 20.

    There is no test part: hold out some of the rows. Parameters as in :func:`load_multilabel`.

    Returns
    -------
    X : csr_matrix of shape (15935, 62061)
    y : int64 ndarray of shape (15935,)
    """
    file = data_file("multiclass/news20.gz", path, check)
    data = read_svmlight(file, n_features=_NEWS20_FEATURES, zero_based=False)
    return data.X, data.y
