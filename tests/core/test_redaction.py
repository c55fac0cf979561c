"""Credentials in addresses are removed from all output and files."""

from __future__ import annotations

import pickle
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import small_settings
from xnq_dist.core.errors import XnqError
from xnq_dist.core.redaction import redacted
from xnq_dist.core.store import Folder, RunDirectory
from xnq_dist.graph.sources import Sources

SECRETS = st.text(string.ascii_letters + string.digits + "+/=%:._~-", min_size=6)


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("s3://KEY:SECRET@bucket/a.parquet", "s3://***@bucket/a.parquet"),
        ("s3://KEY:SEC/RET@bucket/a.parquet", "s3://***@bucket/a.parquet"),
        ("s3://KEY:SEC?R=ET@bucket/a.parquet", "s3://***"),
        ("s3://bucket/day@2/a.parquet", "s3://bucket/day@2/a.parquet"),
        ("https://host:8443/a", "https://host:8443/a"),
        ("https://u:p@host:8443/a?q=1", "https://***@host:8443/a?q=***"),
        ("postgresql+asyncpg://u:p@host/db", "postgresql+asyncpg://***@host/db"),
        ("abfss://box@account.dfs/a", "abfss://box@account.dfs/a"),
        ("abfss://box:KEY@account.dfs/a", "abfss://***@account.dfs/a"),
        (
            "s3://bucket/part-?.parquet?region=eu&secret_key=S/1",
            "s3://bucket/part-?.parquet?region=eu&secret_key=***",
        ),
        (
            "s3://bucket?endpoint_override=http://u:p@host&scheme=http",
            "s3://bucket?endpoint_override=***&scheme=http",
        ),
        ("tcp://[::1]:8786", "tcp://[::1]:8786"),
        ("/data/what?key=1@2", "/data/what?key=1@2"),
    ],
)
def test_addresses_are_shown_without_credentials(uri, shown):
    assert redacted(uri) == shown
    assert redacted(shown) == shown
    sentence = redacted(f"cannot open '{uri}': check it")
    assert sentence == f"cannot open '{shown}': check it"
    assert redacted({"a": [uri, 1], "b": (uri, None)}) == {
        "a": [shown, 1],
        "b": (shown, None),
    }


@given(user=SECRETS, password=SECRETS, token=SECRETS)
def test_no_password_of_any_form_is_left(user, password, token):
    found = redacted(f"s3://{user}:{password}@bucket/a?region=eu&token={token}")
    assert found.startswith("s3://***")
    assert found.endswith(("@bucket/a?region=eu&token=***", "s3://***"))


def test_settings_hide_credentials():
    settings = small_settings("scratch=s3://KEY:SECRET@bucket/run")
    assert settings.scratch == "s3://KEY:SECRET@bucket/run"
    assert "scratch='s3://***@bucket/run'" in repr(settings)
    assert "SECRET" not in repr(settings) + str(settings)


def test_folders_open_with_credentials_and_show_none(tmp_path):
    folder = Folder.of(f"file://{tmp_path}/run?token=SECRET")
    again = pickle.loads(pickle.dumps(folder.child("graph")))  # noqa: S301 - our own
    assert again.location == f"file://{tmp_path}/run/graph?token=SECRET"
    again.create()
    again.write_bytes("a", b"1")
    assert (tmp_path / "run" / "graph" / "a").read_bytes() == b"1"
    run = RunDirectory(folder.location)
    for shown in (
        folder.uri,
        repr(again),
        run.uri,
        repr(Sources(run.location, "b")),
    ):
        assert "SECRET" not in shown
        assert "token=***" in shown
    assert folder.child("graph").uri.endswith("/run/graph?token=***")
    missing = Folder("s3://KEY:SECRET@bucket/a?unheard=of")
    with pytest.raises(XnqError, match=r"s3://\*\*\*@bucket") as told:
        missing.exists()
    assert "SECRET" not in str(told.value) + repr(told.value)
