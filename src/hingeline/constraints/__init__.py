"""A small language of constraints on label sequences: for training, prediction and checking."""

from hingeline.constraints.base import PUNCTUATION
from hingeline.constraints.decode import constrained_decode
from hingeline.constraints.files import load_constraints
from hingeline.constraints.learning import learn_constraints
from hingeline.constraints.penalties import CheckReport, Penalties, SwitchEvaluator, check
from hingeline.constraints.rules import (
    AtMostOneSegment,
    AverageSegments,
    Before,
    ChangeOnlyAt,
    ChangeShare,
    EndsWith,
    Follows,
    MinLength,
    NoRepeats,
    Occurs,
    OnlyWords,
    Predicate,
    Share,
    StartsWith,
    Words,
)
from hingeline.constraints.switches import CompiledConstraints

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
    "Penalties",
    "Predicate",
    "Share",
    "StartsWith",
    "SwitchEvaluator",
    "Words",
    "check",
    "constrained_decode",
    "learn_constraints",
    "load_constraints",
]
