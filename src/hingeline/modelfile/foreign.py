"""Models of other programs as fitted estimators: CRFsuite's text dump, LIBLINEAR's text model."""

import math
import os
from typing import Any, NoReturn

import numpy as np

from hingeline._checks import Array
from hingeline.estimators.chain import ChainSSVM
from hingeline.estimators.multiclass import MulticlassSSVM
from hingeline.modelfile.estimators import encoder_class

#: Solvers of LIBLINEAR whose models are classifiers.
LIBLINEAR_CLASSIFIERS = (
    *("L2R_LR", "L2R_L2LOSS_SVC_DUAL", "L2R_L2LOSS_SVC", "L2R_L1LOSS_SVC_DUAL"),
    *("MCSVM_CS", "L1R_L2LOSS_SVC", "L1R_LR", "L2R_LR_DUAL"),
)
_LONGEST_LABEL = 4096
_MOST_LINES = 64  # of one entry: names may contain line ends
_LARGE = 2**27  # entries, 1 GB: larger tables must not be nearly empty
_ARROW = " --> "


class Lines:
    """Lines of a text with the place that errors name."""

    def __init__(self, source: str | os.PathLike[str], what: str) -> None:
        if isinstance(source, str) and "\n" in source:
            self.name, text = "the given text", source
        else:
            self.name = os.fspath(source)
            try:
                with open(source, encoding="utf-8", newline="") as file:
                    text = file.read()
            except UnicodeDecodeError:
                problem = f"is not UTF-8 text: give {what}, not a binary model."
                raise ValueError(f"{self.name} {problem}") from None
        # Only line ends of files end a line: names may hold the others that Python knows.
        self.lines = text.split("\n")
        if self.lines[0].endswith("\r"):
            self.lines = [line.removesuffix("\r") for line in self.lines]
        self.at = 0

    def peek(self) -> str | None:
        """The next line, None at the end."""
        return self.lines[self.at] if self.at < len(self.lines) else None

    def take(self) -> str:
        """The next line; refused at the end."""
        more = self.at < len(self.lines)
        self.demand(more, "the file ends here, but more should follow: is it complete?")
        self.at += 1
        return self.lines[self.at - 1]

    def fail(self, reason: str, at: int | None = None) -> NoReturn:
        """Raise with the line last taken, or another."""
        raise ValueError(f"{self.name}:{self.at if at is None else at}: {reason}") from None

    def demand(self, fine: Any, reason: str, at: int | None = None) -> None:
        """Raise unless all is well."""
        if not fine:
            self.fail(reason, at)

    def count(self, text: str, what: str) -> int:
        """A number of things, of at most nine digits."""
        fine = text.isascii() and text.isdigit() and len(text) <= 9
        self.demand(fine, f"{what} must be a count, got {text[:40]!r}.")
        return int(text)

    def weight(self, text: str) -> float:
        """A finite number."""
        try:
            value = float(text)
        except ValueError:
            self.fail(f"a weight must be a number, got {text[:40]!r}.")
        if not math.isfinite(value):
            self.fail(f"a weight must be finite, got {text[:40]!r}.")
        return value


def import_crfsuite(source: str | os.PathLike[str]) -> ChainSSVM:
    """A fitted :class:`ChainSSVM` from the text dump of a CRFsuite model.

    Make the dump with ``crfsuite dump model > model.txt`` or python-crfsuite's
    ``Tagger.dump("model.txt")``. The estimator's ``encoder_`` turns tokens given as dicts into
    features with CRFsuite's names. Predictions are CRFsuite's, as far as the six decimals of the
    dump distinguish labels. There is no certificate.

    ``source`` is a path, or the dump itself (a string of several lines).
    """
    lines = Lines(source, "a text dump of a CRFsuite model")
    sizes = _file_header(lines)
    labels = _names(lines, "LABELS", sizes["num_labels"])
    attributes = _names(lines, "ATTRIBUTES", sizes["num_attrs"])
    lines.demand(labels, "the model has no labels: train one first.")
    for label in labels:
        text = f"label {label[:20]!r}… is longer than {_LONGEST_LABEL} characters."
        lines.demand(len(label) <= _LONGEST_LABEL, text)
    transition = _weights(lines, "TRANSITIONS", "1", labels, labels)
    emission = _weights(lines, "STATE_FEATURES", "0", attributes, labels)
    model = ChainSSVM(fit_intercept=False, boundary=False)
    model.classes_, model.n_features_in_ = np.array(list(labels)), len(attributes)
    model.encoder_ = encoder_class("DictEncoder").from_vocabulary(list(attributes))
    model.encoder_.set_params(dtype=np.float64)  # which CRFsuite computes in
    model.scheme_ = None
    _finish(model, {"emission": emission, "transition": transition}, "CRFsuite")
    return model


