"""What the page says of a model, section by section, as plain text and numbers for the template."""

import hashlib
import math
import numbers
import os
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from hingeline import _words as words
from hingeline._checks import Array, require, require_type
from hingeline._words import SPACE, count, count_of, decimal, percent, show, significant
from hingeline.core.results import HistoryRow, relative
from hingeline.estimators.allowed import moves_of
from hingeline.estimators.base import positive_part
from hingeline.evaluation.inspection import Blocks, read_blocks, top_features
from hingeline.modelfile.estimators import versions
from hingeline.report.figures import draw_charts, label_affinities

Content = dict[str, Any]

#: Most of each that is shown: classes, certificates, labels of a matrix, labels with features.
MOST_CLASSES, MOST_ROWS, MOST_IN_MATRIX, MOST_LABELS = 100, 24, 30, 60
MOST_TABLES = 6  # of pairs of labels, one for each type of edges and each of their features
LEVELS = 9  # Steps of shading, 0 (none) to this.
SIDEWAYS = 105  # Matrices wider than this, in characters, are printed on a page laid sideways.


@dataclass(frozen=True)
class Table:
    """A table; the first cell of a row is its heading.

    ``words`` are the columns of words, the others are numbers; ``names`` those that hold a user's
    text; ``last`` is how many rows at the end sum up the others; ``kind`` is for the style sheet;
    ``ids`` are the rows' own names on the page, and what they are filtered by.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]
    words: Collection[int] = (0,)
    names: Collection[int] = ()
    last: int = 0
    kind: str = ""
    ids: Sequence[tuple[str, str]] = ()


class Cell(NamedTuple):
    """One cell of a matrix: its text and class, and which errors it leads to."""

    text: str
    kind: str
    key: str = ""  # what they are filtered by
    link: str = ""  # the name of the first of them


@dataclass(frozen=True)
class Matrix:
    """A shaded table of label against label."""

    caption: str
    corner: str
    columns: Sequence[Any]
    rows: Sequence[tuple[Any, Sequence[Cell]]]
    note: str
    title: str = ""

    @property
    def kind(self) -> str:
        """Classes: wide ones are printed on a page laid sideways."""
        cells = zip(*(cells for _, cells in self.rows), strict=True)
        # One character more for the room between columns.
        width = sum(1 + max(len(cell.text) for cell in column) for column in cells)
        return "sheet sideways" if width > SIDEWAYS else "sheet"


def pick_shade(share: float, colour: str) -> str:
    """Class of a cell by its share of the darkest; ``"b"`` is for blue and ``"o"`` for orange."""
    if not share > 0.0:
        return ""
    # The root makes small shares visible.
    return f"{colour}{min(LEVELS, max(1, math.ceil(LEVELS * math.sqrt(share) - 1e-9)))}"


@dataclass(frozen=True)
class Facts:
    """Certificate and curve of a model; weights that did not come from a fit have neither."""

    primal_objective: float = math.nan
    dual_objective: float = math.nan
    duality_gap: float = math.nan
    n_iter: int = 0
    converged: bool = False
    oracle_exact: bool = True  # decoding finds the best outputs
    stop_reason: str = "weights were set by hand"  # why the fit stopped, or where weights come from
    history: Sequence[HistoryRow] = ()
    tol: float = math.nan
    restricted_objective: float = math.nan  # primal over the outputs found
    restricted_gap: float = math.nan
    relative_gap: float = math.nan  # as a share of the non-negative part of the primal
    oracle_bounds: bool = True  # decoding bounds the best outputs at least: the gap is a true bound
    integrality_gap: float = math.nan  # part of the gap that is such bounds above what was found

    @property
    def time(self) -> str:
        """How long the fit took."""
        last = self.history[-1].time if self.history else math.nan
        return words.seconds(last) if 0.0 <= last < math.inf else "not recorded"


def read_facts(model: Any) -> Facts:
    """The facts of a fitted model, from its attributes of these names."""
    names = {field.name: f"{field.name}_" for field in fields(Facts)} | {"tol": "tol"}
    known = {k: getattr(model, name) for k, name in names.items() if hasattr(model, name)}
    if "primal_objective" in known:
        known["relative_gap"] = relative(model.duality_gap_, positive_part(model))
    facts = Facts(**known)
    return replace(facts, stop_reason=facts.stop_reason.rstrip("."))


def certificate_words(facts: Facts) -> tuple[str, str]:
    """How far the weights are from the optimum: a figure, and a sentence.

    The gap ``P − D`` bounds how far the objective P is above the optimum, which is at least D. It
    is said as the share of P that ``tol`` is compared with, and commands print.
    """
    why = ""
    if math.isnan(facts.duality_gap):
        why = f"No gap is certified: {facts.stop_reason}."
        if not facts.oracle_bounds:
            why = "No gap is certified: decoding is not exact, so nothing bounds the optimum."
        elif not math.isnan(facts.restricted_gap):
            gap = relative(facts.restricted_gap, facts.restricted_objective)
            why = "No gap of the whole problem is certified, because its slack is a sum over more"
            why += " outputs than can be listed. Over the outputs found, at most"
            why += f" {words.percent_at_most(gap)} of the objective can still be gained."
    elif math.isinf(facts.primal_objective):
        why = "No gap is certified: no weights were found that keep every margin (C = ∞)."
    elif facts.duality_gap <= 0.0:
        return f"0{SPACE}%", "The objective is certified to be the optimum, up to rounding."
    elif facts.primal_objective <= facts.duality_gap:
        known = f"The optimum is certified to be at most {significant(facts.primal_objective)}"
        why = f"{known}, but no lower bound above zero is known yet."
    if why:
        return "no bound", why
    most = words.percent_at_most(facts.relative_gap)
    sentence = f"It is certified that at most {most} of the objective can still be gained."
    if facts.integrality_gap > 0.0:
        share = min(facts.integrality_gap / facts.duality_gap, 1.0)
        part = "all" if share > 0.995 else f"at most {words.percent_at_most(share)}"
        sentence += f" Decoding was not exact: {part} of the gap is between the bounds of decoding"
        sentence += " and the outputs found, and more passes do not close it."
    return f"≤{SPACE}{most}", sentence


def describe_model(model: Any, facts: Facts) -> Content:
    """Certificate in words and numbers, parameters, classes."""
    _, sentence = certificate_words(facts)
    stopped = {
        "converged": "converged: the certified gap is within tol",
        "interrupted": "interrupted; the best weights so far were kept",
    }.get(facts.stop_reason, facts.stop_reason)
    told = math.isnan(facts.duality_gap) and facts.oracle_bounds  # the sentence has said why
    if not facts.converged and not told:
        sentence += f" Training ended before the gap was within tol: {stopped}."
    weights = np.asarray(model.weights_)
    rows = {"stopped": stopped, "primal objective": significant(facts.primal_objective, 6)}
    rows["dual objective"] = significant(facts.dual_objective, 6)
    rows["gap"] = significant(facts.duality_gap, 3)
    if not facts.oracle_exact:
        rows["decoding"] = f"not exact, {'bounds only' if facts.oracle_bounds else 'no bounds'}"
    if not math.isnan(facts.integrality_gap):
        rows["integrality gap, part of the gap"] = significant(facts.integrality_gap, 3)
    if not math.isnan(facts.restricted_gap):
        rows["primal over the outputs found"] = significant(facts.restricted_objective, 6)
        rows["gap over the outputs found"] = significant(facts.restricted_gap, 3)
    percentage = f"{words.percent_at_most(facts.relative_gap)} of the primal"
    rows["relative gap"] = percentage if math.isfinite(facts.relative_gap) else "none"
    rows |= {"time": facts.time, "passes": count(facts.n_iter) if facts.n_iter else "none"}
    if getattr(model, "C", None) == "scale" and hasattr(model, "C_"):
        rows["C, by the scale of the features"] = significant(model.C_, 3)
    if facts.history:
        last = facts.history[-1]
        rows |= {"decodes": count(last.oracle_calls), "planes": count(last.planes)}
    rows["non-zero weights"] = count(int(np.count_nonzero(weights)))
    rows["norm of the weights ‖w‖"] = significant(float(np.linalg.norm(weights)), 4)
    defaults = type(model)().get_params(deep=False)
    given = model.get_params(deep=False).items()
    parameters = [(k, parameter_text(v), parameter_text(defaults[k])) for k, v in given]
    classes = model.classes_.tolist() if hasattr(model, "classes_") else []
    content = {"lead": sentence, "certificate": list(rows.items()), "parameters": parameters}
    more = count(len(classes) - MOST_CLASSES) if len(classes) > MOST_CLASSES else ""
    content |= {"classes": classes[:MOST_CLASSES], "n_classes": class_count(model), "more": more}
    return content | {"scheme": getattr(model, "scheme_", None) or ""}


def class_count(model: Any) -> str:
    """``3 classes``; of sets ``3 labels``."""
    nouns = ("label",) if getattr(model, "n_labels_", 1) > 1 else ("class", "classes")
    return count_of(len(getattr(model, "classes_", ())), *nouns)


def parameter_text(value: Any) -> str:
    """A parameter as text that says the same on every machine."""
    return show(_plain(value), 120)


def _plain(value: Any) -> str:
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, (int, str)):
        return repr(value)
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    if isinstance(value, np.ndarray):
        return f"array of shape {value.shape}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_plain(k)}: {_plain(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        inside = ", ".join(map(_plain, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    # The repr of other objects may hold addresses.
    return getattr(value, "__name__", None) or type(value).__name__


def describe_convergence(facts: Facts) -> Content:
    """Charts and figures of a fit; one sentence where the model has no history."""
    history = facts.history
    if not history:
        about = "This model has no training history, so there are no curves to show."
        return {"about": about, "charts": [], "certificates": None}
    about = f"{count_of(len(history), 'pass was', 'passes were')} recorded"
    if math.isnan(facts.restricted_gap):
        made = sum(math.isfinite(row.relative_gap) for row in history)
        about += f" and {count_of(made, 'certificate was', 'certificates were')} made. The optimum"
        about += " lies between the dual and the primal; the best values so far are shown."
        if math.isnan(facts.duality_gap) and facts.oracle_bounds:
            about += " The curves are those of the fit: the weights have been changed since."
    else:
        about += ". The dual bounds the optimum from below. The primal counts only the outputs"
        about += " found; as more are found, it may rise."
    charts = draw_charts(history, facts.tol)
    return {"about": about, "charts": charts, "certificates": _certificates(history)}


def _certificates(history: Sequence[HistoryRow]) -> Table | None:
    rows = [row for row in history if not math.isnan(row.primal)]
    if not rows:
        return None
    caption = "Certificates"
    chosen = rows
    if len(rows) > MOST_ROWS:  # the last is the model's own
        places = np.unique(np.linspace(0, len(rows) - 1, MOST_ROWS).round().astype(int))
        chosen = [rows[k] for k in places]
        caption += f": {len(chosen)} of {count(len(rows))}, evenly spaced"
    shares = [row.relative_gap for row in chosen]
    known = [v for row in chosen for v in (row.primal, row.dual) if math.isfinite(v)]
    decimals = words.decimals_for(max(map(abs, known), default=0.0), 6)
    fine = max(2, words.decimals_for(100 * min((s for s in shares if s > 0), default=1.0), 2))
    cells = []
    for row, share in zip(chosen, shares, strict=True):
        work = [count(row.passes), decimal(row.time, 2), count(row.oracle_calls), count(row.planes)]
        primal = decimal(row.primal, decimals) if math.isfinite(row.primal) else "∞"
        dual = decimal(row.dual, decimals) if math.isfinite(row.dual) else "–"
        cells.append([*work, primal, dual, percent(share, fine) if math.isfinite(share) else "–"])
    head = ("pass", "seconds", "decodes", "planes", "primal", "dual", "relative gap")
    return Table(caption, head, cells, words=())


def describe_weights(model: Any, n: int, names: Sequence[str] | None) -> Content | None:
    """Top features and transitions, or the largest weights where they have no names."""
    content: Content = {"tables": [], "features": None, "about": "", "largest": None}
    if hasattr(model, "structure"):
        return content | _nameless(model, n)
    if hasattr(model, "projective"):  # features of arcs are hashed: they have no names
        return None
    if hasattr(model, "pairwise_coef_"):
        content["tables"] = _pair_tables(model)
    elif (blocks := read_blocks(model)).is_chain:
        content["tables"] = [_transitions(model, blocks)]
    if n:
        content["features"] = _features(model, n, names)
    return content if n or content["tables"] else None


def _features(model: Any, n: int, names: Sequence[str] | None) -> Content:
    rows = top_features(model, n, names)
    groups = [(label, list(found)) for label, found in groupby(rows, key=lambda row: row.label)]
    if not groups:
        return {"about": "All weights of features are zero.", "cards": []}
    about = f"For each label, up to {count_of(n, 'feature')} that speak most for it and as many"
    about += " that speak most against it."
    if len(groups) > MOST_LABELS:
        shown = f"the {MOST_LABELS} of {count(len(groups))} labels with the largest weights"
        about += f" Only {shown} are shown."
        sizes = np.array([max(abs(row.weight) for row in found) for _, found in groups])
        groups = [groups[k] for k in keep_largest(sizes, MOST_LABELS)]
    largest = max(abs(row.weight) for row in rows)
    decimals = words.decimals_for(largest, 3)

    def bar(row: Any, kind: str) -> tuple[str, str, str]:
        level = math.ceil(LEVELS * abs(row.weight) / largest)
        return row.feature, decimal(row.weight, decimals), f"{kind}{level}"

    cards = []
    for label, found in groups:
        good = [bar(row, "p") for row in found if row.weight > 0]
        bad = [bar(row, "m") for row in reversed(found) if row.weight < 0]
        cards.append({"label": label, "sides": [("for", good), ("against", bad)]})
    return {"about": about, "cards": cards}


def _nameless(model: Any, n: int) -> Content:
    """The largest weights of a user's own structure, by number."""
    weights = np.asarray(model.weights_, dtype=np.float64)
    shown = [int(k) for k in np.argsort(-np.abs(weights), kind="stable")[:n] if weights[k] != 0]
    nonzero = int(np.count_nonzero(weights))
    size = count_of(len(weights), "entry", "entries")
    have = f"{count(nonzero)} {'has a weight' if nonzero == 1 else 'have weights'}"
    about = f"The structure's joint feature vector has {size}; {have} other than zero."
    decimals = words.decimals_for(float(np.max(np.abs(weights), initial=0.0)), 3)
    rows = [[count(k), decimal(weights[k], decimals)] for k in shown]
    table = Table(f"The {len(shown)} largest weights", ("entry", "weight"), rows, words=())
    return {"about": about, "largest": table if rows else None}


