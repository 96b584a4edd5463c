"""Models as files, of this library and of others."""

from hingeline._lazy import read_stub

_, __getattr__, __dir__ = read_stub(__name__, __file__)
