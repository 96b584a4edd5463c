"""The grid of `guard.py`: tiny data, and every combination of options that an estimator takes.

A family is a function that yields cases; a case is a function of the number of threads that fits
one model or tells a short story of several. Only public names of the package are used.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

import hingeline as hl
from guard_data import (
    N_CLASSES,
    Data,
    Params,
    graphs,
    knowledge,
    label_sets,
    make_structure,
    rows,
    sequences,
    words,
)
from hingeline.baselines import CODL, DASO, PosteriorRegularization, TransductiveSSVM
from hingeline.features import DictEncoder, PerToken, SegmentTemplates, TokenTemplates

SLACKS = ("max", "squared", "sum", "nu")
RESCALINGS = ("margin", "slack")
SOLVERS = (
    *("auto", "sdm", "fsmo", "sdcd", "one-slack", "bcfw", "subgradient"),
    *("soft-bcfw", "dlpw", "dlpw-smooth"),
)
INFERENCE = ("auto", "max-product", "enumeration", "graph-cut", "lp", "ad3", "icm")

#: A tree of the classes 0, 1 and others, for losses.
TREE = hl.Taxonomy({0: "low", 1: "low", 2: "high", 3: "high"})

#: What every fit shares; few passes are enough to go through every branch of a solver.
COMMON: dict[str, Any] = {"tol": 1e-4, "max_iter": 8, "random_state": 0}


def make_chain(**params: Any) -> hl.ChainSSVM:
    """Return the estimator at the C that the digests were recorded with."""
    given = {} if params.get("slack") == "nu" else {"C": 0.1}
    return hl.ChainSSVM(**{**given, **params})


def make_graph(**params: Any) -> hl.GraphSSVM:
    """As :func:`make_chain`."""
    given = {} if params.get("slack") == "nu" else {"C": 0.1}
    return hl.GraphSSVM(**{**given, **params})


def make_label_sets(**params: Any) -> hl.MultilabelSSVM:
    """As :func:`make_chain`."""
    given = {} if params.get("slack") == "nu" else {"C": 1.0}
    return hl.MultilabelSSVM(**{**given, **params})


#: Strings as one feature each, or as many as there are in a list.
PLAIN = partial(make_chain, features=DictEncoder())


class Fitted(NamedTuple):
    """What a case leaves to digest: its models in order, and anything that they predicted."""

    models: list[Any]
    predictions: Any


class Case(NamedTuple):
    """One fit, or a short story of several: a function of the number of threads."""

    name: str
    fit: Callable[[int], Fitted]


FAMILIES: dict[str, Callable[[], Iterator[Case]]] = {}


def family(function: Callable[[], Iterator[Case]]) -> Callable[[], Iterator[Case]]:
    """Register a family of cases under its function's name."""
    FAMILIES[function.__name__] = function
    return function


# --- cases -----------------------------------------------------------------------------------


def one(name: str, make: Callable[..., Any], data: Data, params: Params, **fit: Any) -> Case:
    """Return the case of one model, fitted and asked for predictions of its data."""

    def run(n_jobs: int) -> Fitted:
        model = make(**{**COMMON, "n_jobs": n_jobs, **params}).fit(*data, **fit)
        given = {"lengths": fit["lengths"]} if "lengths" in fit else {}
        return Fitted([model], model.predict(data[0], **given))

    return Case(name, run)


def combine(prefix: str, make: Callable[..., Any], data: Data, **axes: Any) -> Iterator[Case]:
    """Yield one case for every combination of options; ν comes with the slack of that name."""
    for values in product(*axes.values()):
        params = dict(zip(axes, values, strict=True))
        if params.get("slack") == "nu":
            params.setdefault("nu", 0.3)
        name = " ".join([prefix, *(f"{key}={params[key]}" for key in axes)])
        yield one(name, make, data, params)