def _transitions(model: Any, blocks: Blocks) -> Matrix:
    names, heads, weights = blocks.moves()
    segments = hasattr(model, "segment_features")  # all moves between them are allowed
    valid = None if segments else moves_of(model.classes_, getattr(model, "scheme_", None))
    n = len(blocks.labels)
    start, allowed, end = valid or (np.ones(n, bool), np.ones((n, n), bool), np.ones(n, bool))
    kept, which = _keep_largest(blocks.move)
    rows = columns = kept
    if blocks.has_boundary:
        allowed = np.block([[start, True], [allowed, end[:, None]]])
        rows, columns = np.append(0, kept + 1), np.append(kept, n)
    caption = f"From label (rows) to label (columns){which}"
    about = "Each cell shows what the column's label adds to the score right after the row's label"
    shown = np.where(allowed, weights, -np.inf)[np.ix_(rows, columns)]
    forbidden = f"× is forbidden by {model.scheme_}. " if np.isinf(shown).any() else ""
    labels = [names[k] for k in rows.tolist()], [heads[k] for k in columns.tolist()]
    return _weight_matrix(shown, *labels, (caption, "from ↓ to →", "Transitions", about), forbidden)


def _pair_tables(model: Any) -> list[Matrix]:
    """Weights of pairs of labels: of neighbours in a graph, or of labels of one set."""
    labels = model.classes_.tolist()
    if hasattr(model, "n_labels_"):
        if not len(model.edges_):
            return []
        tables = label_affinities(model)[None]
        caption, corner, titles = "Label (rows) and label (columns)", "", ["Pairs of labels"]
        note = "Each cell: what having both labels adds to the score, beyond what each adds alone"
    else:
        tables = model.pairwise_coef_.reshape(-1, len(labels), len(labels))[:MOST_TABLES]
        caption = "First node (rows) and second node (columns) of an edge"
        corner = "first ↓ second →"
        kinds, features = model.n_edge_types_, max(1, model.n_edge_features_)
        types = [f", edges of type {t}" * (kinds > 1) for t in range(kinds)]
        of = [f", edge feature {f}" * (features > 1) for f in range(features)]
        titles = [f"Pairs of neighbours{t}{f}" for t in types for f in of]
        note = "Each cell shows what the two labels at the ends of an edge add to the score"
    found = []
    for k, weights in enumerate(tables):
        kept, which = _keep_largest(np.nan_to_num(weights))
        shown, part = [labels[j] for j in kept.tolist()], weights[np.ix_(kept, kept)]
        text = caption + which, corner, titles[k], note
        found.append(_weight_matrix(part, shown, shown, text))
    return found


