"""CoNLL columns (2000, 2002, 2003) and CoNLL-U: a token per line, a blank line after a sentence."""

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any, Self

import numpy as np

from hingeline._checks import require
from hingeline._words import count_of
from hingeline.data.text import File, atomic_text, open_text, shown
from hingeline.features.tables import TableBuilder, TokenTable, default_names, sentence_offsets

_DOCSTART = b"-DOCSTART-"
_BLANKS = re.compile(r"[ \t\n\r\v\f]")
#: What a block must not have for its spaces to be counted instead of its lines split.
_IRREGULAR = (b"  ", b" \n", b"\n ", b"\t", b"\r", b"\v", b"\f")
_MAX_COLUMNS = 1000  # More columns than this are taken for a file of another kind.
#: A line of as many columns as others that is a comment all the same: # key = value
_COMMENT = re.compile(rb"#[ \t]+[A-Za-z_][\w.-]*[ \t]*=")
#: What headers call words, and labels; letters only.
WORD_NAMES = ("word", "words", "token", "tokens", "form", "text")
#: Names of a column that says which sentence a token belongs to, or which token it is.
SENTENCE_NAMES = ("sentence", "sentenceid", "sentenceno", "sentid", "sent")
COUNT_NAMES = ("id", "index")
_LABEL_NAME = re.compile(r"tags?|labels?|class|entity|bio|iob|(ner|[ux]?pos|chunk)(tags?)?")


def read_conll(
    source: File, names: Sequence[str] | None = None, separator: str | None = None
) -> TokenTable:
    r"""Read tokens in columns; every line must have as many columns as the first.

    Lines that begin with ``-DOCSTART-`` are skipped. So are lines before a sentence that begin with
    ``#`` and are ``# key = value`` or do not have the columns of a token. A first line of names
    (``word pos tag``) names the columns. Those that count sentences (``sentence_id``) or tokens
    (``id``) are left out; where the former changes, a sentence ends. A single column is fine: text
    without labels.

    Parameters
    ----------
    source : path, "-", file object or TextSource; UTF-8, gzipped or not
    names : sequence of str, names of the columns
        By default taken from a first line that has a common name for words and ends in a common
        name for labels; otherwise ``word``, ``col1``, ``col2``, …
    separator : str, optional
        ``" "`` for any run of spaces and tabs, or the exact text between columns, such as
        ``"\t"``, which allows spaces inside tokens. By default a tab if the first token's line has
        one, otherwise ``" "``.

    Examples
    --------
    >>> import io
    >>> table = read_conll(io.StringIO("He PRP B-NP\nran VBD B-VP\n"), ["word", "pos", "chunk"])
    >>> table.sentences("chunk")
    [['B-NP', 'B-VP']]
    """
    require(separator != "", "separator is empty: give None, ' ' or the text between columns.")
    exact = None if separator is None or separator == " " else separator.encode()
    builder: TableBuilder | None = None
    blanks = [np.ones(1, dtype=bool)]
    with open_text(source) as text:
        for first, lines in text.blocks():
            if builder is None:
                k = _first_token(lines)
                if k is None:
                    continue
                if separator is None and b"\t" in lines[k]:
                    exact = b"\t"
                row = [field.decode() for field in lines[k].split(exact)]
                width = len(row)
                if width > _MAX_COLUMNS or (names is not None and len(names) != width):
                    what = f"and at most {_MAX_COLUMNS:,} are read; is this a CoNLL file?"
                    if width <= _MAX_COLUMNS and names is not None:
                        what = f"but {count_of(len(names), 'name')}; name every column."
                    raise text.error(f"there are {width:,} columns, {what}", first + k)
                builder = TableBuilder(width)
                if is_header(row, names):
                    names, lines[k] = row, b""
            lines = _blank_out(lines, exact, builder.width, bool(blanks[-1][-1]))
            flat, counts = _fields(lines, exact)
            blank = counts == 0
            for k in np.flatnonzero(~blank & (counts != builder.width)).tolist():
                between = "spaces" if exact is None else shown(exact)
                expected = count_of(builder.width, "column")
                what = f"expected {expected} separated by {between} as in the lines before"
                remedy = "put comments before a sentence, after a blank line."
                remedy = remedy if lines[k].startswith(b"#") else "correct the line."
                raise text.error(f"{what}, found {counts[k]}; {remedy}", first + k)
            builder.extend([flat[k :: builder.width] for k in range(builder.width)])
            blanks.append(blank)
    if builder is None:
        builder = TableBuilder(len(names) if names is not None else 1)
    given = tuple(names) if names is not None else default_names(builder.width)
    return _leave_counts(builder.table(given, sentence_offsets(np.concatenate(blanks))))


