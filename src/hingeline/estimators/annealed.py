"""What a semi-supervised fit leaves: its steps, the one chosen, and what that can do."""

from __future__ import annotations

import math
import sys
import warnings
from copy import copy
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from hingeline.estimators.chain import ChainSSVM
from hingeline.estimators.partial_labels import words_in
from hingeline.semisupervised.annealing import AnnealingStep, Trajectory, least_violating
from hingeline.semisupervised.label_switching import Switching
from hingeline.semisupervised.penalties import Penalties
from hingeline.semisupervised.starting import ConstrainedLabels
from hingeline.solvers.parallel import Workers, effective_n_jobs

Array = np.ndarray[Any, Any]

NO_GAP = (
    "weights and labels together are not a convex problem, which has no certificate; that of the "
    "weights for fixed labels is base_.duality_gap_ after a fit"
)


class AnnealedModel(BaseEstimator):
    """The fitted side of :class:`hingeline.SemiSupervisedSSVM`."""

    constraints: Any
    base_: ChainSSVM
    classes_: Array

    # What a fit leaves ---------------------------------------------------------------------

    def _keep(
        self, model: ChainSSVM, path: Trajectory, select: str, problem: Any, order: Array
    ) -> None:
        """Take over the trajectory and choose a step of it."""
        if select == "dev":
            chosen = int(np.argmax([step.dev_score for step in path.steps]))
        elif select == "violations":
            chosen = least_violating(path.steps)
        else:
            chosen = len(path.steps) - 1
        first = len(problem.offsets) - 1
        numbers = problem.labels.copy()
        numbers[len(numbers) - len(path.labels[chosen]) :] = path.labels[chosen]
        parts = np.split(model.classes_[numbers], problem.offsets[1:-1])
        self.transduction_: list[Array] = [parts[0]] * first
        for place, part in zip(order.tolist(), parts, strict=True):
            self.transduction_[place] = part
        model._store(path.results[chosen])
        self.step_weights_: list[Any] = [result.weights for result in path.results]
        self._set(model, path.steps, chosen)
        if path.interrupted:
            self.stop_reason_ = "interrupted"
            warnings.warn(
                f"SemiSupervisedSSVM was interrupted after {len(path.steps) - 1} values of C_u: "
                "the step chosen is one of these.",
                UserWarning,
                stacklevel=3,
            )

    def _keep_supervised(
        self,
        model: ChainSSVM,
        labels: Array,
        offsets: Array,
        dev: tuple[Any, Any] | None,
    ) -> None:
        """A fit without unlabelled sequences has one step."""
        nan = math.nan
        norm = 0.5 * float(model.weights_ @ model.weights_)
        step = AnnealingStep(
            C_u=0.0,
            objective=model.primal_objective_,
            norm=norm,
            labelled=model.primal_objective_ - norm,
            unlabelled=0.0,
            penalty=nan,
            gap=model.duality_gap_,
            switches=0,
            alternations=0,
            settled=True,
            changed=nan,
            violations=nan,
            agreement=nan,
            stability=nan,
            dev_score=nan if dev is None else float(model.score(*dev)),
            time=model.history_[-1].time,
        )
        self.transduction_ = np.split(model.classes_[labels], offsets[1:-1])
        self.step_weights_ = [model.weights_]
        self._set(model, [step], 0)

    def _set(self, model: ChainSSVM, steps: list[AnnealingStep], chosen: int) -> None:
        self.base_ = model
        self.classes_ = model.classes_
        self.n_features_in_ = model.n_features_in_
        self.steps_ = steps
        self.selected_ = chosen
        self.primal_objective_ = steps[chosen].objective
        self.duality_gap_ = math.nan
        self.stop_reason_ = NO_GAP

    def _report(self, number: int, step: AnnealingStep) -> None:
        dev = "" if math.isnan(step.dev_score) else f"  dev {100 * step.dev_score:.2f} %"
        print(
            f"C_u {step.C_u:<7g} {step.time:6.2f} s  P {step.objective:.6g}"
            f"  penalty {step.penalty:.6g}  switches {step.switches}"
            f"  alternations {step.alternations}{'' if step.settled else ' (not settled)'}"
            f"  violations {step.violations:.6g}{dev}",
            file=sys.stderr,
        )

    def _follow(self, C_u: float, number: int, found: Switching, changed: int) -> None:
        print(
            f"  alternation {number}: objective {found.start_objective:.6g} to "
            f"{found.objective:.6g}, {found.switches} switches, {changed} sequences relabelled",
            file=sys.stderr,
        )

    # What it is for ------------------------------------------------------------------------

    @property
    def weights_(self) -> Array:
        """The flat weights of the chosen step."""
        check_is_fitted(self, "base_")
        return self.base_.weights_

    def with_step(self, step: int) -> Any:
        """A copy that predicts with the weights of another step, without a certificate."""
        models = self.step_models_
        other = type(self)(**self.get_params(deep=False))
        other.__dict__.update(vars(self))
        other._set(models[step], self.steps_, range(len(models))[step])
        return other

    @property
    def step_models_(self) -> list[ChainSSVM]:
        """A fitted ChainSSVM for every step, e.g. to score them all."""
        check_is_fitted(self, "base_")
        if any(weights is None for weights in self.step_weights_):
            raise ValueError("a model file holds the weights of the chosen step only: fit anew.")
        return [self.base_.with_weights(weights) for weights in self.step_weights_]

    def predict(
        self,
        X: Any,
        lengths: Any = None,
        allowed: Any = None,
        *,
        constrained: bool = False,
        words: Any = None,
    ) -> list[Array]:
        """Labels of every sequence.

        Parameters
        ----------
        X, lengths, allowed : as for :meth:`ChainSSVM.predict`
        constrained : bool, default=False
            Look for the highest score minus penalty, by beam search under the instance-level
            constraints, whose weights count in units of the score.
        words : list of lists of str, optional
            What the constraints see, as for :meth:`fit`.

        Returns
        -------
        list of ndarray, one per sequence
        """
        check_is_fitted(self, "base_")
        if not constrained:
            return self.base_.predict(X, lengths, allowed)
        problem = self.base_._prepared(X, lengths, allowed)
        everyone = np.arange(len(problem.offsets) - 1)
        seen = words_in(X, words, everyone, problem.offsets)
        penalties = Penalties(self.constraints, seen, self.classes_.tolist(), unknown="ignore")
        with Workers(effective_n_jobs(self.base_.n_jobs), 0) as workers:
            search = ConstrainedLabels(problem, 0, self.weights_, 1.0, penalties, workers, 32)
            numbers = search.find()
        return np.split(self.classes_[numbers], problem.offsets[1:-1])

    def score(self, X: Any, y: Any, lengths: Any = None, sample_weight: Any = None) -> float:
        """Share of tokens labelled right.

        Parameters
        ----------
        X, y, lengths : as for :meth:`ChainSSVM.score`
        sample_weight : array-like, one per sequence, optional
        """
        check_is_fitted(self, "base_")
        return self.base_.score(X, y, lengths, sample_weight)

    def save(self, path: Any, *, metadata: Any = None, **options: Any) -> dict[str, Any]:
        """Write the model of the chosen step to a file, as :meth:`ChainSSVM.save` does.

        The file holds ``base_`` and the record of the annealing; :func:`hingeline.load` and the
        command line read it as a ChainSSVM, without a certificate. Constraints and weights of
        other steps are left out.

        Parameters
        ----------
        path : str or path
        metadata : dict, optional
        **options
            As for :meth:`ChainSSVM.save`.
        """
        check_is_fitted(self, "base_")
        rows = [
            {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()}
            for row in (step._asdict() for step in self.steps_)
        ]
        record = {"steps": rows, "selected": self.selected_}
        both = {**(metadata or {}), "semisupervised": record}
        stored = copy(self.base_)  # its certificate is that of another problem
        stored.primal_objective_ = self.primal_objective_
        stored.dual_objective_ = stored.duality_gap_ = math.nan
        stored.history_ = []
        stored.stop_reason_ = NO_GAP
        return stored.save(path, metadata=both, **options)

    @classmethod
    def load(cls, path: Any) -> Any:
        """The fitted estimator in a file that :meth:`save` wrote, with the chosen weights only."""
        model = ChainSSVM.load(path)
        record = model.metadata_.get("semisupervised")
        make: Any = AnnealingStep
        try:
            steps = [
                make(**{k: math.nan if v is None else v for k, v in row.items()})
                for row in record["steps"]
            ]
            chosen = int(record["selected"])
            steps[chosen]
        except (TypeError, KeyError, ValueError, IndexError):
            raise ValueError(
                f"{path} holds no record of a semi-supervised fit: load it with ChainSSVM.load."
            ) from None
        found = cls(base=clone(model))
        found.step_weights_ = [model.weights_ if k == chosen else None for k in range(len(steps))]
        found._set(model, steps, chosen)
        return found
