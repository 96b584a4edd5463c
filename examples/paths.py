"""
Paths of C and ν
================

How much should you regularise? A path fits many values in little more time than the hardest of them
takes, because every fit starts from the one before. Every point has its own certificate.
"""

# %%
# Try values of C on noisy handwritten dates.

import matplotlib.pyplot as plt
import numpy as np

from hingeline import C_path, ChainSSVM, nu_path
from hingeline.data import load_digit_dates

data = load_digit_dates(n_train=200, n_test=200, noise=0.3)
estimator = ChainSSVM(tol=0.01, random_state=0)
path = C_path(estimator, data.X_train, data.y_train, Cs=np.geomspace(1e-3, 1.0, 7))
for C, model, gap in zip(path.values, path.models, path.relative_gaps, strict=True):
    score = model.score(data.X_test, data.y_test)
    print(f"C {C:6.3f}  test {score:.3f}  gap {gap:.2%}  {model.n_iter_:3} passes")

# %%
# ν is a mean loss: on average, at most ν digits of a row are within the margin. That is easier to
# guess than C.

nus = nu_path(estimator, data.X_train, data.y_train, nus=[4.0, 3.0, 2.0, 1.5, 1.0, 0.7])
figure, panels = plt.subplots(1, 2, figsize=(8.4, 3.3), layout="constrained", sharey=True)
for panel, found, name in zip(panels, (path, nus), ("C", "ν"), strict=True):
    for X, y, label in (
        (data.X_train, data.y_train, "training"),
        (data.X_test, data.y_test, "test"),
    ):
        panel.semilogx(found.values, [m.score(X, y) for m in found.models], "o-", label=label)
    ticks = found.values[::2]
    panel.set(xlabel=name, xticks=ticks, xticklabels=[f"{value:g}" for value in ticks])
    panel.minorticks_off()
    panel.grid(alpha=0.3)
panels[0].set_ylabel("digits right")
panels[0].legend()
panels[1].invert_xaxis()

# %%
# ν bounds the mean loss of margin errors from above, and that of support vectors from below.

for nu, model in zip(nus.values, nus.models, strict=True):
    print(f"{model.margin_error_risk_:.3f} <= ν {nu:.1f} <= {model.support_vector_risk_:.3f}")
