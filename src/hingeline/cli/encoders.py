"""What turns the tokens of a file into features, from the options of a command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sklearn.base import clone

from hingeline.cli.app import CommandError, blaming
from hingeline.cli.samples import Samples
from hingeline.data.text import open_text
from hingeline.features.dicts import DictEncoder
from hingeline.features.tables import SparseSequences
from hingeline.features.templates import TokenTemplates


def split_names(text: str | None) -> list[str] | None:
    """Names that are separated by commas."""
    return None if text is None else [part.strip() for part in text.split(",")]


def width_of(X: Any) -> int:
    """Features of numbered data."""
    return int(X.matrix.shape[1] if isinstance(X, SparseSequences) else X.shape[1])


def make_encoder(
    samples: Samples, template: Path | None, min_count: int | None, hash_bits: int | None
) -> TokenTemplates | DictEncoder | None:
    """What turns tokens into numbers; None where the file has numbers."""
    kind = samples.layout.kind
    if kind == "tokens":
        templates = "default"
        if template is not None:
            with blaming(), open_text(template) as text:
                templates = "\n".join(line for _, line in text.lines())
        with blaming("--template"):
            encoder = TokenTemplates(templates, min_count=min_count or 1, hash_bits=hash_bits)
            encoder.fit(samples.X[:1])  # a bad template is refused before the work begins
        return encoder
    if template is not None or hash_bits is not None:
        option = "--template" if template is not None else "--hash-bits"
        raise CommandError(
            f"{option} is for files of words in columns; {samples.layout.format} has features."
        )
    if kind == "sequences" and isinstance(samples.X, list):
        return DictEncoder(min_count=min_count or 1)
    if min_count is not None:
        raise CommandError(f"--min-count is for named features; {samples.layout.format} has none.")
    return None


def attach_encoder(estimator: Any, encoder: TokenTemplates | DictEncoder | None) -> None:
    """Give an estimator that was fitted on numbers the encoder that made them."""
    if encoder is not None:
        estimator.features = None if isinstance(encoder, DictEncoder) else clone(encoder)
        estimator.encoder_ = encoder
