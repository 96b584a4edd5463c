"""Few or noisy labels: the default tagger, other settings of it, and python-crfsuite.

One command: ``python benchmarks/defaults.py --part few``. Templates learnt on 50, 100 or 200
sentences drawn three times, the same features for all; some labels are replaced by others at
random. Half of the data sets were looked at when settings were chosen, the others were not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from datasets import conll2000
from defaults import timed_fit
from harness import console, write_results
from hingeline import ChainSSVM
from hingeline.evaluation.metrics import evaluate
from hingeline.features import SparseSequences, TokenTable, TokenTemplates
from peers import crfsuite_fit, crfsuite_predict
from published import (
    load_citations,
    load_conll2002,
    load_ocr_letters,
    load_seminars,
    load_treebank_sample,
    load_ud_english_ewt,
    load_umass_citations,
)

Row = dict[str, Any]
Labels = list[list[str]]
#: Test sentences at most, and seconds that a single fit may take.
MOST_TEST, MOST_SECONDS = 500, 30.0
SPANS = ("CoNLL-2000", "Names of UD English", "Spanish names")
#: Chosen on these; the others were held back.
SEEN = ("CoNLL-2000", "UD English", "OCR", "Seminars", "Names of UD English")


class Part(NamedTuple):
    """Inputs, and labels of each."""

    X: Any
    y: Labels


def cut(table: TokenTable, columns: list[int], label: int) -> Part:
    """Columns of words, and the column of labels."""
    return Part(table.select(columns), [list(labels) for labels in table.sentences(label)])


def divide(table: TokenTable, columns: list[int], label: int, held_out: int) -> tuple[Part, Part]:
    """Data without a test part: some sentences at random are that."""
    order = np.random.default_rng(5).permutation(len(table))
    parts = table[np.sort(order[held_out:])], table[np.sort(order[:held_out])]
    return cut(parts[0], columns, label), cut(parts[1], columns, label)


def mark_names(tags: list[str]) -> list[str]:
    """Runs of proper nouns and of numbers as spans; most tokens are outside of them."""
    kinds = [{"PROPN": "NAME", "NUM": "NUM"}.get(tag) for tag in tags]
    before = [None, *kinds[:-1]]
    pairs = zip(before, kinds, strict=True)
    return ["O" if k is None else ("I-" if b == k else "B-") + k for b, k in pairs]


def read_data() -> Iterator[tuple[str, Part, Part]]:
    """Name, what to draw sentences from, and test data."""
    chunks = [TokenTable.from_sentences(conll2000(part)) for part in ("train", "test")]
    yield "CoNLL-2000", *(cut(table, [0, 1], 2) for table in chunks)
    treebank = load_ud_english_ewt()
    tables = [part.table for part in (treebank.train, treebank.test)]
    english = [Part(t.select(["form"]), list(map(list, t.sentences("upos")))) for t in tables]
    yield "UD English", *english
    yield "Names of UD English", *(Part(p.X, list(map(mark_names, p.y))) for p in english)
    words = load_ocr_letters()
    X, y = words.sequences(), words.labels()
    own, others = np.flatnonzero(words.folds < 3), np.flatnonzero(words.folds >= 3)[::4]
    yield "OCR", *(Part(X[i], [list(map(str, y[k])) for k in i]) for i in (own, others))
    yield "Seminars", *divide(load_seminars().documents, [0], 1, 145)
    spanish = load_conll2002()
    yield "Spanish names", *(cut(table, [0, 1], 2) for table in (spanish.train, spanish.test))
    cora = load_citations()
    yield "Citations", *(cut(table, [0], 1) for table in (cora.train, cora.test))
    umass = load_umass_citations()
    yield "UMass citations", *(cut(table, [0], 1) for table in (umass.train, umass.test))
    yield "Penn Treebank tags", *divide(load_treebank_sample().tagged, [0], 1, 1000)


def spoil(y: Labels, share: float, rng: Any) -> Labels:
    """Each label replaced by another one, any, in a share of the tokens."""
    known = sorted({label for labels in y for label in labels})
    place = {label: k for k, label in enumerate(known)}
    found = []
    for labels in y:
        steps = rng.integers(1, len(known), len(labels)) * (rng.random(len(labels)) < share)
        pairs = zip(labels, steps, strict=True)
        found.append([known[(place[label] + step) % len(known)] for label, step in pairs])
    return found


def draw(data: Part, test: Part, n: int, wrong: float, seed: int) -> tuple[Any, Labels, Any]:
    """Encoded sentences to learn from, their labels, and the encoded test sentences."""
    rng = np.random.default_rng([seed, 7])
    order = np.sort(rng.permutation(len(data.y))[:n])
    y = spoil([data.y[i] for i in order], wrong, rng)
    if not isinstance(data.X, TokenTable):
        return data.X[order], y, test.X
    encoder = TokenTemplates()
    return encoder.fit_transform(data.X[order]), y, encoder.transform(test.X)


# The systems -------------------------------------------------------------------------------------


def default_C(X: Any) -> float:
    """What ``C="scale"`` stands for."""
    return 3.0 / (float(X.matrix.power(2).sum()) / X.matrix.shape[0] + 1.0)


def tag(X: Any, y: Labels, X_test: Any, **settings: Any) -> tuple[Any, float]:
    """Labels of the test sentences, and CPU seconds of the fit."""
    model = ChainSSVM(random_state=0, n_jobs=1, **{"max_time": MOST_SECONDS} | settings)
    seconds = timed_fit(model, X, y)
    return model.predict(X_test), seconds


def favour_rare(X: Any, y: Labels, X_test: Any) -> tuple[Any, float]:
    """Where a label has more than half of the tokens, others cost one and a half."""
    count = Counter(label for labels in y for label in labels)
    top, often = count.most_common(1)[0]
    factor = 1.5 if 2 * often > sum(count.values()) else 1.0
    costs = {label: 1.0 if label == top else factor for label in count}
    return tag(X, y, X_test, class_weight=costs)


def free_moves(
    X: Any, y: Labels, X_test: Any, share: float, bias: bool = False, **settings: Any
) -> tuple[Any, float]:
    """Weights of moves and ends are cheaper: their features have a share of the norm of a token.

    Features times s, with C/s², are the same problem but for the moves. ``bias``: the constant
    feature is like those of moves, and C follows the norm of all features as they are then.
    """
    C = default_C(X)
    norm = np.sqrt(3.0 / C - bias)
    s = 1.0 / (share * norm)
    constant = 1.0 if bias else s

    def shrink(part: Any) -> SparseSequences:
        ones = np.full((part.matrix.shape[0], 1), constant)
        return SparseSequences(sp.csr_matrix(sp.hstack([s * part.matrix, ones])), part.offsets)

    rows = shrink(X), y, shrink(X_test)
    squared = (s * norm) ** 2 + bias
    return tag(*rows, C=3.0 / squared, fit_intercept=False, scale=False, **settings)


def list_attributes(X: Any) -> list[list[list[str]]]:
    """Columns that are not 0, as CRFsuite's attributes."""
    matrix, offsets = X.matrix, X.offsets
    names = np.array([str(k) for k in range(matrix.shape[1])], dtype=object)
    rows = [row.tolist() for row in np.split(names[matrix.indices], matrix.indptr[1:-1])]
    return [rows[a:b] for a, b in pairwise(offsets)]


