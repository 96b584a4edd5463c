"""Real tags: the scheme is found in every form, and spoiled tags score as seqeval says."""

from __future__ import annotations

import gzip
import os
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from hingeline.evaluation.metrics import evaluate
from hingeline.schemes import SCHEMES, convert_scheme, detect_scheme, explain_invalid, spans

# isort: split
from marks import slow

pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif("HINGELINE_DATA" not in os.environ, reason="HINGELINE_DATA is not set"),
]


@pytest.fixture(scope="module", params=[slow("conll2000/test.txt.gz"), "conll2002/esp.testb.gz"])
def tags(request):
    path = Path(os.environ["HINGELINE_DATA"]) / request.param
    if not path.exists():
        pytest.skip(f"{request.param} is not there")
    with gzip.open(path, "rt", encoding="latin-1") as file:
        sentences = file.read().strip().split("\n\n")[:800]
    return [[line.split()[-1] for line in s.strip().split("\n")] for s in sentences]


def test_scheme_is_found(tags):
    assert detect_scheme(tags) == "IOB2"
    repaired = convert_scheme(tags, "IOB2", "IOB2")  # CoNLL-2002 has a few I after O
    differ = sum(a != b for a, b in zip(tags, repaired, strict=True))
    assert differ == sum(bool(explain_invalid(labels, "IOB2")) for labels in tags) < 10
    for scheme in SCHEMES:
        written = convert_scheme(tags, "IOB2", scheme)
        assert detect_scheme(written) == scheme
        assert not any(explain_invalid(labels, scheme) for labels in written[:300])
        if scheme != "IO":
            assert convert_scheme(written, scheme, "IOB2") == repaired
            for before, after in zip(tags[:300], written, strict=False):
                assert spans(before) == spans(after)


def test_spoiled_tags_score_as_seqeval_says(tags):
    metrics = pytest.importorskip("seqeval.metrics")
    schemes = pytest.importorskip("seqeval.scheme")
    rng = np.random.default_rng(0)
    labels = sorted({label for sentence in tags for label in sentence})
    spoiled = [
        [labels[rng.integers(len(labels))] if rng.random() < 0.1 else tag for tag in sentence]
        for sentence in tags
    ]
    start = time.perf_counter()
    lenient = evaluate(tags, spoiled)
    assert time.perf_counter() - start < 1.0
    strict = evaluate(tags, spoiled, mode="strict")
    assert lenient.scheme == strict.scheme == "IOB2"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert lenient.span_f1 == pytest.approx(metrics.f1_score(tags, spoiled), abs=1e-12)
        theirs = metrics.f1_score(tags, spoiled, mode="strict", scheme=schemes.IOB2)
        assert strict.span_f1 == pytest.approx(theirs, abs=1e-12)
        theirs = metrics.f1_score(tags, spoiled, average="macro")
        assert lenient.spans.macro.f1 == pytest.approx(theirs, abs=1e-12)
    assert lenient.span_f1 != strict.span_f1
