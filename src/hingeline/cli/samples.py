"""Files as models see them: inputs, labels, and what is needed to write predictions back."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from hingeline.cli.app import CommandError, blaming
from hingeline.cli.set_files import by_name, by_number, check_beside, indicators, labels_argument
from hingeline.data.conllu import ConlluDocument, read_conllu
from hingeline.data.formats import FORMATS, detect_format, find_format, read_any
from hingeline.data.images import read_idx
from hingeline.data.samples import FlatData
from hingeline.data.text import open_text
from hingeline.features.tables import SparseSequences, TokenTable
from hingeline.features.templates import TokenTemplates

Array = np.ndarray[Any, Any]

#: Kinds of data that a model can be trained on.
TRAINABLE = ("tokens", "sequences", "flat", "multilabel")
#: Formats whose features are numbers, from 0 or from 1.
NUMBERED = ("svmhmm", "svmlight", "multilabel")
#: Kinds of data without order, and the models that take them.
_ROWS = ("flat", "multilabel")
_OWN_KINDS = {"MulticlassSSVM": "flat", "MultilabelSSVM": "multilabel"}
#: What the column of the labels is called where it has no name.
_LABELS = [f"label{'_' * k}" for k in range(100)]


@dataclass
class Layout:
    """Where the inputs and the labels are in a file; a model file remembers it."""

    format: str
    kind: str
    columns: list[str] = field(default_factory=list)  # of the inputs, for tokens and ARFF
    label: str = ""  # the column of the labels, for tokens
    names: list[str] = field(default_factory=list)  # all columns of the file, for tokens
    zero_based: bool | None = None  # whether features are numbered from 0, None where unknown
    labels: list[str] = field(default_factory=list)  # names in order, for sets of labels

    def to_dict(self) -> dict[str, Any]:
        """For a model file's metadata."""
        return asdict(self)

    def is_sound(self) -> bool:
        """Whether it can be what ``hingeline train`` wrote: metadata may hold anything."""
        texts = [self.format, self.kind, self.label]
        lists = [self.columns, self.names, self.labels]
        if not all(isinstance(text, str) for text in texts):
            return False
        if not all(isinstance(part, list) for part in lists):
            return False
        return (
            all(isinstance(name, str) for part in lists for name in part)
            and self.format in FORMATS
            and self.kind == FORMATS[self.format].kind
            and self.kind in TRAINABLE
            and (self.kind != "tokens" or bool(self.columns and self.label))
            and self.label not in self.columns
            and bool(self.labels) == (self.kind == "multilabel")
            and len(set(self.labels)) == len(self.labels)
            and (not self.names or {*self.columns, self.label} <= set(self.names))
            and (self.zero_based is None or isinstance(self.zero_based, bool))
        )


def layout_of(model: Any, path: Path) -> Layout:
    """The layout of the files that a model was trained on."""
    found = getattr(model, "metadata_", {}).get("layout")
    if found is None:
        return _usual_layout(model)
    own = _OWN_KINDS.get(type(model).__name__)
    try:
        layout = Layout(**found)
        if not layout.is_sound() or own != (layout.kind if layout.kind in _ROWS else None):
            raise TypeError
        if layout.kind == "multilabel" and len(layout.labels) != model.n_labels_:
            raise TypeError
    except TypeError:
        raise CommandError(
            f"{path} describes the files it was trained on in a way that makes no sense: get a "
            "fresh copy of the model."
        ) from None
    return layout


def _usual_layout(model: Any) -> Layout:
    """The layout of files for a model that was saved in Python, where nothing says what it is."""
    encoder = getattr(model, "encoder_", None)
    if isinstance(encoder, TokenTemplates):
        columns = list(encoder.column_names_)
        return Layout("conll", "tokens", columns, next(n for n in _LABELS if n not in columns))
    if type(model).__name__ == "MulticlassSSVM":
        return Layout("svmlight", "flat")
    if type(model).__name__ == "MultilabelSSVM":
        names = [str(name) for name in model.classes_.tolist()]
        if model.n_labels_ > 1 and model.classes_.dtype == object:
            return Layout("arff", "multilabel", labels=names)
        return Layout("multilabel", "multilabel", labels=[str(k) for k in range(model.n_labels_)])
    return Layout("svmhmm" if encoder is None else "crfsuite", "sequences")


