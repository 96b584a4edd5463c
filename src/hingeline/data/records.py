"""Tables with a header (CSV, TSV) of tokens or numbers, JSON lines, and running text."""

import csv
import io
import json
import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from contextlib import suppress
from os import PathLike, fspath
from typing import Any

import numpy as np

from hingeline import schemes
from hingeline._words import count_of
from hingeline.data.conll import COUNT_NAMES, WORD_NAMES, plain_name, sentence_column
from hingeline.data.samples import FlatData
from hingeline.data.text import File, TextSource, atomic_text, open_text, shown
from hingeline.features.tables import TokenTable

_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,14}")
_LONGEST = 1000  # Tokens beyond which a table without any end of a sentence is a mistake.
#: Titles and initials before a name and letters with points (U.S.) keep their points.
_TOKEN = re.compile(
    r"(?:Dra?|Mrs?|Ms|Prof|Rev|Sra?|St)\.(?=\s)|(?!I)[A-ZÀ-ÖØ-Þ]\.(?=\s+[A-ZÀ-ÖØ-Þ])"
    r"|(?:[^\W\d_]\.){2,}(?!\w)|\w+(?:[-'’.,/]\w+)*|\.{3}|[^\w\s]\u02ee*"
)


class _Marks(dict[int, str]):
    """Stands a letter for accents, vowel signs and joiners, which are none and cut no word."""

    def __missing__(self, code: int) -> str:
        mark = unicodedata.category(chr(code)) in ("Mn", "Mc", "Me", "Cf")
        return self.setdefault(code, "\u02ee" if mark else chr(code))


_MARKS = _Marks()


def delimiter_of(header: str) -> str:
    """What stands between the names of a header: a tab, a comma or a semicolon."""
    return max("\t,;", key=header.count)


def split_row(line: str, delimiter: str) -> list[str]:
    """The fields of a line, without their quotes; between tabs there are none."""
    if delimiter == "\t":
        return line.split("\t")
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True), [])
    except csv.Error:  # a quote that does not close, or a field that is far too long
        return [line]


def is_csv(text: TextSource, lines: list[str]) -> bool:
    """Whether it is a table with a header and commas, or a column that counts sentences."""
    sign = delimiter_of(lines[0])
    names = lines[0].split(sign)
    named = any(plain_name(name) in WORD_NAMES for name in names)
    if sign == "\t":
        return named and sentence_column(names) is not None
    regular = sum(line.count(sign) >= len(names) - 1 > 0 for line in lines) >= 0.9 * len(lines)
    # Values of a table may have blanks; in running text the number of commas varies.
    table = len(names) > 2 and len({line.count(sign) for line in lines}) == 1
    bare = table or not any(re.search(r"[ \t\v\f]", line.strip()) for line in lines)
    if regular and not named and bare:
        what = f"columns are separated by {sign!r}, but the first line names no column of words"
        how = f"begin with one like word{sign}tag; of a table of examples, name all columns, and"
        how += " give numbers in all but one"
        raise text.error(f"{what}; {how}.")
    return named and (regular or (bare and len(names) > 1))


def is_table(lines: list[str]) -> bool:
    """Whether it is a table with a header and numbers in all columns but one at most."""
    sign = delimiter_of(lines[0])
    header, *rows = (split_row(line, sign) for line in lines)
    words = any(plain_name(name) in WORD_NAMES or not math.isnan(_number(name)) for name in header)
    full = [row for row in rows if len(row) == len(header)]
    # A few wrong lines are for the reader to report. Two columns between tabs may be CoNLL.
    if words or len(header) < 2 + (sign == "\t") or len(full) <= 0.9 * len(rows):
        return False
    numeric = [all(map(is_number, column)) for column in zip(*full, strict=True)]
    return sum(numeric) >= len(header) - 1


def find_ends(header: str) -> Callable[[bytes, bytes], bool]:
    """Whether a sentence of a table with this header ends between two lines."""
    sign = delimiter_of(header)
    at = sentence_column(split_row(header, sign))

    def key(line: bytes) -> str:
        with suppress(ValueError, IndexError):
            return split_row(line.decode(), sign)[at or 0]
        return ""

    return lambda a, b: not a.strip() if at is None else key(b) not in ("", key(a))


