"""Tags for spans: what they say, which may follow which, and other schemes for the same spans."""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Span = tuple[str, int, int]

_TAG = re.compile(r"O|([BIELSU])(?:-(.*))?", re.DOTALL)
NO_TYPE = "_"  # What a span is called whose tags have no type.


class Scheme:
    """What the prefixes of a scheme say.

    ``prefixes`` lists each with two marks: does its token open its span, and close it (``+`` yes,
    ``-`` no, ``?`` either)? ``written`` are those of a first, inner, last and only token.
    ``pairs`` are strict mode's neighbouring prefixes at which a span starts, goes on or has ended;
    ``=`` for one type, ``!`` for two, ``*`` for any, and ``.`` for any prefix.
    """

    def __init__(self, prefixes: str, written: str, *pairs: str) -> None:
        meaning = {"+": True, "-": False, "?": None}
        self.opens = {mark[0]: meaning[mark[1]] for mark in prefixes.split()}
        self.closes = {mark[0]: meaning[mark[2]] for mark in prefixes.split()}
        self.written, self.pairs = tuple(written), pairs


# fmt: off
RULES = {
    "IO": Scheme("I??", "IIII", "OI* II!", "II=", "IO* II!"),
    "IOB1": Scheme("B+? I??", "IIII",
                    "OI* BI* II! IB= BB=", "BI= II=", "IO* IB* II! BO* BI! BB="),
    "IOB2": Scheme("B+? I-?", "BIIB", ".B*", "BI= II=", "IO* IB* II! BO* BB* BI!"),
    "IOE1": Scheme("I?? E?+", "IIII",
                    "OI* EI* II! EE=", "II= IE=", "IO* II! IE! EI= EE="),
    "IOE2": Scheme("I?- E?+", "IIEE", "OI* OE* EI* EE* II! IE!", "II= IE=", "E.*"),
    "IOBES": Scheme("B+- I-- E-+ S++", "BIES", ".B* .S*", "BI= BE= II= IE=", "S.* E.*"),
    "BILOU": Scheme("B+- I-- L-+ U++", "BILU", ".B* .U*", "BI= BL= II= IL=", "U.* L.*"),
}
# fmt: on
#: Names of the schemes.
SCHEMES = tuple(RULES)
_ALIASES = {"BIO": "IOB2", "BIOES": "IOBES", "BILUO": "BILOU"}


def is_tag(label: Any) -> bool:
    """Whether a label can be a tag of some scheme."""
    return isinstance(label, str) and _TAG.fullmatch(label) is not None


def split_tag(label: Any) -> tuple[str, str]:
    """Prefix and type of a tag; the type is empty where it has none."""
    match = _TAG.fullmatch(label) if isinstance(label, str) else None
    if match is None:
        what = f"{label!r} is not a span tag"
        raise ValueError(f"{what}: tags are O, or one of B, I, E, S, L, U with a type, as in B-NP.")
    return match[1] or "O", match[2] or ""


def join_tag(prefix: str, kind: str) -> str:
    """The tag of a prefix and a type."""
    return f"{prefix}-{kind}" if kind else prefix


def scheme_name(scheme: str) -> str:
    """The name by which :data:`SCHEMES` knows a scheme; a ``ValueError`` if it does not."""
    name = scheme.upper() if isinstance(scheme, str) else ""
    name = _ALIASES.get(name, name)
    if name not in RULES:
        raise ValueError(f"scheme must be one of {', '.join(SCHEMES)}, got {scheme!r}.")
    return name


def refuse_foreign(tags: Iterable[tuple[str, str]], name: str) -> None:
    """Refuse tags whose prefix the scheme does not have."""
    known = RULES[name].opens
    for prefix, kind in tags:
        if prefix != "O" and prefix not in known:
            what = f"{join_tag(prefix, kind)!r} is not a tag of {name}"
            raise ValueError(f"{what}, whose prefixes are {', '.join(known)} and O.")


def is_nested(labels: Iterable[Any]) -> bool:
    """Whether labels are sequences of labels."""
    return any(isinstance(item, (list, tuple, np.ndarray)) for item in labels)


def plain(labels: Any) -> list[Any]:
    """Labels of one sequence as a list of Python objects."""
    return labels.tolist() if isinstance(labels, np.ndarray) else list(labels)


