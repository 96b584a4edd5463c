"""Messages and weights in turn: the baselines that soft constraints are compared with.

Both minimise the LP-relaxed objective g(w, δ) of :mod:`hingeline.solvers.relaxed.soft` over weights
and messages: an example is drawn, its messages make ``rounds`` rounds of block descent, and the
weights a step against the (sub)gradient of the example at these messages.

``"dlpw"``
    O. Meshi, D. Sontag, T. Jaakkola, A. Globerson, *Learning Efficiently with Approximate Inference
    via Dual Losses* (2010): descent on the messages, subgradient steps.
``"dlpw-smooth"``
    T. Hazan, R. Urtasun, *A Primal-Dual Message-Passing Algorithm for Approximated Large Scale
    Structured Prediction* (2010): every maximum is soft, ``ε log Σ exp(·/ε)``, messages have a
    closed form by variables, and the steps are gradient steps of a smooth function.

Messages. At given ones the gradient has the best state of every block, or soft shares, and is a
subgradient of g(w, δ) in w. What is to be minimised, though, is the least g over messages, and of
that it is a subgradient only if the messages are optimal for the weights and the maximisers of
factors and variables agree. A round by factors (MPLP) leaves dense graphs far from there, three by
variables do not (docs/experiments_papers.md). The maximiser nearest to its variables' is taken.

Steps. ``w ← (1 − η)·w − η·n·c_i·g_i`` with g_i the (sub)gradient of the example's hinge, and
``η = 2/(t + t₀)``, the schedule for strongly convex problems, t counting steps. t₀ is so large that
the noise of the first steps, ``(η/2)·Σ_i n·c_i²‖g_i‖²``, is the share ``noise`` of the objective at
w = 0: with ``t₀ = 0`` the weights leave for a place some passes away. Candidates are the last
weights and the average of the iterates, each with a few rounds of messages made for it.

Certificate. g(w, δ) is what it says whatever the temperature. For ``"dlpw-smooth"`` the soft
marginals of all examples, factors' coupled to variables', are a feasible dual point: the gap is
that of the relaxation. It goes down to ``2ε Σ_i c_i Σ_blocks log(states)`` at most, and not to 0.
``"dlpw"`` has no dual point, so that its dual is −inf and its gap ``nan``: it runs until
``max_iter`` or ``max_time``.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hingeline._checks import Array
from hingeline._jit import helper, kernel
from hingeline._simd import aligned_zeros, largest, row_max
from hingeline.core.primitives import PART
from hingeline.core.registry import SolverOptions, option
from hingeline.core.solver import CertifiedSolver
from hingeline.inference.factor_graph import Topology, topology
from hingeline.inference.map import NO_ORACLE
from hingeline.solvers.relaxed import messages as kernels
from hingeline.solvers.relaxed.blocks import couple
from hingeline.solvers.relaxed.messages import Tables
from hingeline.structures import graph_blocks
from hingeline.structures.graph_blocks import BinaryPairs, Blocks

STEPS, TOTAL, MASS, FIRST = range(4)  # Entries of the steps' state.
#: What makes a block of messages: a variable with its factors, a factor, or the first in graphs of
#: binary pairs only.
VARIABLES, FACTORS, PAIRS = range(3)
#: Scores this near, relative to one plus their size, are tied: messages are float32.
TIE_TOLERANCE = 1e-5


@helper
def choose_near(
    graph: Topology, c: int, values: Array, first: int, end: int, states: Array
) -> None:
    """Scores of factor c to its best joint state; of several, that nearest to ``states``."""
    best, top, second = first, values[first], -np.inf
    for k in range(first + 1, end):
        if values[k] > top:
            best, top, second = k, values[k], top
        else:
            second = max(second, values[k])
    least = top - TIE_TOLERANCE * (1.0 + abs(top))
    if second >= least:
        most = -1
        for k in range(first, end):
            if values[k] < least:
                continue
            same, rest = 0, k - first
            for p in range(graph.scope_start[c + 1] - 1, graph.scope_start[c] - 1, -1):
                v = graph.scope[p]
                if rest % graph.n_states[v] == states[v]:
                    same += 1
                rest //= graph.n_states[v]
            if same > most:
                best, most = k, same
    values[first:end] = 0.0
    values[best] = 1.0


@helper
def make_tables(problem: Any, blocks: Blocks, order: Array) -> Tables:
    """Room for any example of a pass."""
    longest = places = 0
    for i in order:
        longest = max(longest, blocks.mass_at[i + 1] - blocks.mass_at[i])
        places = max(places, blocks.message_at[i + 1] - blocks.message_at[i])
    return Tables(
        np.empty(longest + blocks.most_blocks + 8),
        np.empty(blocks.most_blocks + 1, dtype=np.int64),
        np.empty(places + 1, dtype=np.int64),
        np.empty(blocks.most_unary + 8),
        np.empty(problem.n_columns + 8),
        np.empty(places + blocks.widest + 9),
    )


@kernel
def descend(
    problem: Any,
    blocks: Blocks,
    order: Array,
    cap: Array,
    weight: float,
    rounds: int,
    by: int,
    temperature: float,
    state: Array,
    planes: Array,
    moments: Array,
    messages: Array,
) -> None:
    """One pass: of each example the messages, then a (sub)gradient step; ``w = planes/W``.

    ``by`` says what makes a block of messages. With weight 0 only messages move.
    """
    steps = np.empty(problem.n_columns + 8)
    states = np.empty(blocks.most_unary + 8, dtype=np.int64)
    tables = make_tables(problem, blocks, order)
    beliefs, values = tables.beliefs, tables.values
    own = np.empty(tables.stride.shape[0])
    for i in order:
        graph = topology(problem.graphs, problem.graph[i])
        n_factors = graph.scope_start.shape[0] - 1
        total = state[TOTAL]
        kernels.score_variables(problem, graph, i, planes, total, tables)
        if by == PAIRS:
            stored = messages[blocks.message_at[i] :]
            kernels.fill_pairs(problem, i, planes, total, stored, own, tables)
            for c in range(n_factors + 1):
                tables.start[c] = 4 * c
            for _ in range(rounds):
                kernels.descend_pairs(graph, temperature, own, tables)
            if rounds > 0:
                for k in range(4 * n_factors):
                    stored[k] = np.float32(own[k])
        else:
            kernels.add_beliefs(problem, blocks, i, messages, tables)
            kernels.fill_tables(problem, blocks, i, planes, total, messages, tables)
            for _ in range(rounds):
                if by == FACTORS:
                    kernels.descend_factors(problem, blocks, i, messages, tables)
                else:
                    kernels.descend_variables(problem, blocks, i, temperature, messages, tables)
        if weight == 0.0:
            continue
        state[STEPS] += 1.0
        step = weight * cap[i]
        # All of the gradient before any of the step: factors may share a template.
        for v in range(graph.n_states.shape[0]):
            first, n = graph.unary_start[v], graph.n_states[v]
            states[v] = largest(beliefs, first, n)
            if temperature > 0.0:
                kernels.normalise(beliefs, first, n, temperature)
            else:
                beliefs[first : first + n] = 0.0
                beliefs[first + states[v]] = 1.0
        for c in range(n_factors):
            first, end = tables.start[c], tables.start[c + 1]
            if temperature > 0.0 and by == PAIRS:
                kernels.normalise(values, first, 4, temperature)
            elif temperature > 0.0:
                kernels.normalise(values, first, end - first, temperature)
            else:
                choose_near(graph, c, values, first, end, states)
            values[first + graph_blocks.true_joint(problem, graph, i, c)] -= 1.0
        for c in range(n_factors):
            change = values[tables.start[c] :]
            graph_blocks.factor_add(problem, i, c, -step, change, planes)
            graph_blocks.factor_add(problem, i, c, -step * state[STEPS], change, moments)
        graph_blocks.add_variables(problem, i, beliefs, 0, -step, steps, planes)
        graph_blocks.add_variables(problem, i, beliefs, 0, -step * state[STEPS], steps, moments)
        state[TOTAL] += weight
        state[MASS] += state[TOTAL]


@kernel
def find_hinges(
    problem: Any, blocks: Blocks, order: Array, w: Array, messages: Array, out: Array
) -> None:
    """``Σ max θ̂`` of each example, relative to the truth."""
    table, tables = np.empty(blocks.widest + 8), make_tables(problem, blocks, order)
    beliefs = tables.beliefs
    for i in order:
        graph = topology(problem.graphs, problem.graph[i])
        kernels.score_variables(problem, graph, i, w, 1.0, tables)
        kernels.fill_tables(problem, blocks, i, w, 1.0, messages, tables)
        hinge = 0.0
        for v in range(graph.n_states.shape[0]):
            hinge -= beliefs[graph.unary_start[v] + graph_blocks.true_state(problem, i, v)]
        kernels.add_beliefs(problem, blocks, i, messages, tables)
        for v in range(graph.n_states.shape[0]):
            hinge += row_max(beliefs, graph.unary_start[v], graph.n_states[v])
        for c in range(graph.scope_start.shape[0] - 1):
            graph_blocks.factor_scores(problem, i, c, w, table)
            hinge -= table[graph_blocks.true_joint(problem, graph, i, c)]
            first, end = tables.start[c], tables.start[c + 1]
            hinge += row_max(tables.values, first, end - first)
        out[i] = hinge


@kernel
def add_soft_marginals(
    problem: Any,
    blocks: Blocks,
    order: Array,
    cap: Array,
    w: Array,
    temperature: float,
    messages: Array,
    out: Array,
) -> float:
    """``out += Ψμ`` for the soft marginals μ, factors coupled to variables; ``Σ c_i·μ·l``."""
    steps, missing = np.empty(problem.n_columns + 8), np.empty(blocks.most_unary + 8)
    tables = make_tables(problem, blocks, order)
    beliefs, linear = tables.beliefs, 0.0
    for i in order:
        graph = topology(problem.graphs, problem.graph[i])
        kernels.score_variables(problem, graph, i, w, 1.0, tables)
        kernels.add_beliefs(problem, blocks, i, messages, tables)
        for v in range(graph.n_states.shape[0]):
            kernels.normalise(beliefs, graph.unary_start[v], graph.n_states[v], temperature)
            for s in range(graph.n_states[v]):
                share = beliefs[graph.unary_start[v] + s]
                linear += cap[i] * share * graph_blocks.variable_loss(problem, i, v, s)
        kernels.fill_tables(problem, blocks, i, w, 1.0, messages, tables)
        for c in range(graph.scope_start.shape[0] - 1):
            size = tables.start[c + 1] - tables.start[c]
            table = tables.values[tables.start[c] : tables.start[c + 1]]
            kernels.normalise(table, 0, size, temperature)
            couple(graph, c, size, beliefs, 0, table, missing)
            table[graph_blocks.true_joint(problem, graph, i, c)] -= 1.0
            graph_blocks.factor_add(problem, i, c, -cap[i], table, out)
        graph_blocks.add_variables(problem, i, beliefs, 0, -cap[i], steps, out)
    return linear


NOISE_SAMPLE = 32  # Examples that the noise of steps is judged by.
CERTIFYING_ROUNDS = 3  # Rounds of messages for weights that are to be certified.


class DLPW(CertifiedSolver):
    """Dual losses; see the head of this module."""

    name = "dlpw"
    slacks = ("max",)
    rescalings = ("margin",)
    decodes = False
    soft_only = "it descends on the price of slack"

    @dataclass(frozen=True)
    class Options(SolverOptions):
        rounds: int = option(3, "rounds of messages before each step of the weights", least=0)
        noise: float = option(0.1, "share of the objective at w = 0 that first steps may cost")
        messages_by: str = option(
            "variables", "whose messages make a block", words=("variables", "factors")
        )
        temperature: float = 0.0

    saved_numbers = (*CertifiedSolver.saved_numbers, "bound")
    saved_arrays = ("planes", "moments", "state", "messages", "_best")

    def _begin(self, start: None) -> None:
        compiled = self.compiled
        self.blocks = graph_blocks.lay_out_blocks(compiled, self.name)
        self.problem = compiled.problem._replace(oracle=NO_ORACLE)
        self.by = PAIRS if isinstance(self.blocks.factors, BinaryPairs) else VARIABLES
        if self.options.messages_by == "factors":
            self.by = FACTORS
        self.messages = np.zeros(int(self.blocks.message_at[-1]), dtype=np.float32)
        self.temperature = float(self.options.temperature)  # ε; 0 where maxima are hard
        self.exact, self.bounded = False, self.temperature > 0.0
        self.planes = aligned_zeros(compiled.n_weights)
        self.moments = aligned_zeros(compiled.n_weights)
        self.state = np.zeros(4)
        self.bound = -math.inf
        self.hinges = np.zeros(compiled.n)
        step = min(self._first_step(), 1.0)
        # Steps of pass k weigh k₀ + k − 1, those before the first as if k₀ passes had been made.
        n = max(len(self.active), 1)
        self.state[FIRST] = 2.0 / (step * n)
        self.state[TOTAL] = 0.5 * n * self.state[FIRST] ** 2

    def _first_step(self) -> float:
        """The η at which the noise of steps from w = 0 is the share of the objective there."""
        n = len(self.active)
        zero = aligned_zeros(self.compiled.n_weights)
        noise = objective = 0.0
        for i in self.active[:: max(n // NOISE_SAMPLE, 1)]:
            gradient = np.zeros_like(zero)
            self._descend(np.array([i]), 1.0, 0, np.eye(4)[TOTAL], gradient, np.zeros_like(zero))
            noise += 0.5 * float(gradient @ gradient) / n
            find_hinges(self.problem, self.blocks, np.array([i]), zero, self.messages, self.hinges)
            objective += float(self.form.cap[i] * self.hinges[i])
        return float(self.options.noise) * objective / noise if noise > 0.0 else 1.0

    def _descend(
        self, order: Array, weight: float, rounds: int, state: Array, planes: Array, moments: Array
    ) -> None:
        known = (self.problem, self.blocks, order, len(self.active) * self.form.cap)
        asked = (weight, rounds, self.by, self.temperature)
        descend(*known, *asked, state, planes, moments, self.messages)

    def sweep(self) -> float:
        self.clock += 1
        order = self.rng.permutation(self.active)
        weight, rounds = self.state[FIRST] + self.clock - 1.0, int(self.options.rounds)
        self._descend(order, weight, rounds, self.state, self.planes, self.moments)
        self.oracle_calls += len(self.active)
        return math.inf

    def candidate(self) -> Array:
        steps = self.state[STEPS] + 1.0
        return np.asarray((steps * self.planes - self.moments) / self.state[MASS])

    def certify(self) -> float:
        """``g`` of the average and of the last iterate; a dual bound where there is one."""
        primal = math.inf
        for weights in (np.asarray(self.planes / self.state[TOTAL]), self.candidate()):
            self._fit_messages(weights)
            value = self.primal_of(weights)
            primal = min(primal, value)
            self.keep(weights, value)
            if self.bounded:
                self.bound = max(self.bound, self._dual_of(weights)[0])
        return primal

    def _dual_of(self, weights: Array) -> tuple[float, Array]:
        """Dual value of the soft marginals at weights and the messages of this moment; their Ψμ."""
        combined = aligned_zeros(self.compiled.n_weights)
        given = (self.problem, self.blocks, self.active, self.form.cap, weights)
        linear = add_soft_marginals(*given, self.temperature, self.messages, combined)
        return linear - 0.5 * float(combined @ combined), combined

    def _fit_messages(self, weights: Array) -> None:
        """Fit messages to these weights: else the noise of steps since a visit would be slack."""
        state = np.eye(4)[TOTAL]
        self._descend(self.active, 0.0, CERTIFYING_ROUNDS, state, weights, np.zeros_like(weights))

    def primal_of(self, weights: Array) -> float:
        """``g(w, δ)`` of given weights with the messages of this moment."""
        given = (self.problem, self.blocks, PART, weights, self.messages, self.hinges)
        self.workers.over(self.active, find_hinges, *given)
        return 0.5 * float(weights @ weights) + float(self.form.cap @ self.hinges)

    def dual(self) -> float:
        return self.bound

    def measures(self) -> dict[str, Any]:
        return {"relaxed": self._best_primal}

    def findings(self, weights: Array) -> dict[str, float]:
        """The relaxed objective, which is the primal, and its gap."""
        gap = self._best_primal - self.bound if self.bounded else math.nan
        return {"relaxed_objective_": self._best_primal, "relaxed_gap_": gap}

    def repair(self) -> None:
        """Any messages and weights are feasible."""


class SmoothDLPW(DLPW):
    """Dual losses with soft maxima; see the head of this module."""

    name = "dlpw-smooth"

    @dataclass(frozen=True)
    class Options(DLPW.Options):
        messages_by: str = "variables"
        temperature: float = option(0.01, "ε of the soft maxima, in units of the loss")
