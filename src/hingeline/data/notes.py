"""Short notes with people, places and dates, made up by a fixed recipe: text to try a tagger on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sklearn.utils import check_random_state

# fmt: off
_FIRST = ("Ana", "Boris", "Chen", "Dora", "Emil", "Fatima", "Goran", "Hana", "Igor", "Jana", "Kofi")
_LAST = ("Almeida", "Berg", "Castro", "Duarte", "Ek", "Fuchs", "Garcia", "Horvat", "Keller", "Ito")
_PLACES = ("Porto", "New York", "San Marino", "Bergen", "Cape Town", "Leiden", "Graz", "San Remo",
           "New Haven", "Tartu", "Cape Cod", "Lima")
_MONTHS = ("January", "March", "May", "July", "September", "November")
# fmt: on
_FORMS = (
    "meet {PER} in {LOC} on {DATE}",
    "{PER} from {LOC} calls {PER} on {DATE}",
    "no train to {LOC} on {DATE}",
    "ask {PER} about the room in {LOC}",
    "{LOC} office : {PER} , since {DATE}",
    "in May the fair moves to {LOC}",
    "tickets for {PER} , back on {DATE}",
    "tickets for {LOC} , back on {DATE}",
    "visit {PER} and {PER} in {LOC}",
    "visit {LOC} and {LOC}",
)


@dataclass(frozen=True)
class Notes:
    """Words and tags of notes, one list per note."""

    X_train: list[list[str]]
    y_train: list[list[str]]  # B-PER, I-PER, B-LOC, I-LOC, B-DATE, I-DATE and O
    X_test: list[list[str]]
    y_test: list[list[str]]


def load_notes(n_train: int = 400, n_test: int = 400, random_state: Any = 0) -> Notes:
    """Short notes, with tags for people, places and dates.

    One is *meet Dr. Berg in New York on 3 May*. Every other name and place of the test notes
    occurs in none of the training notes.

    Parameters
    ----------
    n_train, n_test : int
        How many notes to make.
    random_state : int, RandomState or None, default=0

    Examples
    --------
    >>> notes = load_notes(n_train=100, n_test=1)
    >>> len(notes.X_train), len(notes.X_train[0]) == len(notes.y_train[0])
    (100, True)
    """
    for name, count in (("n_train", n_train), ("n_test", n_test)):
        if count < 1:
            raise ValueError(f"{name} must be at least 1, got {count!r}.")
    rng = check_random_state(random_state)
    return Notes(*_make(n_train, rng, 2), *_make(n_test, rng, 1))


def _make(count: int, rng: Any, step: int) -> tuple[list[list[str]], list[list[str]]]:
    """Words and tags; with ``step=2`` every other name and place is left out."""

    def draw(names: tuple[str, ...]) -> str:
        return names[step * rng.randint(len(names) // step)]

    def fill(kind: str) -> str:
        if kind == "PER":
            first, last = draw(_FIRST), draw(_LAST)
            return str(rng.choice([first, f"{first} {last}", f"Dr. {last}"]))
        return draw(_PLACES) if kind == "LOC" else f"{rng.randint(1, 29)} {rng.choice(_MONTHS)}"

    X, y = [], []
    for _ in range(count):
        note: list[tuple[str, str]] = []
        for piece in _FORMS[rng.randint(len(_FORMS))].split():
            kind = piece.strip("{}")
            words = fill(kind).split() if kind != piece else [piece]
            tags = [f"{'I' if k else 'B'}-{kind}" for k in range(len(words))]
            note += zip(words, tags if kind != piece else "O", strict=True)
        X.append([word for word, _ in note])
        y.append([tag for _, tag in note])
    return X, y
