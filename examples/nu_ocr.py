"""
ν: a balance parameter with a meaning
=====================================

With ``slack="nu"`` you set how much loss the examples within the margin may have, instead of a C
that nobody knows before trying. PCA, Gaussian emissions and a chain form one pipeline.
"""

# %%
# The words are made up of eight letters, some of which often follow others. Every letter is a noisy
# picture of 32 pixels.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

from hingeline import ChainSSVM
from hingeline.features import PerToken

rng = np.random.default_rng(0)
shapes = rng.random((8, 32)) < 0.4
X, y = [], []
for _ in range(300):
    word = [int(rng.integers(8))]
    for _ in range(int(rng.integers(2, 9))):
        word.append(int(rng.choice([(word[-1] + 3) % 8, rng.integers(8)])))
    pixels = shapes[word] ^ (rng.random((len(word), 32)) < 0.25)
    X.append(pixels.astype(float))
    y.append(["abcdefgh"[letter] for letter in word])

# %%
# Compare a fixed ν with one that is chosen on a held-out fifth of the words.

for nu in (2.0, "auto"):
    tagger = make_pipeline(
        PerToken(make_pipeline(PCA(20, random_state=0), PolynomialFeatures(2))),
        ChainSSVM(slack="nu", nu=nu, fit_intercept=False, boundary=False, random_state=0),
    ).fit(X[:200], y[:200])
    chain = tagger[-1]
    print(f"ν={nu}: {1 - tagger.score(X[200:], y[200:]):.1%} of the letters wrong")
    print(
        f"  margin errors {chain.margin_error_risk_:.3f} <= ν {chain.nu_:.3f} <= "
        f"support vectors {chain.support_vector_risk_:.3f}; as C: {chain.C_:.4g}"
    )

# %%
# Plot what ``nu="auto"`` tried.

trials = sorted(chain.nu_path_, key=lambda trial: trial.nu)
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
axes.semilogx([t.nu for t in trials], [t.held_out_loss for t in trials], "o-")
axes.axvline(chain.nu_, color="#c44e06", label="taken")
axes.set(xlabel="ν", ylabel="letters wrong per word, held out", xticks=[1, 1.5, 2, 3])
axes.set_xticklabels(["1", "1.5", "2", "3"])
axes.minorticks_off()
axes.legend()
axes.grid(alpha=0.3)
