"""Fits of a command: options that become parameters, encoders, and one C after the other."""

import copy
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from hingeline import Checkpoint, EarlyStopping, PassState
from hingeline._checks import positive, require
from hingeline.cli import files
from hingeline.cli.app import blame, check_target, split_numbers
from hingeline.cli.progress import FitProgress, outcome_of
from hingeline.data.text import open_text
from hingeline.evaluation.metrics import attachment_scores, evaluate, multilabel_scores
from hingeline.features.dicts import DictEncoder
from hingeline.features.parts import SegmentTemplates
from hingeline.features.templates import TokenTemplates
from hingeline.modelfile.files import ModelFileError, read_header


def parse_grid(text: str | None, dev: str | None, checkpoint: Path | None) -> list[float]:
    """Values of C in ascending order: each fit starts from the one before."""
    if text is None:
        return []
    require(dev is not None, "--grid chooses by the score on held-out data: pass --dev FILE.")
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


def check_checkpoint(path: Path | None, every: float, resume: bool, *read: str | None) -> None:
    """Refuse a file that is no checkpoint: it would be replaced, and removed at the end."""
    if resume and path is None:
        raise ValueError("--resume goes on from a checkpoint: pass --checkpoint FILE.")
    require(math.isfinite(every), f"--checkpoint-every: must be a number of seconds, got {every}.")
    if path is None:
        return
    check_target("--checkpoint", path, *read)
    if path.exists():
        try:
            kind = read_header(path)[0].get("kind")
        except (ModelFileError, OSError):
            kind = None
        what = f"--checkpoint: {path} exists and is not a checkpoint"
        require(kind == "checkpoint", f"{what}: name another file, or remove it.")


def make_encoder(
    format: str, task: str, template: Path | None, min_count: int | None, hash_bits: int | None
) -> TokenTemplates | DictEncoder | None:
    """What turns the tokens of a format into numbers; None where the file has numbers."""
    if format not in files.NAMED or task == "dependencies":
        return None
    if format not in files.WORDS:
        return DictEncoder(min_count=min_count or 1)
    what = "--min-count counts features by name, and --hash-bits keeps no names"
    require(hash_bits is None or (min_count or 1) == 1, f"{what}: use one of them.")
    templates = "default"
    if template is not None:
        with open_text(template) as text:
            templates = "\n".join(line for _, line in text.lines())
    return TokenTemplates(templates, min_count=min_count or 1, hash_bits=hash_bits)


def read_lexicons(given: list[str]) -> SegmentTemplates:
    """Lists of phrases, each NAME=FILE with a phrase a line, as features of segments."""
    found: dict[str, set[str]] = {}
    for text in given:
        name, _, path = text.partition("=")
        require(name and path, f"--lexicon: expected NAME=FILE, got {text!r}.")
        with blame("--lexicon"), open_text(path) as file:
            found[name] = {" ".join(line.split()) for _, line in file.lines()} - {""}
        require(found[name], f"--lexicon: {path} is empty: write a phrase a line.")
    return SegmentTemplates(lexicon=found)


class _OnHeldOut(EarlyStopping):
    """Early stopping by a file that is read when it is first wanted."""

    def __init__(self, read: Callable[[], tuple[Any, Any]], *given: Any) -> None:
        super().__init__(given[0], None, None, *given[1:])
        self.read = read

    def __call__(self, state: PassState) -> None:
        self.X, self.y = self.read()
        super().__call__(state)


@dataclass
class Fits:
    """Fits of one estimator on the same data, for one C or for several."""

    progress: FitProgress
    estimator: Any
    learn: Callable[[], Any]
    kind: str
    held_out: Callable[[], tuple[Any, Any]] | None  # inputs and labels
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
        estimator, held_out = self.estimator, self.held_out
        estimator.set_params(C=C)
        callbacks: list[Any] = []
        if held_out is not None:
            callbacks.append(_OnHeldOut(held_out, estimator, self.patience, self._score))
        if self.checkpoint is not None:
            callbacks += [self._say_resumed, self.checkpoint]
        name, value = ("C", C) if estimator.nu is None else ("nu", estimator.nu)
        title = f"training, {name}={value if isinstance(value, str) else format(value, 'g')}"
        with blame(self.name):
            self.progress.fit(title, estimator, self.learn, callbacks)
        found = outcome_of(estimator)
        row: dict[str, Any] = {"C": found["C"], "relative_gap": found["relative_gap"]}
        if held_out is not None:
            row["dev"] = self._score(estimator, *held_out())
            self.progress.say(f"C={estimator.C_:g}: {100 * row['dev']:.2f} % on the held-out data")
        return row

    def _say_resumed(self, state: PassState) -> None:
        kept = self.checkpoint
        if kept is not None and kept.resumed_ and state.row.passes == kept.resumed_ + 1:
            self.progress.say(f"went on after pass {kept.resumed_} of {kept.path}")

    def _score(self, estimator: Any, X: Any, y: Any) -> float:
        """Span F1 where labels are span tags, F1 of sets, LAS, else the share of right labels."""
        return _score_labels(self.kind, y, _predict(self.kind, estimator, X))


def _predict(kind: str, estimator: Any, X: Any) -> Any:
    return files.predict_sets(estimator, X) if kind == "multilabel" else estimator.predict(X)


def _score_labels(kind: str, y: Any, found: Any) -> float:
    if kind == "multilabel":
        return float(multilabel_scores(y, np.asarray(found)).example_f1)
    if kind == "dependencies":
        return attachment_scores(y, found).las
    if kind == "flat":
        return float(np.mean(np.asarray(y) == np.asarray(found)))
    scores = evaluate(y, found)
    return scores.token_accuracy if scores.span_f1 is None else scores.span_f1


def cross_validate(
    progress: FitProgress,
    estimator: Any,
    features: Any,
    samples: files.Samples,
    n_folds: int,
    kind: str,
) -> tuple[float, list[Any]]:
    """Labels of every example by a model that has not seen it, and their score.

    ``estimator`` is copied, and so are ``features``, which learn from each part anew.
    """
    n = samples.n_sequences
    require(n_folds <= n, f"--cv: there are {n} examples, too few for {n_folds} parts.")
    order = np.random.default_rng(estimator.random_state).permutation(n)
    found: list[Any] = [None] * n
    for k in range(n_folds):
        title, out = f"part {k + 1} of {n_folds}", order[k::n_folds]
        rest = np.setdiff1d(order, out)
        X, X_out = (_safe_indexing(samples.X, rows) for rows in (rest, out))
        if features is not None:
            encoder = clone(features)
            with progress.during(title, "encoding"):
                X, X_out = encoder.fit_transform(X), encoder.transform(X_out)
        model = clone(estimator)
        learn = partial(model.fit, X, _safe_indexing(samples.y, rest))
        progress.fit(title, model, learn, interruptible=False)
        for i, labels in zip(out, _predict(kind, model, X_out), strict=True):
            found[i] = labels
    return _score_labels(kind, samples.y, found), found
