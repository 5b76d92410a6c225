"""Certificates of one authority, made once, for API servers of tests."""

from __future__ import annotations

import pytest

from lab.cluster.certificates import Certificates


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates(tmp_path_factory.mktemp("certificates") / "pki")
    made.prepare("127.0.0.1")
    return made