def encode(sequences: Iterable[Any]) -> tuple[list[Any], Array, Array]:
    """Distinct labels, the number of each token's, and where sequences begin."""
    sequences = [plain(labels) for labels in sequences]
    flat = [label for labels in sequences for label in labels]
    classes = list(dict.fromkeys(flat))
    index = {label: k for k, label in enumerate(classes)}
    codes = np.fromiter(map(index.__getitem__, flat), dtype=np.int64, count=len(flat))
    return classes, codes, np.cumsum([0, *map(len, sequences)])


def read_tags(tags: list[tuple[str, str]]) -> tuple[Array, Array]:
    """Prefixes, and which tags have the same type: ``[a, b]``."""
    kinds = np.array([kind for _, kind in tags], dtype=object)
    return np.array([prefix for prefix, _ in tags]), kinds[:, None] == kinds


def valid_moves(classes: Sequence[Any], scheme: str) -> tuple[Array, Array, Array]:
    """Which labels may start a sequence, follow one another (``[a, b]``: b after a), and end it.

    Three masks in the order of ``classes``; ``scheme`` is one of :data:`SCHEMES`.

    Examples
    --------
    >>> start, move, end = valid_moves(["B-NP", "I-NP", "O"], "IOB2")
    >>> start.tolist(), move[:, 1].tolist(), end.tolist()
    ([True, False, True], [True, True, False], [True, True, True])
    """
    name = scheme_name(scheme)
    rules = RULES[name]
    tags = [split_tag(label) for label in classes]
    refuse_foreign(tags, name)
    # The place before the first token and after the last acts as one more O.
    tags.append(("O", ""))

    def mask(marks: dict[str, bool | None], excluded: bool) -> Array:
        return np.array([marks.get(prefix, True) is not excluded for prefix, _ in tags])

    prefixes, same = read_tags(tags)
    tagged = prefixes != "O"
    same &= tagged[:, None] & tagged
    between = mask(rules.closes, False)[:, None] & mask(rules.opens, False)
    moves = between | (mask(rules.closes, True)[:, None] & mask(rules.opens, True) & same)
    if name == "IOB1":
        moves &= same | (prefixes != "B")
    if name == "IOE1":
        moves &= same | (prefixes != "E")[:, None]
    return moves[-1, :-1], moves[:-1, :-1], moves[:-1, -1]


def keeps_to(valid: tuple[Array, Array, Array], labels: Array, offsets: Array) -> Array:
    """Which tokens have a label that may be where it is, by the masks of :func:`valid_moves`."""
    start, move, end = valid
    cuts = np.unique(offsets)  # without empty sequences
    fine = np.ones(len(labels), dtype=bool)
    fine[1:] = move[labels[:-1], labels[1:]]
    fine[cuts[:-1]] = start[labels[cuts[:-1]]]
    fine[cuts[1:] - 1] &= end[labels[cuts[1:] - 1]]
    return fine


def detect_scheme(labels: Iterable[Any]) -> str | None:
    """Name of the scheme that labels are tagged in.

    L or U mean BILOU; S, or B together with E, mean IOBES; B means IOB1 or IOB2, E means IOE1 or
    IOE2, and I alone means IO. Of two candidates, the one broken by fewer neighbouring labels is
    chosen; in a tie, IOB2 or IOE2. Given only the distinct labels, the scheme is IOB1 if a type has
    I but no B, and no type has B but no I (IOE1 likewise with E).

    None if a label is not a span tag, if prefixes do not fit together, or if all labels are ``O``.

    Parameters
    ----------
    labels : list of sequences of labels, or iterable of labels
        An iterable of labels stands for the distinct labels in any order; for a single sequence,
        pass ``[labels]``.

    Examples
    --------
    >>> detect_scheme([["I-PER", "O", "I-LOC", "B-LOC"]])
    'IOB1'
    >>> detect_scheme({"B-NP", "I-NP", "O"})
    'IOB2'
    >>> detect_scheme({"NN", "VBD"}) is None
    True
    """
    items = list(labels)
    return detect_from_arrays(*(encode(items) if is_nested(items) else (items, None, None)))


