"""Files as models see them: inputs, labels, and what is needed to write predictions back."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from hingeline.cli.app import CommandError, blaming
from hingeline.data.conllu import ConlluDocument, read_conllu
from hingeline.data.formats import FORMATS, find_format, read_any
from hingeline.data.sniff import detect_format
from hingeline.data.text import open_text
from hingeline.data.tokens import TokenTable
from hingeline.features.sequences import SparseSequences

Array = np.ndarray[Any, Any]

#: Kinds of data that a model can be trained on.
TRAINABLE = ("tokens", "sequences", "flat")


@dataclass
class Layout:
    """Where the inputs and the labels are in a file; a model file remembers it."""

    format: str
    kind: str
    columns: list[str] = field(default_factory=list)  # of the inputs, for tokens
    label: str = ""  # the column of the labels, for tokens

    def to_dict(self) -> dict[str, Any]:
        """For a model file's metadata."""
        return {
            "format": self.format,
            "kind": self.kind,
            "columns": self.columns,
            "label": self.label,
        }


def layout_of(model: Any, path: Path) -> Layout:
    """The layout of the files that a model was trained on."""
    found = getattr(model, "metadata_", {}).get("layout")
    try:
        return Layout(**(found or {}))
    except TypeError:
        kind = "flat" if type(model).__name__ == "MulticlassSSVM" else "sequences"
        raise CommandError(
            f"{path} does not say what files it was trained on (it was not made by `hingeline "
            f"train`): pass --format; it takes {kind}."
        ) from None


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
        return self.X.shape[0] if self.layout.kind == "flat" else len(self.X)

    @property
    def n_tokens(self) -> int:
        """Tokens of all sequences, or rows."""
        if isinstance(self.X, TokenTable):
            return self.X.n_tokens
        if isinstance(self.X, SparseSequences):
            return int(self.X.offsets[-1])
        return self.X.shape[0] if self.layout.kind == "flat" else sum(map(len, self.X))

    def about(self) -> str:
        """Its size in words."""
        if self.layout.kind == "flat":
            return f"{self.n_sequences:,} rows"
        return f"{self.n_sequences:,} sequences, {self.n_tokens:,} tokens"


def read_training(
    path: str,
    format: str,
    names: list[str] | None = None,
    use: list[str] | None = None,
    label: str | None = None,
) -> Samples:
    """A labelled file to train on; the layout follows from the file and the options."""
    kind, data, name = _read(path, format, {"names": names})
    if kind not in TRAINABLE:
        raise CommandError(
            f"{path}: {name} holds {kind}, and models are trained on sequences "
            "or rows: convert it first (hingeline convert)."
        )
    if kind != "tokens":
        for option, value in (("--columns", names), ("--use", use), ("--label", label)):
            if value is not None:
                raise CommandError(f"{option} chooses columns, and {name} has none.")
        return Samples(data.X, _labels(path, data.y), Layout(name, kind), data)
    table = data.table if isinstance(data, ConlluDocument) else data
    with blaming(path):
        if label is None:
            label = "upos" if name == "conllu" else table.names[-1]
        chosen = [table.names[table.position(_column(c))] for c in use] if use else None
        label = table.names[table.position(_column(label))]
    if chosen is None:
        chosen = ["form"] if name == "conllu" else [c for c in table.names if c != label]
    if not chosen:
        raise CommandError(
            f"{path} has a single column, the labels: training wants one more with the words."
        )
    if label in chosen:
        raise CommandError(f"--use names the column of the labels, {label!r}: leave it out.")
    layout = Layout(name, kind, chosen, label)
    return Samples(table.select(chosen), table.sentences(label), layout, data)


def read_like(path: str, layout: Layout, model: Any, format: str = "auto") -> Samples:
    """A file for a trained model: as it was in training, with or without labels."""
    wanted = layout.format if format == "auto" else format
    options: dict[str, Any] = {}
    if wanted == "svmhmm" or wanted == "svmlight":
        options["zero_based"] = None
    kind, data, name = _read(path, wanted, options)
    if kind != layout.kind:
        raise CommandError(
            f"{path} holds {kind} ({name}), but the model takes {layout.kind} ({layout.format})."
        )
    if kind != "tokens":
        X, y = data.X, data.y
        if sp.issparse(X):
            X = _of_width(X, model.n_features_in_)
        elif isinstance(X, SparseSequences) and getattr(model, "encoder_", None) is None:
            X = SparseSequences(_of_width(X.matrix, model.n_features_in_), X.offsets)
        return Samples(X, y, layout, data)
    table = data.table if isinstance(data, ConlluDocument) else data
    if name == "conllu":
        with blaming(path):
            return Samples(
                table.select(layout.columns), table.sentences(layout.label), layout, data
            )
    width, known = len(table.names), len(layout.columns)
    if width == known:  # no labels
        return Samples(_renamed(table, layout.columns), None, layout, data)
    if width == known + 1:
        named = _renamed(table, [*layout.columns, layout.label])
        return Samples(named.select(layout.columns), named.sentences(-1), layout, data)
    raise CommandError(
        f"{path} has {width} columns, but the model was trained on {known} and the labels "
        f"({', '.join([*layout.columns, layout.label])}): give those, with or without labels."
    )


def _read(path: str, format: str, options: dict[str, Any]) -> tuple[str, Any, str]:
    """Kind, data and name of the format."""
    with blaming():
        source: Any = path
        if path == "-":
            source = open_text("-")
        name = detect_format(source) if format == "auto" else find_format(format).name
        if name == "conllu":
            return "tokens", read_conllu(source), name
        given = {k: v for k, v in options.items() if k in FORMATS[name].options}
        found, data = read_any(source, name, **given)
        if len(data[0] if found.kind == "trees" else data) == 0:
            raise ValueError(f"{path} is empty: there is nothing to read.")
        return found.kind, data, name


def _labels(path: str, y: Any) -> Any:
    if y is None:
        raise CommandError(f"{path} has no labels to learn from.")
    return y


def _column(name: str) -> str | int:
    """A column by name, or by number."""
    return int(name) if name.lstrip("-").isdigit() else name


def _renamed(table: TokenTable, names: list[str]) -> TokenTable:
    return TokenTable(tuple(names), table.codes, table.values, table.offsets)


def _of_width(matrix: sp.csr_matrix, width: int) -> sp.csr_matrix:
    """Features that training has not seen left out, those that are missing here zero."""
    matrix = sp.csr_matrix(matrix)
    if matrix.shape[1] > width:
        return matrix[:, :width]
    if matrix.shape[1] < width:
        parts = (matrix.data, matrix.indices, matrix.indptr)
        return sp.csr_matrix(parts, shape=(matrix.shape[0], width))
    return matrix


def file_hash(path: str) -> str | None:
    """SHA-256 of a file, None for the standard input."""
    if path == "-":
        return None
    digest = hashlib.sha256()
    with blaming(), open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
