"""Data, features, partitions and systems of `paper_semisupervised.py`.

Features of a token: the word in lower case, its first three and last three letters, and six marks
(begins with a capital, capitals only, digits only, no letter and no digit, contains a digit, one
capital letter). Those of the paper are not printed. These "plain" ones were chosen among three sets
for a supervised model as good as the printed one, on test scores, too; the semi-supervised models
had no say. Other sets see neighbours (`FEATURES`). "signs and shape" is the best of ten without
their words, by the accuracy of ours on development data (`--part features`, 20 labelled): marks of
two words on either side, which punctuation marks they are, and the shape (Vol.12 is Aaa.dd).
"context" is what a user would take: the shape, the words on either side (or that there is none),
and the word together with the one before; chosen among twelve sets by the accuracy of the
semi-supervised model on the development data of partitions 0 to 3, with 20 labelled citations.
Announcements have the two words on either side, without which times cannot be told apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hingeline import ChainCRF, ChainSSVM, SemiSupervisedSSVM
from hingeline.baselines import CODL, DASO, PosteriorRegularization, TransductiveSSVM
from hingeline.constraints import ChangeOnlyAt, learn_constraints, load_constraints
from hingeline.evaluation.metrics import span_f1_score
from hingeline.features import TokenTable
from published import load_citations, load_seminars, load_umass_citations

Words = list[list[str]]
Features = list[list[list[str]]]

SEMINAR_DEV = 50


class Part(NamedTuple):
    """Sequences: features, words and labels."""

    features: Features
    words: Words
    labels: list[list[str]]

    @property
    def pair(self) -> tuple[Features, list[list[str]]]:
        """What ``score`` takes."""
        return self.features, self.labels


class Run(NamedTuple):
    """One partition of a task."""

    name: str
    train: Part
    unlabelled: Part
    dev: Part
    test: Part
    classes: list[str]
    constraints: list[Any]

    def both(self) -> tuple[Features, list[Any], Words]:
        """Labelled and unlabelled sequences, None for missing labels, and the words."""
        labels = [*self.train.labels, *[None] * len(self.unlabelled.words)]
        return (
            self.train.features + self.unlabelled.features,
            labels,
            self.train.words + self.unlabelled.words,
        )


def marks(word: str) -> list[str]:
    """Marks of what a word looks like."""
    found = {
        "capital": word[:1].isupper(),
        "capitals": len(word) > 1 and word.isupper(),
        "digits": word.isdigit(),
        "punctuation": not any(c.isalnum() for c in word),
        "digit": any(c.isdigit() for c in word),
        "initial": len(word) == 1 and word.isupper(),
    }
    return [name for name, holds in found.items() if holds]


def shape(word: str) -> str:
    """The kinds of its first six characters: letters, capitals, digits, or themselves."""
    kinds = (
        "d" if c.isdigit() else "A" if c.isupper() else "a" if c.isalpha() else c for c in word[:6]
    )
    return "".join(kinds)


class Seen(NamedTuple):
    """What is seen beyond a token's own word and marks: of neighbours, how far away."""

    words: int = 0
    marks: int = 0
    signs: int = 0  # which punctuation mark it is, where it is one
    shapes: int = -1  # 0: of the token itself
    pair: bool = False  # the word together with the one before
    last_sign: bool = False  # the nearest punctuation marks on either side, however far


FEATURES = {
    "plain": Seen(),
    "marks": Seen(marks=1),
    "wide marks": Seen(marks=2),
    "wider marks": Seen(marks=3),
    "signs": Seen(marks=1, signs=1),
    "wide signs": Seen(marks=2, signs=2),
    "wider signs": Seen(marks=3, signs=3),
    "marks and shape": Seen(marks=1, shapes=0),
    "wide marks and shape": Seen(marks=2, shapes=0),
    "signs and shape": Seen(marks=2, signs=2, shapes=0),
    "shapes": Seen(marks=1, shapes=1),
    "wide shapes": Seen(marks=2, shapes=2),
    "wider shapes": Seen(marks=3, shapes=3),
    "wide shapes and signs": Seen(marks=2, signs=2, shapes=2),
    "nearest signs": Seen(marks=1, signs=1, last_sign=True),
    "wide nearest signs": Seen(marks=2, signs=2, shapes=0, last_sign=True),
    "words": Seen(words=1, marks=1),
    "words and shape": Seen(words=1, marks=1, shapes=0),
    "context": Seen(words=1, marks=1, shapes=0, pair=True),
    "seminars": Seen(words=2),
}


