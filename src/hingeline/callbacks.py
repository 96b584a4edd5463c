"""Ready-made callbacks: functions of a :class:`hingeline.PassState`, called after each pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline.solvers.history import PassState

Array = np.ndarray[Any, Any]


class EarlyStopping:
    """Stop when the score on held-out data has not improved for some passes.

    The estimator keeps the weights of the best pass, and its certificate is theirs.

    Parameters
    ----------
    estimator : estimator
        The one that is being fitted.
    X, y : held-out data
    patience : int, default=3
        Passes without improvement before stopping.
    **score_params
        Passed to ``estimator.score``, e.g. ``lengths``.

    Examples
    --------
    >>> model = ChainSSVM()                                                # doctest: +SKIP
    >>> model.set_params(callbacks=[EarlyStopping(model, X_dev, y_dev)])   # doctest: +SKIP
    """

    def __init__(
        self, estimator: Any, X: Any, y: Any, patience: int = 3, **score_params: Any
    ) -> None:
        if patience < 1:
            raise ValueError(f"patience must be at least 1, got {patience!r}.")
        self.estimator = estimator
        self.X = X
        self.y = y
        self.patience = patience
        self.score_params = score_params
        self.scores_: list[float] = []
        self._best: Array | None = None

    def __call__(self, state: PassState) -> None:
        """Score the pass and stop if the patience is over."""
        if state.row.passes == 1:  # a new fit
            self.scores_ = []
        weights = state.weights
        self.estimator.weights_ = weights
        score = self.estimator.score(self.X, self.y, **self.score_params)
        if not self.scores_ or score > max(self.scores_):
            self._best = weights
        self.scores_.append(score)
        since = len(self.scores_) - 1 - int(np.argmax(self.scores_))
        if since >= self.patience:
            state.stop(
                f"the held-out score has not improved for {self.patience} passes "
                f"(best {max(self.scores_):.4f})",
                self._best,
            )
