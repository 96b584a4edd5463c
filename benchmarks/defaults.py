"""Defaults: do edges count, what do labels cost, do scales hurt, which C suits features?

One command: ``python benchmarks/defaults.py``. Grids and label sets are generated; *emotions*, with
its features as they come, is read where ``HINGELINE_DATA`` has it. ``--taggers`` instead compares
``ChainSSVM``'s default C with others, on features of four kinds; ``--part few`` looks at few or
noisy labels, ``--part moves`` at cheaper weights of moves with more sentences.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler
from sklearn.svm import LinearSVC

from datasets import BenchmarkError, conll2000
from harness import argument_parser, console, entry_point, kept_rows, write_results
from hingeline import ChainSSVM, Graph, GraphSSVM, MulticlassSSVM, MultilabelSSVM
from hingeline.evaluation.metrics import evaluate
from hingeline.features import DictEncoder, SparseSequences, TokenTable, TokenTemplates
from published import (
    load_conll2002,
    load_letter,
    load_mnist,
    load_multilabel,
    load_news20,
    load_ud_english_ewt,
    load_usps,
)
from tables import Fresh, generate_fresh

Row = dict[str, Any]


def make_grids(seed: int, n: int, size: int = 6, labels: int = 3) -> tuple[list[Graph], list[Any]]:
    """Labels that like to be those of their neighbours (Gibbs samples), and noisy features."""
    rng = np.random.default_rng(seed)
    cells = np.arange(size * size).reshape(size, size)
    across = np.column_stack([cells[:, :-1].ravel(), cells[:, 1:].ravel()])
    edges = np.vstack([across, np.column_stack([cells[:-1].ravel(), cells[1:].ravel()])])
    near = [[*edges[edges[:, 0] == v, 1], *edges[edges[:, 1] == v, 0]] for v in range(size * size)]
    truth = rng.integers(0, labels, (n, size * size))
    for _ in range(15):
        for v, others in enumerate(near):
            liking = 1.1 * (truth[:, others, None] == np.arange(labels)).sum(axis=1)
            truth[:, v] = (liking + rng.gumbel(size=liking.shape)).argmax(axis=1)
    seen = np.eye(labels)[truth] + rng.normal(size=(n, size * size, labels))
    return [Graph(x, edges) for x in seen], list(truth)


def timed_fit(model: Any, X: Any, y: Any) -> float:
    """CPU seconds of a fit."""
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    return time.process_time() - started


def run_grids(sizes: tuple[int, ...]) -> list[Row]:
    """Right nodes without edges, with some ρ per example or as printed, and with ``sdm``."""
    test, truth = make_grids(999, 100)
    rows: list[Row] = []
    for n in sizes:
        X, y = make_grids(n, n)
        plain = GraphSSVM(C=0.1, random_state=0)
        ways: dict[str, Any] = {"no edges": plain, "default": plain}
        known = {"rho = 1 as printed": {"rho": 1.0, "rho_scale": "printed"}}
        for name, options in (
            known | {f"rho = {rho}": {"rho": rho} for rho in (1.0, 0.3, 0.1)}
        ).items():
            ways[name] = clone(plain).set_params(solver="soft-bcfw", solver_options=options)
        ways["sdm"] = clone(plain).set_params(solver="sdm", inference="lp")
        for name, model in ways.items():
            bare = name == "no edges"
            seen = [Graph(x.node_features) for x in X] if bare else X
            asked = [Graph(x.node_features) for x in test] if bare else test
            seconds = timed_fit(model, seen, y)
            row: Row = {"part": "grids", "n": n, "way": name, "cpu": seconds}
            row |= {"right %": 100.0 * model.score(asked, truth), "passes": model.n_iter_}
            row["gap"] = model.duality_gap_ / model.primal_objective_
            rows.append(row)
            console.print(
                f"grids {n:4}  {name:20s} {row['right %']:.1f} % right  {seconds:.2f} s of CPU"
                f"  {row['passes']} passes, gap {100 * row['gap']:.2f} %"
            )
    return rows


class Size(NamedTuple):
    """Label sets to generate: examples, features, labels, and the mean number of both in a row."""

    n: int
    d: int
    k: int
    words: float
    labels: float


#: The last two have the sizes of *corel5k* and *delicious*.
SIZES = (Size(4500, 499, 120, 10, 6), Size(4500, 499, 374, 8.3, 3.5), Size(12900, 500, 983, 18, 19))


def make_label_sets(size: Size) -> tuple[Any, np.ndarray]:
    """Rows mix 30 topics, which draw words (0 or 1) and labels; some of these are far rarer."""
    rng = np.random.default_rng([0, size.n, size.k])
    rarity = 1.0 / np.arange(1, size.k + 1) ** 0.9
    mix = rng.dirichlet(np.full(30, 0.1), size=size.n)
    chances = mix @ rng.gamma(0.3, 1.0 / 0.3, size=(30, size.k))
    chances *= rarity * (size.labels / rarity.sum())
    Y = (rng.random(chances.shape) < np.minimum(chances, 0.95)).astype(int)
    Y[0], Y[1] = 1, 0  # no label is constant
    words = mix @ (rng.gamma(0.3, 1.0 / 0.3, size=(30, size.d)) / np.arange(1, size.d + 1) ** 0.5)
    words *= size.words / words.sum(axis=1, keepdims=True)
    return sp.csr_matrix(rng.random(words.shape) < np.minimum(words, 0.95), dtype=float), Y


def run_linear_svc(X: Any, Y: np.ndarray, C: float) -> Row:
    """One LinearSVC per label at its defaults: CPU seconds and our primal."""
    started, primal = time.process_time(), 0.0
    for column in Y.T:
        # ¼‖v‖² + C·hinges is half of LinearSVC's problem at 2C.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            single = LinearSVC(loss="hinge", C=2.0 * C, random_state=0).fit(X, column)
        v = np.append(single.coef_[0], single.intercept_)
        hinges = np.maximum(1.0 - (2 * column - 1) * single.decision_function(X), 0.0)
        primal += 0.25 * v @ v + C * hinges.sum()
    return {"LinearSVC": time.process_time() - started, "LinearSVC primal": primal}


def read_label_sets(quick: bool, labels: list[int]) -> Iterator[tuple[Row, Any, np.ndarray]]:
    """What a row says of the data, and the data: generated, and *bibtex* where it is there."""
    for size in (Size(600, 100, 20, 5, 3),) if quick else SIZES:
        if size.k in labels or not labels:
            yield size._asdict(), *make_label_sets(size)
    if not quick and (159 in labels or not labels):
        try:
            X, Y = load_multilabel("bibtex")[:2]
        except (BenchmarkError, ValueError, OSError) as error:
            console.print(f"bibtex left out: {error}")
            return
        Y = np.asarray(Y, dtype=int)
        Y = Y[:, (Y.min(axis=0) == 0) & (Y.max(axis=0) == 1)]  # LinearSVC wants both values
        yield {"data": "bibtex", "n": len(Y), "d": X.shape[1], "k": 159}, sp.csr_matrix(X), Y


def run_label_sets(
    quick: bool, labels: list[int], values: list[float], every: int, rows: list[Row]
) -> None:
    """Labels by themselves, together, and by LinearSVC, to a gap of 1 %."""
    for known, X, Y in read_label_sets(quick, labels):
        Y = Y[:, ::every]
        timed_fit(MultilabelSSVM(edges="none"), X[:100], Y[:100, :9])
        timed_fit(MultilabelSSVM(edges="none", solver="sdm"), X[:100], Y[:100, :9])
        for C in values:
            row: Row = {"part": "label sets", **known, "every": every, "C": C}
            model = MultilabelSSVM(C=C, edges="none", random_state=0)
            row["by label"] = timed_fit(model, X, Y)
            row["primal"], row["gap"] = model.primal_objective_, model.duality_gap_
            row |= run_linear_svc(X, Y, C)

            def near(state: Any, level: float = row["LinearSVC primal"]) -> bool:
                return bool(state.row.primal <= level)

            model.set_params(tol=1e-4, callbacks=near)
            row["by label, to the primal of LinearSVC"] = timed_fit(model, X, Y)
            if known["k"] < 150 and C < 10.0:
                together = MultilabelSSVM(C=C, edges="none", solver="sdm", random_state=0)
                row["together"] = timed_fit(together, X, Y)
            rows.append(row)
            console.print(row)
            again = row["by label, to the primal of LinearSVC"]
            console.print(
                f"{known['k']} labels, C {C}: LinearSVC's seconds over ours: to a gap of 1 % "
                f"{row['LinearSVC'] / row['by label']:.2f}, "
                f"to its primal {row['LinearSVC'] / again:.2f}"
            )
            write_results("defaults", rows, quick=quick)  # a long run may be cut short


#: Examples, features, labels, and the mean number of both in a row.
TREES = (Size(500, 499, 374, 8.3, 3.5), Size(500, 200, 983, 18, 19), Size(4500, 499, 374, 8.3, 3.5))


def run_label_trees(quick: bool) -> list[Row]:
    """Trees of labels by masses of labels and pairs, and by whole outputs; a minute at most."""
    rows = []
    for size in (Size(200, 100, 30, 5, 3),) if quick else TREES:
        X, Y = make_label_sets(size)
        for C in (0.1, 1.0):
            row: Row = {"part": "label trees", **size._asdict(), "C": C}
            for solver in ("auto", "sdm")[: 2 if size.n < 1000 else 1]:
                model = MultilabelSSVM(C, edges="tree", solver=solver, random_state=0, max_time=60)
                timed_fit(clone(model).set_params(max_iter=3), X[:100], Y[:100])
                row[f"{solver} cpu"] = timed_fit(model, X, Y)
                row[f"{solver} gap"] = model.duality_gap_ / model.primal_objective_
            rows.append(row)
            console.print(row)
    return rows


def run_emotions() -> list[Row]:
    """All pairs of six labels, features as they come."""
    try:
        X, Y = load_multilabel("emotions")[:2]
    except (BenchmarkError, ValueError, OSError) as error:
        console.print(f"emotions left out: {error}")
        return []
    timed_fit(MultilabelSSVM(C=0.01, tol=1e-3), X, Y)
    rows = []
    for C in (0.01, 0.1, 1.0):
        model = MultilabelSSVM(C=C, random_state=0)
        seconds = timed_fit(model, X, Y)
        gap = model.duality_gap_ / model.primal_objective_
        rows.append({"part": "emotions", "C": C, "cpu": seconds, "gap": gap})
        console.print(f"emotions as it comes, C {C}: {seconds:.1f} s of CPU, gap {100 * gap:.2f} %")
    return rows


# Numbers of any size ----------------------------------------------------------------------------


def make_numbers(seed: int, n: int, length: int, labels: int, d: int, apart: float) -> Any:
    """Chains whose labels stick together, with normal features around a centre for each label."""
    rng = np.random.default_rng(seed)
    moves = 0.6 * np.eye(labels) + 0.4 * rng.dirichlet(np.ones(labels), labels)
    centres = apart * rng.normal(size=(labels, d))
    X, Y = [], []
    for _ in range(n):
        y = [int(rng.integers(labels))]
        while len(y) < length:
            y.append(int(rng.choice(labels, p=moves[y[-1]])))
        X.append(centres[y] + rng.normal(size=(length, d)))
        Y.append([f"l{k}" for k in y])
    return X, Y


#: What becomes of normal features.
CHANGES = {
    "normal": lambda x: x,
    "x 100": lambda x: 100.0 * x,
    "x 0.01": lambda x: 0.01 * x,
    "+ 50": lambda x: x + 50.0,
    "exponential": np.exp,
    "x 0.01 to 100": lambda x: x * 10.0 ** np.linspace(-2.0, 2.0, x.shape[1]),
}
#: Sequences to learn from, their length, labels, features, and how far centres are apart.
CHAINS = (
    *((20, 10, 3, 5, 0.7), (200, 15, 5, 10, 0.7), (100, 15, 10, 50, 0.4)),
    *((50, 30, 4, 200, 0.2), (400, 8, 3, 2, 1.0)),
)


def run_numbers(quick: bool) -> list[Row]:
    """Right tokens of 200 new chains: ``ChainSSVM()``, unscaled, and python-crfsuite."""
    from peers import crfsuite_fit, crfsuite_predict

    rows: list[Row] = []
    for seed, (n, length, labels, d, apart) in enumerate(CHAINS[:1] if quick else CHAINS):
        X, Y = make_numbers(seed, n + 200, length, labels, d, apart)
        truth = np.concatenate(Y[n:])
        for name, change in CHANGES.items():
            Z = [change(x) for x in X]
            row: Row = {"part": "numbers", "n": n, "k": labels, "d": d, "change": name}
            for kind, model in (("default", ChainSSVM()), ("unscaled", ChainSSVM(scale=False))):
                seconds = timed_fit(model.set_params(random_state=0, max_time=60.0), Z[:n], Y[:n])
                right = np.concatenate(model.predict(Z[n:])) == truth
                row[kind], row[f"{kind} cpu"] = 100.0 * float(right.mean()), seconds
            dicts: Any = [[{f"x{k}": float(v) for k, v in enumerate(t)} for t in z] for z in Z]
            peer = crfsuite_fit(dicts[:n], Y[:n])
            row["crfsuite cpu"] = peer.train.cpu
            found, _ = crfsuite_predict(peer.model, dicts[n:])
            row["crfsuite"] = 100.0 * float((np.concatenate(found) == truth).mean())
            rows.append(row)
            console.print(row)
    return rows


class World(NamedTuple):
    """Graphs to generate: how many, nodes, labels, features, distance of centres, coupling."""

    n: int
    nodes: int
    k: int
    d: int
    apart: float
    coupling: float
    grid: bool = True
    edges: float = 0.0  # size of features of edges, which say which labels are alike; 0: none
    wrong: float = 0.0  # share of the labels that are drawn anew


WORLDS = {
    "2 labels, grids of 10 x 10": World(60, 100, 2, 3, 0.5, 0.7),
    "3 labels, grids of 6 x 6": World(100, 36, 3, 5, 0.5, 1.0),
    "3 labels, weak coupling": World(60, 25, 3, 5, 0.7, 0.2),
    "3 labels, 2 to 6 nodes": World(400, 4, 3, 5, 0.5, 1.5, False),
    "3 labels, 20 graphs": World(20, 10, 3, 5, 0.7, 1.2, False),
    "5 labels, 30 nodes": World(60, 30, 5, 20, 0.3, 1.5, False),
    "8 labels, 20 nodes": World(100, 20, 8, 30, 0.4, 2.0, False),
    "features of edges": World(80, 20, 3, 5, 0.5, 1.2, False, 1.0),
    "features of edges, x 100": World(80, 20, 3, 5, 0.5, 1.2, False, 100.0),
    "features of edges, x 0.01": World(80, 20, 3, 5, 0.5, 1.2, False, 0.01),
    "5 labels, 30 % wrong": World(60, 36, 5, 10, 0.7, 1.0, True, 0.0, 0.3),
    "8 labels, 60 % wrong": World(50, 36, 8, 8, 0.5, 1.2, True, 0.0, 0.6),
    "8 labels, near": World(60, 20, 8, 8, 0.3, 1.0, False),
    "4 labels, near": World(60, 12, 4, 6, 0.1, 0.5, False),
}


#: Here few labels are more likely than all others together.
NOISY = ("5 labels, 30 % wrong", "8 labels, 60 % wrong", "8 labels, near", "4 labels, near")


def make_world(seed: int, world: World) -> tuple[list[Graph], list[np.ndarray]]:
    """Labels by Gibbs sampling, and normal features around a centre for each label."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng([7, world.k, world.d]).normal(size=(world.k, world.d))
    side = round(world.nodes**0.5)
    grid = make_grids(0, 1, side, 2)[0][0].edges
    X, Y = [], []
    for _ in range(world.n):
        if world.grid:
            edges, nodes = grid, side * side
        else:
            nodes = int(rng.integers(max(2, world.nodes // 2), world.nodes * 3 // 2 + 1))
            pairs = np.column_stack(np.triu_indices(nodes, 1))
            edges = rng.permutation(pairs)[: int(1.3 * nodes)]
        alike, own = np.full(len(edges), world.coupling), None
        if world.edges:
            told = rng.normal(size=(len(edges), 2))
            alike = 1.5 * world.coupling * told[:, 0]
            own = np.column_stack([np.ones(len(edges)), world.edges * told])
        near: list[list[Any]] = [[] for _ in range(nodes)]
        for (a, b), weight in zip(edges.tolist(), alike.tolist(), strict=True):
            near[a].append((b, weight))
            near[b].append((a, weight))
        y = rng.integers(world.k, size=nodes)
        for v in np.tile(np.arange(nodes), 10):
            liking = rng.gumbel(size=world.k)
            for other, weight in near[v]:
                liking[y[other]] += weight
            y[v] = liking.argmax()
        x = world.apart * centres[y] + rng.normal(size=(nodes, world.d))
        anew = rng.random(nodes) < world.wrong
        X.append(Graph(x, edges, edge_features=own))
        Y.append(np.where(anew, rng.integers(world.k, size=nodes), y))
    return X, Y


def judge_nodes(train: Any, test: Any) -> float:
    """Right nodes in % of the better of two classifiers of scaled nodes."""
    (A, a), (B, b) = (
        (np.vstack([x.node_features for x in X]), np.concatenate(y)) for X, y in (train, test)
    )
    scaler = StandardScaler().fit(A)
    peers = LogisticRegression(max_iter=500), LinearSVC()
    return 100.0 * max(p.fit(scaler.transform(A), a).score(scaler.transform(B), b) for p in peers)


def search_C(X: Any, y: Any) -> float:
    """Of 0.001 to 10 the C with the most right nodes of the last fifth."""
    cut, found = 4 * len(X) // 5, {}
    for C in (0.001, 0.01, 0.1, 1.0, 10.0):
        model = GraphSSVM(C, scale=True, random_state=0, max_time=5.0, n_jobs=1)
        timed_fit(model, X[:cut], y[:cut])
        found[C] = model.score(X[cut:], y[cut:])
    return max(found, key=lambda C: found[C])


def run_worlds(quick: bool) -> list[Row]:
    """Right nodes of 60 new graphs: by default, as they were before, by nodes, with the best C."""
    rows: list[Row] = []
    for name, world in list(WORLDS.items())[: 1 if quick else None]:
        train, test = make_world(1, world), make_world(2, world._replace(n=60))
        noisy = name in NOISY
        for change, alter in CHANGES.items():
            if change == "exponential" or (change != "normal" and (world.edges or noisy)):
                continue
            parts = [
                ([Graph(alter(x.node_features), x.edges, x.edge_features) for x in X], y)
                for X, y in (train, test)
            ]
            limits: Any = {"random_state": 0, "max_time": 15.0, "n_jobs": 1}
            ways = {"default": GraphSSVM(**limits), "C=0.1, unscaled": GraphSSVM(0.1, **limits)}
            if change == "normal":
                ways["C by a fifth"] = GraphSSVM(search_C(*parts[0]), scale=True, **limits)
            if noisy:
                ways["slack=sum"] = GraphSSVM(slack="sum", **limits)
            row: Row = {"part": "graphs", "graphs": name, "change": change}
            for way, model in ways.items():
                row[f"{way} cpu"] = timed_fit(model, *parts[0])
                row[way] = 100.0 * model.score(*parts[1])
            known, new = (([Graph(x.node_features) for x in X], y) for X, y in parts)
            row["no edges cpu"] = timed_fit(model := GraphSSVM(**limits), *known)
            row["no edges"] = 100.0 * model.score(*new)
            row["nodes alone, scikit-learn"] = judge_nodes(*parts)
            rows.append(row)
            console.print(row)
    return rows


def run_plain_sets(quick: bool) -> list[Row]:
    """Micro F1 and right indicators of new rows: by default, as it was before, LinearSVC."""
    rows: list[Row] = []
    sizes = ((600, 150, 12), (200, 10, 5), (1000, 40, 6), (300, 300, 8))
    for n, d, k in sizes[1:2] if quick else sizes:
        rng = np.random.default_rng([n, d, k])
        X = rng.normal(size=(n + 1000, d))
        useful = rng.random((d, 1)) < 20.0 / d
        topics = X @ (useful * rng.normal(size=(d, 3))) / min(d, 20) ** 0.5
        topics += 0.7 * rng.normal(size=topics.shape)
        own = X @ (useful * rng.normal(size=(d, k))) / min(d, 20) ** 0.5
        own += 1.2 * topics @ rng.normal(size=(3, k)) + rng.normal(size=own.shape)
        Y = (own > 1.0).astype(int)
        for change, alter in CHANGES.items():
            Z = alter(X)
            scaler = StandardScaler().fit(Z[:n])
            limits: Any = {"random_state": 0, "max_time": 20.0, "n_jobs": 1}
            ways: dict[str, tuple[Any, Any]] = {
                "default": (MultilabelSSVM(**limits), Z),
                "C=1, unscaled": (MultilabelSSVM(1.0, **limits), Z),
                "LinearSVC": (MultiOutputClassifier(LinearSVC()), scaler.transform(Z)),
            }
            row: Row = {"part": "graphs", "n": n, "d": d, "k": k, "change": change}
            for way, (model, seen) in ways.items():
                row[f"{way} cpu"] = timed_fit(model, seen[:n], Y[:n])
                found = model.predict(seen[n:])
                row[way] = 100.0 * f1_score(Y[n:], found, average="micro")
                row[f"{way} right"] = 100.0 * float((found == Y[n:]).mean())
                if way != "LinearSVC":
                    row[f"{way} gap"] = 100.0 * model.duality_gap_ / model.primal_objective_
            rows.append(row)
            console.print(row)
    return rows


# Which C suits which features? ------------------------------------------------------------------

COSTS = (0.03, 0.1, 0.3, 1.0, 3.0)


def read_taggers(n: int) -> dict[str, Any]:
    """Tables and labels of n sentences to learn from and 1,000 to choose C by; what is scored."""
    sentences = conll2000("train")
    parts = [TokenTable.from_sentences(p) for p in (sentences[:n], sentences[-1000:])]
    found = {"CoNLL-2000": [(t.select([0, 1]), t.sentences(2)) for t in parts]}
    spanish, english = load_conll2002(), load_ud_english_ewt()
    parts = [spanish.train[:n], spanish.dev[:1000]]
    found["Spanish names"] = [(t.select(["word", "pos"]), t.sentences("entity")) for t in parts]
    parts = [english.train.table[:n], english.dev.table[:1000]]
    found["UD English"] = [(t.select(["form"]), t.sentences("upos")) for t in parts]
    return found


def describe_token(token: Any) -> dict[str, Any]:
    """What the tutorials of CRFsuite's wrappers say of a neighbour."""
    word, *tag = token
    found = {"lower": word.lower(), "title": word.istitle(), "upper": word.isupper()}
    return found | ({"tag": tag[0], "tag[:2]": tag[0][:2]} if tag else {})


def tutorial_dicts(sentence: Any) -> list[dict[str, Any]]:
    """The feature dicts of these tutorials."""
    dicts = []
    for t, (word, *_) in enumerate(sentence):
        found = {"bias": 1.0, "word[-3:]": word[-3:], "word[-2:]": word[-2:]}
        found |= {"digit": word.isdigit(), **describe_token(sentence[t])}
        for step, end in ((-1, "BOS"), (1, "EOS")):
            inside = 0 <= t + step < len(sentence)
            near = describe_token(sentence[t + step]) if inside else {end: True}
            found |= {f"{step:+}:{name}": value for name, value in near.items()}
        dicts.append(found)
    return dicts


def encode_taggers(kind: str, tables: Any) -> list[SparseSequences]:
    """Both parts encoded: default templates, these in 32 random directions, or dicts."""
    if kind.startswith("templates"):
        encoder: Any = TokenTemplates()
        X = [encoder.fit_transform(tables[0]), encoder.transform(tables[1])]
        if kind == "templates, projected":
            wide = 0.1 * np.random.default_rng(0).normal(size=(X[0].matrix.shape[1], 32))
            X = [SparseSequences(sp.csr_matrix(x.matrix @ wide), x.offsets) for x in X]
        return X
    encoder, dicts = DictEncoder(), []
    for table in tables:
        rows = [
            list(zip(*columns, strict=True))
            for columns in zip(*(table.sentences(k) for k in range(len(table.names))), strict=True)
        ]
        if kind == "dicts, small":
            dicts.append([[{"w": t[0].lower(), "end": t[0][-3:]} for t in row] for row in rows])
        else:
            dicts.append([tutorial_dicts(row) for row in rows])
    return [encoder.fit_transform(dicts[0]), encoder.transform(dicts[1])]


def run_taggers(quick: bool) -> list[Row]:
    """Scores on held-out sentences for some C, and for the default."""
    rows = []
    for name, parts in read_taggers(100 if quick else 400).items():
        for kind in ("templates", "dicts", "dicts, small", "templates, projected"):
            if kind == "templates, projected":  # dense and far from separable: slow at large C
                parts = [(table[:150], labels[:150]) for table, labels in parts]
            X = encode_taggers(kind, [table for table, _ in parts])
            row: Row = {"data": name, "features": kind, "scores": {}, "cpu": {}}
            for C in (*COSTS, "scale"):
                model = ChainSSVM(C=C, tol=0.03, max_iter=50, random_state=0)
                row["cpu"][str(C)] = timed_fit(model, X[0], parts[0][1])
                found = evaluate(parts[1][1], model.predict(X[1]))
                score = found.token_accuracy if found.span_f1 is None else found.span_f1
                row["scores"][str(C)] = 100.0 * score
            row["scale"] = model.C_
            row["squared norm"] = float(X[0].matrix.power(2).sum() / X[0].matrix.shape[0])
            rows.append(row)
            console.print(row)
            write_results("defaults_taggers", rows, quick=quick)
    return rows


# Numbers in dicts, and pairs of labels -----------------------------------------------------------


def number_dicts(sentence: Any, odd: bool) -> list[dict[str, Any]]:
    """The dicts of the tutorials with lengths and places; odd ones are as large as they come."""
    dicts, before = tutorial_dicts(sentence), 0.0
    for t, (word, *_) in enumerate(sentence):
        dicts[t] |= {"length": len(word), "place": t, "share": t / len(sentence)}
        if odd:
            dicts[t] |= {"offset": before, "serial": 1e6 + len(sentence)}
        before += len(word) + 1
    return dicts


def run_dicts(quick: bool) -> list[Row]:
    """200 sentences of dicts with numbers: right tokens or span F1 of 1,000 others."""
    from peers import crfsuite_fit, crfsuite_predict

    rows: list[Row] = []
    for name, parts in read_taggers(50 if quick else 200).items():
        texts: Any = [zip(*map(t.sentences, range(len(t.names))), strict=True) for t, _ in parts]
        texts = [[list(zip(*columns, strict=True)) for columns in part] for part in texts]
        for kind in ("plain", "numbers", "odd numbers"):
            X = [
                [
                    tutorial_dicts(s) if kind == "plain" else number_dicts(s, kind[0] == "o")
                    for s in own
                ]
                for own in texts
            ]
            row: Row = {"part": "dicts", "data": name, "features": kind}

            def judge(found: Any, truth: Any = parts[1][1]) -> float:
                result = evaluate(truth, [list(map(str, labels)) for labels in found])
                score = result.token_accuracy if result.span_f1 is None else result.span_f1
                return 100.0 * float(score)

            for way, model in (("default", ChainSSVM()), ("unscaled", ChainSSVM(scale=False))):
                row[f"{way} cpu"] = timed_fit(model.set_params(random_state=0), X[0], parts[0][1])
                row[way] = judge(model.predict(X[1]))
            settings = {"c1": 0.1, "c2": 0.1, "max_iterations": 100}
            peer = crfsuite_fit(X[0], parts[0][1], params=settings)  # as the tutorials do
            row["crfsuite cpu"] = peer.train.cpu
            row["crfsuite"] = judge(crfsuite_predict(peer.model, X[1])[0])
            rows.append(row)
            console.print(row)
    return rows


def run_pairs(quick: bool) -> list[Row]:
    """Micro and macro F1 by pairs of the most frequent labels, and of a classifier per label."""
    rows: list[Row] = []
    sizes = (
        ("scene", 6),
        ("yeast", 14),
        ("enron", 15),
        ("enron", 20),
        ("enron", 30),
        ("enron", 53),
    )
    more = (("medical", 20), ("medical", 45), ("bibtex", 20), ("bibtex", 30))
    for name, k in sizes[:1] if quick else sizes + more:
        X, Y, X_test, Y_test = (sp.csr_matrix(a) for a in load_multilabel(name)[:4])
        often = np.argsort(-np.asarray(Y.sum(axis=0)).ravel(), kind="stable")[:k]
        Y, Y_test = Y.toarray()[:1200, often], Y_test.toarray()[:, often]
        seen, asked = (a.toarray() if name in ("scene", "yeast") else a for a in (X[:1200], X_test))
        limits: Any = {"random_state": 0, "max_time": 60.0}
        ways: dict[str, Any] = {
            way: MultilabelSSVM(edges=way, **limits) for way in ("auto", "full", "tree", "none")
        }
        ways["logistic"] = OneVsRestClassifier(LogisticRegression(max_iter=300))
        row: Row = {"part": "pairs", "data": name, "k": len(often)}
        for way, model in ways.items():
            row[f"{way} cpu"] = timed_fit(model, seen, Y)
            found = model.predict(asked)
            for kind in ("micro", "macro"):
                row[f"{way} {kind}"] = 100.0 * f1_score(
                    Y_test, found, average=kind, zero_division=0
                )
        rows.append(row)
        console.print(row)
    return rows


def draw_tables(quick: bool) -> Iterator[tuple[str, Any, np.ndarray]]:
    """Tables with one label a row; the generated ones are kinds that nothing was chosen on."""
    for load in (load_iris,) if quick else (load_iris, load_wine, load_breast_cancer, load_digits):
        yield load.__name__[5:], *load(return_X_y=True)
    if not quick:
        for kind in ("correlated", "imbalanced", "mixtures", "shifted", "scales", "one-hot"):
            X, y = generate_fresh(Fresh(1_200, 40, 5, kind, 1.0), seed=77)
            yield kind, X[:, :-1], y
        for kind in ("mixed", "counts", "tf-idf"):
            X, y = generate_fresh(Fresh(1_600, 2_000, 8, kind, 1.0), seed=77)
            yield kind, X[:, :-1], y
        rng, digits = np.random.default_rng(0), load_usps()
        ages, incomes = 40.0 + 12.0 * rng.normal(size=len(y)), 3e4 * rng.lognormal(0.0, 0.5, len(y))
        yield "tf-idf, age and income", sp.hstack([X[:, :-1], np.c_[ages, incomes]]).tocsr(), y
        rows = rng.permutation(len(digits[1]))[:3000]
        X, y = digits[0][rows], digits[1][rows]
        yield "usps", X, y
        yield "usps, 60 components", PCA(60, random_state=0).fit_transform(X), y
        digits = load_mnist()
        rows = rng.permutation(len(digits[1]))[:2000]
        yield "mnist, 0 to 255", digits[0][rows].astype(float), digits[1][rows]
        letters = load_letter()
        rows = rng.permutation(len(letters[1]))[:4000]
        yield "letter", letters[0][rows].toarray(), letters[1][rows]
        yield "letter, 0 to 1", 0.5 + 0.5 * letters[0][rows].toarray(), letters[1][rows]
        words, y = load_news20()
        rows = rng.permutation(len(y))[:4000]
        words, y = words[rows].astype(float), y[rows]
        yield "news20, counts", words, y
        often = np.argsort(words.getnnz(axis=0))[-2_000:]
        yield "news20, 2,000 counts, dense", words[:, often].toarray(), y
        text = TfidfTransformer(sublinear_tf=True).fit_transform(words)
        yield "news20, tf-idf", text, y
        yield "news20, 100 components", TruncatedSVD(100, random_state=0).fit_transform(text), y


def run_tables(quick: bool) -> list[Row]:
    """Right rows of a held-out half: the default C, the old one, and scikit-learn's defaults."""
    rows: list[Row] = []
    for name, X, y in draw_tables(quick):
        row: Row = {"part": "tables", "data": name, "n": len(y) // 2, "d": X.shape[1]}
        repeats = 5 if len(y) < 2000 else 1
        for seed in range(repeats):
            order = np.random.default_rng(seed).permutation(len(y))
            seen, asked = np.split(order, [len(y) // 2])
            size = MaxAbsScaler() if sp.issparse(X) else StandardScaler()
            limits: Any = {"random_state": 0, "max_time": 60.0}
            ways: dict[str, Any] = {
                "default": MulticlassSSVM(**limits),
                "scale = False": MulticlassSSVM(scale=False, **limits),
                "C = 1": MulticlassSSVM(1.0, **limits),
                "C = auto": MulticlassSSVM("auto", **limits),
                "LinearSVC": LinearSVC(random_state=0),
                "LinearSVC, scaled": make_pipeline(size, LinearSVC(random_state=0)),
                "logistic, scaled": make_pipeline(clone(size), LogisticRegression(max_iter=300)),
            }
            for way, model in ways.items():
                seconds = timed_fit(model, X[seen], y[seen])
                right = 100.0 * float(np.mean(model.predict(X[asked]) == y[asked]))
                row[way] = row.get(way, 0.0) + right / repeats
                row[f"{way} cpu"] = row.get(f"{way} cpu", 0.0) + seconds / repeats
        rows.append(row)
        console.print(row)
    return rows


PARTS = ("emotions", "label sets", "label trees", "grids", "numbers", "graphs")
PARTS += ("dicts", "pairs", "tables", "few", "moves", "all")


def main() -> None:
    """Run the parts asked for; rows of the others are kept."""
    parser = argument_parser(__doc__)
    parser.add_argument("--part", choices=PARTS, default="all")
    parser.add_argument("--labels", type=int, nargs="+", default=[], help="sizes of label sets")
    parser.add_argument("--C", type=float, nargs="+", default=[0.1, 1.0, 10.0], help="theirs")
    parser.add_argument("--every", type=int, default=1, help="only each so many-th label of them")
    parser.add_argument("--taggers", action="store_true", help="which C suits which features")
    options = parser.parse_args()
    if options.taggers:
        run_taggers(options.quick)
        return
    if options.part in ("few", "moves"):  # files of their own
        from few import run_few, run_moves

        (run_few if options.part == "few" else run_moves)(options.quick)
        return
    rows = kept_rows("defaults", quick=options.quick) if options.part != "all" else []
    again = options.labels  # of label sets, rows of other sizes and other C are kept
    rows = [
        r
        for r in rows
        if r["part"] != options.part
        or (again and (r["k"] not in again or r["C"] not in options.C))
        or (again and r.get("every", 1) != options.every)
    ]
    if options.part in ("emotions", "all"):
        rows += run_emotions()
    if options.part in ("label sets", "all"):
        run_label_sets(options.quick, options.labels, options.C, options.every, rows)
    if options.part in ("label trees", "all"):
        rows += run_label_trees(options.quick)
    if options.part in ("grids", "all"):
        rows += run_grids((20,) if options.quick else (20, 100, 400))
    if options.part in ("numbers", "all"):
        rows += run_numbers(options.quick)
    if options.part in ("graphs", "all"):
        rows += run_worlds(options.quick) + run_plain_sets(options.quick)
    if options.part in ("dicts", "all"):
        rows += run_dicts(options.quick)
    if options.part in ("pairs", "all"):
        rows += run_pairs(options.quick)
    if options.part in ("tables", "all"):
        rows += run_tables(options.quick)
    write_results("defaults", rows, quick=options.quick)


if __name__ == "__main__":
    entry_point(main)
