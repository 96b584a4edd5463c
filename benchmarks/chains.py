"""Sequence labelling against CRFsuite: CoNLL-2000 chunking and OCR letters.

One command: ``python benchmarks/chains.py --task all``. Each task writes its own result file.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from scipy import sparse

from datasets import ChainData, conll2000_task, ocr_task
from harness import (
    Comparison,
    Measurement,
    Target,
    Timing,
    argument_parser,
    console,
    entry_point,
    interleave,
    print_comparisons,
    settle,
    timed,
    write_results,
)
from ours import (
    WARM_UP_NOTE,
    EncodedTask,
    Snapshots,
    certificate,
    encode_task,
    fit_chain,
    warm_up_chain,
)
from peers import crfsuite_fit, crfsuite_predict

QUICK_SEQUENCES = 300
SNAPSHOT_LIMIT = 30
PREDICT_SECONDS = 1.0
PREDICT_COPIES_LIMIT = 40
PA_EPOCHS = 10
EARLY_F1 = 93.4


class FitTask(NamedTuple):
    """A task that compares the seconds of a fit."""

    load: Callable[[int | None], ChainData]
    params: dict[str, Any]
    target: Target
    least_score: float | None


FIT_TASKS = {
    "conll": FitTask(conll2000_task, {"C": 0.1, "tol": 0.05}, Target(25, 60), 93.7),
    "ocr-small": FitTask(
        lambda limit: ocr_task([0], limit),
        {"C": 0.1, "tol": 0.01, "boundary": False},
        Target(3, 10),
        None,
    ),
    "ocr-large": FitTask(
        lambda limit: ocr_task(range(1, 10), limit),
        {"C": 0.1, "tol": 0.02, "boundary": False},
        Target(12, 30),
        None,
    ),
}
CONLL = FIT_TASKS["conll"]


def _load(spec: FitTask, options: argparse.Namespace) -> ChainData:
    task, timing = timed(spec.load, QUICK_SEQUENCES if options.quick else None)
    settle()
    console.print(
        f"{task.name}: {len(task.train_labels)} training and {len(task.test_labels)} test "
        f"sequences; reading them and making the attribute strings that both sides share took "
        f"{timing.wall:.2f} s, counted for neither."
    )
    return task


def _predicted_score(task: ChainData, encoded: EncodedTask, estimator: Any) -> float:
    predicted = estimator.predict(encoded.test, lengths=encoded.test_lengths)
    return task.score(task.test_labels, predicted)


def _run_ours(task: ChainData, params: dict[str, Any]) -> Measurement:
    encoded = encode_task(task)
    estimator, timing = fit_chain(encoded, params)
    quality = certificate(estimator) | {task.score_name: _predicted_score(task, encoded, estimator)}
    name = f"hingeline C={params['C']:g} tol={params['tol']:g}"
    return Measurement(name, timing, {"encode": encoded.timing.wall}, quality)


def _run_crfsuite(task: ChainData, algorithm: str, **params: Any) -> Measurement:
    model = crfsuite_fit(task.train_attributes, task.train_labels, algorithm, params)
    predicted, _ = crfsuite_predict(model.model, task.test_attributes)
    settings = "".join(f" {key}={value}" for key, value in params.items())
    return Measurement(
        f"python-crfsuite {algorithm}{settings or ' defaults'}",
        model.train,
        {"append": model.append.wall},
        {task.score_name: task.score(task.test_labels, predicted)},
    )


def compare_fit(name: str, options: argparse.Namespace) -> list[Comparison]:
    """Compare a fit to a certified gap with CRFsuite's L-BFGS at its defaults."""
    spec = FIT_TASKS[name]
    task = _load(spec, options)
    params = spec.params | {"n_jobs": options.n_jobs}
    warm_up_chain(encode_task(task), params)
    ours, peer = interleave(
        options.repeat, lambda: _run_ours(task, params), lambda: _run_crfsuite(task, "lbfgs")
    )
    reached = ours.median.quality
    limit = 100 * params["tol"]
    conditions = {f"certified gap <= {limit:g} %": reached["gap %"] <= limit}
    if spec.least_score is not None:
        enough = reached[task.score_name] >= spec.least_score
        conditions[f"{task.score_name} >= {spec.least_score:g}"] = enough
    return [Comparison(name, ours, peer, spec.target, conditions, not options.quick)]


