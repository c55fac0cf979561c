"""What a run sends and shows besides its files, which no file depends on."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from xnq_dist.core.section import Section

__all__ = ["LineageSettings", "SinkSettings", "WatchSettings"]


class SinkSettings(Section):
    """Where the table `prevalence` is delivered besides Parquet."""

    delta: str | None = Field(
        None,
        description="folder or URI of a Delta Lake table (extra delta), which gets the "
        "rows of every run in one commit; null: none",
    )
    sql: str | None = Field(
        None,
        description="SQLAlchemy URL of a database, sqlite:///FILE or "
        "postgresql://USER@HOST/DATABASE (extra postgres; the password from "
        "PGPASSWORD), which gets the rows of every run in one transaction; null: none",
    )
    table: str = Field(
        "prevalence", min_length=1, description="name of the table in that database"
    )


class LineageSettings(Section):
    """OpenLineage events of a run: START, COMPLETE and FAIL."""

    to: str | None = Field(
        None,
        description="file that events are appended to, one JSON object per line, or "
        "http(s) URL of a server that takes them; null: no events",
    )
    namespace: str = Field(
        "xnq-dist", min_length=1, description="namespace of the job in the events"
    )

    @field_validator("to")
    @classmethod
    def _file_or_http(cls, to: str | None) -> str | None:
        if to and "://" in to and urlsplit(to).scheme not in ("http", "https"):
            raise ValueError("give the path of a file, or an http or https URL")
        return to


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