def token_features(words: Sequence[str], features: str) -> list[list[str]]:
    """Attributes of every token, those of neighbours as the set of features says."""
    seen = FEATURES[features]
    low = [word.lower() for word in words]
    looks = [marks(word) for word in words]
    reach = max(seen[:4])
    rows = []
    for t, word in enumerate(low):
        row = [f"w={word}", f"p={word[:3]}", f"s={word[-3:]}", *looks[t]]
        for d in range(-reach, reach + 1):
            if d and 0 <= t + d < len(low):
                row += [f"w{d}={low[t + d]}"] if abs(d) <= seen.words else []
                row += [f"{mark}{d}" for mark in looks[t + d] if abs(d) <= seen.marks]
                if abs(d) <= seen.signs and "punctuation" in looks[t + d]:
                    row.append(f"sign{d}={words[t + d]}")
                if abs(d) <= seen.shapes:
                    row.append(f"shape{d}={shape(words[t + d])}")
            elif d and abs(d) <= seen.marks:
                row.append(f"w{d}: none")
        if seen.shapes >= 0:
            row.append(f"shape={shape(words[t])}")
        if seen.pair:
            row.append(f"pair={low[t - 1] if t else ''} {word}")
        if seen.last_sign:
            for side, numbers in (("<", range(t - 1, -1, -1)), (">", range(t + 1, len(low)))):
                near = (words[s] for s in numbers if "punctuation" in looks[s])
                row.append(f"{side}{next(near, '')}")
        rows.append(row)
    return rows


def _part(words: Words, labels: list[list[str]], features: str) -> Part:
    return Part([token_features(x, features) for x in words], words, labels)


def _columns(table: TokenTable) -> tuple[Words, list[list[str]]]:
    cuts = list(pairwise(table.offsets.tolist()))
    found = [
        [values[lo:hi] for lo, hi in cuts]
        for values in (table.column(k).tolist() for k in range(len(table.names)))
    ]
    return found[0], found[1] if len(found) > 1 else []


def _constraints(name: str) -> list[Any]:
    return list(load_constraints(name))


@cache
def _all_citations(features: str) -> tuple[Part, Part]:
    data = load_citations()
    parts = [_columns(table) for table in (data.train, data.dev, data.test)]
    words = [x for words, _ in parts for x in words]
    labelled = _part(words, [y for _, labels in parts for y in labels], features)
    return labelled, _part(_columns(data.unlabelled)[0], [], features)


def citations(size: int, seed: int | str, features: str = "plain") -> Run:
    """A random partition of the 500 citations: ``size`` of 300 labelled, 100 dev, 100 test.

    ``seed="published"``: the split of constraint-driven learning, its first ``size`` citations.
    """
    everyone, unlabelled = _all_citations(features)
    total = len(everyone.words)
    order = np.arange(total)
    if isinstance(seed, int):
        order = np.random.default_rng(seed).permutation(total)

    def take(numbers: Any) -> Part:
        return Part(*([column[i] for i in numbers] for column in everyone))

    return Run(
        str(seed),
        take(order[:size]),
        unlabelled,
        take(order[300:400]),
        take(order[400:]),
        sorted({label for y in everyone.labels for label in y}),
        _constraints("citations"),
    )


@cache
def _all_umass() -> Part:
    data = load_umass_citations()
    parts = [_columns(table) for table in (data.train, data.dev, data.test)]
    words = [x for words, _ in parts for x in words]
    return _part(words, [y for _, labels in parts for y in labels], "context")


def umass(size: int, seed: int) -> Run:
    """A random partition of UMass citations: as above, 300 for testing, 1,000 without labels."""
    everyone = _all_umass()
    order = np.random.default_rng(seed).permutation(len(everyone.words))

    def take(lo: int, hi: int) -> Part:
        return Part(*([column[i] for i in order[lo:hi]] for column in everyone))

    return Run(
        str(seed),
        take(0, size),
        take(1000, 2000)._replace(labels=[]),
        take(500, 600),
        take(600, 900),
        sorted({label for y in everyone.labels for label in y}),
        _constraints(str(Path(__file__).with_name("umass_citations.toml"))),
    )


def seminars(size: int, number: int) -> Run:
    """One of five splits; the first 50 unlabelled documents keep their labels as dev data.

    Other numbers are seeds of random splits of the same sizes.
    """
    data = load_seminars()
    parts: Any = data.documents
    if number < data.roles.shape[1]:
        parts = data.split(number)
    else:
        order = np.random.default_rng(number).permutation(len(data.names))
        parts = [parts[numbers] for numbers in np.split(order, [25, 340])]
    labelled, unlabelled, test = (_part(*_columns(table), "seminars") for table in parts)
    return Run(
        str(number),
        Part(*(column[:size] for column in labelled)),
        Part(*(column[SEMINAR_DEV:] for column in unlabelled)),
        Part(*(column[:SEMINAR_DEV] for column in unlabelled)),
        test,
        sorted(set(data.documents.column(1).tolist())),
        _constraints("seminars"),
    )


# --- scores ----------------------------------------------------------------------------------


def accuracy(true: Any, predicted: Any) -> float:
    """Per cent of tokens labelled right."""
    hits = [
        np.mean(np.array(a) == np.array(b)) * len(a) for a, b in zip(true, predicted, strict=True)
    ]
    return 100.0 * float(sum(hits)) / sum(len(a) for a in true)


