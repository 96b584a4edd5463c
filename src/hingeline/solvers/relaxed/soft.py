"""Block-coordinate descent of the softly constrained dual over the factors of graphs.

Algorithm 1 of O. Meshi, N. Srebro, T. Hazan, *Efficient Training of Structured SVMs via Soft
Constraints* (2015). Where exact inference is hard, the hinge of an example is replaced by its LP
relaxation, written with messages δ between its factors::

    g(w, δ)   = ½‖w‖² + Σ_i c_i Σ_blocks max_s θ̂(s; w, δ),           c_i = C·s_i
    g_ρ(w, δ) = g(w, δ) + (ρ/2) Σ_i c_i‖δ_i‖²

The dual f_ρ has marginals on a simplex for every block, and no constraint that those of a factor
agree with those of its variables: disagreement is what messages are made of,
``δ = (μ_c − μ_v)/ρ``. So a step is local: it reads and writes one block, its weights and its
neighbours' marginals (:mod:`hingeline.solvers.relaxed.blocks`).

ρ is that of an example: messages are at most 1/ρ, however many examples there are, and the same
data twice with half of C have the same optimum. The paper prints a penalty that is M = Σ_i s_i
times as large (its λ is 1/(CM)); then weights of pairs fall like 1/M, and with many examples the
model has hardly any edges: ``rho_scale="printed"``. By default ρ is a share of the loss of a
wrong label, which is what the messages have to outweigh.

``schedule="published"``
    Blocks are drawn at random and make a Frank-Wolfe step with exact line search.
``schedule="improved"``
    Blocks are solved exactly. Examples are visited in random order, the blocks of an example
    together, so that a row of features is read once for all variables that share it. Every
    ``passes`` passes all blocks are evaluated, in threads, and blocks with little to gain are left
    out until the next time. After the first few sweeps ``(η/2)‖w − w'‖²`` is added, w' being the
    weights of the sweep before (a proximal point method). Thousands of factors share a table of
    weights, and what they have to do is to differ: their messages, 1/ρ, bend the dual far less
    than their own share of w, c_i, which they may ignore together but not one by one. With
    c_i/(1 + η) they move further, and w is less noisy.

Certificate. ``g_ρ(w, δ) − f_ρ(μ)`` with the messages of μ is the sum of the blocks' Frank-Wolfe
gaps: primal, dual and gap are those of the softly constrained problem, whose optimum is at least
that of the relaxation. Any messages make a bound, though, and the improved schedule certifies with
messages made for the weights: ``rounds`` rounds over the blocks of an example with fixed weights,
its marginals put back afterwards.

``constraints="hard"`` solves the relaxation itself, and the certificate is that of the relaxation:
g(w, δ) against the dual value of marginals that agree.
Whenever the gap of the softly constrained problem is small beside that,

``hardening="centre"``
    the penalty becomes ``(ρ/2) Σ c_i‖δ_i − δ̄_i‖²`` with the messages reached as its centre δ̄: the
    proximal method of multipliers. ρ need not go to 0. It is divided by ``rho_factor``, down to
    where 1/ρ is the mean of ``c_i‖x‖²`` over the factors: there messages and weights bend the
    dual alike, and passes gain the most.
``hardening="rho"``
    ρ is divided by ``rho_factor``, and goes to 0: continuation as published. Blocks hang together
    ever more stiffly, and passes gain ever less.

Memory. Variables' marginals and their factors' sums are float64, a factor's marginals float32
without the true joint state: 12 bytes for a pair of binary variables, and 4 for its gap; its centre
of messages takes 16, where there is one. Steps are taken by what was stored, so that rounding does
not build up in w. Of pages that no step has touched, most systems keep none.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hingeline._checks import Array
from hingeline._jit import by_class, helper, kernel
from hingeline._simd import aligned_zeros
from hingeline.core.formulations import Formulation
from hingeline.core.primitives import Compiled
from hingeline.core.registry import SolverOptions, option
from hingeline.core.results import DualMemory, same_examples
from hingeline.core.solver import CertifiedSolver
from hingeline.inference.factor_graph import table_size, topology
from hingeline.inference.map import NO_ORACLE
from hingeline.solvers.nu import Margins
from hingeline.solvers.relaxed import blocks as any_factors
from hingeline.solvers.relaxed import pairs as binary_pairs
from hingeline.solvers.relaxed.blocks import (
    FRANK_WOLFE,
    PROJECTED,
    DualPoint,
    Scratch,
    block_gap,
    make_scratch,
    reparametrise,
    visit_factor,
    visit_variable,
    visit_variables,
)
from hingeline.structures.graph_blocks import (
    AnyFactors,
    BinaryPairs,
    Blocks,
    decodes_cheaply,
    factor_mass,
    first_column,
    group_end,
    lay_out_blocks,
    load_masses,
    marginal,
    mean_loss,
    mean_square,
    place_messages,
    row_add,
    row_scores,
    true_joint,
    true_state,
    variable_loss,
)

#: ρ is lowered, or the centre moved, when the soft gap is at most this share of the relaxation's.
LOWER_RHO_AT, MOVE_CENTRE_AT = 0.25, 1.0
#: ρ by default, over the mean loss of a wrong label.
DEFAULT_RHO = 0.3
#: Blocks drawn at a time.
BLOCKS_DRAWN = 1 << 18
#: Iterates of a pass that enter the average.
AVERAGED_ITERATES = 32
#: Sweeps before proximal ones: far from the optimum plain steps gain more.
PLAIN_SWEEPS = 3
#: η by default, over c_i·ρ, and at most.
PROXIMAL_SHARE, MOST_PROXIMAL = 0.2, 9.0
#: A variable is fractional where its largest marginal is further than this from 1.
FRACTIONAL_FROM = 1e-6
#: Columns of what the evaluation of an example gives.
HINGE, LINEAR, PENALTY, CENTRE, FRACTIONAL = range(5)


def _by_kind(name: str) -> Any:
    """Let kernels contain what one kind of factors needs, by the class of ``blocks.factors``."""
    modules: dict[type, Any] = {AnyFactors: any_factors, BinaryPairs: binary_pairs}
    kinds = {kind: getattr(module, name) for kind, module in modules.items()}

    def stub(kind: Any, *rest: Any) -> Any:
        return kinds[type(kind)](kind, *rest)

    return by_class(stub, kinds.get)


visit_factors = _by_kind("visit_factors")
evaluate_factors = _by_kind("evaluate_factors")
add_factors = _by_kind("add_factors")


@helper
def evaluate_example(
    problem: Any,
    blocks: Blocks,
    i: int,
    cap: float,
    kappa: float,
    w: Array,
    point: DualPoint,
    scratch: Scratch,
    out: Array,
) -> None:
    """Sums over the blocks of example i, and the gap of each of them, at these weights.

    ``out`` gets ``Σ max θ̂`` relative to the truth, ``Σ μ·l``, ``Σ ‖μ_c^v − μ_v‖²``,
    ``Σ δ̄·(μ_v − μ_c^v)`` and how many variables are fractional.
    """
    graph = topology(problem.graphs, problem.graph[i])
    n_variables = graph.n_states.shape[0]
    unary = blocks.unary_at[i]
    block = blocks.block_at[i]
    for k in range(unary, blocks.unary_at[i + 1]):
        point.sums[k] = 0.0
    hinge, penalty, centred = evaluate_factors(
        blocks.factors, problem, blocks, graph, i, cap, kappa, w, point, scratch
    )
    linear = 0.0
    fractional = 0
    v = 0
    while v < n_variables:
        end = group_end(problem, i, v, n_variables)
        row_scores(problem, i, v, w, scratch.columns)
        for u in range(v, end):
            n = graph.n_states[u]
            at = unary + graph.unary_start[u]
            column = first_column(problem, i, u)
            largest = 0.0
            for s in range(n):
                scratch.margins[s] = scratch.columns[column + s]
                linear += point.mu[at + s] * variable_loss(problem, i, u, s)
                largest = max(largest, point.mu[at + s])
            if largest < 1.0 - FRACTIONAL_FROM:
                fractional += 1
            hinge -= scratch.margins[true_state(problem, i, u)]
            reparametrise(problem, graph, i, u, n, kappa, point, at, scratch.margins)
            gap, best = block_gap(scratch.margins, point.mu, at, n)
            hinge += scratch.margins[best]
            point.gaps[block + u] = cap * gap
        v = end
    out[HINGE] = hinge
    out[LINEAR] = linear
    out[PENALTY] = penalty
    out[CENTRE] = centred
    out[FRACTIONAL] = fractional


@helper
def put_back(kept: Array, values: Array, at: int) -> None:
    """Copy what was set aside; an assignment to a slice takes seconds to compile."""
    for k in range(kept.shape[0]):
        values[at + k] = kept[k]


@kernel
def evaluate(
    problem: Any,
    blocks: Blocks,
    order: Array,
    cap: Array,
    kappa: float,
    rounds: int,
    least: float,
    w: Array,
    point: DualPoint,
    out: Array,
) -> None:
    """Evaluate each of these examples; ``out[i]`` gets what :func:`evaluate_example` says.

    With ``rounds``, what it would say after so many rounds over the blocks with fixed weights. Any
    messages make a bound. Those of the marginals are what all weights together made of them; these
    are made for the given weights. Blocks whose gap is below ``least`` keep theirs. The marginals
    are put back where they were; their sums must be right.
    """
    kind = blocks.factors
    scratch = make_scratch(blocks, problem.n_columns)
    for i in order:
        graph = topology(problem.graphs, problem.graph[i])
        more = 1 if rounds > 0 else 0  # nothing is set aside where nothing moves
        a, b = blocks.unary_at[i], blocks.unary_at[i + more]
        c, d = blocks.mass_at[i], blocks.mass_at[i + more]
        e, f = blocks.block_at[i], blocks.block_at[i + more]
        mu, sums = point.mu[a:b].copy(), point.sums[a:b].copy()
        mass, gaps = point.mass[c:d].copy(), point.gaps[e:f].copy()
        for _ in range(rounds):
            put_back(gaps, point.gaps, e)
            visit_factors(
                kind, problem, blocks, graph, i, least, 0.0, kappa, PROJECTED, w, point, scratch
            )
            visit_variables(
                problem, blocks, graph, i, least, 0.0, kappa, PROJECTED, w, point, scratch
            )
        evaluate_example(problem, blocks, i, cap[i], kappa, w, point, scratch, out[i])
        put_back(mu, point.mu, a)
        put_back(sums, point.sums, a)
        put_back(mass, point.mass, c)
        put_back(gaps, point.gaps, e)


@kernel
def move_centre(
    problem: Any, blocks: Blocks, order: Array, kappa: float, step: float, point: DualPoint
) -> None:
    """``δ̄ += step·κ(μ_c^v − μ_v)`` for these examples, and what is summed of it anew."""
    scratch = make_scratch(blocks, problem.n_columns)
    for i in order:
        graph = topology(problem.graphs, problem.graph[i])
        unary = blocks.unary_at[i]
        for k in range(unary, blocks.unary_at[i + 1]):
            point.centre_sums[k] = 0.0
        for c in range(graph.scope_start.shape[0] - 1):
            size = table_size(graph, c)
            truth = true_joint(problem, graph, i, c)
            load_masses(point.mass, factor_mass(blocks, problem, i, c), size, truth, scratch.now)
            stride = size
            for p in range(graph.scope_start[c], graph.scope_start[c + 1]):
                v = graph.scope[p]
                n = graph.n_states[v]
                stride //= n
                marginal(scratch.now, size, n, stride, scratch.margins, 0)
                at = unary + graph.unary_start[v]
                first = place_messages(blocks, problem, i, p)
                for s in range(n):
                    apart = scratch.margins[s] - point.mu[at + s]
                    point.centre[first + s] += step * kappa * apart
                    point.centre_sums[at + s] += point.centre[first + s]


@kernel
def add_weights(
    problem: Any, blocks: Blocks, cap: Array, coupled: bool, point: DualPoint, w: Array
) -> None:
    """``w += Ψμ``; ``coupled``: ``w += Ψ(μ' − μ)``, where the factors' marginals μ' agree."""
    kind = blocks.factors
    scratch = make_scratch(blocks, problem.n_columns)
    for i in range(cap.shape[0]):
        if cap[i] == 0.0:
            continue
        graph = topology(problem.graphs, problem.graph[i])
        n_variables = graph.n_states.shape[0]
        unary = blocks.unary_at[i]
        v = n_variables if coupled else 0
        while v < n_variables:
            end = group_end(problem, i, v, n_variables)
            some = False
            for k in range(problem.n_columns):
                scratch.steps[k] = 0.0
            for u in range(v, end):
                at = unary + graph.unary_start[u]
                column = first_column(problem, i, u)
                truth = true_state(problem, i, u)
                for s in range(graph.n_states[u]):
                    if s != truth and point.mu[at + s] != 0.0:
                        scratch.steps[column + s] = -cap[i] * point.mu[at + s]
                        some = True
                scratch.steps[column + truth] = cap[i] * (1.0 - point.mu[at + truth])
            if some:
                row_add(problem, i, v, scratch.steps, w)
            v = end
        add_factors(kind, problem, blocks, graph, i, cap[i], coupled, point, w, scratch)


@kernel
def pass_examples(
    problem: Any,
    blocks: Blocks,
    order: Array,
    cap: Array,
    kappa: float,
    least: float,
    steps: int,
    every: int,
    w: Array,
    point: DualPoint,
    total: Array,
) -> float:
    """Visit the blocks of these examples whose last gap is at least ``least``; what f_ρ gained.

    After each ``every`` examples the weights are added to ``total``.
    """
    kind = blocks.factors
    scratch = make_scratch(blocks, problem.n_columns)
    gain = 0.0
    for k in range(order.shape[0]):
        i = order[k]
        graph = topology(problem.graphs, problem.graph[i])
        gain += visit_variables(
            problem, blocks, graph, i, least, cap[i], kappa, steps, w, point, scratch
        )
        gain += visit_factors(
            kind, problem, blocks, graph, i, least, cap[i], kappa, steps, w, point, scratch
        )
        if (k + 1) % every == 0:
            for j in range(w.shape[0]):
                total[j] += w[j]
    return gain


@kernel
def pass_draws(
    problem: Any,
    blocks: Blocks,
    examples: Array,
    draws: Array,
    by_gap: bool,
    cap: Array,
    kappa: float,
    steps: int,
    w: Array,
    point: DualPoint,
) -> tuple[float, float]:
    """One block of each of these examples, evenly or in proportion to the gaps.

    ``draws`` are numbers in [0, 1). Returns the gaps met, summed, and what f_ρ gained.
    """
    scratch = make_scratch(blocks, problem.n_columns)
    gain = 0.0
    met = 0.0
    for k in range(examples.shape[0]):
        i = examples[k]
        first, end = blocks.block_at[i], blocks.block_at[i + 1]
        block = first + int(draws[k] * (end - first))
        if by_gap:
            total = 0.0
            for b in range(first, end):
                total += point.gaps[b]
            target = draws[k] * total
            for b in range(first, end):
                target -= point.gaps[b]
                if target < 0.0:
                    block = b
                    break
        graph = topology(problem.graphs, problem.graph[i])
        local = block - first
        n = graph.n_states.shape[0]
        if local < n:
            gain += visit_variable(
                problem, blocks, graph, i, local, cap[i], kappa, steps, w, point, scratch
            )
        else:
            gain += visit_factor(
                problem, blocks, graph, i, local - n, cap[i], kappa, steps, w, point, scratch
            )
        met += point.gaps[block]
    return met, gain


class Marginals(NamedTuple):
    """What another run can start from: marginals are feasible whatever C and ρ are."""

    mu: Array
    mass: Array
    centre: Array  # of messages; empty: zero


class SoftBCFW(CertifiedSolver):
    """Soft constraints; see the head of this module."""

    name = "soft-bcfw"
    slacks = ("max",)
    rescalings = ("margin",)
    decodes = False
    soft_only = "it steps towards corners of the feasible set, which must be bounded"

    @dataclass(frozen=True)
    class Options(SolverOptions):
        rho: float | None = option(
            None,
            "softness ρ of the constraints, of an example; where they are hard, the one to begin "
            "with; None: 0.3 over the mean loss of a wrong label",
        )
        rho_scale: str = option(
            "example",
            "'printed': the penalty is multiplied by the total weight of the examples",
            words=("example", "printed"),
        )
        constraints: str = option(
            "soft",
            "'hard': until the certified gap of the relaxation itself meets tol",
            words=("soft", "hard"),
        )
        hardening: str = option(
            "centre", "how hard constraints are approached", words=("centre", "rho")
        )
        rho_factor: float = option(4.0, "what ρ is divided by when hard constraints are approached")
        schedule: str = option("improved", "what a pass does", words=("improved", "published"))
        steps: str | None = option(
            None,
            "exact solution of a block, or a step towards its best state; None: as the schedule",
            words=("projected", "frank-wolfe"),
        )
        sampling: str | None = option(
            None,
            "blocks in a random order of the examples, drawn evenly, or drawn in proportion to "
            "their last gaps; None: as the schedule",
            words=("permutation", "random", "gap"),
        )
        passes: int = option(4, "passes between two evaluations of all blocks")
        rounds: int = option(
            1,
            "rounds over the blocks of each example that fit messages to the weights evaluated",
            least=0,
        )
        proximal: float | None = option(
            None,
            "η of proximal passes, 0 for none; None: in proportion to c_i·ρ, up to 9",
            least=0,
        )
        skip: float = option(
            0.1, "blocks whose last gap was below this share of the mean are left out", least=0
        )
        total_weight: float | None = None

        def unused(self, slack: str) -> Iterable[str]:
            """What belongs to the other schedule, order or kind of constraints."""
            published = self.schedule == "published"
            order = self.sampling or ("random" if published else "permutation")
            if published:
                yield from ("passes", "rounds")
            if published or order != "permutation":
                yield "proximal"
            if order != "permutation" and (published or self.rounds == 0):
                yield "skip"
            if self.constraints == "soft":
                yield from ("hardening", "rho_factor")

    saved_numbers = (
        *(*CertifiedSolver.saved_numbers, "rho", "value", "relaxed", "soft", "relaxed_bound"),
        *("fractional", "best_relaxed", "_average_leads"),
    )
    saved_arrays = (
        *(*CertifiedSolver.saved_arrays, "mu", "sums", "mass", "gaps", "centre", "centre_sums"),
        "anchor",
    )

    def _begin(self, start: Marginals | None) -> None:
        compiled, form = self.compiled, self.form
        self.blocks = lay_out_blocks(compiled, self.name)
        self.problem = compiled.problem._replace(oracle=NO_ORACLE)
        published = self.options.schedule == "published"
        self.steps = self.options.steps or ("frank-wolfe" if published else "projected")
        self.sampling = self.options.sampling or ("random" if published else "permutation")
        #: Only projected steps have a closed form.
        self.pass_blocks = self.blocks
        if self.steps == "frank-wolfe":
            self.pass_blocks = self.blocks._replace(factors=AnyFactors())
        self.exact, self.bounded = False, True  # blocks are enumerated, no example is decoded
        self.constrained = self.options.constraints == "hard"
        self.certifies = not published
        rho = self.options.rho or DEFAULT_RHO / mean_loss(compiled.problem, form.cap)
        printed = self.options.rho_scale == "printed"
        self.rho = float(rho * (self.options.total_weight or len(self.active)) if printed else rho)
        self.mu = np.zeros(int(self.blocks.unary_at[-1]))
        self.sums = np.zeros(len(self.mu))
        self.mass = np.zeros(int(self.blocks.mass_at[-1]), dtype=np.float32)
        self.gaps = np.zeros(self.blocks.n, dtype=np.float32)
        centred = self.constrained and self.options.hardening == "centre"
        self.centre = np.zeros(int(self.blocks.message_at[-1]) if centred else 0, dtype=np.float32)
        self.centre_sums = np.zeros(len(self.mu) if centred else 0)
        self.terms = np.zeros((compiled.n, 5))  # of the objectives, by example
        self.rounds = 0 if published else int(self.options.rounds)
        self.value = 0.0  # f_ρ
        self.relaxed = self.soft = math.inf  # g and g_ρ at the last evaluation
        self.relaxed_bound = -math.inf  # best dual value of marginals that agree
        self.fractional = 0.0  # share of variables
        self.best_relaxed = math.inf  # g(w, δ) of the best weights
        #: ρ at which messages and weights bend the dual alike
        self.balance = 1.0 / max(mean_square(compiled.problem, form.cap), 1e-300)
        self.total = aligned_zeros(compiled.n_weights)  # of iterates, for their average
        self.visits = 0
        self.anchor = aligned_zeros(compiled.n_weights)  # weights that proximal passes stay near
        self._average_leads = True
        if start is not None:
            self.mu[:] = start.mu
            self.mass[:] = start.mass
            if len(self.centre) == len(start.centre):
                self.centre[:] = start.centre
        else:  # at the truth, where factors already are
            self.mu[self._true_states()] = 1.0
        self.repair()

    @classmethod
    def start_from(
        cls, before: DualMemory, compiled: Compiled, form: Formulation
    ) -> Marginals | None:
        """Marginals are feasible for any C; the layout of other examples is another."""
        old, problem = before.compiled.problem, compiled.problem
        same = old is problem or same_examples(old, problem)
        return before.multipliers if same and isinstance(before.multipliers, Marginals) else None

    def _true_states(self) -> Array:
        """Where vectors over (variable, state) have the true states."""
        problem = self.problem
        counts = np.diff(problem.node_offset)
        example = np.repeat(np.arange(len(counts)), counts)
        variable = np.arange(len(example)) - problem.node_offset[example]
        first = problem.graphs.node_ptr[problem.graph[example]]
        states = problem.graphs.n_states[first + variable].astype(np.int64)
        return np.asarray(np.cumsum(states) - states + problem.labels)

    @property
    def point(self) -> DualPoint:
        """The marginals, as the kernels take them."""
        return DualPoint(self.mu, self.sums, self.mass, self.gaps, self.centre, self.centre_sums)

    @property
    def kappa(self) -> float:
        """``1/ρ``, what disagreement is multiplied with to become a message."""
        return 1.0 / self.rho

    @property
    def n_planes(self) -> int:
        """Blocks that are known to have something to gain."""
        return int(np.count_nonzero(self.gaps))

    def sweep(self) -> float:
        """Passes over the blocks; the gaps met in them, or the gap of the evaluation after them."""
        self.clock += 1
        if self.options.schedule == "published":
            return self._pass(self.form.cap, first=self.clock == 1)
        self.total[:] = 0.0
        self.visits = 0
        weights = self._proximal_passes() if self.clock > PLAIN_SWEEPS else None
        if weights is None:
            for k in range(self.options.passes):
                self._pass(self.form.cap, first=self.clock == 1 and k == 0)
            weights = self.w
        both = self.clock % 4 == 0
        average = last = math.inf
        if self.visits > 0:
            self.total /= self.visits
        if self.visits > 0 and (self._average_leads or both):
            average = self._evaluate_and_keep(self.total, self.rounds)
        if self.visits == 0 or not self._average_leads or both:
            last = self._evaluate_and_keep(weights, self.rounds)
        if both and self.visits > 0:
            self._average_leads = average <= last
        self.anchor[:] = self.total if self.visits > 0 and self.clock <= PLAIN_SWEEPS else weights
        self._update_dual()
        return min(average, last) - self.lower_bound()

    def _proximal_passes(self) -> Array | None:
        """Passes of the problem with ``(η/2)‖w − anchor‖²`` added; its weights.

        They are ``(Ψμ + η·anchor)/(1 + η)``, so that the weights of a block move, and bend, by
        ``c_i/(1 + η)``. ``self.w`` is Ψμ again afterwards.
        """
        eta = self.options.proximal
        if eta is None:  # small problems and hard constraints are as well conditioned without
            eta = min(PROXIMAL_SHARE * self.rho / self.balance, MOST_PROXIMAL)
            eta = eta if eta >= 1.0 else 0.0
        if eta == 0.0 or self.sampling != "permutation":
            return None
        self.w += eta * self.anchor
        self.w /= 1.0 + eta
        self.gaps /= np.float32(1.0 + eta)
        for _ in range(self.options.passes):
            self._pass(self.form.cap / (1.0 + eta))
        weights = self.w.copy()
        self.w *= 1.0 + eta
        self.w -= eta * self.anchor
        return weights

    def _pass(self, cap: Array, first: bool = False) -> float:
        """As many visits as there are blocks, or one to each block worth it; the gaps met.

        At the truth factors have nothing to gain until their variables move: the ``first`` pass
        takes all blocks alike. Later ones that choose by gaps know those of the weights they begin
        with, but for the improved schedule's permutations, whose gaps are those met last.
        """
        steps = PROJECTED if self.steps == "projected" else FRANK_WOLFE
        self.oracle_calls += len(self.active)
        ordered, published = self.sampling == "permutation", self.options.schedule == "published"
        if not first and (self.sampling == "gap" or (ordered and published)):
            self._evaluate(self.w, self.terms)
        if ordered:
            least = 0.0 if first else self._least_gap()
            order = self.rng.permutation(self.active)
            every = max(len(order) // AVERAGED_ITERATES, 1)
            self.value += pass_examples(
                *(self.problem, self.pass_blocks, order, cap, self.kappa, least, steps, every),
                *(self.w, self.point, self.total),
            )
            self.visits += len(order) // every
            return float(self.gaps.sum(dtype=np.float64))
        by_gap = self.sampling == "gap" and not first
        met = 0.0
        left = int(np.diff(self.blocks.block_at)[self.active].sum())
        while left > 0:
            count = min(left, BLOCKS_DRAWN)
            left -= count
            share = np.diff(self.blocks.block_at).astype(np.float64)
            if by_gap:
                share = np.add.reduceat(self.gaps, self.blocks.block_at[:-1], dtype=np.float64)
            share[self.form.cap <= 0.0] = 0.0
            upto = np.cumsum(share)
            if upto[-1] <= 0.0:
                break
            examples = np.searchsorted(upto, self.rng.random(count) * upto[-1], side="right")
            examples = np.minimum(examples, self.compiled.n - 1)
            draws = self.rng.random(count)
            some, gain = pass_draws(
                *(self.problem, self.pass_blocks, examples, draws, by_gap, cap, self.kappa, steps),
                *(self.w, self.point),
            )
            met += some
            self.value += gain
        return met if not by_gap else float(self.gaps.sum(dtype=np.float64))

    def _least_gap(self) -> float:
        """The gap below which blocks are left out until the next evaluation."""
        return float(self.options.skip) * float(self.gaps.mean(dtype=np.float64))

    def _evaluate(self, weights: Array, out: Array, rounds: int = 0) -> None:
        """Gaps of all blocks and sums over those of each example, in threads."""
        least = self._least_gap() if rounds > 0 else 0.0
        self.workers.map(
            lambda part, scratch: evaluate(
                *(self.problem, self.blocks, part, self.form.cap, self.kappa, rounds, least),
                *(weights, self.point, out),
            ),
            self.active,
        )

    def _objectives(self, weights: Array, rounds: int) -> tuple[float, float]:
        """``g`` and ``g_ρ`` of weights that were evaluated, with the messages of the marginals.

        With ``rounds`` each example may have messages made for these weights instead.
        """
        half = 0.5 * float(weights @ weights)
        hinge, penalty = self.terms[:, HINGE], 0.5 * self.kappa * self.terms[:, PENALTY]
        if rounds > 0:
            refined = np.zeros_like(self.terms)
            self._evaluate(weights, refined, rounds)
            other = 0.5 * self.kappa * refined[:, PENALTY]
            share = 0.0 if self.constrained else 1.0
            better = refined[:, HINGE] + share * other < hinge + share * penalty
            hinge = np.where(better, refined[:, HINGE], hinge)
            penalty = np.where(better, other, penalty)
        relaxed = half + float(self.form.cap @ hinge)
        return relaxed, relaxed + float(self.form.cap @ penalty)

    def _evaluate_and_keep(self, weights: Array, rounds: int = 0) -> float:
        """Evaluate weights and keep them if their primal is the least so far."""
        self._evaluate(weights, self.terms)
        self.relaxed, self.soft = self._objectives(weights, rounds)
        primal = self.relaxed if self.constrained else self.soft
        if primal < self._best_primal or self._best is None:
            if self._best is None:
                self._best = aligned_zeros(len(self.w))
            self._best_primal = math.inf  # should an interruption come between the two
            self._best[:] = weights
            self._best_primal, self.best_relaxed = primal, self.relaxed
        return primal

    def _soft_dual(self) -> float:
        """``f_ρ = Σ c_i·μ·l − ½‖w‖² − (ρ/2) Σ c_i‖δ_i‖² + …`` from the terms evaluated last."""
        cap = self.form.cap
        penalty = 0.5 * self.kappa * float(cap @ self.terms[:, PENALTY])
        linear, centred = float(cap @ self.terms[:, LINEAR]), float(cap @ self.terms[:, CENTRE])
        return linear - 0.5 * float(self.w @ self.w) - penalty + centred

    def _update_dual(self) -> None:
        """The dual side after an evaluation; hard constraints are hardened where it is time."""
        variables = np.diff(self.problem.node_offset)[self.active].sum()
        self.fractional = float(self.terms[:, FRACTIONAL].sum() / max(variables, 1))
        self.value = self._soft_dual()
        if not self.constrained:
            return
        self._bound_relaxation()
        near = LOWER_RHO_AT if len(self.centre) == 0 else MOVE_CENTRE_AT
        if self.soft - self.value > near * (self.best_relaxed - self.relaxed_bound):
            return
        lower = self.rho / self.options.rho_factor
        if len(self.centre) > 0:
            self._move_centre(1.0)
            self.terms[:, CENTRE] -= self.kappa * self.terms[:, PENALTY]
            lower = max(lower, self.balance)
        self.rho = lower
        self.value = self._soft_dual()

    def _move_centre(self, step: float) -> None:
        """Move the centre by ``step`` times the way to the messages of this moment."""
        self.workers.map(
            lambda part, scratch: move_centre(
                self.problem, self.blocks, part, self.kappa, step, self.point
            ),
            self.active,
        )

    def _bound_relaxation(self) -> None:
        """A lower bound on the relaxation from marginals that agree.

        Between them and the truth, which agrees with itself, the best point is taken.
        """
        weights = aligned_zeros(len(self.w))
        weights[:] = self.w
        add_weights(self.problem, self.blocks, self.form.cap, True, self.point, weights)
        linear, square = float(self.form.cap @ self.terms[:, LINEAR]), float(weights @ weights)
        part = min(linear / square, 1.0) if square > 0.0 else 1.0
        self.relaxed_bound = max(self.relaxed_bound, part * linear - 0.5 * part**2 * square)

    def certify(self) -> float:
        """The primal of the weights made anew from the marginals."""
        self._rebuild_weights()
        primal = self._evaluate_and_keep(self.w)
        self._update_dual()
        return primal

    def primal_of(self, weights: Array) -> float:
        """The primal of given weights with the messages of the marginals."""
        self._evaluate(weights, self.terms)
        relaxed, soft = self._objectives(weights, self.rounds)
        return relaxed if self.constrained else soft

    def dual(self) -> float:
        """``f_ρ`` of the marginals."""
        return self.value

    def lower_bound(self) -> float:
        """``f_ρ``, or the bound on the relaxation where constraints are hard."""
        return self.relaxed_bound if self.constrained else self.value

    def measures(self) -> dict[str, Any]:
        """What history rows say beside the certificate."""
        return {"relaxed": self.best_relaxed, "fractional": self.fractional}

    def findings(self, weights: Array) -> dict[str, float]:
        """Objectives of the relaxation and, where decoding is exact, of the structured hinge."""
        self._evaluate(self.w, self.terms)
        self._bound_relaxation()
        found = {
            "relaxed_objective_": self.best_relaxed,
            "relaxed_gap_": max(self.best_relaxed - self.relaxed_bound, 0.0),
            "fractional_": self.fractional,
            "soft_rho_": self.rho,
        }
        if decodes_cheaply(self.compiled.problem):
            margins = Margins(self.compiled, self.form.cap, self.workers, 0.0)
            hinges = margins.look(weights, 1.0).hinges
            half = 0.5 * float(weights @ weights)
            found["structured_objective_"] = half + float(self.form.cap @ hinges)
        return found

    def _rebuild_weights(self) -> None:
        self.w = aligned_zeros(self.compiled.n_weights)
        add_weights(self.problem, self.blocks, self.form.cap, False, self.point, self.w)

    def repair(self) -> None:
        """Weights, sums, gaps and f_ρ from the marginals."""
        self._rebuild_weights()
        if len(self.centre) > 0:
            self._move_centre(0.0)
        self._evaluate_and_keep(self.w)
        self._update_dual()

    def memory(self) -> Marginals:
        """The marginals of all blocks."""
        return Marginals(self.mu, self.mass, self.centre)
