"""Files of words as people have them: headers, comments, commas, JSON, raw text, long ones."""

from __future__ import annotations

import csv
import io
import json
import re
import tracemalloc

import pytest

import hingeline
from cli.commands import conll, done, refused, run, sentences, write
from hingeline.data.text import TextSource
from hingeline.evaluation.metrics import evaluate

TRAIN, TEST = sentences(40, 0), sentences(15, 1)
NAMES = ("word", "pos", "tag")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    for name, data in (("train", TRAIN), ("test", TEST)):
        write(folder / f"{name}.conll", conll(data, 0, 1, 2))
        write(folder / f"{name}.csv", table(data))
        write(folder / f"{name}.jsonl", objects(data))
        write(folder / f"{name}.tsv", "word\tpos\ttag\n" + conll(data, 0, 1, 2).replace(" ", "\t"))
    for kind in ("conll", "csv", "jsonl", "tsv"):
        done("train", folder / f"train.{kind}", "-m", folder / f"{kind}.hinge")
    return folder


def table(data, order=(0, 1, 2)):
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(["sentence", *(NAMES[k] for k in order)])
    for i, sentence in enumerate(data, start=1):
        rows.writerows([i, *(row[k] for k in order)] for row in sentence)
    return out.getvalue()


def objects(data, keys=("tokens", "pos", "tags")):
    lines = [dict(zip(keys, map(list, zip(*rows, strict=True)), strict=False)) for rows in data]
    return "".join(json.dumps(line) + "\n" for line in lines)


def test_all_formats_give_the_same_model(folder):
    models = [hingeline.load(folder / f"{k}.hinge") for k in ("conll", "csv", "jsonl", "tsv")]
    assert len({model.weights_.tobytes() for model in models}) == 1
    assert models[1].metadata_["layout"]["columns"] == ["word", "pos"]
    assert models[2].metadata_["layout"]["label"] == "tags"
    assert models[3].metadata_["layout"]["names"] == ["word", "pos", "tag"]