def _leave_counts(table: TokenTable) -> TokenTable:
    """The table without columns that count sentences or tokens; the former also end sentences."""
    kept = [k for k, name in enumerate(table.names) if not _counts(name)]
    if len(kept) in (0, len(table.names)):
        return table
    offsets, at = table.offsets, sentence_column(table.names)
    if at is not None:
        offsets = np.union1d(offsets, np.flatnonzero(np.diff(table.codes[at])) + 1)
    return TokenTable(table.names, table.codes, table.values, offsets).select(kept)


def sentence_column(names: Sequence[str]) -> int | None:
    """The number of the column that says which sentence a token is of, if there is one."""
    return next((k for k, name in enumerate(names) if plain_name(name) in SENTENCE_NAMES), None)


def _counts(name: str) -> bool:
    """Whether a column counts sentences or tokens; it is never the word."""
    return plain_name(name) in (*SENTENCE_NAMES, *COUNT_NAMES)


def _first_token(lines: list[bytes]) -> int | None:
    """The number of the first line that is neither blank nor a comment, if there is any."""
    found = [k for k, line in enumerate(lines) if line.strip() and not line.startswith(_DOCSTART)]
    plain = (k for k in found if not lines[k].startswith(b"#"))
    return next(plain, found[0] if found else None)


def header_of(lines: list[bytes], *known: Sequence[str]) -> tuple[bytes, list[str] | None]:
    """The first line of a file and its fields, if these name the columns, as ``known`` ones do."""
    k = _first_token(lines)
    line = b"" if k is None else lines[k].removesuffix(b"\r")
    row = line.decode(errors="replace").split("\t" if b"\t" in line else None)
    named = len(row) > 1 and any(is_header(row, names) for names in (None, *known))
    return (line, row) if named else (b"", None)


def is_header(row: Sequence[str], names: Sequence[str] | None = None) -> bool:
    """Whether a first line names the columns: as they are said to be, or with usual words."""
    if names is not None:
        own, known = ([n.lower() for n in part if not _counts(n)] for part in (row, names))
        return own == known
    plain = [plain_name(name) for name in row]
    usual = _LABEL_NAME.fullmatch(plain[-1]) and any(name in WORD_NAMES for name in plain)
    return bool(usual) and len(set(row)) == len(row) > 1


def plain_name(name: str) -> str:
    """The letters of a name, small."""
    return re.sub("[^a-z]", "", name.lower())


def _blank_out(lines: list[bytes], exact: bytes | None, width: int, outside: bool) -> list[bytes]:
    """The lines, blank where they hold no token; ``outside``: a sentence may begin with them."""
    joined = b"\n" + b"\n".join(lines)
    if b"\n" + _DOCSTART in joined:
        lines = [b"" if line.startswith(_DOCSTART) else line for line in lines]
    if b"\n#" in joined:
        lines = list(lines)
        for k in [k for k, line in enumerate(lines) if line.startswith(b"#")]:
            begins = not lines[k - 1].strip() if k else outside
            other = len(lines[k].split(exact)) != width  # a token may be # as well
            if begins and (other or (exact is None and _COMMENT.match(lines[k]))):
                lines[k] = b""
    return lines


def add_columns(raw: bytes, columns: Sequence[Sequence[str]], names: Sequence[str]) -> bytes:
    """The bytes of whole sentences with more columns; all but tokens and a header stays."""
    bom = b"\xef\xbb\xbf" if raw.startswith(b"\xef\xbb\xbf") else b""
    lines = raw[len(bom) :].split(b"\n")
    kept = token_lines(raw)
    k = _first_token(kept)
    if k is None:
        return raw
    separator = b"\t" if b"\t" in lines[k] else b" "
    rows = zip(*columns, strict=True)
    header = sum(map(bool, map(bytes.strip, kept))) > len(columns[0])
    for n, line in enumerate(kept):
        if line.strip():
            fields = names if n == k and header else next(rows)
            end = lines[n][len(line) :]
            lines[n] = separator.join([line, *(field.encode() for field in fields)]) + end
    return bom + b"\n".join(lines)


