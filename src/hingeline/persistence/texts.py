"""Vocabularies as arrays: UTF-8 bytes, and the position where each text ends."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def pack_texts(texts: Sequence[str]) -> tuple[Array, Array]:
    """Texts as one array of UTF-8 bytes and the position where each ends.

    Parameters
    ----------
    texts : sequence of str

    Returns
    -------
    content : uint8 ndarray
    ends : int64 ndarray, one per text
    """
    # Lone surrogates, which undecodable file names and bytes turn into, are kept.
    parts = [text.encode("utf-8", "surrogatepass") for text in texts]
    ends = np.cumsum(np.fromiter(map(len, parts), dtype=np.int64, count=len(parts)))
    return np.frombuffer(b"".join(parts), dtype=np.uint8), ends


def unpack_texts(content: Array, ends: Array) -> list[str]:
    """The texts that :func:`pack_texts` packed; a ``ValueError`` where they cannot be.

    Parameters
    ----------
    content : uint8 ndarray
    ends : int64 ndarray
    """
    fits = content.ndim == ends.ndim == 1 and content.dtype == np.uint8 and ends.dtype == np.int64
    # Bounds before differences, which could wrap around.
    inside = fits and ends.min(initial=0) >= 0 and ends.max(initial=0) == len(content)
    if not inside or (np.diff(ends) < 0).any():
        raise ValueError("the ends of packed texts do not fit their bytes")
    cuts = [0, *ends.tolist()]
    if content.size and content.max() < 128:  # bytes are characters: cut one text
        whole = content.tobytes().decode("ascii")
        return [whole[lo:hi] for lo, hi in pairwise(cuts)]
    joined = content.tobytes()
    return [joined[lo:hi].decode("utf-8", "surrogatepass") for lo, hi in pairwise(cuts)]
