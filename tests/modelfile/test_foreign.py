"""Models of CRFsuite and LIBLINEAR: the same predictions, and errors that name the line."""

from __future__ import annotations

import random
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from hingeline.modelfile.estimators import load
from hingeline.modelfile.foreign import import_crfsuite, import_liblinear

DUMP = """FILEHEADER = {
  magic: lCRF
  size: 5156
  type: FOMC
  version: 100
  num_features: 0
  num_labels: 2
  num_attrs: 3
  off_features: 0x30
}

LABELS = {
      0: B
      1: A
}

ATTRIBUTES = {
      0: word:x
      1: a --> B: 1
      2: number
}

TRANSITIONS = {
  (1) B --> A: 0.500000
  (1) A --> A: -1.250000
}

STATE_FEATURES = {
  (0) word:x --> B: 1.000000
  (0) a --> B: 1 --> A: 2.000000
  (0) number --> A: -0.125000
}

"""


def test_dump_by_hand():
    model = import_crfsuite(DUMP)
    assert model.classes_.tolist() == ["B", "A"]
    assert list(model.encoder_.vocabulary_) == ["word:x", "a --> B: 1", "number"]
    assert model.transition_coef_.tolist() == [[0, 0.5], [0, -1.25]]
    assert model.emission_coef_.tolist() == [[1, 0, 0], [0, 2, -0.125]]
    assert model.intercept_.tolist() == [0, 0]
    assert model.start_coef_.tolist() == model.end_coef_.tolist() == [0, 0]
    assert np.isnan(model.duality_gap_)
    assert "CRFsuite" in model.stop_reason_
    tokens = [[{"word": "x"}, {"a --> B: 1": 1}], [{"number": -8.0}], [{"number": 8.0}]]
    predicted = model.predict(tokens)
    assert [p.tolist() for p in predicted] == [["B", "A"], ["A"], ["B"]]


def test_paths_and_windows_line_ends(tmp_path):
    path = tmp_path / "dump.txt"
    path.write_bytes(DUMP.replace("\n", "\r\n").encode())
    for source in (path, str(path)):
        assert import_crfsuite(source).weights_.tolist() == import_crfsuite(DUMP).weights_.tolist()


def test_imported_models_can_be_stored(tmp_path):
    model = import_crfsuite(DUMP)
    model.encoder_ = None
    model.save(tmp_path / "m.hinge")
    back = load(tmp_path / "m.hinge")
    assert back.weights_.tobytes() == model.weights_.tobytes()
    assert back.classes_.tolist() == ["B", "A"]
    assert np.isnan(back.duality_gap_)


ODD = [
    "plain",
    "a --> B",
    "x: 1",
    "é\u2028z",
    "line\nend",
    "tab\t",
    "",
    " ",
    "}",
    "\n}",
    "3: x",
    "-->",
]


def crfsuite_problem(seed, names, labels, n=30):
    rng = random.Random(seed)
    X, y = [], []
    for _ in range(n):
        tokens, tags = [], []
        for _ in range(rng.randint(1, 6)):
            token = {}
            for name in rng.sample(names, min(3, len(names))):
                token[name] = rng.choice([1.0, rng.gauss(0, 2), True, "v", ["p", "q"]])
            tokens.append(token)
            tags.append(rng.choice(labels))
        X.append(tokens)
        y.append(tags)
    return X, y


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        ([f"f{k}" for k in range(8)], ["A", "B", "C"]),
        ([f"f{k}" for k in range(8)], ["only"]),
        (ODD, ["O", "B-x", "C: 0.5", "with space"]),
    ],
)
@pytest.mark.parametrize("every", [True, False])
def test_same_predictions_as_crfsuite(tmp_path, names, labels, every):
    pycrfsuite = pytest.importorskip("pycrfsuite")
    X, y = crfsuite_problem(0, names, labels)
    trainer = pycrfsuite.Trainer(verbose=False)
    for tokens, tags in zip(X, y, strict=True):
        trainer.append(tokens, tags)
    trainer.set_params({"c2": 0.1, "max_iterations": 30, "feature.possible_states": every})
    trainer.train(str(tmp_path / "m.crf"))
    tagger = pycrfsuite.Tagger()
    tagger.open(str(tmp_path / "m.crf"))
    tagger.dump(str(tmp_path / "dump.txt"))
    model = import_crfsuite(tmp_path / "dump.txt")
    test = crfsuite_problem(1, [*names, "unseen"], labels, n=100)[0]
    found = model.predict(test)
    expected = [tagger.tag(tokens) for tokens in test]
    assert [p.tolist() for p in found] == expected
    assert len({tag for tags in expected for tag in tags}) == len(labels)
    if names is not ODD:  # python-crfsuite's own parser of dumps fails on these
        info = tagger.info()
        index = {label: k for k, label in enumerate(model.classes_)}
        for (attribute, label), weight in info.state_features.items():
            column = model.encoder_.vocabulary_[attribute]
            assert model.emission_coef_[index[label], column] == weight
        for (before, after), weight in info.transitions.items():
            assert model.transition_coef_[index[before], index[after]] == weight


