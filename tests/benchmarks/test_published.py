"""The published data sets: the counts their description states, and files that are not there."""

from __future__ import annotations

import gzip
import hashlib
import os

import numpy as np
import pytest

import datasets
import published
from datasets import BenchmarkError
from hingeline.data import read_multilabel, write_conllu

wants_data = [
    pytest.mark.slow,
    pytest.mark.data,
    pytest.mark.skipif(not os.environ.get("HINGELINE_DATA"), reason="HINGELINE_DATA is not set"),
]


def real(function):
    for mark in wants_data:
        function = mark(function)
    return function


def sizes(*tables):
    return [len(table) for table in tables], [table.n_tokens for table in tables]


def labels(table, column=-1):
    return set(table.column(column).tolist())


@real
def test_ocr_letters():
    words = published.load_ocr_letters()
    assert words.pixels.shape == (52_152, 128)
    counts = [626, 704, 684, 698, 693, 651, 739, 717, 690, 675]
    assert np.bincount(words.folds).tolist() == counts
    assert len(words.folds) == 6_877
    assert len(set(words.letters)) == 26
    spelt = ["".join(word) for word in words.labels()]
    assert "ommanding" in spelt
    assert len(set(spelt)) == 55
    assert set(np.unique(words.pixels)) == {0, 1}
    assert words.sequences().matrix.sum() == words.pixels.sum()


@real
def test_conll2000():
    found = published.load_conll2000()
    assert sizes(found.train, found.test) == ([8_936, 2_012], [211_727, 47_377])
    assert found.dev is None
    assert (len(labels(found.train)), len(labels(found.test))) == (22, 19)
    assert found.train.names == ("word", "pos", "chunk")
    assert found.train[0][0] == ("Confidence", "NN", "B-NP")


@real
def test_conll2002():
    found = published.load_conll2002()
    parts = (found.train, found.dev, found.test)
    assert sizes(*parts) == ([8_323, 1_915, 1_517], [264_715, 52_923, 51_533])
    assert len(labels(found.train)) == 9


@real
def test_citations():
    found = published.load_citations()
    parts = (found.train, found.dev, found.test, found.unlabelled)
    assert sizes(*parts) == ([300, 100, 100, 1_000], [10_803, 3_651, 3_502, 34_767])
    assert len(labels(found.train)) == 13
    assert [len(table) for table in found.small] == [25] * 5
    assert found.unlabelled.names == ("word",)


@real
def test_umass_citations():
    found = published.load_umass_citations()
    parts = (found.train, found.dev, found.test)
    assert sizes(*parts) == ([1_448, 655, 362], [37_042, 16_120, 9_109])
    assert [len(labels(part)) for part in parts] == [31, 29, 29]


@real
def test_seminars():
    found = published.load_seminars()
    assert sizes(found.documents) == ([485], [161_773])
    assert len(labels(found.documents)) == 9
    assert len(found.names) == len(set(found.names)) == 485
    for k in range(5):
        # The description says 314 unlabelled; in the file two documents are unused, not one.
        assert [len(part) for part in found.split(k)] == [25, 313, 145]
    with pytest.raises(ValueError, match="from 0 to 4, got 5"):
        found.split(5)


@real
def test_brown():
    found = published.load_brown()
    assert sizes(found.table) == ([57_340], [1_161_192])
    assert len(labels(found.table)) == 472
    assert len(found.files) == 500
    assert len(set(found.genres)) == 15
    assert len(found.file_of) == 57_340


@real
def test_treebank_sample():
    found = published.load_treebank_sample()
    leaves = [tree.leaves() for tree in found.trees]
    assert len(found.trees) == 3_914
    assert sum(map(len, leaves)) == 100_676
    assert found.tagged.n_tokens == found.dependencies.n_tokens == 94_084
    assert len(labels(found.tagged)) == 45
    assert (len(found.files), len(found.file_of)) == (199, 3_914)
    kept = [[leaf for leaf in sentence if leaf[1] != "-NONE-"] for sentence in leaves]
    assert kept == list(found.tagged)
    heads = [list(map(int, row)) for row in found.dependencies.sentences("head")]
    assert all(0 <= head <= len(row) for row in heads for head in row)


