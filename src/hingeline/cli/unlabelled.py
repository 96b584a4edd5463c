"""``hingeline train --unlabelled``: few labels, text without them, and constraints on it."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import typer
from sklearn.exceptions import ConvergenceWarning

from hingeline import ChainSSVM, SemiSupervisedSSVM
from hingeline.cli.annealed import WHY_NO_GAP, choice_words
from hingeline.cli.app import INTERRUPTED, CommandError, blaming
from hingeline.cli.checks import check_files, check_params
from hingeline.cli.constraints import check_words, read_constraints, unknown_labels, unknown_words
from hingeline.cli.encoders import attach_encoder, make_encoder
from hingeline.cli.progress import FitProgress
from hingeline.cli.results import Clock, finite, metadata_of, print_annealed
from hingeline.cli.samples import file_hash, read_like, read_training
from hingeline.cli.update import given
from hingeline.features.tables import TokenTable
from hingeline.semisupervised.annealing import AnnealingStep

_ONE_FIT = "it is about one fit, and annealing makes many"
_ADDING = "it adds labelled data to a model that is there"
#: Options of ``train`` that annealing has no use for: why, and values that are fine all the same.
_REFUSED: dict[str, tuple[str, tuple[str, ...]]] = {
    "update": (_ADDING, ()),
    "passes": (_ADDING, ()),
    "memory": (_ADDING, ()),
    "edges": ("it is for sets of labels", ()),
    "grid": ("choose C on labelled data first", ()),
    "nu": ("label switching knows --slack max only", ()),
    "slack": ("label switching knows --slack max only", ("max",)),
    "rescale": ("label switching knows --rescale margin only", ("margin",)),
    "violators": ("label switching knows --slack max only", ()),
    "solver": ("only sdm starts from the solution of the step before", ("auto", "sdm")),
    "checkpoint": (_ONE_FIT, ()),
    "checkpoint_every": (_ONE_FIT, ()),
    "resume": (_ONE_FIT, ()),
    "max_time": (f"{_ONE_FIT}; Ctrl-C keeps the best step so far", ()),
    "patience": ("--dev chooses a step, and every step runs to --tol", ()),
    "keep_state": ("labels that were found are no data to add to", ()),
}


def refuse_without(**values: Any) -> None:
    """Refuse options about unlabelled text where there is none."""
    for name, value in values.items():
        if value is not None:
            raise CommandError(f"--{name} is for unlabelled text: pass --unlabelled FILE.")


def refuse_with(context: typer.Context) -> None:
    """Refuse options that have no meaning, or another one, with unlabelled text."""
    there = given(context)
    for name, (reason, fine) in _REFUSED.items():
        if name in there and context.params[name] not in fine:
            raise CommandError(
                f"--{name.replace('_', '-')} does not go with --unlabelled: {reason}."
            )


def parse_schedule(text: str | None) -> list[float] | None:
    """Values of C_u in ascending order, None for the default."""
    if text is None:
        return None
    try:
        return sorted({float(value) for value in text.split(",")})
    except ValueError:
        raise CommandError(
            f"--unlabelled-C: expected 0.01,0.1,1 or the like, got {text!r}."
        ) from None


class _Told(SemiSupervisedSSVM):
    """Shows every step in a row of a table."""

    progress: FitProgress

    def _report(self, number: int, step: AnnealingStep) -> None:
        if number == 0:
            self.progress.say(_row("C_u", "objective", "violations", "dev", "seconds"))
        dev = "" if math.isnan(step.dev_score) else f"{100 * step.dev_score:.2f} %"
        self.progress.say(
            _row(
                f"{step.C_u:g}",
                f"{step.objective:.6g}",
                f"{step.violations:.6g}",
                dev,
                f"{step.time:.1f}",
            )
        )


def _row(C_u: str, objective: str, violations: str, dev: str, seconds: str) -> str:
    return f"{C_u:>8}  {objective:>11}  {violations:>11}  {dev:>8}  {seconds:>7}"


def train_with_unlabelled(
    data: str,
    model: Path,
    unlabelled: list[str],
    constraints: str | None,
    *,
    schedule: list[float] | None,
    select: str | None,
    dev: str | None,
    columns: tuple[str, list[str] | None, list[str] | None, str | None],
    features: tuple[Path | None, int | None, int | None],
    params: dict[str, Any],
    scheme: str | None,
    dtype: str,
    sparse: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Learn from a labelled file and unlabelled ones, and write a model.

    Parameters
    ----------
    columns : tuple
        Format, names, columns to use and column of the label, as for ``read_training``.
    features : tuple
        Template, smallest count and bits, as for ``make_encoder``.
    """
    _check_files(data, dev, model, unlabelled)
    check_params(params, [], scheme, dtype)
    base = ChainSSVM(**params, scheme=scheme)
    estimator = _Told(base, C_u=schedule, select=select, random_state=params["random_state"])
    if select == "dev" and dev is None:
        raise CommandError("--select dev chooses by the score on held-out data: pass --dev FILE.")
    if constraints is None and (select == "violations" or (select is None and dev is None)):
        raise CommandError(
            "--unlabelled without --constraints leaves no violations to choose a step by: pass "
            "--constraints FILE or --dev FILE."
        )
    with blaming():
        _, rule = estimator._checked(None if dev is None else (None, None))
    seconds: dict[str, float] = {}
    clock = Clock(seconds)
    with FitProgress(quiet or as_json) as progress:
        samples = read_training(data, *columns)
        check_words(samples, "--unlabelled")
        progress.say(f"{data}: {samples.about()} ({samples.layout.format})")
        others = [read_like(name, samples.layout, None) for name in unlabelled]
        for name, other in zip(unlabelled, others, strict=True):
            note = "unlabelled" if other.y is None else "its labels are not read"
            progress.say(f"{name}: {other.about()} ({note})")
        known = [] if constraints is None else read_constraints(constraints, samples.y)
        counts = Counter(label for labels in samples.y for label in labels)
        unknown = unknown_labels(known, counts)
        if constraints is not None:
            progress.say(f"{constraints}: {_count(len(known), 'constraint')}")
            if unknown:
                progress.say(unknown_words(constraints, unknown, data))
        held_out = None if dev is None else read_like(dev, samples.layout, None)
        if held_out is not None and held_out.y is None:
            raise CommandError(f"--dev: {dev} has no labels to compare with.")
        clock.took("read")
        encoder = make_encoder(samples, *features)
        assert encoder is not None  # there are words
        words = _stacked([samples.X, *(other.X for other in others)])
        with blaming(data):
            X = encoder.fit_transform(words)
        pair = None if held_out is None else (encoder.transform(held_out.X), held_out.y)
        clock.took("encode")
        progress.say(f"{X.matrix.shape[1]:,} features in {seconds['encode']:.1f} s")
        estimator.set_params(constraints=known, verbose=0 if progress.quiet else 1)
        estimator.progress = progress
        y = [*samples.y, *[None] * (len(words) - len(samples.y))]
        with blaming(data):
            _fit(progress, estimator, X, y, words, pair)
        clock.took("train")
        progress.say(f"chosen: {choice_words(estimator.steps_, estimator.selected_, rule)}")
    attach_encoder(estimator.base_, encoder)
    metadata = metadata_of(samples.layout, [_source(name) for name in (data, *unlabelled)])
    metadata["unlabelled"] = {
        "sequences": sum(other.n_sequences for other in others),
        "tokens": sum(other.n_tokens for other in others),
        "files": [Path(name).name for name in unlabelled],
    }
    metadata["constraints"] = {
        **({} if constraints is None else _source(constraints)),
        "titles": [constraint.title for constraint in known],
    }
    metadata["select"] = rule
    metadata["label_counts"] = dict(counts)
    with blaming("--model"):
        written = estimator.save(model, dtype=dtype, sparse=sparse, metadata=metadata)
    clock.took("write")
    interrupted = estimator.stop_reason_ == "interrupted"
    print_annealed(
        {
            "model": str(model),
            "bytes": written["bytes"],
            "C": float(base.C),
            "C_u": estimator.steps_[estimator.selected_].C_u,
            "relative_gap": None,
            "restricted_gap": None,
            "why_no_gap": WHY_NO_GAP,
            "converged": estimator.base_.converged_,
            "stop_reason": "interrupted" if interrupted else estimator.base_.stop_reason_,
            "passes": estimator.base_.n_iter_,
            "unlabelled": metadata["unlabelled"],
            "constraints": metadata["constraints"],
            "unknown_labels": unknown,
            "select": rule,
            "selected": estimator.selected_,
            "steps": [_plain(step) for step in estimator.steps_],
            "seconds": {name: round(value, 3) for name, value in seconds.items()},
        },
        as_json,
    )
    if interrupted:
        raise typer.Exit(INTERRUPTED)


