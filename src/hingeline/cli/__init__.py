"""The command ``hingeline``; one module a command."""

from hingeline.cli.startup import RARELY_USED, import_later

import_later(*RARELY_USED)  # before anything imports scikit-learn

from hingeline.cli import constraints, convert, demo, describe, judge, predict, train  # noqa: E402
from hingeline.cli.app import CommandError, app, main  # noqa: E402

__all__ = [
    "CommandError",
    "app",
    "constraints",
    "convert",
    "demo",
    "describe",
    "judge",
    "main",
    "predict",
    "train",
]
