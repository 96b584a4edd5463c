"""Reports and pictures of fitted models; imported when first used."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hingeline.report.figures import (
        label_affinities,
        plot_affinities,
        plot_curve,
        plot_path,
        plot_segmentation,
    )
    from hingeline.report.page import render_report, write_report

__all__ = [
    "label_affinities",
    "plot_affinities",
    "plot_curve",
    "plot_path",
    "plot_segmentation",
    "render_report",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from hingeline.report import figures, page

    return getattr(page if name.endswith("report") else figures, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