def test_the_new_column_is_the_same_in_all_formats(folder):
    lines = done("predict", folder / "conll.hinge", folder / "test.conll").splitlines()
    expected = [line.split()[-1] for line in lines if line]
    out = done("predict", folder / "csv.hinge", folder / "test.csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["predicted"] for row in rows] == expected
    assert "".join(line.rsplit(",", 1)[0] + "\n" for line in out.splitlines()) == table(TEST)
    out = done("predict", folder / "jsonl.hinge", folder / "test.jsonl")
    found = [json.loads(line) for line in out.splitlines()]
    assert [label for row in found for label in row.pop("predicted")] == expected
    assert found == [json.loads(line) for line in objects(TEST).splitlines()]
    out = done("predict", folder / "tsv.hinge", folder / "test.tsv")
    assert out.startswith("word\tpos\ttag\tpredicted\n")
    assert [line.split("\t")[-1] for line in out.splitlines()[1:] if line] == expected
    scores = [done("evaluate", folder / f"{k}.hinge", folder / f"test.{k}") for k in ("csv", "tsv")]
    assert scores[0] == scores[1] == done("evaluate", folder / "conll.hinge", folder / "test.conll")


def test_a_model_reads_words_of_other_formats(folder):
    expected = done("evaluate", folder / "conll.hinge", folder / "test.conll")
    for kind in ("csv", "jsonl", "tsv"):
        assert done("evaluate", folder / "conll.hinge", folder / f"test.{kind}") == expected
    assert done("evaluate", folder / "csv.hinge", folder / "test.conll") == expected


def test_columns_are_found_by_name(folder, tmp_path):
    turned = write(tmp_path / "turned.csv", table(TEST, (2, 1, 0)))
    expected = done("evaluate", folder / "csv.hinge", folder / "test.csv")
    assert done("evaluate", folder / "csv.hinge", turned) == expected
    other = write(tmp_path / "other.tsv", "word\tlemma\ttag\nAnn\tann\tO\n")
    message = refused("predict", folder / "csv.hinge", other)
    assert "has no column pos, which the model was trained on: it has word, lemma, tag" in message


def test_a_header_that_training_was_told_of_is_one_in_other_files(tmp_path):
    """With and without labels, in pieces and as a whole; the last line was labelled as a token."""
    names, rows = "mot cat etiquette\n", "Ann N B-PER\nran V O\n\nBob N B-PER\nsat V O\n"
    train, model = write(tmp_path / "train", names + rows), tmp_path / "m.hinge"
    done("train", train, "-m", model, "--columns", "mot,cat,etiquette", "-q")
    out = done("predict", model, train).splitlines()
    assert out[:2] == ["mot cat etiquette predicted", "Ann N B-PER B-PER"]
    bare = write(tmp_path / "bare", "mot cat\nAnn N\nran V\n")
    assert done("predict", model, bare) == "mot cat predicted\nAnn N B-PER\nran V O\n"
    assert json.loads(done("evaluate", model, train, "--json"))["n_tokens"] == 4


def test_comments_and_headers_are_not_learned(tmp_path):
    plain = conll(TRAIN, 0, 2)
    dressed = "word tag\n" + "\n\n".join(
        f"# domain=en\n# a comment of several words\n{block}" for block in plain.split("\n\n")
    )
    for name, content in (("plain", plain), ("dressed", dressed)):
        done("train", write(tmp_path / name, content), "-m", tmp_path / f"{name}.hinge")
    a, b = (hingeline.load(tmp_path / f"{name}.hinge") for name in ("plain", "dressed"))
    assert a.classes_.tolist() == b.classes_.tolist() == sorted({"B-LOC", "B-PER", "I-PER", "O"})
    assert a.weights_.tobytes() == b.weights_.tobytes()


def test_everything_else_comes_back(folder, tmp_path):
    """So that cut and paste work: tabs, documents, comments, blank lines, Windows line ends."""
    content = (
        "\ufeff-DOCSTART- -X- O\r\n\r\n# id = 1\r\nAnn\tN\tO\r\nran\tV\tO\r\n\r\n\r\n"
        "# a comment\nOslo\tN\tO\n \nx\tV\tO"
    )
    file, output = write(tmp_path / "file", content), tmp_path / "out"
    done("predict", folder / "conll.hinge", file, "-o", output)
    before, after = (part.split(b"\n") for part in (content.encode(), output.read_bytes()))
    assert len(before) == len(after)
    for old, new in zip(before, after, strict=True):
        if b"\tN\t" in old or b"\tV\t" in old:
            end = b"\r" if old.endswith(b"\r") else b""
            start, label = new.removesuffix(end).rsplit(b"\t", 1)
            assert start == old.removesuffix(end)
            assert label.decode() in ("O", "B-PER", "I-PER", "B-LOC")
        else:
            assert new == old


@pytest.mark.parametrize("kind", ["conll", "csv", "jsonl", "tsv"])
def test_files_of_windows_programs(kind, folder, tmp_path):
    """With a byte order mark and Windows line ends."""
    content = "\ufeff" + (folder / f"test.{kind}").read_text().replace("\n", "\r\n")
    file, output = write(tmp_path / f"file.{kind}", content), tmp_path / "out"
    done("predict", folder / f"{kind}.hinge", file, "-o", output)
    expected = "\ufeff" + done("predict", folder / f"{kind}.hinge", folder / f"test.{kind}")
    assert output.read_bytes().decode() == expected.replace("\n", "\r\n")


@pytest.mark.parametrize("kind", ["conll", "csv", "jsonl", "tsv"])
def test_pieces_are_as_the_whole(kind, folder, tmp_path, monkeypatch):
    expected = done("predict", folder / f"{kind}.hinge", folder / f"test.{kind}")
    pieces = TextSource.pieces
    seen = []

    def small(self, ends=None, size=1):
        for piece in pieces(self, ends, size if ends is None else 50):
            seen.extend([piece] if ends is not None else [])
            yield piece

    monkeypatch.setattr(
        TextSource, "read", lambda self, size=0, read=TextSource.read: read(self, 64)
    )
    monkeypatch.setattr(TextSource, "pieces", small)
    assert done("predict", folder / f"{kind}.hinge", folder / f"test.{kind}") == expected
    assert len(seen) > 5
    broken = folder / f"test.{kind}"
    content = broken.read_text() + ("x\n" if kind != "jsonl" else "{\n")
    bad = write(tmp_path / f"bad.{kind}", content)
    result = run("predict", folder / f"{kind}.hinge", bad)
    assert result.exit_code == 2
    assert f"bad.{kind}:{content.count(chr(10))}: " in result.stderr


@pytest.mark.slow
def test_a_long_file_takes_no_more_memory(folder, tmp_path):
    short, long = (write(tmp_path / f"{n}.conll", conll(TEST, 0, 1) * n) for n in (2_500, 4_000))
    peaks = []  # even the short file is longer than a piece
    for file in (short, short, long):
        tracemalloc.start()
        done("predict", folder / "conll.hinge", file, "-o", tmp_path / "out")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 1.1 * peaks[1]


def test_cross_validation(folder, tmp_path):
    """Labels by models that have not seen them, features included."""
    model, out = tmp_path / "m.hinge", tmp_path / "out"
    arguments = ("train", folder / "train.conll", "-m", model, "--json")
    result = json.loads(done(*arguments, "--cv", 4, "--cv-output", out))
    found = [part.split("\n") for part in out.read_text().split("\n\n")[:-1]]
    assert [len(part) for part in found] == [len(rows) for rows in TRAIN]
    true = [[row[2] for row in rows] for rows in TRAIN]
    assert result["cv"] == pytest.approx(evaluate(true, found).span_f1)
    whole = json.loads(done("evaluate", model, folder / "train.conll", "--json"))
    assert result["score"] == "span F1"
    assert 0.3 < result["cv"] < whole["span_f1"]  # memorised words help the latter
    assert json.loads(done(*arguments))["relative_gap"] == result["relative_gap"]
    assert "pass --cv 5" in refused(*arguments, "--cv-output", out)
    assert f"{result['score']} {100 * result['cv']:.2f} % in cross-" in done(
        *arguments[:-1], "-q", "--cv", 4
    )
    train = folder / "train.conll"
    result = run("train", train, "-m", model, "--dev", train)
    assert re.search(r"C=[\d.]+: span F1 [\d.]+ % on the held-out data", result.stderr)
    assert "40 examples are too few for --cv 41" in refused(*arguments, "--cv", 41)


def test_raw_text(folder, tmp_path):
    one = tmp_path / "one.hinge"
    done("train", folder / "train.conll", "-m", one, "--use", "word")
    out = done("predict", one, "--raw", input="Ann Lee ran to Rome.\n\nBob sat!\n")
    words = [[line.split("\t")[0] for line in part.splitlines()] for part in out.split("\n\n")[:-1]]
    assert words == [["Ann", "Lee", "ran", "to", "Rome", "."], ["Bob", "sat", "!"]]
    assert out.startswith("Ann\tB-PER\nLee\tI-PER\nran\tO\n")
    message = refused("predict", folder / "conll.hinge", "--raw", input="a\n")
    assert "--raw gives words only, but the model was trained on word, col1" in message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"Ann,B-PER\nran,O\n", ["separated by ','", "begin with one like word,tag; of"]),
        (b"sentence,word,tag\n1,Ann,B-PER\n1,ran\n", [":3: expected 3 fields", "found 2"]),
        (b'[{"words": ["Ann"], "tags": ["O"]}, 1]', [":2: this is not a JSON object"]),
        (b'[\n  {\n    "words": ["Ann"]\n  }\n', ["this is not JSON (", "correct it"]),
        (b"caf\xe9 O\n", [":1: byte 0xe9 is not valid UTF-8", "iconv -f"]),
        (b"PK\x03\x04\0\0", ["neither text nor IDX; unpack it"]),
        ("Ann O\n".encode("utf-16"), ["UTF-16", "iconv -f UTF-16"]),
        (
            b"a b O\nc O\n" + b"a b O\n" * 20,
            [":2: expected 3 columns", "found 2; correct the line."],
        ),
    ],
)
def test_likely_mistakes(content, words, tmp_path):
    message = refused("train", write(tmp_path / "file", content), "-m", tmp_path / "m.hinge")
    assert all(word in message for word in words), message
    assert "separator" not in message  # there is no such option


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("Ann N\n".encode("utf-16"), "is UTF-16; convert it (iconv -f UTF-16"),
        (b"\xfd7zXZ\0\0", "neither text nor IDX; unpack it"),
        (b"word pos tag\n", "holds a header (word pos tag) and nothing else: there"),
        (b"word,pos,tag\n", "holds a header (word,pos,tag) and nothing else: there"),
        (b"\n\n", "file is empty"),
        (b"# a = 1\n# b = 2\n", "file is empty"),
    ],
)
def test_likely_mistakes_in_what_is_predicted(folder, content, words, tmp_path):
    file = write(tmp_path / "file", content)
    assert words in refused("predict", folder / "conll.hinge", file, "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "content", ["Ann B-PER\nran O\nBob B-PER\nsat O\n", "word,tag\nAnn,B-PER\nran,O\n"]
)
def test_words_that_are_one_sentence_are_said(content, tmp_path):
    file = write(tmp_path / "file", content)
    result = run("train", file, "-m", tmp_path / "m.hinge")
    told = result.stderr
    assert result.stdout.endswith(" kB\n")
    assert "All words are one sentence: separate sentences by a blank line" in told
    two = write(tmp_path / "two", "Ann B-PER\nran O\n\nBob B-PER\nsat O\n")
    assert "one sentence" not in run("train", two, "-m", tmp_path / "m.hinge").stderr


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("tag,word,pos\nB,Ann,N\nO,ran,V\n", "The labels are the column pos: --label tag"),
        ("Ann O\nran O\n\nBob O\n", "All labels are O: is col1 the column of the labels"),
        ("".join(f"O w{i}\n\n" for i in range(101)), "There are 101 different labels: is col1 the"),
    ],
)
def test_a_doubtful_column_of_labels_is_said(content, words, tmp_path):
    file = write(tmp_path / "file.csv", content)
    assert words in run("train", file, "-m", tmp_path / "m.hinge", "--max-iter", 1).stderr
    fine = write(tmp_path / "fine", conll(sentences(20, 0), 0, 1, 2))
    told = run("train", fine, "-m", tmp_path / "m.hinge").stderr
    assert "--label" not in told


