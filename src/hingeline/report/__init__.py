"""Pictures of fitted models, and the report: one HTML page that needs nothing but itself."""

import base64
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted

from hingeline._checks import whole_number
from hingeline._files import check_target, replacing
from hingeline._words import SPACE, count_of, decimal, percent, reveal, show
from hingeline.evaluation.metrics import Evaluation, multilabel_scores
from hingeline.report import errors, sections
from hingeline.report import outcome as outcomes
from hingeline.report.figures import (
    label_affinities,
    plot_affinities,
    plot_curve,
    plot_path,
    plot_reliability,
    plot_segmentation,
)
from hingeline.report.parses import draw_parse

__all__ = [
    "draw_parse", "label_affinities", "plot_affinities", "plot_curve", "plot_path",
    "plot_reliability", "plot_segmentation", "render_report", "write_report",
]  # fmt: skip

FORMATS = ("html", "htm")  # Endings of the names of reports.


def write_report(path: str | os.PathLike[str], model: Any, **details: Any) -> Path:
    """Write a report of a fitted model: one self-contained HTML page.

    The path must end in ``.html`` or ``.htm``; the file is written atomically. The other
    parameters are those of :func:`render_report`.

    Examples
    --------
    >>> from hingeline import ChainSSVM
    >>> from hingeline.data import load_notes
    >>> notes = load_notes(40, 20)
    >>> tagger = ChainSSVM(random_state=0).fit(notes.X_train, notes.y_train)
    >>> found = tagger.predict(notes.X_test)
    >>> write_report("r.html", tagger, y_true=notes.y_test, y_pred=found, tokens=notes.X_test).name
    'r.html'
    """
    target = check_target(path, FORMATS)
    page = render_report(model, **details)
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
    regions: Any = None,
    images: Any = None,
    compare: Any = None,
    probability: Any = None,
    margin: Any = None,
    seen: Any = None,
) -> str:
    """The page that :func:`write_report` writes, as text.

    The page fetches nothing; its only script filters errors and opens folded sections. It always
    shows the model and its certificate; with ``evaluation``, or ``y_true`` and ``y_pred``, also
    scores, confusions and the most costly errors; and the command and hashes of the data files if
    they are given. The same arguments give the same bytes. It needs Jinja2 and matplotlib
    (``hingeline[plot]``).

    Parameters
    ----------
    model : fitted estimator of Hingeline
    evaluation : Evaluation, as :func:`hingeline.evaluation.metrics.evaluate` returns it; default:
        made from ``y_true`` and ``y_pred`` if they are given, without intervals
    y_true, y_pred : list of label sequences, optional
        True outputs, and those that the model predicts: labels of tokens or nodes, tags of a
        SegmentSSVM, trees of a DependencySSVM; single labels for a MulticlassSSVM, indicators for a
        MultilabelSSVM.
    tokens : list of lists of str, or of str if examples have no parts; what is labelled
    command : str or list of str, the command that made the model, optional
    data : path, list of paths, or dict, optional
        Data files, which are read to hash them. A dict maps a role, say ``"training"``, to a
        path, or to ``{"name": ..., "sha256": ...}`` (and perhaps ``"bytes"``) if the file is not
        available.
    date : str or date, shown as it is, optional
    title : str, optional
    n_errors, n_features : int, default=20 and 15
        The largest number of errors, and of features for and against each label.
    feature_names : sequence of str; default: the model's own names, or x0, x1, ...
    regions : list, one entry per graph, optional
        For a GraphSSVM of images: the node of each pixel, (rows, columns), or the shape of the
        image if its pixels are the nodes. Graphs with errors are then shown as images.
    compare : dict of {name: y_pred}, optional
        Predictions of another model for the same data; the page then shows differences by label,
        whether chance explains them, and examples that only one of the two gets right.
    probability, margin : list of arrays, optional
        How sure the model is of each predicted label, in the order of ``y_pred``, for a chart of
        how often it is right: :meth:`CalibratedChain.predict_proba_tokens
        <hingeline.evaluation.calibration.CalibratedChain.predict_proba_tokens>`, or leads over the
        next best label.
    seen : collection of str, optional
        Words of the training data, to show which ``tokens`` are new; default: those
        that the model's templates know.
    images : list of arrays, optional; labels are drawn over them, as by :func:`plot_segmentation`
    """
    whole_number("n_errors", n_errors, 0)
    whole_number("n_features", n_features, 0)
    if not hasattr(model, "solver_options"):
        what = f"a report needs a structured SVM of Hingeline, got {type(model).__name__}"
        raise TypeError(f"{what}: for a pipeline, pass its last step.")
    check_is_fitted(model, "weights_")
    template = _load_template()
    script = template.environment.get_template("filter.js.j2").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    facts = sections.read_facts(model)
    outcome = outcomes.compare(model, evaluation, y_true, y_pred, tokens)
    pictures = errors.check_pictures(model, y_true, y_pred, regions, images)
    contents: dict[str, Any] = {"model": sections.describe_model(model, facts)}
    contents["convergence"] = sections.describe_convergence(facts)
    if outcome is not None:
        new = outcomes.find_new_words(outcome, model, seen)
        wrong = errors.find_filter(outcome, new)
        shown = errors.describe_errors(outcome, wrong, n_errors, pictures)
        sure = {"probability": probability, "margin": margin}
        void = getattr(model, "void_label", None)
        contents["evaluation"] = outcomes.describe_evaluation(outcome, errors.links_of(shown)) | {
            "reliability": outcomes.describe_reliability(outcome, sure, y_true, void),
            "kinds": wrong.kinds_table(),
            "words": outcomes.describe_words(outcome, new),
        }
        contents["errors"] = shown
    if compare is not None:
        if not isinstance(compare, Mapping) or len(compare) != 1 or outcome is None:
            what = "compare must be a dict of one name and the outputs that this model predicts"
            raise ValueError(f"{what}, with y_true and y_pred.")
        ((name, y_other),) = compare.items()
        other: Any = outcomes.compare(model, None, y_true, y_other, tokens)
        contents["comparison"] = errors.describe_comparison(str(name), outcome, other, n_errors)
    contents["weights"] = sections.describe_weights(model, n_features, feature_names)
    contents["provenance"] = sections.describe_provenance(model, command, data, date)
    own, n = hasattr(model, "structure"), len(model.weights_)
    size = f"structure {type(model.structure).__name__}, {count_of(n, 'weight')}" if own else ""
    if not own:
        size = f"{sections.class_count(model)}, {count_of(int(model.n_features_in_), 'feature')}"
    kind = type(model).__name__
    page: str = template.render(
        kind=kind,
        title=f"{kind} report" if title is None else title,
        size=size,
        figures=_list_figures(facts, outcome),
        sections=contents,
        n_levels=sections.LEVELS,
        script=script,
        script_hash=f"sha256-{digest}",
    )
    return page


