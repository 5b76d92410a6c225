"""A build hook of hatchling: puts the archives for nodes into the wheel of a release.

Without ``GRAPNEL_WHEEL_PAYLOAD`` a wheel has none, as one that is built from a checkout to try something.
"""

from __future__ import annotations

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PayloadHook(BuildHookInterface):  # type: ignore[type-arg]  # of a configuration that is not used here
    """Adds a folder that ``python -m provision.payload build`` has made."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's signature
        folder = os.environ.get("GRAPNEL_WHEEL_PAYLOAD")
        if folder:
            build_data["force_include"][folder] = "provision/_payload/archives"
