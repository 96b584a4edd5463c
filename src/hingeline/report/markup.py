"""HTML by hand: text made safe and visible, tables, sections.

Everything that a user supplies goes through :func:`text` or :func:`isolated`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from html import escape
from typing import Any

#: Longest text of one label, token or name; longer ones are cut.
LONGEST = 200

# Controls, line and paragraph separators, embeddings and overrides of the direction of writing,
# surrogates and noncharacters: none of them shows, and some change how their neighbours show.
_INVISIBLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufdd0-\ufdef\ufff9-\ufffb\ufffe\uffff\ud800-\udfff]"
)


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)  # the pictures of control characters
    if code == 0x7F:
        return "␡"
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    return f"⟨U+{code:04X}⟩"


def text(value: Any, longest: int | None = LONGEST) -> str:
    """A value as HTML text that shows all its characters and is nothing but text.

    Parameters
    ----------
    value : object
    longest : int or None
        Cut after so many characters; None cuts nothing.
    """
    content = str(value)
    if not content:
        return "(empty)"
    if longest is not None and len(content) > longest:
        content = content[:longest] + "…"
    if content.isspace():
        content = content.replace(" ", "␠").replace("\u00a0", "⟨U+00A0⟩")
    return escape(_INVISIBLE.sub(_visible, content))


def block_text(value: Any) -> str:
    """Text of several lines as HTML, for a ``pre``."""
    lines = str(value).replace("\r\n", "\n").split("\n")
    return "\n".join(text(line, None) if line else "" for line in lines)


def isolated(value: Any) -> str:
    """Text whose direction of writing does not touch its neighbours."""
    return f"<bdi>{text(value)}</bdi>"


def direction(tokens: Iterable[Any]) -> str:
    """``"rtl"`` or ``"ltr"``, by the first letter that has a direction."""
    for token in tokens:
        for character in str(token)[:LONGEST]:
            kind = unicodedata.bidirectional(character)
            if kind in ("R", "AL"):
                return "rtl"
            if kind == "L":
                return "ltr"
    return "ltr"


def section(name: str, title: str, *parts: str) -> str:
    """A landmark with its heading; empty parts are left out."""
    body = "\n".join(part for part in parts if part)
    return (
        f'<section id="{name}" aria-labelledby="{name}-title">\n'
        f'<h2 id="{name}-title">{escape(title)}</h2>\n{body}\n</section>'
    )


def paragraph(html: str, kind: str = "") -> str:
    """A paragraph of HTML that is safe already."""
    return f"<p{_class(kind)}>{html}</p>"


def table(
    caption: str,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    words: Collection[int] = (0,),
    last: int = 0,
    kind: str = "",
) -> str:
    """A table in a box of its own that scrolls where it is too wide.

    Parameters
    ----------
    caption : str
        Plain text.
    head : sequence of str
        Headings of the columns, plain text.
    rows : sequence of sequences of str
        Cells as HTML that is safe already; the first of a row is its heading.
    words : collection of int
        Columns of words; the others are numbers, set to the right.
    last : int, default=0
        How many rows at the end sum up the others.
    kind : str
        Classes of the table.
    """
    titles = "".join(
        f'<th scope="col"{_class("" if k in words else "n")}>{escape(title)}</th>'
        for k, title in enumerate(head)
    )
    lines = []
    for number, row in enumerate(rows):
        cells = [f'<th scope="row"{_class("" if 0 in words else "n")}>{row[0]}</th>']
        cells += [
            f"<td{_class('' if k in words else 'n')}>{cell}</td>"
            for k, cell in enumerate(row[1:], start=1)
        ]
        opening = '<tr class="sum">' if number >= len(rows) - last else "<tr>"
        lines.append(opening + "".join(cells) + "</tr>")
    return boxed(
        caption,
        f"<table{_class(kind)}><caption>{escape(caption)}</caption>\n"
        f"<thead><tr>{titles}</tr></thead>\n<tbody>\n" + "\n".join(lines) + "\n</tbody></table>",
    )


def boxed(name: str, html: str, kind: str = "") -> str:
    """A box that scrolls on its own, by keyboard too."""
    return (
        f'<div class="{f"scroll {kind}".strip()}" role="region" tabindex="0" '
        f'aria-label="{escape(name)}">{html}</div>'
    )


def pairs(caption: str, rows: Sequence[tuple[str, str]]) -> str:
    """A table of two columns without headings: what, and its value (HTML)."""
    lines = "\n".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{value}</td></tr>' for name, value in rows
    )
    return boxed(
        caption,
        f'<table class="pairs"><caption>{escape(caption)}</caption>\n'
        f"<tbody>\n{lines}\n</tbody></table>",
    )


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""
