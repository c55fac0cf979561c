"""A run directory up to the posteriors, which tests of this folder share."""

from __future__ import annotations

import pytest
from distributed import Client

from tests.quantify.test_stage import Made, make_run


@pytest.fixture
def client(thread_client: Client) -> Client:
    return thread_client


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Only its stage ``quantify`` may be changed."""
    return make_run(tmp_path_factory.mktemp("made"))
