"""Structured SVMs: labels, sequences and your own structures, trained to a certified optimum.

Names are imported when first used: the command line starts without what it does not need.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hingeline.callbacks import Checkpoint, EarlyStopping
    from hingeline.core.results import HistoryRow, PassState
    from hingeline.estimators.chain import ChainSSVM
    from hingeline.estimators.crf import ChainCRF
    from hingeline.estimators.custom import SSVM
    from hingeline.estimators.graph import GraphSSVM
    from hingeline.estimators.multiclass import MulticlassSSVM
    from hingeline.estimators.multilabel import MultilabelSSVM
    from hingeline.estimators.paths import C_path, Path, nu_path
    from hingeline.features.graphs import Graph
    from hingeline.modelfile.estimators import load
    from hingeline.semisupervised.estimator import SemiSupervisedSSVM
    from hingeline.structures.custom import Structure

__version__ = "0.1.0"

_HOME = {
    "SSVM": "estimators.custom",
    "C_path": "estimators.paths",
    "ChainCRF": "estimators.crf",
    "ChainSSVM": "estimators.chain",
    "Checkpoint": "callbacks",
    "EarlyStopping": "callbacks",
    "Graph": "features.graphs",
    "GraphSSVM": "estimators.graph",
    "HistoryRow": "core.results",
    "MulticlassSSVM": "estimators.multiclass",
    "MultilabelSSVM": "estimators.multilabel",
    "PassState": "core.results",
    "Path": "estimators.paths",
    "SemiSupervisedSSVM": "semisupervised.estimator",
    "Structure": "structures.custom",
    "load": "modelfile.estimators",
    "nu_path": "estimators.paths",
}

__all__ = [
    "SSVM",
    "C_path",
    "ChainCRF",
    "ChainSSVM",
    "Checkpoint",
    "EarlyStopping",
    "Graph",
    "GraphSSVM",
    "HistoryRow",
    "MulticlassSSVM",
    "MultilabelSSVM",
    "PassState",
    "Path",
    "SemiSupervisedSSVM",
    "Structure",
    "__version__",
    "load",
    "nu_path",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    if not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
        return import_module(
            f"{__name__}.{name}"
        )  # hingeline.features without an import of its own
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