def token_lines(raw: bytes) -> list[bytes]:
    """The lines of a file, blank where they hold no token and are not the header."""
    lines = [line.removesuffix(b"\r") for line in raw.removeprefix(b"\xef\xbb\xbf").split(b"\n")]
    k = _first_token(lines)
    exact = None if k is None or b"\t" not in lines[k] else b"\t"
    return lines if k is None else _blank_out(lines, exact, len(lines[k].split(exact)), True)


def _fields(lines: list[bytes], exact: bytes | None) -> tuple[list[bytes], np.ndarray[Any, Any]]:
    """The fields of all lines in a row, and how many there are in each line."""
    # One split of the whole block makes no list per line, which is what takes the time.
    joined = b"\n".join(lines)
    if exact is None and not any(blanks in b"\n" + joined + b"\n" for blanks in _IRREGULAR):
        flat = joined.split()
        counts = [line.count(b" ") + 1 if line else 0 for line in lines]
    elif exact is not None and len(exact) == 1:
        counts = [line.count(exact) + 1 if line.strip() else 0 for line in lines]
        kept = [line for line, count in zip(lines, counts, strict=True) if count]
        flat = exact.join(kept).split(exact) if kept else []
    else:
        rows = [line.split(exact) if line.strip() else [] for line in lines]
        flat, counts = list(chain.from_iterable(rows)), list(map(len, rows))
    return flat, np.array(counts, dtype=np.int64)


def write_conll(target: File, table: TokenTable, separator: str | None = None) -> None:
    r"""Write tokens in columns, with a blank line after every sentence.

    The separator is by default a space, or a tab if a value is empty or has a space. One column of
    values with spaces must be read back with ``separator="\t"``.

    Examples
    --------
    >>> from hingeline.features import TokenTable
    >>> table = TokenTable.from_sentences([[("Ann", "B-PER"), ("ran", "O")]], ["word", "tag"])
    >>> write_conll("-", table)
    Ann B-PER
    ran O
    <BLANKLINE>
    """
    require(table.names, "table has no columns: there is nothing to write.")
    if (empty := np.flatnonzero(table.lengths == 0)).size:
        raise ValueError(f"sentence {empty[0]} is empty: drop it, a blank line cannot hold it.")
    if separator is None:
        spaced = any(not v or _BLANKS.search(v) for values in table.values for v in values)
        comments = "#" in table.values[0] and any("=" in value for value in table.values[-1])
        separator = "\t" if spaced or comments else " "
    _check_values(table, separator)
    columns = [table.column(k).tolist() for k in range(len(table.names))]
    with atomic_text(target) as out:
        for lo, hi in pairwise(table.offsets.tolist()):
            rows = zip(*(column[lo:hi] for column in columns), strict=True)
            out.write("\n".join(map(separator.join, rows)) + "\n\n")


def _check_values(table: TokenTable, separator: str) -> None:
    """Refuse what would not be read back as it is."""
    spaces = separator == " "
    unfit = re.compile(rf"{_BLANKS.pattern}|^$" if spaces else rf"[\n\r]|{re.escape(separator)}")
    for k, (name, values) in enumerate(zip(table.names, table.values, strict=True)):
        for value in values:
            skipped = k == 0 and value.startswith(_DOCSTART.decode())
            if skipped or unfit.search(value):
                problem = f"cannot stand between separators {separator!r}: change one of them."
                problem = "readers skip: drop it." if skipped else problem
                raise ValueError(f"column {name!r} has the value {shown(value)}, which {problem}")
    blank = np.full(table.n_tokens, not spaces)
    for values, codes in zip(table.values, table.codes, strict=True):
        blank &= np.array([not value.strip(" \t\v\f") for value in values], bool)[codes]
    what = f"token {int(np.argmax(blank))} is blank in every column" if len(blank) else ""
    require(not blank.any(), f"{what}: its line would end the sentence, so drop it.")


# CoNLL-U, the format of Universal Dependencies: ten columns, comments, ranges, empty nodes.

#: Columns of the table: those of the format but for the number of the word.
COLUMNS = ("form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")

_WIDTH = len(COLUMNS) + 1
_OTHER_ID = re.compile(rb"[0-9]+-[0-9]+|[0-9]+\.[0-9]+")


