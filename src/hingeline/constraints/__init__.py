"""A small language of constraints on label sequences: for training, prediction and checking."""

from hingeline.constraints.base import PUNCTUATION
from hingeline.constraints.compiled import CompiledConstraints
from hingeline.constraints.compiling import compile_constraints
from hingeline.constraints.corpus import AverageSegments, ChangeShare, Share
from hingeline.constraints.evaluator import SwitchEvaluator
from hingeline.constraints.instance import (
    Before,
    ChangeOnlyAt,
    EndsWith,
    Follows,
    Predicate,
    StartsWith,
    Words,
)
from hingeline.constraints.segments import AtMostOneSegment, MinLength, NoRepeats, Occurs

__all__ = [
    "PUNCTUATION",
    "AtMostOneSegment",
    "AverageSegments",
    "Before",
    "ChangeOnlyAt",
    "ChangeShare",
    "CompiledConstraints",
    "EndsWith",
    "Follows",
    "MinLength",
    "NoRepeats",
    "Occurs",
    "Predicate",
    "Share",
    "StartsWith",
    "SwitchEvaluator",
    "Words",
    "compile_constraints",
]
