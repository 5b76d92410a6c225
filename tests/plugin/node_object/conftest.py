"""Certificates of one authority, made once, and an API server for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab.cluster.certificates import Certificates
from tests.plugin.node_object.api_server import ApiServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates(tmp_path_factory.mktemp("certificates") / "pki")
    made.prepare("127.0.0.1")
    return made


@pytest.fixture
def server(certificates: Certificates) -> Iterator[ApiServer]:
    with ApiServer(certificates) as served:
        yield served
