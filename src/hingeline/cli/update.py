"""``hingeline update``: more data for a model that carries its training state."""

from functools import partial
from typing import Annotated

from typer import Option

from hingeline.cli import app, files, fits
from hingeline.cli.app import blame, check_target

_trained = partial(Option, show_default="as trained")


def update(
    old: app.Model,
    data: app.Data,
    model: app.NewModel,
    format: app.KnownFormat = "auto",
    passes: Annotated[
        int | None,
        Option(min=1, help="Make this many passes over the new data only, without a certificate."),
    ] = None,
    memory: Annotated[int | None, Option(min=1, help="Keep at most this many examples.")] = None,
    tol: Annotated[float | None, _trained(help="Stop at this certified gap.")] = None,
    max_iter: Annotated[int | None, _trained(min=1, help="Make at most this many passes.")] = None,
    max_time: Annotated[float | None, _trained(help="Stop after this many seconds.")] = None,
    keep_state: Annotated[
        bool, Option("--keep-state/--no-keep-state", help="Store the data for the next update.")
    ] = True,
    dtype: app.Dtype = "float64",
    sparse: app.Sparse = True,
    n_jobs: app.NJobs = None,
    seed: Annotated[int | None, _trained(min=0, max=app.MOST_SEED, help="Random seed.")] = None,
    quiet: app.Quiet = False,
    as_json: app.Json = False,
) -> None:
    """Add a labelled file to the data of a model that was trained with --keep-state.

    The solution is that of training on all data together. New labels and features are added after
    the known ones; the templates, C and all other settings are those of MODEL. The new model may
    replace the old one, and can be updated again unless --no-keep-state is given.
    """
    check_target("--model", model, data)
    progress = fits.FitProgress(quiet or as_json)
    estimator = files.load_model(old)
    what = f"{old} holds a {type(estimator).__name__}, which cannot learn from more data"
    files.require(hasattr(estimator, "partial_fit"), f"{what}: train on all data together.")
    what = f"{old} holds no training state to continue from: train it with --keep-state"
    files.require(estimator.n_examples_ > 0, f"{what}, or on all data together.")
    width = int(estimator.n_features_in_)
    with progress.during(data, "reading"):
        samples = files.read_for(estimator, old, data, format, "learn from", grow=True)
    progress.end_phase("read")
    progress.say(f"{data}: {samples.size_text()} ({samples.layout.format})")
    params = {"tol": tol, "max_iter": max_iter, "max_time": max_time, "random_state": seed}
    params["n_jobs"] = n_jobs
    estimator.set_params(**{name: v for name, v in params.items() if v is not None})
    labels = len(estimator.classes_)
    learn = partial(estimator.partial_fit, samples.X, samples.y, passes=passes, memory=memory)
    with blame(data):
        progress.fit("updating", estimator, learn)
    progress.end_phase("train")
    facts = {"examples": estimator.n_examples_, "new_labels": len(estimator.classes_) - labels}
    facts["new_features"] = estimator.n_features_in_ - width
    new = f"{facts['new_labels']} labels and {facts['new_features']:,} features are new"
    progress.say(f"the model remembers {facts['examples']:,} examples; {new}")
    before = estimator.metadata_.get("data")
    read = [*(before if isinstance(before, list) else ()), files.source_of(data)]
    options = {"dtype": dtype, "sparse": sparse, "state": keep_state}
    written = fits.write_model(model, estimator, progress, samples.layout, read, {}, **options)
    if not keep_state:
        progress.say(f"{model} holds no training state: it cannot be updated again.")
    fits.print_result({**written, **fits.outcome_of(estimator), **facts}, as_json)
