"""``hingeline train``: from a labelled file to a model."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from sklearn.base import clone

from hingeline import ChainSSVM, Checkpoint, EarlyStopping, MulticlassSSVM, PassState
from hingeline._checks import positive
from hingeline.cli import app
from hingeline.cli.app import CommandError, blame, check_sources, check_target, given, split_names
from hingeline.cli.progress import (
    Clock,
    FitProgress,
    balance_of,
    finite,
    outcome_of,
    print_result,
    relative_gap,
    write_model,
)
from hingeline.cli.samples import (
    NAMED,
    SETS,
    WORDS,
    Samples,
    open_training,
    predict_sets,
    read_held_out,
    read_training,
    score_sets,
)
from hingeline.data.text import open_text
from hingeline.evaluation.metrics import evaluate
from hingeline.features.dicts import DictEncoder
from hingeline.features.tables import SparseSequences
from hingeline.features.templates import TokenTemplates
from hingeline.modelfile.files import ModelFileError, read_header
from hingeline.schemes import scheme_name


def train(
    context: typer.Context,
    data: Annotated[
        str, typer.Argument(metavar="TRAIN", help="Labelled file; - is the standard input.")
    ],
    model: app.NewModel,
    format: app.Format = "auto",
    template: app.Template = None,
    columns: app.Columns = None,
    use: app.Use = None,
    label: app.Label = None,
    min_count: app.MinCount = None,
    hash_bits: app.HashBits = None,
    C: app.Cost = None,
    grid: Annotated[
        str | None,
        typer.Option(help="Try several values, e.g. C=0.01,0.1,1; the best on --dev is kept."),
    ] = None,
    tol: app.Tol = 0.05,
    slack: Annotated[str, typer.Option(help="Kind of slack: max, squared, sum or nu.")] = "max",
    nu: Annotated[
        str | None, typer.Option(help="Balance of --slack nu: a mean loss, or auto.")
    ] = None,
    rescale: Annotated[
        str, typer.Option(help="What the loss rescales: margin or slack.")
    ] = "margin",
    violators: Annotated[
        str | None,
        typer.Option(help="For --slack sum: argmax, all or a count.", show_default="argmax; all"),
    ] = None,
    solver: Annotated[
        str, typer.Option(help="Solver: auto, sdm, fsmo, bcfw, sdcd, one-slack, subgradient.")
    ] = "auto",
    scheme: app.Scheme = None,
    edges: Annotated[
        str | None,
        typer.Option(
            help="Pairs of labels that sets score together: full, tree or none.",
            show_default="full",
        ),
    ] = None,
    max_iter: app.MaxIter = 1000,
    max_time: Annotated[float | None, typer.Option(help="Stop after this many seconds.")] = None,
    dev: Annotated[
        str | None, typer.Option(help="Held-out file: stop when its score no longer rises.")
    ] = None,
    patience: Annotated[
        int, typer.Option(min=1, help="Passes to wait for a better score on --dev.")
    ] = 3,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Keep the state of the fit in this file.")
    ] = None,
    checkpoint_every: Annotated[
        float, typer.Option(min=0.0, help="Seconds between checkpoints.")
    ] = 10.0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from --checkpoint.")] = False,
    keep_state: app.KeepState = False,
    dtype: app.Dtype = "float64",
    sparse: app.Sparse = False,
    n_jobs: app.NJobs = None,
    seed: app.Seed = 0,
    quiet: app.Quiet = False,
    as_json: app.Json = False,
) -> None:
    """Learn from a labelled file and write a model.

    Reads CoNLL columns, CoNLL-U, SVM^hmm, CRFsuite and letter.data (sequences), SVMlight and IDX
    (rows), LIBSVM and Mulan's ARFF (rows with sets of labels). Ctrl-C ends the training early
    and keeps the best model so far.

    To add data to a model later, train with --keep-state and see hingeline update. To learn from
    text without labels as well, see hingeline semi.
    """
    values = _parse_grid(grid, dev, checkpoint)
    check_sources("--dev", data, dev)
    check_target("--model", model, data, dev)
    _check_checkpoint(checkpoint, checkpoint_every, resume, str(model), data, dev)
    params: dict[str, Any] = {
        "tol": tol,
        "slack": slack,
        "solver": solver,
        "max_iter": max_iter,
        "max_time": max_time,
        "n_jobs": n_jobs,
        "random_state": seed,
        **({} if C is None else {"C": C}),
        **({} if nu is None else {"nu": _parse_nu(nu)}),
    }
    clock = Clock()
    file = open_training(data, format, given(context))
    if file.format.name in SETS:
        from hingeline import MultilabelSSVM

        estimator: Any = MultilabelSSVM(**params, edges=edges or "full")
    else:
        params |= {"rescale": rescale, "violators": _parse_violators(violators)}
        if file.format.kind == "flat":
            estimator = MulticlassSSVM(**params)
        else:
            features = make_encoder(file.format.name, template, min_count, hash_bits)
            estimator = ChainSSVM(**params, scheme=scheme, features=features)
    check_parameters(estimator)
    with FitProgress(quiet or as_json) as progress:
        samples = read_training(file, split_names(columns), split_names(use), label)
        progress.say(f"{data}: {samples.size_text()} ({file.format.name})")
        features = getattr(estimator, "features", None)
        check_template(features, samples)
        width = None if features is not None else _width_of(samples.X)
        held_out = read_held_out(dev, samples.layout, width)
        watcher = _make_checkpoint(progress, checkpoint, checkpoint_every, resume)
        clock.stop("read")
        estimator.set_params(warm_start=keep_state or bool(values))
        fits = _Fits(progress, estimator, samples, held_out, patience, watcher, data)
        best, tried = fits.find_best(values or [estimator.C], keep_state)
        if file.format.name == "arff" and best.n_labels_ > 1:
            best.classes_ = np.asarray(samples.layout.labels, dtype=object)
        clock.stop("train")
        if features is not None:
            clock.split("train", "encode", fits.encoding)
    state = keep_state and best is estimator
    written = write_model(
        model, best, clock, samples.layout, [data], dtype=dtype, sparse=sparse, state=state
    )
    if checkpoint is not None and checkpoint.exists():
        if best.stop_reason_ == "interrupted":
            progress.say(f"{checkpoint} is kept: the same command with --resume goes on from it")
        else:
            checkpoint.unlink()
    print_result(
        {
            **written,
            **balance_of(best),
            **outcome_of(best),
            "seconds": clock.seconds,
            "tried": tried,
        },
        as_json,
    )


# What is refused before the data are read ---------------------------------------------------------


def _parse_grid(text: str | None, dev: str | None, checkpoint: Path | None) -> list[float]:
    """Values of C in ascending order: each fit starts from the one before."""
    if text is None:
        return []
    if dev is None:
        raise CommandError("--grid chooses by the score on held-out data: pass --dev FILE.")
    if checkpoint is not None:
        raise CommandError("--checkpoint keeps one fit and --grid makes several: use one of them.")
    name, _, values = text.partition("=")
    try:
        if name.strip() != "C":
            raise ValueError
        found = sorted({float(value) for value in values.split(",")})
    except ValueError:
        raise CommandError(f"--grid: expected C=0.01,0.1,1 or the like, got {text!r}.") from None
    with blame("--grid"):
        for C in found:
            positive("C", C, infinite=True)
    return found


def _parse_nu(text: str) -> float | str:
    try:
        return "auto" if text.strip() == "auto" else float(text)
    except ValueError:
        raise CommandError(f"--nu: expected a number or auto, got {text!r}.") from None


def _parse_violators(word: str | None) -> str | int | None:
    """A count or a word; what is neither is refused with the other parameters."""
    return int(word) if word is not None and word.isdecimal() else word


def _check_checkpoint(
    path: Path | None, every: float, resume: bool, model: str, data: str, dev: str | None
) -> None:
    """Refuse a file that is no checkpoint: it would be replaced, and removed at the end."""
    if resume and path is None:
        raise CommandError("--resume goes on from a checkpoint: pass --checkpoint FILE.")
    if not math.isfinite(every):
        raise CommandError(f"--checkpoint-every: must be a number of seconds, got {every}.")
    if path is None:
        return
    check_target("--checkpoint", path, model, data, dev)
    if path.exists():
        try:
            kind = read_header(path)[0].get("kind")
        except (ModelFileError, OSError):
            kind = None
        if kind != "checkpoint":
            raise CommandError(
                f"--checkpoint: {path} exists and is not a checkpoint: name another file, or "
                "remove it."
            )


def check_parameters(estimator: Any) -> None:
    """Refuse what the fit would refuse."""
    with blame():
        estimator._check_parameters()
        if getattr(estimator, "scheme", None) not in (None, "auto"):
            scheme_name(estimator.scheme)


# The fit ------------------------------------------------------------------------------------------


def make_encoder(
    format: str, template: Path | None, min_count: int | None, hash_bits: int | None
) -> TokenTemplates | DictEncoder | None:
    """What turns the tokens of a format into numbers; None where the file has numbers."""
    if format not in NAMED:
        return None
    if format not in WORDS:
        return DictEncoder(min_count=min_count or 1)
    templates = "default"
    if template is not None:
        with blame(), open_text(template) as text:
            templates = "\n".join(line for _, line in text.lines())
    return TokenTemplates(templates, min_count=min_count or 1, hash_bits=hash_bits)


def check_template(features: TokenTemplates | DictEncoder | None, samples: Samples) -> None:
    """Refuse a bad template before the work begins."""
    if isinstance(features, TokenTemplates):
        with blame("--template"):
            clone(features).fit(samples.X[:1])


def _width_of(X: Any) -> int:
    return int(X.matrix.shape[1] if isinstance(X, SparseSequences) else X.shape[1])


def _make_checkpoint(
    progress: FitProgress, path: Path | None, every: float, resume: bool
) -> Checkpoint | None:
    if path is None:
        return None
    if resume and not path.exists():
        progress.say(f"there is no checkpoint {path}: starting afresh")
    elif not resume and path.exists():
        progress.say(f"{path} is replaced: starting afresh without --resume")
    return Checkpoint(path, every, resume)


@dataclass
class _Fits:
    """Fits of one estimator on one file, for one C or for several."""

    progress: FitProgress
    estimator: Any
    samples: Samples
    held_out: Samples | None
    patience: int
    checkpoint: Checkpoint | None
    name: str
    encoding: float = 0.0  # seconds before the solver begins, of all fits
    _encoded: tuple[Any, Any] = (None, None)  # an encoder, and the held-out data by it

    def find_best(self, values: list[float], keep_state: bool) -> tuple[Any, list[dict[str, Any]]]:
        """Fit for every C, each from the solution before; the best model, and all tried."""
        tried: list[dict[str, Any]] = []
        best = self.estimator
        for C in values:
            tried.append(self._fit(C))
            if len(values) > 1 and tried[-1]["dev"] > max(
                (r["dev"] for r in tried[:-1]), default=-1
            ):
                best = copy.copy(self.estimator)
            if self.estimator.stop_reason_ == "interrupted":
                break
        else:
            if keep_state and best is not self.estimator:  # only the last fit has its state
                if tried[-1]["C"] != best.C:
                    self._fit(best.C)
                best = self.estimator
        best.set_params(warm_start=False)
        return best, tried

    def _fit(self, C: float) -> dict[str, Any]:
        estimator, held_out = self.estimator, self.held_out
        estimator.set_params(C=C)
        callbacks: list[Any] = [self._first_pass(time.perf_counter())]
        if held_out is not None:
            stop = EarlyStopping(estimator, held_out.X, held_out.y, self.patience, self._score)
            callbacks.append(stop)
        if self.checkpoint is not None:
            callbacks.append(self.checkpoint)
        title = f"training, C={C:g}" if estimator.nu is None else f"training, nu={estimator.nu}"
        with blame(self.name):
            self.progress.fit(
                title, estimator, self.samples.X, self.samples.y, callbacks, interruptible=True
            )
        row: dict[str, Any] = {"C": float(C), "relative_gap": finite(relative_gap(estimator))}
        if held_out is not None:
            row["dev"] = self._score(estimator, held_out.X, held_out.y)
            self.progress.say(f"C={C:g}: {100 * row['dev']:.2f} % on the held-out data")
        return row

    def _first_pass(self, began: float) -> Callable[[PassState], None]:
        """A callback that tells once what the fit began with."""
        told = False

        def tell(state: PassState) -> None:
            nonlocal told
            if told:
                return
            told = True
            kept = self.checkpoint
            if kept is not None and kept.resumed_:
                self.progress.say(f"went on after pass {kept.resumed_} of {kept.path}")
            elif getattr(self.estimator, "encoder_", None) is not None:
                seconds = max(0.0, time.perf_counter() - began - state.row.time)
                self.encoding += seconds
                self.progress.say(f"{self.estimator.n_features_in_:,} features in {seconds:.1f} s")

        return tell

    def _score(self, estimator: Any, X: Any, y: Any) -> float:
        """Span F1 where labels are span tags, F1 of sets, else the share of labels predicted."""
        if self.samples.layout.kind == "multilabel":
            return score_sets(y, predict_sets(estimator, X)).example_f1
        if self.samples.layout.kind == "flat":
            return float(estimator.score(X, y))
        encoder = getattr(estimator, "encoder_", None)
        if encoder is not None:  # every pass asks for the same tokens
            if self._encoded[0] is not encoder:
                self._encoded = (encoder, encoder.transform(X))
            X = self._encoded[1]
        scores = evaluate(y, estimator.predict(X))
        return scores.token_accuracy if scores.span_f1 is None else scores.span_f1
