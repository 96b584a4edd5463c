"""ARFF with sets of labels, as Mulan and MEKA use it."""

import math
import os
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

import numpy as np
import scipy.sparse as sp

from hingeline._checks import numeric_matrix, require
from hingeline._files import file_beside
from hingeline.data.samples import MultilabelData, SparseRows
from hingeline.data.text import File, TextSource, atomic_text, number_text, open_text, shown

# Mulan's XML file that names the labels of an ARFF file.


def read_mulan_labels(source: File) -> list[str]:
    """Read the names of labels from Mulan's XML file, parents before the labels nested in them.

    XML that is malformed or declares a document type is refused: entities are not expanded.
    """
    names: list[str] = []
    with open_text(source) as text:
        parser = expat.ParserCreate(encoding="utf-8")

        def refuse(*_: Any) -> None:
            what = "a document type is declared; remove the declaration."
            raise text.error(what, parser.CurrentLineNumber)

        def start(tag: str, given: dict[str, str]) -> None:
            if tag.rpartition(":")[2] == "label":
                what = "a label has no name; add name=…."
                text.require(given.get("name"), what, parser.CurrentLineNumber)
                names.append(given["name"])

        parser.StartDoctypeDeclHandler = refuse
        parser.StartElementHandler = start
        try:
            for _, lines in text.blocks():
                parser.Parse(b"\n".join(lines) + b"\n", False)
            parser.Parse(b"", True)
        except expat.ExpatError as error:
            what = f"the XML is malformed ({expat.ErrorString(error.code)}); correct it."
            raise text.error(what, error.lineno) from None
        text.require(names, "there is no <label name=…>; is this Mulan's list of labels?", 0)
        return names


def write_mulan_labels(target: File, names: Sequence[str]) -> None:
    """Write names of labels as Mulan's XML file."""
    with atomic_text(target) as out:
        out.write('<?xml version="1.0" encoding="utf-8"?>\n')
        out.write('<labels xmlns="http://mulan.sourceforge.net/labels">\n')
        out.writelines(f"<label name={quoteattr(name)}></label>\n" for name in names)
        out.write("</labels>\n")


# The header: attributes, and how values are written.

_QUOTED = r"""'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+\""""  # with backslash escapes
_NAME = re.compile(rf"({_QUOTED}|[^\s'\"{{][^\s{{]*)(?=[\s{{])")
_VALUE = re.compile(rf"[^,'\"{{}}]*|{_QUOTED}")
#: The last takes the rest of a line whose quote does not close, so that lines take linear time.
_PIECE = re.compile(rf"{_QUOTED}|[^,'\"]+|,|.+")
_SPECIAL = re.compile("['\"{}]")


def _split(text: str) -> list[str]:
    """What stands between commas, commas in quotes aside."""
    sign = ","
    if "'" in text or '"' in text:
        sign = "\n"  # which a line does not have
        text = "".join(sign if piece == "," else piece for piece in _PIECE.findall(text))
    return [piece.strip() for piece in text.split(sign)]


def _unquote(texts: list[str]) -> list[str]:
    """Texts without quotes and escapes."""
    return [re.sub(r"\\(.)", r"\1", t[1:-1]) if t.startswith(("'", '"')) else t for t in texts]


def _read_values(texts: list[str]) -> list[str] | None:
    """Values, quotes undone; None if one is malformed."""
    if not _SPECIAL.search(",".join(texts)):
        return texts
    return _unquote(texts) if all(map(_VALUE.fullmatch, texts)) else None


class _Attribute(NamedTuple):
    """A column: numeric, or nominal with the number of each of its values."""

    name: str
    values: dict[str, float] | None = None
    plain: bool = True  # whether all values are numbers that stand for themselves

    def number(self, value: str) -> float:
        """The number that stands for a value; a ValueError says why none does."""
        if self.values is not None and value in self.values:
            return self.values[value]
        what = f"the value of {shown(self.name)} is missing (?)"
        require(value != "?", f"{what}; fill it in or drop the row.")
        try:
            number = float("" if "_" in value else value)
            what = "" if math.isfinite(number) else "is not a finite number"
        except ValueError:
            number, what = math.nan, "is not a number"
        if self.values is not None and not (self.plain and number in self.values.values()):
            what = f"is not among the {len(self.values)} values declared"
        if what:
            value = f"the value {shown(value)} of {shown(self.name)}"
            raise ValueError(f"{value} {what}; correct the line.")
        return number