FORMULATIONS = {"slack": SLACKS, "rescale": RESCALINGS, "solver": SOLVERS}
#: Options of solvers that choose another way through them: solver, slack, options.
OPTIONS: tuple[tuple[str, str, Params], ...] = (
    *(
        ("bcfw", "max", {"steps": steps, "sampling": sampling, "averaging": averaging})
        for steps in ("plain", "away", "pairwise")
        for sampling in ("permutation", "gap", "uniform")
        for averaging in ("recent", "all", "none")
    ),
    ("bcfw", "max", {"cached_passes": 2, "inner_steps": 3, "max_planes": 4, "refresh": 2}),
    ("sdm", "max", {"cg_steps": 0, "skip": 0.0}),
    ("sdm", "max", {"block": 2, "cached_passes": 3}),
    ("sdm", "max", {"stage_factor": 4.0, "stage_sweeps": 2}),
    ("sdm", "squared", {"cg_steps": 0, "cached_passes": 0}),
    ("fsmo", "max", {"cg_steps": 0, "inner_rounds": 2}),
    ("fsmo", "squared", {"epsilon": 0.01, "block": 3}),
    ("sdcd", "sum", {"schedule": "published"}),
    ("sdcd", "sum", {"schedule": "published", "kappa1": 3, "kappa2": 2}),
    ("one-slack", "max", {"schedule": "published"}),
    ("one-slack", "max", {"step": 0.5, "patience": 3}),
    ("one-slack", "sum", {"schedule": "published", "kappa1": 3, "kappa2": 2}),
    ("subgradient", "nu", {"gain": 2.0}),
)


def with_options(prefix: str, make: Callable[..., Any], data: Data) -> Iterator[Case]:
    """Yield the cases of `OPTIONS`."""
    for solver, slack, options in OPTIONS:
        params: Params = {"solver": solver, "slack": slack, "solver_options": options}
        if slack == "nu":
            params["nu"] = 0.3
        text = ",".join(f"{key}={value}" for key, value in options.items())
        yield one(f"{prefix} solver={solver} slack={slack} {text}", make, data, params)


def with_violators(prefix: str, make: Callable[..., Any], data: Data) -> Iterator[Case]:
    """Yield summed slack over the best output, a few, and all."""
    axes = {"slack": ("sum",), "rescale": RESCALINGS, "solver": ("sdcd", "one-slack")}
    yield from combine(prefix, make, data, **axes, violators=("argmax", 3, "all"))


@family
def multiclass() -> Iterator[Case]:
    """MulticlassSSVM: formulations, kinds of input, losses, hard margins."""
    make, data = hl.MulticlassSSVM, rows()
    X, y = data
    yield from combine("multiclass", make, data, **FORMULATIONS)
    yield from combine("multiclass", make, (4 * X, y), C=(np.inf,), **FORMULATIONS)
    yield from with_options("multiclass", make, data)
    yield from with_violators("multiclass", make, data)
    inputs = {"csr": sp.csr_matrix(X), "float32": X.astype(np.float32), "list": X.tolist()}
    for name, given in inputs.items():
        yield from combine(f"multiclass {name}", make, (given, y), solver=("auto", "bcfw"))
    yield one("multiclass strings", make, (X, np.array(["a", "b", "c", "d"])[y]), {})
    yield one("multiclass two classes", make, (X, y % 2), {})
    cost = np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0)))
    settings: dict[str, Params] = {
        "cost matrix": {"loss": cost},
        "scaled loss": {"loss": (2.0, "zero_one")},
        "taxonomy": {"loss": TREE},
        "no intercept": {"fit_intercept": False},
        "balanced": {"class_weight": "balanced"},
        "class weights": {"class_weight": {0: 2.0, 1: 0.5}},
        "nu auto": {"slack": "nu", "nu": "auto"},
    }
    for name, params in settings.items():
        yield one(f"multiclass {name}", make, data, params)
    weights = np.random.default_rng(1).uniform(0.0, 2.0, len(y))
    for slack in ("max", "squared", "sum"):
        params = {"slack": slack, "loss": cost}
        yield one(f"multiclass weighted {slack}", make, data, params, sample_weight=weights)

    def decide(n_jobs: int) -> Fitted:
        model = make(**COMMON, n_jobs=n_jobs).fit(X, y)
        return Fitted([model], [model.decision_function(X), model.coef_, model.intercept_])

    yield Case("multiclass decision_function", decide)


