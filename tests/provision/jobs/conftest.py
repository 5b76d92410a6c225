"""A real API server, in which tests play the Job controller and the kubelet."""

from __future__ import annotations

from tests.provision.cluster.conftest import stage

__all__ = ["stage"]