def _first_moment(task: ChainData, encoded: EncodedTask, params: dict[str, Any]) -> Measurement:
    """Fit once, then find the first pass whose weights reach the score."""
    snapshots = Snapshots(SNAPSHOT_LIMIT)
    estimator, whole = fit_chain(encoded, params | {"callbacks": [snapshots]})
    system = f"hingeline C={params['C']:g}, first moment at F1 >= {EARLY_F1:g}"
    quality = {task.score_name: 0.0, "pass": 0.0}
    timing = whole
    for number, moment in enumerate(snapshots.moments, start=1):
        score = _predicted_score(task, encoded, estimator.with_weights(moment.weights))
        quality = {task.score_name: score, "pass": float(number)}
        timing = moment.timing
        if score >= EARLY_F1:
            break
    return Measurement(system, timing, {"encode": encoded.timing.wall}, quality)


def _first_epoch(task: ChainData) -> Measurement:
    """Train the peer with 1, 2, ... epochs and return the first run that reaches the score."""
    for epochs in range(1, PA_EPOCHS + 1):
        run = _run_crfsuite(task, "pa", max_iterations=epochs)
        if run.quality[task.score_name] >= EARLY_F1:
            break
    return run


def compare_early(name: str, options: argparse.Namespace) -> list[Comparison]:
    """Compare the first moment at a good score with ten epochs of passive-aggressive."""
    task = _load(CONLL, options)
    encoded = encode_task(task)
    params = CONLL.params | {"n_jobs": options.n_jobs}
    warm_up_chain(encoded, params)
    ours, peer = interleave(
        options.repeat,
        lambda: _first_moment(task, encoded, params),
        lambda: _run_crfsuite(task, "pa", max_iterations=PA_EPOCHS),
    )
    (first,) = interleave(1, lambda: _first_epoch(task))
    score = ours.median.quality[task.score_name]
    conditions = {f"{task.score_name} >= {EARLY_F1:g}": score >= EARLY_F1}
    judged = not options.quick
    return [
        Comparison(name, ours, peer, Target(4, 10), conditions, judged),
        Comparison(f"{name}, peer stopped early too", ours, first, None, conditions, judged),
    ]


def _copies(one: Timing) -> int:
    return min(max(1, math.ceil(PREDICT_SECONDS / one.wall)), PREDICT_COPIES_LIMIT)


def _per_round(system: str, timing: Timing, copies: int, tokens: int) -> Measurement:
    once = Timing(timing.wall / copies, timing.cpu / copies)
    return Measurement(system, once, quality={"k tokens/s": tokens / once.wall / 1e3})


def compare_predict(name: str, options: argparse.Namespace) -> list[Comparison]:
    """Compare decoding speed on ready features; the seconds are for the test set once."""
    task = _load(CONLL, options)
    encoded = encode_task(task)
    params = CONLL.params | {"n_jobs": options.n_jobs}
    warm_up_chain(encoded, params)
    estimator, _ = fit_chain(encoded, params)
    pa_params = {"max_iterations": PA_EPOCHS}
    model = crfsuite_fit(task.train_attributes, task.train_labels, "pa", pa_params)
    tokens = int(encoded.test_lengths.sum())
    _, one = timed(estimator.predict, encoded.test, lengths=encoded.test_lengths)
    copies = _copies(one)
    matrix = sparse.vstack([encoded.test] * copies, format="csr")
    lengths = list(encoded.test_lengths) * copies
    _, peer_one = crfsuite_predict(model.model, task.test_attributes)
    peer_copies = _copies(peer_one)
    console.print(f"Test set taken {copies} times by us and {peer_copies} times by the peer.")

    def ours() -> Measurement:
        _, timing = timed(estimator.predict, matrix, lengths=lengths)
        return _per_round("hingeline predict", timing, copies, tokens)

    def peer() -> Measurement:
        _, timing = crfsuite_predict(model.model, task.test_attributes, peer_copies)
        return _per_round("python-crfsuite tagger, lists of strings", timing, peer_copies, tokens)

    our_runs, peer_runs = interleave(options.repeat, ours, peer)
    return [Comparison(name, our_runs, peer_runs, Target(8, 20), {}, not options.quick)]


TASKS: dict[str, Callable[[str, argparse.Namespace], list[Comparison]]] = {
    "conll": compare_fit,
    "conll-early": compare_early,
    "ocr-small": compare_fit,
    "ocr-large": compare_fit,
    "predict": compare_predict,
}


def main() -> None:
    """Run the tasks asked for."""
    parser = argument_parser(__doc__)
    parser.add_argument("--task", choices=[*TASKS, "all"], default="all")
    options = parser.parse_args()
    console.print(WARM_UP_NOTE)
    everything = []
    for name in TASKS if options.task == "all" else [options.task]:
        console.rule(name)
        comparisons = TASKS[name](name, options)
        rows = [comparison.record() for comparison in comparisons]
        write_results(name, rows, quick=options.quick)
        everything += comparisons
    print_comparisons("Sequences: seconds of training (predict: of decoding)", everything)


if __name__ == "__main__":
    entry_point(main)
