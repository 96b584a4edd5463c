"""The whole job with python-crfsuite, as its users write it: file, attributes, training, tagging.

``python benchmarks/crfsuite_job.py TRAIN TEST`` prints one line of JSON with seconds by phase and
the chunk F1. A process of its own, so that the other side's imports do not count for it.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
import time
from pathlib import Path

import pycrfsuite

Sentence = list[list[str]]


def read(path: str) -> list[Sentence]:
    """Sentences of tokens of columns."""
    sentences: list[Sentence] = [[]]
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            fields = line.split()
            if fields:
                sentences[-1].append(fields)
            elif sentences[-1]:
                sentences.append([])
    return [sentence for sentence in sentences if sentence]


def token_features(sentence: Sentence, i: int) -> list[str]:
    """CRFsuite's own chunking template: words, tags, their pairs and triples around the token."""
    n = len(sentence)
    features = []
    for o in (-2, -1, 0, 1, 2):
        if 0 <= i + o < n:
            features.append(f"w[{o}]={sentence[i + o][0]}")
            features.append(f"pos[{o}]={sentence[i + o][1]}")
    for o in (-1, 0):
        if i + o >= 0 and i + o + 1 < n:
            features.append(f"w[{o}]|w[{o + 1}]={sentence[i + o][0]}|{sentence[i + o + 1][0]}")
    for o in (-2, -1, 0, 1):
        if i + o >= 0 and i + o + 1 < n:
            pair = f"{sentence[i + o][1]}|{sentence[i + o + 1][1]}"
            features.append(f"pos[{o}]|pos[{o + 1}]={pair}")
    for o in (-2, -1, 0):
        if i + o >= 0 and i + o + 2 < n:
            triple = "|".join(sentence[i + o + k][1] for k in range(3))
            features.append(f"pos[{o}]|pos[{o + 1}]|pos[{o + 2}]={triple}")
    if i == 0:
        features.append("__BOS__")
    if i == n - 1:
        features.append("__EOS__")
    return features


def encode(sentences: list[Sentence]) -> list[list[list[str]]]:
    """Attributes of every token."""
    return [[token_features(s, i) for i in range(len(s))] for s in sentences]


def main() -> None:
    """Do the job."""
    from datasets import span_f1

    seconds = {}
    clock, began = time.perf_counter(), time.process_time()

    def took(phase: str) -> None:
        nonlocal clock
        now = time.perf_counter()
        seconds[phase] = now - clock
        clock = now

    train = read(sys.argv[1])
    took("read")
    features = encode(train)
    took("encode")
    trainer = pycrfsuite.Trainer(algorithm="lbfgs", verbose=False)
    for tokens, sentence in zip(features, train, strict=True):
        trainer.append(tokens, [fields[-1] for fields in sentence])
    took("append")
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.crfsuite")
        trainer.train(path)
        took("train")
        total, cpu = sum(seconds.values()), time.process_time() - began
        test = read(sys.argv[2])
        tagger = pycrfsuite.Tagger()
        tagger.open(path)
        predicted = [tagger.tag(tokens) for tokens in encode(test)]
    truth = [[fields[-1] for fields in sentence] for sentence in test]
    f1 = 100.0 * span_f1(truth, predicted)
    print(json.dumps({"seconds": seconds, "total": total, "cpu": cpu, "f1": f1}))


if __name__ == "__main__":
    main()