@family
def chain() -> Iterator[Case]:
    """ChainSSVM: formulations with and without boundary weights."""
    make, data = make_chain, sequences()
    for boundary in (True, False):
        axes = {"boundary": (boundary,), **FORMULATIONS}
        yield from combine("chain", make, data, **axes)
    yield from combine("chain", make, ([4 * x for x in data[0]], data[1]), C=(np.inf,),
                       **FORMULATIONS)  # fmt: skip
    yield from with_options("chain", make, data)
    yield from with_violators("chain", make, data)


@family
def chain_inputs() -> Iterator[Case]:
    """ChainSSVM: every kind of input, and what it predicts beside labels."""
    make, (X, y) = make_chain, sequences()
    stacked, lengths = np.vstack(X), [len(x) for x in X]
    solvers = {"solver": ("auto", "bcfw"), "boundary": (True, False)}
    yield from combine("chain csr", make, ([sp.csr_matrix(x) for x in X], y), **solvers)
    yield from combine("chain float32", make, ([x.astype(np.float32) for x in X], y), **solvers)
    for name, matrix in (("stacked", stacked), ("stacked csr", sp.csr_matrix(stacked))):
        yield one(f"chain {name}", make, (matrix, np.concatenate(y)), {}, lengths=lengths)
    W, labels = words()
    D = [[{"word": word, "first": word[0], "size": len(word)} for word in text] for text in W]
    T = [[(word, word[0]) for word in text] for text in W]
    texts = {"strings": W, "dicts": D, "tuples": T, "lists": [[[w, w[0]] for w in t] for t in W]}
    for name, given in texts.items():
        kind = PLAIN if name in ("strings", "lists") else make
        yield from combine(f"chain {name}", kind, (given, labels), **solvers)
    yield one("chain words", make, (W, labels), {})
    pairs = ["0[0]", "0[-1]|0[0]"]
    encoders = {
        "templates": TokenTemplates(pairs),
        "templates twice": TokenTemplates(pairs, min_count=2),
        "templates hashed": TokenTemplates(pairs, hash_bits=8),
        "templates float64": TokenTemplates(pairs, dtype=np.float64),
        "dict encoder": DictEncoder(),
    }
    for name, encoder in encoders.items():
        yield one(f"chain {name}", make, (W, labels), {"features": encoder})
    given = [x + 0.1 for x in X]
    for name, encoder in (
        ("gaussian", PerToken(PolynomialFeatures(2))),
        ("scaled", PerToken(StandardScaler())),
    ):
        yield one(f"chain {name}", make, (encoder.fit(given, y).transform(given), y), {})
    cost = np.abs(np.subtract.outer(np.arange(3.0), np.arange(3.0)))
    settings: dict[str, Params] = {
        "cost matrix": {"loss": cost},
        "cost vector": {"loss": [1.0, 2.0, 0.5]},
        "scaled loss": {"loss": (2.0, "hamming")},
        "taxonomy": {"loss": TREE},
        "no intercept": {"fit_intercept": False},
        "balanced": {"class_weight": "balanced"},
        "nu auto": {"slack": "nu", "nu": "auto"},
    }
    for name, params in settings.items():
        yield one(f"chain {name}", make, (X, y), params)
    weights = np.random.default_rng(1).uniform(0.0, 2.0, len(y))
    for slack in ("max", "squared", "sum"):
        params = {"slack": slack}
        yield one(f"chain weighted {slack}", make, (X, y), params, sample_weight=weights)
    axes = {"loss": ("zero_one",), "slack": SLACKS, "rescale": RESCALINGS}
    yield from combine("chain", make, (X, y), **axes, solver=("auto", "bcfw"))
    many = sequences(1, 12, 6, 20)  # rows of scores longer than a vector register
    yield from combine("chain 20 labels", make, many, slack=("max", "sum"), boundary=(True, False))
    tags = [[("B-" if a != b else "I-") + str(b) if b else "O" for a, b in pairwise([0, *labels])]
            for labels in y]  # fmt: skip
    for scheme, (slack, solver) in product(
        (None, "auto", "IOB2"), (("max", "auto"), ("max", "bcfw"), ("sum", "sdcd"))
    ):
        params = {"scheme": scheme, "slack": slack, "solver": solver}
        yield one(f"chain tags scheme={scheme} {slack} {solver}", make, (X, tags), params)

    def ask(n_jobs: int) -> Fitted:
        model = make(**COMMON, n_jobs=n_jobs).fit(X, y)
        methods = ("predict_max_marginals", "decision_function", "predict_margin")
        found = [getattr(model, method)(X) for method in methods]
        coefs = [model.emission_coef_, model.transition_coef_, model.start_coef_, model.end_coef_]
        allowed = [[[0, 1]] * len(x) for x in X]
        found += [model.predict_nbest(X, 3), model.predict(X, allowed=allowed), coefs]
        return Fitted([model], found)

    yield Case("chain predictions of all kinds", ask)


