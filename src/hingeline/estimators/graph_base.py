"""What the estimators over graphs share: the fit, decoding with its bounds, and storage."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from hingeline.estimators.base import OTHER_SOLVERS, BaseSSVM
from hingeline.estimators.validation import check_common, one_of
from hingeline.inference.factor_graph import topology
from hingeline.inference.map_inference import ENUMERATION
from hingeline.solvers.certificate import CertifiedSolver
from hingeline.solvers.parallel import Workers, effective_n_jobs
from hingeline.structures import graph
from hingeline.structures import graph_prediction as kernels
from hingeline.structures.base import Compiled

Array = np.ndarray[Any, Any]

#: A bound within this share of a value shows that the output is the best one.
TIGHT = 1e-6
#: (solver, slack) of the default for graphs with loops ...
LOOPY_DEFAULT = ("soft-bcfw", "max")
#: ... and more labellings than these, which exact training enumerates as fast.
FEW_LABELLINGS = 2.0**14


class Decoded(NamedTuple):
    """Outputs found for some graphs, and what is known of their quality.

    ``bounds`` are upper bounds on the score of any labelling, so that ``bounds − scores`` is how
    far a labelling can be from the best; ``exact`` says where it is the best.
    """

    labels: Any  # as predict gives them
    scores: Array
    bounds: Array
    exact: Array


def tight(bounds: Array, values: Array) -> Array:
    """Where bounds are met, up to rounding and the accuracy of inference."""
    return np.asarray(bounds - values <= TIGHT * (1.0 + np.abs(values)))


class GraphModel(BaseSSVM):
    """The part of an estimator that knows of graphs but not of how its inputs look."""

    inference: str

    def _check_parameters(self) -> None:
        """Check what does not depend on the data."""
        check_common(self, self._known_options())
        one_of("inference", self.inference, tuple(graph.INFERENCE))
        self._refuse_without_oracle(False, "graphs")

    def _solver_class(self, compiled: Compiled | None) -> type[CertifiedSolver]:
        asked = self.solver == "auto" and self.slack == "max" and not math.isinf(self.C)
        if asked and compiled is not None and self._relaxes(compiled.problem):
            return OTHER_SOLVERS[LOOPY_DEFAULT]
        return super()._solver_class(compiled)

    def _relaxes(self, problem: graph.GraphProblem) -> bool:
        """Whether training solves the relaxation, unless the solver is named."""
        if not graph.decodes_exactly(problem):
            return True
        loopy = problem.method == ENUMERATION
        if self.inference != "auto" or not loopy.any():
            return False
        graphs = problem.graphs
        logs = np.concatenate(([0.0], np.cumsum(np.log2(graphs.n_states))))
        sizes = np.diff(logs[graphs.node_ptr])[loopy]
        return bool(sizes.max() > np.log2(FEW_LABELLINGS) + 1e-9)

    def _fit_problem(self, problem: graph.GraphProblem, weights: Array) -> None:
        exact = graph.decodes_exactly(problem)
        if math.isinf(self.C) and not exact:
            raise ValueError(
                "C=inf (a hard margin) needs exact inference, which these graphs do not allow "
                f"with inference={self.inference!r}: choose a finite C."
            )
        start = self._previous(problem)
        result, dual = self._solve(graph.compile_problem(problem), weights, start, "graph")
        self._store(result)
        if hasattr(self, "relaxed_objective_"):
            self.oracle_exact_ = False  # nothing was decoded: the certificate is the relaxation's
        elif not result.exact:  # the bounds may be met all the same
            _, bounds, values = self._decode(problem, 1.0)
            self.oracle_exact_ = bool(tight(bounds, values).all())
        if self.warm_start:
            self._dual = dual

    def _decode(
        self, problem: graph.GraphProblem, loss_scale: float = 0.0
    ) -> tuple[Array, Array, Array]:
        """States of all variables; upper bounds and values of every example."""
        n = len(problem.graph)
        states = np.zeros(problem.node_offset[-1], dtype=np.int32)
        bounds, values = np.zeros(n), np.zeros(n)
        self._over_examples(kernels.decode_all, problem, loss_scale, states, bounds, values)
        return states, np.maximum(bounds, values), values

    def _settle(
        self, problem: graph.GraphProblem, states: Array, bounds: Array, values: Array
    ) -> None:
        """Put the best labelling in place where it is not yet known, by integer programming."""
        from hingeline.inference.milp import map_milp  # loads SciPy's optimisers

        w = self.weights_
        for i in np.flatnonzero(~tight(bounds, values)).tolist():
            tables = graph.table_scores(problem, i, w)
            bound, y = map_milp(
                topology(problem.graphs, problem.graph[i]),
                graph.unary_scores(problem, i, w, 0.0),
                *tables,
            )
            states[problem.node_offset[i] : problem.node_offset[i + 1]] = y
            bounds[i] = values[i] = bound

    def _conditional_scores(self, problem: graph.GraphProblem) -> tuple[Array, Array]:
        """Scores over (variable, state), the other variables as predicted; starts of examples."""
        states = self._decode(problem)[0]
        graphs = problem.graphs
        last = graphs.node_ptr[1:] + np.arange(len(graphs.node_ptr) - 1)
        sizes = graphs.unary_start[last][problem.graph]
        start = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        out = np.empty(start[-1])
        self._over_examples(kernels.conditional_scores_all, problem, states, start, out)
        return out, start

    def _over_examples(self, kernel: Any, problem: graph.GraphProblem, *more: Any) -> None:
        with Workers(effective_n_jobs(self.n_jobs), 0) as workers:
            workers.map(
                lambda part, scratch: kernel(problem, part, self.weights_, *more),
                np.arange(len(problem.graph)),
            )

    def save(self, path: Any, **options: Any) -> dict[str, Any]:
        """Write the fitted estimator to a model file; see :meth:`hingeline.ChainSSVM.save`.

        Training data and multipliers cannot be stored: ``state=True`` is refused.
        """
        if options.get("state"):
            raise ValueError(
                f"state=True is for estimators with partial_fit, which {type(self).__name__} does "
                "not have: leave it out."
            )
        return super().save(path, **options)
