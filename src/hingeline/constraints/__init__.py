"""A small language of constraints on label sequences: for training, prediction and checking."""

from hingeline.constraints.base import PUNCTUATION
from hingeline.constraints.checking import CheckReport, check
from hingeline.constraints.compiled import CompiledConstraints
from hingeline.constraints.compiling import compile_constraints
from hingeline.constraints.corpus import AverageSegments, ChangeShare, Share
from hingeline.constraints.evaluator import SwitchEvaluator
from hingeline.constraints.files import load_constraints
from hingeline.constraints.instance import (
    Before,
    ChangeOnlyAt,
    EndsWith,
    Follows,
    OnlyWords,
    Predicate,
    StartsWith,
    Words,
)
from hingeline.constraints.prediction import constrained_decode
from hingeline.constraints.segments import AtMostOneSegment, MinLength, NoRepeats, Occurs

__all__ = [
    "PUNCTUATION",
    "AtMostOneSegment",
    "AverageSegments",
    "Before",
    "ChangeOnlyAt",
    "ChangeShare",
    "CheckReport",
    "CompiledConstraints",
    "EndsWith",
    "Follows",
    "MinLength",
    "NoRepeats",
    "Occurs",
    "OnlyWords",
    "Predicate",
    "Share",
    "StartsWith",
    "SwitchEvaluator",
    "Words",
    "check",
    "compile_constraints",
    "constrained_decode",
    "load_constraints",
]
