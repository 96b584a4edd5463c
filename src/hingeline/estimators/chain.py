"""Sequence labelling: one label per token, with transitions between neighbours.

By a large margin, or, as the baseline that this is compared with, by conditional random fields.
"""

import math
from dataclasses import KW_ONLY, dataclass, replace
from itertools import chain as in_a_row
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from hingeline import _checks as checks
from hingeline._checks import Array
from hingeline._jit import working_time
from hingeline.core.loop import Reporter
from hingeline.core.primitives import Layout, Workers, pad_row
from hingeline.estimators import allowed as masks
from hingeline.estimators import base
from hingeline.estimators.base import BaseModel, BaseSSVM, Streams, share_docs
from hingeline.features import input as reading
from hingeline.features import tables
from hingeline.features.tables import Labels, TokenTable, scale_columns
from hingeline.inference.chain import against_rest
from hingeline.structures import chain, chain_batch
from hingeline.structures.chain import ChainProblem


@dataclass(eq=False, repr=False, kw_only=True)
class TokenModel:
    """What chains and segments share: tokens as rows of numbers, and weights of moves.

    Parameters
    ----------
    boundary : bool, default=True; weights for the first and the last label of a sequence
    scale : bool, optional
        Standardise the columns of dense numbers (mean 0, deviation 1), and divide those of sparse
        ones by their largest absolute value; weights are then those of the scaled features.
        None: if C is a number, scale nothing. Otherwise scale dense columns far from the size of an
        indicator (a root mean square below ½ or above 2, but not values from 0 to about 1); those
        that are mostly 0, such as pixels, count as sparse. If all deviations differ by a factor of
        at most 5, all are divided by one number. Numbers in dicts likewise, but rare features only
        if one is above 10. Large columns of sparse matrices are divided by their root mean square.
    features : encoder, optional
        Turns tokens into numbers, e.g. :class:`hingeline.features.TokenTemplates`; a clone of it
        is fitted with the model. None: numbers are used as they are, words (strings, tables, and
        tuples or lists of columns) are encoded by ``TokenTemplates()``, and dicts, sets and lists
        of features by ``DictEncoder()``. Lists of strings count as features if each has one with a
        name (``"suffix=ing"``), or if some lists are longer than others.

    Attributes
    ----------
    classes_ : ndarray
    encoder_ : encoder or None; the fitted encoder; None if X held numbers
    feature_means_, feature_scales_ : ndarray of shape (features,); if columns were scaled
    feature_names_ : ndarray of str; names of the features; x0, x1, … if they have none
    feature_names_in_ : ndarray of str; the columns of frames of numbers, if X held these
    transition_coef_ : ndarray of shape (labels, labels); ``[from, to]``
    start_coef_, end_coef_ : ndarray of shape (labels,)
    """

    fit_intercept: bool = True
    boundary: bool = True
    features: Any = None
    scale: bool | None = None

    transition_coef_ = property(lambda self: self._view("transition"))  # [from, to], a view
    start_coef_ = property(lambda self: self._view("start")[0])  # zero without ``boundary``
    end_coef_ = property(lambda self: self._view("end")[0])

    @property
    def feature_names_(self: Any) -> Array:
        """Names of the features, in the order of their columns."""
        check_is_fitted(self, "weights_")
        if hasattr(encoder := self.encoder_, "get_feature_names_out"):
            return np.asarray(encoder.get_feature_names_out(), dtype=object)[: self.n_features_in_]
        numbered = [f"x{k}" for k in range(self.n_features_in_)]
        return np.array(getattr(self, "feature_names_in_", numbered), dtype=object)

    def _learn_tokens(
        self: Any, X: Any, lengths: Any, sample_weight: Any = None
    ) -> tuple[Any, ...]:
        """Tokens of the first sequences as rows, where sequences begin, and their weights."""
        self.encoder_, matrix, offsets = reading.learn_tokens(self.features, X, lengths)
        self._learn_names(X)
        tables.refuse_scale(self.encoder_, self.scale)
        weights = checks.check_sample_weight(sample_weight, len(offsets) - 1)
        dense = self.encoder_ is None and tables.is_dense(X) and self._wants_scale(True)
        each = np.repeat(weights, np.diff(offsets))
        rows = scale_columns(self, matrix.toarray() if dense else matrix, each)
        return checks.as_csr(rows), offsets, weights

    def _learn_names(self: Any, X: Any) -> None:
        """Keep the columns of frames of numbers; other input has no names."""
        vars(self).pop("feature_names_in_", None)
        if self.encoder_ is None and (names := reading.frame_names(X)) is not None:
            self.feature_names_in_ = names

    def _check_names(self: Any, X: Any) -> None:
        """Refuse frames whose columns are not those of the training, or in another order."""
        names, known = reading.frame_names(X), getattr(self, "feature_names_in_", None)
        if names is not None and known is not None and [*names[: len(known)]] != [*known]:
            now, fitted = f"X has the columns {', '.join(names)}", ", ".join(known)
            what = f"{now}, but {type(self).__name__} was fitted with {fitted}"
            raise ValueError(f"{what}: pass these, in this order.")

    def _read_tokens(self: Any, X: Any, lengths: Any) -> tuple[sp.csr_matrix, Array]:
        """Tokens of new sequences as rows, and where sequences begin."""
        check_is_fitted(self, "weights_")
        self._check_names(X)
        if self.features is None:
            reading.refuse_words(self.encoder_, X, lengths)
        matrix, offsets = reading.known_tokens(self.encoder_, X, lengths)
        if self.n_features_in_ < matrix.shape[1] <= getattr(self.encoder_, "n_features_out_", 0):
            matrix = matrix[:, : self.n_features_in_]  # another model taught the encoder more
        what = f"X has {matrix.shape[1]} features, but {type(self).__name__} was fitted with"
        what += f" {self.n_features_in_}{reading.name_reader(self.encoder_)}."
        checks.require(matrix.shape[1] == self.n_features_in_, what)
        return checks.as_csr(scale_columns(self, matrix)), offsets


