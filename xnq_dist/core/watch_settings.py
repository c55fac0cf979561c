"""The section `watch` of the settings: what a run tells about itself while it works."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from xnq_dist.core.settings_sections import Section

__all__ = ["WatchSettings"]


class WatchSettings(Section):
    """Log lines, metrics and links; no result depends on them."""

    log: Literal["text", "json"] = Field(
        "text",
        description="form of log lines on stderr; json: one object per line with time, "
        "level, run_id, host, stage, logger and message (also by XNQ_LOG_FORMAT=json, "
        "which includes lines before the settings are read)",
    )
    metrics: str | None = Field(
        None,
        description="file for metrics in OpenMetrics form, replaced atomically, such "
        "as /var/lib/node_exporter/xnq.prom; null: metrics.prom in the run directory",
    )
    address: str | None = Field(
        None,
        pattern=r"^https?://",
        description="address under which a web server shows the run directory, for "
        "links to the report on Prefect's page; null: its path",
    )
