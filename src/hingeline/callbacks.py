"""Ready-made callbacks: functions of a :class:`hingeline.PassState`, called after each pass."""

import errno
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hingeline._checks import Array, positive, require, retell, warn
from hingeline._words import count_of
from hingeline.core.results import PassState
from hingeline.modelfile.files import ModelFileError, read_model, write_model


class EarlyStopping:
    """Stop when the score on held-out data has not improved for some passes.

    The estimator keeps the weights of the best pass and their certificate.

    Parameters
    ----------
    estimator : estimator; the one that is being fitted (a clone's callback watches the clone)
    X, y : held-out data
    patience : int, default=3; passes without improvement before stopping
    scoring : callable or str, optional
        ``scoring(estimator, X, y)``, the higher the better, or a name of :func:`hingeline.scorer`,
        such as ``"span_f1"``; default: ``estimator.score``.
    **score_params : passed to ``estimator.score``, e.g. ``lengths``

    Examples
    --------
    >>> model = ChainSSVM()                                                # doctest: +SKIP
    >>> model.set_params(callbacks=[EarlyStopping(model, X_dev, y_dev)])   # doctest: +SKIP
    """

    def __init__(
        self,
        estimator: Any,
        X: Any,
        y: Any,
        patience: int = 3,
        scoring: Any = None,
        **score_params: Any,
    ) -> None:
        positive("patience", patience, integer=True)
        if isinstance(scoring, str):
            from hingeline.evaluation.metrics import scorer

            with retell("scoring: "):
                scoring = scorer(scoring)
        self.estimator = estimator
        self.X, self.y = X, y
        self.patience, self.scoring, self.score_params = patience, scoring, score_params
        self.scores_: list[float] = []
        self._best: Array | None = None

    def watch(self, estimator: Any) -> None:
        """Score the passes of this estimator; every fit calls it."""
        self.estimator = estimator

    def __call__(self, state: PassState) -> None:
        """Score the pass and stop if the patience is over."""
        if state.row.passes == 1:  # a new fit
            self.scores_ = []
        self.estimator.weights_ = weights = state.weights
        known = self.X, self.y
        judge, more = self.scoring, self.score_params
        score = judge(self.estimator, *known) if judge else self.estimator.score(*known, **more)
        if not self.scores_ or score > max(self.scores_):
            self._best = weights
        self.scores_.append(score)
        if len(self.scores_) - 1 - int(np.argmax(self.scores_)) >= self.patience:
            best, passes = max(self.scores_), count_of(self.patience, "pass", "passes")
            told = f"the held-out score has not improved on {best:.4f} for {passes}"
            state.stop(told, self._best)

    def get_state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """The state that a checkpoint keeps."""
        best = {} if self._best is None else {"best": self._best}
        return {}, {"scores": np.array(self.scores_, dtype=np.float64), **best}

    def set_state(self, meta: dict[str, Any], arrays: dict[str, Array]) -> None:
        """Continue from a checkpoint."""
        self.scores_ = arrays["scores"].tolist()
        self._best = arrays.get("best")


class Checkpoint:
    """Write the state of a fit to a file at intervals, so that the fit can be resumed.

    A fit that resumes from a checkpoint ends with the same weights, bit for bit, as one that was
    never interrupted. The file is replaced atomically: it is complete whenever the process ends,
    even by ``kill -9``. If the disk is full, a warning says so, and the fit continues. The file is
    not removed at the end of the fit.

    Parameters
    ----------
    path : str or path
    every : float, default=10.0
        Least number of seconds between two checkpoints; they are written after a pass.
    resume : bool, default=False
        Continue from the file. If there is none, start afresh.

    Attributes
    ----------
    resumed_ : int; passes made before the checkpoint; 0 if the fit started afresh

    Examples
    --------
    >>> model = ChainSSVM(random_state=0)                                   # doctest: +SKIP
    >>> model.set_params(callbacks=Checkpoint("fit.ckpt", resume=True))     # doctest: +SKIP
    """

    def __init__(self, path: Any, every: float = 10.0, resume: bool = False) -> None:
        require(every >= 0.0, f"every must be at least 0 seconds, got {every!r}.")
        self.path, self.every, self.resume = Path(path), every, resume
        self.resumed_ = 0
        self._identity: dict[str, Any] = {}
        self._written, self._warned = 0.0, False

    def begin(self, identity: dict[str, Any], restore: Callable[[Any], None]) -> bool:
        """Called before the first pass; returns whether the fit resumes from the file."""
        self._identity, self._written, self.resumed_ = identity, time.monotonic(), 0
        if not self.resume or not self.path.exists():
            return False
        header, arrays = read_model(self.path)
        if header.get("kind") != "checkpoint":
            raise ModelFileError(f"{self.path} is a model, not a checkpoint: name another file.")
        before = header.get("identity")
        known = before if isinstance(before, dict) else {}
        other = [name for name in identity if known.get(name) != identity[name]]
        what = f"{self.path} is the checkpoint of another fit (other {', '.join(other)})"
        how = "resume with the same data and parameters, or remove it to start afresh"
        require(before == identity, f"{what}: {how}.", ModelFileError)
        try:
            restore((header["state"], arrays))
            self.resumed_ = int(header["passes"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            what = f"{self.path} cannot be resumed: {error}"
            raise ModelFileError(f"{what} Remove it to start afresh.") from None
        return True

    def __call__(self, state: PassState) -> None:
        """Write a checkpoint if the last one is old enough, or the time of the fit is over."""
        if time.monotonic() - self._written < self.every and not state.out_of_time:
            return
        meta, arrays = state.snapshot()
        header = {"kind": "checkpoint", "identity": self._identity, "state": meta}
        self._written = time.monotonic()
        try:
            write_model(self.path, {**header, "passes": state.row.passes}, arrays)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
                raise
            if not self._warned:
                what = f"the checkpoint {self.path} cannot be written ({error.strerror})"
                warn(f"{what}: the fit continues, and the last one that was written stays.")
            self._warned = True