def _open_section(lines: Lines, name: str) -> None:
    while lines.peek() == "":
        lines.take()
    line, wanted = lines.take(), f"{name} = {{"
    text = f"expected {wanted!r}, got {line[:40]!r}: give the output of 'crfsuite dump'."
    lines.demand(line == wanted, text)


def _file_header(lines: Lines) -> dict[str, int]:
    _open_section(lines, "FILEHEADER")
    sizes: dict[str, int] = {}
    while (line := lines.take()) != "}":
        key, _, value = line.strip().partition(": ")
        if key == "type" and value != "FOMC":
            lines.fail(f"models of type {value[:20]!r} are not known: only 'FOMC' is.")
        if key in ("num_labels", "num_attrs"):
            sizes[key] = lines.count(value, key)
    for key in ("num_labels", "num_attrs"):
        text = f"the file header lacks {key}: give the output of 'crfsuite dump'."
        lines.demand(key in sizes, text)
    return sizes


def _names(lines: Lines, section: str, count: int) -> dict[str, int]:
    """Name -> number. Names may contain line ends: an entry lasts until the next number."""
    _open_section(lines, section)
    found: dict[str, int] = {}
    for number in range(count):
        line, first = lines.take(), lines.at
        head, _, name = line.partition(":")
        text = f"expected entry {number} of {section}, got {line[:40]!r}."
        lines.demand(head.strip(" ") == str(number), text)
        name = name.removeprefix(" ")
        last = number == count - 1
        while (following := lines.peek()) is not None:
            if following == "}" if last else following.lstrip(" ").startswith(f"{number + 1}:"):
                break
            ends = lines.at - first < _MOST_LINES
            lines.demand(ends, f"entry {number} of {section} does not end.", first)
            name += "\n" + lines.take()
        lines.demand(name not in found, f"{name[:40]!r} occurs twice in {section}.", first)
        found[name] = number
    line = lines.take()
    lines.demand(line == "}", f"{section} should end after {count} entries, got {line[:40]!r}.")
    return found


def _weights(
    lines: Lines, section: str, kind: str, sources: dict[str, int], labels: dict[str, int]
) -> Array:
    """(sources, labels) weights of ``(kind) source --> label: weight`` entries."""
    _open_section(lines, section)
    longest = max(map(len, labels))
    begin = f"  ({kind}) "
    found: dict[int, float] = {}
    while (line := lines.take()) != "}":
        first, fine = lines.at, line.startswith(begin)
        lines.demand(fine, f"expected an entry of {section}, got {line[:40]!r}.")
        text = line[len(begin) :]
        while True:
            body, _, weight = text.rpartition(": ")
            hits = _splits(body, sources, labels, longest)
            if hits or lines.peek() is None or lines.at - first >= _MOST_LINES:
                break
            text += "\n" + lines.take()
        reason = "is ambiguous" if hits else "names nothing listed above"
        lines.demand(len(hits) == 1, f"entry {line.strip()[:60]!r} of {section} {reason}.", first)
        if hits[0] in found:
            lines.fail(f"this entry of {section} occurs twice.", first)
        found[hits[0]] = lines.weight(weight)
    size = len(sources) * len(labels)
    what = f"{len(sources)} names with {len(labels)} labels need {size / 2**27:.0f} GB for"
    what += f" {len(found)} weights of {section}: train again with fewer labels or attributes."
    lines.demand(size <= max(_LARGE, 1000 * len(found)), what)
    table = np.zeros((len(sources), len(labels)))
    table.put(np.fromiter(found, np.int64), [*found.values()])
    return table


