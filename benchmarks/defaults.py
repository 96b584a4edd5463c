"""Defaults: do edges count, what do labels cost, do scales hurt, which C suits features?

One command: ``python benchmarks/defaults.py``. Grids and label sets are generated; *emotions*, with
its features as they come, is read where ``HINGELINE_DATA`` has it. ``--taggers`` instead compares
``ChainSSVM``'s default C with others, on features of four kinds.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.svm import LinearSVC

from datasets import BenchmarkError, conll2000
from harness import argument_parser, console, entry_point, kept_rows, write_results
from hingeline import ChainSSVM, Graph, GraphSSVM, MultilabelSSVM
from hingeline.evaluation.metrics import evaluate
from hingeline.features import DictEncoder, SparseSequences, TokenTable, TokenTemplates
from published import load_conll2002, load_multilabel, load_ud_english_ewt

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
    """Right nodes without edges, as the paper prints ρ, by default and with ``sdm``."""
    test, truth = make_grids(999, 100)
    rows: list[Row] = []
    for n in sizes:
        X, y = make_grids(n, n)
        ways: dict[str, Any] = {
            "no edges": GraphSSVM(C=0.1, random_state=0),
            "rho = 1 as printed": GraphSSVM(
                C=0.1,
                random_state=0,
                solver="soft-bcfw",
                solver_options={"rho": 1.0, "rho_scale": "printed"},
            ),
            "default": GraphSSVM(C=0.1, random_state=0),
            "sdm": GraphSSVM(C=0.1, random_state=0, solver="sdm", inference="lp"),
        }
        for name, model in ways.items():
            bare = name == "no edges"
            seen = [Graph(x.node_features) for x in X] if bare else X
            asked = [Graph(x.node_features) for x in test] if bare else test
            seconds = timed_fit(model, seen, y)
            right = 100.0 * model.score(asked, truth)
            rows.append({"part": "grids", "n": n, "way": name, "right %": right, "cpu": seconds})
            console.print(f"grids {n:4}  {name:20s} {right:.1f} % right  {seconds:.2f} s of CPU")
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


PARTS = ("emotions", "label sets", "label trees", "grids", "numbers", "all")


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
    write_results("defaults", rows, quick=options.quick)


if __name__ == "__main__":
    entry_point(main)
