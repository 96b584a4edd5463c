"""Structured SVMs: labels, sequences and your own structures, trained to a certified optimum."""

from hingeline.callbacks import Checkpoint, EarlyStopping
from hingeline.estimators.chain import ChainSSVM
from hingeline.estimators.custom import SSVM
from hingeline.estimators.multiclass import MulticlassSSVM
from hingeline.estimators.paths import C_path, Path, nu_path
from hingeline.estimators.storage import load
from hingeline.solvers.history import HistoryRow, PassState
from hingeline.structures.custom import Structure

__version__ = "0.1.0"

__all__ = [
    "SSVM",
    "C_path",
    "ChainSSVM",
    "Checkpoint",
    "EarlyStopping",
    "HistoryRow",
    "MulticlassSSVM",
    "PassState",
    "Path",
    "Structure",
    "__version__",
    "load",
    "nu_path",
]