@family
def crf() -> Iterator[Case]:
    """ChainCRF."""

    def fit(data: Data, params: Params) -> Callable[[int], Fitted]:
        def run(n_jobs: int) -> Fitted:
            model = hl.ChainCRF(max_iter=15, n_jobs=n_jobs, **params).fit(*data)
            found = [model.predict(data[0]), model.predict_marginals(data[0])]
            return Fitted([model], found)

        return run

    for boundary, intercept in product((True, False), repeat=2):
        params = {"boundary": boundary, "fit_intercept": intercept}
        name = f"crf boundary={boundary} fit_intercept={intercept}"
        yield Case(name, fit(sequences(), params))
    for C in (0.1, 10.0):
        yield Case(f"crf C={C}", fit(sequences(), {"C": C}))
    yield Case("crf strings", fit(words(), {"features": DictEncoder()}))
    yield Case("crf csr", fit(([sp.csr_matrix(x) for x in sequences()[0]], sequences()[1]), {}))


@family
def segments() -> Iterator[Case]:
    """SegmentSSVM: tags and spans, formulations, losses; spans of the best segmentations."""
    W, labels = words()
    tags = [[("B-" if a != b else "I-") + b for a, b in pairwise(["", *row])] for row in labels]
    spans = [[(0, row.index(","), "A")] for row in W]

    def make(**params: Any) -> hl.SegmentSSVM:
        given = {} if params.get("slack") == "nu" else {"C": 0.1}
        return hl.SegmentSSVM(**{**given, **params})

    for name, y in (("tags", tags), ("spans", spans)):
        axes = {"slack": SLACKS, "solver": SOLVERS, "loss": ("hamming", "spans")}
        yield from combine(f"segments {name}", make, (W, y), **axes)
    lexicon = SegmentTemplates(lexicon={"cue": ["cueA", "cueB w1"]}, shape=True)
    settings: dict[str, Params] = {
        "lexicon": {"segment_features": lexicon},
        "longest": {"max_length": 2},
        "no intercept": {"fit_intercept": False},
        "class weights": {"class_weight": {"A": 2.0}},
        "all violators": {"slack": "sum", "violators": 3},
    }
    for name, params in settings.items():
        yield one(f"segments {name}", make, (W, spans if name == "longest" else tags), params)

    def ask(n_jobs: int) -> Fitted:
        model = make(**COMMON, n_jobs=n_jobs).fit(W, tags)
        coefs = [model.token_coef_, model.first_coef_, model.last_coef_, model.length_coef_]
        return Fitted([model], [model.predict_nbest(W, 3), model.predict_margin(W), coefs])

    yield Case("segments predictions of all kinds", ask)


@family
def dependencies() -> Iterator[Case]:
    """DependencySSVM: trees with and without crossing arcs, formulations, losses."""
    W, labels = words()
    X = [[{"form": w, "upos": w[0]} for w in text] for text in W]
    rng = np.random.default_rng(5)
    heads = [[0, *(int(rng.integers(1, m)) for m in range(2, len(text) + 1))] for text in W]
    trees = [
        [(head, label if head else "root") for head, label in zip(*both, strict=True)]
        for both in zip(heads, labels, strict=True)
    ]

    def make(**params: Any) -> hl.DependencySSVM:
        return hl.DependencySSVM(
            **{**({} if params.get("slack") == "nu" else {"C": 0.1}), **params}
        )

    axes = {"slack": SLACKS, "solver": SOLVERS, "projective": (True, False)}
    yield from combine("dependencies", make, (X, trees), **axes)
    loss = {"loss": ("labelled", "heads"), "projective": ("auto", "prediction")}
    yield from combine("dependencies", make, (X, trees), **loss)

    def ask(n_jobs: int) -> Fitted:
        model = make(**COMMON, n_jobs=n_jobs).fit(X, trees)
        return Fitted([model], model.predict_nbest(X, 3))

    yield Case("dependencies n-best", ask)