def _keep_largest(weights: Array) -> tuple[Array, str]:
    """Labels for a matrix, those with the largest weights, and which they are in words."""
    sizes = np.maximum(np.abs(weights).max(axis=0), np.abs(weights).max(axis=1))
    which = f": the {MOST_IN_MATRIX} of {count(len(sizes))} labels with the largest weights"
    return keep_largest(sizes, MOST_IN_MATRIX), which if len(sizes) > MOST_IN_MATRIX else ""


def keep_largest(sizes: Array, n: int) -> Array:
    """Places of the n largest, of equal ones the first, in their order."""
    return np.sort(np.argsort(-sizes, kind="stable")[:n])


def _weight_matrix(
    weights: Array, rows: list[Any], columns: list[Any], text: Sequence[str], forbidden: str = ""
) -> Matrix:
    """Weights of pairs of labels: NaN is no weight at all, −∞ what is forbidden."""
    caption, corner, title, about = text
    largest = float(np.max(np.abs(weights[np.isfinite(weights)]), initial=0.0)) or 1.0
    # Cells have room for few characters: weights of another size are shown in units of their own.
    power = 0 if 0.1 <= largest < 1000 else math.floor(math.log10(largest))
    unit = 10.0**power
    decimals = words.decimals_for(largest / unit, 2)

    def cell(weight: float) -> Cell:
        if math.isnan(weight):
            return Cell("", "")
        if math.isinf(weight):
            return Cell("×", "no")
        kind = pick_shade(abs(weight) / largest, "b" if weight > 0 else "o")
        return Cell(decimal(weight / unit, decimals) if weight else "·", kind)

    lines = [(name, [*map(cell, row)]) for name, row in zip(rows, weights.tolist(), strict=True)]
    units = f", in units of {words.power_of_ten(power)}" if power else ""
    note = f"{about}{units}. Positive weights are blue, negative ones are orange. {forbidden}"
    note += "The shade shows the share of the largest, on a square-root scale."
    return Matrix(caption, corner, columns, lines, note, title)


