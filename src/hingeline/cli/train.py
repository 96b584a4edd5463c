"""``hingeline train``: from a file to a model."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from hingeline import (
    ChainSSVM,
    Checkpoint,
    EarlyStopping,
    MulticlassSSVM,
    MultilabelSSVM,
    PassState,
)
from hingeline.cli.app import (
    INTERRUPTED,
    CommandError,
    Json,
    NJobs,
    Quiet,
    Seed,
    app,
    blaming,
    check_n_jobs,
    check_seed,
)
from hingeline.cli.checks import check_files, check_params, check_together, parse_grid, parse_nu
from hingeline.cli.encoders import attach_encoder, make_encoder, split_names, width_of
from hingeline.cli.label_sets import held_out_score, make_estimator
from hingeline.cli.progress import FitProgress, relative_gap
from hingeline.cli.results import Clock, balance_of, finite, gaps_of, metadata_of, print_result
from hingeline.cli.samples import Samples, file_hash, read_like, read_training
from hingeline.cli.unlabelled import (
    parse_schedule,
    refuse_with,
    refuse_without,
    train_with_unlabelled,
)
from hingeline.cli.update import given, refuse_alone, update_model
from hingeline.evaluation.metrics import evaluate


@app.command()
def train(
    context: typer.Context,
    data: Annotated[str, typer.Argument(metavar="TRAIN", help="Labelled file; - reads a pipe.")],
    model: Annotated[Path, typer.Option("--model", "-m", help="Model file to write (.hinge).")],
    format: Annotated[str, typer.Option("--format", "-f", help="Format; auto guesses.")] = "auto",
    template: Annotated[
        Path | None, typer.Option(help="Feature templates: a CRF++ or Wapiti file.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(help="Names of the file's columns, separated by commas.")
    ] = None,
    use: Annotated[
        str | None, typer.Option(help="Columns to predict from; default: all but the label.")
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            help="Column of the labels; default: the last, upos in CoNLL-U. ARFF: Mulan's XML file."
        ),
    ] = None,
    min_count: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Leave out rarer features; 2 is faster and often a little worse.",
            show_default="1",
        ),
    ] = None,
    hash_bits: Annotated[
        int | None, typer.Option(min=4, max=30, help="Hash features into 2**bits.")
    ] = None,
    C: Annotated[
        float | None, typer.Option("--C", "-C", help="Weight of the slack.", show_default="0.1; 1")
    ] = None,
    grid: Annotated[
        str | None, typer.Option(help="Try several, e.g. C=0.01,0.1,1; the best on --dev is kept.")
    ] = None,
    tol: Annotated[float, typer.Option(help="Certified gap to reach.")] = 0.05,
    slack: Annotated[str, typer.Option(help="max, squared, sum or nu.")] = "max",
    nu: Annotated[
        str | None, typer.Option(help="Balance of --slack nu: a mean loss, or auto.")
    ] = None,
    rescale: Annotated[str, typer.Option(help="margin or slack.")] = "margin",
    violators: Annotated[
        str | None,
        typer.Option(help="For --slack sum: argmax, all or a count.", show_default="argmax; all"),
    ] = None,
    solver: Annotated[
        str, typer.Option(help="auto, sdm, fsmo, bcfw, sdcd, one-slack or subgradient.")
    ] = "auto",
    scheme: Annotated[
        str | None, typer.Option(help="Forbid invalid tags: auto, IOB2, BIOES, …")
    ] = None,
    edges: Annotated[
        str | None,
        typer.Option(help="Pairs of labels in sets: full, tree or none.", show_default="full"),
    ] = None,
    max_iter: Annotated[int, typer.Option(min=1, help="Passes at most.")] = 1000,
    max_time: Annotated[float | None, typer.Option(help="Seconds at most.")] = None,
    dev: Annotated[
        str | None, typer.Option(help="Held-out file: stop when its score stops rising.")
    ] = None,
    patience: Annotated[int, typer.Option(min=1, help="Passes to wait for a rise.")] = 3,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Keep the state of the fit in this file.")
    ] = None,
    checkpoint_every: Annotated[
        float, typer.Option(min=0.0, help="Seconds between checkpoints.")
    ] = 10.0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from --checkpoint.")] = False,
    keep_state: Annotated[
        bool, typer.Option("--keep-state", help="Store data and multipliers for --update, too.")
    ] = False,
    update: Annotated[
        Path | None, typer.Option(help="Add TRAIN to what this model was trained on.")
    ] = None,
    passes: Annotated[
        int | None, typer.Option(min=1, help="With --update: passes over the new data only.")
    ] = None,
    memory: Annotated[
        int | None, typer.Option(min=1, help="With --update: examples to keep at most.")
    ] = None,
    unlabelled: Annotated[
        list[str] | None, typer.Option(help="Text without labels, to learn from as well.")
    ] = None,
    constraints: Annotated[
        str | None,
        typer.Option(help="With --unlabelled: what labels must keep (TOML, citations, seminars)."),
    ] = None,
    unlabelled_C: Annotated[
        str | None,
        typer.Option(
            "--unlabelled-C",
            help="Weights of the slack of unlabelled text, in turn.",
            show_default="0.0001,0.0003,…,100",
        ),
    ] = None,
    select: Annotated[
        str | None,
        typer.Option(
            help="Which of these to keep: dev, violations or last.",
            show_default="dev with --dev, else violations",
        ),
    ] = None,
    dtype: Annotated[
        str, typer.Option(help="Of the stored weights: float64, float32, float16.")
    ] = "float64",
    sparse: Annotated[bool, typer.Option("--sparse", help="Store weights that are not 0.")] = False,
    n_jobs: NJobs = None,
    seed: Seed = 0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Learn from a labelled file and write a model.

    Reads CoNLL columns, CoNLL-U, SVM^hmm, CRFsuite, letter.data (sequences), SVMlight and IDX
    (rows), LIBSVM and Mulan's ARFF (rows with sets of labels). Ctrl-C ends the training early
    and keeps the best model so far.

    With --update TRAIN is added to the data of a model that was made with --keep-state: new
    labels and features come behind the known ones, and everything else is as that model has it.

    With --unlabelled and --constraints text without labels is labelled in training, with ever more
    weight, so that constraints are kept; --dev then chooses the weight.
    """
    check_n_jobs(n_jobs)
    check_seed(seed)
    if unlabelled:
        refuse_with(context)
    else:
        refuse_without(constraints=constraints, **{"unlabelled-C": unlabelled_C, "select": select})
    if update is not None:
        update_model(
            context,
            data,
            update,
            model,
            format=format,
            keep_state=keep_state,
            passes=passes,
            memory=memory,
            dtype=dtype,
            sparse=sparse,
            params={
                "tol": tol,
                "max_iter": max_iter,
                "max_time": max_time,
                "n_jobs": n_jobs,
                "seed": seed,
            },
            quiet=quiet,
            as_json=as_json,
        )
        return
    refuse_alone(passes, memory)
    check_together(grid, dev, checkpoint, resume)
    check_files(data, dev, model, checkpoint)
    if not math.isfinite(checkpoint_every):
        raise CommandError(
            f"--checkpoint-every: must be a number of seconds, got {checkpoint_every}."
        )
    values = parse_grid(grid)
    params: dict[str, Any] = {
        "tol": tol,
        "slack": slack,
        "rescale": rescale,
        "violators": _violators(violators),
        "solver": solver,
        "max_iter": max_iter,
        "max_time": max_time,
        "n_jobs": n_jobs,
        "random_state": seed,
        **({} if C is None else {"C": C}),
        **({} if nu is None else {"nu": parse_nu(nu)}),
    }
    if unlabelled:
        train_with_unlabelled(
            data,
            model,
            unlabelled,
            constraints,
            schedule=parse_schedule(unlabelled_C),
            select=select,
            dev=dev,
            columns=(format, split_names(columns), split_names(use), label),
            features=(template, min_count, hash_bits),
            params=params,
            scheme=scheme,
            dtype=dtype,
            sparse=sparse,
            quiet=quiet,
            as_json=as_json,
        )
        return
    check_params(params, values, scheme, dtype, edges)
    seconds: dict[str, float] = {}
    clock = Clock(seconds)
    with FitProgress(quiet or as_json) as progress:
        samples = read_training(data, format, split_names(columns), split_names(use), label)
        held_out = None
        clock.took("read")
        progress.say(f"{data}: {samples.about()} ({samples.layout.format})")
        estimator = _estimator(context, samples, params, scheme, edges)
        encoder = make_encoder(samples, template, min_count, hash_bits)
        X = samples.X
        with blaming(data):
            if encoder is not None:
                X = encoder.fit_transform(X)
                clock.took("encode")
                progress.say(f"{X.matrix.shape[1]:,} features in {seconds['encode']:.1f} s")
        if dev is not None:
            width = width_of(X) if encoder is None else None
            held_out = read_like(dev, samples.layout, width)
            if held_out.y is None:
                raise CommandError(f"--dev: {dev} has no labels to compare with.")
            if encoder is not None:
                held_out.X = encoder.transform(held_out.X)
        watcher = None
        if checkpoint is not None:
            watcher = Checkpoint(checkpoint, checkpoint_every, resume)
            if resume and not checkpoint.exists():
                progress.say(f"there is no checkpoint {checkpoint}: starting afresh")
            elif not resume and checkpoint.exists():
                progress.say(f"{checkpoint} is replaced: starting afresh without --resume")
        clock.restart()
        if keep_state:
            estimator.set_params(warm_start=True)
        best, tried = _fit_all(
            progress, estimator, X, samples.y, values, held_out, patience, watcher, encoder, data
        )
        if (
            isinstance(best, MultilabelSSVM)
            and best.n_labels_ > 1
            and samples.layout.format == "arff"
        ):
            best.classes_ = np.asarray(samples.layout.labels, dtype=object)
        clock.took("train")
    sources = [{"name": Path(data).name, "sha256": file_hash(data)}]
    with blaming("--model"):
        written = best.save(
            model,
            dtype=dtype,
            sparse=sparse,
            metadata=metadata_of(samples.layout, sources),
            state=keep_state,
        )
    interrupted = best.stop_reason_ == "interrupted"
    if checkpoint is not None and not interrupted:
        checkpoint.unlink(missing_ok=True)
    clock.took("write")
    result = {
        "model": str(model),
        "bytes": written["bytes"],
        **balance_of(best),
        **gaps_of(best),
        "converged": best.converged_,
        "stop_reason": best.stop_reason_,
        "passes": best.n_iter_,
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "tried": tried,
    }
    print_result(result, as_json)
    if interrupted:
        if checkpoint is not None and checkpoint.exists():
            progress.say(f"{checkpoint} is kept: the same command with --resume goes on from it")
        raise typer.Exit(INTERRUPTED)


