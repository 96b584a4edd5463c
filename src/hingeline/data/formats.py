"""All formats by name, and conversion between those that hold the same kind of data."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from hingeline.data.arff import attribute_names, read_arff, write_arff, write_mulan_labels
from hingeline.data.conll import read_conll, write_conll
from hingeline.data.conllu import COLUMNS, read_conllu, write_conllu
from hingeline.data.crfsuite import read_crfsuite, write_crfsuite
from hingeline.data.idx import read_idx
from hingeline.data.letters import read_letters
from hingeline.data.samples import FlatData, LabelledSequences, MultilabelData, Vocabulary
from hingeline.data.sniff import detect_format
from hingeline.data.svmlight import (
    read_multilabel,
    read_svmhmm,
    read_svmlight,
    write_multilabel,
    write_svmhmm,
    write_svmlight,
)
from hingeline.data.text import Source, Target, open_text
from hingeline.data.trees import Tree, read_trees, write_trees
from hingeline.features.tables import SparseSequences, TokenTable


@dataclass(frozen=True)
class Format:
    """A file format.

    Attributes
    ----------
    name : str
    kind : str
        What it holds: ``"tokens"`` (:class:`TokenTable`), ``"sequences"``
        (:class:`LabelledSequences`), ``"flat"`` (:class:`FlatData`), ``"multilabel"``
        (:class:`MultilabelData`) or ``"trees"`` (list of :class:`Tree`).
    read : callable
        ``read(source, **options)``, giving the data of that kind.
    write : callable or None
        ``write(target, data)``; None for formats that are only read.
    title : str
        One line for a list of formats.
    options : tuple of str
        Names of the options that ``read`` takes.
    """

    name: str
    kind: str
    read: Callable[..., Any]
    write: Callable[[Target, Any], None] | None
    title: str
    options: tuple[str, ...] = ()


def _read_conllu_table(source: Source) -> TokenTable:
    return read_conllu(source).table


def _write_conllu_table(target: Target, table: TokenTable) -> None:
    """Columns by CoNLL-U's names, else the first as form, the second as upos, others in misc."""
    if "form" in table.names:
        known = [name for name in table.names if name in COLUMNS]
        write_conllu(target, table.select(known))
        return
    columns = dict(zip(("form", "upos"), map(table.column, range(len(table.names))), strict=False))
    rest = table.names[2:]
    if rest:
        values = [[f"{name}={value}" for value in table.column(name)] for name in rest]
        columns["misc"] = np.array(["|".join(row) for row in zip(*values, strict=True)], object)
    named = {name: column.tolist() for name, column in columns.items()}
    write_conllu(target, TokenTable.from_columns(named, table.offsets))


def _read_letter_sequences(source: Source) -> LabelledSequences:
    words = read_letters(source)
    return LabelledSequences(words.sequences(), words.labels())


def _read_idx_images(source: Source, labels: Source | None = None) -> FlatData:
    """Images and labels, the latter by default from the file that MNIST names alike."""
    if labels is None:
        labels = _beside(source, ("images-idx3", "labels-idx1"), ("images.idx3", "labels.idx1"))
        if labels is None:
            raise ValueError(
                "the labels of the images are in another file: name it with the option labels."
            )
    images, y = read_idx(source), read_idx(labels)
    if images.ndim < 2 or y.ndim != 1 or len(images) != len(y):
        raise ValueError(
            f"the images have the shape {images.shape} and the labels {y.shape}: there must be "
            "one label per image."
        )
    X = images.reshape(len(images), -1)
    return FlatData(sp.csr_matrix(X, dtype=np.float64), y.astype(np.int64))


def _beside(source: Source, *replacements: tuple[str, str]) -> Path | None:
    """A file in the same folder whose name follows from the source's."""
    if not isinstance(source, (str, os.PathLike)):
        return None
    path = Path(source)
    for old, new in replacements:
        candidate = path.with_name(path.name.replace(old, new))
        if old in path.name and candidate.is_file():
            return candidate
    return None