GRAPH_SOLVERS = {"slack": SLACKS, "solver": SOLVERS}


@family
def graph() -> Iterator[Case]:
    """GraphSSVM: kinds of graphs, solvers and inference."""
    make = make_graph
    for kind in ("forest", "loops", "binary", "large", "rich"):
        yield from combine(f"graph {kind}", make, graphs(kind), **GRAPH_SOLVERS)
    for kind in ("forest", "loops", "binary", "attractive", "rich"):
        axes = {"slack": ("max", "sum", "nu"), "solver": SOLVERS, "inference": INFERENCE[1:]}
        yield from combine(f"graph {kind}", make, graphs(kind), **axes)
    yield from combine("graph loops", make, graphs("loops"), C=(np.inf,), **GRAPH_SOLVERS)
    settings: dict[str, Params] = {
        "cost matrix": {"loss": np.array([[0.0, 1, 2], [1, 0, 3], [1, 1, 0]])},
        "void": {"void_label": 2},
        "no intercept": {"fit_intercept": False},
        "balanced": {"class_weight": "balanced"},
    }
    for (name, params), kind in product(settings.items(), ("forest", "large", "rich")):
        yield one(f"graph {kind} {name}", make, graphs(kind), params)

    def certify(kind: str, params: Params) -> Callable[[int], Fitted]:
        def run(n_jobs: int) -> Fitted:
            X, y = graphs(kind)
            model = make(**COMMON, n_jobs=n_jobs, **params).fit(X, y)
            found = [tuple(model.certify(X)), tuple(model.certify(X, settle=True))]
            return Fitted([model], [*found, model.decision_function(X), model.pairwise_coef_])

        return run

    for kind, inference in product(("forest", "binary", "large"), ("auto", "lp", "ad3", "icm")):
        run = certify(kind, {"inference": inference})
        yield Case(f"graph {kind} certify inference={inference}", run)


@family
def graph_options() -> Iterator[Case]:
    """Options of the solvers of the relaxation, on graphs and on sets of labels."""
    options: list[tuple[str, Params]] = [
        *(("soft-bcfw", {"schedule": schedule, "steps": steps, "sampling": sampling})
          for schedule in ("improved", "published")
          for steps in ("exact", "plain")
          for sampling in ("permutation", "random", "gap")),
        *(("soft-bcfw", {"constraints": "hard", "hardening": h}) for h in ("centre", "rho")),
        ("soft-bcfw", {"rho": 0.01}),
        ("soft-bcfw", {"passes": 2, "rounds": 0, "skip": 0.0}),
        *(("dlpw", {"messages_by": by, "rounds": r})
          for by in ("variables", "factors") for r in (0, 2)),
        ("dlpw", {"noise": 0.5}),
        ("dlpw-smooth", {"temperature": 0.1}),
    ]  # fmt: skip
    for (solver, given), kind in product(options, ("large", "rich", "labels")):
        make: Any = make_label_sets if kind == "labels" else make_graph
        data = label_sets() if kind == "labels" else graphs(kind)
        text = ",".join(f"{key}={value}" for key, value in given.items())
        params = {"solver": solver, "solver_options": given}
        yield one(f"options {kind} solver={solver} {text}", make, data, params)


