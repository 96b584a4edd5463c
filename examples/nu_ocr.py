"""Handwritten words with a balance parameter that means something: slack="nu" and nu="auto".

PCA, Gaussian emissions and a chain as one scikit-learn pipeline. With HINGELINE_DATA set to a
folder that holds ocr_letters/letter.data.gz it uses those words; otherwise it makes some up.

    python examples/nu_ocr.py
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline

from hingeline import ChainSSVM
from hingeline.data import read_letters
from hingeline.features import GaussianEmissions, PerToken


def made_up(n_words: int = 300) -> tuple[list[np.ndarray], list[list[str]]]:
    """Words over eight letters with habits, every letter a noisy picture of 32 pixels."""
    rng = np.random.default_rng(0)
    shapes = rng.random((8, 32)) < 0.4
    X, y = [], []
    for _ in range(n_words):
        word = [int(rng.integers(8))]
        for _ in range(int(rng.integers(2, 9))):
            word.append(int(rng.choice([(word[-1] + 3) % 8, rng.integers(8)])))
        pixels = shapes[word] ^ (rng.random((len(word), 32)) < 0.25)
        X.append(pixels.astype(float))
        y.append(["abcdefgh"[letter] for letter in word])
    return X, y


def main() -> None:
    """Fit, explain ν, and let it be chosen."""
    if os.environ.get("HINGELINE_DATA"):
        data = read_letters(Path(os.environ["HINGELINE_DATA"]) / "ocr_letters" / "letter.data.gz")
        y = data.labels()
        X = np.split(data.pixels.astype(float), data.offsets[1:-1])
        train, test = np.flatnonzero(data.folds == 0), np.flatnonzero(data.folds == 1)
    else:
        X, y = made_up()
        train, test = np.arange(200), np.arange(200, 300)
    X_train, y_train = [X[i] for i in train], [y[i] for i in train]
    X_test, y_test = [X[i] for i in test], [y[i] for i in test]

    for nu in (2.0, "auto"):
        tagger = make_pipeline(
            PerToken(PCA(20, random_state=0)),
            GaussianEmissions(),
            ChainSSVM(slack="nu", nu=nu, fit_intercept=False, boundary=False, random_state=0),
        ).fit(X_train, y_train)
        chain = tagger[-1]
        print(f"nu={nu}: {100 * (1 - tagger.score(X_test, y_test)):.1f} % of the letters wrong")
        print(
            f"  mean loss of margin errors {chain.margin_error_risk_:.3f} <= nu {chain.nu_:.3f} <= "
            f"{chain.support_vector_risk_:.3f} of support vectors; C_={chain.C_:.4g}"
        )
        for trial in getattr(chain, "nu_path_", []):
            print(f"  tried {trial.nu:.3f}: held-out loss {trial.held_out_loss:.3f} letters a word")


if __name__ == "__main__":
    main()