def _estimator(
    context: typer.Context,
    samples: Samples,
    params: dict[str, Any],
    scheme: str | None,
    edges: str | None,
) -> Any:
    if samples.layout.kind == "multilabel":
        return make_estimator(given(context), context.params, params, edges)
    if edges is not None:
        raise CommandError(f"--edges is for sets of labels, and {samples.layout.format} has none.")
    if samples.layout.kind == "flat":
        if scheme is not None:
            raise CommandError("--scheme is for sequences of tags.")
        return MulticlassSSVM(**params)
    return ChainSSVM(**params, scheme=scheme)


def _score(estimator: Any, X: Any, y: Any) -> float:
    """Span F1 where labels are span tags, F1 of sets, else the share of labels that are right."""
    if isinstance(estimator, MultilabelSSVM):
        return held_out_score(estimator, X, y)
    if isinstance(estimator, MulticlassSSVM):
        return float(estimator.score(X, y))
    scores = evaluate(y, estimator.predict(X))
    return scores.token_accuracy if scores.span_f1 is None else scores.span_f1


def _fit_all(
    progress: FitProgress,
    estimator: Any,
    X: Any,
    y: Any,
    values: list[float],
    held_out: Samples | None,
    patience: int,
    checkpoint: Checkpoint | None,
    encoder: Any,
    name: str,
) -> tuple[Any, list[dict[str, Any]]]:
    """Fit once, or along a grid of C with warm starts; the best model and all that was tried."""
    tried: list[dict[str, Any]] = []
    best: Any = None
    if values:
        estimator.set_params(warm_start=True)
    for C in values or [estimator.C]:
        estimator.set_params(C=C)
        callbacks: list[Any] = []
        if held_out is not None:
            callbacks.append(
                EarlyStopping(estimator, held_out.X, held_out.y, patience, scoring=_score)
            )
        if checkpoint is not None:
            callbacks += [_tell_resumed(progress, checkpoint), checkpoint]
        with blaming(name):
            title = f"training, C={C:g}" if estimator.nu is None else f"training, nu={estimator.nu}"
            progress.fit(title, estimator, X, y, callbacks, interruptible=True)
        row: dict[str, Any] = {"C": float(C), "relative_gap": finite(relative_gap(estimator))}
        if held_out is not None:
            row["dev"] = _score(estimator, held_out.X, held_out.y)
            progress.say(f"C={C:g}: {100 * row['dev']:.2f} % on the held-out data")
        if best is None or row.get("dev", 0.0) > max(r.get("dev", 0.0) for r in tried):
            best = copy.copy(estimator)
            for part in ("_dual", "_key"):  # the training state, which copies leave behind
                if part in vars(estimator):
                    setattr(best, part, vars(estimator)[part])
        tried.append(row)
        if estimator.stop_reason_ == "interrupted":
            break
    best.set_params(warm_start=False)
    attach_encoder(best, encoder)
    return best, tried


def _tell_resumed(progress: FitProgress, checkpoint: Checkpoint) -> Callable[[PassState], None]:
    """A callback that says once that the fit goes on from a checkpoint."""
    told = False

    def tell(state: PassState) -> None:
        nonlocal told
        if checkpoint.resumed_ and not told:
            progress.say(f"went on after pass {checkpoint.resumed_} of {checkpoint.path}")
        told = True

    return tell


def _violators(word: str | None) -> str | int | None:
    """A count or a word; what is neither is refused with the other parameters."""
    return int(word) if word is not None and word.isdecimal() else word
