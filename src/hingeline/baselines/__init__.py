"""The systems that the semi-supervised structural SVM is compared with, with the same constraints.

Nothing else in the package imports this folder.
"""

from hingeline.baselines.codl import CODL
from hingeline.baselines.posterior import DASO, PosteriorRegularization
from hingeline.baselines.transductive import TransductiveSSVM

__all__ = ["CODL", "DASO", "PosteriorRegularization", "TransductiveSSVM"]
