"""Structured SVMs: labels, sequences and your own structures, trained to a certified optimum.

Names are imported when first used: the command line starts without what it does not need.
"""

from hingeline._lazy import read_stub

__version__ = "0.1.0"

_HOME, __getattr__, __dir__ = read_stub(__name__, __file__)
__all__ = sorted([*_HOME, "__version__"])
