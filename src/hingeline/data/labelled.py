"""Labelled files to learn from: inputs, labels, and where in the file both are."""

import glob
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from hingeline._checks import require, retell
from hingeline.data.conll import read_conllu, read_heads
from hingeline.data.formats import FORMATS, Format, read_any
from hingeline.data.text import TextSource, open_text
from hingeline.features.tables import SparseSequences, TokenTable, default_names

WORDS = ("conll", "conllu", "csv", "jsonl")  # Formats by what they hold.
NAMED = (*WORDS, "crfsuite")
SEQUENCES = (*NAMED, "svmhmm", "letters")
ROWS = ("svmlight", "table", "idx")
SETS = ("multilabel", "arff")
#: Formats whose features are numbers, from 0 or from 1.
NUMBERED = ("svmhmm", "svmlight", "multilabel")
#: What is learnt of words, and the formats that hold it.
TASKS = {"labels": WORDS, "segments": WORDS, "dependencies": ("conllu",)}
Names = Sequence[str] | None
#: Indicators of labels are dense: more labels than this are taken for a mistake in the file.
_MAX_LABELS = 100_000


@dataclass
class Layout:
    """Where the inputs and the labels are in a file; a model file remembers it."""

    format: str
    kind: str
    columns: list[str] = field(default_factory=list)  # of the inputs, but for numbered features
    label: str = ""  # the column of the labels, for tokens and tables
    names: list[str] = field(default_factory=list)  # all columns of the file, for tokens
    zero_based: bool | None = None  # whether features are numbered from 0, None where unknown
    labels: list[str] = field(default_factory=list)  # names in order, for sets of labels
    task: str = "labels"  # one of TASKS, for tokens

    @property
    def label_columns(self) -> list[str]:
        """The columns that a prediction fills."""
        return ["head", self.label] if self.task == "dependencies" else [self.label]

    def makes_sense(self) -> bool:
        """Whether it can be what ``hingeline train`` wrote: metadata may hold anything."""
        lists = [self.columns, self.names, self.labels]
        texts = [[self.format, self.kind, self.label, self.task], *lists]
        return (
            all(isinstance(part, list) for part in lists)
            and all(isinstance(text, str) for part in texts for text in part)
            and self.format in (*SEQUENCES, *ROWS, *SETS)
            and self.kind == FORMATS[self.format].kind
            and (self.task == "labels" or self.format in TASKS.get(self.task, ()))
            and (self.kind != "tokens" or bool(self.columns and self.label))
            and self.label not in self.columns
            and bool(self.labels) == (self.kind == "multilabel")
            and len(set(self.labels)) == len(self.labels)
            and (not self.names or {*self.columns, self.label} <= set(self.names))
            and (self.zero_based is None or isinstance(self.zero_based, bool))
        )


def length_of(X: Any) -> int:
    """Sequences, or rows."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


class File(NamedTuple):
    """A file whose format is known; a name such as ``s3://…`` is opened by fsspec."""

    path: str
    source: Any  # what readers take: a pipe cannot be opened twice
    format: Format
    header: bytes = b""  # of CoNLL columns
    names: list[str] | None = None  # of the columns, in the header


def is_remote(path: str) -> bool:
    """Whether a name is for fsspec, such as ``s3://bucket/file``."""
    return re.match("[a-z0-9+]+://", path) is not None


def _find_remote(path: str) -> tuple[Any, str]:
    """The file system of a name for fsspec, and the path in it."""
    how = "install it, or name a file of this machine"  # fsspec, or what it needs for such a name
    with retell(f"{path} cannot be read (", f"): {how}.", ImportError):
        from fsspec.core import url_to_fs

        return url_to_fs(path)


def expand(name: str) -> list[str]:
    """The files that a name with ``*``, ``?`` or ``[…]`` stands for, in order."""
    if is_remote(name):
        if "*" not in name:  # a question mark has its own meaning there
            return [name]
        system, path = _find_remote(name)
        found = [system.unstrip_protocol(one) for one in system.glob(path)]
    elif not glob.has_magic(name) or os.path.exists(name):
        return [name]
    else:
        found = glob.glob(name, recursive=True)
    require(found, f"no file is called {name}: check the pattern.")
    return sorted(found)


def open_once(path: str) -> Any:
    """What readers take for a path: a pipe is opened here, as it cannot be opened twice."""
    if is_remote(path):
        system, inside = _find_remote(path)
        return TextSource(system.open(inside, "rb"), path, owned=True, system=system)
    return path if path != "-" and os.path.isfile(path) else open_text(path)


def title_of(path: str) -> str:
    """What messages call a file."""
    return "standard input" if path == "-" else path


