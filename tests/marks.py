"""Which cases of a family of tests run by default."""

from __future__ import annotations

from typing import Any

import pytest


def slow(*values: Any) -> Any:
    """Parameters of a case that is left to the slow run."""
    return pytest.param(*values, marks=pytest.mark.slow)