_PROGRAMS = {
    "python": "Python", "hingeline": "Hingeline", "numpy": "NumPy", "scipy": "SciPy",
    "sklearn": "scikit-learn", "numba": "Numba",
}  # fmt: skip


def describe_provenance(model: Any, command: Any, data: Any, date: Any) -> Content:
    """What is needed to make the model again."""
    table = None
    if files := hash_files(data):
        head = ["data", "file", "bytes", "SHA-256"]
        first = 0 if any(role for role, *_ in files) else 1
        told = ([a, b, "" if size is None else count(size), c] for a, b, size, c in files)
        rows = [row[first:] for row in told]
        words = [k for k, name in enumerate(head[first:]) if name != "bytes"]
        table = Table("Data", head[first:], rows, words=words, names=words, kind="files")
    facts = [] if date is None else [("date", show(date))]
    facts.append(("seed", seed_words(getattr(model, "random_state", None))))
    found = versions()
    facts += [(shown, found[name]) for name, shown in _PROGRAMS.items() if name in found]
    lines = [] if command is None else command_text(command).replace("\r\n", "\n").split("\n")
    return {"command": lines, "files": table, "facts": facts}


def command_text(command: Any) -> str:
    """A command as one text; a list is joined as a shell would want it."""
    fine = isinstance(command, (str, list, tuple))
    require_type(fine, "command", "text or a list of words", command)
    return command if isinstance(command, str) else shlex.join(map(str, command))