def _read_arff_set(source: Source, labels: Any = None) -> MultilabelData:
    """Rows and labels, the latter by default those of Mulan's XML file in the same folder."""
    if labels is None:
        endings = [f"{part}.arff{gz}" for part in ("", "-train", "-test") for gz in (".gz", "")]
        labels = _beside(source, *((ending, ".xml") for ending in endings))
        if labels is None:
            raise ValueError(
                "which attributes are labels is not in the file: name Mulan's XML file, or the "
                "number of labels, with the option labels."
            )
    return read_arff(source, labels)


def _write_arff_set(target: Target, data: MultilabelData) -> None:
    """Rows with labels last, and for a path the XML file that names the labels."""
    data = data._replace(label_names=attribute_names(data)[1])
    write_arff(target, data)
    if isinstance(target, (str, os.PathLike)) and target != "-" and data.label_names:
        path = Path(target)
        stem = path.name.removesuffix(".gz").removesuffix(".arff")
        write_mulan_labels(path.with_name(f"{stem}.xml"), data.label_names)


def _write_flat(target: Target, data: FlatData) -> None:
    write_svmlight(target, data.X, data.y, qid=data.qid, comments=data.comments)


def _write_label_sets(target: Target, data: MultilabelData) -> None:
    write_multilabel(target, data.X, data.Y)


#: Formats by name.
FORMATS: dict[str, Format] = {
    entry.name: entry
    for entry in (
        Format(
            "conll",
            "tokens",
            read_conll,
            write_conll,
            "CoNLL columns, one token per line (2000, 2002, 2003)",
            ("names", "separator"),
        ),
        Format(
            "conllu",
            "tokens",
            _read_conllu_table,
            _write_conllu_table,
            "CoNLL-U, the format of Universal Dependencies",
        ),
        Format(
            "crfsuite",
            "sequences",
            read_crfsuite,
            lambda target, data: write_crfsuite(target, data.X, data.y),
            "CRFsuite: label and attributes, one token per line",
        ),
        Format(
            "svmhmm",
            "sequences",
            read_svmhmm,
            lambda target, data: write_svmhmm(target, data.X, data.y),
            "SVM^hmm: TAG qid:N index:value, one token per line",
            ("n_features", "zero_based"),
        ),
        Format(
            "letters",
            "sequences",
            _read_letter_sequences,
            None,
            "letter.data, handwritten words",
        ),
        Format(
            "svmlight",
            "flat",
            read_svmlight,
            _write_flat,
            "SVMlight, LIBSVM, LIBLINEAR: label index:value",
            ("n_features", "zero_based"),
        ),
        Format(
            "idx", "flat", _read_idx_images, None, "IDX images and labels, as MNIST", ("labels",)
        ),
        Format(
            "multilabel",
            "multilabel",
            read_multilabel,
            _write_label_sets,
            "LIBSVM with sets of labels: 1,3,5 index:value",
            ("n_features", "n_labels", "zero_based"),
        ),
        Format(
            "arff",
            "multilabel",
            _read_arff_set,
            _write_arff_set,
            "ARFF with Mulan's XML list of labels",
            ("labels",),
        ),
        Format("trees", "trees", read_trees, write_trees, "bracketed trees, as the Penn Treebank"),
    )
}

#: Kinds that data of a kind can be turned into.
_REACHES = {
    "trees": ("trees", "tokens", "sequences"),
    "tokens": ("tokens", "sequences"),
    "sequences": ("sequences",),
    "flat": ("flat",),
    "multilabel": ("multilabel",),
}


def find_format(name: str) -> Format:
    """The format of that name; a ``ValueError`` lists them all."""
    if name not in FORMATS:
        raise ValueError(f"there is no format {name!r}: there are {', '.join(FORMATS)}.")
    return FORMATS[name]


def targets_of(name: str) -> list[str]:
    """Names of the formats that a file of this format can be converted to."""
    kinds = _REACHES[find_format(name).kind]
    return [f.name for f in FORMATS.values() if f.kind in kinds and f.write is not None]


