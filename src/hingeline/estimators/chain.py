"""Sequence labelling: one label per token, with transitions between neighbours."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from hingeline._checks import check_class_weight, check_loss, check_sample_weight, positive
from hingeline.core.workers import Workers, effective_n_jobs
from hingeline.estimators.allowed import choose_scheme, keep_scheme, moves_of
from hingeline.estimators.chain_model import ChainPrediction, ChainWeights
from hingeline.estimators.online import OnlineSSVM
from hingeline.features.input import (
    find_classes,
    known_tokens,
    learn_tokens,
    more_tokens,
    number_labels,
    plain_labels,
    stack_labels,
)
from hingeline.streaming.memory import check_columns, with_new_classes
from hingeline.structures import chain
from hingeline.structures.chain import ChainProblem
from hingeline.structures.chain_batch import summed_slack_above, summed_slack_all

# The slack of a fitted chain summed over all outputs: certified bounds.

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class SummedSlack:
    """Bounds on the summed slack of sequences.

    Attributes
    ----------
    lower, upper : ndarray of shape (sequences,)
        Around ``Σ_y [l_i(y) − w·Δf_i(y)]₊``, a sum over all labellings; ``upper`` is ``inf``
        where there are more than about 1e290 violating ones.
    count_lower, count_upper : ndarray of shape (sequences,)
        Around the number of labellings with a positive term. Numbers beyond 2⁵² are rounded.
    """

    lower: Array
    upper: Array
    count_lower: Array
    count_upper: Array

    @property
    def total_lower(self) -> float:
        """Lower bound on the sum over all sequences."""
        return math.fsum(self.lower)

    @property
    def total_upper(self) -> float:
        """Upper bound on the sum over all sequences."""
        if np.isinf(self.upper).any():
            return math.inf
        return math.nextafter(math.fsum(self.upper), math.inf)


def summed_slack(problem: ChainProblem, w: Array, bins: int, workers: Workers) -> SummedSlack:
    """Bounds for all sequences of a problem at the weights w."""
    n = len(problem.offsets) - 1
    found = SummedSlack(*(np.empty(n) for _ in range(4)))
    out = (found.lower, found.upper, found.count_lower, found.count_upper)
    workers.map(lambda part, scratch: summed_slack_all(problem, part, w, bins, *out), np.arange(n))
    return found


class ChainSums(OnlineSSVM):
    """What a fitted chain says of all labellings at once; :class:`ChainSSVM` has the rest."""

    scheme_: str | None

    def _make(
        self,
        matrix: sp.csr_matrix,
        offsets: Array | None,
        labels: Array,
        stride: int | None = None,
        cache_mb: float = 512.0,
    ) -> ChainProblem:
        raise NotImplementedError

    def summed_slack_bounds(
        self, X: Any, y: Any, lengths: Any = None, bins: int = 1000
    ) -> SummedSlack:
        """Certified bounds on the slack summed over all labellings, for each sequence.

        That is ``Σ_y [l_i(y) − w·Δf_i(y)]₊``, the slack of ``slack="sum"``, with the model's own
        loss and margin rescaling, over the labellings that its scheme allows; and the number of
        labellings that contribute. Counted by dynamic programming over a histogram of scores, at
        any length; see :mod:`hingeline.inference.chain_sums`.

        Parameters
        ----------
        X, y, lengths : as for :meth:`fit`
            With ``class_weight="balanced"`` the weights are those of this y.
        bins : int, default=1000
            At least so many bins. Time grows with it, and the distance of the bounds shrinks
            with its square.

        Returns
        -------
        SummedSlack
            ``lower``, ``upper``, ``count_lower`` and ``count_upper`` per sequence;
            ``total_lower`` and ``total_upper``.
        """
        check_is_fitted(self, "weights_")
        positive("bins", bins, integer=True)
        matrix, offsets = known_tokens(getattr(self, "encoder_", None), X, lengths)
        if matrix.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {matrix.shape[1]} features, but {type(self).__name__} was fitted with "
                f"{self.n_features_in_}."
            )
        index = {label: k for k, label in enumerate(self.classes_.tolist())}
        flat = stack_labels(y, offsets, lengths)
        for label in flat:
            if label not in index:
                raise ValueError(
                    f"y holds {label!r}, which is not among classes_: leave its sequence out."
                )
        labels = number_labels(flat, index)
        choose_scheme(self.scheme_, self.classes_, labels, offsets)  # refuses invalid labels
        problem = self._make(self._with_constant(matrix), offsets, labels, cache_mb=0.0)
        with Workers(effective_n_jobs(self.n_jobs), 0) as workers:
            return summed_slack(problem, self.weights_, int(bins), workers)


class ChainSSVM(ChainWeights, ChainPrediction, ChainSums):
    """Structured SVM for sequences, solved to a certificate.

    The score of labels y for tokens x is
    ``Σ_t x_t·E[y_t] + Σ_t A[y_{t−1}, y_t] + a[y_1] + b[y_T]``;
    training minimises ``½‖w‖² + C Σ_i s_i·max_y [l_i(y) − w·Δf_i(y)]₊`` and its variants.

    Parameters
    ----------
    C : float, default=0.1
        Weight of a sequence's slack; ``float("inf")`` for a hard margin.
    slack : {"max", "squared", "sum", "nu"}, default="max"
        Linear slack; ``½·slack²`` with the square root of the loss; the sum of the hinges of all
        outputs (Balamurugan et al., OP2); or linear with a margin of its own, balanced by ``nu``
        instead of C.
    rescale : {"margin", "slack"}, default="margin"
        Whether the loss is the margin asked for, or multiplies the slack. ``"slack"`` and squared
        slack are exact for plain Hamming loss, at about T times the cost of a decode, and refused
        for other losses.
    violators : "argmax", int or "all", optional
        For ``slack="sum"``: which outputs are looked for at each decode. ``"argmax"`` (default) is
        the published estimator, an integer the k best; both solve the problem restricted to the
        outputs found (``restricted_gap_``). ``"all"`` solves the whole problem, for short
        sequences: the violated outputs are listed.
    nu : float or "auto", optional
        With ``slack="nu"`` instead of C: the mean loss that margin errors may have at most; "auto"
        chooses it on held-out examples. See ``docs/nu.md``.
    loss : "hamming", array, or (scale, loss)
        Summed over tokens: wrong labels, one cost per true label (labels,), or a cost matrix
        (true, predicted), in the order of ``classes_``.
    solver : {"auto", "sdm", "fsmo", "bcfw", "sdcd", "one-slack", "subgradient"}, default="auto"
        ``"auto"`` is ``"sdm"``, and ``"sdcd"`` for ``slack="sum"``; ``"bcfw"`` solves ``"max"``,
        ``"one-slack"`` ``"max"`` and ``"sum"``, ``"subgradient"`` ``"max"`` and ``"nu"``.
    tol, max_iter, max_time, warm_start, n_jobs, random_state, verbose, callbacks, solver_options
        As in :class:`hingeline.MulticlassSSVM`.
    class_weight : dict or "balanced", optional
        Multiplies the loss of tokens whose true label it is.
    scheme : None, "auto", "IO", "IOB1", "IOB2", "IOE1", "IOE2", "IOBES" or "BILOU", default=None
        Tag scheme of the labels: only labellings that it allows are predicted, and compete in
        training. The training labels must be valid. ``"auto"`` finds the scheme, and enforces
        none where labels are not tags or (with a warning) not valid.
    fit_intercept : bool, default=True
        Append a constant feature to every token. Its weights are regularised like any other.
    boundary : bool, default=True
        Weights for the first and the last label of a sequence.
    features : encoder, optional
        What turns tokens into numbers, e.g. :class:`hingeline.features.TokenTemplates`; a clone
        of it is fitted with the model. None: numbers are taken as they are, tables and tuples of
        strings go through ``TokenTemplates()``, dicts, lists of strings and strings through
        ``DictEncoder()``.

    Attributes
    ----------
    classes_ : ndarray
    encoder_ : encoder or None
        The fitted encoder; None where X were numbers.
    feature_names_ : ndarray of str
        Names of the features, x0, x1, … where they have none.
    emission_coef_ : ndarray of shape (labels, features)
        With ``fit_intercept`` the constant feature's weights are ``intercept_``.
    transition_coef_ : ndarray of shape (labels, labels)
        ``[from, to]``.
    start_coef_, end_coef_ : ndarray of shape (labels,)
    scheme_ : str or None
        The tag scheme that predictions keep to.
    weights_ : ndarray
        The flat vector the solver works on.
    primal_objective_, dual_objective_, duality_gap_ : float
        Certificate; the gap is absolute.
    restricted_objective_, restricted_gap_ : float
        For ``slack="sum"`` over the outputs found, where primal and gap of the whole problem are
        ``nan``; ``nan`` otherwise. The dual is a bound on the whole problem in any case.
    n_iter_, converged_, stop_reason_, oracle_exact_, history_
        How the run went.
    nu_, rho_, C_, margin_error_risk_, support_vector_risk_, n_margin_errors_, n_on_margin_,
    n_beyond_margin_, nu_path_
        With ``slack="nu"``: ν, the margin, the equivalent C, the risks between which ν lies
        (Proposition 1 of S. Kim et al., *ν-Structured Support Vector Machines*, 2010, the smallest
        and the largest loss among tied outputs), the sizes of the sets M₋, M₀ and M₊, and what
        ``nu="auto"`` tried.

    Examples
    --------
    >>> import numpy as np
    >>> from hingeline import ChainSSVM
    >>> X = [np.eye(3)[[0, 1, 2]], np.eye(3)[[2, 1]]]
    >>> y = [["a", "b", "a"], ["a", "b"]]
    >>> tagger = ChainSSVM(C=10.0, random_state=0).fit(X, y)
    >>> [list(map(str, labels)) for labels in tagger.predict(X)]
    [['a', 'b', 'a'], ['a', 'b']]
    """

    def __init__(
        self,
        C: float = 0.1,
        *,
        slack: str = "max",
        rescale: str = "margin",
        violators: str | int | None = None,
        nu: float | str | None = None,
        loss: Any = "hamming",
        solver: str = "auto",
        tol: float = 1e-2,
        max_iter: int = 1000,
        max_time: float | None = None,
        class_weight: Any = None,
        scheme: str | None = None,
        fit_intercept: bool = True,
        boundary: bool = True,
        features: Any = None,
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Any = None,
        solver_options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(
            C,
            slack=slack,
            rescale=rescale,
            violators=violators,
            nu=nu,
            loss=loss,
            solver=solver,
            tol=tol,
            max_iter=max_iter,
            max_time=max_time,
            class_weight=class_weight,
            warm_start=warm_start,
            n_jobs=n_jobs,
            random_state=random_state,
            verbose=verbose,
            callbacks=callbacks,
            solver_options=solver_options,
        )
        self.scheme = scheme
        self.fit_intercept = fit_intercept
        self.boundary = boundary
        self.features = features

    def fit(self, X: Any, y: Any, lengths: Any = None, sample_weight: Any = None) -> ChainSSVM:
        """Train on sequences.

        Parameters
        ----------
        X : list of sequences, TokenTable, SparseSequences, or all tokens stacked
            A sequence is an array or sparse matrix (tokens, features), or a list of dicts, of
            strings or of lists or tuples of strings, which are encoded (see ``features``).
            Stacked tokens want ``lengths``.
        y : list of label sequences, or all labels in one sequence
        lengths : array-like of int, optional
            Tokens of each sequence, for stacked X and y.
        sample_weight : array-like, one per sequence, optional
            Multiplies a sequence's slack; 0 drops it.

        Returns
        -------
        self
        """
        self._check_parameters()
        encoder, matrix, offsets = learn_tokens(self.features, X, lengths)
        flat = stack_labels(y, offsets, lengths)
        self.encoder_ = encoder
        self.n_features_in_ = matrix.shape[1]
        self.classes_, index = find_classes(flat)
        labels = number_labels(flat, index)
        self.scheme_ = choose_scheme(self.scheme, self.classes_, labels, offsets)
        weights = check_sample_weight(sample_weight, len(offsets) - 1)
        self._fit_whole(matrix, offsets, labels, weights, self.warm_start)
        return self

    def partial_fit(
        self,
        X: Any,
        y: Any,
        lengths: Any = None,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        passes: int | None = None,
        memory: int | None = None,
    ) -> ChainSSVM:
        """Add sequences to those seen so far and go on from the multipliers reached.

        The solution is that of a fit on all sequences together. Labels that are new are appended
        to ``classes_``; features that are new (of an encoder, or columns behind those known) to
        the others. Data and multipliers are kept in memory for it (not when pickled).

        Parameters
        ----------
        X, y, lengths, sample_weight : as for :meth:`fit`
        classes : sequence, optional
            Labels that will come; the first call sorts them, later ones append them.
        passes : int, optional
            Visit only the new sequences, so many times, instead of converging on all: a batch
            then costs what it is, whatever was seen before. ``weights_`` is the average of the
            iterates, without a certificate.
        memory : int, optional
            Keep at most so many sequences: those without mass are forgotten first (which changes
            no weight), the oldest first. A certificate is of the problem of those kept.

        Returns
        -------
        self
        """
        self._check_parameters()
        self._check_online(passes, memory)
        first = not self._remembers()
        with self._all_or_nothing():
            if first:
                encoder, matrix, offsets = learn_tokens(self.features, X, lengths)
            else:
                matrix, offsets = more_tokens(getattr(self, "encoder_", None), X, lengths)
                check_columns(matrix.shape[1], self.n_features_in_, type(self).__name__)
            flat = stack_labels(y, offsets, lengths)
            if first:
                self.encoder_ = encoder
                self.classes_, _ = find_classes(flat if classes is None else plain_labels(classes))
            wanted = flat if classes is None else [*plain_labels(classes), *flat]
            self.classes_ = with_new_classes(self.classes_, wanted)
            self.n_features_in_ = matrix.shape[1]
            index = {label: k for k, label in enumerate(self.classes_.tolist())}
            labels = number_labels(flat, index)
            if first or self.scheme != "auto":
                scheme = choose_scheme(self.scheme, self.classes_, labels, offsets)
            else:  # multipliers of valid outputs stay feasible when the scheme is given up
                scheme = keep_scheme(self.scheme_, self.classes_, labels, offsets)
            tighter = not first and scheme is not None and scheme != self.scheme_
            if tighter:  # old outputs may be invalid now
                old = self._whole().compiled.problem
                choose_scheme(scheme, self.classes_, old.labels, old.offsets)
            self.scheme_ = scheme
            weights = check_sample_weight(sample_weight, len(offsets) - 1)
            self._learn(matrix, offsets, labels, weights, passes, memory, tighter)
        return self

    _kind = "chain"

    def _compile(self, problem: Any) -> Any:
        compiled = chain.compile_problem(problem)
        if self.slack == "sum" and self.rescale == "margin":
            compiled = replace(compiled, summed_slack=summed_slack_above(problem))
        return compiled

    def _make(
        self,
        matrix: sp.csr_matrix,
        offsets: Array | None,
        labels: Array,
        stride: int | None = None,
        cache_mb: float = 512.0,
    ) -> chain.ChainProblem:
        assert offsets is not None
        n_labels = len(self.classes_)
        cost = check_loss(self.loss, "hamming", n_labels, vector=True)
        cost = check_class_weight(self.class_weight, list(self.classes_), labels)[:, None] * cost
        wrong = cost[~np.eye(n_labels, dtype=bool)]
        self._refuse_without_oracle(
            bool((wrong == wrong[:1]).all()), "chains whose loss is not plain Hamming loss"
        )
        self._refuse_violators(True, "a chain")
        problem = chain.make_problem(
            matrix.indptr,
            matrix.indices,
            matrix.data,
            offsets,
            labels,
            matrix.shape[1],
            cost,
            self.boundary,
            cache_mb,
            stride=stride,
        )
        return chain.constrain(problem, moves_of(self.classes_, self.scheme_))
