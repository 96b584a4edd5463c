"""CoNLL-U, the format of Universal Dependencies: ten columns, comments, ranges, empty nodes."""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hingeline.data.text import File, TextSource, atomic_text, open_text, shown
from hingeline.features.tables import TableBuilder, TokenTable

#: Columns of the table: those of the format but for the number of the word.
COLUMNS = ("form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")

_WIDTH = len(COLUMNS) + 1
_OTHER_ID = re.compile(rb"[0-9]+-[0-9]+|[0-9]+\.[0-9]+")


@dataclass(frozen=True)
class ConlluDocument:
    """The words of a CoNLL-U file, and all else that stands in it.

    The table has one row per word, and all its columns are text. Ranges (``1-2``) and empty nodes
    (``8.1``) are not words.
    """

    table: TokenTable
    #: The other lines (comments, ranges, empty nodes, blank lines), those between two words joined
    #: by LF, and how many words stand before them, in the order of the file.
    others: tuple[tuple[int, str], ...]
    newline: str = "\n"
    bom: bool = False  # whether the file has a byte order mark
    final_newline: bool = True  # whether its last line has an end

    def comments(self) -> list[list[str]]:
        """The comment lines of every sentence, in order."""
        found: list[list[str]] = [[] for _ in range(len(self.table))]
        ends = self.table.offsets[1:]
        for position, lines in self.others:
            i = int(np.searchsorted(ends, position, side="right"))
            if i < len(found):
                found[i].extend(line for line in lines.split("\n") if line.startswith("#"))
        return found

    def with_column(self, name: str, values: Any) -> ConlluDocument:
        """The same file with one column replaced; see :meth:`TokenTable.with_column`."""
        if name not in COLUMNS:
            raise ValueError(f"there is no column {name!r}: there are {', '.join(COLUMNS)}.")
        return replace(self, table=self.table.with_column(name, values))


def read_conllu(source: File) -> ConlluDocument:
    r"""Read a CoNLL-U file, UTF-8, gzipped or not.

    A line that has not ten columns, or a word whose number is not the next one, is refused.

    Examples
    --------
    >>> import io
    >>> text = "# text = Go\n1\tGo\tgo\tVERB\tVB\t_\t0\troot\t_\t_\n\n"
    >>> document = read_conllu(io.StringIO(text))
    >>> document.table.select(["form", "upos"])[0]
    [('Go', 'VERB')]
    """
    builder = TableBuilder(len(COLUMNS))
    others: list[tuple[int, str]] = []
    between: list[bytes] = []
    offsets = array("q", [0])
    n_words = last = 0
    with open_text(source) as text:
        for first, lines in text.blocks():
            rows: list[list[bytes]] = []
            for k, line in enumerate(lines):
                row = line.split(b"\t")
                if len(row) == _WIDTH and row[0].isdigit():
                    last += 1
                    if row[0] != b"%d" % last:
                        what = f"the word's number is {shown(row[0])} where {last} is next; number"
                        what += " words from 1 and put a blank line between sentences."
                        raise text.error(what, first + k)
                    if between:
                        others.append((n_words + len(rows), b"\n".join(between).decode()))
                        between.clear()
                    rows.append(row)
                    continue
                if not line.strip():
                    if last:
                        offsets.append(n_words + len(rows))
                    last = 0
                elif not line.startswith(b"#"):
                    _check_other(text, row, first + k)
                between.append(line)
            n_words += len(rows)
            builder.extend([[row[c] for row in rows] for c in range(1, _WIDTH)])
            if len(between) > 1:  # one text takes less than its lines
                between = [b"\n".join(between)]
        if between:
            others.append((n_words, b"\n".join(between).decode()))
        if last:
            offsets.append(n_words)
        table = builder.table(COLUMNS, offsets)
        return ConlluDocument(table, tuple(others), text.newline, text.bom, text.final_newline)


def _check_other(text: TextSource, row: list[bytes], number: int) -> None:
    """Refuse a line that is no word, no blank line and no comment, unless well formed."""
    if len(row) != _WIDTH:
        what = f"expected {_WIDTH} columns separated by tabs, found {len(row)}"
        raise text.error(f"{what}; write _ in columns without a value.", number)
    if not _OTHER_ID.fullmatch(row[0]):
        what = f"{shown(row[0])} is not the number of a word, of a range (1-2) or of an empty node"
        raise text.error(f"{what} (8.1); correct the first column.", number)


def write_conllu(target: File, document: ConlluDocument | TokenTable) -> None:
    """Write a CoNLL-U file.

    A document that was read is written byte for byte as it was, but for columns replaced (lines
    end all alike, as the first did). A bare table may have any of the columns, ``form`` at least;
    the others are written as ``_``.
    """
    forbidden, bare = "\t\n", isinstance(document, TokenTable)
    if isinstance(document, TokenTable):
        forbidden = "\t\n\r"
        if "form" not in document.names:
            what = f"table needs a column 'form', it has {', '.join(map(repr, document.names))}"
            raise ValueError(f"{what}: name its columns as CoNLL-U does.")
        ends = document.offsets[1:].tolist()
        document = ConlluDocument(document, tuple((end, "") for end in ends))
    table = document.table
    if (empty := np.flatnonzero(table.lengths == 0)).size:
        raise ValueError(f"sentence {empty[0]} is empty: drop it, a blank line cannot hold it.")
    columns = []
    for name in COLUMNS:
        if name not in table.names:
            columns.append(["_"] * table.n_tokens)
            continue
        for value in table.values[table.position(name)]:
            if bare and not value:
                raise ValueError(f"column {name!r} has an empty value: write _ for no value.")
            if any(character in value for character in forbidden):
                what = f"column {name!r} has the value {shown(value)}"
                rule = "values must have no tab and no line end"
                raise ValueError(f"{what}: {rule}; change the value.")
        columns.append(table.column(name).tolist())
    starts = np.repeat(table.offsets[:-1], table.lengths)
    numbers = map(str, (np.arange(1, table.n_tokens + 1) - starts).tolist())
    rows = list(map("\t".join, zip(numbers, *columns, strict=True)))
    lines: list[str] = []
    done = 0
    for position, between in document.others:
        lines.extend(rows[done:position])
        lines.append(between.replace("\n", document.newline))
        done = position
    lines.extend(rows[done:])
    with atomic_text(target) as out:
        out.write("\ufeff" if document.bom else "")
        out.write(document.newline.join(lines))
        out.write(document.newline if lines and document.final_newline else "")


def write_conllu_table(target: File, table: TokenTable) -> None:
    """Columns by CoNLL-U's names, else the first as form, the second as upos, others in misc."""
    if "form" in table.names:
        write_conllu(target, table.select([name for name in table.names if name in COLUMNS]))
        return
    columns = {
        name: table.column(column).tolist()
        for name, column in zip(("form", "upos"), table.names, strict=False)
    }
    if rest := table.names[2:]:
        values = [[f"{name}={value}" for value in table.column(name)] for name in rest]
        columns["misc"] = ["|".join(row) for row in zip(*values, strict=True)]
    write_conllu(target, TokenTable.from_columns(columns, table.offsets))
