"""``hingeline calibrate``: what a tagger's margins mean, from labelled data it has not seen."""

import typer

from hingeline._words import brief
from hingeline.cli import app, files
from hingeline.cli.app import blame, check_target


def calibrate(
    old: app.Model,
    data: app.Data,
    model: app.NewModel,
    format: app.KnownFormat = "auto",
    n_jobs: app.NJobs = None,
) -> None:
    """Learn from held-out data how often a tagger is right, for predict --probability.

    DATA must not be the training data. The new model predicts the same labels as the old one, and
    may replace it.
    """
    from hingeline.evaluation.calibration import CalibratedChain

    check_target("--model", model, data)
    estimator = files.load_model(old)
    if not hasattr(estimator, "predict_max_marginals"):
        what = f"{old} holds a {type(estimator).__name__}, and probabilities are for sequences"
        own = "predict_margin" if hasattr(estimator, "predict_margin") else "decision_function"
        raise ValueError(f"{what} (ChainSSVM): use its {own} in Python.")
    threads = estimator.n_jobs
    estimator.set_params(n_jobs=n_jobs)
    reporter = files.Reporter(data, None)
    with reporter.during("reading"):
        samples = files.read_for(estimator, old, data, format, "compare with")
    with blame(data), reporter.during("calibrating"):
        calibrated = CalibratedChain(estimator).fit(samples.X, samples.y)
    estimator.set_params(n_jobs=threads)
    with blame("--model"):
        calibrated.save(model, metadata=estimator.metadata_, state=estimator.n_examples_ > 0)
    errors = calibrated.calibration_error_.items()
    known = [f"{brief(100 * off, 2)} % for {name}" for name, off in errors if off == off]
    found = f"off by {' and '.join(known)} on average" if known else "too few to judge them"
    typer.echo(f"{model}: probabilities from {samples.size_text()}; {found}")