def read_csv(source: File) -> TokenTable:
    r"""Read tokens from CSV or TSV: a header, then one token per line.

    Sentences end where the value of a column ``sentence`` changes (empty ones repeat it), or at a
    blank line. Fields may be quoted, but must not contain line ends. A first column without a
    name, as ``DataFrame.to_csv`` writes the index, or named ``id`` or ``index``, is left out.

    Examples
    --------
    >>> import io
    >>> table = read_csv(io.StringIO("sentence,word,tag\n1,He,O\n1,ran,O\n2,Stop,O\n"))
    >>> table.sentences("word")
    [['He', 'ran'], ['Stop']]
    """
    rows: list[list[str]] = []
    offsets, before = [0], ""
    with open_text(source) as text:
        lines = text.lines()
        header = next((line for _, line in lines if line.strip()), "word")
        names, split = _columns_of(text, header)
        at = sentence_column(names)
        for _, line in lines:
            if not line.strip():
                offsets += [len(rows)] * (len(rows) > offsets[-1])
                continue
            row = split(line)
            if at is not None:
                key = row.pop(at)
                if key and key != before and len(rows) > offsets[-1]:
                    offsets.append(len(rows))
                before = key or before
            rows.append(row)
        if at is not None:
            names.pop(at)
        elif len(offsets) == 1 and len(rows) > _LONGEST:
            what = "nothing says where sentences end"
            raise text.error(f"{what}; add a column 'sentence', or a blank line after each.", 0)
    offsets += [len(rows)] * (len(rows) > offsets[-1])
    columns = ([row[k] for row in rows] for k in range(len(names)))
    return TokenTable.from_columns(dict(zip(names, columns, strict=True)), offsets)


def _columns_of(text: TextSource, header: str) -> tuple[list[str], Callable[[str], list[str]]]:
    """The names of the columns, and what splits a line into a field for each of them."""
    names = split_row(header, delimiter := delimiter_of(header))
    # The index of a frame, or a number for each token.
    numbered = plain_name(names[0]) in ("", "unnamed", *COUNT_NAMES)
    if len(set(names)) < len(names):
        raise text.error("two columns have the same name; give each its own.")

    def split(line: str) -> list[str]:
        row = split_row(line, delimiter)
        if len(row) != len(names):
            what = f"expected {len(names)} fields, as in the header, found {len(row)}"
            how = f"quote fields that have {shown(delimiter)} in them"
            raise text.error(f'{what}; {how}, and write "" for a quote in quotes.')
        return row[numbered:]

    return names[numbered:], split


def _number(field: str) -> float:
    """The number in a field, nan where there is none."""
    with suppress(ValueError):
        return float(field if "_" not in field else "nan")
    return math.nan


def is_number(field: str) -> bool:
    """Whether a field of a table is a number, or one that is missing."""
    return not math.isnan(_number(field)) or field.strip().lower() in ("", "?", "na", "nan")


def read_table(
    source: File, labels: str | int | None = None, names: Sequence[str] | None = None
) -> FlatData:
    r"""Read rows of numbers from CSV or TSV: a header, then one example per line.

    Parameters
    ----------
    source : path, "-", file object or TextSource; UTF-8, gzipped or not
    labels : str or int, the column of the labels, by name or number
        By default the one that holds other things than numbers, or else the last.
    names : sequence of str, the columns of the numbers; by default all others
        Where they are given, there may be no labels.

    Examples
    --------
    >>> import io
    >>> data = read_table(io.StringIO("size,weight,kind\n1,2.5,a\n2,0.5,b\n"))
    >>> data.X.tolist(), data.y.tolist(), data.feature_names, data.label_name
    ([[1.0, 2.5], [2.0, 0.5]], ['a', 'b'], ['size', 'weight'], 'kind')
    """
    with open_text(source) as text:
        lines = ((number, line) for number, line in text.lines() if line.strip())
        own, split = _columns_of(text, next(lines, (0, ""))[1])
        numbers, rows = [], []
        for number, line in lines:
            numbers.append(number)
            rows.append(split(line))
        columns = dict(zip(own, zip(*rows, strict=True) if rows else [()] * len(own), strict=True))
        if names is None and labels is None:
            others = [name for name in own if not all(map(is_number, columns[name]))]
            labels = others[0] if len(others) == 1 else own[-1]
        if isinstance(labels, int) and -len(own) <= labels < len(own):
            labels = own[labels]
        for name in [*(names or ()), *([labels] if names is None else [])]:
            what = f"there is no column {shown(str(name))}: there are {', '.join(own)}."
            text.require(name in own, what, 0)
        label = str(labels)
        chosen = list(names) if names is not None else [name for name in own if name != label]
        X = np.empty((len(rows), len(chosen)))
        for k, name in enumerate(chosen):
            X[:, k] = [*map(_number, columns[name])]
            for i in np.flatnonzero(~np.isfinite(X[:, k]))[:1].tolist():
                what = f"{shown(name)} is {shown(columns[name][i])}, not a finite number"
                how = f"correct it, or leave out the column or the row (labels are in {label})"
                raise text.error(f"{what}; {how}.", numbers[i])
        y = None
        if label in own:
            found = columns[label]
            for i in [i for i, field in enumerate(found) if not field.strip()][:1]:
                raise text.error(f"there is no label ({label}); drop the row.", numbers[i])
            y = np.array(found, dtype=np.int64 if all(map(_WHOLE.fullmatch, found)) else None)
        return FlatData(X, y, feature_names=chosen, label_name=label)