@real
def test_ud_english_ewt(tmp_path):
    found = published.load_ud_english_ewt()
    parts = [found.train, found.dev, found.test]
    tables = [part.table for part in parts]
    assert sizes(*tables) == ([12_544, 2_001, 2_077], [204_577, 25_147, 25_094])
    train = found.train.table
    assert len(labels(train, "upos")) == 17
    relations = set().union(*(labels(table, "deprel") for table in tables))
    xpos = set().union(*(labels(table, "xpos") for table in tables))
    assert (len(xpos - {"_"}), len(relations - {"_"})) == (49, 51)
    write_conllu(tmp_path / "copy", found.dev)
    original = datasets.data_file("ud_english_ewt/en_ewt-ud-dev.conllu.gz")
    assert (tmp_path / "copy").read_bytes() == gzip.decompress(original.read_bytes())


@real
@pytest.mark.parametrize(
    ("name", "n_train", "n_test", "n_labels", "per_item", "n_features"),
    [
        ("yeast", 1_500, 917, 14, 4.24, 103),
        ("scene", 1_211, 1_196, 6, 1.07, 294),
        ("emotions", 391, 202, 6, 1.87, 72),
        ("enron", 1_123, 579, 53, 3.38, 1_001),
        ("medical", 333, 645, 45, 1.25, 1_449),
        ("bibtex", 4_880, 2_515, 159, 2.40, 1_836),
        ("reuters21578", 7_770, 3_019, 90, 1.235, 10_179),
    ],
)
def test_multilabel(name, n_train, n_test, n_labels, per_item, n_features):
    found = published.load_multilabel(name)
    assert found.X_train.shape == (n_train, n_features)
    assert found.X_test.shape == (n_test, n_features)
    assert found.Y_train.shape == (n_train, n_labels)
    assert found.Y_test.shape == (n_test, n_labels)
    assert (len(found.feature_names), len(found.label_names)) == (n_features, n_labels)
    both = (found.Y_train.sum() + found.Y_test.sum()) / (n_train + n_test)
    assert both == pytest.approx(per_item, abs=0.006)


@real
def test_yeast_is_the_same_in_both_formats():
    arff = published.load_multilabel("yeast")
    for part, X, Y in (("train", arff.X_train, arff.Y_train), ("test", arff.X_test, arff.Y_test)):
        svm = read_multilabel(datasets.data_file(f"multilabel/yeast/yeast_{part}.svm.gz"))
        assert (svm.X.shape, svm.Y.shape) == (X.shape, Y.shape)
        # The two are not in the same order.
        assert np.array_equal(np.sort(svm.Y.toarray().sum(axis=1)), np.sort(Y.sum(axis=1)))
        assert np.allclose(np.sort(svm.X.toarray().sum(1)), np.sort(X.sum(1)), atol=1e-4)


@real
def test_msrc21():
    found = published.load_msrc21()
    assert [len(found.images(k)) for k in range(3)] == [238, 58, 295]
    assert (len(found.labels), len(found.edges)) == (73_103, 191_075)
    assert found.features.shape[1] == 121
    assert len(found.classes) == 21
    assert found.labels.min() == -1


@real
def test_weizmann_horses():
    found = published.load_weizmann_horses()
    assert [len(found.images(k)) for k in range(3)] == [131, 33, 164]
    assert (len(found.labels), len(found.edges)) == (39_623, 104_280)
    assert found.features.shape[1] == 89
    assert len(found.classes) == 2


@real
def test_snakes():
    train, test = published.load_snakes()
    assert (len(train.shape), len(test.shape)) == (200, 100)
    assert (len(train.labels), len(test.labels)) == (7_566, 3_750)
    assert len(np.unique(train.labels)) == 11
    assert np.array_equal(np.diff(train.ptr), train.shape.astype(int).prod(axis=1))


