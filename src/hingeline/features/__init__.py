"""Encoders: text, dicts and numbers as the sparse tokens that chains are trained on."""

from hingeline.features.dicts import DictEncoder
from hingeline.features.frames import from_frame
from hingeline.features.gaussian import GaussianEmissions, PerToken
from hingeline.features.sequences import SparseSequences
from hingeline.features.templates import TokenTemplates

__all__ = [
    "DictEncoder",
    "GaussianEmissions",
    "PerToken",
    "SparseSequences",
    "TokenTemplates",
    "from_frame",
]
