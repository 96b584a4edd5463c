"""Shaded tables of label against label."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from hingeline.report.markup import boxed, paragraph

#: Steps of shading, 0 (none) to this.
LEVELS = 9
#: Tables wider than this, in characters, are printed on a page laid sideways.
SIDEWAYS = 105


def level(share: float) -> int:
    """Step of shading of a share of the darkest; the root makes small shares visible."""
    if not share > 0.0:
        return 0
    return min(LEVELS, max(1, math.ceil(LEVELS * math.sqrt(share) - 1e-9)))


def shade(share: float, dark: str) -> str:
    """Class of a shaded cell; ``dark`` is ``"b"`` for blue or ``"o"`` for orange."""
    step = level(share)
    return f"{dark}{step}" if step else ""


def matrix(
    caption: str,
    corner: str,
    columns: Sequence[str],
    rows: Sequence[tuple[str, Sequence[tuple[str, str]]]],
    *,
    note: str,
    title: str = "",
) -> str:
    """A shaded table, with what explains it kept on one printed page.

    Parameters
    ----------
    caption, corner : str
        Plain text.
    columns : sequence of str
        Headings as HTML that is safe already.
    rows : sequence of (heading, cells)
        Heading as safe HTML; a cell is its safe HTML and its class.
    note : str
        What the shades mean, as safe HTML.
    title : str
        A heading above, plain text.
    """
    head = "".join(f'<th scope="col"><div>{name}</div></th>' for name in columns)
    lines = []
    for name, cells in rows:
        shown = "".join(
            f'<td class="{kind}">{cell}</td>' if kind else f"<td>{cell}</td>"
            for cell, kind in cells
        )
        lines.append(f'<tr><th scope="row">{name}</th>{shown}</tr>')
    box = boxed(
        caption,
        f'<table class="matrix"><caption>{escape(caption)}</caption>\n'
        f'<thead><tr><th class="corner">{escape(corner)}</th>{head}</tr></thead>\n<tbody>\n'
        + "\n".join(lines)
        + "\n</tbody></table>",
    )
    longest = [max((len(cells[k][0]) for _, cells in rows), default=0) for k in range(len(columns))]
    # One character more for the room between columns.
    kind = "sheet sideways" if sum(longest) + len(longest) > SIDEWAYS else "sheet"
    above = f"<h3>{escape(title)}</h3>\n" if title else ""
    return f'<div class="{kind}">\n{above}{box}\n{paragraph(note, "note")}</div>'
