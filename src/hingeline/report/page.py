"""The report: one HTML page that needs nothing but itself."""

from __future__ import annotations

import numbers
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted

from hingeline._files import check_target
from hingeline.evaluation.metrics import Evaluation
from hingeline.modelfile import replacing
from hingeline.report.convergence import convergence_section
from hingeline.report.errors import errors_section
from hingeline.report.facts import Facts, facts_of
from hingeline.report.markup import text
from hingeline.report.outcome import Outcome, compare
from hingeline.report.overview import certificate_words, overview_section, training_time
from hingeline.report.provenance import provenance_section
from hingeline.report.scores import evaluation_section
from hingeline.report.style import STYLE
from hingeline.report.weights import weights_section
from hingeline.report.words import SPACE, counted, fixed, percent

#: Endings of the names of reports.
FORMATS = ("html", "htm")

# Should any text slip through unescaped, a browser still neither runs nor fetches anything.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def write_report(
    path: str | os.PathLike[str],
    model: Any,
    *,
    evaluation: Evaluation | None = None,
    y_true: Any = None,
    y_pred: Any = None,
    tokens: Any = None,
    command: str | Sequence[str] | None = None,
    data: Any = None,
    date: Any = None,
    title: str | None = None,
    n_errors: int = 20,
    n_features: int = 15,
    feature_names: Sequence[str] | None = None,
) -> Path:
    """Write a report of a fitted model: one HTML page, complete in itself.

    The page has no scripts and fetches nothing. It holds what the arguments give: the model and
    its certificate always; scores, confusions and the most costly errors with ``evaluation`` or
    ``y_true`` and ``y_pred``; the command and hashes of the data files if they are given. The
    same arguments give the same bytes.

    Parameters
    ----------
    path : path
        Ends in ``.html`` or ``.htm``. The file appears whole or not at all.
    model : fitted ChainSSVM, MulticlassSSVM or SSVM
    evaluation : Evaluation, optional
        What :func:`hingeline.evaluation.metrics.evaluate` returned; the default is made from
        ``y_true`` and ``y_pred`` if they are given, without intervals.
    y_true, y_pred : list of label sequences, or of labels for a MulticlassSSVM, optional
        True outputs, and those that the model predicts.
    tokens : list of lists of str, or of str for a MulticlassSSVM, optional
        What the labels are of; without it errors are shown by position.
    command : str or list of str, optional
        The command that made the model.
    data : path, list of paths, or dict, optional
        Data files, which are read to hash them. A dict maps a role, say ``"training"``, to a
        path, or to ``{"name": ..., "sha256": ...}`` where the file is not at hand.
    date : str or date, optional
        Shown as it is; without it the page has no date.
    title : str, optional
    n_errors : int, default=20
        Most errors shown.
    n_features : int, default=15
        Features shown for and against each label.
    feature_names : sequence of str, optional
        One per feature; the default is the model's own names, or x0, x1, ... where it has none.

    Returns
    -------
    Path
        ``path``.

    Examples
    --------
    >>> write_report(                                                      # doctest: +SKIP
    ...     "report.html", tagger, y_true=y_test, y_pred=tagger.predict(X_test), tokens=words
    ... )
    """
    target = check_target(path, FORMATS)
    page = render_report(
        model,
        evaluation=evaluation,
        y_true=y_true,
        y_pred=y_pred,
        tokens=tokens,
        command=command,
        data=data,
        date=date,
        title=title,
        n_errors=n_errors,
        n_features=n_features,
        feature_names=feature_names,
    )
    with replacing(target) as file:
        file.write(page.encode("utf-8"))
    return Path(path)


