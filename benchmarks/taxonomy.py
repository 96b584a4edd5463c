"""Newsgroups as a tree: a flat loss, the tree as a loss, and one classifier per inner node.

One command: ``python benchmarks/taxonomy.py``. A fifth of news20's documents is held out, the rows
are tf-idf. The file has numbers for labels; `name_labels` finds their names. For every loss the
default C and ``C="auto"``, which knows the training part only. The classifiers per node go from
the root down, as HiClass's ``LocalClassifierPerParentNode`` does.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from datasets import news20, news20_tfidf
from defaults import timed_fit
from harness import argument_parser, console, entry_point, write_results
from hingeline import MulticlassSSVM, Taxonomy
from hingeline.evaluation.metrics import hierarchical_scores

NAMES = np.array(
    [
        "alt.atheism",
        "comp.graphics",
        "comp.os.ms-windows.misc",
        "comp.sys.ibm.pc.hardware",
        "comp.sys.mac.hardware",
        "comp.windows.x",
        "misc.forsale",
        "rec.autos",
        "rec.motorcycles",
        "rec.sport.baseball",
        "rec.sport.hockey",
        "sci.crypt",
        "sci.electronics",
        "sci.med",
        "sci.space",
        "soc.religion.christian",
        "talk.politics.guns",
        "talk.politics.mideast",
        "talk.politics.misc",
        "talk.religion.misc",
    ]
)
TREE = Taxonomy.from_paths(NAMES, ".")


def name_labels() -> np.ndarray:
    """The names of the labels 1 to 20.

    Columns are numbered as words came up when the groups were read, in alphabetical order: the
    words that only one label has say when it was read.
    """
    counts, labels = news20()
    seen = np.array([(counts[labels == k] > 0).sum(axis=0).A1 > 0 for k in range(1, 21)])
    alone = seen.sum(axis=0) == 1
    read = np.argsort([np.median(np.flatnonzero(row & alone)) for row in seen])
    names = np.empty(20, dtype=NAMES.dtype)
    names[read] = NAMES
    return names


class PerParentNode:
    """One classifier of its children for every inner node; prediction goes from the top down."""

    def __init__(self, **parameters: Any) -> None:
        self.parameters = parameters

    def fit(self, X: Any, y: Any) -> PerParentNode:
        """Train the classifiers."""
        paths = [(None, *reversed(TREE.ancestors(label))) for label in y]
        below: dict[Any, list[tuple[int, Any]]] = {}
        for i, path in enumerate(paths):
            for node, child in pairwise(path):
                below.setdefault(node, []).append((i, child))
        self.models: dict[Any, Any] = {}
        for node, pairs in below.items():
            rows, children = map(list, zip(*pairs, strict=True))
            single = len(set(children)) == 1
            model = children[0] if single else MulticlassSSVM(**self.parameters)
            self.models[node] = model if single else model.fit(X[rows], np.array(children))
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Labels, level by level."""
        found = np.full(X.shape[0], None, dtype=object)
        while True:
            nodes = {node for node in found.tolist() if node in self.models}
            if not nodes:
                return found.astype(str)
            for node in nodes:
                rows, model = np.flatnonzero(found == node), self.models[node]
                found[rows] = model if isinstance(model, str) else model.predict(X[rows])


def main() -> None:
    """Print a row per loss and C."""
    options = argument_parser(__doc__).parse_args()
    data = news20_tfidf()
    n = 800 if options.quick else len(data.train_labels)
    names = name_labels()
    console.print(*names)
    X, y = data.train[:n], names[data.train_labels[:n] - 1]
    truth = names[data.test_labels - 1]
    distance = TREE.to_matrix(NAMES)
    index = {name: k for k, name in enumerate(NAMES)}
    top = np.array([name.partition(".")[0] for name in NAMES])
    height = Taxonomy(TREE.parents, "height")
    systems: dict[str, Any] = {
        "flat: zero_one": {"loss": "zero_one"},
        "tree: distance": {"loss": TREE},
        "tree: distance, at most 1": {"loss": (1.0 / distance.max(), TREE)},
        "tree: height": {"loss": height},
        "tree: height, at most 1": {"loss": (1.0 / height.to_matrix(NAMES).max(), height)},
        "a classifier per node": None,
    }
    rows: list[dict[str, Any]] = []
    for name, own in systems.items():
        for C in (1.0, "auto"):
            parameters = {"C": C, "random_state": 0}
            model: Any = PerParentNode(**parameters)
            if own is not None:
                model = MulticlassSSVM(**parameters, **own)
            timed_fit(model, X[:300], y[:300])  # compiles
            cpu = timed_fit(model, X, y)
            found = model.predict(data.test)
            a, b = ([index[label] for label in labels] for labels in (truth, found))
            wrong = truth != found
            row = {
                "system": name,
                "C": str(C),
                "C used": getattr(model, "C_", None) if C == "auto" else C,
                "accuracy": 100.0 * float(np.mean(~wrong)),
                "accuracy at the top": 100.0 * float(np.mean(top[a] == top[b])),
                "hierarchical F1": 100.0 * hierarchical_scores(truth, found, TREE).hierarchical_f1,
                "mean distance": float(distance[a, b].mean()),
                "distance of a mistake": float(distance[a, b][wrong].mean()),
                "relative gap": own and model.duality_gap_ / model.primal_objective_,
                "cpu": cpu,
            }
            console.print(", ".join(f"{key} {value}" for key, value in row.items()))
            rows.append(row)
    write_results("taxonomy", rows, quick=options.quick)


if __name__ == "__main__":
    entry_point(main)
