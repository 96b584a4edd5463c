"""A tree of labels as a loss: mistakes cost more the farther apart two labels are."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from hingeline._checks import Array, one_of, require


@dataclass(frozen=True, repr=False)
class Taxonomy:
    """A tree of labels, for ``loss=`` of :class:`MulticlassSSVM`, :class:`ChainSSVM` and graphs.

    It becomes a cost matrix over ``classes_`` when a model is fitted, so a fold that lacks some
    labels gets the costs of those it has. ``(scale, Taxonomy(...))`` is a multiple of it.

    Parameters
    ----------
    parents : mapping
        Label -> the label above it. A label without an entry, or with None, is a root; several
        roots are joined by a node above them (None). Any label may be a class, leaf or not.
    cost : {"distance", "height"} or mapping, default="distance"
        The cost of mistaking one label for another: the number of edges between them; the number of
        edges from their lowest common ancestor down to the deepest label below it; or a number
        given for each lowest common ancestor.

    Examples
    --------
    >>> from hingeline import Taxonomy
    >>> tree = Taxonomy.from_paths(["animal/cat", "animal/dog", "plant"])
    >>> tree.to_matrix(["animal/cat", "animal/dog", "plant"])
    array([[0., 2., 3.],
           [2., 0., 3.],
           [3., 3., 0.]])
    >>> tree.ancestors("animal/cat")
    ('animal/cat', 'animal')
    """

    parents: Mapping[Any, Any]
    cost: Any = "distance"
    _labels: frozenset[Any] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.parents, Mapping):
            what = "parents must be a mapping from each label to the one above it"
            raise TypeError(f"{what}, got {self.parents!r:.60}: for paths use Taxonomy.from_paths.")
        if not isinstance(self.cost, (Mapping, str)):
            known = "'distance', 'height' or a mapping from labels to costs"
            raise TypeError(f"cost must be {known}, got {self.cost!r:.60}.")
        if isinstance(self.cost, str):
            one_of("cost", self.cost, ("distance", "height"))
        for label, above in self.parents.items():
            if label is None or not isinstance(above, Hashable):
                what = f"parents[{label!r:.60}] is {above!r:.60}"
                raise TypeError(f"{what}: name one parent for each label, None above a root.")
        object.__setattr__(self, "parents", dict(self.parents))
        labels = frozenset((*self.parents, *self.parents.values())) - {None}
        object.__setattr__(self, "_labels", labels)
        for label in self.parents:
            self.ancestors(label)

    @classmethod
    def from_paths(
        cls, labels: Iterable[str], separator: str = "/", cost: Any = "distance"
    ) -> Self:
        """The tree of labels that are paths, such as ``"animal/cat"`` or ``"comp.sys.mac"``.

        The node above a path is the path without its last step. Labels may repeat, so you can pass
        ``y``; include all labels that will be needed.
        """
        require(isinstance(separator, str) and separator, "separator must be a text, e.g. '/'.")
        parents: dict[str, str | None] = {}
        for label in dict.fromkeys(labels):
            if not isinstance(label, str):
                raise TypeError(f"a label must be a path like 'animal/cat', got {label!r:.60}.")
            steps = label.split(separator)
            for k in range(len(steps)):
                above = separator.join(steps[:k]) if k else None
                parents[separator.join(steps[: k + 1])] = above
        return cls(parents, cost)

    def ancestors(self, label: Any) -> tuple[Any, ...]:
        """The label and those above it, in upward order, without the None that joins roots."""
        what = f"the taxonomy does not know the label {label!r:.60}"
        require(label in self._labels, f"{what}: add it to parents, or make it from all labels.")
        path = [label]
        while (above := self.parents.get(path[-1])) is not None:
            require(above not in path, f"parents leads from {above!r:.60} back to itself.")
            path.append(above)
        return tuple(path)

    @property
    def root(self) -> Any:
        """The label above all others; None if there are several at the top."""
        tops = {self.ancestors(label)[-1] for label in self.parents}
        return tops.pop() if len(tops) == 1 else None

    def to_matrix(self, labels: Iterable[Any]) -> Array:
        """The cost of predicting the column's label when the row's is true.

        Nodes write their cost for all pairs of labels below them, from the top down: the last to
        write is the lowest common ancestor.
        """
        labels = list(labels)
        below: dict[Any, list[int]] = {}
        for k, label in enumerate(labels):
            for node in (*self.ancestors(label), None):
                below.setdefault(node, []).append(k)
        depths = {node: len(self.ancestors(node)) for node in below if node is not None}
        depths[None] = 0
        # What a node stands for: its depth, its own cost, or its height.
        worth: Any = depths if self.cost == "distance" else self.cost
        if self.cost == "height":
            worth = {}
            for label in self.parents:
                for up, node in enumerate((*self.ancestors(label), None)):
                    worth[node] = max(worth.get(node, 0), up)
        matrix = np.zeros((len(labels), len(labels)))
        for node in sorted(below, key=depths.__getitem__):
            rows = below[node]
            if len(rows) > 1:
                first, second = (labels[k] for k in rows[:2])
                what = f"cost has no number for {node!r:.60}, which joins {first!r} and {second!r}"
                require(node in worth, f"{what}: add it.")
                matrix[np.ix_(rows, rows)] = worth[node]
        if self.cost == "distance":
            own = np.array([depths[label] for label in labels], dtype=np.float64)
            matrix = own[:, None] + own - 2.0 * matrix
        np.fill_diagonal(matrix, 0.0)
        return matrix

    def __repr__(self) -> str:
        return f"Taxonomy({len(self._labels)} labels, cost={self.cost!r:.60})"
