"""``hingeline report``: a page about a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from hingeline.cli import app, files
from hingeline.cli.app import blame
from hingeline.cli.evaluate import judge
from hingeline.cli.info import describe_annealing


def report(
    model: app.Model,
    data: Annotated[
        str | None, Argument(metavar="DATA", help="A labelled file to evaluate on, like --test.")
    ] = None,
    test: Annotated[str | None, Option(help="A labelled file to evaluate on.")] = None,
    output: Annotated[
        Path | None, Option("--output", "-o", help="The page to write.", show_default="MODEL.html")
    ] = None,
    compare: Annotated[Path | None, Option(help="Another model to compare on --test.")] = None,
    format: app.KnownFormat = "auto",
    bootstrap: app.Bootstrap = 0,
    n_jobs: app.NJobs = None,
) -> None:
    """Write one self-contained HTML page: curve, certificate, scores, errors, weights."""
    import numpy as np

    from hingeline._files import check_target
    from hingeline.report import FORMATS, write_report

    path = output or model.with_suffix(".html")
    with blame("--output"):
        check_target(path, FORMATS)
    files.require(None in (data, test), "DATA and --test are the same: give one file.")
    test = data if test is None else test
    what = "--bootstrap is for scores on a labelled file: name it with --test."
    files.require(test is not None or not bootstrap, what)
    reporter = files.Reporter(model.name, None)
    estimator = files.load_model(model).set_params(n_jobs=n_jobs)
    if found := describe_annealing(estimator):
        told = f"{found['unlabelled']} without labels; constraints: {found['constraints']}"
        estimator.stop_reason_ = f"{found['why no gap']} ({told}; chosen: {found['chosen']})"
    if files.holds_sets(estimator) and estimator.n_labels_ > 1:  # by the names in the file
        estimator.classes_ = np.array(files.layout_of(estimator, model).labels, dtype=object)
    known: dict[str, Any] = {}
    metadata = getattr(estimator, "metadata_", {})
    learnt = enumerate(metadata.get("data", []), start=1)
    sources = {f"training {k}".removesuffix(" 1"): file for k, file in learnt}
    sources["held out"] = metadata.get("dev")
    if compare is not None:
        what = "--compare needs a labelled file that can be read twice"
        files.require(test not in (None, "-"), f"{what}: name it with --test.")
    if test is not None:
        with reporter.during(f"reading {test}"):
            samples = files.read_for(estimator, model, test, format, "compare with")
        known["y_true"] = samples.y
        with blame(test), reporter.during("predicting and scoring"):
            kind = "sets of labels" if files.holds_sets(estimator) else samples.layout.task
            plain = kind not in ("sets of labels", "dependencies")
            files.require(plain or not bootstrap, f"--bootstrap is not for {kind}: leave it out.")
            known["y_pred"] = files.predict(estimator, samples.X)
            if plain:
                labels = samples.y, known["y_pred"]
                known["evaluation"] = judge(samples.layout, *labels, bootstrap=bootstrap)
        known |= _measure(estimator, model, samples)
        if compare is not None:
            known["compare"] = {compare.name: _predict_with(compare, samples, test, format, n_jobs)}
        if samples.layout.kind == "tokens":
            known["tokens"] = samples.X.sentences(0)
        sources["test"] = files.source_of(test)
    read = {k: v for k, v in sources.items() if isinstance(v, dict) and v.get("sha256")}  # no pipes
    known |= {"command": metadata.get("command"), "data": read, "title": model.name}
    what_to_install = files.retell("", "", ImportError)
    with what_to_install, blame("--output"), reporter.during("writing the page"):
        write_report(path, estimator, **known)
    typer.echo(f"The report is in {path}")


def _predict_with(path: Path, samples: files.Samples, test: str, format: str, n_jobs: Any) -> Any:
    """What another model predicts for the test file, as it reads that file."""
    other = files.load_model(path).set_params(n_jobs=n_jobs)
    own = files.read_for(other, path, test, format)
    a, b = own.layout, samples.layout
    same = a.kind == b.kind and a.labels == b.labels
    same = same and (a.task == "dependencies") == (b.task == "dependencies")
    what = f"--compare: {path} does not predict the same as the first model"
    files.require(same, f"{what}: compare models of the same kind and labels.")
    with blame(test):
        return files.predict(other, own.X)


def _measure(model: Any, path: Path, samples: files.Samples) -> dict[str, Any]:
    """How sure a model is of each label: by its calibration, or by leads over the next label."""
    import numpy as np

    if "calibration" in getattr(model, "metadata_", {}):
        from hingeline.evaluation.calibration import CalibratedChain

        return {"probability": CalibratedChain.load(path, model).predict_proba_tokens(samples.X)}
    if samples.layout.task != "labels":
        return {}
    scores = model.decision_function(samples.X)
    if samples.layout.kind in ("tokens", "sequences"):
        return {"margin": [own.max(axis=1) for own in scores]}
    if scores.ndim == 1 or files.holds_sets(model):
        return {"margin": np.abs(scores)}
    first, second = np.sort(scores, axis=1)[:, :-3:-1].T
    return {"margin": first - second}
