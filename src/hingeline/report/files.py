"""Places to write to, checked before any work is done for them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


def check_target(path: str | os.PathLike[str], formats: Sequence[str]) -> Path:
    """The place of a file that can be written, or an error that says why it cannot.

    Parameters
    ----------
    path : path
    formats : sequence of str
        Endings that the name may have, without the dot.

    Returns
    -------
    Path
        Links followed.

    Raises
    ------
    ValueError
        If the name does not end in one of the formats.
    OSError
        If the folder is missing or the place is taken by something that is not a file.
    """
    path = Path(path)
    if path.suffix.lower().lstrip(".") not in formats:
        endings = " or ".join(f".{name}" for name in formats)
        raise ValueError(f"cannot write {path}: its name must end in {endings}.")
    target = path.resolve()  # a link stays a link
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: there is no folder {target.parent}.")
    if target.exists() and not target.is_file():
        raise FileExistsError(f"cannot write {path}: it exists and is not a file.")
    if not os.access(target.parent, os.W_OK):
        raise PermissionError(f"cannot write {path}: no permission to write in {target.parent}.")
    return target
