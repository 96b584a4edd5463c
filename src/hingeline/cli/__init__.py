"""The command ``hingeline``; one module a command."""

from hingeline.cli import convert, demo, describe, judge, predict, train
from hingeline.cli.app import CommandError, app, main

__all__ = [
    "CommandError",
    "app",
    "convert",
    "demo",
    "describe",
    "judge",
    "main",
    "predict",
    "train",
]