def ask_crfsuite(X: Any, y: Labels, X_test: Any, c2: float) -> tuple[Any, float]:
    """The same by python-crfsuite."""
    peer = crfsuite_fit(list_attributes(X), y, params={"c2": c2})
    return crfsuite_predict(peer.model, list_attributes(X_test))[0], peer.train.cpu


def choose_systems(name: str, wrong: float) -> dict[str, Callable[..., tuple[Any, float]]]:
    """What is run on these data. Slack rescaling takes too long on documents."""

    def scaled(X: Any, y: Labels, X_test: Any, factor: float = 0.3) -> tuple[Any, float]:
        return tag(X, y, X_test, C=factor * default_C(X))

    ways: dict[str, Callable[..., tuple[Any, float]]] = {
        "default": tag,
        "crfsuite": partial(ask_crfsuite, c2=1.0),
        "crfsuite, c2=0.1": partial(ask_crfsuite, c2=0.1),
        "C x 0.3": scaled,
        "auto": partial(tag, C="auto"),
        "moves x 0.3": partial(free_moves, share=0.3),
        "moves x 0.5": partial(free_moves, share=0.5),
    }
    if not wrong:
        ways["rare labels x 1.5"] = favour_rare
        if name in SPANS:
            ways["rescale=slack"] = partial(tag, rescale="slack")
            ways["scheme=auto"] = partial(tag, scheme="auto")
    return ways


