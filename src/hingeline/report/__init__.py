"""Reports and pictures of fitted models."""

from hingeline.report.page import render_report, write_report

__all__ = ["render_report", "write_report"]
