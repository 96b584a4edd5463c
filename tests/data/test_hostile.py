"""Hostile files: whatever the bytes, readers end soon, in little memory, with a proper error."""

from __future__ import annotations

import contextlib
import gzip
import io
import random
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hingeline.data import (
    ParseError,
    convert,
    detect_format,
    open_text,
    read_any,
    read_arff,
    read_conll,
    read_conllu,
    read_crfsuite,
    read_idx,
    read_letters,
    read_mulan_labels,
    read_multilabel,
    read_svmhmm,
    read_svmlight,
    read_trees,
    read_vocabulary,
)

READERS = {
    "conll": read_conll,
    "conllu": read_conllu,
    "svmlight": read_svmlight,
    "svmhmm": read_svmhmm,
    "multilabel": read_multilabel,
    "crfsuite": read_crfsuite,
    "arff": lambda source: read_arff(source, -1),
    "mulan": read_mulan_labels,
    "trees": read_trees,
    "letters": read_letters,
    "idx": read_idx,
    "vocabulary": read_vocabulary,
    "detect": lambda source: detect_format(open_text(source)),
    "any": read_any,
}
_LETTER = "\t".join(["1", "o", "{}", "1", "1", "0", *"01" * 64]) + "\t\n"
SEEDS = {
    "conll": b"-DOCSTART- -X- O\n\nEU NNP B-ORG\nrejects VBZ O\n\nPeter NNP B-PER\n",
    "conllu": b"# text = ab c\n1-2\tab"
    + b"\t_" * 8
    + b"\n1\ta"
    + b"\t_" * 8
    + b"\n2\tb"
    + b"\t_" * 8
    + b"\n2.1\tx"
    + b"\t_" * 8
    + b"\n\n1\tc"
    + b"\t_" * 8
    + b"\n\n",
    "svmlight": b"1 1:0.5 7:1e-3\n-1 qid:1 2:1 # note\n2 3:4\n",
    "svmhmm": b"1 qid:1 1:1 3:2\n2 qid:1 4:1 # w\nB qid:2 1:1\n",
    "multilabel": b"1,3 1:1 5:2\n 2:1\n0 7:1.5\n",
    "crfsuite": b"B-NP\tw[0]=He\tlen:2\nO\tw=\\:\tx:0.5\n\nO\ta\\\\b\n",
    "arff": b"% c\n@relation 'r s'\n@attribute a real\n@attribute 'b c' {x,'y z'}\n"
    b"@attribute l {0,1}\n@data\n1.5,x,0\n2,'y z',1\n",
    "sparse arff": b"@relation r\n@attribute a real\n@attribute l {0,1}\n@data\n{0 1.5,1 1}\n{}\n",
    "mulan": b'<?xml version="1.0"?>\n<labels xmlns="u"><label name="a &amp; b"/></labels>\n',
    "trees": b"( (S (NP (DT the) (NN cat))\n (VP (VBZ sits)) (. .)))\n(X y)\n",
    "letters": (_LETTER.format(2) + _LETTER.format(-1)).encode(),
    "idx": b"\0\0\x08\x02\0\0\0\x02\0\0\0\x03abcdef",
    "vocabulary": b"label\tB\nlabel\tO\nattribute\tw=a\n",
}
TOKENS = [
    b"\n", b"\r\n", b"\t", b" ", b":", b"#", b"\\", b"(", b")", b"{", b"}", b",", b"'", b'"', b"%",
    b"?", b"@data", b"@attribute ", b"qid:", b"nan", b"inf", b"-1", b"0", b"1_0", b"1e999",
    b"99999999999999999999", b"2147483647", b"\xff", b"\0", b"\xef\xbb\xbf", b"\xc2\xa0",
    b"\xe2\x80\xa8", b"2147483646", b"<!DOCTYPE a [", b"<", b"&x;", b"-DOCSTART-",
    b"\x1f\x8b", b"1:", b"1-2", b"9.9", b"\x0b", b"\x85",
]  # fmt: skip


def attempt(reader, data, seconds=10.0):
    """Read; only errors that a user can be told may come out, and soon."""
    start = time.process_time()
    message = "no error"
    try:
        READERS[reader](io.BytesIO(data))
    except (ValueError, OSError) as error:
        message = str(error)
    assert 0 < len(message) < 400
    assert time.process_time() - start < seconds


def mutate(data, rng):
    """Some changes of bytes: flips, deletions, insertions, copies, cuts."""
    data = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(6)
        if kind == 0 and at < len(data):
            data[at] = rng.randrange(256)
        elif kind == 1:
            del data[at : at + rng.randint(1, 8)]
        elif kind == 2:
            data[at:at] = rng.choice(TOKENS)
        elif kind == 3:
            lo = rng.randrange(len(data) + 1)
            data[at:at] = data[lo : lo + rng.randint(1, 40)]
        elif kind == 4:
            data[at:at] = rng.choice(TOKENS) * rng.randint(1, 300)
        elif rng.random() < 0.3:
            del data[at:]
    return bytes(data)


@pytest.mark.fuzz
@pytest.mark.parametrize("reader", READERS)
def test_mutated_files(reader):
    rng = random.Random(f"mutations of {reader}")
    seeds = [SEEDS[name] for name in SEEDS if name.endswith(reader)] or list(SEEDS.values())
    for k in range(600):
        data = mutate(rng.choice(seeds), rng)
        if k % 10 == 0:  # damaged inside or outside the compression
            data = gzip.compress(data, mtime=0)
            data = mutate(data, rng) if k % 20 == 0 else data
        attempt(reader, data)


