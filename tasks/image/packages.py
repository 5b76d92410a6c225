"""Names what the image is made of beside grapnel."""

from __future__ import annotations

from typing import Final

SUITE: Final = "trixie"
PYTHON: Final = "3.13"  # of that suite
# Ansible starts modules through a shell; nsenter of util-linux enters the host; webhooks and gates want certificates.
PACKAGES: Final = ("base-files", "ca-certificates", "coreutils", "dash", "libc-bin", "python3", "util-linux")