@dataclass
class Samples:
    """Inputs and labels of a file."""

    X: Any
    y: Any  # None where the file has no labels
    layout: Layout
    source: Any  # the table or document as it was read

    @property
    def n_sequences(self) -> int:
        """Sequences, or rows."""
        return self.X.shape[0] if self.layout.kind in _ROWS else len(self.X)

    @property
    def n_tokens(self) -> int:
        """Tokens of all sequences, or rows."""
        if isinstance(self.X, TokenTable):
            return self.X.n_tokens
        if isinstance(self.X, SparseSequences):
            return int(self.X.offsets[-1])
        return self.X.shape[0] if self.layout.kind in _ROWS else sum(map(len, self.X))

    def about(self) -> str:
        """Its size in words."""
        if self.layout.kind == "flat":
            return f"{self.n_sequences:,} rows"
        if self.layout.kind == "multilabel":
            return f"{self.n_sequences:,} rows, {len(self.layout.labels)} labels"
        return f"{self.n_sequences:,} sequences, {self.n_tokens:,} tokens"


def read_training(
    path: str,
    format: str,
    names: list[str] | None = None,
    use: list[str] | None = None,
    label: str | None = None,
) -> Samples:
    """A labelled file to train on; the layout follows from the file and the options."""
    if names is not None and len(set(names)) < len(names):
        raise CommandError(f"--columns: {', '.join(names)} has a name twice: give each its own.")
    options = {"names": names, "zero_based": True, "labels": labels_argument(label)}
    kind, data, name = _read(path, format, options)
    if kind not in TRAINABLE:
        raise CommandError(
            f"{path}: {name} holds {kind}, and models are trained on sequences or rows: convert it "
            "first (hingeline convert)."
        )
    if kind != "tokens":
        for option, value in (("--columns", names), ("--use", use), ("--label", label)):
            if value is not None and (option, name) != ("--label", "arff"):
                raise CommandError(f"{option} chooses columns, and {name} has none.")
        y = indicators(path, data.Y) if kind == "multilabel" else data.y
        if y is None:
            raise CommandError(
                f"{path} has no labels to learn from: put the file of labels beside it, named as "
                "MNIST's are (train-images-idx3-ubyte, train-labels-idx1-ubyte)."
            )
        layout = Layout(name, kind)
        if name in NUMBERED:
            matrix = data.X.matrix if isinstance(data.X, SparseSequences) else data.X
            layout.zero_based = bool((matrix.indices == 0).any())
        if kind == "multilabel":
            layout.columns = list(data.feature_names or [])
            layout.labels = data.label_names or [str(k) for k in range(y.shape[1])]
        return Samples(_features(data.X, layout, None), y, layout, data)
    table = data.table if isinstance(data, ConlluDocument) else data
    with blaming(path):
        if label is None:
            label = "upos" if name == "conllu" else table.names[-1]
        chosen = [table.names[table.position(column_of(c))] for c in use] if use else None
        label = table.names[table.position(column_of(label))]
    if chosen is None:
        chosen = ["form"] if name == "conllu" else [c for c in table.names if c != label]
    if not chosen:
        raise CommandError(
            f"{path} has a single column, the labels: training wants one more with the words."
        )
    if label in chosen:
        raise CommandError(f"--use names the column of the labels, {label!r}: leave it out.")
    if _is_blank(table, label, name):
        raise CommandError(
            f"{path} has no labels to learn from: {label} is _ everywhere; name another column "
            "with --label."
        )
    layout = Layout(name, kind, chosen, label, [] if name == "conllu" else list(table.names))
    return Samples(table.select(chosen), table.sentences(label), layout, data)


def read_like(
    path: str, layout: Layout, width: int | None, format: str = "auto", grow: bool = False
) -> Samples:
    """A file for a trained model: as it was in training, with or without labels.

    Parameters
    ----------
    path, format : str
        The file.
    layout : Layout
        Of the training file.
    width : int or None
        Features of the model; None where it encodes named ones by itself.
    grow : bool, default=False
        Keep features beyond those of the model.
    """
    wanted = layout.format if format == "auto" else format
    based = None if layout.zero_based is None else True
    named = wanted == layout.format == "arff"  # the model knows which attributes are labels
    kind, data, name = _read(path, wanted, {"zero_based": based, "labels": [] if named else None})
    if kind != layout.kind:
        raise CommandError(
            f"{path} holds {kind} ({name}), but the model takes {layout.kind} ({layout.format})."
        )
    y: Any
    if kind == "multilabel":
        if named:
            X, y = by_name(path, data, layout.columns, layout.labels, width)
            return Samples(X, y, layout, data)
        y = by_number(path, data.Y, len(layout.labels))
        known = layout if name in NUMBERED else Layout(name, kind)
        return Samples(_features(sp.csr_matrix(data.X), known, width), y, layout, data)
    if kind != "tokens":
        named = isinstance(data.X, list)
        if named != (width is None) and kind == "sequences":
            words = ("named", "numbered") if named else ("numbered", "named")
            raise CommandError(
                f"{path} has {words[0]} features ({name}), but the model was trained on {words[1]} "
                f"ones ({layout.format}): convert the file (hingeline convert)."
            )
        # Files of another format number their features in their own way.
        known = layout if name in NUMBERED else Layout(name, kind)
        return Samples(_features(data.X, known, width, grow), data.y, layout, data)
    if isinstance(data, ConlluDocument):
        table, label = data.table, layout.label if layout.label in data.table.names else "upos"
        with blaming(path):
            inputs = table.select(layout.columns)
        y = None if _is_blank(table, label, name) else table.sentences(label)
        return Samples(inputs, y, layout, data)
    names = _names(path, len(data.names), layout)
    table = TokenTable(tuple(names), data.codes, data.values, data.offsets)
    y = table.sentences(layout.label) if layout.label in names else None
    return Samples(table.select(layout.columns), y, layout, data)


