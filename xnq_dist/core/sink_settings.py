"""Where published tables and events go besides the run directory: names and meaning."""

from __future__ import annotations

from urllib.parse import urlsplit

from pydantic import Field, field_validator

from xnq_dist.core.settings_sections import Section

__all__ = ["LineageSettings", "SinkSettings"]


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
