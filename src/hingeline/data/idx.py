"""IDX arrays, the format of MNIST."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hingeline.data.text import Source, open_text

Array = np.ndarray[Any, Any]

#: Third byte of the file -> type of the elements, big-endian.
_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_MAX_AXES = 8


def read_idx(source: Source) -> Array:
    """Read an IDX array.

    Memory is taken as bytes arrive: a header that declares more than the file has allocates
    nothing.

    Parameters
    ----------
    source : path, "-", file object or TextSource
        Gzipped or not.

    Returns
    -------
    ndarray
        In the byte order of the machine.

    Raises
    ------
    ParseError
        A header that is not IDX's, or that does not fit the number of bytes.
    """
    with open_text(source) as text:
        head = text.peek(4)
        if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _TYPES:
            raise text.error(
                None, "the first four bytes are not those of an IDX file; is it another file?"
            )
        n_axes = head[3]
        if n_axes > _MAX_AXES:
            raise text.error(
                None, f"the header declares {n_axes} axes; at most {_MAX_AXES} are read."
            )
        start = 4 + 4 * n_axes
        header = text.peek(start)
        if len(header) < start:
            raise text.error(None, "the file ends inside its header; fetch it again.")
        shape = tuple(np.frombuffer(header, dtype=">u4", offset=4).tolist())
        dtype = np.dtype(_TYPES[head[2]])
        expected = start + dtype.itemsize * math.prod(shape)
        data = bytearray()
        while len(data) <= expected and (piece := text.read()):
            data += piece
        if len(data) != expected:
            found = f"{len(data):,}" if len(data) < expected else "more"
            sizes = " × ".join(map(str, shape)) or "one"
            raise text.error(
                None,
                f"the header declares {sizes} elements, {expected:,} bytes in all, and there are "
                f"{found}; fetch the file again.",
            )
        if not math.prod(shape) and max(shape) >= 2**16:
            raise text.error(None, f"the header declares an empty array of shape {shape}.")
        flat = np.frombuffer(data, dtype=dtype, offset=start)
        return flat.astype(dtype.newbyteorder("="), copy=False).reshape(shape)
