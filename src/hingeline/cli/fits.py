"""Fits of a command: encoders, one C after the other, what they show, and what they leave."""

import copy
import json
import math
import re
import shlex
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import _safe_indexing

from hingeline import Checkpoint, EarlyStopping, PassState
from hingeline._checks import positive, require
from hingeline._jit import COMPILING, count_compiling, working_time
from hingeline._words import bound_text, count_of
from hingeline.cli import files
from hingeline.cli.app import INTERRUPTED, blame, check_target, flag, name_options, split_numbers
from hingeline.core.loop import Reporter
from hingeline.core.results import finite, list_rows, relative
from hingeline.data.conll import plain_name
from hingeline.data.text import open_text
from hingeline.estimators.base import positive_part
from hingeline.evaluation.metrics import attachment_scores, evaluate, multilabel_scores
from hingeline.features.dicts import DictEncoder
from hingeline.features.segments import SegmentTemplates
from hingeline.features.tables import default_names
from hingeline.features.templates import TokenTemplates
from hingeline.modelfile.estimators import versions
from hingeline.modelfile.files import ModelFileError, read_header
from hingeline.schemes import explain_invalid, is_tag

Learn = Callable[[], Any]
#: Names of a column that are labels rather than what they are learnt from, letters only.
_LIKELY = re.compile(r"tags?|labels?|entity|bio|iob|ner(tags?)?|class|target")


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


def check_checkpoint(path: Path | None, every: float, resume: bool, *read: str | None) -> None:
    """Refuse a file that is no checkpoint: it would be replaced, and removed at the end."""
    require(path or not resume, "--resume continues from a checkpoint: pass --checkpoint FILE.")
    require(math.isfinite(every), f"--checkpoint-every: must be a number of seconds, got {every}.")
    if path is None:
        return
    check_target("--checkpoint", path, *read)
    if path.exists():
        kind = None
        with suppress(ModelFileError, OSError):
            kind = read_header(path)[0].get("kind")
        what = f"--checkpoint: {path} exists and is not a checkpoint"
        require(kind == "checkpoint", f"{what}: name another file, or remove it.")