_PARTS = re.compile(r"[^=|:/_\]]*[=|:/_\]]+|[^=|:/_\]]+")


def _load_template() -> Any:
    """The page's template: all that it prints is revealed and escaped, whoever wrote it."""
    try:
        import jinja2
        import matplotlib  # noqa: F401
        from markupsafe import Markup
    except ImportError as error:
        how = "install hingeline[plot] (pip install 'hingeline[plot]')"
        raise ImportError(f"a report needs {error.name}: {how}.") from error
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        finalize=lambda value: value if isinstance(value, Markup) else reveal(value),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["show"] = show
    # Lines may break after a sign in a feature's name, and not inside a word.
    environment.filters["parts"] = lambda value: Markup("<wbr>").join(_PARTS.findall(show(value)))
    return environment.get_template("page.html.j2")


def _list_figures(facts: sections.Facts, outcome: outcomes.Outcome | None) -> list[tuple[str, ...]]:
    """The few figures that matter most: name, value, note."""
    figures = []
    found = None if outcome is None else outcome.evaluation
    if outcome is not None and outcome.sets is not None:
        scores = multilabel_scores(*(side.astype(int) for side in outcome.sets[1:]))
        size = f"of {count_of(len(outcome.losses), 'example')}"
        figures.append(("F1 of examples", percent(scores.example_f1), size))
        figures.append(("sets entirely right", percent(scores.subset_accuracy), ""))
    if outcome is not None and outcome.attachment is not None:
        size = f"of {count_of(outcome.attachment.n_words, 'word')}"
        figures.append(("LAS", percent(outcome.attachment.las), "heads and relations right"))
        figures.append(("UAS", percent(outcome.attachment.uas), size))
    elif outcome is not None and found is not None:
        if found.spans is not None:
            figures.append(("span F1", percent(found.spans.micro.f1), _interval(found, "span_f1")))
        name = "accuracy" if outcome.single else f"{outcome.part} accuracy"
        size = count_of(found.n_tokens, "example" if outcome.single else outcome.part)
        note = _interval(found, "token_accuracy") or f"of {size}"
        figures.append((name, percent(found.token_accuracy), note))
    bound, _ = sections.certificate_words(facts)
    figures.append(("gap to the optimum", bound, "" if bound == "no bound" else "certified"))
    passes = count_of(facts.n_iter, "pass", "passes") + ", including compilation"
    return [*figures, ("training time", facts.time, passes if facts.n_iter else "")]


def _interval(found: Evaluation, name: str) -> str:
    if name not in found.intervals:
        return ""
    low, high = found.intervals[name]
    return f"{decimal(100 * low, 2)} to {decimal(100 * high, 2)} (95{SPACE}%)"
