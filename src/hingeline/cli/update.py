"""``hingeline train --update``: more data for a model that carries its training state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import typer

from hingeline._checks import one_of
from hingeline.cli.app import INTERRUPTED, CommandError, blaming
from hingeline.cli.checks import check_writable
from hingeline.cli.predict import load_model
from hingeline.cli.progress import FitProgress
from hingeline.cli.results import Clock, gaps_of, metadata_of, print_result
from hingeline.cli.samples import file_hash, layout_of, read_like

#: Options of ``train`` that an update takes; the others were decided when the model was made.
_TAKEN = {
    "data", "model", "format", "tol", "max_iter", "max_time", "dtype", "sparse", "n_jobs", "seed",
    "quiet", "as_json", "update", "keep_state", "passes", "memory",
}  # fmt: skip

#: Option -> parameter, where they differ.
_NAMES = {"seed": "random_state"}


def refuse_alone(passes: int | None, memory: int | None) -> None:
    """Refuse options of an update without one."""
    for name, value in (("--passes", passes), ("--memory", memory)):
        if value is not None:
            raise CommandError(f"{name} is for more data: pass --update MODEL.")


def given(context: typer.Context) -> set[str]:
    """Names of the options that stand on the command line."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {n for n, source in sources.items() if source is not None and source.name != "DEFAULT"}


def update_model(
    context: typer.Context,
    data: str,
    update: Path,
    model: Path,
    *,
    format: str,
    keep_state: bool,
    passes: int | None,
    memory: int | None,
    dtype: str,
    sparse: bool,
    params: dict[str, Any],
    quiet: bool,
    as_json: bool,
) -> None:
    """Add the examples of a file to those of a model, and write what comes of it."""
    there = given(context)
    for name in sorted(there - _TAKEN):
        raise CommandError(
            f"--{name.replace('_', '-')} was decided when {update} was made: leave it out with "
            "--update, or train on all data."
        )
    with blaming():
        one_of("dtype", dtype, ("float64", "float32", "float16"))
    check_writable("--model", model)
    if data != "-" and model.resolve() == Path(data).resolve():
        raise CommandError(f"--model: {model} is the file to learn from: name another file.")
    seconds: dict[str, float] = {}
    clock = Clock(seconds)
    with FitProgress(quiet or as_json) as progress:
        with blaming("--update"):
            estimator = load_model(update)
        if not hasattr(estimator, "partial_fit"):
            raise CommandError(
                f"--update: {update} holds a {type(estimator).__name__}, which takes no more data: "
                "train on all data together."
            )
        if estimator.n_examples_ == 0:
            raise CommandError(
                f"--update: {update} carries no training state to go on from: train it with "
                "--keep-state, or train on all data together."
            )
        layout = layout_of(estimator, update)
        width = int(estimator.n_features_in_)
        encodes = getattr(estimator, "encoder_", None) is not None
        samples = read_like(data, layout, None if encodes else width, format, grow=True)
        if samples.y is None:
            raise CommandError(f"{data} has no labels to learn from.")
        clock.took("read")
        progress.say(f"{data}: {samples.about()} ({samples.layout.format})")
        estimator.set_params(**{_NAMES.get(n, n): v for n, v in params.items() if n in there})
        known = (len(estimator.classes_), width)
        with blaming(data):
            progress.fit(
                "updating",
                estimator,
                samples.X,
                samples.y,
                interruptible=True,
                learn=lambda X, y: estimator.partial_fit(X, y, passes=passes, memory=memory),
            )
        clock.took("train")
        new = np.subtract((len(estimator.classes_), estimator.n_features_in_), known).tolist()
        progress.say(
            f"{estimator.n_examples_:,} examples in memory; new: {new[0]} labels, {new[1]:,} "
            "features"
        )
    before = estimator.metadata_.get("data")
    sources = [*before] if isinstance(before, list) else []
    sources.append({"name": Path(data).name, "sha256": file_hash(data)})
    with blaming("--model"):
        written = estimator.save(
            model,
            dtype=dtype,
            sparse=sparse,
            metadata=metadata_of(layout, sources),
            state=keep_state,
        )
    clock.took("write")
    print_result(
        {
            "model": str(model),
            "bytes": written["bytes"],
            "C": float(estimator.C),
            **gaps_of(estimator),
            "converged": estimator.converged_,
            "stop_reason": estimator.stop_reason_,
            "passes": estimator.n_iter_,
            "examples": estimator.n_examples_,
            "new_labels": new[0],
            "new_features": new[1],
            "seconds": {name: round(value, 3) for name, value in seconds.items()},
        },
        as_json,
    )
    if estimator.stop_reason_ == "interrupted":
        raise typer.Exit(INTERRUPTED)