def changed(text, old, new):
    assert text.count(old) >= 1
    return text.replace(old, new, 1)


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("FILEHEADER", "HEADER", 1, "expected 'FILEHEADER = {'"),
        ("type: FOMC", "type: FOM2", 4, "only 'FOMC'"),
        ("num_labels: 2", "num_labels: many", 7, "must be a count"),
        ("num_labels: 2", "num_labels: -2", 7, "must be a count"),
        ("num_labels: 2", "num_labels: " + "9" * 5000, 7, "must be a count"),
        ("  num_labels: 2\n", "", 9, "lacks num_labels"),
        ("num_attrs: 3", "num_attrs: 4", None, ":"),
        ("num_attrs: 3", "num_attrs: 2", None, ":"),
        ("num_attrs: 3", "num_attrs: 999999999", None, ":"),
        ("num_labels: 2", "num_labels: 0", None, ":"),
        ("LABELS = {", "LABEL = {", 12, "expected 'LABELS = {'"),
        ("      1: A", "      2: A", None, ":"),
        ("      1: A", "      1: B", 14, "'B' occurs twice"),
        ("2: number", "2: word:x", 20, "occurs twice"),
        ("(1) B --> A", "(1) B --> C", 24, "names nothing listed"),
        ("(1) B --> A", "(0) B --> A", 24, "expected an entry of TRANSITIONS"),
        ("(1) B --> A", "(1) A --> A", 25, "occurs twice"),
        ("B --> A: 0.500000", "B --> A: half", 24, "must be a number"),
        ("B --> A: 0.500000", "B --> A: nan", 24, "must be finite"),
        ("B --> A: 0.500000", "B --> A: 1e999", 24, "must be finite"),
        ("number --> A: -0.125000", "numbers --> A: -0.125000", 31, "names nothing"),
        ("number --> A: -0.125000", "number -> A: -0.125000", 31, "names nothing"),
    ],
)
def test_errors_of_dumps_name_the_line(tmp_path, old, new, line, words):
    path = tmp_path / "dump.txt"
    path.write_text(changed(DUMP, old, new))
    with pytest.raises(ValueError, match=words) as caught:
        import_crfsuite(path)
    text = str(caught.value)
    assert text.startswith(f"{path}:" if line is None else f"{path}:{line}: ")
    assert "\n" not in text
    assert text.endswith((".", "?"))


def test_dumps_that_can_be_read_in_two_ways_are_refused():
    text = DUMP.replace("0: B", "0: A --> A")
    text = text.replace("B --> A: 0.5", "A --> A --> A: 0.5")
    text = text.replace("word:x --> B", "word:x --> A --> A")
    with pytest.raises(ValueError, match="ambiguous"):
        import_crfsuite(text)


def test_binary_models_and_missing_files(tmp_path):
    (tmp_path / "m.crf").write_bytes(b"lCRF\xff\x14\0\0FOMC")
    with pytest.raises(ValueError, match="not a binary model"):
        import_crfsuite(tmp_path / "m.crf")
    with pytest.raises(FileNotFoundError):
        import_crfsuite(tmp_path / "nothing.txt")
    with pytest.raises(ValueError, match=r"the given text:2: .* is it complete\?"):
        import_crfsuite("\n")
    with pytest.raises(ValueError, match="the given text:1: expected 'FILEHEADER"):
        import_crfsuite("some\ntext")


def test_tables_that_are_nearly_empty_and_huge_are_refused():
    n = 40_000
    names = "\n".join(f"{k:7}: n{k}" for k in range(n))
    text = DUMP.replace("num_labels: 2", f"num_labels: {n}")
    text = text.replace("      0: B\n      1: A", names)
    i, j = text.index("  (1) B"), text.index("}\n\nSTATE")
    text = text[:i] + "  (1) n0 --> n1: 0.5\n" + text[j:]
    with pytest.raises(ValueError, match="12 GB for 1 weights of TRANSITIONS"):
        import_crfsuite(text)