def _read_header(text: TextSource, lines: Iterator[str]) -> list[_Attribute]:
    """The attributes, in order; takes the lines up to and including ``@data``."""
    attributes: dict[str, _Attribute] = {}
    for line in lines:
        keyword, *rest = line.split(maxsplit=1)
        if keyword.lower() == "@data":
            text.require(attributes, "@data comes before any @attribute; declare the columns.")
            return list(attributes.values())
        if keyword.lower() == "@attribute":
            attribute = _read_attribute(text, rest[0] if rest else "")
            what = f"the attribute {shown(attribute.name)} is declared twice; rename one."
            text.require(attribute.name not in attributes, what)
            attributes[attribute.name] = attribute
        elif keyword.lower() != "@relation":
            found = f"found {shown(line)}; is this ARFF?"
            raise text.error(f"expected @relation, @attribute or @data, {found}")
    raise text.error("there is no @data line; is the file complete?")


def _read_attribute(text: TextSource, declaration: str) -> _Attribute:
    match: Any = _NAME.match(declaration)
    what = f"{shown(declaration)} is not a name and a type; write @attribute NAME numeric."
    text.require(match, what)
    (name,), kind = _unquote([match[1]]), declaration[match.end() :].strip()
    if kind.lower() in ("numeric", "real", "integer"):
        return _Attribute(name)
    what = f"attribute {shown(name)} has the type {shown(kind)}; only numeric and nominal"
    text.require(kind[:1] + kind[-1:] == "{}", f"{what} attributes are read, remove it.")
    values = _read_values(_split(kind[1:-1]))
    if values is None or "" in values or len(set(values)) < len(values):
        what = f"the values of attribute {shown(name)} are not a list such as {{a, b}}"
        raise text.error(f"{what} of different values; correct the line.")
    try:
        return _Attribute(name, {value: _Attribute(name).number(value) for value in values})
    except ValueError:
        return _Attribute(name, {value: float(k) for k, value in enumerate(values)}, plain=False)


def read_arff(source: File, labels: File | Sequence[str] | int | None = None) -> MultilabelData:
    r"""Read an ARFF file, dense or sparse.

    Attributes may be numeric or nominal. A nominal value that is a number stands for itself if
    all values of its attribute are numbers; otherwise values are numbered from 0 as declared.

    Missing values (``?``), undeclared values and attributes of other types are refused. X is dense
    if the rows of the file are, otherwise sparse.

    Parameters
    ----------
    source : path, "-", file object or TextSource; UTF-8, gzipped or not
    labels : path, file object, str, list of str or int, optional
        Which attributes are labels: a Mulan XML file, names, or a number of attributes, counted
        from the end if negative. They must have the values 0 and 1. Default: none.

    Examples
    --------
    >>> import io
    >>> text = "@relation r\n@attribute a numeric\n@attribute b {0,1}\n@data\n2.5,1\n"
    >>> data = read_arff(io.StringIO(text), labels=["b"])
    >>> data.X.tolist(), data.Y.toarray().tolist(), data.label_names
    ([[2.5]], [[1]], ['b'])
    """
    with open_text(source) as text:
        # Comments and blank lines are skipped wherever they stand.
        stripped = (line.strip() for _, line in text.lines())
        lines = (line for line in stripped if line and line[0] != "%")
        attributes = _read_header(text, lines)
        names = [attribute.name for attribute in attributes]
        wanted = _label_columns(text, names, labels)
        rows = SparseRows()
        matrix = _read_rows(text, lines, attributes, rows)
        Y = sp.csr_matrix(matrix[:, wanted])
        for k in np.flatnonzero(Y.data != 1.0):
            line = rows.lines[int(np.searchsorted(Y.indptr, k, side="right")) - 1]
            what = f"the label {shown(names[wanted[Y.indices[k]]])} is {Y.data[k]:g}"
            how = "labels must be 0 or 1 (one label of several: use CSV or SVMlight)."
            raise text.error(f"{what}; {how}", line)
        kept = np.setdiff1d(np.arange(len(names)), wanted)
        features, chosen = ([names[k] for k in columns] for columns in (kept, wanted))
        return MultilabelData(matrix[:, kept], Y.astype(np.uint8), features, chosen)