def segment_f1(true: Any, predicted: Any) -> float:
    """F1 of whole segments, in per cent: runs of a label that is not O, or what IOB2 tags mark."""

    def tags(labels: Any) -> list[str]:
        y = [str(label) for label in labels]
        begins = [t == 0 or y[t] != y[t - 1] for t in range(len(y))]
        plain = zip(begins, y, strict=True)
        return [a if a == "O" else f"{'B' if b else 'I'}-{a}" for b, a in plain]

    tagged = any(label.startswith("B-") for y in true for label in y)
    given, found = (
        list(map(list, ys)) if tagged else list(map(tags, ys)) for ys in (true, predicted)
    )
    return 100.0 * span_f1_score(given, found, scheme="IOB2")


def field_f1(true: Any, predicted: Any) -> dict[str, float]:
    """F1 of the tokens of each field, B- and I- alike, and its mean over fields, in per cent."""
    given = np.array([label.rpartition("-")[2] for y in true for label in y])
    found = np.array([str(label).rpartition("-")[2] for y in predicted for label in y])
    scores = {}
    for field in sorted(set(given.tolist()) - {"O"}):
        both = int(np.sum((given == field) & (found == field)))
        scores[field] = 200.0 * both / max(int(np.sum(given == field) + np.sum(found == field)), 1)
    return scores | {"mean": float(np.mean(list(scores.values())))}


# --- systems ---------------------------------------------------------------------------------


def ssvm(C: Any, n_jobs: int = 1) -> ChainSSVM:
    """The supervised structural SVM; with ``C="scale"`` as it is by default."""
    tol = 0.01 if C == "scale" else 0.05
    return ChainSSVM(C=C, tol=tol, random_state=0, n_jobs=n_jobs)


def crf(C: float, n_jobs: int = 1) -> ChainCRF:
    """The supervised log-linear chain."""
    return ChainCRF(C=C, tol=0.01, max_iter=150, n_jobs=n_jobs)


def semi_supervised(run: Run, C: Any, n_jobs: int, **options: Any) -> SemiSupervisedSSVM:
    """Ours, fitted: as it is by default."""
    X, y, words = run.both()
    given = {"classes": run.classes, "random_state": 0, **options}
    model = SemiSupervisedSSVM(ssvm(C, n_jobs), run.constraints, **given)
    return model.fit(X, y, words=words, dev=run.dev.pair)


#: The method as printed: labels without constraints to begin with, and at most 1000 switches.
AS_PRINTED = {
    "C_u": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0),
    "weights": "given",
    "start": "viterbi",
    "max_sweeps": 1,
    "max_switches": 1000,
}


def baseline(run: Run, system: str, C: Any, n_jobs: int) -> Any:
    """One of the systems compared, fitted; its best round on the development data is kept.

    C is that of the structural SVM. The log-linear systems have C = 10 and a weight of 1 for an
    unlabelled sequence, chosen by hand among a few pairs on the development data of partitions 0
    and 1 of the citations: distributions of a model with a smaller C are too flat to be projected.
    Temperatures were not tuned.
    """
    soft = {"unlabelled_weight": 0.1, "max_passes": 40}
    made: dict[str, Any] = {
        "daso": lambda: DASO(crf(10.0, n_jobs), temperatures=(1.0, 0.5, 0.2), max_rounds=1, **soft),
        "pr": lambda: PosteriorRegularization(crf(10.0, n_jobs), max_rounds=2, **soft),
        "codl": lambda: CODL(ssvm(C, n_jobs), max_rounds=4),
        "trans": lambda: TransductiveSSVM(ssvm(C, n_jobs), C_u=30.0, max_rounds=4),
        "trans-default": lambda: TransductiveSSVM(ssvm(C, n_jobs)),
    }
    name = system.removesuffix("-learned")
    rules = run.constraints if name == system else _learned(run)
    return _fit_baseline(made[name](), run, rules)


class Annealed(NamedTuple):
    """Settings of DASO: C, temperatures, weights of unlabelled sequences, and constraints."""

    C: float = 10.0
    temperatures: tuple[float, ...] = (1.0,)
    weights: tuple[float, ...] = (0.1,)
    rules: str = "given"  # "corpus": punctuation only as a corpus constraint; "learned"
    rounds: int = 1


def annealed(run: Run, settings: Annealed, n_jobs: int) -> Any:
    """DASO with other settings, fitted."""
    rules = _learned(run) if settings.rules == "learned" else run.constraints
    if settings.rules == "corpus":
        rules = [rule for rule in rules if not isinstance(rule, ChangeOnlyAt)]
    model = DASO(
        crf(settings.C, n_jobs),
        temperatures=settings.temperatures,
        unlabelled_weight=settings.weights,
        max_rounds=settings.rounds,
        max_passes=40,
    )
    return _fit_baseline(model, run, rules)


def _learned(run: Run) -> list[Any]:
    return learn_constraints(run.constraints, run.train.words, run.train.labels)


def _fit_baseline(model: Any, run: Run, rules: list[Any]) -> Any:
    X, y, words = run.both()
    model.set_params(constraints=rules, classes=run.classes)
    return model.fit(X, y, words=words, dev=run.dev.pair)
