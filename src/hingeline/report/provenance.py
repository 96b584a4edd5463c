"""Where the model comes from: command, versions, data and their hashes, seed, date."""

from __future__ import annotations

import hashlib
import numbers
import os
import shlex
from collections.abc import Mapping
from typing import Any

from hingeline.modelfile.estimators import versions
from hingeline.report.markup import block_text, isolated, pairs, paragraph, section, table, text
from hingeline.report.words import count

_NAMES = {
    "python": "Python",
    "hingeline": "Hingeline",
    "numpy": "NumPy",
    "scipy": "SciPy",
    "sklearn": "scikit-learn",
    "numba": "Numba",
}


def provenance_section(model: Any, command: Any, data: Any, date: Any) -> str:
    """What is needed to make the model again."""
    parts = []
    if command is not None:
        parts.append(
            '<h3>Command</h3><div class="scroll" role="region" tabindex="0" aria-label="Command">'
            f"<pre><code>{block_text(command_text(command))}</code></pre></div>"
        )
    files = data_files(data)
    if files:
        rows = [
            [
                text(role) if role else text(name),
                *([text(name)] if any(r for r, *_ in files) else []),
                "" if size is None else count(size),
                f'<code class="hash">{text(digest)}</code>',
            ]
            for role, name, size, digest in files
        ]
        roles = any(role for role, *_ in files)
        head = (["data"] if roles else []) + ["file", "bytes", "SHA-256"]
        words = (0, 1, 3) if roles else (0, 2)
        parts.append(table("Data", head, rows, words=words, kind="files"))
    rows_of = []
    if date is not None:
        rows_of.append(("date", isolated(date)))
    rows_of.append(("seed", seed_words(getattr(model, "random_state", None))))
    found = versions()
    rows_of += [(shown, text(found[name])) for name, shown in _NAMES.items() if name in found]
    parts.append(pairs("Seed and versions", rows_of))
    parts.append(paragraph("The versions are those that made this page.", "note"))
    return section("provenance", "Provenance", *parts)


def command_text(command: Any) -> str:
    """A command as one text; a list is joined as a shell would want it."""
    if isinstance(command, str):
        return command
    if not isinstance(command, (list, tuple)):
        raise TypeError(f"command must be text or a list of words, got {type(command).__name__}.")
    return shlex.join(map(str, command))


def seed_words(seed: Any) -> str:
    """The seed, or what its absence means."""
    if seed is None:
        return "none was set, so another run may give other weights"
    if isinstance(seed, numbers.Integral):
        return str(int(seed))
    return f"a {text(type(seed).__name__)}, whose state is not recorded"


def data_files(data: Any) -> list[tuple[str, str, int | None, str]]:
    """(role, name, bytes or None, SHA-256) of each data file.

    Parameters
    ----------
    data : path, list of paths, or dict
        A dict maps a role, say ``"training"``, to a path, or to ``{"name": ..., "sha256": ...}``
        (and perhaps ``"bytes"``) where the file itself is not at hand.
    """
    if data is None:
        return []
    if isinstance(data, (str, os.PathLike)):
        data = [data]
    if isinstance(data, Mapping):
        entries = [(str(role), value) for role, value in data.items()]
    elif isinstance(data, (list, tuple)):
        entries = [("", value) for value in data]
    else:
        raise TypeError(
            f"data must be a path, a list of paths or a dict of them, got {type(data).__name__}."
        )
    found = []
    for role, value in entries:
        where = f"data[{role!r}]" if role else "data"
        if isinstance(value, Mapping):
            if not {"name", "sha256"} <= set(value):
                raise ValueError(f"{where} must have a 'name' and a 'sha256'.")
            size = value.get("bytes")
            known = None if size is None else int(size)
            found.append((role, str(value["name"]), known, str(value["sha256"])))
        elif isinstance(value, (str, os.PathLike)):
            found.append((role, *_hashed(value, where)))
        else:
            raise TypeError(f"{where} must be a path, got {type(value).__name__}.")
    return found


def _hashed(path: str | os.PathLike[str], where: str) -> tuple[str, int, str]:
    name = os.fspath(path)
    try:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
    except OSError as error:
        raise type(error)(f"{where}: cannot read {name}: {error.strerror or error}.") from None
    return str(name), size, digest
