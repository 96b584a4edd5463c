"""Chromium, for tests that look at a page as a reader does.

Its program is what the environment variable CHROMIUM names, or chromium, chromium-browser or
google-chrome on the path. Without one these tests are skipped.
"""

from __future__ import annotations

import os
import shutil

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = next(filter(None, map(shutil.which, [os.environ.get("CHROMIUM") or "", *NAMES])), None)

#: How tests start it: without a sandbox, as they may run as root and open only pages of their own,
#: and without requests that the browser makes of itself.
COMMAND = [
    CHROMIUM or "chromium",
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--hide-scrollbars", "--no-first-run", "--disable-background-networking"),
]

wants_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium here: install it, or set CHROMIUM to its program"
)