def choose_moves() -> dict[str, Callable[..., tuple[Any, float]]]:
    """The default, and cheaper moves; time enough for all sentences."""
    cheaper: Any = partial(free_moves, max_time=600.0)
    found = {f"moves x {share}": partial(cheaper, share=share) for share in (0.3, 0.4, 0.5)}
    bias = partial(cheaper, share=0.3, bias=True)
    return {"default": partial(tag, max_time=600.0), **found, "bias too": bias}


def judge(truth: Labels, found: Any) -> float:
    """F1 of spans where labels are tags, else right tokens; in per cent."""
    result = evaluate(truth, [list(map(str, labels)) for labels in found])
    tags = any(label[1:2] == "-" for labels in truth for label in labels)
    score = result.span_f1 if tags else result.token_accuracy
    return 100.0 * float(score or 0.0)


def compare(
    name: str, data: Part, test: Part, n: int, wrong: float, draws: int, ways: Any = None
) -> Row:
    """Scores and CPU seconds of all systems, for n sentences with a share of wrong labels."""
    most = MOST_TEST if ways is None else 3 * MOST_TEST
    test = Part(test.X[:most], test.y[:most])
    ways = choose_systems(name, wrong) if ways is None else ways
    scores: list[dict[str, float]] = []
    seconds: list[dict[str, float]] = []
    for seed in range(draws):
        X, y, X_test = draw(data, test, n, wrong, seed)
        results = {way: system(X, y, X_test) for way, system in ways.items()}
        scores.append({way: judge(test.y, found) for way, (found, _) in results.items()})
        seconds.append({way: cpu for way, (_, cpu) in results.items()})
    row: Row = {"data": name, "held back": name not in SEEN, "n": n, "wrong": wrong}
    row["scores"] = {way: float(np.mean([drawn[way] for drawn in scores])) for way in ways}
    row["cpu"] = {way: float(np.mean([drawn[way] for drawn in seconds])) for way in ways}
    return row | {"draws": scores}


def run_few(quick: bool) -> list[Row]:
    """Means over three draws; a row for each data set, size and share of wrong labels."""
    rows: list[Row] = []
    cases = ((20, 0.0),) if quick else ((200, 0.0), (100, 0.3), (50, 0.0), (100, 0.1))
    sets = list(read_data())
    for n, wrong in cases:
        for name, data, test in sets:
            if wrong and name == "Seminars":  # minutes a fit
                continue
            rows.append(compare(name, data, test, n, wrong, 1 if quick else 3))
            console.print({key: value for key, value in rows[-1].items() if key != "draws"})
            write_results("defaults_few", rows, quick=quick)  # a long run may be cut short
    return rows


def run_moves(quick: bool) -> list[Row]:
    """Cheaper moves with 1,000 sentences, two draws of them, and with all."""
    rows: list[Row] = []
    for name, data, test in read_data():
        if not rows:  # compile
            compare(name, data, test, 20, 0.0, 1, choose_moves())
        sizes = [n for n in ((20,) if quick else (1000, len(data.y))) if n <= len(data.y)]
        for n in sizes:
            draws = 1 if quick or n == len(data.y) else 2
            rows.append(compare(name, data, test, n, 0.0, draws, choose_moves()))
            console.print({key: value for key, value in rows[-1].items() if key != "draws"})
            write_results("defaults_moves", rows, quick=quick)
    return rows