@family
def multilabel() -> Iterator[Case]:
    """MultilabelSSVM: label graphs, solvers and inference."""
    make, data = make_label_sets, label_sets()
    for edges in ("full", "tree", "none"):
        yield from combine("labels", make, data, edges=(edges,), **GRAPH_SOLVERS)
        axes = {"slack": ("max", "sum", "nu"), "solver": SOLVERS, "inference": INFERENCE[1:]}
        yield from combine("labels", make, data, edges=(edges,), **axes)
    many = label_sets(2, 10, 5, 15)  # so many that the default is the relaxation
    yield from combine("labels fifteen", make, many, edges=("full", "tree"), solver=("auto", "sdm"))
    wide = label_sets(3, 20, 80, 15)  # so many weights that trees are solved by masses
    yield one("labels wide tree", make, wide, {"edges": "tree"})
    settings: dict[str, Params] = {
        "csr": {},
        "pairs": {"edges": [(0, 1), (2, 3)]},
        "cost matrix": {"loss": np.array([[0.0, 1.0], [3.0, 0.0]])},
        "balanced": {"class_weight": "balanced"},
        "C=inf": {"C": np.inf},
        "no intercept": {"fit_intercept": False},
    }
    X, y = data
    for name, params in settings.items():
        yield one(f"labels {name}", make, (sp.csr_matrix(X) if name == "csr" else X, y), params)


# --- structures of one's own -----------------------------------------------------------------


def _own(prefix: str, structure: Any) -> Iterator[Case]:
    X, y = rows(3, 12, 4, N_CLASSES)
    data = (list(X), [int(k) for k in y])

    def make(**params: Any) -> Any:
        return hl.SSVM(structure, **params)

    yield from combine(prefix, make, data, **FORMULATIONS)
    yield from combine(prefix, make, data, slack=("sum",), violators=(2, "all"))
    yield one(f"{prefix} C=inf", make, data, {"C": np.inf})


@family
def own_python() -> Iterator[Case]:
    """SSVM with a structure in plain Python."""
    yield from _own("own python", make_structure(lambda function: function))


@family
def own_compiled() -> Iterator[Case]:
    """SSVM with a compiled structure: its kernels are compiled in every run."""
    yield from _own("own compiled", make_structure(numba.njit))


# --- unlabelled sequences --------------------------------------------------------------------


def _partly_labelled() -> Data:
    (X, y), (U, _) = words(0, 4), words(1, 12)
    return X + U, [*y, *([None] * len(U))]


@family
def semisupervised() -> Iterator[Case]:
    """SemiSupervisedSSVM and the baselines it is compared with."""

    def fit(make: Callable[..., Any], base: Any, params: Params, dev: bool) -> Callable[..., Any]:
        def run(n_jobs: int) -> Fitted:
            X, y = _partly_labelled()
            model = make(base(n_jobs=n_jobs), **{"constraints": knowledge(), **params})
            model.fit(X, y, **({"dev": words(2, 4)} if dev else {}))
            return Fitted([model], [model.predict(X), model.transduction_])

        return run

    def svm(n_jobs: int) -> Any:
        return PLAIN(C=0.1, max_iter=30, random_state=0, n_jobs=n_jobs)

    def field(n_jobs: int) -> Any:
        return hl.ChainCRF(features=DictEncoder(), C=1.0, max_iter=15, n_jobs=n_jobs)

    settings: dict[str, Params] = {
        "default": {},
        "given": {"weights": "given"},
        "viterbi": {"start": "viterbi", "max_sweeps": 1, "weights": "given"},
        "random": {"order": "random", "max_sweeps": 1},
        "last": {"select": "last"},
        "sweeps": {"max_sweeps": 3, "max_switches": 20, "weights": "given"},
        "free": {"constraints": ()},
    }
    few: Params = {"C_u": (0.1, 1.0), "max_alternations": 3, "random_state": 0}
    for name, params in settings.items():
        run = fit(hl.SemiSupervisedSSVM, svm, few | params, False)
        yield Case(f"semi {name}", run)
    yield Case("semi dev", fit(hl.SemiSupervisedSSVM, svm, few, True))
    for method, base, params in (
        (CODL, svm, {"max_rounds": 3}),
        (CODL, svm, {"max_rounds": 2, "gamma": 0.5, "beam": 3}),
        (TransductiveSSVM, svm, {"max_rounds": 3}),
        (TransductiveSSVM, svm, {"max_rounds": 2, "C_u": 0.1}),
        (PosteriorRegularization, field, {"max_rounds": 2, "max_passes": 10}),
        (PosteriorRegularization, field, {"max_rounds": 2, "unlabelled_weight": 0.1}),
        (DASO, field, {"max_rounds": 2, "max_passes": 10}),
        (DASO, field, {"max_rounds": 1, "temperatures": (1.0, 0.1), "max_passes": 10}),
    ):
        text = ",".join(f"{key}={value}" for key, value in params.items())
        for dev in (False, True):
            run = fit(method, base, params, dev)
            yield Case(f"semi {method.__name__} {text}{' dev' * dev}", run)

    def constrained(n_jobs: int) -> Fitted:
        X, y = _partly_labelled()
        model = hl.SemiSupervisedSSVM(svm(n_jobs), knowledge(), **few).fit(X, y)
        return Fitted([model], model.predict(X, constrained=True))

    yield Case("semi constrained prediction", constrained)


