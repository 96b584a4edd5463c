"""Guessing formats from the first lines, and saying when there is doubt."""

from __future__ import annotations

import gzip
import io
import os
from pathlib import Path

import pytest

from hingeline.data import FORMATS, ParseError, detect_format, open_text

SAMPLES = {
    "conll": [
        "He PRP B-NP\nran VBD B-VP\n",
        "-DOCSTART- -X-\n\nEU NNP B-NP B-ORG\n",
        "The\tAT\nFulton\tNP-TL\n",
        "just\nwords\n\nhere\n",
        "1\n2\n3\n",
        "( ( O\nNATO NNP B-ORG\n) ) O\n",
        "a\u00a0b X\nc Y\n",
        "# # O\na b O\n",
        "a\tX\n" * 50 + "b\n",  # a wrong line is for the reader to report
        "x=1\tO\ny\tO\n",
        "# domain = news\n# a long comment of many words\nHe O\nran O\n",
        "word\tpos\ttag\nHe\tPRP\tO\n",
        "1,000 CD\n2,000 CD\n",
    ],
    "csv": [
        "sentence,word,tag\n1,He,O\n1,ran,O\n",
        "Sentence #,Word,POS,Tag\nSentence: 1,Thousands,NNS,O\n,of,IN,O\n",
        "word;tag\nHe;O\n",
        "sent_id\ttoken\tner\n1\tHe\tO\n",
    ],
    "table": [
        "a,b,class\n1,2,x\n3,,y\n",
        "class;a\nx;1\ny;?\n",
        ",a,b,c\n0,1,2,0\n1,2,2,1\n",
        "a\tb\tkind\n1e3\t-2\tx\n",
    ],
    "jsonl": ['{"tokens": ["He"], "tags": ["O"]}\n', ' { "id": 3, "words": ["a"]}\n'],
    "conllu": ["# text = a\n1-2\tab" + "\t_" * 8 + "\n1\ta" + "\t_" * 8 + "\n\n"],
    "svmlight": ["1 1:0.5 7:1\n-1 2:1 # note\n", "# head\n+1.5 1:1e-3\n", "3\n1 1:1\n"],
    "svmhmm": ["1 qid:1 1:1\n2 qid:1 4:1 # w\n", "B-NP qid:3 1:1\n"],
    "multilabel": ["84 14:1\n17,49 221:1\n", "1 1:1\n 2:1\n"],
    "crfsuite": [
        "B-NP\tw[0]=He\tpos=PRP\nO\tw[0]=.\n",
        "A\tw=a\tn:2.5\n\nB\tw=\\:\tn:1\n",
        "A\tw=a\nB\tw=b\n",
    ],
    "arff": ["% comment\n\n@RELATION r\n@attribute a real\n", "@attribute a real\n"],
    "trees": ["( (S (NP (NN a))\n (VP (VB b))))\n", "(A b)\n(A c)\n", "\n (S (A\n"],
    "letters": ["\t".join(["1", "o", "2", "1", "1", "0", *"01" * 64]) + "\t\n"],
    "idx": ["\0\0\x08\x01\0\0\0\x01\x05"],
}
CASES = [(name, text) for name, texts in SAMPLES.items() for text in texts]


def test_every_format_has_a_sample():
    assert set(SAMPLES) == set(FORMATS) - {"text"}  # it could be anything, and must be named


@pytest.mark.parametrize(("name", "text"), CASES)
def test_samples(tmp_path, name, text):
    data = text.encode()
    for k, content in enumerate(
        (data, gzip.compress(data), b"\xef\xbb\xbf" + data, data.replace(b"\n", b"\r\n"))
    ):
        if name == "idx" and k > 1:
            continue
        assert detect_format(open_text(io.BytesIO(content))) == name
        path = tmp_path / str(k)
        path.write_bytes(content)
        assert detect_format(path) == detect_format(str(path)) == name


def test_nothing_is_taken_from_the_source():
    for _, text in CASES:
        source = open_text(io.BytesIO(text.encode()))
        detect_format(source)
        assert source.peek(2**20) == text.encode()


def test_a_long_file_is_judged_by_its_beginning():
    text = "He PRP B-NP\n" * 100_000 + "x\n"
    assert detect_format(open_text(io.StringIO(text))) == "conll"
    deep = "(S " * 100_000
    assert detect_format(open_text(io.StringIO(deep))) == "trees"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty: there is nothing to read"),
        ("a A\rb B\r\rc A\r", "a carriage return is inside the line; end lines with LF"),
        ("\n \n", "the file is empty"),
        ("He,O\nran,O\n", "separated by ',', but the first line names no column of words; begin"),
        (
            "age,cut,class\n3,Very Good,a\n4,Fair,b\n",
            "name all columns, and give numbers in all but one",
        ),
        ("5.1,3.5,a\n4.9,3.0,b\n", "of a table of examples, name all columns"),
        ("\x01\0\0", "neither text nor IDX"),
        ("1\t3:1\t5:2\n2\t1:1\n", "could be 'svmlight' or 'crfsuite', since tabs stand between"),
        ("a\tb=1\tc\td\te\n" * 3, "could be 'conll' or 'crfsuite', since 25% of the fields look"),
        ("a\tb\nc\td\te\n", "could be 'conll' or 'crfsuite', since lines have different numbers"),
        ("The cat sat.\nIt purred.\n", "no format fits, since lines .* as in running text; put"),
        ("6 " + "-1.0000 " * 256 + "\n", "no format fits a table of 257 columns of numbers; write"),
    ],
)
def test_doubt_is_said(text, message):
    with pytest.raises(ParseError, match=f"<stream>: .*{message}"):
        detect_format(open_text(io.StringIO(text)))


@pytest.mark.parametrize("source", ["-", io.StringIO("a"), 3])
def test_what_cannot_be_opened_twice_is_refused(source):
    with pytest.raises(TypeError, match=r"would be lost: pass open_text\(source\)"):
        detect_format(source)


@pytest.mark.data
@pytest.mark.skipif(not os.environ.get("HINGELINE_DATA"), reason="HINGELINE_DATA is not set")
def test_real_files():
    root = Path(os.environ["HINGELINE_DATA"])
    expected = {
        "conll2000/*.gz": "conll",
        "conll2002/*.gz": "conll",
        "brown/*.gz": "conll",
        "citations/citations_*.gz": "conll",
        "umass_citations/*.tsv.gz": "conll",
        "seminars/*.gz": "conll",
        "treebank_sample/*.tsv.gz": "conll",
        "treebank_sample/*.dp.gz": "conll",
        "treebank_sample/*.mrg.gz": "trees",
        "ud_english_ewt/*.gz": "conllu",
        "multilabel/*/*.arff.gz": "arff",
        "multilabel/*/*.svm.gz": "multilabel",
        "multiclass/letter*.gz": "svmlight",
        "multiclass/news20.gz": "svmlight",
        "ocr_letters/*.gz": "letters",
        "mnist/*.gz": "idx",
    }
    for pattern, name in expected.items():
        paths = sorted(root.glob(pattern))
        assert paths, pattern
        for path in paths:
            assert detect_format(path) == name, path
