"""Bracketed trees, as in the Penn Treebank."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from hingeline.data.text import File, TextSource, atomic_text, open_text, shown

_TOKEN = re.compile(r"[()]|[^ \t\r\n\v\f()]+")
_FORBIDDEN = re.compile(r"[ \t\r\n\v\f()]")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tree:
    """An immutable labelled tree: a node has either children or a word.

    Trees of any depth can be compared, hashed, walked and printed.

    Examples
    --------
    >>> tree = Tree("NP", [Tree("DT", word="the"), Tree("NN", word="cat")])
    >>> str(tree), tree.leaves()
    ('(NP (DT the) (NN cat))', [('the', 'DT'), ('cat', 'NN')])
    """

    label: str  # category or part of speech
    children: tuple[Tree, ...] = ()  # any iterable will do
    word: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "children", tuple(self.children))
        if bool(self.children) == (self.word is not None):
            what = f"the node {shown(self.label)} must have either children or a word"
            raise ValueError(f"{what}, not {'both' if self.children else 'neither'}.")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._flat(),)

    def nodes(self) -> Iterator[Tree]:
        """All nodes, each before its children, from left to right."""
        todo = [self]
        while todo:
            node = todo.pop()
            yield node
            todo.extend(reversed(node.children))

    def leaves(self) -> list[tuple[str, str]]:
        """Word and label of the nodes that have a word, from left to right."""
        return [(node.word, node.label) for node in self.nodes() if node.word is not None]

    def _flat(self) -> tuple[tuple[str, int, str | None], ...]:
        """The nodes without their links: what determines a tree."""
        return tuple((node.label, len(node.children), node.word) for node in self.nodes())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tree):
            return NotImplemented
        return self is other or self._flat() == other._flat()

    def __hash__(self) -> int:
        return hash(self._flat())

    def __str__(self) -> str:
        pieces: list[str] = []
        todo: list[Tree | None] = [self]
        while todo:
            node = todo.pop()
            if node is None:
                pieces.append(")")
                continue
            pieces.append(f"{' (' if pieces else '('}{node.label}")
            if node.word is not None:
                pieces.append(f" {node.word})")
            else:
                todo.append(None)
                todo.extend(reversed(node.children))
        return "".join(pieces)

    def __repr__(self) -> str:
        return f"<Tree {shown(str(self), 60)[1:-1]}>"


def _rebuild(flat: tuple[tuple[str, int, str | None], ...]) -> Tree:
    done: list[Tree] = []
    for label, n_children, word in reversed(flat):
        done.append(Tree(label, tuple(done.pop() for _ in range(n_children)), word))
    return done[0]


def read_trees(source: File) -> list[Tree]:
    """Read all bracketed trees; a tree may span several lines.

    An outer bracket without a label, as around each sentence of the Penn Treebank, is removed.
    Brackets that do not match, text outside brackets, and nodes with neither word nor children
    are refused.

    Examples
    --------
    >>> import io
    >>> [str(tree) for tree in read_trees(io.StringIO("( (S (NP (NN time)) (VP (VBZ flies))) )"))]
    ['(S (NP (NN time)) (VP (VBZ flies)))']
    """
    return list(iter_trees(source))


def iter_trees(source: File) -> Iterator[Tree]:
    """Read bracketed trees one by one; see :func:`read_trees`."""
    # Open nodes, outermost first; lists of equal length, because a file may open very many.
    labels: list[str | None] = []
    parts: list[list[Tree] | str | None] = []
    lines: list[int] = []
    names: dict[str, str] = {}
    with open_text(source) as text:
        for number, line in text.lines():
            for token in _TOKEN.findall(line):
                if token != "(" and not labels:
                    what = f"{shown(token)} is outside brackets; is this a file of trees?"
                    closes = "a closing bracket has no opening one; remove it or add '('."
                    raise text.error(closes if token == ")" else what)
                if token == ")":
                    lines.pop()
                    tree = _close(text, labels.pop(), parts.pop(), len(labels))
                    if not labels:
                        yield tree
                    elif isinstance(parts[-1], list):
                        parts[-1].append(tree)
                    else:
                        parts[-1] = [tree]
                    continue
                word = parts[-1] if parts else None
                if token == "(" and not isinstance(word, str):
                    labels.append(None)
                    parts.append(None)
                    lines.append(number)
                elif token != "(" and word is None:
                    # The first text of a node is its label, the second its word.
                    place: list[Any] = labels if labels[-1] is None else parts
                    place[-1] = names.setdefault(token, token)
                else:
                    beside = shown(str(word) if token == "(" else token)
                    what = f"the word {beside} stands next to other parts of its node"
                    raise text.error(f"{what}; give every word brackets and a label of its own.")
        if lines:
            raise text.error("an opening bracket is never closed; add ')'.", lines[-1])


def _close(text: TextSource, label: str | None, part: list[Tree] | str | None, depth: int) -> Tree:
    if part is None:
        what = "the brackets are empty" if label is None else f"{shown(label)} has no word"
        raise text.error(f"{what}; give every node a label and a word or children.")
    if label is not None:
        return Tree(label, word=part) if isinstance(part, str) else Tree(label, tuple(part))
    assert not isinstance(part, str)  # the first text of a node is its label
    if depth or len(part) > 1:
        raise text.error("a node has no label; only a bracket around a whole tree may have none.")
    return part[0]


def write_trees(target: File, trees: Iterable[Tree]) -> None:
    """Write trees in brackets, one per line.

    Labels and words must not contain spaces or brackets; the Penn Treebank writes ``-LRB-``.
    """
    with atomic_text(target) as out:
        for i, tree in enumerate(trees):
            for node in tree.nodes():
                for text in (node.label, "x" if node.word is None else node.word):
                    if not text or _FORBIDDEN.search(text):
                        what = f"tree {i} has {shown(text)}: labels and words must not be empty"
                        raise ValueError(f"{what} nor have blanks or brackets (write -LRB-).")
            out.write(f"{tree}\n")
