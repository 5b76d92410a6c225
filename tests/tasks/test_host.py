"""The host's packages: which ones are wanted, and which of them are missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.host import missing_packages, wanted_packages

if TYPE_CHECKING:
    from pathlib import Path


def test_a_listing_has_a_name_a_line_and_comments(tmp_path: Path) -> None:
    listing = tmp_path / "apt-packages.txt"
    listing.write_text("# for nodes\nsystemd-container\n\nbusybox-static # for containers\n")

    assert wanted_packages(listing) == ["systemd-container", "busybox-static"]


def test_packages_that_dpkg_does_not_have_are_missing() -> None:
    assert missing_packages(["dpkg", "grapnel-no-such-package"]) == ["grapnel-no-such-package"]
