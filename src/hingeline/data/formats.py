"""All formats by name: reading any of them, guessing which a file has, and conversion."""

import io
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import Any

from hingeline._checks import require
from hingeline.data.samples import LabelledSequences, Vocabulary
from hingeline.data.text import LONE_RETURN, File, ParseError, TextSource, open_text
from hingeline.features.tables import SparseSequences, TokenTable


@dataclass(frozen=True)
class Format:
    """A file format and what it holds.

    The kinds are ``"tokens"`` (:class:`TokenTable`), ``"sequences"`` (:class:`LabelledSequences`),
    ``"flat"`` (:class:`FlatData`), ``"multilabel"`` (:class:`MultilabelData`) and ``"trees"`` (list
    of :class:`Tree`).
    """

    name: str
    kind: str
    read: Callable[..., Any]  # (source, **options)
    write: Callable[[File, Any], None] | None  # None for formats that are only read
    title: str  # for a list of formats
    options: tuple[str, ...] = ()  # that ``read`` takes


def _late(place: str, spread: int | None = None) -> Callable[..., Any]:
    """A function imported when called; it takes the first ``spread`` parts of data one by one."""
    module, name = place.split(".")

    def call(file: Any, *data: Any, **options: Any) -> Any:
        arguments = data if spread is None else data[0][:spread]
        return getattr(import_module(f"hingeline.data.{module}"), name)(file, *arguments, **options)

    return call


# fmt: off
#: Formats by name.
FORMATS: dict[str, Format] = {entry.name: entry for entry in (
    Format("conll", "tokens", _late("conll.read_conll"), _late("conll.write_conll"),
           "CoNLL columns, one token per line (2000, 2002, 2003)", ("names", "separator")),
    Format("conllu", "tokens", lambda file: _late("conll.read_conllu")(file).table,
           _late("conll.write_conllu_table"), "CoNLL-U, the format of Universal Dependencies"),
    Format("csv", "tokens", _late("records.read_csv"), _late("records.write_csv"),
           "CSV or TSV with a header, one token per line"),
    Format("jsonl", "tokens", _late("records.read_jsonl"), _late("records.write_jsonl"),
           "JSON lines, one sentence per line, also of spaCy"),
    Format("text", "tokens", _late("records.read_raw"), None,
           "running text, one sentence per line"),
    Format("crfsuite", "sequences", _late("crfsuite.read_crfsuite"),
           _late("crfsuite.write_crfsuite", 2),
           "CRFsuite: label and attributes, one token per line"),
    Format("svmhmm", "sequences", _late("svmlight.read_svmhmm"), _late("svmlight.write_svmhmm", 2),
           "SVM^hmm: TAG qid:N index:value, one token per line", ("n_features", "zero_based")),
    Format("letters", "sequences", _late("images.read_letter_sequences"), None,
           "letter.data, handwritten words"),
    Format("svmlight", "flat", _late("svmlight.read_svmlight"), _late("svmlight.write_svmlight", 4),
           "SVMlight, LIBSVM, LIBLINEAR: label index:value", ("n_features", "zero_based")),
    Format("table", "flat", _late("records.read_table"), None,
           "CSV or TSV with a header, numbers and a label per line", ("labels", "names")),
    Format("idx", "flat", _late("images.read_images"), None,
           "IDX images and labels, as MNIST", ("labels",)),
    Format("multilabel", "multilabel", _late("svmlight.read_multilabel"),
           _late("svmlight.write_multilabel", 2), "LIBSVM with sets of labels: 1,3,5 index:value",
           ("n_features", "n_labels", "zero_based")),
    Format("arff", "multilabel", _late("arff.read_label_sets"), _late("arff.write_label_sets"),
           "ARFF with Mulan's XML list of labels", ("labels",)),
    Format("trees", "trees", _late("trees.read_trees"), _late("trees.write_trees"),
           "bracketed trees, as the Penn Treebank"),
)}
# fmt: on

#: Kinds that data of a kind can be turned into; of others none but their own.
_REACHES = {"trees": ("trees", "tokens", "sequences"), "tokens": ("tokens", "sequences")}


def find_format(name: str) -> Format:
    """The format of that name; a ``ValueError`` lists them all."""
    require(name in FORMATS, f"there is no format {name!r}: there are {', '.join(FORMATS)}.")
    return FORMATS[name]


def targets_of(name: str) -> list[str]:
    """Names of the formats that a file of this format can be converted to."""
    kind = find_format(name).kind
    kinds = _REACHES.get(kind, (kind,))
    return [f.name for f in FORMATS.values() if f.kind in kinds and f.write is not None]


