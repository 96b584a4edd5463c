"""Encoders: text, dicts and numbers as the sparse tokens that chains are trained on."""

from hingeline.features.arcs import ArcFeatures
from hingeline.features.dicts import DictEncoder
from hingeline.features.input import PerToken
from hingeline.features.segments import SegmentTemplates
from hingeline.features.tables import SparseSequences, TokenTable, from_frame, to_column
from hingeline.features.templates import TokenTemplates

__all__ = [
    "ArcFeatures", "DictEncoder", "PerToken", "SegmentTemplates", "SparseSequences", "TokenTable",
    "TokenTemplates", "from_frame", "to_column",
]  # fmt: skip