def write_csv(target: File, table: TokenTable) -> None:
    """Write tokens as CSV with a header and a column ``sentence``; with tabs for ``.tsv``."""
    path = fspath(target) if isinstance(target, (str, PathLike)) else ""
    tabs = path.removesuffix(".gz").endswith(".tsv")
    for value in [value for values in table.values for value in values if "\t" in value and tabs]:
        raise ValueError(f"{shown(value)} cannot stand between tabs: write CSV with commas.")
    signs: Any = {"delimiter": "\t", "quoting": csv.QUOTE_NONE, "quotechar": None} if tabs else {}
    with atomic_text(target) as out:
        rows = csv.writer(out, lineterminator="\n", **signs)
        rows.writerow(["sentence", *table.names])
        for i, sentence in enumerate(table, start=1):
            rows.writerows([i, *token] for token in sentence)


def add_fields(
    raw: bytes, columns: Sequence[Sequence[str]], names: Sequence[str], header: bytes
) -> bytes:
    """The bytes of a table with more columns; all else stays as it is."""
    sign = delimiter_of(header.decode())
    lines = raw.split(b"\n")
    full = [k for k, line in enumerate(lines) if line.strip()]
    titles = [names] * (len(full) - len(columns[0]))  # a piece may begin with the header
    for k, fields in zip(full, [*titles, *zip(*columns, strict=True)], strict=True):
        body = lines[k].rstrip(b"\r")
        quoted = (
            '"' + field.replace('"', '""') + '"' if sign in field or '"' in field else field
            for field in fields
        )
        lines[k] = sign.join(["", *quoted]).encode().join([body, lines[k][len(body) :]])
    return b"\n".join(lines)


def add_lists(raw: bytes, lists: dict[str, Sequence[Any]]) -> bytes:
    """JSON lines with more lists, named, each one for all objects; all else stays as it is.

    Objects of spaCy also get the entities of the first list, where it holds tags.
    """
    lines = raw.split(b"\n")
    full = [k for k, line in enumerate(lines) if line.strip()]
    for n, k in enumerate(full):
        body = lines[k].rstrip()
        own = {name: list(values[n]) for name, values in lists.items()}
        name, tags = next(iter(own.items()))
        if (entities := _entities_of(body, tags)) is not None:
            own[f"{name}_ents"] = entities
        added = json.dumps(own, ensure_ascii=False).encode()
        lines[k] = body[:-1].rstrip() + b", " + added[1:] + lines[k][len(body) :]
    return b"\n".join(lines)


def _entities_of(line: bytes, tags: list[Any]) -> list[Any] | None:
    """What ``ents`` of a document of spaCy is by the tags of its tokens; None for other objects."""
    tokens = json.loads(line).get("tokens")
    spacy = isinstance(tokens, list) and tokens and isinstance(tokens[0], dict)
    if not spacy or not all(map(schemes.is_tag, tags)):
        return None
    return [
        {"start": tokens[first]["start"], "end": tokens[stop - 1]["end"], "label": kind}
        for kind, first, stop in schemes.spans(tags)
    ]


def read_jsonl(source: File) -> TokenTable:
    r"""Read sentences from JSON lines: objects with a list of words and other lists of that length.

    The words are the list ``tokens`` or ``words``, or else the first one; the lists of the first
    object are the columns. The output of spaCy's ``Doc.to_json()`` is read, too: tokens with their
    tags, and entities as IOB2 tags in the column ``ner``; and a JSON list of such objects.

    Examples
    --------
    >>> import io
    >>> table = read_jsonl(io.StringIO('{"tokens": ["He", "ran"], "tags": ["O", "O"]}\n'))
    >>> table.sentences("tags")
    [['O', 'O']]
    """
    names: list[str] = []
    columns: list[list[str]] = []
    offsets = [0]
    odd: dict[str, int] = {}  # lists of another length in the first object: how often they fit
    with open_text(unfold(source)) as text:
        for number, line in text.lines():
            if not line.strip():
                continue
            lists = _lists_of(text, line)
            if not names:
                head, first = lists, number
                words = [name for name in lists if plain_name(name) in WORD_NAMES] or [*lists]
                names = [words[0], *(name for name in lists if name != words[0])]
                names = [name for name in names if len(lists[name]) == len(lists[words[0]])]
                columns = [[] for _ in names]
                odd = dict.fromkeys(lists.keys() - {*names}, 0)
            for name, column in zip(names, columns, strict=True):
                if name not in lists or len(lists[name]) != len(lists[names[0]]):
                    raise text.error(_say_unequal(lists, *dict.fromkeys((name, names[0]))))
                column += lists[name]
            offsets.append(len(columns[0]))
            for name in odd:
                odd[name] += len(lists.get(name, ())) == offsets[-1] - offsets[-2]
        for name, n in odd.items():  # other lists than of tokens are as long by chance only
            text.require(2 * n < len(offsets), _say_unequal(head, name, names[0]), first)
    if not names:
        return TokenTable.from_sentences([], ["word"])
    return TokenTable.from_columns(dict(zip(names, columns, strict=True)), offsets)


