"""What the model is: certificate in words, parameters, classes."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np

from hingeline.core.results import relative
from hingeline.report.facts import Facts
from hingeline.report.markup import isolated, pairs, paragraph, section, table, text
from hingeline.report.words import SPACE, count, counted, percent_at_most, seconds, significant

#: Most classes that are listed.
MOST_CLASSES = 100


def certificate_words(facts: Facts) -> tuple[str, str]:
    """How far the weights are from the optimum: a figure, and a sentence.

    The gap ``P − D`` bounds how far the objective P is above the optimum, which is at least D; so
    the share of the optimum is at most ``(P − D)/D``. The model's own relative gap, which ``tol``
    is compared with, is a share of P and a little smaller.
    """
    if math.isnan(facts.gap):
        if not facts.exact:
            return "no bound", (
                "No gap is certified: the structure's decoding is not exact, so nothing bounds "
                "the optimum."
            )
        if not math.isnan(facts.restricted_gap):
            share = percent_at_most(relative(facts.restricted_gap, facts.restricted))
            return "no bound", (
                "No gap of the whole problem is certified, because its slack is a sum over more "
                f"outputs than can be listed. Over the outputs found, {share} of the objective "
                "are left to gain at most."
            )
        return "no bound", f"No gap is certified: {facts.reason}."
    if math.isinf(facts.primal):
        return "no bound", (
            "No gap is certified: no weights were found that keep every margin, as C = ∞ demands."
        )
    if facts.gap <= 0.0:
        return f"0{SPACE}%", "The objective is certified to be the optimum, up to rounding."
    dual = facts.primal - facts.gap
    if dual <= 0.0:
        return "no bound", (
            f"The optimum is certified to be at most {significant(facts.primal)}, but nothing "
            "above zero bounds it from below yet."
        )
    most = percent_at_most(facts.gap / dual)
    return f"≤{SPACE}{most}", f"The objective is certified to be at most {most} above the optimum."


def stop_words(facts: Facts) -> str:
    """Why the fit ended."""
    return {
        "converged": "converged: the certified gap is within tol",
        "interrupted": "interrupted; the best weights so far were kept",
    }.get(facts.reason, facts.reason)


def training_time(facts: Facts) -> str:
    """Seconds of the last row of the history."""
    last = facts.history[-1].time if facts.history else math.nan
    return seconds(last) if 0.0 <= last < math.inf else "not recorded"


def overview_section(model: Any, facts: Facts) -> str:
    """Certificate, parameters and classes."""
    _, sentence = certificate_words(facts)
    told = math.isnan(facts.gap) and facts.exact  # the sentence has said why
    if not facts.converged and not told:
        sentence += f" The fit did not converge ({stop_words(facts)})."
    return section(
        "model",
        "Model",
        paragraph(text(sentence, None), "lead"),
        '<div class="columns">',
        _certificate(model, facts),
        _parameters(model),
        "</div>",
        _classes(model),
    )


def _certificate(model: Any, facts: Facts) -> str:
    share = facts.relative_gap
    shown = f"{significant(100 * share, 3)}{SPACE}%"
    restricted = []
    if not math.isnan(facts.restricted_gap):
        restricted = [
            ("primal over the outputs found", significant(facts.restricted, 6)),
            ("gap over the outputs found", significant(facts.restricted_gap, 3)),
        ]
    rows = [
        ("stopped", text(stop_words(facts), None)),
        ("primal objective", significant(facts.primal, 6)),
        ("dual objective", significant(facts.dual, 6)),
        ("gap", significant(facts.gap, 3)),
        *restricted,
        ("relative gap", f"{shown} of the primal" if math.isfinite(share) else "none"),
        ("time", training_time(facts)),
        ("passes", count(facts.n_iter) if facts.n_iter else "none"),
    ]
    if facts.history:
        last = facts.history[-1]
        rows += [("decodes", count(last.oracle_calls)), ("planes", count(last.planes))]
    weights = np.asarray(model.weights_)
    rows.append(("weights that are not 0", count(int(np.count_nonzero(weights)))))
    rows.append(("length of the weights ‖w‖", significant(float(np.linalg.norm(weights)), 4)))
    return pairs("Certificate", rows)


def _parameters(model: Any) -> str:
    defaults = type(model)().get_params(deep=False)
    rows = []
    for name, value in model.get_params(deep=False).items():
        shown, usual = value_text(value), value_text(defaults[name])
        if shown == usual:
            rows.append([text(name), shown, ""])
        else:
            rows.append([text(name), f"<strong>{shown}</strong>", usual])
    return table("Parameters", ("parameter", "value", "default"), rows, words=(0, 1, 2))


def value_text(value: Any) -> str:
    """A parameter as text that says the same on every machine."""
    return text(_plain(value), 120)


def _plain(value: Any) -> str:
    if value is None or isinstance(value, (bool, str, np.bool_)):
        return repr(value.item() if isinstance(value, np.generic) else value)
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real):
        return f"{float(value):g}" if float(f"{float(value):g}") == value else repr(float(value))
    if isinstance(value, np.ndarray):
        return f"array of shape {value.shape}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_plain(k)}: {_plain(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        inside = ", ".join(map(_plain, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    # The repr of other objects may hold addresses.
    return getattr(value, "__name__", None) or type(value).__name__


def _classes(model: Any) -> str:
    if not hasattr(model, "classes_"):
        return ""
    labels = model.classes_.tolist()
    items = "".join(f"<li>{isolated(label)}</li>" for label in labels[:MOST_CLASSES])
    more = len(labels) - MOST_CLASSES
    rest = f"<li>and {count(more)} more</li>" if more > 0 else ""
    scheme = getattr(model, "scheme_", None)
    kept = f"; predictions keep to {text(scheme)}" if scheme else ""
    head = f"<h3>{counted(len(labels), 'class', 'classes')}{kept}</h3>"
    return f'{head}<ul class="chips">{items}{rest}</ul>'