def seed_words(seed: Any) -> str:
    """The seed, or what its absence means."""
    if seed is None:
        return "none was set, so another run may give different weights"
    if isinstance(seed, numbers.Integral):
        return str(int(seed))
    return f"a {type(seed).__name__}, whose state is not recorded"


def hash_files(data: Any) -> list[tuple[str, str, int | None, str]]:
    """(role, name, bytes or None, SHA-256) of each data file; ``data`` as for a report."""
    if data is None or isinstance(data, (str, os.PathLike)):
        data = [] if data is None else [data]
    fine = isinstance(data, (Mapping, list, tuple))
    require_type(fine, "data", "a path, a list of paths or a dict of them", data)
    found: list[tuple[str, str, int | None, str]] = []
    for role, value in data.items() if isinstance(data, Mapping) else [("", v) for v in data]:
        where = f"data[{role!r}]" if role else "data"
        if isinstance(value, Mapping):
            require({"name", "sha256"} <= {*value}, f"{where} must have a 'name' and a 'sha256'.")
            name, digest = str(value["name"]), str(value["sha256"])
            found.append((str(role), name, value.get("bytes"), digest))
            continue
        require_type(isinstance(value, (str, os.PathLike)), where, "a path", value)
        name = os.fspath(value)
        try:
            with open(value, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                found.append((str(role), name, file.tell(), digest))
        except OSError as error:
            raise type(error)(f"{where}: cannot read {name}: {error.strerror or error}.") from None
    return found
