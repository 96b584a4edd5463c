"""Segments and dependencies on the command line: what commands make of them, what they refuse."""

import re

import pytest

import hingeline
from hingeline.data import load_notes

# isort: split
from cli.commands import done, refused

TREES = """# text = dogs bark loudly
1\tdogs\tdog\tNOUN\t_\t_\t2\tnsubj\t_\t_
2\tbark\tbark\tVERB\t_\t_\t0\troot\t_\t_
3\tloudly\tloudly\tADV\t_\t_\t2\tadvmod\t_\t_

1\tbirds\tbird\tNOUN\t_\t_\t2\tnsubj\t_\t_
2\tsing\tsing\tVERB\t_\t_\t0\troot\t_\t_

"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    notes = load_notes()
    for name, X, y in (("a", notes.X_train, notes.y_train), ("b", notes.X_test, notes.y_test)):
        rows = [zip(*pair, strict=True) for pair in zip(X[:60], y[:60], strict=True)]
        text = "\n".join("".join(f"{word}\t{tag}\n" for word, tag in own) for own in rows)
        (folder / f"{name}.conll").write_text(text)
    (folder / "a.conllu").write_text(TREES * 4)
    done("train", folder / "a.conll", "-m", folder / "s.hinge", "--task", "segments", "-q")
    done("train", folder / "a.conllu", "-m", folder / "d.hinge", "--task", "dependencies", "-q")
    return folder


def test_the_report_of_segments_counts_spans(folder):
    done("report", folder / "s.hinge", "--test", folder / "b.conll")
    page = (folder / "s.html").read_text()
    assert "span F1" in page
    assert "Transitions" in page


def test_the_report_of_trees_tells_heads_from_relations(folder):
    wrong = TREES.replace("2\tadvmod", "1\tadvmod").replace(
        "\tdogs\tdog\tNOUN\t_\t_\t2\tnsubj", "\tdogs\tdog\tNOUN\t_\t_\t2\tobj"
    )
    (folder / "wrong.conllu").write_text(wrong)
    done("report", folder / "d.hinge", "--test", folder / "wrong.conllu")
    page = " ".join(re.sub("<[^>]*>", " ", (folder / "d.html").read_text()).split())
    assert "LAS 60.00 %" in page
    assert "UAS 80.00 %" in page
    assert "advmod, wrong head" in page


def test_lexicons_of_phrases(folder):
    (folder / "days.txt").write_text("Monday\n\n  next   week \n")
    train = ["train", folder / "a.conll", "-m", folder / "lexicon.hinge", "-q", "--lexicon"]
    done(*train, f"day={folder / 'days.txt'}", "--task", "segments")
    known = hingeline.load(folder / "lexicon.hinge").segment_features.lexicon
    assert known == {"day": {"Monday", "next week"}}
    assert "expected NAME=FILE" in refused(*train, "days.txt", "--task", "segments")
    assert "none.txt" in refused(*train, "day=none.txt", "--task", "segments")
    (folder / "empty.txt").write_text("\n")
    assert "is empty" in refused(*train, f"day={folder / 'empty.txt'}", "--task", "segments")
    assert "--lexicon is for --task segments" in refused(*train, f"day={folder / 'days.txt'}")


def test_trees_are_compared_with_trees(folder):
    test = ["--test", folder / "a.conllu"]
    done("report", folder / "d.hinge", *test, "--compare", folder / "d.hinge")
    assert "d.hinge" in (folder / "d.html").read_text()
    done("train", folder / "a.conllu", "-m", folder / "tags.hinge", "-q")
    said = refused("report", folder / "d.hinge", *test, "--compare", folder / "tags.hinge")
    assert "does not predict the same" in said


@pytest.mark.parametrize("kind", ["s", "d"])
@pytest.mark.parametrize(
    ("command", "options", "said"),
    [
        ("predict", ["--margin"], "--margin is for labels"),
        ("predict", ["--constraints", "citations"], "--constraints is for labels"),
        ("calibrate", ["-m", "no.hinge"], "use its predict_margin"),
        ("update", ["-m", "no.hinge"], "cannot learn from more data"),
        ("serve", None, "does not label words one by one"),
    ],
)
def test_what_is_for_labels_is_refused(folder, kind, command, options, said):
    data = [] if options is None else [folder / ("b.conll" if kind == "s" else "a.conllu")]
    assert said in refused(command, folder / f"{kind}.hinge", *data, *(options or ()))


def test_bad_tasks(folder):
    train = ["train", "-m", folder / "no.hinge", "--task"]
    assert "one of labels, segments" in refused(*train, "parse", folder / "a.conllu")
    assert "is for conllu files" in refused(*train, "dependencies", folder / "a.conll")
    options = ["segments", folder / "a.conll", "--keep-state"]
    assert "--keep-state is for labels, not for segments" in refused(*train, *options)
    options = ["dependencies", folder / "a.conllu", "--rescale", "slack"]
    assert "--rescale is not for --task dependencies" in refused(*train, *options)
    bad = folder / "bad.conllu"
    bad.write_text(TREES.replace("2\tnsubj", "x\tnsubj", 1))
    assert "the head of word 1 of sentence 1 is 'x'" in refused(*train, "dependencies", bad)
    assert not (folder / "no.hinge").exists()
