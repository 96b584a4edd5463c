"""Pictures of dependency trees, as text for a terminal and as SVG."""

from collections.abc import Sequence
from html import escape
from itertools import count
from typing import Any

from hingeline._checks import require

_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_LINES = " ╵╷│╴┘┐┤╶└┌├─┴┬┼"


class Picture(str):
    """SVG as text, which notebooks show."""

    def _repr_html_(self) -> str:
        return self


def _find_levels(heads: list[int]) -> list[int]:
    """How high the arc of each word runs: above those it covers, apart from those it meets.

    That from the root has the level 0.
    """
    arcs = [(min(h, m), max(h, m)) for m, h in enumerate(heads, start=1)]
    levels = [0] * len(arcs)
    for m in sorted(range(len(arcs)), key=lambda m: arcs[m][1] - arcs[m][0]):
        first, last = arcs[m]
        meet = {n for n, (a, b) in zip(levels, arcs, strict=True) if a <= last and first <= b}
        below = [n for n, (a, b) in zip(levels, arcs, strict=True) if first <= a and b <= last]
        if heads[m]:
            levels[m] = next(n for n in count(1 + max(below)) if n not in meet)
    return levels


def draw_parse(words: Sequence[str], tree: Sequence[tuple[int, Any]], format: str = "text") -> str:
    """A dependency tree as a picture: lines of text, a word in each, or SVG.

    Parameters
    ----------
    words : sequence of str
    tree : sequence of (head, label), as ``DependencySSVM.predict`` gives it; 0 is the root
    format : {"text", "svg"}, default="text"

    Examples
    --------
    >>> print(draw_parse(["dogs", "bark"], [(2, "nsubj"), (0, "root")]))
    ┌─► dogs  nsubj
    └── bark  root
    """
    require(format in ("text", "svg"), f"format must be 'text' or 'svg', got {format!r}.")
    what = f"there are {len(words)} words and {len(tree)} arcs"
    require(len(words) == len(tree), f"{what}: give one pair (head, label) for each word.")
    heads = [int(head) for head, _ in tree]
    for m, head in enumerate(heads, start=1):
        fine = 0 <= head <= len(words) and head != m
        require(fine, f"word {m} has the head {head}: it must be 0 or another word's number.")
    labels = [str(label) for _, label in tree]
    return (_draw_text if format == "text" else _draw_svg)(words, heads, labels)


def _draw_text(words: Sequence[str], heads: list[int], labels: list[str]) -> str:
    # Arcs run in columns to the left of the words, the highest leftmost; the root has none.
    levels = _find_levels(heads)
    depth = max(levels, default=0)
    grid = [[0] * (2 * depth) for _ in words]
    for m in filter(heads.__getitem__, range(len(heads))):
        column = 2 * (depth - levels[m])
        ends = sorted((m, heads[m] - 1))
        for row in range(*ends):
            grid[row][column] |= _DOWN
            grid[row + 1][column] |= _UP
        for row in ends:
            grid[row][column] |= _RIGHT
            for c in range(column + 1, 2 * depth):
                grid[row][c] |= _LEFT | _RIGHT
    width = max(map(len, words), default=0)
    lines = []
    for k, (word, label) in enumerate(zip(words, labels, strict=True)):
        left = "".join(_LINES[cell] for cell in grid[k])
        left += "►" if heads[k] else "─" if left.strip() else ""
        lines.append(f"{left} {word:<{width}}  {label}".rstrip())
    return "\n".join(lines)


def _draw_svg(words: Sequence[str], heads: list[int], labels: list[str]) -> str:
    levels = _find_levels(heads)
    places, at = [], 20.0
    for word, label in zip(words, labels, strict=True):
        wide = max(8.5 * len(word), 6.5 * len(label)) + 22.0
        places.append(at + wide / 2)
        at += wide
    base = 34.0 + 26.0 * max(levels, default=1)
    parts = []
    for m, head in enumerate(heads):
        x = places[m]
        parts.append(f'<text x="{x:.1f}" y="{base + 20:.1f}">{escape(words[m])}</text>')
        top = base - 26.0 * levels[m] if head else 14.0
        if head:
            start = places[head - 1] + (7.0 if head - 1 < m else -7.0)
            bend = 10.0 if x > start else -10.0
            path = (
                f"M{start:.1f} {base:.1f}V{top + 10:.1f}Q{start:.1f} {top:.1f} {start + bend:.1f} "
                f"{top:.1f}H{x - bend:.1f}Q{x:.1f} {top:.1f} {x:.1f} {top + 10:.1f}V{base - 3:.1f}"
            )
            middle = (start + x) / 2
        else:
            path, middle = f"M{x:.1f} {top + 6:.1f}V{base - 3:.1f}", x
        parts.append(f'<path d="{path}" marker-end="url(#head)"/>')
        label = escape(labels[m])
        parts.append(f'<text class="label" x="{middle:.1f}" y="{top - 3:.1f}">{label}</text>')
    style = (
        "text{font:14px sans-serif;text-anchor:middle;fill:#1c2126}"
        ".label{font-size:11px;fill:#0a5fa5}path{fill:none;stroke:#5a6570}#head path{fill:#5a6570}"
    )
    marker = (
        '<marker id="head" viewBox="0 0 6 6" refX="3" refY="5" markerWidth="6" markerHeight="6">'
        '<path d="M0 0L6 0L3 6Z"/></marker>'
    )
    width, height = at + 20.0, base + 32.0
    return Picture(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}"><style>{style}</style><defs>{marker}</defs>'
        f"{''.join(parts)}</svg>\n"
    )
