"""Metrics, calibration and explanations: each has a module."""

from hingeline._lazy import read_stub

_, __getattr__, __dir__ = read_stub(__name__, __file__)
