"""Published data sets of text: chunking, names, citations, seminars, tagging, parsing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hingeline.data.collection import data_file
from hingeline.data.conll import read_conll
from hingeline.data.conllu import ConlluDocument, read_conllu
from hingeline.data.letters import LetterWords, read_letters
from hingeline.data.text import open_text
from hingeline.data.trees import Tree, read_trees
from hingeline.features.tables import TokenTable

Array = np.ndarray[Any, Any]

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


def load_ocr_letters(path: Any = None, check: bool = True) -> LetterWords:
    """Handwritten words of Kassel as prepared by Taskar: 6,877 words, 26 letters, 10 folds.

    The usual protocols train on fold 0 and test on the others, or the reverse.

    Parameters
    ----------
    path : path, optional
        Folder of the data collection. Default: the environment variable ``HINGELINE_DATA``.
    check : bool, default=True
        Compare the SHA-256 sums of the files with the known ones, once per process.

    Returns
    -------
    LetterWords
    """
    return read_letters(data_file("ocr_letters/letter.data.gz", path, check))


def load_conll2000(path: Any = None, check: bool = True) -> TaggedText:
    """Chunking of CoNLL-2000: 8,936 / 2,012 sentences, columns ``word, pos, chunk``.

    Parameters as in :func:`load_ocr_letters`.
    """
    train, test = (
        read_conll(data_file(f"conll2000/{part}.txt.gz", path, check), ("word", "pos", "chunk"))
        for part in ("train", "test")
    )
    return TaggedText(train, test)


def load_conll2002(path: Any = None, check: bool = True) -> TaggedText:
    """Spanish names of CoNLL-2002: 8,323 / 1,915 / 1,517 sentences, ``word, pos, entity``.

    Parameters as in :func:`load_ocr_letters`; dev is ``esp.testa``, test is ``esp.testb``.
    """
    train, dev, test = (
        read_conll(data_file(f"conll2002/esp.{part}.gz", path, check), ("word", "pos", "entity"))
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


def load_citations(path: Any = None, check: bool = True) -> Citations:
    """Fields of citations: 300 / 100 / 100 labelled and 1,000 unlabelled, 13 labels.

    Parameters as in :func:`load_ocr_letters`.
    """

    def part(name: str, names: tuple[str, ...] = _TAGGED) -> TokenTable:
        return read_conll(data_file(f"citations/citations_{name}.gz", path, check), names, "\t")

    return Citations(
        part("train.tsv"),
        part("dev.tsv"),
        part("test.tsv"),
        part("unlabelled.txt", ("word",)),
        tuple(part(f"train25_{k}.tsv") for k in range(_SPLITS)),
    )


def load_umass_citations(path: Any = None, check: bool = True) -> TaggedText:
    """Fields of citations (UMass): 1,448 / 655 / 362, 31 labels, columns ``word, label``.

    Parameters as in :func:`load_ocr_letters`.
    """
    train, dev, test = (
        read_conll(data_file(f"umass_citations/{part}.tsv.gz", path, check), _TAGGED, "\t")
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


def load_seminars(path: Any = None, check: bool = True) -> Seminars:
    """Announcements of seminars: 485 documents, 9 tags, five splits of 25 / 313 / 145.

    Parameters as in :func:`load_ocr_letters`.
    """
    documents = read_conll(data_file("seminars/seminars.tsv.gz", path, check), _TAGGED, "\t")
    rows = _read_list(data_file("seminars/splits.tsv", path, check), _SPLITS + 1)
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


def load_brown(path: Any = None, check: bool = True) -> Brown:
    """Part-of-speech tags of the Brown corpus: 57,340 sentences, 472 tags, 500 texts, 15 genres.

    Parameters as in :func:`load_ocr_letters`.
    """
    table = read_conll(
        data_file("brown/brown_tagged.tsv.gz", path, check), ("word", "tag"), separator="\t"
    )
    rows = _read_list(data_file("brown/files.tsv", path, check), 4)
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


def load_treebank_sample(path: Any = None, check: bool = True) -> TreebankSample:
    """Trees, tags and dependencies of 3,914 sentences of the Penn Treebank.

    Parameters as in :func:`load_ocr_letters`.
    """
    folder = "treebank_sample"
    rows = _read_list(data_file(f"{folder}/files.tsv", path, check), 3)
    tagged = data_file(f"{folder}/wsj_sample_tagged.tsv.gz", path, check)
    dependencies = data_file(f"{folder}/wsj_sample.dp.gz", path, check)
    return TreebankSample(
        read_trees(data_file(f"{folder}/wsj_sample.mrg.gz", path, check)),
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


def load_ud_english_ewt(path: Any = None, check: bool = True) -> UniversalDependencies:
    """English Web Treebank, release 2.16: 12,544 / 2,001 / 2,077 sentences.

    Parameters as in :func:`load_ocr_letters`.
    """
    train, dev, test = (
        read_conllu(data_file(f"ud_english_ewt/en_ewt-ud-{part}.conllu.gz", path, check))
        for part in ("train", "dev", "test")
    )
    return UniversalDependencies(train, dev, test)


def _read_list(file: Any, width: int) -> list[list[str]]:
    """Rows of a small table with a header, separated by tabs."""
    rows = []
    with open_text(file) as text:
        for number, line in text.lines():
            row = line.split("\t")
            if len(row) != width:
                raise text.error(
                    number, f"expected {width} fields, found {len(row)}; fetch the file again."
                )
            rows.append(row)
    return rows[1:]