@real
def test_mnist():
    found = published.load_mnist()
    assert (found.X_train.shape, found.X_test.shape) == ((60_000, 784), (10_000, 784))
    assert np.unique(found.y_train).tolist() == list(range(10))
    header = (2051).to_bytes(4, "big") + b"".join(n.to_bytes(4, "big") for n in (60_000, 28, 28))
    digest = hashlib.md5(header + found.X_train.tobytes()).hexdigest()
    assert digest == "6bbc9ace898e44ae57da46a324031adb"


@real
def test_usps():
    found = published.load_usps()
    assert (found.X_train.shape, found.X_test.shape) == ((7_291, 256), (2_007, 256))
    assert (found.X_train.min(), found.X_train.max()) == (-1.0, 1.0)
    assert np.unique(found.y_test).tolist() == list(range(10))


@real
def test_letter():
    found = published.load_letter()
    assert (found.X_train.shape, found.X_test.shape) == ((15_000, 16), (5_000, 16))
    assert np.unique(found.y_train).tolist() == list(range(1, 27))


@real
def test_news20():
    X, y = published.load_news20()
    assert (X.shape, X.nnz) == ((15_935, 62_061), 1_272_569)
    assert np.unique(y).tolist() == list(range(1, 21))


@real
def test_every_file_has_the_sum_that_is_known():
    for name in datasets.known_sums():
        datasets.data_file(name)


# Without the data -------------------------------------------------------------------------------


def test_without_the_variable_the_message_names_it(monkeypatch):
    monkeypatch.delenv("HINGELINE_DATA", raising=False)
    with pytest.raises(BenchmarkError, match="Set the environment variable HINGELINE_DATA"):
        published.load_conll2000()


def test_an_absent_file_is_told_where_it_belongs(tmp_path):
    with pytest.raises(BenchmarkError, match=r"has no file mnist/train-images.*put it there"):
        published.load_mnist(tmp_path)


def test_another_file_is_refused_unless_unchecked(tmp_path, monkeypatch):
    folder = tmp_path / "conll2000"
    folder.mkdir()
    for part in ("train", "test"):
        (folder / f"{part}.txt.gz").write_bytes(gzip.compress(b"He PRP B-NP\n\n"))
    monkeypatch.setenv("HINGELINE_DATA", str(tmp_path))
    with pytest.raises(BenchmarkError, match=r"is not the file that is meant.*check=Fal"):
        published.load_conll2000()
    found = published.load_conll2000(check=False)
    assert found.train[0] == [("He", "PRP", "B-NP")]


def test_a_file_is_summed_once_and_again_when_it_changed(tmp_path, monkeypatch):
    file = tmp_path / "some" / "file"
    file.parent.mkdir()
    file.write_bytes(b"one")
    monkeypatch.setitem(datasets.known_sums(), "some/file", hashlib.sha256(b"one").hexdigest())
    assert datasets.data_file("some/file", tmp_path) == file
    monkeypatch.setattr(hashlib, "file_digest", None)  # would fail if called
    assert datasets.data_file("some/file", tmp_path) == file
    monkeypatch.undo()
    file.write_bytes(b"other")
    monkeypatch.setitem(datasets.known_sums(), "some/file", hashlib.sha256(b"one").hexdigest())
    with pytest.raises(BenchmarkError, match="SHA-256"):
        datasets.data_file("some/file", tmp_path)


def test_a_name_that_is_no_multilabel_set():
    with pytest.raises(ValueError, match=r"name must be one of yeast, .* got 'yeats'"):
        published.load_multilabel("yeats")


def test_an_archive_that_is_none(tmp_path):
    (tmp_path / "snakes").mkdir()
    (tmp_path / "snakes" / "snakes.npz").write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(ValueError, match=r"snakes\.npz: the archive cannot be read"):
        published.load_snakes(tmp_path, check=False)
