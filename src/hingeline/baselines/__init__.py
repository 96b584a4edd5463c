"""The systems that the semi-supervised structured SVM is compared with, with the same constraints.

Nothing else in the package imports this folder.
"""

from hingeline.baselines.margin import CODL, TransductiveSSVM
from hingeline.baselines.posterior import DASO, PosteriorRegularization

__all__ = ["CODL", "DASO", "PosteriorRegularization", "TransductiveSSVM"]