def detect_from_arrays(classes: Sequence[Any], codes: Any, offsets: Any) -> str | None:
    """:func:`detect_scheme` for numbered labels; without ``codes``, from the labels alone."""
    if not all(is_tag(label) for label in classes):
        return None
    tags = {split_tag(label) for label in classes}
    prefixes = {prefix for prefix, _ in tags} - {"O"}
    names = ("IO", "IOB2", "IOE2", "IOBES", "BILOU")
    name = next((name for name in names if prefixes and prefixes <= set(RULES[name].opens)), None)
    rival = {"IOB2": "IOB1", "IOE2": "IOE1"}.get(name or "")
    if name is None or rival is None:
        return name
    if codes is None:
        marked = {kind for prefix, kind in tags if prefix in "BE"}
        plainly = {kind for prefix, kind in tags if prefix == "I"}
        return rival if marked < plainly else name
    fine = [keeps_to(valid_moves(classes, s), codes, offsets).sum() for s in (name, rival)]
    return rival if fine[1] > fine[0] else name


def span_arrays(
    classes: Sequence[Any], codes: Array, offsets: Array, scheme: str | None, mode: str = "default"
) -> tuple[list[str], Array, Array, Array]:
    """Spans of many sequences at once; :func:`spans` says what ``scheme`` and ``mode`` mean.

    ``codes`` are numbers into ``classes``; sequence i begins at token ``offsets[i]``. Returns the
    types and, for each span, the number of its type, its first token and the one after the last,
    counted over all sequences.
    """
    if mode not in ("default", "strict"):
        raise ValueError(f"mode must be 'default' or 'strict', got {mode!r}.")
    tags = [split_tag(label) for label in classes] + [("O", "")]
    starts, inside, ends = _strict_tables(tags, scheme) if mode == "strict" else read_pairs(tags)
    types, type_of = number_types(tags)
    cuts, before, after = np.unique(offsets), np.roll(codes, 1), np.roll(codes, -1)
    before[cuts[:-1]] = after[cuts[1:] - 1] = len(classes)

    # A run is a stretch of tokens each of which goes on with the one before. A span reaches from
    # the first token of a run that can start one to the run's end, and counts if it may end there.
    breaks = ~inside[before, codes]
    run = np.cumsum(breaks) - 1
    stops = np.append(np.flatnonzero(breaks)[1:], len(codes))
    first = np.flatnonzero(starts[before, codes])
    first = first[np.diff(run[first], prepend=-1) > 0]
    stop = stops[run[first]]
    whole = ends[codes[stop - 1], after[stop - 1]]
    first, stop = first[whole], stop[whole]
    return types, type_of[codes[first]], first, stop


def number_types(tags: list[tuple[str, str]]) -> tuple[list[str], Array]:
    """The types of spans, sorted, and the number of each tag's; −1 for O."""
    types = sorted({kind or NO_TYPE for prefix, kind in tags if prefix != "O"})
    numbers = [-1 if prefix == "O" else types.index(kind or NO_TYPE) for prefix, kind in tags]
    return types, np.array(numbers, dtype=np.int64)


def read_pairs(tags: list[tuple[str, str]]) -> tuple[Array, Array, Array]:
    """Where a span starts, goes on and may end, by neighbouring labels: the lenient reading."""
    prefixes, same = read_tags(tags)
    inside = np.isin(prefixes, ["B", "I"])[:, None] & np.isin(prefixes, ["I", "E", "L"]) & same
    return (prefixes != "O") & ~inside, inside, np.ones_like(inside)


def _strict_tables(tags: list[tuple[str, str]], scheme: str | None) -> tuple[Array, Array, Array]:
    if scheme is None:
        if all(prefix == "O" for prefix, _ in tags):
            return read_pairs(tags)
        raise ValueError("strict mode needs a scheme: pass scheme=.")
    name = scheme_name(scheme)
    refuse_foreign(tags, name)
    prefixes, same = read_tags(tags)
    condition = {"=": same, "!": ~same, "*": np.ones_like(same)}

    def table(pairs: str) -> Array:
        mask = np.zeros_like(same)
        for pair in pairs.split():
            left, right = ((prefixes == pair[k]) | (pair[k] == ".") for k in (0, 1))
            mask |= left[:, None] & right & condition[pair[2]]
        return mask

    starts, inside, ends = map(table, RULES[name].pairs)
    return starts, inside, ends


