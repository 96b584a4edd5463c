"""A tagger for text: from words and tags to a model file, with evaluation and explanations.

The notes are generated, so nothing is downloaded; half of the names in the test notes do not occur
in training. Run: python examples/tagging.py
"""

import random
import tempfile
from pathlib import Path

import hingeline
from hingeline import ChainSSVM
from hingeline.data import write_conll
from hingeline.evaluation.inspection import explain, top_features
from hingeline.evaluation.metrics import evaluate
from hingeline.features import TokenTable, TokenTemplates

FIRST = ["Ana", "Boris", "Chen", "Dora", "Emil", "Fatima", "Goran", "Hana", "Igor", "Jana"]
LAST = ["Almeida", "Berg", "Castro", "Duarte", "Ek", "Fuchs", "Garcia", "Horvat", "Ito", "Jensen"]
PLACES = ["Porto", "New York", "San Marino", "Bergen", "Cape Town", "Leiden", "Santa Cruz", "Graz"]
UNSEEN_FIRST = ["Kofi", "Lena", "Milan", "Nadia", "Oskar", "Petra", "Quentin", "Rosa"]
UNSEEN_LAST = ["Keller", "Lopez", "Moreau", "Novak", "Olsen", "Petrov", "Quist", "Rossi"]
UNSEEN_PLACES = ["Lima", "San Remo", "New Haven", "Tartu", "Cape Cod", "Utrecht"]
MONTHS = ["January", "March", "May", "July", "September", "November"]
FORMS = [
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
]


def notes(n: int, seed: int, unseen: float) -> TokenTable:
    """Return notes with columns word and tag; names are new with probability `unseen`."""
    rng = random.Random(seed)

    def fill(kind: str) -> str:
        new = rng.random() < unseen
        if kind == "PER":
            first = rng.choice(UNSEEN_FIRST if new else FIRST)
            last = rng.choice(UNSEEN_LAST if new else LAST)
            return rng.choice([first, f"{first} {last}", f"Dr. {last}"])
        if kind == "LOC":
            return rng.choice(UNSEEN_PLACES if new else PLACES)
        return f"{rng.randint(1, 28)} {rng.choice(MONTHS)}"

    sentences = []
    for _ in range(n):
        sentence = []
        for piece in rng.choice(FORMS).split():
            if not piece.startswith("{"):
                sentence.append((piece, "O"))
                continue
            kind = piece.strip("{}")
            words = fill(kind).split()
            tags = [f"{'I' if k else 'B'}-{kind}" for k in range(len(words))]
            sentence += zip(words, tags, strict=True)
        sentences.append(sentence)
    return TokenTable.from_sentences(sentences, ["word", "tag"])


def train(table: TokenTable) -> ChainSSVM:
    """Fit words to tags and say what the certificate says."""
    templates = TokenTemplates(
        [
            *(f"word[{k}]" for k in (-1, 0, 1)),
            "word[-1]|word[0]",
            "shape(word[0],collapse)",
            "shape(word[-1],collapse)|shape(word[0],collapse)",
            "suffix(word[0],2)",
            "isdigit(word[0])",
        ]
    )
    tagger = ChainSSVM(C=0.1, scheme="auto", features=templates, random_state=0)
    tagger.fit(table.select(["word"]), table.sentences("tag"))
    gap = tagger.duality_gap_ / tagger.primal_objective_
    print(f"{len(table)} notes, {table.n_tokens} tokens, {tagger.n_features_in_} features")
    print(f"scheme {tagger.scheme_}, at most {gap:.2%} above the optimum\n")
    return tagger


def where_it_is_unsure(tagger: ChainSSVM, table: TokenTable) -> None:
    """Show the two best labellings of the note with the smallest margin, and what tips it."""
    words = table.select(["word"])
    unsure = int(tagger.predict_margin(words).argmin())
    print("least sure of:", *table.sentences("word")[unsure])
    best = tagger.predict_nbest(words[[unsure]], 2)[0]
    for labels, score in best:
        print(f"{score:8.3f}", *labels)
    print("    true", *table.sentences("tag")[unsure], "\n")
    second, _ = best[1]
    print(explain(tagger, words, index=unsure, against=second).text(6), "\n")


def control(tagger: ChainSSVM) -> None:
    """Say what is known about single tokens; the rest of the labelling follows."""
    note = ["tickets", "for", "Milan", ",", "back", "on", "3", "May"]
    print("as it is:             ", *tagger.predict([note])[0])
    print("Milan is a place here:", *tagger.predict([note], allowed=[{2: "B-LOC"}])[0], "\n")


def main() -> None:
    """Train, evaluate, look into the model, store it and load it again."""
    train_table, test_table = notes(600, seed=0, unseen=0.0), notes(300, seed=1, unseen=0.5)
    tagger = train(train_table)
    words, truth = test_table.select(["word"]), test_table.sentences("tag")
    print(evaluate(truth, tagger.predict(words), bootstrap=500), "\n")

    where_it_is_unsure(tagger, test_table)
    control(tagger)
    for row in top_features(tagger, 2):
        if row.label == "B-LOC":
            print(f"{row.label}  {row.weight:+.3f}  {row.feature}")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "notes.hinge")
        stored = tagger.save(path)
        again = hingeline.load(path)
        same = all(map(list.__eq__, *(map(list, m.predict(words)) for m in (tagger, again))))
        print(f"\nstored in {stored['bytes']:,} bytes; loaded, it predicts the same: {same}")
        # The files that `hingeline train`, `evaluate` and `predict` read.
        write_conll(Path(folder, "notes.conll"), train_table)
        print("as a CoNLL file:", Path(folder, "notes.conll").read_text().splitlines()[:3])


if __name__ == "__main__":
    main()
