"""
Classes, with a certificate
===========================

Use ``MulticlassSSVM`` like scikit-learn's ``LinearSVC``. It solves Crammer and Singer's problem and
gives a bound on how far it is from the optimum.
"""

# %%
# Fit, and read the certificate.

from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from hingeline import MulticlassSSVM

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16.0, y, test_size=0.5, random_state=0)

model = MulticlassSSVM(C=0.1, tol=1e-4, random_state=0).fit(X_train, y_train)
print(f"test accuracy  {model.score(X_test, y_test):.4f}")
print(f"optimum is in  [{model.dual_objective_:.6f}, {model.primal_objective_:.6f}]")
print(f"certified gap  {model.duality_gap_ / model.primal_objective_:.1e} of the objective")

# %%
# ``history_`` has a row for every pass: the objective falls from above, the bound rises from below.

import matplotlib.pyplot as plt
import numpy as np

passes = [row.passes for row in model.history_]
figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
axes.plot(passes, [row.dual for row in model.history_], marker=".", label="bound (dual)")
seen = [(row.passes, row.primal) for row in model.history_ if np.isfinite(row.primal)]
axes.plot(*zip(*seen, strict=True), "o", label="objective (primal)")
axes.set(xlabel="passes", ylabel="objective")
axes.legend()
axes.grid(alpha=0.3)

# %%
# It is a scikit-learn estimator: pipelines and searches work.

pipeline = make_pipeline(MinMaxScaler(), MulticlassSSVM(random_state=0))
grid = {"multiclassssvm__C": [0.001, 0.01, 0.1, 1.0]}
search = GridSearchCV(pipeline, grid, cv=4).fit(X_train * 16.0, y_train)
for C, score in zip(grid["multiclassssvm__C"], search.cv_results_["mean_test_score"], strict=True):
    print(f"C = {C:<6g} cross-validated accuracy {score:.4f}")
