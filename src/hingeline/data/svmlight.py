"""SVMlight and its relatives: LIBSVM, LIBSVM multi-label, SVM^hmm."""

from array import array
from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from hingeline._checks import numeric_matrix, require
from hingeline.data import samples
from hingeline.data.samples import LabelledSequences, SparseRows, check_lengths
from hingeline.data.text import File, TextSource, atomic_text, number_text, open_text, shown
from hingeline.features.tables import SparseSequences

Size = int | None  # as many as occur
ZeroBased = bool | Literal["auto"]

MAX_INDEX = 2**31 - 2  # Largest feature number, that of the C programs which share the format.
_MAX_INTEGER = 2.0**53


def write_svmlight(
    target: File, X: Any, y: Any, qid: Any = None, comments: Any = None, *, zero_based: bool = False
) -> None:
    """Write labelled rows as ``label index:value …``; labels are numbers.

    Comments are written after ``#`` if they are not empty. Features are numbered from 1 unless
    ``zero_based``. A target whose name ends in ``.gz`` is compressed.
    """
    labels = np.asarray(y)
    fine = labels.dtype.kind in "biuf" and np.isfinite(labels).all()
    require(fine, "y must be finite numbers to be written as labels: number the classes.")
    heads = [number_text(label) for label in labels.tolist()]
    if qid is not None:
        queries = np.asarray(qid).tolist()
        heads = [f"{head} qid:{query}" for head, query in zip(heads, queries, strict=True)]
    _write_rows(target, X, heads, comments, zero_based)


def write_multilabel(target: File, X: Any, Y: Any, *, zero_based: bool = False) -> None:
    """Write rows with sets of labels as ``1,3,5 index:value …``; parameters as above.

    Y is an indicator matrix, sparse or not; column k is label k.
    """
    indicator = sp.csr_matrix(sp.csr_matrix(Y) != 0)
    indicator.sort_indices()
    columns, starts = indicator.indices.tolist(), indicator.indptr.tolist()
    heads = [",".join(map(str, columns[lo:hi])) for lo, hi in pairwise(starts)]
    _write_rows(target, X, heads, None, zero_based)


def write_svmhmm(target: File, X: SparseSequences, y: Sequence[Sequence[Any]]) -> None:
    """Write labelled sequences as ``TAG qid:N index:value …``, sequences numbered from 1.

    SVM^hmm itself needs tags that are numbers from 1.
    """
    check_lengths(X.lengths.tolist(), y)
    heads = []
    for i, labels in enumerate(y):
        for label in map(str, labels):
            if not label or any(c in "#: \t\n\r\v\f" for c in label):
                what = f"y[{i}] has the label {shown(label)}, which this format cannot hold"
                raise ValueError(f"{what}: number the labels.")
            heads.append(f"{label} qid:{i + 1}")
    _write_rows(target, X.matrix, heads, None, False)


def _write_rows(target: File, X: Any, heads: list[str], comments: Any, zero_based: bool) -> None:
    matrix, n = numeric_matrix(X, "X"), len(heads)
    found = f"X has {matrix.shape[0]} rows, but there are"
    require(matrix.shape[0] == n, f"{found} {n} labels.")
    comments = [""] * n if comments is None else comments
    require(len(comments) == n, f"{found} {len(comments)} comments.")
    indices = matrix.indices + (not zero_based)
    with atomic_text(target) as out:
        for i, (lo, hi) in enumerate(pairwise(matrix.indptr.tolist())):
            pairs = zip(indices[lo:hi].tolist(), matrix.data[lo:hi].tolist(), strict=True)
            items = [f"{k}:{number_text(v)}" for k, v in pairs]
            fine = "\n" not in comments[i] and "\r" not in comments[i]
            require(fine, f"comment {i} has a line end: it must fit into the line.")
            what = f"row {i} has neither labels nor features: its line is blank."
            require(heads[i] or items, what)
            note = f"# {comments[i]}" if comments[i] else ""
            out.write(" ".join(filter(None, [heads[i], *items, note])) + "\n")


