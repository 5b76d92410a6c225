"""A fake machine whose older kernel runs."""

from __future__ import annotations

import platform

import pytest

from tests.playbooks.preflight.kernels import OLD


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> str:
    """Let the older kernel run."""
    monkeypatch.setattr(platform, "uname", lambda: platform.uname_result("Linux", "n1", OLD, "#1", "x86_64"))
    return OLD