@dataclass(eq=False, repr=False, kw_only=True)
class ChainModel:
    """What a fitted chain can say of new sequences, whatever it was trained by.

    Parameters
    ----------
    scheme : "auto", "none", "IO", "IOB1", "IOB2", "IOE1", "IOE2", "IOBES", "BILOU", optional
        Tag scheme of the labels: training and prediction consider only labellings that it allows.
        The training labels must be valid. ``"auto"`` finds the scheme, and enforces none if the
        labels are not tags or (with a warning) not valid. None: like ``"none"``, but predictions
        of ``ChainSSVM`` without ``allowed`` obey the scheme that 99 % of the training tags obey.

    Attributes
    ----------
    emission_coef_ : ndarray of shape (labels, features)
        With ``fit_intercept`` the constant feature's weights are ``intercept_``.
    scheme_ : str or None; the tag scheme that predictions keep to
    """

    scheme: str | None = None
    n_jobs: int | None = None

    def _make_layout(self: Any, n_features: int, n_labels: int, stride: Any = None) -> Layout:
        blocks = {"constant": bool(self.fit_intercept), "boundary": bool(self.boundary)}
        return chain.layout(n_features, n_labels, **blocks, stride=stride)

    emission_coef_ = property(lambda self: self._view("emission").T)  # (labels, features), a view
    intercept_ = property(lambda self: self._view("intercept")[0])  # zero without a constant

    def _read(self: Any, X: Any, y: Any, lengths: Any, sample_weight: Any) -> tuple[Any, ...]:
        """Rows, where sequences begin, labels, whose classes are learnt, and weights."""
        with Reporter(type(self).__name__, getattr(self, "verbose", None)).during("encoding"):
            matrix, offsets, weights = self._learn_tokens(X, lengths, sample_weight)
        flat = reading.stack_labels(y, offsets, lengths)
        if self.encoder_ is not None:
            tokens = X if lengths is not None else in_a_row.from_iterable(X)
            pairs = zip(tokens, flat, strict=False)  # to the first that differs
            if all(type(x) is tuple and x[-1:] == (label,) for x, label in pairs):
                what = "the last column of X holds the labels that are to be learnt: leave it out"
                how = f", X.select({list(X.names[:-1])})" if isinstance(X, TokenTable) else ""
                checks.warn(f"{what}{how}.")
        self.n_features_in_ = matrix.shape[1]
        self.classes_, labels = reading.find_classes(flat, offsets)
        known = self.classes_, labels, offsets
        self.scheme_ = self.scheme and masks.choose_scheme(self.scheme, *known)
        return matrix, offsets, labels, weights

    def _pose(
        self: Any, given: Any, cost: Array, cache_mb: float, allowed: Any = None, stride: Any = None
    ) -> ChainProblem:
        """The problem of rows, offsets and labels, with everything that is forbidden in it."""
        matrix, offsets, labels = given
        rows = matrix.indptr, matrix.indices, matrix.data, offsets, labels, matrix.shape[1]
        problem = chain.make_problem(*rows, cost, self.boundary, cache_mb, stride)
        # A scheme that was not asked for is for predictions, whose costs are 0.
        scheme = self.scheme_ if self.scheme or not (cost.any() or allowed is not None) else None
        if scheme is None and allowed is None:
            return problem
        table = None if allowed is None else masks.allowed_table(allowed, self.classes_, offsets)
        return chain.constrain(problem, masks.moves_of(self.classes_, scheme), table)

    def _prepare(self: Any, X: Any, lengths: Any, allowed: Any) -> ChainProblem:
        """New sequences as the kernels of prediction want them."""
        matrix, offsets = self._read_tokens(X, lengths)
        m = len(self.classes_)
        examples = self._with_constant(matrix), offsets, np.zeros(matrix.shape[0], dtype=np.int32)
        return self._pose(examples, np.zeros((m, m)), 0.0, allowed)

    def _allows(self: Any, labels: Array, offsets: Array) -> bool:
        """Whether labellings keep to the scheme, where there is one."""
        asked = self.scheme and self.scheme_
        return not asked or masks.first_invalid(asked, self.classes_, labels, offsets) is None

    def _refuse_infeasible(self, problem: ChainProblem, infeasible: Array) -> None:
        for i in np.flatnonzero(infeasible):
            raise ValueError(masks.explain_infeasible(problem, int(i), self.scheme_))

    def predict(self, X: Any, lengths: Any = None, allowed: Any = None) -> list[Array]:
        """Labels of every sequence.

        Parameters
        ----------
        X, lengths : as for ``fit``
        allowed : list, optional
            Labels that are allowed, one entry per sequence: None (anything), a boolean array
            (tokens, labels), a list with None, a label or several labels per token, or a dict
            ``{position: label or labels}``. Also one boolean array (all tokens, labels).
        """
        check_is_fitted(self, "weights_")
        again, nothing = (lambda X, allowed: self.predict(X, None, allowed)), self.classes_[:0]
        if (found := tables.skip_empty(X, lengths, again, nothing, allowed=allowed)) is not None:
            return found
        problem = self._prepare(X, lengths, allowed)
        labels = self.classes_[self._decode(problem)]
        found = [labels[lo:hi] for lo, hi in pairwise(problem.offsets.tolist())]
        return found if isinstance(X, np.ndarray) and X.ndim == 3 else Labels(found)

    def _decode(self: Any, problem: ChainProblem) -> Array:
        numbers = np.empty(problem.offsets[-1], dtype=np.int32)
        values = np.empty(len(problem.offsets) - 1)
        self._over(chain_batch.decode_all, problem, numbers, values)
        self._refuse_infeasible(problem, values == -np.inf)
        return numbers

    def predict_nbest(
        self: Any, X: Any, n: int, lengths: Any = None, allowed: Any = None
    ) -> list[list[tuple[Array, float]]]:
        """The exact n best labellings of every sequence, for input as in :meth:`predict`.

        A list of (labels, score) per sequence, best first; the first is what :meth:`predict` gives.
        A sequence with fewer labellings gives all of them. Scores are not probabilities.
        """
        problem = self._prepare(X, lengths, allowed)
        best = list(self._n_best(chain_batch.n_best_all, problem, n))
        self._refuse_infeasible(problem, np.array([not scores for _, scores in best]))
        return [list(zip(self.classes_[rows], scores, strict=True)) for rows, scores in best]

    def predict_max_marginals(
        self, X: Any, lengths: Any = None, allowed: Any = None
    ) -> list[Array]:
        """For each token and label, the score of the best labelling with that label there.

        Input is as in :meth:`predict`; one array (tokens, labels) per sequence, ``-inf`` for a
        label that is impossible there.
        """
        problem = self._prepare(X, lengths, allowed)
        return np.split(self._max_marginals(problem), problem.offsets[1:-1])

    def _max_marginals(self: Any, problem: ChainProblem) -> Array:
        out = np.empty((problem.offsets[-1], len(self.classes_)))
        self._over(chain_batch.max_marginals_all, problem, out)
        self._refuse_infeasible(problem, out[problem.offsets[:-1]].max(axis=1) == -np.inf)
        return out

    def decision_function(self, X: Any, lengths: Any = None, allowed: Any = None) -> list[Array]:
        """Margin of each label of each token against the best alternative.

        The score of the best labelling with that label there minus the score of the best one with
        another label there. The predicted label has the largest margin, which is not negative.
        Input is as in :meth:`predict`; one array (tokens, labels) per sequence, ``-inf`` for a
        label that is impossible there, ``inf`` for the only possible one.
        """
        problem = self._prepare(X, lengths, allowed)
        table = self._max_marginals(problem)
        against_rest(table)
        return np.split(table, problem.offsets[1:-1])

    def predict_margin(self, X: Any, lengths: Any = None, allowed: Any = None) -> Array:
        """Score of the best labelling minus that of the second best, for each sequence.

        Input is as in :meth:`predict`; ``inf`` where there is only one labelling.
        """
        # The second-best labelling has another label than the best one somewhere.
        margins = self.decision_function(X, lengths, allowed)
        return np.array([table.max(axis=1).min() for table in margins])

    def score(self, X: Any, y: Any, lengths: Any = None, sample_weight: Any = None) -> float:
        """Share of tokens labelled correctly; ``sample_weight`` has one number per sequence."""
        predicted = self.predict(X, lengths)
        offsets = np.concatenate([[0], np.cumsum([len(p) for p in predicted])])
        flat = reading.stack_labels(y, offsets, lengths)
        best = np.concatenate(predicted).tolist()
        right = np.array([a == b for a, b in zip(best, flat, strict=True)])
        weights = checks.check_sample_weight(sample_weight, len(predicted))
        return float(np.average(right, weights=np.repeat(weights, np.diff(offsets))))