class _Rows(SparseRows):
    """Rows of ``head qid:N index:value … # comment``, gathered line by line."""

    def __init__(self, text: TextSource) -> None:
        super().__init__()
        self.text = text
        self.heads: list[bytes] = []
        self.qids = array("q")
        self.comments: list[str] = []
        for number, line in text.byte_lines():
            self._add_line(number, line)

    def _add_line(self, number: int, line: bytes) -> None:
        body, _, comment = line.partition(b"#")
        body = body.replace(b"\t", b" ")
        fields = body.replace(b":", b" : ").split()
        if not fields:
            return
        # A line may begin with a feature only where a set of labels can be empty.
        start = 0 if fields[1:2] == [b":"] else 1
        self.heads.append(fields[0] if start else b"")
        try:
            if fields[start : start + 2] == [b"qid", b":"]:
                self.qids.append(int(fields[start + 2]))
                start += 3
            n_items = (len(fields) - start) // 3
            if fields[start + 1 :: 3] != [b":"] * n_items or (len(fields) - start) % 3:
                raise ValueError
            if b" :" in body or b": " in body:
                raise ValueError
            if b"_" in body and any(b"_" in field for field in fields[start:]):
                raise ValueError  # which Python would take for a number
            self.add(map(int, fields[start::3]), map(float, fields[start + 2 :: 3]), number)
        except (ValueError, OverflowError, IndexError):
            raise self.text.error(self._bad_item(body)) from None
        what = "some lines have a qid and some have none; give a qid on all lines or on none."
        self.text.require(len(self.qids) in (0, len(self.heads)), what)
        self.comments.append(comment.strip().decode())

    @staticmethod
    def _bad_item(body: bytes) -> str:
        """What is wrong with the first item of a line that is no pair of numbers."""
        for k, item in enumerate(body.split()):
            index, colon, value = item.partition(b":")
            if k == 0 and not colon:
                continue
            try:
                whole = int(value if index == b"qid" and k <= 1 else index)
                good = -(2**63) <= whole < 2**63 and b"_" not in item
                float(value)
            except ValueError:
                good = False
            if not good:
                return f"{shown(item)} is not an index:value pair of numbers; correct the item."
        return "there are spaces around a colon; write index:value without spaces."

    def features(self, zero_based: ZeroBased, n_features: int | None) -> sp.csr_matrix:
        """All rows as a CSR matrix, checked."""
        indices, values, starts = (np.array(x) for x in (self.indices, self.values, self.starts))
        if zero_based == "auto":
            zero_based = bool(np.any(indices == 0))
        elif not isinstance(zero_based, (bool, np.bool_)):
            raise ValueError(f"zero_based must be True, False or 'auto', got {zero_based!r}.")
        first = 0 if zero_based else 1
        limit = MAX_INDEX if n_features is None else min(MAX_INDEX, n_features - 1 + first)
        falling = np.zeros(len(indices), dtype=bool)
        falling[1:] = np.diff(indices) <= 0
        falling[starts[:-1][np.diff(starts) > 0]] = False
        other = "" if zero_based else " or pass zero_based=True"
        remedy = "renumber the features" if n_features is None else "raise n_features"
        for wrong, problem in (
            (indices < first, f"index {{0}} is less than {first}; number from {first}{other}"),
            (indices > limit, f"index {{0}} is more than {limit}; {remedy}"),
            (falling, "index {0} follows {1}; sort the features of a line and give each once"),
            (~np.isfinite(values), "the value of index {0} is {2}; leave out what is not finite"),
        ):
            for k in np.flatnonzero(wrong):
                what = problem.format(indices[k], indices[k - 1], values[k])
                row = int(np.searchsorted(starts, k, side="right")) - 1
                raise self.text.error(f"{what}.", self.lines[row])
        width = int(indices.max(initial=first - 1)) + 1 - first
        return self.matrix(width if n_features is None else n_features, first)