def _splits(body: str, sources: dict[str, int], labels: dict[str, int], longest: int) -> list[int]:
    """Places in the table of all readings of ``source --> label``: both may contain arrows."""
    found = []
    at = body.rfind(_ARROW)
    while at >= 0 and len(body) - at - len(_ARROW) <= longest:
        label = labels.get(body[at + len(_ARROW) :])
        if label is not None:
            source = sources.get(body[:at])
            if source is not None:
                found.append(source * len(labels) + label)
        at = body.rfind(_ARROW, 0, at + len(_ARROW) - 1)
    return found


def import_liblinear(source: str | os.PathLike[str]) -> MulticlassSSVM:
    """A fitted :class:`MulticlassSSVM` from a model file of LIBLINEAR.

    Column j of X is LIBLINEAR's feature j + 1. ``classes_`` keeps the order by which LIBLINEAR
    breaks ties (of two classes the second is preferred, and comes first). A bias becomes
    ``intercept_``; a single vector w for two classes is split into ±w/2. There is no certificate.

    ``source`` is a path, or the model itself (a string of several lines).
    """
    lines = Lines(source, "a text model of LIBLINEAR")
    labels, n_features, bias, n_vectors = _liblinear_header(lines)
    rows: list[list[float]] = []
    for _ in range(n_features + (bias >= 0)):
        row = lines.take().split()
        lines.demand(len(row) == n_vectors, f"expected {n_vectors} weights, got {len(row)}.")
        rows.append([*map(lines.weight, row)])
    while lines.peek() is not None:
        line = lines.take()
        lines.demand(not line.strip(), f"the model should end before this line, got {line[:40]!r}.")
    table = np.array(rows, dtype=np.float64).reshape(len(rows), n_vectors)
    if len(labels) == 2:
        # LIBLINEAR looks at the first vector only: where it is positive the first label wins,
        # and the second wins ties. Of MCSVM_CS the other vector is its negative.
        labels = labels[::-1]
        first_vector = table[:, :1] / (2 if n_vectors == 1 else 1)
        table = np.hstack([-first_vector, first_vector])
    model = MulticlassSSVM(fit_intercept=bias >= 0)
    model.classes_, model.n_features_in_ = np.array(labels), n_features
    blocks = {"coef": table[:n_features]}
    if bias >= 0:
        blocks["intercept"] = bias * table[n_features:]
    _finish(model, blocks, "LIBLINEAR")
    return model


def _liblinear_header(lines: Lines) -> tuple[list[int], int, float, int]:
    known: dict[str, str] = {}
    needed = ("solver_type", "nr_class", "label", "nr_feature", "bias")
    while (line := lines.take().strip()) != "w":
        key, _, value = line.partition(" ")
        fine = key in (*needed, "rho")
        lines.demand(fine, f"{line[:40]!r} is not a line of a LIBLINEAR model's header.")
        lines.demand(key not in known, f"{key} is given twice.")
        known[key] = value
        fine = key != "solver_type" or value in LIBLINEAR_CLASSIFIERS
        text = f"a model of solver {value[:40]!r} is not a classifier: train with -s 0 to 7."
        lines.demand(fine, text)
    for key in needed:
        lines.demand(key in known, f"the header lacks {key}: give a model that LIBLINEAR saved.")
    n_classes = lines.count(known["nr_class"], "nr_class")
    try:
        labels = [int(word) for word in known["label"].split()]
        np.array(labels, dtype=np.int64)
    except (ValueError, OverflowError):
        lines.fail(f"labels must be integers, got {known['label'][:40]!r}.")
    fine = n_classes > 1 and len(labels) == len(set(labels)) == n_classes
    lines.demand(fine, f"{n_classes} different labels are needed, and at least 2.")
    n_vectors = 1 if n_classes == 2 and known["solver_type"] != "MCSVM_CS" else n_classes
    bias = lines.weight(known["bias"])
    return labels, lines.count(known["nr_feature"], "nr_feature"), bias, n_vectors


def _finish(model: Any, blocks: dict[str, Array], program: str) -> None:
    model.weights_ = model._layout.join(blocks)
    model._drop_certificate(f"weights were imported from {program}")
    model.dual_objective_ = math.nan
    model.n_iter_, model.history_ = 0, []
    model.oracle_exact_ = model.oracle_bounds_ = True