def unfold(source: File) -> TextSource:
    """JSON lines, also for a JSON list of objects as ``json.dump`` writes it."""
    text = open_text(source)
    if not text.peek(64).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
        return text
    with text:
        try:
            found = json.loads(b"".join(piece for _, piece in text.pieces()))
        except (ValueError, RecursionError) as error:
            raise text.error(f"this is not JSON ({error}); correct it.", 0) from None
    lines = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in found)
    return TextSource(io.BytesIO(lines.encode(errors="surrogatepass")), text.name)


def _say_unequal(lists: dict[str, list[str]], *names: str) -> str:
    sizes = (f"{count_of(len(lists[n]), 'item')} in" if n in lists else "no list" for n in names)
    found = " and ".join(f"{size} {shown(n)}" for size, n in zip(sizes, names, strict=True))
    return f"the object has {found}; give every token one of each, in all objects."


def _lists_of(text: TextSource, line: str) -> dict[str, list[str]]:
    """The lists of words, tags and the like in an object."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise text.error(f"this is not JSON ({error}); give one object per line.") from None
    if not isinstance(found, dict):
        raise text.error('this is not a JSON object; write {"tokens": […], "tags": […]}.')
    tokens = found.get("tokens")
    if isinstance(tokens, list) and tokens and isinstance(tokens[0], dict):
        try:
            return _spacy_lists(found["text"], tokens, found.get("ents", []))
        except (KeyError, TypeError):
            what = "this is not what spaCy writes (text, and tokens with start and end)"
            raise text.error(f"{what}; use lists of words.") from None
    lists = {
        name: [str(item) for item in value]
        for name, value in found.items()
        if isinstance(value, list) and all(isinstance(item, (str, int)) for item in value)
    }
    if not any(lists.values()):
        raise text.error('there is no list of words; write {"tokens": […], "tags": […]}.')
    return lists


def _spacy_lists(content: str, tokens: list[Any], ents: list[Any]) -> dict[str, list[str]]:
    content = "".join([content])  # a TypeError where it is no text
    lists = {"tokens": [content[token["start"] : token["end"]] for token in tokens]}
    for name in ("lemma", "pos", "tag", "dep"):
        if all(name in token for token in tokens):
            lists[name] = [str(token[name]) for token in tokens]
    lists["ner"] = ["O"] * len(tokens)
    for entity in ents:
        inside = [k for k, t in enumerate(tokens) if entity["start"] <= t["start"] < entity["end"]]
        for k in inside:
            lists["ner"][k] = f"{'B' if k == inside[0] else 'I'}-{entity['label']}"
    return lists


def write_jsonl(target: File, table: TokenTable) -> None:
    """Write sentences as JSON lines, a list for each column."""
    with atomic_text(target) as out:
        for sentence in table:
            lists = dict(zip(table.names, map(list, zip(*sentence, strict=True)), strict=True))
            out.write(json.dumps(lists, ensure_ascii=False) + "\n")


def read_raw(source: File) -> TokenTable:
    r"""Read running text: every line is a sentence, split into words, numbers and punctuation.

    The tokenizer is simple. The only abbreviations it knows are titles (``Dr.``), initials, and
    letters with points (``U.S.``).

    Examples
    --------
    >>> import io
    >>> read_raw(io.StringIO("He didn't pay $3.50.\n")).sentences("word")
    [['He', "didn't", 'pay', '$', '3.50', '.']]
    >>> read_raw(io.StringIO("Dr. J. Berg of S.A. left.\n")).sentences("word")
    [['Dr.', 'J.', 'Berg', 'of', 'S.A.', 'left', '.']]
    """
    with open_text(source) as text:
        found = [
            [line[found.start() : found.end()] for found in _TOKEN.finditer(line.translate(_MARKS))]
            for _, line in text.lines()
        ]
        return TokenTable.from_sentences([*filter(None, found)], ["word"])
