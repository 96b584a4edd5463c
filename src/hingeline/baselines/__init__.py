"""Semi-supervised baselines: the systems that the semi-supervised structural SVM is compared with.

All take the same features and constraints as :class:`hingeline.SemiSupervisedSSVM`; the methods
themselves are in :mod:`hingeline.semisupervised`, one file each.
"""

from hingeline.baselines.likelihood import DASO, PosteriorRegularization
from hingeline.baselines.margin import CODL, TransductiveSSVM

__all__ = ["CODL", "DASO", "PosteriorRegularization", "TransductiveSSVM"]