@pytest.mark.parametrize("reader", READERS)
def test_files_of_another_format(reader):
    for data in SEEDS.values():
        attempt(reader, data)
        attempt(reader, data[: len(data) // 2])


@pytest.mark.fuzz
@pytest.mark.parametrize("reader", READERS)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.binary(max_size=200) | st.lists(st.sampled_from(TOKENS)).map(b"".join))
def test_any_bytes(reader, data):
    attempt(reader, data)


@pytest.mark.fuzz
@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    st.sampled_from(
        ["conll", "conllu", "crfsuite", "svmhmm", "svmlight", "multilabel", "trees", "arff"]
    ),
    st.sampled_from(sorted(SEEDS)),
    st.integers(0, 2**32),
)
def test_conversion_of_mutated_files(to, seed, number):
    data = mutate(SEEDS[seed], random.Random(number))
    with contextlib.suppress(ValueError, OSError):
        convert(io.BytesIO(data), io.BytesIO(), to)


# Memory -----------------------------------------------------------------------------------------

#: Texts that cost a reader the most objects per byte; repeated to a megabyte.
DENSE = [
    b"\n", b"a\n", b"a\n\n", b"a b\n", b"a\tb\n", b"#\n", b"(", b"(a", b")", b"(a b)", b"(a b)\n",
    b"1\n", b"1 1:1\n", b"1 ", b"1:1 ", b"1,", b"a ", b"\t", b"a\t", b"1 qid:1\n", b"{}\n", b"0,",
    b"\\", b":", b"'", b"<a>", b"label\ta\n", b"@attribute a", b"\xc3\xa9\n", b"\xff",
]  # fmt: skip
HEADS = {
    "arff": b"@relation r\n@attribute a real\n@attribute l {0,1}\n@data\n",
    "mulan": b"<labels><label name='a'/>",
    "svmhmm": b"1 qid:0 1:1\n",
}


def peak_of(reader, data):
    tracemalloc.start()
    try:
        attempt(reader, data, seconds=120.0)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_memory_is_bounded_by_the_size_of_the_text(reader):
    """A gzip file of a few bytes may unpack to a megabyte, which must stay below 100 MB."""
    size = 2**15
    for unit in DENSE:
        for head in {b"", HEADS.get(reader, b"")}:
            data = head + unit * ((size - len(head)) // len(unit))
            fixed = 3e6  # buffers
            assert peak_of(reader, data) < fixed + (100e6 - fixed) * size / 2**20, unit


@pytest.mark.slow
@pytest.mark.parametrize("reader", sorted(READERS.keys() - {"detect", "any"}))
@pytest.mark.parametrize("unit", [b"\n", b"x", b"1 "])
def test_gzip_bombs_are_refused(reader, unit):
    bomb = gzip.compress(unit * (20_000_000 // len(unit)), 9, mtime=0)
    assert len(bomb) < 25_000
    start = time.process_time()
    with pytest.raises(ParseError, match=r"grows more than 50 times|longer than|is this|IDX|XML"):
        READERS[reader](io.BytesIO(bomb))
    assert time.process_time() - start < 20.0


@pytest.mark.slow
def test_a_bomb_takes_little_memory():
    # The most objects per byte of all: a dictionary for every four characters.
    bomb = gzip.compress(b"a\tb\n" * 2_000_000, 9, mtime=0)
    assert len(bomb) < 30_000
    assert peak_of("crfsuite", bomb) < 100e6


#: A line that hardly compresses: it lets a file grow, and with it what the file may unpack to.
FILLERS = {"crfsuite": b"%s\n", "conllu": b"# %s\n", "conll": b"%s O\n"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reader", "unit"), [("crfsuite", b"a\tb\n\n"), ("conllu", b"#\n"), ("conll", b"a O\n\n")]
)
def test_no_file_of_a_few_kilobytes_takes_much_memory(reader, unit):
    """The ratio of text to compressed bytes alone would let these through."""
    rng = random.Random(0)
    filler = b"".join(FILLERS[reader] % rng.randbytes(100).hex().encode() for _ in range(600))
    bomb = gzip.compress(filler + unit * (3_200_000 // len(unit)), 9, mtime=0)
    assert 50_000 < len(bomb) < 100_000  # 50 times that is more than the text
    assert peak_of(reader, bomb) < 100e6


@pytest.mark.slow
def test_a_file_of_many_real_features_is_read():
    """What compresses well, but not that well."""
    rng = random.Random(0)
    words = [f"{rng.getrandbits(30):x}" for _ in range(2000)]
    lines = []
    for _ in range(12_000):
        near = [rng.choice(words) for _ in range(4)]
        items = [f"w[{k}]={word}" for k, word in enumerate(near)] + ["bias", "shape=xxxx"]
        lines.append("\t".join(["O", *items]) + ("\n\n" if rng.random() < 0.05 else "\n"))
    data = gzip.compress("".join(lines).encode(), 9, mtime=0)
    X, y = read_crfsuite(io.BytesIO(data))
    assert sum(map(len, X)) == sum(map(len, y)) == 12_000


def test_sizes_declared_by_headers_are_not_believed():
    many = b"".join(b"@attribute a%d {0,1}\n" % k for k in range(5_000))
    data = b"@relation r\n" + many + b"@data\n" + b"{}\n" * 30_000
    assert peak_of("arff", data) < 100e6
    assert peak_of("idx", b"\0\0\x0e\x04" + b"\x7f\xff\xff\xff" * 4 + b"x" * 100) < 1e7
    assert peak_of("multilabel", b"2147483646 2147483646:1\n" * 1000) < 1e7