@dataclass(frozen=True)
class ConlluDocument:
    """The words of a CoNLL-U file, and everything else in it.

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

    def with_column(self, name: str, values: Any) -> Self:
        """The same file with one column replaced; see :meth:`TokenTable.with_column`."""
        require(name in COLUMNS, f"there is no column {name!r}: there are {', '.join(COLUMNS)}.")
        return replace(self, table=self.table.with_column(name, values))

    def trees(self) -> list[list[tuple[int, str]]]:
        """(head, relation) of every word, sentence by sentence: what ``DependencySSVM`` learns."""
        return read_heads(self.table)

    def with_trees(self, trees: Any) -> Self:
        """The same file with other trees, as ``DependencySSVM.predict`` gives them."""
        found = self.with_column("head", [[str(head) for head, _ in tree] for tree in trees])
        return found.with_column("deprel", [[str(label) for _, label in tree] for tree in trees])


def read_heads(table: TokenTable, label: str = "deprel") -> list[list[tuple[int, str]]]:
    """(head, label) of every word, sentence by sentence; a head that is no number is refused."""
    if not all(map(str.isdecimal, table.values[table.position("head")])):
        for i, heads in enumerate(table.sentences("head")):
            for k, head in enumerate(heads):
                what = f"the head of word {k + 1} of sentence {i + 1} is {shown(head)}"
                require(head.isdecimal(), f"{what}; write the number of a word, or 0 for the root.")
    words = list(zip(map(int, table.column("head")), table.column(label).tolist(), strict=True))
    return [words[lo:hi] for lo, hi in pairwise(table.offsets.tolist())]


def read_conllu(source: File) -> ConlluDocument:
    r"""Read a CoNLL-U file, UTF-8, gzipped or not.

    A line without ten columns, and a word whose number is not the next one, are refused.

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
                    what = f"expected {_WIDTH} columns separated by tabs, found {len(row)}"
                    what += "; write _ in columns without a value."
                    text.require(len(row) == _WIDTH, what, first + k)
                    what = f"{shown(row[0])} is not the number of a word, of a range (1-2) or of an"
                    what += " empty node (8.1); correct the first column."
                    text.require(_OTHER_ID.fullmatch(row[0]), what, first + k)
                between.append(line)
            n_words += len(rows)
            builder.extend([[row[c] for row in rows] for c in range(1, _WIDTH)])
        if between:
            others.append((n_words, b"\n".join(between).decode()))
        if last:
            offsets.append(n_words)
        table = builder.table(COLUMNS, offsets)
        return ConlluDocument(table, tuple(others), text.newline, text.bom, text.final_newline)


def write_conllu(target: File, document: ConlluDocument | TokenTable) -> None:
    """Write a CoNLL-U file.

    A document that was read is written byte for byte as it was, except for replaced columns (all
    lines end as the first one did). A bare table may have any of the columns, at least ``form``;
    missing ones are written as ``_``.
    """
    forbidden, bare = "\t\n", isinstance(document, TokenTable)
    if isinstance(document, TokenTable):
        forbidden = "\t\n\r"
        what = f"table needs a column 'form', it has {', '.join(map(repr, document.names))}"
        require("form" in document.names, f"{what}: name its columns as CoNLL-U does.")
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
                what = f"column {name!r} has the value {shown(value)}: values must have no tab"
                raise ValueError(f"{what} and no line end; change the value.")
        columns.append(table.column(name).tolist())
    starts = np.repeat(table.offsets[:-1], table.lengths)
    numbers = map(str, (np.arange(1, table.n_tokens + 1) - starts).tolist())
    rows = list(map("\t".join, zip(numbers, *columns, strict=True)))
    lines: list[str] = []
    done = 0
    for position, between in document.others:
        lines += [*rows[done:position], between.replace("\n", document.newline)]
        done = position
    lines += rows[done:]
    with atomic_text(target) as out:
        out.write("\ufeff" if document.bom else "")
        out.write(document.newline.join(lines))
        out.write(document.newline if lines and document.final_newline else "")


def write_conllu_table(target: File, table: TokenTable) -> None:
    """Columns by CoNLL-U's names, else the first as form, the second as upos, others in misc."""
    if "form" in table.names:
        write_conllu(target, table.select([name for name in table.names if name in COLUMNS]))
        return
    first = zip(("form", "upos"), table.names, strict=False)
    columns = {name: table.column(column).tolist() for name, column in first}
    if rest := table.names[2:]:
        values = [[f"{name}={value}" for value in table.column(name)] for name in rest]
        columns["misc"] = ["|".join(row) for row in zip(*values, strict=True)]
    write_conllu(target, TokenTable.from_columns(columns, table.offsets))