def cut_and_pasted(source, function):
    """Any edit of a good text gives a model or one sentence."""

    @settings(
        max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(
        edits=st.lists(
            st.tuples(
                st.integers(0, len(source)),
                st.integers(0, 30),
                st.text(max_size=5)
                | st.sampled_from(["}", "\n", "-", "9", " --> ", "1e400", ": "]),
            ),
            min_size=1,
            max_size=3,
        )
    )
    def check(edits):
        text = source
        for at, count, new in edits:
            text = text[:at] + new + text[at + count :]
        try:
            model = function(text + "\n")
        except ValueError as error:
            message = str(error)
        else:
            assert np.isfinite(model.weights_).all()
            return
        assert "\n" not in message
        assert message.startswith("the given text:")

    return check


def test_edited_dumps():
    cut_and_pasted(DUMP, import_crfsuite)()


# LIBLINEAR --------------------------------------------------------------------------------------

LINEAR = (
    "solver_type MCSVM_CS\nnr_class 3\nlabel 2 0 1\nnr_feature 2\nbias 0.5\nw\n"
    "1 2 3 \n-1 0 1 \n4 0 -4 \n"
)


def test_model_by_hand(tmp_path):
    path = tmp_path / "model"
    path.write_text(LINEAR)
    model = import_liblinear(path)
    assert model.classes_.tolist() == [2, 0, 1]
    assert model.coef_.tolist() == [[1, -1], [2, 0], [3, 1]]
    assert model.intercept_.tolist() == [2, 0, -2]
    assert model.decision_function([[1.0, 1.0]]).tolist() == [[2, 2, 2]]
    assert model.predict([[1.0, 1.0], [-1.0, 0.0], [9.0, 0.0]]).tolist() == [2, 2, 1]
    assert np.isnan(model.duality_gap_)
    model.save(tmp_path / "m.hinge")
    assert load(tmp_path / "m.hinge").classes_.tolist() == [2, 0, 1]


def test_two_classes_have_one_vector():
    text = "solver_type L2R_LR\nnr_class 2\nlabel 7 -3\nnr_feature 2\nbias -1\nw\n1 \n-2 \n"
    model = import_liblinear(text)
    assert model.fit_intercept is False
    X = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [3.0, 1.0]])
    assert model.decision_function(X).tolist() == [1, -2, 0, 1]
    # Positive is the first label; LIBLINEAR gives a tie to the second.
    assert model.predict(X).tolist() == [7, -3, -3, 7]


@pytest.mark.parametrize("solver", [0, 1, 2, 3, 4, 5, 6, 7])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("bias", [-1, 1, 2.5])
def test_same_predictions_as_liblinear(tmp_path, solver, n_classes, bias):
    liblinear = pytest.importorskip("liblinear.liblinearutil")
    rng = np.random.default_rng(solver)
    numbers = rng.integers(0, n_classes, 80)
    X = rng.normal(size=(80, 4)) + rng.normal(size=(n_classes, 4))[numbers]
    X[:5] = 0  # ties, without a bias
    y = np.array([5, -1, 3])[numbers]
    problem = [{j + 1: v for j, v in enumerate(row) if v} for row in X.tolist()]
    theirs = liblinear.train(y.tolist(), problem, f"-s {solver} -B {bias} -q")
    path = tmp_path / "model"
    liblinear.save_model(str(path), theirs)
    expected, _, values = liblinear.predict([], problem, theirs, "-q")
    model = import_liblinear(path)
    assert model.predict(X).tolist() == expected
    if (n_classes, solver) != (2, 4):  # of which it shows one of two values
        found = model.decision_function(X).reshape(len(X), -1)
        np.testing.assert_allclose(found, np.array(values), atol=1e-12)
    assert len(set(expected)) == n_classes


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("MCSVM_CS", "L2R_L2LOSS_SVR", 1, "not a classifier"),
        ("MCSVM_CS", "ONECLASS_SVM", 1, "not a classifier"),
        ("nr_class 3", "nr_classes 3", 2, "not a line of a LIBLINEAR"),
        ("nr_class 3", "nr_feature 3", 4, "given twice"),
        ("nr_class 3\n", "", 5, "lacks nr_class"),
        ("nr_class 3", "nr_class 2", 6, "different labels"),
        ("label 2 0 1", "label 2 0 2", 6, "different labels"),
        ("label 2 0 1", "label 2 0 x", 6, "must be integers"),
        ("label 2 0 1", f"label 2 0 {2**70}", 6, "must be integers"),
        ("nr_feature 2", "nr_feature -2", 6, "must be a count"),
        ("nr_feature 2", "nr_feature 999999999", 10, "expected 3 weights, got 0"),
        ("nr_feature 2", "nr_feature 1", 9, "should end before"),
        ("bias 0.5", "bias nan", 6, "must be finite"),
        ("-1 0 1", "-1 0", 8, "expected 3 weights, got 2"),
        ("-1 0 1", "-1 zero 1", 8, "must be a number, got 'zero'"),
        ("-1 0 1", "-1 inf 1", 8, "must be finite, got 'inf'"),
        ("4 0 -4 \n", "", 9, "expected 3 weights, got 0"),
        ("w\n", "v\n", 6, "not a line of a LIBLINEAR"),
    ],
)
def test_errors_of_models_name_the_line(tmp_path, old, new, line, words):
    path = tmp_path / "model"
    path.write_text(changed(LINEAR, old, new))
    with pytest.raises(ValueError, match=words) as caught:
        import_liblinear(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert "\n" not in str(caught.value)


def test_edited_models():
    cut_and_pasted(LINEAR, import_liblinear)()


def test_wrong_files_do_not_pass(tmp_path):
    path = Path(tmp_path / "x")
    path.write_text(DUMP)
    with pytest.raises(ValueError, match=r":1: 'FILEHEADER = \{' is not a line"):
        import_liblinear(path)
    path.write_text("")
    with pytest.raises(ValueError, match=":1: '' is not a line"):
        import_liblinear(path)
