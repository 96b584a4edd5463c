"""``hingeline train``: from a labelled file to a model."""

import copy
import math
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from sklearn.base import clone
from typer import Option

from hingeline import ChainSSVM, Checkpoint, EarlyStopping, MulticlassSSVM, PassState
from hingeline._checks import positive, require
from hingeline.cli import app, files
from hingeline.cli.app import blame, check_sources, check_target, given, split_numbers
from hingeline.cli.progress import Clock, FitProgress, outcome_of, print_result, write_model
from hingeline.data.text import open_text
from hingeline.estimators.chain import scale_C
from hingeline.evaluation.metrics import evaluate
from hingeline.features.dicts import DictEncoder
from hingeline.features.templates import TokenTemplates
from hingeline.modelfile.files import ModelFileError, read_header


def train(
    context: typer.Context,
    data: app.Data,
    model: app.NewModel,
    format: app.Format = "auto",
    template: app.Template = None,
    columns: app.Columns = None,
    use: app.Use = None,
    label: app.Label = None,
    min_count: app.MinCount = None,
    hash_bits: app.HashBits = None,
    C: app.Cost = None,
    grid: Annotated[str | None, Option(help="Try C=0.01,0.1,1 and keep the best on --dev.")] = None,
    tol: app.Tol = 0.05,
    slack: Annotated[str, Option(help="Kind of slack: max, squared, sum or nu.")] = "max",
    nu: Annotated[str | None, Option(help="For --slack nu: a mean loss, or auto.")] = None,
    loss: Annotated[
        str | None, Option(help="Loss of sequences: hamming or zero_one.", show_default="hamming")
    ] = None,
    rescale: Annotated[str, Option(help="What the loss rescales: margin or slack.")] = "margin",
    violators: Annotated[
        str | None,
        Option(
            help="For --slack sum: argmax, all or a number.", show_default="argmax; all for rows"
        ),
    ] = None,
    solver: Annotated[
        str, Option(help="Solver: auto, sdm, fsmo, bcfw, sdcd, one-slack or subgradient.")
    ] = "auto",
    scheme: app.Scheme = None,
    edges: Annotated[
        str | None,
        Option(help="Pairs to score in sets of labels: full, tree or none.", show_default="full"),
    ] = None,
    max_iter: app.MaxIter = 1000,
    max_time: Annotated[float | None, Option(help="Stop after this many seconds.")] = None,
    dev: Annotated[str | None, Option(help="Held-out file; stop when its score stalls.")] = None,
    patience: Annotated[int, Option(min=1, help="Passes to wait for a better score on --dev.")] = 3,
    checkpoint: Annotated[Path | None, Option(help="Keep the state here, for --resume.")] = None,
    checkpoint_every: Annotated[float, Option(min=0.0, help="Seconds between checkpoints.")] = 10.0,
    resume: Annotated[bool, Option("--resume", help="Go on from --checkpoint.")] = False,
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
    params: dict[str, Any] = {"tol": tol, "slack": slack, "solver": solver, "max_iter": max_iter}
    params |= {"max_time": max_time, "n_jobs": n_jobs, "random_state": seed}
    if C is not None:
        require(not values, "--grid names the values of C: leave --C out.")
        params["C"] = parse_C(C)
    if loss is not None:
        params["loss"] = loss
    if nu is not None:
        params["nu"] = parse_number(nu, float)
    clock = Clock()
    file = files.open_training(data, format, given(context))
    if file.format.name in files.SETS:
        from hingeline import MultilabelSSVM

        estimator: Any = MultilabelSSVM(**params, edges=edges or "full")
    else:
        params |= {"rescale": rescale, "violators": parse_number(violators, int)}
        flat = file.format.kind == "flat"
        estimator = MulticlassSSVM(**params) if flat else ChainSSVM(**params, scheme=scheme)
    scales = estimator.C != "scale" or isinstance(estimator, ChainSSVM)
    require(scales, "--C: scale is for sequences; give a number, or auto.")
    estimator.check_parameters()
    features = make_encoder(file.format.name, template, min_count, hash_bits)
    encoder = None if features is None else clone(features)
    with FitProgress(quiet or as_json) as progress:
        samples = files.read_training(file, columns, use, label)
        progress.say(f"{data}: {samples.size_text()} ({file.format.name})")
        width = None if encoder is not None else samples.width
        held_out = files.read_held_out(dev, samples.layout, width)
        clock.stop("read")
        if encoder is not None:  # once, for every C and every score
            with blame(data if template is None else "--template"):
                samples.X = encoder.fit_transform(samples.X)
            if held_out is not None:
                held_out.X = encoder.transform(held_out.X)
            seconds = clock.stop("encode")
            progress.say(f"encoded {samples.width:,} features in {seconds:.1f} s")
        watcher = None if checkpoint is None else Checkpoint(checkpoint, checkpoint_every, resume)
        if checkpoint is not None and resume != checkpoint.exists():
            what = f"there is no checkpoint {checkpoint}" if resume else f"{checkpoint} is replaced"
            progress.say(f"{what}: starting afresh" + ("" if resume else " without --resume"))
        estimator.set_params(warm_start=keep_state or bool(values))
        fits = _Fits(progress, estimator, samples, held_out, patience, watcher, data)
        if estimator.C == "scale" and slack != "nu":  # known before the fit, and kept for updates
            matrix = samples.X.matrix
            estimator.C = scale_C(matrix.data, matrix.indptr, False)
        best, tried = fits.find_best(values or [estimator.C], keep_state)
        if best.C == "auto":  # for updates
            tried, best.C = [trial._asdict() for trial in best.C_path_], best.C_
        if encoder is not None:
            best.features, best.encoder_ = features, encoder
        if file.format.name == "arff" and best.n_labels_ > 1:
            best.classes_ = np.asarray(samples.layout.labels, dtype=object)
        clock.stop("train")
    options = {"dtype": dtype, "sparse": sparse, "state": keep_state and best is estimator}
    written = write_model(model, best, clock, samples.layout, [data], **options)
    if checkpoint is not None and checkpoint.exists():
        if best.stop_reason_ == "interrupted":
            progress.say(f"{checkpoint} is kept: the same command with --resume goes on from it")
        else:
            checkpoint.unlink()
    print_result({**written, **outcome_of(best), "tried": tried}, as_json)


def _parse_grid(text: str | None, dev: str | None, checkpoint: Path | None) -> list[float]:
    """Values of C in ascending order: each fit starts from the one before."""
    if text is None:
        return []
    if dev is None:
        raise ValueError("--grid chooses by the score on held-out data: pass --dev FILE.")
    if checkpoint is not None:
        raise ValueError("--checkpoint keeps one fit and --grid makes several: use one of them.")
    name, _, values = text.partition("=")
    found = split_numbers(values if name.strip() == "C" else text, "--grid: expected C=0.01,0.1,1")
    with blame("--grid"):
        for C in found:
            positive("C", C, infinite=True)
    return found


def parse_number(text: str | None, kind: type[int] | type[float]) -> Any:
    """A number, or a word; what is neither is refused with the other parameters."""
    with suppress(ValueError):
        return None if text is None else kind(text)
    return text


def parse_C(text: str) -> float | str:
    """A number or a word that stands for one."""
    value: float | str = parse_number(text, float)
    what = f"--C: must be a number, auto or scale, got {text!r}."
    require(not isinstance(value, str) or value in ("auto", "scale"), what)
    return value


def _check_checkpoint(
    path: Path | None, every: float, resume: bool, model: str, data: str, dev: str | None
) -> None:
    """Refuse a file that is no checkpoint: it would be replaced, and removed at the end."""
    if resume and path is None:
        raise ValueError("--resume goes on from a checkpoint: pass --checkpoint FILE.")
    require(math.isfinite(every), f"--checkpoint-every: must be a number of seconds, got {every}.")
    if path is None:
        return
    check_target("--checkpoint", path, model, data, dev)
    if path.exists():
        try:
            kind = read_header(path)[0].get("kind")
        except (ModelFileError, OSError):
            kind = None
        what = f"--checkpoint: {path} exists and is not a checkpoint"
        require(kind == "checkpoint", f"{what}: name another file, or remove it.")


def make_encoder(
    format: str, template: Path | None, min_count: int | None, hash_bits: int | None
) -> TokenTemplates | DictEncoder | None:
    """What turns the tokens of a format into numbers; None where the file has numbers."""
    if format not in files.NAMED:
        return None
    if format not in files.WORDS:
        return DictEncoder(min_count=min_count or 1)
    if hash_bits is not None and (min_count or 1) > 1:
        what = "--min-count counts features by name, and --hash-bits keeps no names"
        raise ValueError(f"{what}: use one of them.")
    templates = "default"
    if template is not None:
        with open_text(template) as text:
            templates = "\n".join(line for _, line in text.lines())
    return TokenTemplates(templates, min_count=min_count or 1, hash_bits=hash_bits)


@dataclass
class _Fits:
    """Fits of one estimator on one file, for one C or for several."""

    progress: FitProgress
    estimator: Any
    samples: files.Samples
    held_out: files.Samples | None
    patience: int
    checkpoint: Checkpoint | None
    name: str

    def find_best(self, values: list[float], keep_state: bool) -> tuple[Any, list[dict[str, Any]]]:
        """Fit for every C, each from the solution before; the best model, and all tried."""
        tried: list[dict[str, Any]] = []
        best, highest = self.estimator, -1.0
        for C in values:
            tried.append(self._fit(C))
            if (score := tried[-1].get("dev", 0.0)) > highest:
                best, highest = copy.copy(self.estimator), score
            if interrupted := self.estimator.stop_reason_ == "interrupted":
                break
        if keep_state and best.C != self.estimator.C and not interrupted:
            self._fit(best.C)
        if best.C == self.estimator.C:  # only the last fit has its state
            best = self.estimator
        best.set_params(warm_start=False)
        return best, tried

    def _fit(self, C: float | str) -> dict[str, Any]:
        estimator, samples, held_out = self.estimator, self.samples, self.held_out
        estimator.set_params(C=C)
        callbacks: list[Any] = []
        if held_out is not None:
            stop = EarlyStopping(estimator, held_out.X, held_out.y, self.patience, self._score)
            callbacks.append(stop)
        if self.checkpoint is not None:
            callbacks += [self._say_resumed, self.checkpoint]
        name, value = ("C", C) if estimator.nu is None else ("nu", estimator.nu)
        title = f"training, {name}={value if isinstance(value, str) else format(value, 'g')}"
        learn = partial(estimator.fit, samples.X, samples.y)
        with blame(self.name):
            self.progress.fit(title, estimator, learn, callbacks)
        found = outcome_of(estimator)
        row: dict[str, Any] = {"C": found["C"], "relative_gap": found["relative_gap"]}
        if held_out is not None:
            row["dev"] = self._score(estimator, held_out.X, held_out.y)
            self.progress.say(f"C={estimator.C_:g}: {100 * row['dev']:.2f} % on the held-out data")
        return row

    def _say_resumed(self, state: PassState) -> None:
        kept = self.checkpoint
        if kept is not None and kept.resumed_ and state.row.passes == kept.resumed_ + 1:
            self.progress.say(f"went on after pass {kept.resumed_} of {kept.path}")

    def _score(self, estimator: Any, X: Any, y: Any) -> float:
        """Span F1 where labels are span tags, F1 of sets, else the share of labels predicted."""
        if self.samples.layout.kind == "multilabel":
            return files.score_sets(y, files.predict_sets(estimator, X)).example_f1
        if self.samples.layout.kind == "flat":
            return float(estimator.score(X, y))
        scores = evaluate(y, estimator.predict(X))
        return scores.token_accuracy if scores.span_f1 is None else scores.span_f1