def doubt_labels(samples: files.Samples, chosen: str | None, columns: str | None) -> Iterator[str]:
    """What speaks against the column of labels that was taken, the first line, or the sentences."""
    layout, table = samples.layout, samples.layout.format == "table"
    if layout.kind == "tokens" and samples.n_sequences == 1 < samples.n_tokens:
        how = "separate sentences by a blank line, or by a column named sentence"
        yield f"All words are one sentence: {how}."
    if not table and (layout.kind != "tokens" or layout.task == "dependencies"):
        return
    names = [*(layout.names or layout.columns), layout.label]
    likely = [name for name in names if _LIKELY.fullmatch(plain_name(name))]
    if chosen is None and likely and layout.label not in likely:
        yield f"The labels are the column {layout.label}: --label {likely[-1]} takes another."
    counts = Counter(samples.y.tolist() if table else chain.from_iterable(samples.y))
    distinct, n = set(counts), counts.total()
    named = columns is None and layout.names != [*default_names(len(layout.names))]
    if layout.format == "conll" and not named and counts[samples.y[0][0]] == 1:
        source = samples.source
        row = [values[codes[0]] for values, codes in zip(source.values, source.codes, strict=True)]
        if all(map(str.isidentifier, row)) and len(set(row)) == len(row) > 1:
            what = f"No other token has the label of the first line, {' '.join(row)}"
            yield f"{what}: if it names the columns, pass --columns {','.join(row)}."
    ask = f"is {layout.label} the column of the labels (--label)?"
    if len(distinct) == 1 < n:
        yield f"All labels are {distinct.pop()}: {ask}"
    elif len(distinct) > max(20 if table else 100, n // 10):
        yield f"There are {len(distinct):,} different labels: {ask}"


def check_scheme(file: files.File, samples: files.Samples, scheme: str | None) -> None:
    """Refuse words whose labels break the scheme they are to keep to, by file and line."""
    if scheme is None or scheme.lower() in ("auto", "none") or samples.layout.kind != "tokens":
        return
    for i, labels in enumerate(samples.y):
        if not all(map(is_tag, labels)):
            return  # which the estimator says
        for wrong in explain_invalid(labels, scheme)[:1]:
            what, at, rest = re.split(r" at token (\d+)", wrong, maxsplit=1)
            lines, first = files.find_lines(file, samples), int(samples.X.offsets[i])
            place = f"{file.path}, sentence {i + 1}"
            place = f"{file.path}:{lines[first + int(at)]}" if lines else place
            how = "Correct the line, or leave --scheme out."
            raise ValueError(f"{place}: {what}{rest.removesuffix('.')}. {how}")


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
        require(found[name], f"--lexicon: {path} is empty: write one phrase per line.")
    return SegmentTemplates(lexicon=found)


class FitProgress(Progress):
    """Progress on the standard error: bars of fits on a terminal, plain lines elsewhere."""

    def __init__(self, quiet: bool = False) -> None:
        console = Console(stderr=True)
        self.quiet = quiet
        bars = console.is_terminal and not console.is_dumb_terminal and not quiet
        columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=24)
        ends = TextColumn("{task.fields[state]}"), TimeElapsedColumn()
        super().__init__(*columns, *ends, console=console, disable=not bars)
        self.seconds: dict[str, float] = {}  # by phase, without those of compiling
        self.began, self.compiled = working_time(), COMPILING[0]

    def end_phase(self, phase: str) -> None:
        """Note how long a phase of the command took; the next one begins."""
        before, self.began = self.began, working_time()
        self.seconds[phase] = round(self.began - before, 3)

    def stop(self) -> None:
        """Take the bars away, where there are any."""
        if not self.disable:  # older versions of rich print an empty line otherwise
            super().stop()

    def say(self, line: str, always: bool = False) -> None:
        """Print a line above the bars; what is quiet says only what it ``always`` must."""
        if always or not self.quiet:
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def read(
        self, file: Any, encoder: Any, columns: Any, use: Any, label: Any, scheme: Any, task: str
    ) -> files.Samples:
        """A file to train on; what is doubtful in it is said, and what is wrong refused."""
        with self.during(file.path, "reading"):
            samples = files.read_training(file, columns, use, label, task)
        self.say(f"{file.path}: {samples.size_text()} ({file.format.name})")
        for doubt in doubt_labels(samples, label, columns):
            self.say(doubt)
        check_scheme(file, samples, scheme)
        if isinstance(encoder, TokenTemplates):
            with blame("--template"):  # a fault in it is not one of the data
                clone(encoder).fit(samples.X[:1])
        return samples

    def during(self, name: str, work: str) -> AbstractContextManager[None]:
        """Tell of work on a file, not of a fit; see :meth:`hingeline.core.loop.Reporter.during`."""
        return Reporter(name, 0 if self.quiet else None).during(work)

    def fit(
        self, title: str, estimator: Any, learn: Learn, callbacks: Any = (), keeps: bool = True
    ) -> float:
        """Call ``learn``, which fits the estimator, and show its progress.

        Returns the seconds it took, without those of compilation, as ``max_time`` counts them.
        Where Ctrl-C ends the fit, it keeps its best weights, or the command ends as well.
        """
        task = self.add_task(title, total=1.0, state="")
        watcher, verbose = _Watcher(self, title, task, estimator), estimator.verbose
        estimator.set_params(callbacks=[watcher, *callbacks], verbose=0)
        began = working_time()
        with self, count_compiling(lambda text: self.update(task, state=text)):
            try:
                with self.show_warnings():
                    learn()
            finally:
                estimator.set_params(callbacks=None, verbose=verbose)
            if estimator.stop_reason_ == "interrupted" and not keeps:
                raise KeyboardInterrupt
            seconds = working_time() - began
            found = outcome_of(estimator)
            gap = _gap_text(found["relative_gap"], found["restricted_gap"])
            ending = ", ".join(filter(None, (count_of(found["passes"], "pass", "passes"), gap)))
            title = _complete(title, estimator)
            self.update(task, description=title, completed=1.0, state=ending)
        self.remove_task(task)  # its bar stays on the screen
        if self.disable:
            self.say(f"{title}: {_reason(found)} after {seconds:.1f} s, {ending}")
        return seconds

    @contextmanager
    def show_warnings(self) -> Iterator[None]:
        """Say what the library warns of, but for convergence: the command shows the gap."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.showwarning = lambda m, *place: self.say(name_options(str(m)), always=True)
            yield


class _Watcher:
    """The callback that tells how far a fit has come, from the logarithm of its gap."""

    def __init__(self, progress: FitProgress, title: str, task: TaskID, estimator: Any) -> None:
        self.progress, self.title, self.task, self.tol = progress, title, task, estimator.tol
        self.estimator = estimator
        self.first, self.done, self.told = math.nan, 0.0, math.inf
        self.certified: tuple[float | None, float | None] = (None, None)

    def __call__(self, state: PassState) -> None:
        certified = finite(state.relative_gap), finite(state.restricted_gap)
        gap = next((gap for gap in certified if gap is not None), math.nan)
        news = self.tol < gap <= self.told / 2
        if not math.isnan(gap):
            self.certified = certified
        else:
            gap = state.row.estimate / max(abs(state.row.dual) + 0.5 * state.row.estimate, 1e-300)
        if math.isfinite(gap):
            if math.isnan(self.first):
                self.first = max(gap, 2.0 * self.tol)
            way = math.log(self.first / self.tol)
            self.done = max(self.done, 1.0 - math.log(max(gap / self.tol, 1.0)) / way)
        text = ", ".join(filter(None, (state.place, _gap_text(*self.certified))))
        if news:
            self.told = gap
        # The bar is full only once the fit is over.
        self.progress.update(self.task, completed=min(self.done, 0.99), state=text)
        if news and self.progress.disable:
            self.progress.say(f"{_complete(self.title, self.estimator)}: {text}")


def _complete(title: str, estimator: Any) -> str:
    """A title with the C that follows from the data, which the fit has found when it begins."""
    return f"{title}{estimator.C_:.4g}" if title.endswith("=") else title


def outcome_of(model: Any) -> dict[str, Any]:
    """How a fit ended, with the certified gap as a share of the primal, and C, or ν and ρ."""
    facts: dict[str, Any] = {"C": getattr(model, "C_", model.C)}
    if hasattr(model, "nu_"):
        risks = {n: getattr(model, f"{n}_") for n in ("margin_error_risk", "support_vector_risk")}
        facts = {"C": finite(model.C_), "nu": model.nu_, "rho": model.rho_, **risks}
    if hasattr(model, "nu_path_"):
        facts["nu_tried"] = list_rows(model.nu_path_)
    gap = finite(relative(model.duality_gap_, positive_part(model)))
    restricted = finite(relative(model.restricted_gap_, model.restricted_objective_))
    facts |= {"relative_gap": gap, "restricted_gap": restricted, "converged": model.converged_}
    return facts | {"stop_reason": model.stop_reason_, "passes": model.n_iter_}


def write_model(
    path: Path,
    estimator: Any,
    progress: FitProgress,
    layout: Any,
    data: Any,
    metadata: Any,
    **how: Any,
) -> dict[str, Any]:
    """Write a model and where it came from; what results begin with."""
    command = shlex.join(["hingeline", *sys.argv[1:]])
    facts = {"layout": asdict(layout), "command": command, "data": data}
    facts |= {"created": datetime.now(UTC).isoformat(timespec="seconds"), "versions": versions()}
    with blame("--model"):
        written = estimator.save(path, metadata=facts | metadata, **how)
    progress.end_phase("write")
    compiled = COMPILING[0] - progress.compiled
    if compiled >= 1.0:  # or they were on disk, and loaded
        progress.seconds["compile"] = round(compiled, 3)
    return {"model": str(path), "bytes": written["bytes"], "seconds": progress.seconds}


def print_result(result: dict[str, Any], as_json: bool) -> None:
    """Print the outcome in a line, or as JSON; exit code 130 where Ctrl-C ended the fit."""
    reason = result["stop_reason"]
    if as_json:
        typer.echo(json.dumps(result))
    else:
        balance = "C is infinite" if result["C"] is None else f"C={result['C']:.4g}"
        if "C_u" in result:
            balance += f", C_u={result['C_u']:g}"
        if "nu" in result:
            balance = f"nu={result['nu']:g} ({balance}, rho={result['rho']:.4g})"
        if "cv" in result:
            balance += f", {result['score']} {100 * result['cv']:.2f} % in cross-validation"
        seconds = ", ".join(f"{name} {value:.1f} s" for name, value in result["seconds"].items())
        size = result["bytes"] / 1e3
        size = f"{size:.0f} kB" if size < 1000 else f"{size / 1e3:.1f} MB"
        typer.echo(f"{result['model']}: {balance}, {_bound_text(result)}; {seconds}; {size}")
        if reason.startswith(("max_iter", "max_time")) and "C_u" not in result:
            remedies = "raise --max-iter or --max-time, lower -C, or scale the features"
            typer.echo(f"The gap is still above --tol: {remedies} (tables: --scale).", err=True)
    if reason == "interrupted":
        raise typer.Exit(INTERRUPTED)


def _reason(result: dict[str, Any]) -> str:
    """Why a fit ended, in the words of the command line."""
    reason: str = result["stop_reason"]
    limits = [name for name in ("max_iter", "max_time") if reason.startswith(name)]
    return f"stopped by {flag(limits[0])}" if limits else reason


def _bound_text(result: dict[str, Any]) -> str:
    reason = _reason(result)
    if "why_no_gap" in result:
        return f"no certificate (not convex{', interrupted' * (reason == 'interrupted')})"
    gap = _gap_text(result["relative_gap"], result["restricted_gap"])
    certified = "certified " if result["restricted_gap"] is None else ""
    bound = f"{certified}{gap}" if gap else "no certificate"
    return f"{bound} ({reason}, {count_of(result['passes'], 'pass', 'passes')})"


def _gap_text(gap: float | None, found: float | None) -> str:
    """The gap in words, saying where it is only that over the outputs found."""
    if found is not None:
        return f"gap over the outputs found {bound_text(found)}"
    return "" if gap is None else f"gap {bound_text(gap)}"


def find_best(
    progress: FitProgress,
    estimator: Any,
    learn: Learn,
    values: Sequence[float | str],
    score: Callable[..., tuple[float, str]] | None,
    patience: int | None,
    checkpoint: Checkpoint | None,
    keep_state: bool,
    name: str,
) -> tuple[Any, list[dict[str, Any]]]:
    """Fit for every C, each from the solution before; the best model, and all tried."""

    def say_resumed(state: PassState) -> None:
        if checkpoint and checkpoint.resumed_ and state.row.passes == checkpoint.resumed_ + 1:
            progress.say(f"resumed after pass {checkpoint.resumed_} of {checkpoint.path}")

    def fit(C: float | str) -> dict[str, Any]:
        estimator.set_params(C=C)
        callbacks: list[Any] = [] if checkpoint is None else [say_resumed, checkpoint]
        if score is not None and patience is not None:
            judge: Any = lambda *known: score(*known)[0]  # noqa: E731
            callbacks.insert(0, EarlyStopping(estimator, None, None, patience, judge))
        what, value = ("C", C) if estimator.nu is None else ("nu", estimator.nu)
        told = value if isinstance(value, str) else f"{value:.4g}"
        title = f"training, {what}={'' if told == 'scale' else told}"
        with blame(name):
            progress.fit(title, estimator, learn, callbacks)
        found = outcome_of(estimator)
        row: dict[str, Any] = {"C": found["C"], "relative_gap": found["relative_gap"]}
        if score is not None:
            row["dev"], what = score(estimator)
            told = f"{what} {100 * row['dev']:.2f} %"
            progress.say(f"C={estimator.C_:.4g}: {told} on the held-out data")
        return row

    tried: list[dict[str, Any]] = []
    best, highest = estimator, -1.0
    for C in values:
        tried.append(fit(C))
        if (found := tried[-1].get("dev", 0.0)) > highest:
            best, highest = copy.copy(estimator), found
        if interrupted := estimator.stop_reason_ == "interrupted":
            break
    if keep_state and best.C != estimator.C and not interrupted:
        fit(best.C)
    if best.C == estimator.C:  # only the last fit has its state
        best = estimator
    best.set_params(warm_start=False)
    return best, tried


def score_labels(kind: str, y: Any, found: Any) -> tuple[float, str]:
    """Span F1 where labels are span tags, F1 of sets, LAS, else the share of right labels."""
    if kind == "multilabel":
        return float(multilabel_scores(y, np.asarray(found)).example_f1), "F1 of an example"
    if kind == "dependencies":
        return attachment_scores(y, found).las, "LAS"
    if kind == "flat":
        return float(np.mean(np.asarray(y) == np.asarray(found))), "accuracy"
    scores = evaluate(y, found)
    if scores.span_f1 is None:
        return scores.token_accuracy, "token accuracy"
    return scores.span_f1, "span F1"


def cross_validate(
    progress: FitProgress, base: Any, samples: files.Samples, parts: int, kind: str
) -> tuple[tuple[float, str], list[Any]]:
    """Labels of every example by a copy of the model that has not seen it, and their score."""
    n = samples.n_sequences
    require(parts <= n, f"{n} examples are too few for --cv {parts}: use fewer parts.")
    order = np.random.default_rng(base.random_state).permutation(n)
    found: list[Any] = [None] * n
    for k in range(parts):
        title, out = f"part {k + 1} of {parts}", order[k::parts]
        rest = np.setdiff1d(order, out)
        X, X_out = (_safe_indexing(samples.X, rows) for rows in (rest, out))
        model = clone(base)
        learn = partial(model.fit, X, _safe_indexing(samples.y, rest))
        progress.fit(title, model, learn, keeps=False)
        for i, labels in zip(out, files.predict(model, X_out), strict=True):
            found[i] = labels
    return score_labels(kind, samples.y, found), found
