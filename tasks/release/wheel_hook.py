"""A build hook of hatchling: puts the archives for nodes and the manual page into the wheel of a release.

Without ``GRAPNEL_WHEEL_PAYLOAD`` and ``GRAPNEL_WHEEL_MAN`` a wheel has neither, as one that is built from a checkout to
try something.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PayloadHook(BuildHookInterface):  # type: ignore[type-arg]  # of a configuration that is not used here
    """Adds the payload and the manual pages, which ``supply.payload`` and ``parsers.man`` have made."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # hatchling's signature
        folder = os.environ.get("GRAPNEL_WHEEL_PAYLOAD")
        if folder:
            build_data["force_include"][folder] = "provision/_payload/archives"
        docs = Path(self.root, "docs")
        for path in docs.rglob("*.md"):  # what `grapnel help` prints; `--help` and `explain` say what `reference` does
            if path.relative_to(docs).parts[0] not in {"decisions", "reference"}:
                build_data["force_include"][str(path)] = f"provision/_docs/{path.relative_to(docs)}"
        page = os.environ.get("GRAPNEL_WHEEL_MAN")
        if page:
            build_data["shared_data"][page] = "share/man/man1/grapnel.1"