@pytest.mark.parametrize(
    "content", ["Ann\tB\n\nBob\tB\nran\t\n", "sentence,word,tag\n1,Ann,B\n2,a,O\n2,b,\n"]
)
def test_a_token_without_a_label_is_refused(content, tmp_path):
    said = refused("train", write(tmp_path / "file", content), "-m", tmp_path / "m.hinge")
    assert "token 2 of sentence 2 has no label (column " in said


@pytest.mark.parametrize(
    "names", ["palabra etiqueta", "word tag_name", "term iob", "lemma upos", "w t"]
)
def test_a_first_line_that_may_be_a_header_is_said(names, tmp_path):
    rows = "Ann PER\nran O\nto O\n\nBob PER\nsat O\n"
    options = ["-m", tmp_path / "m.hinge", "--max-iter", 1]
    told = run("train", write(tmp_path / "file", f"{names}\n\n{rows}"), *options).stderr
    remedy = f"--columns {names.replace(' ', ',')}"
    assert f"label of the first line, {names}: if it names the columns, pass {remedy}" in told
    told = run("train", tmp_path / "file", *options, *remedy.split()).stderr
    assert "first line" not in told
    assert set(hingeline.load(tmp_path / "m.hinge").classes_) == {"O", "PER"}
    assert "first line" not in run("train", write(tmp_path / "file", rows), *options).stderr


