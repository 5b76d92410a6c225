"""A real API server that knows GpuStacks."""

from __future__ import annotations

from tests.provision.stacks.conftest import stage

__all__ = ["stage"]