def _label_columns(text: TextSource, names: list[str], labels: Any) -> list[int]:
    if labels is None:
        return []
    columns = list(range(len(names)))
    if isinstance(labels, (int, np.integer)):
        what = f"labels is {labels}, but there are {len(names)} attributes; give fewer."
        text.require(abs(int(labels)) <= len(names), what, 0)
        return columns[: int(labels)] if labels >= 0 else columns[int(labels) :]
    if isinstance(labels, str) and labels in names:
        labels = [labels]
    if not isinstance(labels, (list, tuple)):
        labels = read_mulan_labels(labels)
    numbers = dict(zip(names, columns, strict=True))
    if unknown := [label for label in labels if label not in numbers]:
        what = f"the label {shown(str(unknown[0]))} is not among the attributes"
        raise text.error(f"{what}; name the labels file of this file.", 0)
    return [numbers[label] for label in dict.fromkeys(labels)]


def _read_rows(
    text: TextSource, lines: Iterator[str], attributes: list[_Attribute], rows: SparseRows
) -> Any:
    """All rows as a matrix, which is sparse if they are."""
    convert = [float if a.values is None else a.values.__getitem__ for a in attributes]
    sparse = None
    for row in lines:
        if sparse is None and (sparse := row.startswith("{")):
            for name, values, _ in attributes:
                what = f"sparse rows leave out the first value of {shown(name)}"
                zero = values is None or next(iter(values.values())) == 0.0
                text.require(zero, f"{what}, which is not 0; declare 0 first.")
        what = "sparse rows {…} and dense rows are mixed; write all rows in one way."
        text.require(sparse == row.startswith("{"), what)
        columns, texts = _split_row(text, row, len(attributes))
        try:
            numbers = [convert[k](value) for k, value in zip(columns, texts, strict=True)]
            sure = "_" not in row and math.isfinite(sum(numbers))
        except (KeyError, ValueError):
            sure = False
        if not sure:  # the careful way finds what is wrong, or that nothing is
            pairs = zip(columns, texts, strict=True)
            try:
                numbers = [attributes[k].number(value) for k, value in pairs]
            except ValueError as error:
                raise text.error(str(error)) from None
        rows.add(columns if sparse else (), numbers, text.line or 0)
    if not sparse:
        return np.array(rows.values).reshape(len(rows.lines), len(attributes))
    matrix = rows.matrix(len(attributes))
    matrix.sort_indices()
    matrix.eliminate_zeros()
    return matrix


def _split_row(text: TextSource, row: str, width: int) -> tuple[Sequence[int], Sequence[str]]:
    """Columns and values of a row, the latter as text."""
    if not row.startswith("{"):
        values = _read_values(_split(row))
        if values is None or len(values) != width:
            found = "a malformed row" if values is None else f"{len(values)} values"
            what = f"expected {width} values separated by commas, found {found}"
            raise text.error(f"{what}; correct the line.")
        return range(width), values
    inside = row[1:-1]
    pairs = [piece.split(maxsplit=1) for piece in _split(inside)] if inside.strip() else []
    fine = row.endswith("}") and all(len(pair) == 2 for pair in pairs)
    values = _read_values([value for _, value in pairs]) if fine else None
    if values is None:
        raise text.error(f"{shown(row)} is not a row such as {{0 1, 3 2.5}}; correct the line.")
    columns = [int(c) if c.isdecimal() and len(c) < 10 else -1 for c, _ in pairs]
    if columns and not 0 <= min(columns) <= max(columns) < width:
        wrong = next(c for (c, _), k in zip(pairs, columns, strict=True) if not 0 <= k < width)
        what = f"there is no attribute {shown(wrong)}, they are numbered 0 to {width - 1}"
        raise text.error(f"{what}; correct the line.")
    if len(set(columns)) < len(columns):
        again = next(k for k in columns if columns.count(k) > 1)
        raise text.error(f"attribute {again} occurs twice; give it once.")
    return columns, values


