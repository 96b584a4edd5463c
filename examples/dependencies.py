"""
Parsing: the head of every word
===============================

A dependency tree says for every word which other word it belongs to, its head, and in what role. A
small grammar writes the sentences here, so nothing is downloaded. One decision is hard: only the
words themselves tell whether "with a telescope" belongs to the verb or to the noun before it.
"""

# %%
# In the grammar, somebody sees, opens or feeds something with something. Tools belong to verbs that
# can use them, parts to nouns that have them. Words have a form and a tag. Trees are lists of
# (head, label); words are numbered from 1, and 0 is the root.

import numpy as np

TOOLS = {"saw": ["telescope", "lens"], "opened": ["key", "knife"], "fed": ["spoon", "bottle"]}
PARTS = {"house": ["garden", "chimney"], "cat": ["tail", "collar"], "box": ["lid", "lock"]}


def write_sentence(rng):
    words, tree = [], []

    def add(form, tag, head, label):
        words.append({"form": form, "upos": tag})
        tree.append((head, label))
        return len(words)

    def add_noun(noun, head, label):
        """A determiner, perhaps an adjective, and the noun; ``head`` may be a later word."""
        adjective = rng.random() < 0.4
        at = len(words) + 2 + adjective
        add(rng.choice(["the", "a"]), "DET", at, "det")
        if adjective:
            add(rng.choice(["old", "small", "red"]), "ADJ", at, "amod")
        return add(noun, "NOUN", head, label)

    verb, thing = rng.choice([*TOOLS]), rng.choice([*PARTS])
    adverb = rng.random() < 0.3
    at = add_noun(rng.choice(["child", "woman", "thief"]), None, "nsubj") + 1 + adverb
    tree[at - 2 - adverb] = (at, "nsubj")
    if adverb:
        add("quietly", "ADV", at, "advmod")
    add(verb, "VERB", 0, "root")
    owner = add_noun(thing, at, "obj")
    if rng.random() < 0.8:
        tool = rng.random() < 0.5
        last = rng.choice(TOOLS[verb] if tool else PARTS[thing])
        case = add("with", "ADP", None, "case")
        at = add_noun(last, at if tool else owner, "obl" if tool else "nmod")
        tree[case - 1] = (at, "case")
    add(".", "PUNCT", tree.index((0, "root")) + 1, "punct")
    return words, tree


rng = np.random.default_rng(0)
X, y = zip(*(write_sentence(rng) for _ in range(400)), strict=True)

# %%
# Trees without crossing arcs are found by Eisner's algorithm, others by that of Chu-Liu and
# Edmonds. By default the training trees decide which. The gap bounds how far the weights are from
# the best ones.

from hingeline import DependencySSVM
from hingeline.evaluation.metrics import attachment_scores

parser = DependencySSVM(tol=0.05, random_state=0).fit(X[:300], y[:300])
print(f"projective: {parser.projective_}, {len(parser.classes_)} labels")
print(f"at most {parser.duality_gap_ / parser.primal_objective_:.1%} above the optimum")
print(attachment_scores(y[300:], parser.predict(X[300:])))

# %%
# Draw a tree as text. The line begins at the head, and the arrow points to the word.

from hingeline.report import draw_parse

sentence = ["the", "thief", "saw", "the", "cat", "with", "a", "telescope", "."]
tags = ["DET", "NOUN", "VERB", "DET", "NOUN", "ADP", "DET", "NOUN", "PUNCT"]
words = [{"form": form, "upos": tag} for form, tag in zip(sentence, tags, strict=True)]
(tree,) = parser.predict([words])
print(draw_parse(sentence, tree))

# %%
# With another last word, the tree is different. This time draw it as SVG, which a notebook shows.

words[-2]["form"] = sentence[-2] = "collar"
(tree,) = parser.predict([words])
# sphinx_gallery_thumbnail_path = "_static/parse.png"
draw_parse(sentence, tree, "svg")

# %%
# Why? These features speak for the tree and against one in which the head of "collar" is word 3
# instead of word 5, or the other way round. ``h`` is the head, ``m`` the word.

from hingeline.evaluation.inspection import explain

other = [(3, "obl") if arc == (5, "nmod") else arc for arc in tree]
print(explain(parser, words, against=other).text(8))

# %%
# Show the best trees in order, with their scores.

for other, score in parser.predict_nbest([words], 3)[0]:
    print(f"{score:8.3f}", " ".join(f"{head}-{label}" for head, label in other))
