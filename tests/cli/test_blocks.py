"""Commands on many files: in blocks, on workers."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

import hingeline
from cli.commands import (
    conll,
    conllu,
    crfsuite,
    done,
    idx,
    letters,
    refused,
    run,
    sentences,
    svmhmm,
    svmlight,
    write,
)
from hingeline import ChainSSVM, MulticlassSSVM, MultilabelSSVM
from hingeline.distributed import fit_blocks
from hingeline.features import DictEncoder, TokenTemplates

# isort: split
from marks import slow

pytestmark = pytest.mark.subprocess
PARTS = [sentences(12, seed) for seed in range(3)]
TEST = sentences(15, 9)


class Here:
    """Blocks in this very process: the workers are not the point."""

    def open(self, n_blocks, make):
        self.host = make()

    def call(self, method, common, own):
        return self.host.call(method, common, own)

    sent = received = 0

    def n_alive(self):
        return 0

    def rebalance(self):
        return []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.fixture
def local(monkeypatch):
    monkeypatch.setattr("hingeline.distributed.fit._open", lambda *_, **__: Here())


@pytest.fixture
def folder(tmp_path):
    """Three files of three columns, and one to test."""
    for k, part in enumerate(PARTS):
        write(tmp_path / f"part-{k}.conll", conll(part, 0, 1, 2))
    write(tmp_path / "test.conll", conll(TEST, 0, 1, 2))
    return tmp_path


def train(folder, *options, files="part-*.conll", workers=2):
    """The result of a training in blocks, and the model."""
    to = ("-m", folder / "m.hinge", "--workers", workers, "--json")
    text = done("train", folder / files, *to, *options)
    return json.loads(text), hingeline.load(folder / "m.hinge")


@pytest.mark.slow
def test_files_train_on_workers_to_the_bits_of_the_library(folder, monkeypatch):
    result, model = train(folder, "--tol", "0.1", "-C", "0.3", "--use", "0", "--min-count", "2")
    monkeypatch.setattr("hingeline.distributed.fit._open", lambda *_, **__: Here())
    library = fit_blocks(
        ChainSSVM(C=0.3, tol=0.1, random_state=0, features=TokenTemplates(min_count=2)),
        str(folder / "part-*.conll"),
        use=["0"],
    )
    assert result["converged"]
    assert np.array_equal(model.weights_, library.weights_)
    assert list(model.feature_names_) == list(library.feature_names_)
    assert model.metadata_["layout"] == library.metadata_["layout"]
    assert [source["name"] for source in model.metadata_["data"]] == [
        f"part-{k}.conll" for k in range(3)
    ]
    scores = json.loads(done("evaluate", folder / "m.hinge", folder / "test.conll", "--json"))
    assert scores["token_accuracy"] > 0.8


def test_progress_says_round_bytes_and_workers(folder, local):
    result = run("train", *sorted(folder.glob("part-*")), "-m", folder / "m", "--workers", "1")
    assert result.exit_code == 0, result.stderr
    assert "3 files: 3 files (conll), in blocks" in result.stderr
    assert "pass 2, round " in result.stderr
    assert "MB, 0 workers, gap " in result.stderr


def label_sets(rows, first=1):
    """LIBSVM with sets of labels."""
    return "".join(f"{k % 2},{2 + k % 3} {first + k % 4}:1 9:0.5\n" for k in rows)


ARFF = """@relation toy
@attribute one {0,1}
@attribute two {0,1}
@attribute a numeric
@attribute b numeric
@data
"""


def arff(rows):
    return ARFF + "".join(f"{k % 2},{int(k % 3 > 0)},{k % 3},{k % 5}\n" for k in rows)


FORMATS = {
    "conllu": ([conllu(part) for part in PARTS], (), ChainSSVM(features=TokenTemplates())),
    "csv": (
        ["word,tag\n" + conll(part, 0, 2).replace(" ", ",") for part in PARTS],
        (),
        ChainSSVM(features=TokenTemplates()),
    ),
    "crfsuite": ([crfsuite(part) for part in PARTS], (), ChainSSVM(features=DictEncoder())),
    "svmhmm": ([svmhmm(part) for part in PARTS], (), ChainSSVM()),
    "letters": ([letters(part) for part in PARTS], (), ChainSSVM()),
    "svmlight": ([svmlight(part) for part in PARTS], (), MulticlassSSVM()),
    # Only the last file has a feature 0, and the last label.
    "multilabel": (
        [label_sets(range(20)), label_sets(range(0, 20, 3)), label_sets(range(20), 0)],
        ("-f", "multilabel"),
        MultilabelSSVM(),
    ),
    "arff": ([arff(range(12)), arff(range(1, 9))], ("--label", "2"), MultilabelSSVM(scale=True)),
}


SETS = ("multilabel", "arff")  # which compile what no other test of blocks does


@pytest.mark.parametrize("name", [slow(name) if name in SETS else name for name in FORMATS])
def test_every_format_has_the_optimum_of_one_file(tmp_path, local, name):
    """All parts in one file, trained on in one piece, and each part in a block."""
    texts, options, estimator = FORMATS[name]
    for k, text in enumerate(texts):
        write(tmp_path / f"part-{k}", text)
    header = {"arff": len(ARFF), "csv": len("word,tag\n")}.get(name, 0)
    if name == "svmhmm":  # sequences have numbers of their own in a file
        whole = svmhmm([rows for part in PARTS for rows in part])
    else:
        whole = texts[0] + "".join(text[header:] for text in texts[1:])
    write(tmp_path / "whole", whole)
    common = ("-C", "0.1", "--tol", "0.001", *options)
    done("train", tmp_path / "whole", "-m", tmp_path / "whole.hinge", *common)
    expected = hingeline.load(tmp_path / "whole.hinge")
    result, model = train(tmp_path, *common, files="part-*")
    assert result["converged"]
    assert model.n_features_in_ == expected.n_features_in_
    assert model.classes_.tolist() == expected.classes_.tolist()
    assert model.dual_objective_ <= expected.primal_objective_
    assert model.primal_objective_ >= expected.dual_objective_
    assert model.metadata_["layout"] == expected.metadata_["layout"]
    np.testing.assert_allclose(
        getattr(model, "feature_scales_", 1.0), getattr(expected, "feature_scales_", 1.0)
    )
    given = {} if not options or name == "multilabel" else {"label": "2"}
    given |= {"format": "multilabel"} if name == "multilabel" else {}
    estimator.set_params(C=0.1, tol=0.001, random_state=0)
    library = fit_blocks(estimator, str(tmp_path / "part-*"), **given)
    assert np.array_equal(model.weights_, library.weights_)
    done("predict", tmp_path / "m.hinge", tmp_path / "part-0")


def test_images_are_scaled_as_in_one_file(tmp_path, local):
    rng = np.random.default_rng(0)
    y = np.arange(40) % 4
    X = np.clip(rng.normal(60, 20, (40, 3, 3)) + 40 * y[:, None, None], 0, 255)
    for name, rows in (("a", slice(20)), ("b", slice(20, 40)), ("whole", slice(40))):
        (tmp_path / f"{name}-images-idx3-ubyte").write_bytes(idx(X[rows]))
        (tmp_path / f"{name}-labels-idx1-ubyte").write_bytes(idx(y[rows]))
    common = ("-C", "0.1", "--tol", "0.001")
    done("train", tmp_path / "whole-images-idx3-ubyte", "-m", tmp_path / "w.hinge", *common)
    expected = hingeline.load(tmp_path / "w.hinge")
    _, model = train(tmp_path, *common, files="[ab]-images-idx3-ubyte")
    np.testing.assert_allclose(model.feature_scales_, expected.feature_scales_, rtol=1e-12)
    np.testing.assert_allclose(model.feature_means_, expected.feature_means_, rtol=1e-12)
    assert model.dual_objective_ <= expected.primal_objective_
    assert model.primal_objective_ >= expected.dual_objective_


def test_held_out_data_end_the_training_of_blocks(folder, local):
    result, model = train(folder, "--dev", folder / "test.conll", "--tol", "1e-6")
    assert "held-out score" in result["stop_reason"]
    predicted = json.loads(done("evaluate", folder / "m.hinge", folder / "test.conll", "--json"))
    assert result["tried"][0]["dev"] == pytest.approx(predicted["span_f1"])
    assert model.metadata_["dev"]["name"] == "test.conll"


def test_a_checkpoint_of_blocks_is_taken_up(folder, local):
    long = ("--tol", "0.001", "-C", "1")
    _, expected = train(folder, *long)
    state = ("--checkpoint", folder / "state", "--checkpoint-every", "0")
    result, _ = train(folder, *long, *state, "--max-iter", "3")
    assert result["stop_reason"].startswith("max_iter")
    _, model = train(folder, *long, *state, "--resume")
    assert np.array_equal(model.weights_, expected.weights_)
    assert not (folder / "state").exists()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--cv", "3"), "--cv does not work with --workers: leave it out"),
        (("--grid", "C=1,2", "--dev", "x"), "--grid does not work with --workers: train once"),
        (("--keep-state",), "--keep-state does not work with --workers: train again"),
        (("--solver", "bcfw"), "--solver bcfw does not work in blocks: leave it 'auto'"),
        (("--slack", "sum"), "--slack sum cannot be solved in blocks: use 'max' or 'squared'"),
        (("--C", "auto"), "--C auto cannot be solved in blocks: give a finite number"),
        (("--scheme", "auto"), "give the scheme by its name"),
        (("--workers", "some"), "--workers: must be a number of processes"),
        (("--workers", "0"), "--workers: must be a number of processes"),
        (("--edges", "tree"), "--edges is for multilabel, arff files, not for conll"),
        (("--blocks", "2", "--checkpoint", "no/where"), "there is no folder no"),
    ],
)
def test_what_blocks_cannot_do_is_refused_by_name(folder, options, text):
    said = refused("train", folder / "part-*", "-m", folder / "m", "--workers", "2", *options)
    assert text in said


def test_bad_files_are_refused(folder, local):
    model = ("-m", folder / "m")
    assert "3 files are for training in blocks: add --workers" in refused(
        "train", *sorted(folder.glob("part-*")), *model
    )
    assert "--blocks is for training in blocks" in refused(
        "train", folder / "test.conll", *model, "--blocks", "2"
    )
    assert "no file is called" in refused("train", folder / "none-*", *model)
    assert "standard input" in refused("train", "-", *model, "--workers", "2", input="a b\n")
    write(folder / "part-3.conll", conll(PARTS[0], 0, 2))
    said = refused("train", folder / "part-*", *model, "--workers", "2")
    assert "part-0.conll has the columns word, col1, col2" in said
    assert "part-3.conll has word, col1: all files must have the same columns." in said
    write(folder / "part-3.conll", crfsuite(PARTS[0]))
    said = refused("train", folder / "part-[03]*", *model, "--workers", "2")
    assert "part-0.conll is conll and" in said
    assert "part-3.conll is crfsuite: give files of one format, or name it." in said
    write(folder / "part-3.conll", "")  # nothing at all is fine
    write(folder / "part-4.conll.gz", conll(PARTS[1], 0, 1, 2))
    done("train", folder / "part-*", *model, "--workers", "2", "--blocks", "2", "--tol", "0.3")


@pytest.mark.slow
def test_a_file_that_cannot_be_read_is_named_with_its_line_and_worker(folder):
    write(folder / "part-1.conll", conll(PARTS[0], 0, 1, 2) + "one two\n")
    said = refused("train", folder / "part-*", "-m", folder / "m", "--workers", "2")
    assert "part-1.conll:" in said
    assert "(on worker 1 (process " in said
    (folder / "part-1.conll").write_bytes(gzip.compress(b"a b c\n" * 100)[:-9])
    said = refused("train", folder / "part-*", "-m", folder / "m", "--workers", "1")
    assert "part-1.conll: " in said or "part-1.conll:" in said
    assert "ends early" in said


@pytest.mark.slow
def test_a_dask_cluster_gives_the_same_bits(folder):
    pytest.importorskip("distributed.client", reason="Dask is not installed")
    from distributed import LocalCluster

    _, expected = train(folder, "--tol", "0.1")
    with LocalCluster(2, threads_per_worker=1, dashboard_address=None) as cluster:
        _, model = train(folder, "--tol", "0.1", workers=cluster.scheduler_address)
        common = ("--workers", cluster.scheduler_address)
        text = done("predict", folder / "m.hinge", folder / "part-*")
        assert done("predict", folder / "m.hinge", folder / "part-*", *common) == text
    assert np.array_equal(model.weights_, expected.weights_)
    assert "No Dask scheduler answers" in refused(
        *("train", folder / "part-*", "-m", folder / "m", "--workers", "nowhere://1")
    )


# Predicting and judging --------------------------------------------------------------------------


@pytest.fixture
def model(folder):
    done("train", folder / "test.conll", "-m", folder / "m.hinge", "-q")
    return folder / "m.hinge"


@pytest.fixture(params=[None, pytest.param("2", marks=pytest.mark.slow)])
def workers(request):
    """In this process, and in two others."""
    return () if request.param is None else ("--workers", request.param)


def test_many_files_are_predicted_in_their_order(folder, model, workers):
    parts = sorted(folder.glob("part-*"))
    alone = [done("predict", model, part) for part in parts]
    assert all(text.endswith("\n\n") for text in alone)
    assert done("predict", model, folder / "part-*", *workers) == "".join(alone)
    done("predict", model, *parts, *workers, "--output-dir", folder / "out")
    assert [(folder / "out" / part.name).read_text() for part in parts] == alone
    done("predict", model, *parts[::-1], *workers, "-o", folder / "all.txt")
    assert (folder / "all.txt").read_text() == "".join(alone[::-1])


def test_sentences_of_two_files_do_not_run_into_one(folder, model):
    one = conll(PARTS[0], 0, 1, 2).rstrip("\n")
    for k, end in enumerate(("", "\n", "\n\n", "\r\n\r\n")):
        write(folder / f"cut-{k}", one + end)
    sentences = done("predict", model, folder / "cut-*").replace("\r", "").strip().split("\n\n")
    assert len(sentences) == 4 * len(PARTS[0])
    for k in range(2):
        lines = [{"tokens": [row[0] for row in rows]} for rows in PARTS[k]]
        write(folder / f"lines-{k}", "\n".join(map(json.dumps, lines)))
    done("train", folder / "test.conll", "-m", folder / "w.hinge", "--use", "0", "-q")
    found = done("predict", folder / "w.hinge", folder / "lines-*").splitlines()
    assert len([*map(json.loads, found)]) == 24


@pytest.mark.parametrize("options", [(), ("--bootstrap", "20", "--confusion", "--labels")])
def test_many_files_are_judged_as_one(folder, model, workers, options):
    whole = [rows for part in PARTS for rows in part]
    write(folder / "whole", conll(whole, 0, 1, 2))
    expected = done("evaluate", model, folder / "whole", *options)
    assert done("evaluate", model, folder / "part-*", *workers, *options) == expected


def test_rows_and_sets_are_judged_as_one(tmp_path, workers):
    texts, _, _ = FORMATS["svmlight"]
    for name, parts in (("rows", texts), ("sets", FORMATS["multilabel"][0][:2])):
        for k, text in enumerate(parts):
            write(tmp_path / f"{name}-{k}", text)
        write(tmp_path / name, "".join(parts))
        format = ("-f", "svmlight" if name == "rows" else "multilabel")
        done("train", tmp_path / name, "-m", tmp_path / "m", *format, "-q")
        expected = done("evaluate", tmp_path / "m", tmp_path / name, "--json")
        assert done("evaluate", tmp_path / "m", tmp_path / f"{name}-*", "--json", *workers) == (
            expected
        )


def test_a_worker_that_dies_costs_no_file(folder, model, monkeypatch):
    from hingeline.distributed import executors

    exchange, calls = executors.Processes._exchange, []

    def kill_one(self, common, requests):
        calls.append(1)
        if len(calls) == 2:
            self._workers[0][0].kill()
        return exchange(self, common, requests)

    monkeypatch.setattr(executors.Processes, "_exchange", kill_one)
    expected = done("predict", model, folder / "part-*")
    assert done("predict", model, folder / "part-*", "--workers", "2") == expected
    assert len(calls) == 3


def test_bad_outputs_are_refused(folder, model):
    part = folder / "part-0.conll"
    assert "use one of them" in refused(
        "predict", model, part, "-o", folder / "a", "--output-dir", folder / "b"
    )
    assert "is also an input: name another file" in refused(
        "predict", model, part, "--output-dir", folder
    )
    write(folder / "other.conll", conll(TEST, 0, 1, 2))
    (folder / "sub").mkdir()
    write(folder / "sub" / "part-0.conll", conll(TEST, 0, 1, 2))
    assert "have the same name" in refused(
        "predict", model, part, folder / "sub" / "part-0.conll", "--output-dir", folder / "out"
    )
    assert "there is no folder" in refused(
        "predict", model, part, "--output-dir", folder / "out" / "deeper"
    )
    assert "is a file: name a folder" in refused("predict", model, part, "--output-dir", part)
    write(folder / "bad", "one two\nthree\n")
    for options in ((), ("--workers", "2")):
        refused("predict", model, folder / "bad", "--output-dir", folder / "out", *options)
    assert not (folder / "out").exists()
    assert "cannot be combined with files" in refused("predict", model, part, "-", input="")
    assert "cannot read standard input" in refused(
        "predict", model, "-", "--workers", "2", input=""
    )
    for k in range(2):
        write(folder / f"t-{k}.csv", "word,col1,col2\n" + conll(TEST, 0, 1, 2).replace(" ", ","))
    assert "pass --output-dir" in refused("predict", model, folder / "t-*.csv")
    done("predict", model, folder / "t-*.csv", "--output-dir", folder / "out")
    assert "works for one file" in refused(
        "evaluate", model, folder / "part-*", "--constraints", "citations"
    )
    write(folder / "part-0.conll", "one two\nthree\n")
    said = refused("predict", model, folder / "part-*", "--workers", "2")
    assert "part-0.conll:2:" in said
    assert "(on worker 0 (process " in said