def _check_files(data: str, dev: str | None, model: Path, unlabelled: list[str]) -> None:
    check_files(data, dev, model, None)
    if [data, dev, *unlabelled].count("-") > 1:
        raise CommandError("--unlabelled: the standard input cannot be read twice: name a file.")
    if model.resolve() in [Path(name).resolve() for name in unlabelled]:
        raise CommandError(f"--model: {model} is the file to learn from: name another file.")


def _stacked(tables: list[TokenTable]) -> TokenTable:
    """The sentences of several tables of the same columns."""
    columns = {
        name: [value for table in tables for value in table.column(name).tolist()]
        for name in tables[0].names
    }
    lengths = np.concatenate([table.lengths for table in tables])
    return TokenTable.from_columns(columns, np.append(0, np.cumsum(lengths)))


def _fit(
    progress: FitProgress, estimator: _Told, X: Any, y: Any, words: TokenTable, dev: Any
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "constraints name labels")  # said before, by file
        warnings.showwarning = lambda message, *place: progress.say(str(message))
        estimator.fit(X, y, words=words, dev=dev)


def _source(name: str) -> dict[str, Any]:
    return {"name": Path(name).name, "sha256": file_hash(name)}


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _plain(step: AnnealingStep) -> dict[str, Any]:
    return {k: finite(v) if isinstance(v, float) else v for k, v in step._asdict().items()}
