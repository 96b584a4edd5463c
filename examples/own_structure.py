"""A structure of your own: find the one event in a recording.

Input: a recording (time steps × channels); output: an interval [start, end). The loss, 1 − IoU
(intersection over union), is no sum over time steps. Decoding tries all intervals.
"""

import time

import numpy as np
from numba import njit

from hingeline import SSVM, Structure
from hingeline.testing import check_structure


class Interval(Structure):
    """Three methods are enough."""

    def joint_feature(self, x, y):
        """Sum of the channels over the interval, and its length."""
        return np.append(x[y[0] : y[1]].sum(axis=0), y[1] - y[0])

    def loss(self, y_true, y):
        both = max(0, min(y_true[1], y[1]) - max(y_true[0], y[0]))
        return 1.0 - both / (y_true[1] - y_true[0] + y[1] - y[0] - both)

    def decode(self, x, w, y_true, loss_scale):
        """argmax over all intervals of w·f(x, y) + loss_scale·loss(y_true, y)."""
        total = np.append(0.0, np.cumsum(x @ w[:-1] + w[-1]))
        start, end = np.triu_indices(len(total), k=1)
        score = total[end] - total[start]
        if loss_scale > 0:
            both = np.maximum(np.minimum(y_true[1], end) - np.maximum(y_true[0], start), 0)
            score = score + loss_scale * (1 - both / (y_true[1] - y_true[0] + end - start - both))
        best = np.argmax(score)
        return np.array([start[best], end[best]], dtype=np.int32)


@njit
def interval_loss(y_true, y):
    both = max(0, min(y_true[1], y[1]) - max(y_true[0], y[0]))
    return 1.0 - both / (y_true[1] - y_true[0] + y[1] - y[0] - both)


class CompiledInterval(Structure):
    """The same with loops; numba compiles them into the solver."""

    loss = staticmethod(interval_loss)

    @staticmethod
    @njit
    def joint_feature(x, y):
        return np.append(x[y[0] : y[1]].sum(axis=0), float(y[1] - y[0]))

    @staticmethod
    @njit
    def decode(x, w, y_true, loss_scale):
        value = x @ w[:-1] + w[-1]
        best, y, trial = -np.inf, np.zeros(2, np.int32), np.zeros(2, np.int32)
        for trial[0] in range(len(value)):
            score = 0.0
            for t in range(trial[0], len(value)):
                trial[1] = t + 1
                score += value[t]
                extra = loss_scale * interval_loss(y_true, trial) if loss_scale > 0 else 0.0
                if score + extra > best:
                    best = score + extra
                    y[:] = trial
        return y


def all_intervals(x):
    return [np.array(pair) for pair in zip(*np.triu_indices(len(x) + 1, k=1), strict=True)]


def recordings(n, random, steps=40):
    """Noise, but during the event the channels are shifted a little."""
    start = random.integers(0, steps - 10, n)
    y = [np.array([s, s + random.integers(5, 11)]) for s in start]
    X = [random.normal(size=(steps, 4)) for _ in range(n)]
    for x, (begin, end) in zip(X, y, strict=True):
        x[begin:end] += [1.0, -0.7, 0.5, 0.0]
    return X, y


if __name__ == "__main__":
    generator = np.random.default_rng(0)
    X_train, y_train = recordings(100, generator)
    X_test, y_test = recordings(300, generator)
    for structure in (Interval(), CompiledInterval()):
        check_structure(structure, X_train[:2], y_train[:2], outputs=all_intervals, n_trials=3)
        SSVM(structure, C=0.1, tol=0.05).fit(X_train[:20], y_train[:20])  # compiles, if need be
        began = time.perf_counter()
        model = SSVM(structure, C=0.1, tol=1e-3, random_state=0).fit(X_train, y_train)
        print(
            f"{type(structure).__name__:17s} {time.perf_counter() - began:6.2f} s, certified gap "
            f"{model.duality_gap_ / model.primal_objective_:.1e}, mean IoU on new recordings "
            f"{1 + model.score(X_test, y_test):.3f}, weights {np.round(model.weights_, 2)}"
        )
