"""Publication of results: tables, plots and one self-contained HTML page."""

from xnq_dist.report.publish import report

__all__ = ["report"]
