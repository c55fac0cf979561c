"""Names and addresses as text that may be shown: no credentials, no control codes."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["HIDDEN", "joined", "plain", "redacted", "split_query", "within"]

HIDDEN = "***"
"""Stands for a secret."""

_HARMLESS = frozenset(
    {
        "allow_bucket_creation",
        "allow_bucket_deletion",
        "background_writes",
        "blob_storage_authority",
        "buffer_size",
        "connect_timeout",
        "default_block_size",
        "dfs_storage_authority",
        "enable_tls",
        "endpoint_override",
        "proxy_host",
        "proxy_port",
        "region",
        "replication",
        "request_timeout",
        "retry_limit_seconds",
        "scheme",
        "tls_verify_certificates",
    }
)
"""Query parameters whose values are shown. All others are hidden, because the names of
secrets differ between stores."""

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"`<>]+")
_PARAMETER = re.compile(r"([?&;])([^=&;?/]+)=([^&;]*)")

_NOT_XML = re.compile("[\x00-\x1f\x7f\ufffe\uffff]")


def redacted(value: Any) -> Any:
    """The value with the credentials of every URI in it replaced by ``***``.

    User names and passwords before a host are hidden, and values of query parameters
    that are not known to be harmless. If a password cannot be recognised with certainty
    (an unescaped ``/`` or ``@``), more is hidden rather than less.

    Parameters
    ----------
    value
        A URI, a path, any text with URIs in it, or lists and mappings of these. Other
        values are returned unchanged.

    Examples
    --------
    >>> redacted("s3://KEY:SECRET@bucket/nodes.parquet?region=us-east-1&token=x")
    's3://***@bucket/nodes.parquet?region=us-east-1&token=***'
    >>> redacted("/data/nodes.parquet")
    '/data/nodes.parquet'
    """
    if isinstance(value, str):
        return _URI.sub(_hide, value) if "://" in value else value
    if isinstance(value, dict):
        return {key: redacted(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(redacted(each) for each in value)
    return value


def split_query(uri: str) -> tuple[str, str]:
    """Split a URI into the part before its query and the query with its ``?``.

    A path has no query.

    Examples
    --------
    >>> split_query("s3://bucket/part-?.parquet?region=eu")
    ('s3://bucket/part-?.parquet', '?region=eu')
    >>> split_query("/data/a?b=c")
    ('/data/a?b=c', '')
    """
    if "://" not in uri:
        return uri, ""
    query = re.search(r"\?[^/?]*=", uri)  # in a glob a `?` need not start the query
    end = query.start() if query else len(uri)
    return uri[:end], uri[end:]


def joined(place: str, name: str) -> str:
    """The address of a file in a folder; in a URI the name goes before the query.

    Examples
    --------
    >>> joined("s3://bucket/run?region=eu", "report.html")
    's3://bucket/run/report.html?region=eu'
    >>> joined("/data/really?", "report.html")
    '/data/really?/report.html'
    """
    before, query = split_query(place)
    return f"{before}/{name}{query}"


def within(place: str, folder: str) -> bool:
    """Whether an address is a folder or lies in the folder.

    Examples
    --------
    >>> within("s3://bucket/run/graph?region=eu", "s3://bucket/run?region=eu")
    True
    >>> within("s3://bucket/runs?region=eu", "s3://bucket/run?region=eu")
    False
    """
    (inner, inner_query), (outer, outer_query) = map(split_query, (place, folder))
    return inner_query == outer_query and f"{inner}/".startswith(f"{outer}/")


def plain(text: str, limit: int | None = None) -> str:
    """A name as one line of characters that XML allows, shortened to a length.

    Examples
    --------
    >>> plain("a name that is long", limit=8)
    'a name …'
    """
    clean = re.sub(r"\s+", " ", text)
    clean = _NOT_XML.sub("\ufffd", clean)
    if limit is not None and len(clean) > limit:
        return clean[: limit - 1] + "…"
    return clean


def _hide(match: re.Match[str]) -> str:
    before, query = split_query(match.group())
    scheme, _, place = before.partition("://")
    authority = re.split("[/?]", place + query, maxsplit=1)[0]
    user, at, host = place.rpartition("@")
    if "@" in query and ":" in place and not at:
        return f"{scheme}://{HIDDEN}"  # a password with `?` in it
    # In Azure's addresses the container's name is before the host. A password may have
    # `/` in it.
    container = scheme.startswith("abfs") and ":" not in user
    if not container and ("@" in authority or ":" in user):
        user = HIDDEN
    return f"{scheme}://{user}{at}{host}{_PARAMETER.sub(_hide_one, query)}"


def _hide_one(match: re.Match[str]) -> str:
    mark, name, value = match.groups()
    harmless = name.lower() in _HARMLESS and "@" not in value and "%40" not in value
    return f"{mark}{name}={value if harmless else HIDDEN}"