def spans(labels: Sequence[Any], scheme: str | None = None, mode: str = "default") -> list[Span]:
    """Spans of one sequence, as (type or ``"_"``, first token, token after the last).

    Parameters
    ----------
    labels : sequence of str
    scheme : str, optional
        One of :data:`SCHEMES`; by default the one that :func:`detect_scheme` finds.
    mode : {"default", "strict"}, default="default"
        ``"default"`` reads labels as conlleval and seqeval do: a span that starts or ends in a
        way the scheme forbids still counts, and the scheme does not matter. ``"strict"`` is
        seqeval's strict mode: only spans that the scheme allows count (with IOE1 it loses some
        that are allowed, such as a span of one token before another of its type).

    Examples
    --------
    >>> spans(["B-NP", "I-NP", "O", "I-VP"])
    [('NP', 0, 2), ('VP', 3, 4)]
    >>> spans(["B-NP", "I-NP", "O", "I-VP"], "IOB2", mode="strict")
    [('NP', 0, 2)]
    """
    if scheme is not None:
        scheme = scheme_name(scheme)
    elif mode == "strict":
        scheme = detect_scheme([plain(labels)])
    classes, codes, offsets = encode([labels])
    types, kind, first, stop = span_arrays(classes, codes, offsets, scheme, mode)
    return list(zip([types[k] for k in kind.tolist()], first.tolist(), stop.tolist(), strict=True))


def convert_scheme(labels: Sequence[Any], source: str, target: str) -> list[Any]:
    """Convert labels from one scheme of :data:`SCHEMES` to another, for the same spans.

    Labels that the source scheme forbids are read as :func:`spans` reads them by default, so
    converting to the same scheme repairs them. IO cannot separate adjacent spans of one type.
    ``labels`` is one sequence or a list of sequences, and so is the result.

    Examples
    --------
    >>> convert_scheme(["I-NP", "I-NP", "B-NP", "O"], "IOB1", "IOBES")
    ['B-NP', 'E-NP', 'S-NP', 'O']
    """
    source, target = scheme_name(source), scheme_name(target)
    nested = is_nested(labels)
    classes, codes, offsets = encode(labels if nested else [labels])
    tags = [split_tag(label) for label in classes]
    refuse_foreign(tags, source)
    _, _, first, stop = span_arrays(classes, codes, offsets, None)
    kinds = [tags[code][1] for code in codes[first].tolist()]
    found = list(zip(kinds, first.tolist(), stop.tolist(), strict=True))
    written = write_spans(found, offsets.tolist(), target)
    return [written[i:j] for i, j in pairwise(offsets.tolist())] if nested else written


def explain_invalid(labels: Sequence[Any], scheme: str) -> list[str]:
    """What a scheme of :data:`SCHEMES` forbids in one sequence, a sentence for each wrong label.

    Examples
    --------
    >>> explain_invalid(["B-NP", "O", "I-NP"], "IOB2")
    ['I-NP at token 2 follows O; IOB2 wants B-NP there.']
    """
    name = scheme_name(scheme)
    rules, given = RULES[name], plain(labels)
    tags = [split_tag(label) for label in given]
    own = f"a tag of {name}, whose prefixes are {', '.join(rules.opens)} and O."
    foreign = [t for t, (prefix, _) in enumerate(tags) if prefix not in ("O", *rules.opens)]
    if foreign:
        return [f"{given[t]} at token {t} is not {own}" for t in foreign]
    # Exactly the valid sequences stay as they are when their spans are written again.
    wanted = convert_scheme(given, name, name)
    sentences = []
    for t, label in enumerate(given):
        if wanted[t] == label:
            continue
        prefix, want = tags[t][0], split_tag(wanted[t])[0]
        before = f"follows {given[t - 1]}" if t else "starts the sequence"
        after = f"is followed by {given[t + 1]}" if t + 1 < len(given) else "ends the sequence"
        sides = ((before, rules.opens), (after, rules.closes))
        reason = " and ".join(text for text, marks in sides if marks[prefix] is not marks[want])
        sentences.append(f"{label} at token {t} {reason}; {name} wants {wanted[t]} there.")
    return sentences


def write_spans(found: list[Span], offsets: list[int], name: str) -> list[str]:
    """Labels of spans, which are in order and do not overlap; types may be empty."""
    labels = ["O"] * offsets[-1]
    cuts = set(offsets)
    opening, inner, closing, only = RULES[name].written
    touched = ("", -1)  # type and end of the span before
    for kind, first, stop in found:
        marks = only if stop - first == 1 else opening + inner * (stop - first - 2) + closing
        labels[first:stop] = [join_tag(mark, kind) for mark in marks]
        if touched == (kind, first) and first not in cuts:
            if name == "IOB1":
                labels[first] = join_tag("B", kind)
            if name == "IOE1":
                labels[first - 1] = join_tag("E", kind)
        touched = (kind, stop)
    return labels
