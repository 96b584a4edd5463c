"""What the options of ``hingeline train`` do to the model."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

import hingeline
from cli.commands import conll, crfsuite, done, refused, run, sentences, svmhmm, svmlight, write
from hingeline._jit import COMPILING, uncached
from hingeline.cli.fits import FitProgress
from hingeline.data import read_crfsuite
from hingeline.features import DictEncoder

TRAIN, TEST = sentences(40, 0), sentences(15, 1)


@pytest.fixture
def folder(tmp_path):
    """A folder with a training and a test file of three columns."""
    write(tmp_path / "train.conll", conll(TRAIN, 0, 1, 2))
    write(tmp_path / "test.conll", conll(TEST, 0, 1, 2))
    return tmp_path


def train(folder, *options, file="train.conll"):
    """The result of a training, and the model."""
    text = done("train", folder / file, "-m", folder / "m.hinge", "--json", *options)
    return json.loads(text), hingeline.load(folder / "m.hinge")


def accuracy(folder, file="test.conll"):
    return json.loads(done("evaluate", folder / "m.hinge", folder / file, "--json"))[
        "token_accuracy"
    ]


# Features ---------------------------------------------------------------------------------------


def test_template_of_crf_plus_plus(folder):
    template = write(folder / "template", "# words\nU00:%x[0,0]\nU01:%x[-1,1]/%x[0,1]\n\nB\n")
    _, model = train(folder, "--template", template)
    words = {f"U00:{word}" for rows in TRAIN for word, _, _ in rows}
    pairs = set()
    for rows in TRAIN:
        speech = ["_B-1", *(row[1] for row in rows)]
        pairs |= {f"U01:{a}/{b}" for a, b in itertools.pairwise(speech)}
    assert set(model.feature_names_) == words | pairs
    assert accuracy(folder) > 0.75


@pytest.mark.parametrize(
    ("text", "words"),
    [("U00:%x[0,7]\n", "--template"), ("nonsense\n", "--template"), (b"U\xff", "template:1")],
)
def test_bad_templates(folder, text, words):
    template = write(folder / "template", text)
    arguments = ("train", folder / "train.conll", "-m", folder / "m.hinge")
    assert words in refused(*arguments, "--template", template)
    assert not (folder / "m.hinge").exists()


def test_min_count(folder):
    write(folder / "train.crfsuite", crfsuite(TRAIN))
    counts = Counter(f"w={word}" for rows in TRAIN for word, _, _ in rows)
    least = sorted(counts.values())[len(counts) // 2]
    _, model = train(folder, "--min-count", least, file="train.crfsuite")
    kept = {name for name, count in counts.items() if count >= least}
    assert 0 < len(kept) < len(counts)
    assert set(model.feature_names_) == kept | {"size"}


def test_hash_bits(folder):
    _, model = train(folder, "--hash-bits", 6)
    assert model.n_features_in_ == 64
    assert accuracy(folder) > 0.5
    write(folder / "train.svmhmm", svmhmm(TRAIN))
    arguments = ("-m", folder / "m.hinge", "--hash-bits", 6)
    assert "--hash-bits" in refused("train", folder / "train.svmhmm", *arguments)


def test_columns_by_name_and_number(folder):
    """Files for prediction have the columns of training, whichever of them the model reads."""
    file = folder / "train.conll"
    write(file, conll(TRAIN, 2, 0, 1))
    write(folder / "test.conll", conll(TEST, 2, 0, 1))
    names = ("--columns", "tag,word,speech")
    _, first = train(folder, *names, "--label", "tag")
    assert any("speech[0]=N" in name for name in first.feature_names_)
    assert accuracy(folder) > 0.75
    _, model = train(folder, *names, "--use", "word", "--label", "tag")
    assert all("word" in name for name in model.feature_names_)
    assert accuracy(folder) > 0.75
    _, again = train(folder, "--use", 1, "--label", -3)
    np.testing.assert_array_equal(again.weights_, model.weights_)
    # Without labels; and with nothing but what the model reads, without or with labels.
    expected = done("predict", folder / "m.hinge", folder / "test.conll").split("\n")
    for columns in ((0, 1), (0,)):
        bare = write(folder / "bare.conll", conll(TEST, *columns))
        found = done("predict", folder / "m.hinge", bare).split("\n")
        assert [a.split()[-1:] for a in found] == [b.split()[-1:] for b in expected]
    # A file to stop by has them, too.
    result, _ = train(folder, *names, "--use", "word", "--label", "tag", "--dev", file)
    assert result["tried"][0]["dev"] > 0.5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--columns", "a,b"], "train.conll:1: there are 3 columns"),
        (["--columns", "a,b,b"], "--columns a,b,b has a name twice"),
        (["--use", "nothing"], "no column 'nothing'"),
        (["--use", "--5"], "no column '--5'"),
        (["--use", "9"], "no column 9"),
        (["--use", "col2"], "--use col2 is the column of the labels"),
        (["--use", "word,0"], "--use word is named twice"),
        (["--n-jobs", "0"], "--n-jobs 0 has no meaning"),
        (["--label", "nothing"], "no column 'nothing'"),
    ],
)
def test_columns_that_are_not_there(folder, options, words):
    arguments = ("train", folder / "train.conll", "-m", folder / "m.hinge")
    assert words in refused(*arguments, *options)
    assert not (folder / "m.hinge").exists()


@pytest.mark.parametrize("option", ["--columns", "--use", "--label"])
def test_formats_without_columns(folder, option):
    file = write(folder / "train.svm", svmlight(TRAIN))
    assert option in refused("train", file, "-m", folder / "m.hinge", option, "a")


# Training ---------------------------------------------------------------------------------------


def test_early_stopping(folder):
    tight = ("--tol", "1e-7")
    whole, _ = train(folder, *tight)
    assert whole["stop_reason"] == "converged"
    result, model = train(folder, *tight, "--dev", folder / "test.conll", "--patience", 2)
    assert "held-out" in result["stop_reason"]
    assert result["passes"] < whole["passes"]
    scores = json.loads(done("evaluate", folder / "m.hinge", folder / "test.conll", "--json"))
    assert result["tried"] == [
        {"C": model.C, "relative_gap": result["relative_gap"], "dev": scores["span_f1"]}
    ]
    # A certificate of the weights that were kept, not of later ones.
    assert result["relative_gap"] > 1e-7
    assert "stopped: the held-out score has not" in done("info", folder / "m.hinge")


@pytest.mark.parametrize(("ending", "content"), [("svm", svmlight), ("svmhmm", svmhmm)])
def test_held_out_files_of_numbers(folder, ending, content):
    """The held-out file may lack features of the training file and have others."""
    write(folder / f"train.{ending}", content(TRAIN))
    held_out = write(folder / "dev", content(TEST[:5]).replace("21:0.5", "21:0.5 77:1"))
    result, model = train(folder, "--dev", held_out, file=f"train.{ending}")
    assert model.n_features_in_ == 21
    assert result["tried"][0]["dev"] == accuracy(folder, "dev")


def test_grid(folder):
    dev = ("--dev", folder / "test.conll")
    result, model = train(folder, "--grid", "C=1,0.001,0.05", *dev)
    tried = result["tried"]
    assert [row["C"] for row in tried] == [0.001, 0.05, 1.0]
    best = max(tried, key=lambda row: row["dev"])
    assert result["C"] == model.C == best["C"]
    assert len({row["dev"] for row in tried}) > 1  # else nothing was chosen
    assert max(row["relative_gap"] for row in tried) <= 0.05  # each was trained to the end
    scores = json.loads(done("evaluate", folder / "m.hinge", folder / "test.conll", "--json"))
    assert scores["span_f1"] == best["dev"]


def test_a_grid_in_a_hurry(folder):
    options = ("--dev", folder / "test.conll", "--grid", "C=0.3,1", "--patience", "1")
    result, _ = train(folder, *options, "--tol", "1e-6")
    assert max(row["relative_gap"] for row in result["tried"]) > 1e-6


def test_C_by_itself(folder):
    result, model = train(folder, "-C", "auto", "--keep-state")
    assert result["C"] == model.C == model.C_  # known, so that updates go on with it
    losses = {row["C"]: row["held_out_loss"] for row in result["tried"]}
    assert losses[model.C] == min(losses.values()) or next(iter(losses)) == model.C
    done("update", folder / "m.hinge", folder / "test.conll", "-m", folder / "n.hinge")
    assert hingeline.load(folder / "n.hinge").C == model.C
    dev = ("--dev", folder / "test.conll", "--grid", "1,2")
    target = ("-m", folder / "x")
    assert "leave --C out" in refused("train", folder / "train.conll", "-C", "1", *dev, *target)
    write(folder / "rows.svm", svmlight(TRAIN))
    done("train", folder / "rows.svm", "-m", folder / "rows.hinge", "--keep-state")
    rows = hingeline.load(folder / "rows.hinge")
    assert rows.C == "scale"
    done("update", folder / "rows.hinge", folder / "rows.svm", "-m", folder / "more.hinge")
    assert pytest.approx(rows.C_) == hingeline.load(folder / "more.hinge").C_
    dev = ("--dev", folder / "test.conll")
    both = (folder / "train.conll", "--unlabelled", folder / "test.conll", *dev)
    assert "--C: auto works only in train" in refused("semi", *both, "-C", "auto", *target)
    words = "--C must be a number, 'auto' or 'scale', got 'best'"
    assert words in refused("train", folder / "train.conll", "-C", "best", "-m", folder / "x")


def test_a_command_trains_what_the_library_does(folder):
    """Large numbers beside names are scaled, and updates keep the C that came of it."""
    lines = crfsuite(TRAIN).splitlines()
    lines = [f"{line}\tsize:{k % 7}00" if line else line for k, line in enumerate(lines)]
    data = write(folder / "train.crfsuite", "\n".join([*lines, ""]))
    _, model = train(folder, "--keep-state", "--tol", "0.1", file="train.crfsuite")
    same = hingeline.ChainSSVM(features=DictEncoder(), tol=0.1, random_state=0)
    same.fit(*read_crfsuite(data))
    assert model.feature_scales_.max() > 100.0
    np.testing.assert_array_equal(model.weights_, same.weights_)
    assert model.C == same.C_
    done("update", folder / "m.hinge", data, "-m", folder / "n.hinge", "--passes", "1")
    assert hingeline.load(folder / "n.hinge").C == model.C


def test_the_best_of_a_grid_keeps_its_state(folder):
    """Only the last fit has multipliers: where another was the best, it is made again."""
    options = ("--grid", "C=0.05,300", "--dev", folder / "test.conll", "--keep-state")
    result, model = train(folder, *options)
    best = max(result["tried"], key=lambda row: row["dev"])
    assert result["C"] == model.C == best["C"]
    assert model.n_examples_ == len(TRAIN)
    updated = ("update", folder / "m.hinge", folder / "test.conll", "-m", folder / "n.hinge")
    assert json.loads(done(*updated, "--json"))["examples"] == len(TRAIN) + len(TEST)


SPANS = [
    *[[("Ann", "N", "B-PER"), ("Lee", "N", "I-PER"), ("ran", "V", "O")]] * 6,
    *[[("the", "V", "O"), ("Rome", "N", "B-LOC")]] * 3,
]


@pytest.mark.slow
def test_scheme(folder):
    """A word that was always inside a span cannot be so where no span began."""
    write(folder / "train.conll", conll(SPANS, 0, 2))
    write(folder / "test.conll", "the O\nLee I-PER\n\n")
    template = write(folder / "template", "U0:%x[0,0]\nB\n")
    options = ("--template", template, "-C", "1")
    tags = {}
    for scheme in (None, "none", "auto", "BIO"):
        _, model = train(folder, *options, *(("--scheme", scheme) if scheme else ()))
        assert model.scheme_ == (None if scheme == "none" else "IOB2")
        lines = done("predict", folder / "m.hinge", folder / "test.conll").split("\n")
        tags[scheme] = [line.split()[-1] for line in lines if line]
    assert tags["none"] == ["O", "I-PER"]
    assert tags[None] == tags["auto"] == tags["BIO"] != tags["none"]
    assert tags["auto"][1] != "I-PER"


def test_labels_that_break_the_scheme(folder):
    """They are refused, and only remarked where the scheme was guessed."""
    write(folder / "train.conll", conll([*SPANS, [("Lee", "N", "I-PER")]], 0, 2))
    arguments = ("train", folder / "train.conll", "-m", folder / "n.hinge", "--scheme")
    assert "I-PER" in refused(*arguments, "IOB2")
    result = run(*arguments, "auto")
    assert result.exit_code == 0
    assert "No scheme is enforced" in result.stderr
    assert "Warning" not in result.stderr


def test_seeds_and_threads(folder):
    rough = ("--tol", 0.3)
    first = train(folder, "--seed", 3, *rough)[1].weights_
    for n_jobs in (1, 2, -1):
        again = train(folder, "--seed", 3, "--n-jobs", n_jobs, *rough)[1].weights_
        assert again.tobytes() == first.tobytes()
    assert train(folder, "--seed", 4, *rough)[1].weights_.tobytes() != first.tobytes()
    predicted = done("predict", folder / "m.hinge", folder / "test.conll")
    assert done("predict", folder / "m.hinge", folder / "test.conll", "--n-jobs", 2) == predicted


class Asked(Exception):
    """Stands for a fit, with the estimator."""


@pytest.mark.parametrize(
    ("option", "value"),
    [("slack", "squared"), ("rescale", "slack"), ("solver", "fsmo"), ("loss", "zero_one")],
)
def test_parameters_reach_the_estimator(folder, monkeypatch, option, value):
    def fit(self, *arguments, **options):
        raise Asked(self)

    monkeypatch.setattr(hingeline.ChainSSVM, "fit", fit)
    with pytest.raises(Asked) as found:
        train(folder, f"--{option}", value)
    assert getattr(found.value.args[0], option) == value


def test_tol(folder):
    result, model = train(folder, "--tol", "1e-4")
    assert model.tol == 1e-4
    assert result["converged"]
    assert result["relative_gap"] <= 1e-4


def test_nu(folder):
    result, model = train(folder, "--slack", "nu", "--nu", "0.5")
    assert (model.slack, model.nu) == ("nu", 0.5)
    assert result["relative_gap"] <= model.tol
    assert result["margin_error_risk"] <= result["nu"] == 0.5 <= result["support_vector_risk"]
    assert result["C"] == model.C_
    assert result["rho"] == model.rho_
    result, model = train(folder, "--slack", "nu", "--nu", "auto")
    assert len(result["nu_tried"]) == len(model.nu_path_) > 1
    arguments = ("train", folder / "train.conll", "-m", folder / "m.hinge", "--slack", "nu")
    text = run(*arguments, "--nu", "0.5", "--quiet").stdout
    assert "nu=0.5 (C=" in text
    for options, words in (
        (("--nu", "many"), "--nu many is not known; give a number greater than 0 or"),
        ((), "--slack nu needs nu"),
        (("--nu", "-1"), "--nu must be greater than 0"),
        (("--nu", "0.5", "-C", "3"), "--C 3.0 has no meaning"),
        (("--nu", "999"), "--nu 999 is above"),
    ):
        bad = run(*arguments, *options)
        assert bad.exit_code == 2
        assert words in bad.stderr
        assert "Traceback" not in bad.stderr


def test_limits(folder):
    result, model = train(folder, "--tol", "1e-9", "--max-iter", 3)
    assert (result["passes"], result["converged"]) == (3, False)
    assert "max_iter" in result["stop_reason"]
    assert model.n_iter_ == 3
    result, _ = train(folder, "--tol", "1e-9", "--max-time", "1e-9")
    assert "max_time" in result["stop_reason"]
    arguments = ("train", folder / "train.conll", "-m", folder / "m.hinge")
    short = run(*arguments, "--tol", "1e-9", "--max-iter", 3)
    assert short.exit_code == 0
    assert "lower -C, or scale the features" in short.stderr
    assert "scale the features" not in run(*arguments).stderr


def test_the_exact_small_form_is_the_default(folder):
    _, model = train(folder, "--keep-state")
    small = (folder / "m.hinge").stat().st_size
    _, dense = train(folder, "--keep-state", "--dense")
    assert small < (folder / "m.hinge").stat().st_size
    assert model.weights_.tobytes() == dense.weights_.tobytes()
    assert model.duality_gap_ == dense.duality_gap_  # exact weights keep their certificate


def test_small_files(folder):
    train(folder)
    large, expected = (folder / "m.hinge").stat().st_size, accuracy(folder)
    result, model = train(folder, "--dtype", "float16")
    assert result["bytes"] == (folder / "m.hinge").stat().st_size < large
    assert accuracy(folder) == pytest.approx(expected, abs=0.05)
    assert np.isnan(model.duality_gap_)  # rounded weights have no certificate
    facts = json.loads(done("info", folder / "m.hinge", "--json"))
    assert "rounded" in facts["stopped"]


# Output -----------------------------------------------------------------------------------------


def test_progress_goes_to_the_standard_error(folder):
    arguments = ("train", folder / "train.conll", "-m", folder / "m.hinge")
    loud = run(*arguments)
    assert "40 sequences" in loud.stderr
    assert "gap" in loud.stderr
    assert len(loud.stdout.splitlines()) == 1
    assert str(folder / "m.hinge") in loud.stdout
    quiet = run(*arguments, "--quiet")
    assert quiet.stderr == ""
    assert len(quiet.stdout.splitlines()) == 1
    machine = run(*arguments, "--json")
    assert machine.stderr == ""
    assert {"model", "bytes", "C", "relative_gap", "converged", "passes", "seconds"} <= set(
        json.loads(machine.stdout)
    )


def test_commands_tell_of_work_that_takes_long(folder, monkeypatch):
    told = []

    def tell(self, work):
        if self.verbose is None:
            told.append((Path(self.name).name, work))
        return nullcontext()

    monkeypatch.setattr("hingeline.core.loop._is_watched", lambda stream: True)
    monkeypatch.setattr("hingeline.core.loop.Reporter.during", tell)
    data, model = folder / "train.conll", folder / "m.hinge"
    done("train", data, "-m", model, "--dev", data)
    assert told == [(data.name, work) for work in ("reading", "reading")]
    told.clear()
    done("train", data, "-m", model, "--quiet")
    assert told == []
    done("evaluate", model, data)
    done("predict", model, data, "-o", folder / "out.conll")
    done("report", model, "--test", data, "-o", folder / "m.html")
    works = ["predicting and scoring", "predicting"]
    assert told[:2] == [(data.name, work) for work in works]
    assert [work for _, work in told[2:]][1:] == [works[0], "writing the page"]
    told.clear()
    done("convert", data, folder / "out.csv", "--to", "csv")
    assert told == [(data.name, "converting")]


def test_compiling_is_told_apart_from_training(folder, monkeypatch):
    told, fit = [], FitProgress.fit

    def compile_too(self, title, estimator, learn, *more):
        monkeypatch.setattr(self, "update", lambda task, state, **more: told.append(state))
        seconds = fit(self, title, estimator, lambda: (uncached(lambda x: x)(1), learn()), *more)
        COMPILING[0] += 2.0  # as if it had taken long
        return seconds

    monkeypatch.setattr(FitProgress, "fit", compile_too)
    data, model = folder / "train.conll", folder / "m.hinge"
    text = done("train", data, "-m", model)
    assert re.search(r"; read .*, write \d\.\d s, compile 2\.\d s; ", text)
    assert re.match(r"compiling kernel \d", told[0])


def test_the_file_says_where_it_came_from(folder):
    _, model = train(folder)
    (entry,) = model.metadata_["data"]
    assert entry["name"] == "train.conll"
    assert len(entry["sha256"]) == 64
    assert model.metadata_["layout"]["columns"] == ["word", "col1"]
    assert model.metadata_["versions"]["hingeline"] == hingeline.__version__
