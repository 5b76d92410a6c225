"""Lists the Debian suites that nodes can run."""

from __future__ import annotations

from dataclasses import dataclass

from lab.machine.errors import SiteError


@dataclass(frozen=True)
class Suite:
    """A Debian release; ``kernel_release`` is what ``uname -r`` prints on its nodes (see ``lab.kmod``)."""

    name: str
    version_id: str
    kernel_release: str


SUITES = {
    suite.name: suite
    for suite in (
        Suite("trixie", "13", "6.12.107+deb13-amd64"),
        Suite("bookworm", "12", "6.1.0-56-amd64"),
    )
}


def find_suite(name: str) -> Suite:
    """Return the suite called ``name``."""
    if name not in SUITES:
        raise SiteError(f"no suite {name!r}", hint=f"suites: {', '.join(SUITES)}")
    return SUITES[name]