# --- stories of several fits -----------------------------------------------------------------


def _parts(X: Any, y: Any, size: int) -> Iterator[Data]:
    for lo in range(0, len(y), size):
        yield X[lo : lo + size], y[lo : lo + size]


@family
def streams() -> Iterator[Case]:
    """partial_fit: certified, by passes, with a memory; forgetting; labels that come late."""
    kinds: dict[str, tuple[Any, Data]] = {
        "multiclass": (hl.MulticlassSSVM, rows(0, 30)),
        "chain": (make_chain, sequences(0, 15)),
        "chain strings": (PLAIN, words(0, 15)),
    }

    def stream(kind: str, params: Params, given: Params, forget: Params) -> Callable[[int], Fitted]:
        def run(n_jobs: int) -> Fitted:
            make, (X, y) = kinds[kind]
            late = [0 if kind == "chain strings" else np.max(labels) > 1 for labels in y]
            order = np.argsort(late, kind="stable")  # labels 2 and 3 come after the others
            X, y = [X[i] for i in order], [y[i] for i in order]
            model = make(**COMMON, **params, n_jobs=n_jobs)
            seen, predictions = [], []
            for part in _parts(X, y, 6):
                model.partial_fit(*part, **given)
                if forget and model.n_examples_ > 6:
                    model.forget(**forget)
                seen.append(model.weights_.copy())
                predictions.append(model.predict(X))
            numbers = [model.n_examples_, seen]
            return Fitted([model], [predictions, numbers])

        return run

    calls: dict[str, Params] = {
        "certified": {},
        "passes": {"passes": 1},
        "more passes": {"passes": 3},
        "memory": {"memory": 8},
        "passes memory": {"passes": 1, "memory": 8},
    }
    forgets: dict[str, Params] = {"": {}, " forget": {"which": [0, 2]}, " last": {"keep_last": 5}}
    for kind, slack, call, (name, forget) in product(kinds, SLACKS[:3], calls, forgets.items()):
        run = stream(kind, {"slack": slack}, calls[call], forget)
        yield Case(f"stream {kind} {slack} {call}{name}", run)
    for kind, solver, call in product(kinds, SOLVERS, ("certified", "passes")):
        params: Params = {"solver": solver}
        yield Case(f"stream {kind} solver={solver} {call}", stream(kind, params, calls[call], {}))
    for kind, call in product(("multiclass", "chain"), ("certified", "passes")):
        for params in ({"rescale": "slack"}, {"C": np.inf}, {"fit_intercept": False}):
            text = ",".join(f"{key}={value}" for key, value in params.items())
            yield Case(f"stream {kind} {text} {call}", stream(kind, params, calls[call], {}))


PATH_DATA: dict[str, tuple[Any, Data]] = {
    "multiclass": (hl.MulticlassSSVM, rows()),
    "chain": (make_chain, sequences()),
    "graph": (make_graph, graphs("forest")),
    "loopy graph": (make_graph, graphs("large")),
    "labels": (make_label_sets, label_sets()),
}
#: slack -> solvers of it, for one to start where another ended.
SOLVERS_OF = {
    "max": tuple(solver for solver in SOLVERS if solver != "sdcd"),
    "squared": ("auto", "sdm", "fsmo"),
    "sum": ("auto", "sdcd", "one-slack"),
}


