"""Outcomes -> the tables and plots that people publish. `content` computes, `render` writes."""

from tabiflow.report.content import Report, report
from tabiflow.report.render import write

__all__ = ["Report", "report", "write"]