@pytest.mark.parametrize("names", ["sentence_id word tag", "sent_id FORM TAG", "ID FORM TAG"])
def test_a_column_of_numbers_is_never_the_word(names, tmp_path):
    rows = [[f"1 {line}" for line in ("Ann PER", "ran O")], ["2 Bob PER", "2 sat O", "2 to O"]]
    apart = "\n" if names.startswith("ID") else ""  # which does not end sentences
    lines = ("\n" + apart).join("\n".join(part) for part in rows) + "\n"
    file, model = write(tmp_path / "file", f"{names}\n{lines}"), tmp_path / "m.hinge"
    told = run("train", file, "-m", model).stderr
    assert "2 sequences, 5 tokens" in told
    assert hingeline.load(model).metadata_["layout"]["columns"] == [names.split()[1]]
    out = done("predict", model, file).splitlines()
    assert out[:2] == [f"{names} predicted", "1 Ann PER PER"]
    bare = "\n".join(line.rsplit(" ", 1)[0] for line in f"{names}\n{lines}".splitlines())
    out = done("predict", model, write(tmp_path / "bare", bare)).splitlines()
    assert out[:2] == [f"{names.rsplit(' ', 1)[0]} predicted", "1 Ann PER"]
    csv = write(tmp_path / "file.csv", f"{names}\n{lines}".replace(" ", ","))
    assert json.loads(done("evaluate", model, csv, "--json"))["token_accuracy"] == 1.0


