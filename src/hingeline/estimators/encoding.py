"""From what people have, text, dicts or numbers, to stacked tokens."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from hingeline.data.tokens import TokenTable
from hingeline.estimators.sequences import check_lengths, stack_sequences
from hingeline.features.dicts import DictEncoder
from hingeline.features.sequences import SparseSequences
from hingeline.features.templates import TokenTemplates

Array = np.ndarray[Any, Any]


def learn_tokens(features: Any, X: Any, lengths: Any) -> tuple[Any, sp.csr_matrix, Array]:
    """The fitted encoder (None for numbers), all tokens as CSR rows, the offsets of sequences."""
    if features is not None:
        if isinstance(features, type) or not (
            hasattr(features, "fit_transform") and hasattr(features, "transform")
        ):
            raise TypeError(
                f"features must be an encoder such as TokenTemplates(), got {features!r}."
            )
        encoder = clone(features)
    else:
        encoder = _suited(X, lengths)
    if encoder is None:
        return None, *stack_sequences(X, lengths)
    encoded = encoder.fit_transform(_sentences(X, lengths))
    return encoder, *stack_sequences(encoded)


def known_tokens(encoder: Any, X: Any, lengths: Any) -> tuple[sp.csr_matrix, Array]:
    """Tokens as CSR rows by an encoder fitted before; features that are ready are taken as such."""
    if encoder is None:
        return stack_sequences(X, lengths)
    if _is_ready(encoder, X, lengths):
        return stack_sequences(X, lengths)
    return stack_sequences(encoder.transform(_sentences(X, lengths)))


def _is_ready(encoder: Any, X: Any, lengths: Any) -> bool:
    """Whether X are features already, not what the encoder reads."""
    if not isinstance(encoder, (DictEncoder, TokenTemplates)) or isinstance(X, TokenTable):
        return False
    if _suited(X, lengths) is not None:
        return False
    if isinstance(X, SparseSequences) or sp.issparse(X) or isinstance(X, np.ndarray):
        return True
    return bool(len(X)) and (sp.issparse(X[0]) or isinstance(X[0], np.ndarray))


def more_tokens(encoder: Any, X: Any, lengths: Any) -> tuple[sp.csr_matrix, Array]:
    """Tokens as CSR rows by an encoder that learns what is new, where it can."""
    if not hasattr(encoder, "partial_fit_transform") or _is_ready(encoder, X, lengths):
        return known_tokens(encoder, X, lengths)
    return stack_sequences(encoder.partial_fit_transform(_sentences(X, lengths)))


def _suited(X: Any, lengths: Any) -> Any:
    """The encoder for X, from its first token that tells; None for numbers.

    Tuples of strings are rows of columns, as in a table; lists and sets of strings are attributes.
    """
    if isinstance(X, TokenTable):
        return TokenTemplates()
    if not isinstance(X, (list, tuple, np.ndarray)):
        return None
    if isinstance(X, np.ndarray) and X.dtype.kind not in "OU":
        return None
    for sentence in [X] if lengths is not None else X:
        if sp.issparse(sentence) or not hasattr(sentence, "__iter__"):
            return None
        if isinstance(sentence, (str, bytes, Mapping)):
            return None  # not a list of tokens; the check of sequences says so
        for token in sentence:
            if isinstance(token, (str, bytes, dict, set, frozenset)):
                return DictEncoder()
            if not isinstance(token, (list, tuple)):
                return None
            if len(token):
                text = isinstance(token[0], (str, bytes))
                if text and isinstance(token, tuple):
                    return TokenTemplates()
                return DictEncoder() if text else None
    return None


def _sentences(X: Any, lengths: Any) -> Any:
    """Stacked tokens cut into sequences."""
    if lengths is None:
        return X
    if isinstance(X, (TokenTable, SparseSequences)):
        raise ValueError("X is cut into sequences already: leave lengths out.")
    offsets = check_lengths(lengths, X.shape[0] if hasattr(X, "shape") else len(X))
    return [X[lo:hi] for lo, hi in pairwise(offsets.tolist())]