@family
def paths() -> Iterator[Case]:
    """C_path, nu_path and warm starts, within a solver and from one to another."""

    def path(walk: Any, kind: str, params: Params, given: Params) -> Callable[[int], Fitted]:
        def run(n_jobs: int) -> Fitted:
            make, (X, y) = PATH_DATA[kind]
            found = walk(make(**COMMON, n_jobs=n_jobs, **params), X, y, **given)
            risks = [found.margin_error_risks, found.support_vector_risks, found.relative_gaps]
            return Fitted(found.models, [found.values, risks])

        return run

    def restart(kind: str, first: Params, then: Params) -> Callable[[int], Fitted]:
        def run(n_jobs: int) -> Fitted:
            make, (X, y) = PATH_DATA[kind]
            model = make(**{**COMMON, "n_jobs": n_jobs, "warm_start": True, **first}).fit(X, y)
            before = [model.weights_.copy(), model.predict(X)]
            model.set_params(**then).fit(X, y)
            return Fitted([model], [before, model.predict(X)])

        return run

    for kind in PATH_DATA:
        for solver in SOLVERS:
            given: Params = {"Cs": [0.01, 0.1, 1.0]}
            yield Case(f"C_path {kind} {solver}", path(hl.C_path, kind, {"solver": solver}, given))
        for slack in ("squared", "sum", "nu"):
            run = path(hl.C_path, kind, {"slack": slack, "nu": 0.3 if slack == "nu" else None}, {})
            yield Case(f"C_path {kind} slack={slack}", run)
        for solver in ("auto", "sdm", "subgradient"):
            run = path(hl.nu_path, kind, {"solver": solver}, {"nus": [0.5, 0.2]})
            yield Case(f"nu_path {kind} {solver} given", run)
            if kind in ("multiclass", "chain"):
                yield Case(
                    f"nu_path {kind} {solver}", path(hl.nu_path, kind, {"solver": solver}, {})
                )
        if kind == "labels":  # graphs of another kind
            continue
        for slack, solvers in SOLVERS_OF.items():
            for before, after in product(solvers, repeat=2):
                first = {"slack": slack, "solver": before, "C": 0.5}
                run = restart(kind, first, {"solver": after, "C": 5.0})
                yield Case(f"warm {kind} {slack} {before} then {after}", run)
        for before, after in product(SOLVERS_OF, repeat=2):
            run = restart(kind, {"slack": before}, {"slack": after})
            yield Case(f"warm {kind} {before} then {after} slack", run)


@family
def files() -> Iterator[Case]:
    """Models that were saved and loaded, and fits that go on from a checkpoint."""

    def reload(kind: str, params: Params, given: Params) -> Callable[[int], Fitted]:
        def run(n_jobs: int) -> Fitted:
            make, (X, y) = PATH_DATA[kind]
            model = make(**COMMON, n_jobs=n_jobs, **params).fit(X, y)
            with tempfile.TemporaryDirectory() as folder:
                model.save(Path(folder, "model"), **given)
                again = hl.load(Path(folder, "model"))
            return Fitted([model, again], again.predict(X))

        return run

    def resume(kind: str, params: Params) -> Callable[[int], Fitted]:
        def run(n_jobs: int) -> Fitted:
            make, (X, y) = PATH_DATA[kind]
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "checkpoint")
                model = make(**COMMON, n_jobs=n_jobs, **params)
                model.set_params(max_iter=4, callbacks=hl.Checkpoint(path, every=0.0)).fit(X, y)
                before = model.weights_.copy()
                model.set_params(max_iter=8, callbacks=hl.Checkpoint(path, resume=True)).fit(X, y)
            return Fitted([model], [before, model.predict(X)])

        return run

    writing: dict[str, Params] = {
        "plain": {},
        "float32": {"dtype": "float32"},
        "sparse": {"sparse": True},
        "threshold": {"sparse": 0.05},
        "state": {"state": True},
    }
    for kind, (name, given) in product(PATH_DATA, writing.items()):
        params: Params = {"warm_start": True} if "state" in given else {}
        yield Case(f"saved {kind} {name}", reload(kind, params, given))
    for kind, slack, solver in product(PATH_DATA, SLACKS, SOLVERS):
        params = {"slack": slack, "solver": solver, **({"nu": 0.3} if slack == "nu" else {})}
        yield Case(f"resumed {kind} slack={slack} solver={solver}", resume(kind, params))