def read_any(source: File, format: str = "auto", **options: Any) -> tuple[Format, Any]:
    r"""Read a file of any format; returns the format, and data of the format's kind.

    ``format`` is its name, or ``"auto"`` to guess it from the beginning of the file. Options are
    for the reader of that format; None counts as not given.

    Examples
    --------
    >>> import io
    >>> found, table = read_any(io.StringIO("Ann\tB-PER\nran\tO\n"))
    >>> found.name, table.sentences(-1)
    ('conll', [['B-PER', 'O']])
    """
    given = {name: value for name, value in options.items() if value is not None}
    if format == "auto":
        if not isinstance(source, (str, os.PathLike)) or source == "-":
            source = open_text(source)
        format = detect_format(source)
    found = find_format(format)
    for name in [name for name in given if name not in found.options]:
        known = ", ".join(found.options) or "none"
        raise ValueError(f"the format {format!r} has no option {name!r}: it has {known}.")
    return found, found.read(source, **given)


def convert(
    source: File,
    target: File,
    to: str,
    *,
    format: str = "auto",
    columns: Sequence[str | int] | None = None,
    vocabulary: Vocabulary | None = None,
    **options: Any,
) -> Vocabulary | None:
    r"""Convert a file to another format that holds data of the same kind, or of a simpler one.

    Returns the vocabulary that was used, for the next file and for converting back.

    Trees become tokens with their tags, without traces. Tokens become sequences whose attributes
    are ``name=value`` for every column but the last, which is the label. A vocabulary turns names
    into numbers and numbers into names.

    Parameters
    ----------
    source, target : path, "-" or file object
    to, format : str, formats to write and to read; ``"auto"`` guesses the latter
    columns : sequence of str or int, columns of tokens to keep, in this order; optional
    vocabulary : Vocabulary of the training file, for a test file; default: made from the source
    **options
        For the reader, see :func:`read_any`.

    Examples
    --------
    >>> import io
    >>> convert(io.StringIO("Ann\tB-PER\nran\tO\n"), "-", "jsonl")
    {"word": ["Ann", "ran"], "col1": ["B-PER", "O"]}
    """
    goal = find_format(to)
    found, data = read_any(source, format, **options)
    if to not in (targets := targets_of(found.name)) or goal.write is None:
        known = ", ".join(targets)
        raise ValueError(f"{found.name} cannot be converted to {to}, only to {known}.")
    if found.kind == "trees" and goal.kind != "trees":
        sentences = ([leaf for leaf in tree.leaves() if leaf[1] != "-NONE-"] for tree in data)
        data = TokenTable.from_sentences([*filter(None, sentences)], ["word", "tag"])
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
    elif goal.name == "svmlight" and data.y is None:
        raise ValueError("the labels of the images are in another file: name it as labels.")
    elif goal.name == "crfsuite" and isinstance(data.X, SparseSequences):
        data = (vocabulary if vocabulary is not None else Vocabulary((), ())).decode(data)
    goal.write(target, data)
    return vocabulary


def tokens_to_sequences(table: TokenTable) -> LabelledSequences:
    """Attributes ``name=value`` of all columns but the last, which is the label."""
    require(table.names[1:], "there is only one column: put the label into a last column.")
    inputs = zip(table.names[:-1], table.values, strict=False)
    columns = [[f"{name}={value}" for value in values] for name, values in inputs]
    rows = table.codes[:-1].T.tolist()
    tokens = [{values[k]: 1.0 for values, k in zip(columns, row, strict=True)} for row in rows]
    X = [tokens[lo:hi] for lo, hi in pairwise(table.offsets.tolist())]
    return LabelledSequences(X, table.sentences(-1))


_PEEK = 2**16
_MAX_LINES = 500
_REMEDY = "name the format"
_BLANKS = re.compile(r"[ \t\v\f]+")  # no others, as in the reader
_ID = re.compile(r"[0-9]+(-[0-9]+|\.[0-9]+)?")
#: A label, unless the line begins with a feature, a number of a query, and features.
_SVM = re.compile(r"(?: (?![0-9]+:[^: ]+(?: |$))([^ ]+))?( qid:[0-9]+)?((?: [0-9]+:[^: ]+)*+)")
_NUMBER = re.compile(r"[-+]?[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?")
_LABEL_SET = re.compile(r"[0-9]+(,[0-9]+)*")
_ATTRIBUTE = re.compile(r"=|\[|\\:|:[-+]?[0-9.]+$")
_MANY = 30  # Columns of numbers beyond which a table is no sentence.


