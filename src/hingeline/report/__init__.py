"""Reports and pictures of fitted models; imported when first used."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hingeline.report.page import render_report, write_report

__all__ = ["render_report", "write_report"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from hingeline.report import page

    value = getattr(page, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