def test_a_json_list_is_read_as_its_objects(folder, tmp_path):
    whole = [json.loads(line) for line in objects(TEST).splitlines()]
    file = write(tmp_path / "list.json", json.dumps(whole, indent=1))
    args = folder / "jsonl.hinge", file
    assert done("predict", *args) == done("predict", args[0], folder / "test.jsonl")
    assert done("evaluate", *args) == done("evaluate", args[0], folder / "test.jsonl")
    done("train", file, "-m", tmp_path / "m.hinge", "--max-iter", 1)


@pytest.mark.parametrize("name", ["file.conll", "file.csv", "file.jsonl", "file.conll.gz"])
@pytest.mark.parametrize("task", ["labels", "segments"])
def test_labels_that_break_the_scheme_are_told_by_line(name, task, tmp_path):
    rows = [[("Ann", "N", "B-PER")], [("Bob", "N", "O"), ("Lee", "N", "I-PER"), ("to", "V", "O")]]
    kind = name.split(".")[1]
    text = {
        "conll": "# of words\n" + conll(rows, 0, 2),
        "csv": table(rows),
        "jsonl": objects(rows),
    }[kind]
    file = write(tmp_path / name, text)
    said = refused("train", file, "-m", tmp_path / "m", "--scheme", "IOB2", "--task", task)
    place = {"conll": f"{file}:5", "csv": f"{file}:4", "jsonl": f"{file}, sentence 2"}[kind]
    how = "Correct the line, or leave --scheme out."
    assert said == f"{place}: I-PER follows O; IOB2 wants B-PER there. {how}"


def test_tabs_for_tsv(folder, tmp_path):
    done("convert", folder / "test.conll", tmp_path / "a.tsv")
    done("convert", folder / "test.conll", tmp_path / "a.csv")
    text = (tmp_path / "a.csv").read_text()
    assert (tmp_path / "a.tsv").read_text() == text.replace(",", "\t")
    done("convert", tmp_path / "a.tsv", tmp_path / "b.csv")
    assert (tmp_path / "b.csv").read_text() == text
    odd = write(tmp_path / "odd.csv", 'word,tag\n"a ""b",O\n"a\tb",O\n')
    assert "cannot stand between tabs" in refused("convert", odd, tmp_path / "odd.tsv")
