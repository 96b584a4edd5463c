"""Training on more than one machine, or one process: :func:`fit_blocks`."""

from hingeline._lazy import read_stub

_HOME, __getattr__, __dir__ = read_stub(__name__, __file__)
__all__ = sorted(_HOME)
