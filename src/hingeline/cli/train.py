"""``hingeline train``: from a labelled file to a model."""

from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

import hingeline.data
from hingeline._words import count_of
from hingeline.cli import app, files, fits
from hingeline.cli.app import blame, check_sources, check_target, flag, given, split_names
from hingeline.cli.predict import split_columns, write_labels

#: Options that are parameters of estimators under the same name.
_PARAMETERS = (
    *("tol", "slack", "solver", "max_iter", "max_time", "n_jobs", "loss", "rescale"),
    *("edges", "scheme"),
)


def train(
    context: typer.Context,
    data: app.Files,
    model: app.NewModel,
    format: app.Format = "auto",
    task: Annotated[
        str, Option(help="What to predict for words: labels, segments or dependencies (CoNLL-U).")
    ] = "labels",
    template: app.Template = None,
    columns: app.Columns = None,
    use: app.Use = None,
    label: app.Label = None,
    min_count: app.MinCount = None,
    hash_bits: app.HashBits = None,
    scale: app.Scale = None,
    lexicon: Annotated[
        list[str] | None,
        Option(help="For --task segments: NAME=FILE, one phrase per line; can be repeated."),
    ] = None,
    C: app.Cost = None,
    grid: Annotated[
        str | None,
        Option(help="Values of C, as in 0.01,0.1,1: train with each, keep the best on --dev."),
    ] = None,
    tol: app.Tol = 0.05,
    slack: Annotated[str, Option(help="Kind of slack: max, squared, sum or nu.")] = "max",
    nu: Annotated[str | None, Option(help="For --slack nu: mean loss allowed, or auto.")] = None,
    loss: app.Loss = None,
    projective: Annotated[
        str, Option(help="Forbid crossing dependencies: auto, yes, no or prediction.")
    ] = "auto",
    rescale: Annotated[str, Option(help="What the loss rescales: margin or slack.")] = "margin",
    violators: app.Violators = None,
    solver: Annotated[
        str, Option(help="Solver: auto, sdm, fsmo, bcfw, sdcd, one-slack or subgradient.")
    ] = "auto",
    scheme: app.Scheme = None,
    edges: Annotated[
        str | None, Option(help="Pairs of labels to score, for sets: auto, full, tree or none.")
    ] = None,
    max_iter: app.MaxIter = 1000,
    max_time: Annotated[float | None, Option(help="Stop after this many seconds.")] = None,
    dev: Annotated[str | None, Option(help="Held-out file; stop when its score stalls.")] = None,
    patience: Annotated[int, Option(min=1, help="Passes to wait for a better score on --dev.")] = 3,
    cv: Annotated[int | None, Option(min=2, help="Also cross-validate in this many parts.")] = None,
    cv_output: Annotated[str | None, Option(help="Write the labels from --cv here.")] = None,
    checkpoint: Annotated[Path | None, Option(help="Save the state here, for --resume.")] = None,
    checkpoint_every: Annotated[float, Option(min=0.0, help="Seconds between checkpoints.")] = 10.0,
    resume: Annotated[bool, Option("--resume", help="Continue from --checkpoint.")] = False,
    workers: app.Workers = None,
    blocks: app.Blocks = None,
    keep_state: app.KeepState = False,
    dtype: app.Dtype = "float64",
    sparse: app.Sparse = True,
    n_jobs: app.NJobs = None,
    seed: app.Seed = 0,
    quiet: app.Quiet = False,
    as_json: app.Json = False,
) -> None:
    """Learn from a labelled file and write a model.

    Reads CoNLL columns, CSV and TSV with a header, JSON lines, CoNLL-U, SVM^hmm, CRFsuite and
    letter.data (sequences), SVMlight, CSV and TSV of numbers and IDX (rows), LIBSVM and Mulan's
    ARFF (rows with sets of labels). Ctrl-C ends the training early and keeps the best model so far.

    --task segments learns whole spans (IOB2, IOBES); --task dependencies learns the head and the
    relation of every word.

    With --workers, files ('part-*.conll') are read and trained on in blocks, in processes or on a
    Dask cluster; no process holds all the data.

    To add data to a model later, train with --keep-state and see hingeline update. To learn from
    text without labels as well, see hingeline semi.
    """
    import numpy as np
    from scipy.sparse import issparse

    require = files.require
    values = fits.parse_grid(grid, dev, checkpoint)
    require(cv or not cv_output, "--cv-output writes what --cv finds: pass --cv 5.")
    what = "--patience waits for a better score on held-out data: pass --dev FILE."
    require(dev or "patience" not in given(context), what)
    what = "--checkpoint-every is how often a checkpoint is written: pass --checkpoint FILE."
    require(checkpoint or "checkpoint_every" not in given(context), what)
    names, title = files.expand_all(data)
    check_sources("--dev", *names, dev)
    check_target("--model", model, *names, dev)
    check_target("--cv-output", cv_output or "-", *names, dev)
    fits.check_checkpoint(checkpoint, checkpoint_every, resume, str(model), *names, dev)
    if workers is not None:
        where = files.check_workers(given(context), workers)
    elif blocks is not None or len(names) > 1:
        what = "--blocks is" if blocks is not None else f"{len(names)} files are"
        raise ValueError(f"{what} for training in blocks: add --workers 2, say.")
    require(C is None or not values, "--grid names the values of C: leave --C out.")
    params = {name: context.params[name] for name in _PARAMETERS} | {"random_state": seed}
    params |= {"C": fits.parse_number(C, float), "nu": fits.parse_number(nu, float)}
    params["violators"] = fits.parse_number(violators, int)
    params["projective"] = {"yes": True, "no": False}.get(projective, projective)
    progress = fits.FitProgress(quiet or as_json)
    file = files.open_training(names[0], format, given(context), task)
    learner = files.learner_of(file.format, task)
    known = learner().get_params(deep=False)
    for name in sorted(given(context).keys() & params.keys()):
        what = f"{flag(name)} is not for --task {task} ({learner.__name__})"
        require(name in known, f"{what}: leave it out.")
    chosen = {name: value for name, value in params.items() if value is not None}
    estimator: Any = learner(**{name: chosen[name] for name in chosen.keys() & known.keys()})
    with blame(""):  # not a word, but a number, say
        estimator.check_parameters()
    if lexicon:
        require(task == "segments", "--lexicon is for --task segments: leave it out.")
        estimator.set_params(segment_features=fits.read_lexicons(lexicon))
    if workers is not None:
        from hingeline.distributed.fit import list_parts, refuse, train_blocks

        with files.blame_workers(TypeError):  # before anything is read
            refuse(estimator)
    features = fits.make_encoder(file.format.name, task, template, min_count, hash_bits)
    encodes = features is not None and task == "labels"  # others encode more than tokens
    kind, score = file.format.kind if task == "labels" else task, None
    if workers is None:
        samples = progress.read(file, template and features, columns, use, label, scheme, task)
        width = None if file.format.name in files.NAMED else samples.width
        with progress.during(str(dev), "reading"):
            held = files.read_held_out(dev, samples.layout, width)
        progress.end_phase("read")
        sparse_rows = issparse(samples.X)
    else:
        progress.say(f"{title}: {count_of(len(names), 'file')} ({file.format.name}), in blocks")
        sparse_rows = True
        if file.format.name in ("arff", "table"):
            sparse_rows = issparse(files.read_training(file, None, None, label).X)
    if kind in ("flat", "multilabel"):
        # Where C is left to the model, it chooses which columns to scale as well; in blocks dense.
        free = scale is None and not values and isinstance(estimator.C, str)
        if free and (not sparse_rows or (workers is None and file.format.name != "idx")):
            how = "far from size 1 are scaled"
        else:
            table = not sparse_rows or file.format.name == "idx"
            estimator.set_params(scale=table if scale is None else scale)
            how = f"are {'divided by their largest value' if sparse_rows else 'standardised'}"
        if estimator.scale is not False:
            progress.say(f"Columns {how}, here and in predict; --no-scale leaves them as they are.")
    if features is not None:
        estimator.set_params(features=features)
    if cv is not None:
        with blame(title):
            score, labels = fits.cross_validate(progress, estimator, samples, cv, kind)
        if cv_output is not None:
            with blame("--cv-output"), hingeline.data.atomic_text(cv_output) as out:
                tokens = samples.layout.kind == "tokens"
                found = split_columns(samples.layout, labels) if tokens else [labels]
                write_labels(out, samples.layout, *found)
        progress.end_phase("cross-validate")
    if workers is not None:
        reading = format, split_names(columns), split_names(use), label

        def learn() -> None:
            with files.blame_workers():
                train_blocks(estimator, list_parts(names, *reading), blocks, None, **where)

    else:
        learn = partial(estimator.fit, samples.X, samples.y)

    @cache
    def read_held_out() -> tuple[Any, Any]:
        """Inputs, encoded where features have names, and labels of --dev; when first wanted."""
        if workers is None:
            found = held
        else:  # what is known of the files once they are read
            layout = files.layout_of(estimator, model)
            found = files.read_held_out(dev, layout, files.width_of(estimator))
        assert found is not None
        return estimator.encoder_.transform(found.X) if encodes else found.X, found.y

    def score_held_out(model: Any, *_: Any) -> tuple[float, str]:
        X, y = read_held_out()
        return fits.score_labels(kind, y, files.predict(model, X))

    watcher = None
    if checkpoint is not None:
        watcher = hingeline.Checkpoint(checkpoint, checkpoint_every, resume)
        if resume and not checkpoint.exists():
            progress.say(f"there is no checkpoint {checkpoint}: starting afresh")
        elif checkpoint.exists() and not resume:
            progress.say(f"{checkpoint} is replaced: without --resume, training starts afresh")
    estimator.set_params(warm_start=keep_state or bool(values))
    blamed = title if workers is None else ""  # blocks name files themselves
    judge = score_held_out if dev else None
    # A grid compares models that are trained to the end, unless it is asked to be quick.
    wait = patience if not values or "patience" in given(context) else None
    rest = judge, wait, watcher, keep_state, blamed
    best, tried = fits.find_best(progress, estimator, learn, values or [estimator.C], *rest)
    if best.C == "auto":
        tried = fits.list_rows(best.C_path_)
    if encodes and workers is None:
        what = "no token has a feature: check the file, --format and --min-count"
        require(best.n_features_in_, f"{title}: {what}.")
        progress.say(f"{best.n_features_in_:,} features")
    if best.C == "auto" or (encodes and workers is None and best.C == "scale" and slack != "nu"):
        best.C = best.C_  # updates go on with it
        if keep_state:
            best._dual.settings["C"] = best.C_
    layout = samples.layout if workers is None else files.layout_of(best, model)
    if file.format.name == "arff" and best.n_labels_ > 1:
        best.classes_ = np.asarray(layout.labels, dtype=object)
    progress.end_phase("train")
    options = {"dtype": dtype, "sparse": sparse, "state": keep_state and best is estimator}
    read = [files.source_of(name, hashed=workers is None) for name in names]
    more = {"dev": files.source_of(dev)} if dev else {}
    written = fits.write_model(model, best, progress, layout, read, more, **options)
    if checkpoint is not None and checkpoint.exists():
        if best.stop_reason_.startswith(("interrupted", "max_time", "max_iter")):
            progress.say(f"{checkpoint} is kept: the same command with --resume continues from it")
        else:
            checkpoint.unlink()
    result = {**written, **fits.outcome_of(best), "tried": tried}
    fits.print_result(result | dict(zip(("cv", "score"), score or (), strict=False)), as_json)
