"""Where the files of the published data sets are, and whether they are the right ones."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from hingeline.data.sums import SUMS

#: Environment variable that names the folder of the collection.
VARIABLE = "HINGELINE_DATA"

#: Path, size and time of the files whose sums were right in this process.
_verified: set[tuple[str, int, int]] = set()


def data_folder(path: Any = None) -> Path:
    """The folder of the collection.

    Parameters
    ----------
    path : path, optional
        Default: the environment variable ``HINGELINE_DATA``.
    """
    given = path if path is not None else os.environ.get(VARIABLE)
    if not given:
        raise FileNotFoundError(
            f"the folder of the data sets is not known: set the environment variable {VARIABLE} to "
            "it or pass it as path."
        )
    return Path(given)


def data_file(name: str, path: Any = None, check: bool = True) -> Path:
    """A file of the collection.

    Parameters
    ----------
    name : str
        Below the folder of the collection, such as ``"conll2000/train.txt.gz"``.
    path : path, optional
        Folder of the collection. Default: the environment variable ``HINGELINE_DATA``.
    check : bool, default=True
        Compare the file's SHA-256 sum with the one known, once per process.

    Returns
    -------
    Path

    Raises
    ------
    FileNotFoundError
        The file is not there; the message says where it belongs.
    ValueError
        The file is there and differs from the one that is meant.
    """
    folder = data_folder(path)
    file = folder / name
    if not file.is_file():
        raise FileNotFoundError(
            f"there is no file {file}: put the data set's files into {file.parent}, or set "
            f"{VARIABLE} (or path) to the folder that has {name}."
        )
    if check:
        status = file.stat()
        key = (str(file.resolve()), status.st_size, status.st_mtime_ns)
        if key not in _verified:
            with open(file, "rb") as stream:
                found = hashlib.file_digest(stream, "sha256").hexdigest()
            if found != SUMS[name]:
                raise ValueError(
                    f"{file} is not the file that is meant: its SHA-256 is {found}, not "
                    f"{SUMS[name]}; fetch it again, or pass check=False to read it all the same."
                )
            _verified.add(key)
    return file