def _names(path: str, width: int, layout: Layout) -> list[str]:
    """What the columns of a file for a model are, from their number."""
    inputs = layout.columns
    every = layout.names or [*inputs, layout.label]
    unlabelled = [name for name in every if name != layout.label]
    choices = [every, unlabelled, inputs, [*inputs, layout.label]]
    for names in choices:
        if len(names) == width:
            return names
    raise CommandError(
        f"{path} has {_columns(width)}, but the model was trained on {_columns(len(every))} "
        f"({', '.join(every)}): give those, with or without {layout.label}, or only those it "
        f"reads ({', '.join(inputs)})."
    )


def _columns(count: int) -> str:
    return "one column" if count == 1 else f"{count} columns"


def _is_blank(table: TokenTable, label: str, format: str) -> bool:
    """Whether a CoNLL-U file has nothing in the column of the labels."""
    return format == "conllu" and table.values[table.position(label)] == ["_"]


def _read(path: str, format: str, options: dict[str, Any]) -> tuple[str, Any, str]:
    """Kind, data and name of the format."""
    with blaming():
        source = open_once(path)
        name = detect_format(source) if format == "auto" else find_format(format).name
        kind = FORMATS[name].kind
        data: Any
        if name == "conllu":
            data = read_conllu(source)
            empty = len(data.table) == 0
        elif name == "idx" and not _has_labels(path):
            images = read_idx(source)
            if images.ndim < 2:
                raise ValueError(f"{path} holds no images but an array of shape {images.shape}.")
            empty = images.size == 0
            pixels = images.reshape(len(images), -1) if not empty else np.zeros((0, 0))
            none: Any = None
            data = FlatData(sp.csr_matrix(pixels, dtype=np.float64), none)
        else:
            given = {k: v for k, v in options.items() if k in FORMATS[name].options}
            if name == "arff" and given["labels"] is None:
                check_beside(path)
            elif name == "idx":
                given = {}
            _, data = read_any(source, name, **given)
            inputs = data if kind in ("tokens", "trees") else data[0]
            empty = (inputs.shape[0] if hasattr(inputs, "shape") else len(inputs)) == 0
        if empty:
            raise ValueError(f"{path} is empty: there is nothing to read.")
        return kind, data, name


def open_once(path: str) -> Any:
    """What readers take for a path: a pipe is opened here, as it cannot be opened twice."""
    return path if path != "-" and os.path.isfile(path) else open_text(path)


def _has_labels(path: str) -> bool:
    """Whether the file of labels that MNIST names alike stands beside the images."""
    file = Path(path)
    names = [file.name.replace(f"images{dot}idx3", f"labels{dot}idx1") for dot in "-."]
    return any(name != file.name and file.with_name(name).is_file() for name in names)


def column_of(name: str) -> str | int:
    """A column by name, or by number."""
    return int(name) if re.fullmatch("-?[0-9]+", name) else name


def _features(X: Any, layout: Layout, width: int | None, grow: bool = False) -> Any:
    """Features by their numbers in the training file.

    Those that training has not seen are left out (unless the model is to grow), those that are
    missing here are zero.
    """
    if isinstance(X, SparseSequences):
        return SparseSequences(_features(X.matrix, layout, width, grow), X.offsets)
    if not sp.issparse(X):
        return X
    matrix = sp.csr_matrix(X)
    if layout.zero_based is False:  # it was read as if numbers began at 0
        matrix = matrix[:, 1:]
    if width is None or matrix.shape[1] == width or (grow and matrix.shape[1] > width):
        return matrix
    if matrix.shape[1] > width:
        return matrix[:, :width]
    parts = (matrix.data, matrix.indices, matrix.indptr)
    return sp.csr_matrix(parts, shape=(matrix.shape[0], width))


def file_hash(path: str) -> str | None:
    """SHA-256 of a file, None for what cannot be read again."""
    if path == "-" or not os.path.isfile(path):
        return None
    digest = hashlib.sha256()
    with blaming(), open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
