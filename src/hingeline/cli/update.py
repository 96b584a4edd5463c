"""``hingeline update``: more data for a model that carries its training state."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import typer

from hingeline.cli import app
from hingeline.cli.app import CommandError, blame, check_seed, check_target
from hingeline.cli.progress import (
    Clock,
    FitProgress,
    balance_of,
    outcome_of,
    print_result,
    write_model,
)
from hingeline.cli.samples import layout_of, load_model, read_like


def update(
    old: app.Model,
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="Labelled file; - is the standard input.")
    ],
    model: app.NewModel,
    format: app.KnownFormat = "auto",
    passes: Annotated[
        int | None,
        typer.Option(min=1, help="Make this many passes over the new data only; no certificate."),
    ] = None,
    memory: Annotated[
        int | None, typer.Option(min=1, help="Keep at most this many examples.")
    ] = None,
    tol: Annotated[
        float | None, typer.Option(help="Stop at this certified gap.", show_default="as trained")
    ] = None,
    max_iter: Annotated[
        int | None,
        typer.Option(min=1, help="Make at most this many passes.", show_default="as trained"),
    ] = None,
    max_time: Annotated[
        float | None, typer.Option(help="Stop after this many seconds.", show_default="as trained")
    ] = None,
    keep_state: app.KeepState = False,
    dtype: app.Dtype = "float64",
    sparse: app.Sparse = False,
    n_jobs: app.NJobs = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Seed of everything random.",
            show_default="as trained",
            callback=check_seed,
        ),
    ] = None,
    quiet: app.Quiet = False,
    as_json: app.Json = False,
) -> None:
    """Add a labelled file to the data of a model that was trained with --keep-state.

    The solution is that of training on all data together. New labels and features are added after
    the known ones; the features, C and everything else stay as MODEL has them. The new model may
    take the place of the old one.
    """
    check_target("--model", model, data)
    clock = Clock()
    with FitProgress(quiet or as_json) as progress:
        estimator = load_model(old)
        if not hasattr(estimator, "partial_fit"):
            raise CommandError(
                f"{old} holds a {type(estimator).__name__}, which cannot learn from more data: "
                "train on all data together."
            )
        if estimator.n_examples_ == 0:
            raise CommandError(
                f"{old} carries no training state to go on from: train it with --keep-state, or "
                "train on all data together."
            )
        layout = layout_of(estimator, old)
        width = int(estimator.n_features_in_)
        encodes = getattr(estimator, "encoder_", None) is not None
        samples = read_like(data, layout, None if encodes else width, format, grow=True)
        if samples.y is None:
            raise CommandError(f"{data} has no labels to learn from.")
        clock.stop("read")
        progress.say(f"{data}: {samples.size_text()} ({samples.layout.format})")
        params = {"tol": tol, "max_iter": max_iter, "max_time": max_time, "random_state": seed}
        params["n_jobs"] = n_jobs
        estimator.set_params(**{name: v for name, v in params.items() if v is not None})
        known = (len(estimator.classes_), width)
        with blame(data):
            progress.fit(
                "updating",
                estimator,
                samples.X,
                samples.y,
                interruptible=True,
                learn=lambda X, y: estimator.partial_fit(X, y, passes=passes, memory=memory),
            )
        clock.stop("train")
        new = np.subtract((len(estimator.classes_), estimator.n_features_in_), known).tolist()
        progress.say(
            f"{estimator.n_examples_:,} examples in memory; new: {new[0]} labels, {new[1]:,} "
            "features"
        )
    before = estimator.metadata_.get("data")
    before = before if isinstance(before, list) else []
    options = {"dtype": dtype, "sparse": sparse, "state": keep_state}
    written = write_model(model, estimator, clock, layout, [data], before=before, **options)
    print_result(
        {
            **written,
            **balance_of(estimator),
            **outcome_of(estimator),
            "examples": estimator.n_examples_,
            "new_labels": new[0],
            "new_features": new[1],
            "seconds": clock.seconds,
        },
        as_json,
    )
