"""``--task dependencies``: from a CoNLL-U file to a parser and back."""

from __future__ import annotations

import json

import numpy as np
import pytest

import hingeline
from cli.commands import done, refused, sentences, write
from hingeline.data import read_conllu


def treebank(n, seed):
    """Sentences such as "the old dog sees a cat .", a range and an empty node in each."""
    rng = np.random.default_rng(seed)
    blocks = []
    for i in range(n):
        noun, rows = int(rng.integers(2, 4)), []
        words = ["the", "old"][: noun - 1] + [rng.choice(["dog", "cat"]), "sees", "it", "."]
        tags = ["DET", "ADJ"][: noun - 1] + ["NOUN", "VERB", "PRON", "PUNCT"]
        heads = [noun] * (noun - 1) + [noun + 1, 0, noun + 1, noun + 1]
        labels = ["det", "amod"][: noun - 1] + ["nsubj", "root", "obj:x", "punct"]
        for t, row in enumerate(zip(words, tags, heads, labels, strict=True), start=1):
            word, tag, head, label = map(str, row)
            rows.append("\t".join([str(t), word, word, tag, "_", "_", head, label, "_", "a=b"]))
        rows.insert(1, "1.1\tx\t_\t_\t_\t_\t_\t_\t1:x\t_")
        rows.insert(0, "1-2\tthe-x\t_\t_\t_\t_\t_\t_\t_\t_")
        blocks.append(f"# sent_id = {i}\n" + "\n".join(rows) + "\n\n")
    return "".join(blocks)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parser")
    write(folder / "train.conllu", treebank(40, 0))
    write(folder / "test.conllu", treebank(20, 1))
    files = folder / "train.conllu", "--model", folder / "p.hinge", "--dev", folder / "test.conllu"
    done("train", *files, "--task", "dependencies", "--tol", "0.2")
    return folder


def test_trees_come_back_in_the_file(folder):
    text = (folder / "test.conllu").read_text()
    wrong = text.replace("\tobj:x\t", "\tdep\t")
    assert done("predict", folder / "p.hinge", "-", input=wrong) == text
    # Where there are no trees, they are filled in.
    blank = [line.split("\t") for line in text.split("\n")]
    for row in blank:
        if row[0].isdigit():
            row[6:8] = "_", "_"
    bare = "\n".join(map("\t".join, blank))
    assert done("predict", folder / "p.hinge", "-", input=bare) == text
    assert "has no labels" in refused("evaluate", folder / "p.hinge", "-", input=bare)


def test_attachment_is_told(folder):
    file = folder / "test.conllu"
    words = read_conllu(file).table.n_tokens
    told = json.loads(done("evaluate", folder / "p.hinge", file, "--json", "--labels"))
    assert told["all words"] == {"uas": 1.0, "las": 1.0, "las_with_subtypes": 1.0, "n_words": words}
    assert told["without punctuation"]["n_words"] == words - 20
    assert told["by_label"]["punct"]["n_words"] == 20
    table = done("evaluate", folder / "p.hinge", file)
    assert "without punctuation  100.00  100.00" in table
    assert "--strict is for labels" in refused("evaluate", folder / "p.hinge", file, "--strict")


def test_best_trees_and_explanations(folder):
    found = done("predict", folder / "p.hinge", folder / "test.conllu", "--nbest", "2")
    first, second = found.split("\n\n")[:2]
    assert first.splitlines()[0].startswith("# sequence 1 rank 1 score")
    assert second.splitlines()[0].startswith("# sequence 1 rank 2 score")
    assert "sees\t0\troot" in first
    told = done("explain", folder / "p.hinge", folder / "test.conllu", "-s", "2")
    assert "margin" in told
    assert "h.upos=" in told


def test_the_report_and_what_parsers_cannot(folder, tmp_path):
    pytest.importorskip("matplotlib")
    test = folder / "test.conllu"
    done("report", folder / "p.hinge", "--test", test, "--output", tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "UAS" in page
    assert "100.00" in page
    said = refused("report", folder / "p.hinge", "--test", test, "--bootstrap", "9")
    assert "--bootstrap is not for dependencies" in said
    assert "does not label words one by one" in refused("serve", folder / "p.hinge")
    new = ("--model", tmp_path / "new.hinge")
    assert "cannot learn from more data" in refused("update", folder / "p.hinge", test, *new)


def test_options_that_do_not_fit(folder, tmp_path):
    file, new = folder / "train.conllu", ("--model", tmp_path / "new.hinge")
    task = ("--task", "dependencies")
    assert "--scheme is for labels" in refused("train", file, *new, *task, "--scheme", "IOB2")
    said = refused("train", file, *new, *task, "--template", "x.tpl")
    assert "--template is for labels, not for dependencies" in said
    assert "projective must be" in refused("train", file, *new, *task, "--projective", "never")
    assert "--projective is not for" in refused("train", file, *new, "--projective", "yes")
    cross = treebank(3, 0).replace("\t0\troot", "\t1\troot", 1)
    write(tmp_path / "bad.conllu", cross)
    said = refused("train", tmp_path / "bad.conllu", *new, *task)
    assert "bad.conllu" in said
    assert "y[0]" in said
    write(tmp_path / "words.conll", "\n".join(f"{w} {t}" for w, _, t in sentences(1, 0)[0]) + "\n")
    said = refused("train", tmp_path / "words.conll", *new, *task)
    assert "--task dependencies is for conllu files" in said


def test_a_parser_saved_in_python(folder, tmp_path):
    document = read_conllu(folder / "train.conllu")
    parser = hingeline.load(folder / "p.hinge")
    assert parser.encoder_.column_names_ == ["form", "lemma", "upos", "xpos", "feats"]
    parser.metadata_ = {}
    parser.save(tmp_path / "own.hinge")
    text = (folder / "train.conllu").read_text()
    assert parser.predict(document.table) == document.trees()
    assert done("predict", tmp_path / "own.hinge", folder / "train.conllu") == text