def read_labelled(
    file: File, columns: Names, use: Names, label: Any, whole: bool = True, task: str = "labels"
) -> tuple[Any, Any, Layout, Any]:
    """X, y, where they are in the file, and the table or document as it was read.

    ``columns``, ``use`` and ``label`` name all columns, the inputs and the labels (or ARFF's list),
    ``task`` is one of TASKS. Where the file is not the ``whole`` but one of several, numbered
    features keep a column 0, as another file may have one.
    """
    path, _, found = file[:3]
    name = found.name
    if columns is not None and len(set(columns)) < len(columns):
        raise ValueError(f"columns={','.join(columns)} has a name twice: give each its own.")
    labels = int(label) if label and re.fullmatch("-?[0-9]{1,9}", label) else label
    data = read_file(file, False, names=columns, zero_based=True, labels=labels)
    if found.kind == "tokens":
        return _read_tokens(path, name, data, use, label, task)
    layout = Layout(name, found.kind)
    if name in NUMBERED:
        layout.zero_based = bool((getattr(data.X, "matrix", data.X).indices == 0).any())
    if name in SETS:
        n = data.Y.shape[1]
        what = f"{path} has a label {n - 1}, and at most {_MAX_LABELS:,} labels are learnt"
        require(n <= _MAX_LABELS, f"{what}: number them from 0.")
        require(n != 0, f"{path} has no labels to learn from.")
        layout.columns = list(data.feature_names or [])
        layout.labels = data.label_names or [str(k) for k in range(n)]
    if name == "table":
        layout.columns, layout.label = data.feature_names, data.label_name
        require(layout.columns, f"{path} has a single column: numbers and labels are wanted.")
    y = np.asarray(data.Y.toarray(), dtype=np.int64) if name in SETS else data.y
    what = f"{path} has no labels to learn from: put the file of labels next to it"
    require(y is not None, f"{what}, with a MNIST name (…-images-idx3-ubyte, …-labels-idx1-ubyte).")
    return keep_features(data.X, layout, None) if whole else data.X, y, layout, data


def _read_tokens(
    path: str, format: str, data: Any, use: Names, label: str | None, task: str
) -> tuple[Any, Any, Layout, Any]:
    """Words in columns: one is the label, the others (or some of them) are the inputs."""
    table = data.table if format == "conllu" else data
    with retell(f"{path}: "):
        if label is None:
            usual = "deprel" if task == "dependencies" else "upos"
            label = usual if format == "conllu" else table.names[-1]
        chosen = [table.names[table.position(column_of(c))] for c in use] if use else None
        label = table.names[table.position(column_of(label))]
    if chosen is None:
        every = [c for c in table.names if c != label]
        arcs = [c for c in every if c in ("form", "lemma", "upos", "xpos", "feats")]
        chosen = arcs if task == "dependencies" else ["form"] if format == "conllu" else every
    what = f"{path} has a single column, the labels: add one with the words, after a tab or a space"
    if format == "jsonl":
        what = f"{path} has one list of items, not two: give each object words, and as many labels"
    require(chosen, f"{what}.")
    require(label not in chosen, f"use={label} is the column of the labels: name others.")
    twice = next((name for name in chosen if chosen.count(name) > 1), "")
    require(not twice, f"use={twice} is named twice: name each column once.")
    what = f"{path} has no labels to learn from: {label} is _ everywhere"
    require(not is_blank(table, label, format), f"{what}; name another column as label.")
    k = table.position(label)
    if "" in table.values[k]:
        at = int(np.argmax(table.codes[k] == table.values[k].index("")))
        i = int(np.searchsorted(table.offsets, at, side="right"))
        what = f"{path}: token {at - int(table.offsets[i - 1]) + 1} of sentence {i} has no label"
        raise ValueError(f"{what} (column {label}): fill it in, with O, say.")
    names = [] if format == "conllu" else list(table.names)
    layout = Layout(format, "tokens", chosen, label, names, task=task)
    return table.select(chosen), labels_of(path, table, layout), layout, data


def labels_of(path: str, table: TokenTable, layout: Layout) -> list[Any]:
    """The labels of every sentence; heads and their labels for dependencies."""
    if layout.task != "dependencies":
        return table.sentences(layout.label)
    with retell(f"{path}: "):
        return read_heads(table, layout.label)


def is_blank(table: TokenTable, label: str, format: str) -> bool:
    """Whether a CoNLL-U file has nothing in the column of the labels."""
    return format == "conllu" and table.values[table.position(label)] == ["_"]


def read_file(file: File, empty: bool, **options: Any) -> Any:
    """The data of a file, all of a CoNLL-U document; one without any may be ``empty``."""
    path, source, found = file[:3]
    if found.name == "conllu":
        data: Any = read_conllu(source)
        inputs = data.table
    else:
        known = {k: v for k, v in options.items() if k in found.options and found.name != "idx"}
        data = read_any(source, found.name, **known)[1]
        inputs = data if found.kind in ("tokens", "trees") else data[0]
    if not empty and length_of(inputs) == 0:
        names = getattr(inputs, "names", ())
        refuse_empty(path, " ".join(names) if names != default_names(len(names)) else "")
    return data


def refuse_empty(path: str, header: str) -> None:
    """Say that a file holds nothing, or nothing but its header."""
    what = f"holds a header ({header:.60}) and nothing else" if header else "is empty"
    raise ValueError(f"{path} {what}: there is nothing to read.")


def column_of(name: str) -> str | int:
    """A column by name, or by number."""
    return int(name) if re.fullmatch("-?[0-9]+", name) else name


def keep_features(X: Any, layout: Layout, width: int | None, grow: bool = False) -> Any:
    """Features by number: new ones are left out unless the model is to grow, others may lack."""
    if isinstance(X, SparseSequences):
        return SparseSequences(keep_features(X.matrix, layout, width, grow), X.offsets)
    if not sp.issparse(X):
        return X
    matrix = sp.csr_matrix(X)
    if layout.zero_based is False:  # it was read as if numbers began at 0
        matrix = matrix[:, 1:]
    if width is not None and not (grow and matrix.shape[1] > width):
        matrix = matrix[:, :width]
        matrix.resize(matrix.shape[0], width)
    return matrix
