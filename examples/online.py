"""A tagger that learns as sentences come: new words, new labels, and old sentences to forget.

Run: ``python examples/online.py``. Takes a few seconds, once kernels are compiled.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from hingeline import ChainSSVM, load

PEOPLE = ("Ann", "Bob", "Eve", "Kim", "Lee", "Max", "Ida", "Tom")
PLACES = ("Rome", "Oslo", "Lima", "Bonn", "Cork", "Nice")
VERBS = ("met", "saw", "left", "likes")


def sentences(n: int, seed: int, places: bool) -> tuple[list[list[str]], list[list[str]]]:
    """Words and tags; without places at first."""
    rng = random.Random(seed)
    X, y = [], []
    for _ in range(n):
        goal, tag = (rng.choice(PLACES), "LOC") if places and rng.random() < 0.5 else (
            rng.choice(PEOPLE), "PER"
        )  # fmt: skip
        X.append([rng.choice(PEOPLE), rng.choice(VERBS), goal, "in", str(rng.randint(1990, 2030))])
        y.append(["PER", "O", tag, "O", "DATE"])
    return X, y


def main() -> None:
    """Stream, grow, forget, store, go on."""
    tagger = ChainSSVM(C=1.0, random_state=0)

    # Three passes over each batch of 20, whatever came before: no certificate, little time.
    for seed in range(5):
        tagger.partial_fit(*sentences(20, seed, places=False), passes=3)
    print(f"{tagger.n_examples_} sentences, labels {[str(c) for c in tagger.classes_]}")
    print(f"stopped: {tagger.stop_reason_}; gap {tagger.duality_gap_}")

    # A label and words that were not there before come behind the known ones.
    before = tagger.emission_coef_.shape
    tagger.partial_fit(*sentences(20, 5, places=True), passes=3)
    print(f"labels × features: {before} → {tagger.emission_coef_.shape}")

    # Without passes= the problem of all sentences is solved, to a certificate.
    tagger.partial_fit(*sentences(20, 6, places=True))
    gap = tagger.duality_gap_ / tagger.primal_objective_
    print(f"{tagger.n_examples_} sentences, certified gap {100 * gap:.2g} %")

    # Old sentences leave, and the weights without them remain.
    tagger.forget(keep_last=40)
    print(f"{tagger.n_examples_} sentences after forgetting")

    # The file holds data and multipliers, too: learning goes on in another process.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tagger.hinge"
        tagger.save(path, state=True)
        later = load(path)
    later.partial_fit(*sentences(20, 7, places=True), memory=50)
    X, y = sentences(50, 8, places=True)
    print(f"{later.n_examples_} sentences in memory, accuracy {later.score(X, y):.3f}")


if __name__ == "__main__":
    main()
