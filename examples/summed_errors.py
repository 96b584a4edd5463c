"""Summed errors: Weston-Watkins for digits, and the published estimator for sequences of digits.

Run: python examples/summed_errors.py
"""

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from hingeline import ChainSSVM, MulticlassSSVM
from hingeline.data import load_digit_dates

# Multi-class: all classes are looked at, so the gap is that of the whole problem.
X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16, y, random_state=0)
for slack in ("max", "sum"):
    model = MulticlassSSVM(C=0.1, slack=slack, random_state=0).fit(X_train, y_train)
    share = model.duality_gap_ / model.primal_objective_
    print(f"digits, slack={slack!r}: {model.score(X_test, y_test):.3f}, gap {100 * share:.2f} %")

# Sequences: the sum runs over 10^8 outputs; the solver works on those it met.
dates = load_digit_dates(random_state=0)
for violators in ("argmax", 5):
    tagger = ChainSSVM(C=0.01, slack="sum", violators=violators, random_state=0)
    tagger.fit(dates.X_train, dates.y_train)
    share = tagger.restricted_gap_ / tagger.restricted_objective_
    print(
        f"dates, violators={violators!r}: {tagger.score(dates.X_test, dates.y_test):.3f}, gap over "
        f"the {tagger.history_[-1].planes} outputs found {100 * share:.2f} %"
    )

# The whole sum, bounded without listing 10^8 outputs: a certificate of OP2 for these weights …
bounds = tagger.summed_slack_bounds(dates.X_train, dates.y_train)
primal = 0.5 * tagger.weights_ @ tagger.weights_ + tagger.C * bounds.total_upper
print(
    f"of the whole problem the gap is at most {100 * (1 - tagger.dual_objective_ / primal):.1f} %"
)

# … and solved: every violated output is found.
tagger = ChainSSVM(C=0.01, slack="sum", violators="all", random_state=0)
tagger.fit(dates.X_train, dates.y_train)
share = tagger.duality_gap_ / tagger.primal_objective_
print(
    f"dates, violators='all': {tagger.score(dates.X_test, dates.y_test):.3f}, gap of the whole "
    f"problem {100 * share:.2f} %"
)