def detect_format(source: File) -> str:
    r"""Guess the format of a file from its beginning: a name in :data:`FORMATS`.

    Lines with ``qid:N`` are taken for SVM^hmm, two columns separated by tabs for CoNLL. If no
    format fits, or two do, a ``ParseError`` says which and why. A file that cannot be opened twice,
    such as standard input, must be opened with :func:`~hingeline.data.text.open_text` first; the
    guess reads nothing from it.

    Examples
    --------
    >>> import io
    >>> from hingeline.data.text import open_text
    >>> source = open_text(io.StringIO("1 qid:1 3:1\n"))
    >>> detect_format(source)
    'svmhmm'
    >>> list(source.lines())
    [(1, '1 qid:1 3:1')]
    """
    if isinstance(source, TextSource):
        text, head = source, source.peek(_PEEK)
    elif isinstance(source, os.PathLike) or (isinstance(source, str) and source != "-"):
        with open_text(source) as text:
            head = text.peek(_PEEK)
    else:
        what = "the beginning of an open file or of standard input would be lost"
        raise TypeError(f"{what}: pass open_text(source) here and to the reader.")
    if head[:2] == b"\0\0" and len(head) >= 4:
        return "idx"
    text.refuse_binary(head)
    content = head.removeprefix(b"\xef\xbb\xbf")
    if len(head) == _PEEK:
        cut = content.rfind(b"\n") + 1
        content = content[:cut] if cut else content
    lines = [line.rstrip("\r") for line in content.decode("utf-8", "replace").split("\n")]
    lines = [line for line in lines if line.strip()][:_MAX_LINES]
    text.require(lines, "the file is empty: there is nothing to read.")
    text.require("\r" not in lines[0], LONE_RETURN)
    first = next((line.lstrip() for line in lines if not line.lstrip().startswith("%")), "")
    if first.lower().startswith(("@relation", "@attribute")):
        return "arff"
    if re.match(r'\s*(\[\s*)?\{\s*"', "\n".join(lines[:3])):
        return "jsonl"
    if lines[0].lstrip().startswith("(") and _is_trees(content):
        return "trees"
    if _is_conllu(lines):
        return "conllu"
    row = lines[0].removesuffix("\t").split("\t")
    if len(row) == 134 and row[0].isdigit() and set(row[6:]) <= {"0", "1"}:
        return "letters"
    return _svm_format(text, lines) or _token_format(text, lines)


def _is_trees(content: bytes) -> bool:
    from hingeline.data.trees import read_trees

    try:
        read_trees(TextSource(io.BytesIO(content), ""))
    except ParseError as error:
        return "never closed" in error.problem  # the beginning of a file may end inside a tree
    return True


def _is_conllu(lines: list[str]) -> bool:
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    right = [len(row) == 10 and _ID.fullmatch(row[0]) is not None for row in rows]
    # A few wrong lines are for the reader to report.
    return bool(right) and right[0] and sum(right) >= 0.9 * len(right)


def _svm_format(text: TextSource, lines: list[str]) -> str | None:
    """Which relative of SVMlight it is, if any."""
    bodies = filter(None, (line.partition("#")[0].split() for line in lines))
    rows = [_SVM.fullmatch(" " + " ".join(fields)) for fields in bodies]
    if not rows or not all(rows):
        return None
    heads, qids, pairs = zip(*(row.groups("") for row in rows if row), strict=True)
    if any(qids):
        return "svmhmm"
    if not any(pairs):
        return None
    if all(map(_NUMBER.fullmatch, heads)):
        found = "svmlight"
    elif all(not head or _LABEL_SET.fullmatch(head) for head in heads):
        found = "multilabel"
    else:
        return None
    if all("\t" in line and " " not in line for line in lines):
        reason = "tabs stand between pairs of numbers"
        raise text.error(f"this could be {found!r} or 'crfsuite', since {reason}; {_REMEDY}.")
    return found


def _token_format(text: TextSource, lines: list[str]) -> str:
    lines = [line for line in lines if not line.startswith(("-DOCSTART-", "#"))] or lines
    from hingeline.data.records import is_csv, is_table

    if is_table(lines):
        return "table"
    if is_csv(text, lines):
        return "csv"
    tabs = "\t" in lines[0]
    rows = [line.split("\t") if tabs else _BLANKS.split(line.strip()) for line in lines]
    width, frequency = Counter(map(len, rows)).most_common(1)[0]
    regular = frequency >= 0.9 * len(rows)  # a few wrong lines are for the reader to report
    if tabs:
        fields = [field for row in rows for field in row[1:]]
        share = sum(_ATTRIBUTE.search(field) is not None for field in fields) / max(1, len(fields))
        if share >= 0.5:
            return "crfsuite"
        if regular and share <= 0.1:
            return "conll"
        reason = f"{share:.0%} of the fields look like attributes"
        reason = reason if regular else "lines have different numbers of fields"
        raise text.error(f"this could be 'conll' or 'crfsuite', since {reason}; {_REMEDY}.")
    what = "no format fits, since lines have different numbers of columns, as in running text"
    text.require(regular, f"{what}; put one token on a line, and a blank line after a sentence.")
    numbers = width > _MANY and all(map(_NUMBER.fullmatch, rows[0]))
    what = f"no format fits a table of {width} columns of numbers"
    text.require(not numbers, f"{what}; write it as SVMlight or ARFF.")
    return "conll"
