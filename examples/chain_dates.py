"""Sequence labelling: read handwritten dates, eight working days in a row.

Run: python examples/chain_dates.py
"""

import numpy as np

from hingeline import ChainSSVM, EarlyStopping, MulticlassSSVM
from hingeline.data.digits import load_digit_dates

data = load_digit_dates(n_train=600, n_test=400)
X, y = data.X_train, data.y_train
truth = np.array(data.y_test)


def show(name: str, predicted: np.ndarray) -> None:
    right = predicted == truth
    print(f"{name:22s} digits {right.mean():.3f}   all eight {right.all(axis=1).mean():.3f}")


def digit_by_digit_and_as_a_sequence() -> ChainSSVM:
    flat = MulticlassSSVM(C=0.1, random_state=0).fit(np.vstack(X), np.concatenate(y))
    show("digit by digit", flat.predict(np.vstack(data.X_test)).reshape(truth.shape))
    chain = ChainSSVM(C=0.3, random_state=0).fit(X, y)
    show("as a sequence", np.array(chain.predict(data.X_test)))
    return chain


def look_at_the_weights(chain: ChainSSVM) -> None:
    """What follows what: the next digit, after a weekend the third next, on the 1st anything."""
    print(f"\nemission_coef_ {chain.emission_coef_.shape}, start_coef_ {chain.start_coef_.shape}")
    print("transition_coef_, tenths; row: from, column: to")
    print("      " + "".join(f"{digit:4d}" for digit in chain.classes_))
    for digit, row in zip(chain.classes_, chain.transition_coef_, strict=True):
        print(f"{digit:4d}  " + "".join(f"{round(10 * weight):4d}" for weight in row))


def where_it_is_unsure(chain: ChainSSVM) -> None:
    """Margins: how much worse the best sequence with another digit at this place is."""
    leads = np.array([table.max(axis=1) for table in chain.decision_function(data.X_test)])
    row, day = np.unravel_index(np.argmin(leads), leads.shape)
    print(f"\nleast sure of {data.dates_test[row][day]} in {' '.join(data.dates_test[row])}")
    print(f"truth {data.y_test[row]}, predicted {chain.predict([data.X_test[row]])[0]}")


def along_c() -> None:
    """A path of values of C; each fit starts from the multipliers of the one before."""
    print("\n      C   cold passes   warm passes   digits right")
    warm = ChainSSVM(warm_start=True, tol=1e-3, random_state=0)
    for c in (0.03, 0.06, 0.12, 0.25, 0.5):
        cold = ChainSSVM(C=c, tol=1e-3, random_state=0).fit(X, y)
        warm.set_params(C=c).fit(X, y)
        score = warm.score(data.X_test, data.y_test)
        print(f"{c:7g} {cold.n_iter_:13d} {warm.n_iter_:13d} {score:14.3f}")


def stop_early() -> None:
    """Stop when held-out rows are no longer read better.

    They share images with the rows trained on, so their scores are too good to be quoted.
    """
    chain = ChainSSVM(C=1.0, tol=1e-4, random_state=0)
    stopping = EarlyStopping(chain, X[500:], y[500:], patience=3)
    chain.set_params(callbacks=[stopping]).fit(X[:500], y[:500])
    print(f"\nstopped after {chain.n_iter_} passes: {chain.stop_reason_}")
    print("held-out scores", " ".join(f"{score:.3f}" for score in stopping.scores_))
    print(f"certified gap of the weights kept: {chain.duality_gap_ / chain.primal_objective_:.1%}")
    show("stopped early", np.array(chain.predict(data.X_test)))


if __name__ == "__main__":
    model = digit_by_digit_and_as_a_sequence()
    look_at_the_weights(model)
    where_it_is_unsure(model)
    along_c()
    stop_early()
