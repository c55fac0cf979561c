"""Published results for people: tables, plots and one self-contained HTML page."""

from xnq_dist.report.run import report

__all__ = ["report"]
