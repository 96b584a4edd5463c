"""What commands refuse before they read any data."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hingeline import ChainSSVM
from hingeline._checks import one_of, positive
from hingeline.cli.app import CommandError, blaming
from hingeline.estimators.multilabel import EDGES
from hingeline.modelfile import ModelFileError, read_header
from hingeline.schemes import scheme_name


def parse_grid(text: str | None) -> list[float]:
    """Values of C in ascending order: each fit starts from the one before."""
    if text is None:
        return []
    name, _, values = text.partition("=")
    try:
        if name.strip() != "C":
            raise ValueError
        return sorted({float(value) for value in values.split(",")})
    except ValueError:
        raise CommandError(f"--grid: expected C=0.01,0.1,1 or the like, got {text!r}.") from None


def parse_nu(text: str) -> float | str:
    """A number, or the word auto."""
    if text.strip() == "auto":
        return "auto"
    try:
        return float(text)
    except ValueError:
        raise CommandError(f"--nu: expected a number or auto, got {text!r}.") from None


def check_together(
    grid: str | None, dev: str | None, checkpoint: Path | None, resume: bool
) -> None:
    """Refuse options that make no sense together."""
    if grid is not None and dev is None:
        raise CommandError("--grid chooses by the score on held-out data: pass --dev FILE.")
    if grid is not None and checkpoint is not None:
        raise CommandError("--checkpoint keeps one fit and --grid makes several: use one of them.")
    if resume and checkpoint is None:
        raise CommandError("--resume goes on from a checkpoint: pass --checkpoint FILE.")


def check_files(data: str, dev: str | None, model: Path, checkpoint: Path | None) -> None:
    """Refuse files that are in each other's way, or cannot be written, before any work is done."""
    if data == dev == "-":
        raise CommandError("--dev: the standard input cannot be read twice: name a file.")
    check_writable("--model", model)
    read = [Path(name).resolve() for name in (data, dev) if name is not None and name != "-"]
    if model.resolve() in read:
        raise CommandError(f"--model: {model} is the file to learn from: name another file.")
    if checkpoint is not None:
        check_writable("--checkpoint", checkpoint)
        if checkpoint.resolve() in (model.resolve(), *read):
            raise CommandError(
                f"--checkpoint: {checkpoint} is the model or a file to learn from, and a "
                "checkpoint is removed at the end: name another file."
            )
        _check_checkpoint(checkpoint)


def _check_checkpoint(path: Path) -> None:
    """Refuse a file that is no checkpoint: it would be replaced, and removed at the end."""
    if not path.exists():
        return
    try:
        kind = read_header(path)[0].get("kind")
    except (ModelFileError, OSError):
        kind = None
    if kind != "checkpoint":
        raise CommandError(
            f"--checkpoint: {path} is there and is no checkpoint: name another file, or remove it."
        )


def check_writable(option: str, path: Path) -> None:
    """Refuse a file that could not be written."""
    folder = path.parent
    if path.is_dir():
        raise CommandError(f"{option}: {path} is a folder: name a file.")
    if not folder.is_dir():
        raise CommandError(f"{option}: there is no folder {folder}: make it first.")
    if not os.access(folder, os.W_OK):
        raise CommandError(f"{option}: nothing can be written in {folder}: name another folder.")


def check_params(
    params: dict[str, Any],
    values: list[float],
    scheme: str | None,
    dtype: str,
    edges: str | None = None,
) -> None:
    """Refuse what the fit or the writing would refuse, before the data are read."""
    estimator = ChainSSVM(**params)
    with blaming():
        estimator._check_parameters()
        one_of("dtype", dtype, ("float64", "float32", "float16"))
        one_of("edges", edges or "full", EDGES)
        if scheme is not None and scheme != "auto":
            scheme_name(scheme)
    with blaming("--grid"):
        for C in values:
            positive("C", C, infinite=True)