def render_report(
    model: Any,
    *,
    evaluation: Evaluation | None = None,
    y_true: Any = None,
    y_pred: Any = None,
    tokens: Any = None,
    command: str | Sequence[str] | None = None,
    data: Any = None,
    date: Any = None,
    title: str | None = None,
    n_errors: int = 20,
    n_features: int = 15,
    feature_names: Sequence[str] | None = None,
) -> str:
    """The page that :func:`write_report` writes, as text.

    Parameters
    ----------
    model, evaluation, y_true, y_pred, tokens, command, data, date, title, n_errors, n_features,
    feature_names : as for :func:`write_report`
    """
    _check(model, n_errors, n_features)
    facts = facts_of(model)
    outcome = compare(model, evaluation, y_true, y_pred, tokens)
    sections = [
        ("model", "Model", overview_section(model, facts)),
        ("convergence", "Convergence", convergence_section(facts)),
        ("evaluation", "Evaluation", evaluation_section(outcome) if outcome else ""),
        ("errors", "Errors", errors_section(outcome, n_errors) if outcome else ""),
        ("weights", "Weights", weights_section(model, n_features, feature_names)),
        ("provenance", "Provenance", provenance_section(model, command, data, date)),
    ]
    shown = [entry for entry in sections if entry[2]]
    links = "\n".join(f'<li><a href="#{name}">{word}</a></li>' for name, word, _ in shown)
    kind = type(model).__name__
    heading = text(f"{kind} report" if title is None else title)
    body = "\n".join(html for _, _, html in shown)
    return f"""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="Hingeline">
<link rel="icon" href="data:,">
<title>{heading}</title>
<style>
{STYLE}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<header>
<p class="over">Hingeline · {text(kind)}</p>
<h1><bdi>{heading}</bdi></h1>
<p class="size">{_size(model)}</p>
{_figures(facts, outcome)}
</header>
<nav aria-label="Contents">
<ul>
{links}
</ul>
</nav>
<main id="main">
{body}
</main>
<footer><p>Made by Hingeline. This page needs no network and runs no scripts.</p></footer>
</body>
</html>
"""


def _check(model: Any, n_errors: Any, n_features: Any) -> None:
    for name, value in (("n_errors", n_errors), ("n_features", n_features)):
        if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < 0:
            raise ValueError(f"{name} must be a whole number of at least 0, got {value!r}.")
    if not hasattr(model, "solver_options"):
        raise TypeError(
            f"a report is of a ChainSSVM, MulticlassSSVM or SSVM, got {type(model).__name__}: of "
            "a pipeline pass the last step."
        )
    check_is_fitted(model, "weights_")


def _size(model: Any) -> str:
    parts = []
    if hasattr(model, "classes_"):
        parts.append(counted(len(model.classes_), "class", "classes"))
    if hasattr(model, "n_features_in_"):
        parts.append(counted(int(model.n_features_in_), "feature"))
    if hasattr(model, "structure"):
        parts.append(f"structure {text(type(model.structure).__name__)}")
        parts.append(counted(len(model.weights_), "weight"))
    return ", ".join(parts)


def _figures(facts: Facts, outcome: Outcome | None) -> str:
    """The few figures that matter most."""
    figures = []
    found = None if outcome is None else outcome.evaluation
    if found is not None:
        if found.spans is not None:
            figures.append(("span F1", percent(found.spans.micro.f1), _interval(found, "span_f1")))
        single = outcome is not None and outcome.single
        name = "accuracy" if single else "token accuracy"
        what = f"of {counted(found.n_tokens, 'example' if single else 'token')}"
        interval = _interval(found, "token_accuracy")
        figures.append((name, percent(found.token_accuracy), interval or what))
    bound, _ = certificate_words(facts)
    figures.append(("above the optimum", bound, "certified" if bound != "no bound" else ""))
    passes = counted(facts.n_iter, "pass", "passes") if facts.n_iter else ""
    figures.append(("training time", training_time(facts), passes))
    items = "\n".join(
        f"<div><dt>{name}</dt><dd>{value}</dd>" + (f"<dd>{note}</dd>" if note else "") + "</div>"
        for name, value, note in figures
    )
    return f'<dl class="figures">\n{items}\n</dl>'


def _interval(found: Evaluation, name: str) -> str:
    if name not in found.intervals:
        return ""
    low, high = found.intervals[name]
    return f"{fixed(100 * low, 2)} to {fixed(100 * high, 2)} (95{SPACE}%)"
