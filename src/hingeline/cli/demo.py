"""``hingeline demo``: train, evaluate and report on built-in data."""

import math
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

import hingeline.data
from hingeline._words import bound_text
from hingeline.cli import app, files, fits
from hingeline.cli.app import blame

_ABOUT = """\
Handwritten digits (scikit-learn's, 8 x 8 pixels): the last digit of the date on eight working days
in a row. {n_train} rows to learn from, {n_test} to test on, with images of their own."""


def demo(
    output: Annotated[
        Path, Option("--output", "-o", help="Plot of the chain's training curve, .png or .svg.")
    ] = Path("hingeline-demo.png"),
    n_jobs: app.NJobs = None,
    seed: app.Seed = 0,
    quiet: app.Quiet = False,
    n_train: Annotated[int, Option(min=10, help="Rows to learn from.")] = 1000,
    n_test: Annotated[int, Option(min=1, help="Rows to test on.")] = 400,
    noise: Annotated[float, Option(min=0.0, help="Noise added to the pixels.")] = 0.0,
) -> None:
    """Learn to read handwritten dates, digit by digit and as a sequence."""
    import numpy as np

    from hingeline.report.figures import FORMATS, check_target, plot_curve

    with blame("--output"):
        check_target(output, FORMATS)
    files.require(math.isfinite(noise), f"--noise: must be a finite number, got {noise}.")
    data = hingeline.data.load_digit_dates(n_train, n_test, noise=noise, random_state=seed)
    flat_data = np.vstack(data.X_train), np.concatenate(data.y_train)
    # Each C is the best of 0.003 to 1 on training images 600 to 899, trained on 0 to 599.
    flat = hingeline.MulticlassSSVM(C=0.1, tol=1e-3, n_jobs=n_jobs, random_state=seed)
    chain = hingeline.ChainSSVM(C=0.3, tol=1e-3, n_jobs=n_jobs, random_state=seed)
    progress = fits.FitProgress(quiet)
    progress.say(_ABOUT.format(n_train=n_train, n_test=n_test))
    flat_seconds = progress.fit("digit by digit", flat, partial(flat.fit, *flat_data), keeps=False)
    learn = partial(chain.fit, data.X_train, data.y_train)
    chain_seconds = progress.fit("as a sequence", chain, learn, keeps=False)
    said = f"The chain's training curve is in {output}"
    try:
        with blame("--output"):
            plot_curve(chain.history_, output, title="ChainSSVM on handwritten dates")
    except ImportError as error:
        said = f"No plot was written: {error}"
    table = [["", "digits right", "all eight right", "training", "passes", "certified gap"]]
    alone = flat.predict(np.vstack(data.X_test)).reshape(n_test, -1)
    for name, model, labels, spent in (
        ("digit by digit (MulticlassSSVM)", flat, alone, flat_seconds),
        ("as a sequence (ChainSSVM)", chain, np.stack(chain.predict(data.X_test)), chain_seconds),
    ):
        right = labels == np.array(data.y_test)
        shares = (f"{100 * part.mean():.1f} %" for part in (right, right.all(axis=1)))
        gap = bound_text(fits.outcome_of(model)["relative_gap"])
        gap += "" if model.converged_ else " (not converged)"
        table.append([name, *shares, f"{spent:.1f} s", str(model.n_iter_), gap])
    typer.echo(f"{files.align(table)}\n{said}")