def read_svmlight(
    source: File, *, n_features: int | None = None, zero_based: ZeroBased = "auto"
) -> samples.FlatData:
    r"""Read ``label index:value …``, the format of SVMlight, LIBSVM and LIBLINEAR.

    A line may have ``qid:N`` after the label and a comment after ``#``. Labels or items that are
    not numbers, and indices that do not ascend, are refused.

    Parameters
    ----------
    source : path, "-", file object or TextSource; UTF-8, gzipped or not
    n_features : int, width of X, as a test file may lack the last ones; default: as many as occur
    zero_based : bool, whether features are numbered from 0; ``"auto"`` if an index 0 occurs

    Examples
    --------
    >>> import io
    >>> data = read_svmlight(io.StringIO("1 1:0.5 3:2\n-1 2:1 # why\n"))
    >>> data.X.toarray().tolist(), data.y.tolist()
    ([[0.5, 0.0, 2.0], [0.0, 1.0, 0.0]], [1, -1])
    """
    with open_text(source) as text:
        rows = _Rows(text)
        y = np.array([_number(head) for head in rows.heads])
        for i in np.flatnonzero(~np.isfinite(y)):
            what = f"the label {shown(rows.heads[i])} is not a number"
            what = what if rows.heads[i] else "there is no label"
            raise text.error(f"{what}; correct the line.", rows.lines[i])
        if np.all(np.abs(y) <= _MAX_INTEGER) and np.array_equal(y, np.round(y)):
            y = y.astype(np.int64)
        qids = np.array(rows.qids, dtype=np.int64) if rows.qids else None
        comments = rows.comments if any(rows.comments) else None
        return samples.FlatData(rows.features(zero_based, n_features), y, qids, comments)


def _number(text: bytes) -> float:
    try:
        return float("nan") if b"_" in text else float(text)
    except ValueError:
        return float("nan")


def read_multilabel(
    source: File, *, n_features: Size = None, n_labels: Size = None, zero_based: ZeroBased = "auto"
) -> samples.MultilabelData:
    """Read ``1,3,5 index:value …``, LIBSVM's format for sets of labels.

    A line that begins with a feature has no labels. Label k is column k of Y. ``n_labels`` is the
    width of Y, by default as many as occur; other parameters are as for :func:`read_svmlight`.
    """
    with open_text(source) as text:
        rows = _Rows(text)
        limit = MAX_INDEX if n_labels is None else min(MAX_INDEX, n_labels - 1)
        sets = SparseRows()
        for line, head in zip(rows.lines, rows.heads, strict=True):
            parts = head.split(b",") if head else []
            for part in parts:
                if not part.isdigit() or len(part) > 10 or int(part) > limit:
                    what = f"the label {shown(part)} is not a whole number from 0 to {limit}"
                    remedy = "correct the line" if n_labels is None else "raise n_labels"
                    raise text.error(f"{what}; {remedy}.", line)
            found = sorted({int(part) for part in parts})
            sets.add(found, [1.0] * len(found))
        width = max(sets.indices, default=-1) + 1 if n_labels is None else n_labels
        X = rows.features(zero_based, n_features)
        return samples.MultilabelData(X, sets.matrix(width).astype(np.uint8))


def read_svmhmm(
    source: File, *, n_features: int | None = None, zero_based: ZeroBased = "auto"
) -> LabelledSequences:
    r"""Read ``TAG qid:N index:value …``, the format of SVM^hmm: one token per line.

    Lines with the same number N form a sequence and must be consecutive; what follows ``#`` is
    skipped. Parameters are as for :func:`read_svmlight`. The returned ``X`` is a
    :class:`~hingeline.features.tables.SparseSequences`; tags are strings.

    Examples
    --------
    >>> import io
    >>> X, y = read_svmhmm(io.StringIO("1 qid:1 3:1\n2 qid:1 4:1\n1 qid:2 3:1\n"))
    >>> len(X), y
    (2, [['1', '2'], ['1']])
    """
    with open_text(source) as text:
        rows = _Rows(text)
        if rows.heads and not rows.qids:
            what = "there is no qid:N after the tag; number the sequences."
            raise text.error(what, rows.lines[0])
        qids, offsets = rows.qids.tolist(), [0]
        seen: set[int] = set()
        for qid, same in groupby(qids):
            if qid in seen:
                what = f"qid:{qid} occurred before; put the lines of a sequence together"
                raise text.error(f"{what} and number each anew.", rows.lines[offsets[-1]])
            seen.add(qid)
            offsets.append(offsets[-1] + sum(1 for _ in same))
        if b"" in rows.heads:
            raise text.error("there is no tag; add it.", rows.lines[rows.heads.index(b"")])
        tags = [head.decode() for head in rows.heads]
        y = [tags[lo:hi] for lo, hi in pairwise(offsets)]
        return LabelledSequences(SparseSequences(rows.features(zero_based, n_features), offsets), y)