def read_any(source: Source, format: str = "auto", **options: Any) -> tuple[Format, Any]:
    """Read a file of any format.

    Parameters
    ----------
    source : path, "-", file object or TextSource
        UTF-8, gzipped or not.
    format : str, default="auto"
        Name of the format, or ``"auto"`` to guess it from the beginning of the file.
    **options
        For the reader of that format; None counts as not given.

    Returns
    -------
    format : Format
    data
        Of the format's kind.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if format == "auto":
        if not isinstance(source, (str, os.PathLike)) or source == "-":
            source = open_text(source)
        format = detect_format(source)
    found = find_format(format)
    for name in given:
        if name not in found.options:
            known = ", ".join(found.options) or "none"
            raise ValueError(f"the format {format!r} has no option {name!r}: it has {known}.")
    return found, found.read(source, **given)


def convert(
    source: Source,
    target: Target,
    to: str,
    *,
    format: str = "auto",
    columns: Sequence[str | int] | None = None,
    vocabulary: Vocabulary | None = None,
    **options: Any,
) -> Vocabulary | None:
    """Convert a file to another format that holds data of the same kind, or of a simpler one.

    Trees become tokens with their tags, without traces. Tokens become sequences whose attributes
    are ``name=value`` for every column but the last, which is the label. Names become numbers and
    numbers names by way of a vocabulary.

    Parameters
    ----------
    source, target : path, "-" or file object
    to : str
        Name of the format to write.
    format : str, default="auto"
        Name of the source's format.
    columns : sequence of str or int, optional
        Columns of tokens to keep, in this order.
    vocabulary : Vocabulary, optional
        Of the training file, when a test file is converted. Default: made from the source, and
        without it numbers stay the names of attributes.
    **options
        For the reader, see :func:`read_any`.

    Returns
    -------
    Vocabulary or None
        The one that was used, for the next file and for the way back.
    """
    goal = find_format(to)
    found, data = read_any(source, format, **options)
    if to not in targets_of(found.name) or goal.write is None:
        raise ValueError(
            f"{found.name} cannot be converted to {to}: it can be to "
            f"{', '.join(targets_of(found.name))}."
        )
    if found.kind == "trees" and goal.kind != "trees":
        data = trees_to_tokens(data)
    if isinstance(data, TokenTable):
        if columns is not None:
            data = data.select(columns)
        if goal.kind == "sequences":
            data = tokens_to_sequences(data)
    elif columns is not None:
        raise ValueError(f"columns cannot be chosen from {found.name}: it has no columns.")
    if goal.name == "svmhmm":
        numbers = all(label.isdigit() and int(label) for labels in data.y for label in labels)
        if vocabulary is not None or not isinstance(data.X, SparseSequences) or not numbers:
            vocabulary = vocabulary if vocabulary is not None else Vocabulary.of(data)
            data = vocabulary.encode(data)
    elif goal.name == "crfsuite" and isinstance(data.X, SparseSequences):
        data = (vocabulary if vocabulary is not None else Vocabulary((), ())).decode(data)
    goal.write(target, data)
    return vocabulary


def trees_to_tokens(trees: Sequence[Tree]) -> TokenTable:
    """Words and tags of trees, without traces (``-NONE-``)."""
    sentences = [[leaf for leaf in tree.leaves() if leaf[1] != "-NONE-"] for tree in trees]
    return TokenTable.from_sentences([leaves for leaves in sentences if leaves], ["word", "tag"])


def tokens_to_sequences(table: TokenTable) -> LabelledSequences:
    """Attributes ``name=value`` of all columns but the last, which is the label."""
    if len(table.names) < 2:
        raise ValueError("there is one column only: a label is wanted in the last column.")
    names = table.names[:-1]
    columns = [
        [f"{name}={value}" for value in values]
        for name, values in zip(names, table.values, strict=False)
    ]
    codes = [column.tolist() for column in table.codes[:-1]]
    tokens = [
        {values[k]: 1.0 for values, k in zip(columns, row, strict=True)}
        for row in zip(*codes, strict=True)
    ]
    cuts = table.offsets.tolist()
    X = [tokens[lo:hi] for lo, hi in pairwise(cuts)]
    return LabelledSequences(X, table.sentences(-1))
