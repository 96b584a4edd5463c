"""
Summed errors
=============

With ``slack="max"`` an example pays for its worst competitor, with ``slack="sum"`` for all of them.
For classes, this is Weston and Watkins's problem; for sequences, it is the published estimator.
"""

# %%
# With classes, the solver looks at all of them, so the gap is that of the whole problem.

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from hingeline import ChainSSVM, MulticlassSSVM
from hingeline.data import load_digit_dates

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16, y, random_state=0)
costs = [0.001, 0.01, 0.1, 1.0]
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
for slack in ("max", "sum"):
    models = [MulticlassSSVM(C=C, slack=slack, random_state=0).fit(X_train, y_train) for C in costs]
    axes.semilogx(costs, [m.score(X_test, y_test) for m in models], "o-", label=f'slack="{slack}"')
    print(slack, [f"{m.duality_gap_ / m.primal_objective_:.2%}" for m in models])
axes.set(xlabel="C", ylabel="test digits right")
axes.legend()
axes.grid(alpha=0.3)

# %%
# With sequences, the sum has 10^8 outputs. The solver works on those it found, and its gap is only
# over these.

dates = load_digit_dates(n_train=300, n_test=300)
tagger = ChainSSVM(C=0.01, slack="sum", violators="argmax", random_state=0)
tagger.fit(dates.X_train, dates.y_train)
share = tagger.restricted_gap_ / tagger.restricted_objective_
print(f"{tagger.score(dates.X_test, dates.y_test):.3f} of the digits right")
print(f"gap {share:.2%} over the {tagger.history_[-1].planes} outputs found")

# %%
# The whole sum can be bounded without listing 10^8 outputs. This gives a certificate for these
# weights.

bounds = tagger.summed_slack_bounds(dates.X_train, dates.y_train)
primal = 0.5 * tagger.weights_ @ tagger.weights_ + tagger.C * bounds.total_upper
print(f"of the whole problem the gap is at most {1 - tagger.dual_objective_ / primal:.1%}")
