"""Which format a file has, from its first lines."""

from __future__ import annotations

import io
import os
import re
from collections import Counter

from hingeline.data.text import ParseError, Source, TextSource, open_text
from hingeline.data.trees import iter_trees

_PEEK = 2**16
_MAX_LINES = 500
_REMEDY = "name the format"
_BLANKS = re.compile(r"[ \t\v\f]+")  # no others, as in the reader
_ID = re.compile(r"[0-9]+(-[0-9]+|\.[0-9]+)?")
_PAIR = re.compile(r"[0-9]+:[^:\s]+")
_QID = re.compile(r"qid:[0-9]+")
_NUMBER = re.compile(r"[-+]?[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?")
_LABEL_SET = re.compile(r"[0-9]+(,[0-9]+)*")
_ATTRIBUTE = re.compile(r"=|\[|\\:|:[-+]?[0-9.]+$")
#: Columns of numbers beyond which a table is no sentence.
_MANY = 30


def detect_format(source: Source) -> str:
    r"""Guess the format of a file from its beginning.

    Parameters
    ----------
    source : path or TextSource
        A file that cannot be opened twice, such as standard input, must be opened with
        :func:`~hingeline.data.text.open_text` first; nothing is taken from it, so that the same
        source can be read afterwards.

    Returns
    -------
    str
        ``"conll"``, ``"conllu"``, ``"svmlight"``, ``"svmhmm"``, ``"crfsuite"``, ``"multilabel"``,
        ``"arff"``, ``"trees"``, ``"letters"`` or ``"idx"``. Lines with ``qid:N`` are taken for
        SVM^hmm; two columns separated by tabs for CoNLL.

    Raises
    ------
    ParseError
        No format fits, or two do; the message says which and why.

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
        return _detect(source)
    if isinstance(source, os.PathLike) or (isinstance(source, str) and source != "-"):
        with open_text(source) as text:
            return _detect(text)
    raise TypeError(
        "the beginning of an open file or of standard input would be lost: pass "
        "open_text(source) here and to the reader."
    )


def _detect(text: TextSource) -> str:
    head = text.peek(_PEEK)
    if head[:2] == b"\0\0" and len(head) >= 4:
        return "idx"
    if b"\0" in head:
        raise text.error(None, f"the file is neither text nor IDX; {_REMEDY} or check the file.")
    content = head.removeprefix(b"\xef\xbb\xbf")
    if len(head) == _PEEK:
        cut = content.rfind(b"\n") + 1
        content = content[:cut] if cut else content
    lines = [line.rstrip("\r") for line in content.decode("utf-8", "replace").split("\n")]
    lines = [line for line in lines if line.strip()][:_MAX_LINES]
    if not lines:
        raise text.error(None, f"the file is empty; {_REMEDY} or check the file.")
    if _is_arff(lines):
        return "arff"
    if lines[0].lstrip().startswith("(") and _is_trees(content):
        return "trees"
    if _is_conllu(lines):
        return "conllu"
    if _is_letters(lines):
        return "letters"
    return _svm_format(text, lines) or _token_format(text, lines)


def _is_arff(lines: list[str]) -> bool:
    first = next((line for line in lines if not line.lstrip().startswith("%")), "")
    return first.lstrip().lower().startswith(("@relation", "@attribute"))


def _is_trees(content: bytes) -> bool:
    try:
        for _ in iter_trees(TextSource(io.BytesIO(content), "")):
            pass
    except ParseError as error:
        return "never closed" in error.problem  # the beginning of a file may end inside a tree
    return True


def _is_conllu(lines: list[str]) -> bool:
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    right = [len(row) == 10 and _ID.fullmatch(row[0]) is not None for row in rows]
    # A few wrong lines are for the reader to report.
    return bool(right) and right[0] and sum(right) >= 0.9 * len(right)


def _is_letters(lines: list[str]) -> bool:
    row = lines[0].removesuffix("\t").split("\t")
    return len(row) == 134 and row[0].isdigit() and set(row[6:]) <= {"0", "1"}


def _svm_format(text: TextSource, lines: list[str]) -> str | None:
    """Which relative of SVMlight it is, if any."""
    heads: list[str] = []
    n_pairs = n_qids = 0
    for line in lines:
        fields = line.partition("#")[0].split()
        if not fields:
            continue
        heads.append("" if _PAIR.fullmatch(fields[0]) else fields.pop(0))
        if fields and _QID.fullmatch(fields[0]):
            n_qids += 1
            del fields[0]
        if not all(map(_PAIR.fullmatch, fields)):
            return None
        n_pairs += len(fields)
    if n_qids:
        return "svmhmm"
    if not n_pairs:
        return None
    if all(map(_NUMBER.fullmatch, heads)):
        found = "svmlight"
    elif all(not head or _LABEL_SET.fullmatch(head) for head in heads):
        found = "multilabel"
    else:
        return None
    if all("\t" in line and " " not in line for line in lines):
        raise text.error(
            None,
            f"this could be {found!r} or 'crfsuite', since tabs stand between pairs of numbers; "
            f"{_REMEDY}.",
        )
    return found


def _token_format(text: TextSource, lines: list[str]) -> str:
    """CoNLL columns or CRFsuite's attributes."""
    lines = [line for line in lines if not line.startswith("-DOCSTART-")] or lines
    tabs = "\t" in lines[0]
    rows = [line.split("\t") if tabs else _BLANKS.split(line.strip()) for line in lines]
    counts = Counter(map(len, rows))
    width, frequency = counts.most_common(1)[0]
    regular = frequency >= 0.9 * len(rows)  # a few wrong lines are for the reader to report
    if tabs:
        fields = [field for row in rows for field in row[1:]]
        share = sum(_ATTRIBUTE.search(field) is not None for field in fields) / max(1, len(fields))
        if share >= 0.5:
            return "crfsuite"
        if regular and share <= 0.1:
            return "conll"
        reason = (
            f"{share:.0%} of the fields look like attributes"
            if regular
            else "lines have different numbers of fields"
        )
        raise text.error(None, f"this could be 'conll' or 'crfsuite', since {reason}; {_REMEDY}.")
    if not regular:
        raise text.error(
            None,
            "no format fits, since lines have different numbers of columns, as in running text; "
            "put one token on each line and a blank line after each sentence.",
        )
    if width > _MANY and all(map(_NUMBER.fullmatch, rows[0])):
        raise text.error(
            None,
            f"no format fits a table of {width} columns of numbers; write it as SVMlight or ARFF.",
        )
    return "conll"