#: Most columns for which names are made up; a file of a few bytes may have billions.
_MAX_UNNAMED = 1_000_000
_PLAIN = re.compile(r"[^\s'\",{}%\\?]+")


def write_arff(target: File, data: MultilabelData) -> None:
    """Write rows with labels as ARFF, labels last; sparse rows if X is sparse.

    Features and labels without names are called ``x1, x2, …`` and ``label0, label1, …``.
    """
    n_features, n_labels = data.X.shape[1], data.Y.shape[1]
    features, labels = attribute_names(data)
    fine = len(features) == n_features and len(labels) == n_labels
    require(fine, "there must be as many names as features and labels.")
    fine = len({*features, *labels}) == n_features + n_labels
    require(fine, "two features or labels have the same name: rename one.")
    matrix = numeric_matrix(sp.hstack([sp.csr_matrix(data.X), data.Y]), "X")
    with atomic_text(target) as out:
        out.write("@relation data\n\n")
        out.writelines(f"@attribute {_quote(name)} numeric\n" for name in features)
        out.writelines(f"@attribute {_quote(name)} {{0,1}}\n" for name in labels)
        out.write("\n@data\n")
        for lo, hi in pairwise(matrix.indptr.tolist()):
            texts = map(number_text, matrix.data[lo:hi].tolist())
            pairs = zip(matrix.indices[lo:hi].tolist(), texts, strict=True)
            if sp.issparse(data.X):
                out.write("{" + ",".join(f"{k} {value}" for k, value in pairs) + "}\n")
            else:
                row = dict.fromkeys(range(matrix.shape[1]), "0") | dict(pairs)
                out.write(",".join(row.values()) + "\n")


def attribute_names(data: MultilabelData) -> tuple[list[str], list[str]]:
    """Names of features and labels, made up where there are none."""
    features, labels = data.feature_names, data.label_names
    n, n_labels = data.X.shape[1], data.Y.shape[1]
    most = max(n if features is None else 0, n_labels if labels is None else 0)
    what = f"there are {most:,} columns, and ARFF declares at most {_MAX_UNNAMED:,} without names"
    require(most <= _MAX_UNNAMED, f"{what}: renumber them.")
    features = [f"x{k + 1}" for k in range(n)] if features is None else features
    return features, [f"label{k}" for k in range(n_labels)] if labels is None else labels


def _quote(name: str) -> str:
    fine = "\n" not in name and "\r" not in name
    require(fine, f"the name {shown(name)} has a line end: rename it.")
    if _PLAIN.fullmatch(name) and not name.startswith("@"):
        return name
    return "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"


def read_label_sets(source: File, labels: Any = None) -> MultilabelData:
    """Rows and labels, the latter by default those of Mulan's XML file in the same folder."""
    if labels is None:
        endings = [f"{part}.arff{gz}" for part in ("", "-train", "-test") for gz in (".gz", "")]
        labels = file_beside(source, *((ending, ".xml") for ending in endings))
        if labels is None:
            with open_text(source) as text:
                what = f"{text.name} does not say which of its attributes are labels"
            xml = f"{Path(text.name.removesuffix('.gz')).stem}.xml"
            how = f"put Mulan's {xml} next to it, or give with --label its path, a label's name, or"
            how += " how many attributes are labels (6 if they are the first, -6 if the last)"
            raise ValueError(f"{what}: {how}.")
    return read_arff(source, labels)


def write_label_sets(target: File, data: MultilabelData) -> None:
    """Rows with labels last, and for a path the XML file that names the labels."""
    data = data._replace(label_names=attribute_names(data)[1])
    write_arff(target, data)
    if isinstance(target, (str, os.PathLike)) and target != "-" and data.label_names:
        path = Path(target)
        stem = path.name.removesuffix(".gz").removesuffix(".arff")
        write_mulan_labels(path.with_name(f"{stem}.xml"), data.label_names)