class SummedSlack(NamedTuple):
    """Bounds on ``Σ_y [l_i(y) − w·Δf_i(y)]₊``, a sum over all labellings, for each sequence."""

    lower: Array
    upper: Array  # inf where more than about 1e290 labellings have a positive term
    count_lower: Array  # on the number of these labellings; beyond 2⁵² it is rounded
    count_upper: Array

    @property
    def total_lower(self) -> float:
        """Lower bound on the sum over all sequences."""
        return math.fsum(self.lower)

    @property
    def total_upper(self) -> float:
        """Upper bound on the sum over all sequences."""
        return math.nextafter(math.fsum(self.upper), math.inf)


@share_docs
@dataclass(eq=False, repr=False)
class ChainSSVM(ChainModel, TokenModel, Streams, BaseSSVM, BaseModel):
    """Structured SVM for sequences, solved to a certificate.

    The score of labels y for tokens x is
    ``Σ_t x_t·E[y_t] + Σ_t A[y_{t−1}, y_t] + a[y_1] + b[y_T]``;
    training minimises ``½‖w‖² + C Σ_i s_i·max_y [l_i(y) − w·Δf_i(y)]₊`` and its variants.

    Parameters
    ----------
    C : float, "scale" or "auto", default="scale"
        Weight of a sequence's slack; ``float("inf")`` for a hard margin. ``"scale"`` is 3 over
        the mean squared norm of a token's features, the constant included: 0.13 for the default
        templates, with some 22 features of value 1; times the mean loss of a wrong label, which is
        1 by default. ``"auto"`` searches around this value for the smallest loss on a fifth of the
        sequences, then fits all of them. ``C_`` is the value used.
    rescale : {"margin", "slack"}, default="margin"
        Whether the loss is the required margin, or multiplies the slack. ``"slack"`` and squared
        slack are exact for plain Hamming loss, at about T times the cost of a decode; with other
        losses they are refused.
    violators : "argmax", int or "all", optional
        For ``slack="sum"``: the outputs that each decode looks for. ``"argmax"`` (default) is the
        published estimator; an integer k finds the k best. Both solve the problem restricted to
        the outputs found (``restricted_gap_``). ``"all"`` lists all violated outputs and solves
        the whole problem, for short sequences.
    loss : "hamming", "zero_one", array, Taxonomy, or (scale, loss)
        Summed over tokens: 1 for a wrong label, one cost per true label (labels,), a cost matrix
        (true, predicted) in the order of ``classes_``, or a :class:`hingeline.Taxonomy`.
        ``"zero_one"`` is 1 for every labelling but the true one: (6) and (7) of the FSMO paper,
        exact for every rescaling and every ``slack`` but ``"sum"``.
    class_weight : dict or "balanced", optional; factors on the loss of tokens, by true label

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

    _probabilities = "CalibratedChain(model).fit(X_dev, y_dev) gives probabilities"
    _probabilities += " (hingeline.evaluation.calibration)"

    C: float | str = "scale"
    _: KW_ONLY
    rescale: str = "margin"
    violators: str | int | None = None
    loss: Any = "hamming"
    class_weight: Any = None

    @property
    def _zero_one(self) -> bool:
        """Whether labellings are right or wrong as a whole."""
        loss = self.loss[1] if isinstance(self.loss, tuple) and len(self.loss) == 2 else self.loss
        return isinstance(loss, str) and loss == "zero_one"

    def _check_values(self) -> None:
        super()._check_values()
        if isinstance(self.loss, str):
            checks.one_of("loss", self.loss, ("hamming", "zero_one"))
        if self._zero_one and (self.slack == "sum" or self.class_weight is not None):
            given = "slack='sum'" if self.slack == "sum" else "class_weight"
            raise ValueError(f"{given} does not work with loss='zero_one': use loss='hamming'.")

    def fit(self, X: Any, y: Any, lengths: Any = None, sample_weight: Any = None) -> Self:
        """Train on sequences.

        Parameters
        ----------
        X : list of sequences, TokenTable, SparseSequences, or all tokens stacked
            A sequence is an array or sparse matrix (tokens, features), or a list of dicts, of
            strings or of lists or tuples of strings, which are encoded (see ``features``).
            Stacked tokens need ``lengths``.
        y : list of label sequences, or all labels in one sequence
        lengths : array-like of int, optional; tokens of each sequence, for stacked X and y
        sample_weight : array-like, one per sequence, optional; multiplies its slack, 0 drops it
        """
        self.check_parameters()
        matrix, offsets, labels, weights = self._read(X, y, lengths, sample_weight)
        if self.scheme is None and any(str(label)[1:2] == "-" for label in self.classes_):
            # Before the fit: callbacks that predict see the labels that users will see.
            self.scheme_ = masks.find_scheme(self.classes_, labels, offsets)
        self._fit_problem(self._make(self._with_constant(matrix), offsets, labels), weights)
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
    ) -> Self:
        """Add sequences to those seen so far and continue from the current multipliers.

        The solution is that of a fit on all sequences together. New labels are appended to
        ``classes_``, and new features (of an encoder, or columns after the known ones) to the
        others. For this, data and multipliers are kept in memory (but not pickled).

        Parameters
        ----------
        X, y, lengths, sample_weight : as for :meth:`fit`
        classes : sequence, optional
            Labels that will come later; the first call sorts them, other calls append them.
        passes : int, optional
            Visit the new sequences this many times, and those of the previous call once more,
            instead of converging on all. The cost does not depend on how much was seen before.
            ``weights_`` is the average of the iterates, without a certificate.
        memory : int, optional
            Keep at most this many sequences: first those without mass are forgotten (which changes
            no weight), then the oldest. The certificate is for the sequences kept.
        """
        self.check_parameters()
        with self._open_stream().adding(passes, memory) as stream:
            first = not stream
            with Reporter(type(self).__name__, self.verbose).during("encoding"):
                if first:
                    matrix, offsets, _ = self._learn_tokens(X, lengths, sample_weight)
                else:
                    self._check_names(X)
                    matrix, offsets = reading.known_tokens(self.encoder_, X, lengths, grow=True)
                    now, before, name = matrix.shape[1], self.n_features_in_, type(self).__name__
                    what = f"X has {now} features, but {name} was fitted with {before}"
                    what += reading.name_reader(self.encoder_) or ": put new ones after these"
                    checks.require(now >= before, f"{what}.")
                    matrix = checks.as_csr(scale_columns(self, matrix))
                    if now > before and hasattr(self, "feature_names_in_"):
                        self._learn_names(X)
            flat = reading.stack_labels(y, offsets, lengths)
            known = [] if classes is None else reading.plain_labels(classes)
            if first:
                self.classes_, _ = reading.find_classes(known or flat)
            stream.add_classes([*known, *flat])
            self.n_features_in_ = matrix.shape[1]
            labels = reading.number_labels(flat, self.classes_)
            # Multipliers of valid outputs stay feasible when the scheme is given up.
            found = "" if first else self.scheme_
            scheme = masks.choose_scheme(self.scheme, self.classes_, labels, offsets, found)
            tighter = not first and scheme is not None and scheme != self.scheme_
            if tighter:  # old outputs may be invalid now
                old = stream.merge().compiled.problem
                masks.choose_scheme(scheme, self.classes_, old.labels, old.offsets)
            self.scheme_ = scheme
            weights = checks.check_sample_weight(sample_weight, len(offsets) - 1)
            stream.learn((matrix, offsets, labels), weights, passes, memory, tighter)
        return self

    def summed_slack_bounds(
        self, X: Any, y: Any, lengths: Any = None, bins: int = 1000
    ) -> SummedSlack:
        """Certified bounds on the slack summed over all labellings, for each sequence.

        The sum is ``Σ_y [l_i(y) − w·Δf_i(y)]₊``, the slack of ``slack="sum"``, with the model's own
        loss and margin rescaling, over the labellings that its scheme allows; the number of
        labellings that contribute is bounded too. Computed by dynamic programming over a histogram
        of scores, for any length; see :mod:`hingeline.inference.chain_sums`.

        Input is as in :meth:`fit`; with ``class_weight="balanced"`` the weights are those of this
        y. Time grows with ``bins``; the distance between the bounds shrinks with its square.
        """
        checks.positive("bins", bins, integer=True)
        if self._zero_one:
            raise ValueError("summed_slack_bounds does not work with loss='zero_one'.")
        matrix, offsets = self._read_tokens(X, lengths)
        flat = reading.stack_labels(y, offsets, lengths)
        labels = reading.number_labels(flat, self.classes_, "leave its sequence out")
        known = self.classes_, labels, offsets
        masks.choose_scheme(self.scheme and self.scheme_, *known)  # refuses invalid labels
        problem = self._make(self._with_constant(matrix), offsets, labels, cache_mb=0.0)
        found = np.empty((len(offsets) - 1, 4))
        self._over(chain_batch.summed_slack_all, problem, int(bins), found)
        return SummedSlack(*found.T)

    def _roomy_stride(self, n_labels: int) -> int:
        return pad_row(n_labels + max(4, n_labels // 8))  # with an eighth to spare

    def _compile(self, problem: Any) -> Any:
        compiled = chain.compile_problem(problem)
        if self.slack == "sum" and self.rescale == "margin":
            compiled = replace(compiled, summed_slack=chain_batch.summed_slack_above(problem))
        return compiled

    def _make(
        self, matrix: Any, offsets: Any, labels: Array, stride: Any = None, cache_mb: float = 512.0
    ) -> ChainProblem:
        cost = checks.weigh_costs(self, labels, whole="zero_one")
        wrong = cost[~np.eye(len(cost), dtype=bool)]
        plain = bool((wrong == wrong[:1]).all())
        self._refuse_without_oracle(plain, "chains whose loss is not plain Hamming loss")
        self._refuse_violators(True, "a chain")
        return self._pose((matrix, offsets, labels), cost, cache_mb, stride=stride)


@share_docs
@dataclass(eq=False, repr=False)
class ChainCRF(ChainModel, TokenModel, BaseModel):
    """Linear-chain conditional random field, trained to a certificate.

    ``p(y | x) = exp(w·f(x, y))/Z(x)`` with the score of :class:`hingeline.ChainSSVM`,
    ``w·f(x, y) = Σ_t x_t·E[y_t] + Σ_t A[y_{t−1}, y_t] + a[y_1] + b[y_T]``. Training minimises
    ``½‖w‖² + C Σ_i s_i·(log Z(x_i) − w·f(x_i, y_i))`` by L-BFGS. It is a baseline for large-margin
    training: features, labels and predictions have the same form.

    Parameters
    ----------
    C : float, default=1.0
        Weight of a sequence's negative log-likelihood. CRFsuite's ``c2`` is ``C = 1/(2·c2)``: its
        default of 1 is ``C=0.5``. CRFsuite has no constant feature and no weights for the first and
        last label (``fit_intercept=False, boundary=False``); like this class, it uses all weights
        with ``feature.possible_states`` and ``feature.possible_transitions``.
    tol : float, default=1e-3
        Certified relative gap at which training stops. The duality gap is ``½‖∇P(w)‖²``, which
        is usually far above the true distance to the optimum.
    max_iter : int, default=1000; the largest number of passes over the data

    Attributes
    ----------
    n_iter_, converged_, stop_reason_, history_
        How the run went; a pass is one evaluation of objective and gradient.

    Examples
    --------
    >>> import numpy as np
    >>> from hingeline import ChainCRF
    >>> X = [np.eye(3)[[0, 1, 2]], np.eye(3)[[2, 1]]]
    >>> y = [["a", "b", "a"], ["a", "b"]]
    >>> tagger = ChainCRF(C=10.0).fit(X, y)
    >>> tagger.predict_marginals(X)[1].round(2)
    array([[0.98, 0.02],
           [0.05, 0.95]])
    """

    _probabilities = "predict_marginals gives probabilities"

    C: float = 1.0
    _: KW_ONLY
    tol: float = 1e-3
    max_iter: int = 1000

    def check_parameters(self) -> None:
        """Raise an error for parameters that ``fit`` would refuse for any data."""
        checks.positive("C", self.C)
        checks.positive("tol", self.tol)
        checks.positive("max_iter", self.max_iter, integer=True)
        checks.check_switches(self)
        checks.effective_n_jobs(self.n_jobs)

    def fit(self, X: Any, y: Any, lengths: Any = None, sample_weight: Any = None) -> Self:
        """Train on sequences, given as for :meth:`hingeline.ChainSSVM.fit`.

        ``sample_weight`` multiplies a sequence's log-likelihood; 0 drops it.
        """
        from hingeline.solvers.crf import ChainExpectations, minimise_log_loss, observed_features

        began = working_time()
        self.check_parameters()
        matrix, offsets, labels, weights = self._read(X, y, lengths, sample_weight)
        weights = float(self.C) * weights
        problem = self._make(self._with_constant(matrix), offsets, labels)
        base.refuse_overflow(problem, float(weights.sum()))
        limits: Any = {"tol": float(self.tol), "max_iter": int(self.max_iter), "started": began}
        with Workers(checks.effective_n_jobs(self.n_jobs), 0) as workers:
            observed = observed_features(problem, weights)
            known = ChainExpectations(problem, workers), weights, observed
            result = minimise_log_loss(*known, **limits, name=type(self).__name__)
        self._store(result)
        return self

    def _make(self, matrix: sp.csr_matrix, offsets: Array, labels: Array) -> ChainProblem:
        no_cost = np.zeros((len(self.classes_), len(self.classes_)))
        return self._pose((matrix, offsets, labels), no_cost, 0.0)

    def predict_marginals(self, X: Any, lengths: Any = None, allowed: Any = None) -> list[Array]:
        """Probability of every label at every token, for input as in :meth:`predict`.

        One array (tokens, labels) per sequence, in the order of ``classes_``; rows sum to 1.
        Labellings that are not allowed have probability 0.
        """
        from hingeline.solvers.crf import ChainExpectations

        problem = self._prepare(X, lengths, allowed)
        with Workers(checks.effective_n_jobs(self.n_jobs), 0) as workers:
            log_z, nodes, _ = ChainExpectations(problem, workers).marginals(self.weights_)
        self._refuse_infeasible(problem, log_z == -np.inf)
        return np.split(nodes[:, : len(self.classes_)], problem.offsets[1:-1])
