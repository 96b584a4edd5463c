"""Arrays and images: IDX, the format of MNIST, and the handwritten words of ``letter.data``."""

import math
import re
from array import array
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from hingeline._checks import Array
from hingeline._files import file_beside
from hingeline.data.samples import FlatData, LabelledSequences
from hingeline.data.text import File, open_text, shown
from hingeline.features.tables import SparseSequences

#: Third byte of the file -> type of the elements, big-endian.
_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_MAX_AXES = 8


def read_idx(source: File) -> Array:
    """Read an IDX array, gzipped or not, in the byte order of the machine.

    Memory is allocated as bytes arrive: a header that declares more than the file holds allocates
    nothing, and is refused.
    """
    with open_text(source) as text:
        head = text.peek(4)
        if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _TYPES:
            raise text.error("the first four bytes are not those of an IDX file; is it another?")
        what = f"the header declares {head[3]} axes; at most {_MAX_AXES} are read."
        text.require(head[3] <= _MAX_AXES, what)
        start = 4 + 4 * head[3]
        header = text.peek(start)
        text.require(len(header) == start, "the file ends inside its header; fetch it again.")
        shape = tuple(np.frombuffer(header, dtype=">u4", offset=4).tolist())
        dtype = np.dtype(_TYPES[head[2]])
        expected = start + dtype.itemsize * math.prod(shape)
        data = bytearray()
        while len(data) <= expected and (piece := text.read()):
            data += piece
        if len(data) != expected:
            found = f"{len(data):,}" if len(data) < expected else "more"
            sizes = " × ".join(map(str, shape)) or "one"
            what = f"the header declares {sizes} elements, {expected:,} bytes in all"
            raise text.error(f"{what}, and there are {found}; fetch the file again.")
        fine = math.prod(shape) or max(shape) < 2**16
        text.require(fine, f"the header declares an empty array of shape {shape}.")
        flat = np.frombuffer(data, dtype=dtype, offset=start)
        return flat.astype(dtype.newbyteorder("="), copy=False).reshape(shape)


def read_images(source: File, labels: File | None = None) -> FlatData:
    """Images of an IDX file as rows of pixels, with the labels of another IDX file.

    By default that is the file in the same folder with the matching MNIST name
    (``train-images-idx3-ubyte``, ``train-labels-idx1-ubyte``). Without one, ``y`` is None.
    """
    if labels is None:
        labels = file_beside(source, ("images-idx3", "labels-idx1"), ("images.idx3", "labels.idx1"))
    text = open_text(source)
    images = read_idx(text)
    y = None if labels is None else read_idx(labels)
    text.require(images.ndim > 1, f"an array of shape {images.shape} holds no images.")
    if y is not None:
        what = f"the images have the shape {images.shape} and the labels {y.shape}"
        text.require(y.shape == images.shape[:1], f"{what}; there must be one label per image.")
    X = images.reshape(len(images), -1) if images.size else np.zeros((0, 0))
    return FlatData(sp.csr_matrix(X, dtype=np.float64), None if y is None else y.astype(np.int64))


_N_PIXELS = 128  # Of a letter's image, 16 rows and 8 columns.
#: Letter, next id, word, fold and pixels; the original has a tab at the end of every line.
_LETTER = re.compile(
    rb"[^\t]*\t([^\t]*)\t([^\t]*)\t([^\t]*)\t[^\t]*\t([0-9]{1,9})\t([01](?:\t[01]){127})\t?"
)
_LAST = "the next id of a word's last letter is -1"


@dataclass(frozen=True)
class LetterWords:
    """Handwritten words: word i has the letters ``offsets[i]`` to ``offsets[i + 1] − 1``."""

    pixels: Array  # uint8, (letters, 128): 0 or 1, row by row of 16 × 8 images
    letters: list[str]  # what each image shows
    offsets: Array
    folds: Array  # of cross-validation, (words,)

    def sequences(self) -> SparseSequences:
        """The pixels as sequences of sparse rows; what ``ChainSSVM`` takes."""
        return SparseSequences(sp.csr_matrix(self.pixels.astype(np.float64)), self.offsets)

    def labels(self) -> list[list[str]]:
        """The letters, word by word."""
        return [self.letters[lo:hi] for lo, hi in pairwise(self.offsets.tolist())]


def read_letters(source: File) -> LetterWords:
    """Read ``letter.data``: tab-separated id, letter, next id, word, position, fold, 128 pixels.

    A word ends where the next id is -1. Lines with other fields, pixels other than 0 and 1, and
    words without an end are refused.
    """
    images: list[bytes] = []
    letters: list[str] = []
    offsets, folds = array("q", [0]), array("q")
    current: tuple[bytes, bytes] | None = None  # word and fold of the word that is open
    with open_text(source) as text:
        for _, line in text.byte_lines():
            if not line:
                continue
            if (match := _LETTER.fullmatch(line)) is None:
                what = "expected id, letter, next id, word, position, fold (a number) and"
                what = f"{what} {_N_PIXELS} pixels of 0 or 1, with tabs between, found"
                raise text.error(f"{what} {shown(line)}; is this letter.data?")
            letter, following, word, fold, image = match.groups()
            images.append(image[::2])
            letters.append(letter.decode())
            if current is not None and current != (word, fold):
                what = "word {} in fold {} begins before word {} in fold {} ended"
                raise text.error(f"{what.format(*map(shown, (word, fold, *current)))}; {_LAST}.")
            current = (word, fold)
            if following == b"-1":
                folds.append(int(fold))
                offsets.append(len(letters))
                current = None
    text.require(current is None, f"the last word has no end; {_LAST}.")
    pixels = np.frombuffer(b"".join(images), dtype=np.uint8).reshape(-1, _N_PIXELS) - ord("0")
    return LetterWords(pixels, letters, np.array(offsets), np.array(folds, dtype=np.int64))


def read_letter_sequences(source: File) -> LabelledSequences:
    """Pixels and letters of ``letter.data``, word by word, without the folds."""
    words = read_letters(source)
    return LabelledSequences(words.sequences(), words.labels())
