"""Finds the Debian mirrors that this machine uses, through apt itself: no host name is hard-coded."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from lab.machine.command import run
from lab.machine.errors import MirrorError

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
COMPONENTS = "main contrib non-free non-free-firmware"
FORMAT = "$(ORIGIN)|$(LABEL)|$(RELEASE)|$(COMPONENT)|$(REPO_URI)"
HINT = "packages come from the mirrors in /etc/apt/sources.list(.d), once apt-get update has read them"
# How this machine reaches its mirrors (proxies, wrong clocks) applies to the other suites as well.
CARRIED_OPTION = re.compile(
    r'^Acquire::(https?::[^ ]+|Retries|Check-Valid-Until|Check-Date|ForceIPv4) "[^"]*";$', re.MULTILINE
)


@dataclass(frozen=True)
class Mirrors:
    """Base addresses of the archive and of its security updates."""

    archive: str
    security: str

    def source_lines(self, suite: str) -> list[str]:
        """Return one-line apt sources of ``suite`` with its updates and its security updates."""
        option = f"[signed-by={KEYRING}]"
        return [
            f"deb {option} {self.archive} {suite} {COMPONENTS}",
            f"deb {option} {self.archive} {suite}-updates {COMPONENTS}",
            f"deb {option} {self.security} {suite}-security {COMPONENTS}",
        ]


def find_mirrors() -> Mirrors:
    """Query apt's index targets and pick Debian's own; ``MirrorError`` if there are none."""
    listing = run(["apt-get", "indextargets", "--format", FORMAT, "Created-By: Packages"], timeout_s=60)
    return parse_targets(listing.stdout)


def parse_targets(listing: str) -> Mirrors:
    """Pick the first archive and the first security address from lines in ``FORMAT``."""
    archive = security = ""
    for line in listing.splitlines():
        origin, label, release, component, uri = line.split("|")
        if component != "main" or not _is_debian(origin, uri):
            continue
        if release.endswith("-security") or label == "Debian-Security":
            security = security or uri.rstrip("/")
        elif release.count("-") == 0:
            archive = archive or uri.rstrip("/")
    if not archive:
        raise MirrorError("apt's configuration names no Debian mirror", hint=HINT)
    if not security:
        raise MirrorError("apt's configuration names no mirror of Debian's security updates", hint=HINT)
    return Mirrors(archive, security)


def _is_debian(origin: str, uri: str) -> bool:
    """Apt knows the origin only after the lists were fetched (else the field is returned unexpanded)."""
    if origin and not origin.startswith("$("):
        return origin == "Debian"
    return "debian" in uri.rstrip("/").rpartition("/")[2]


def carried_options() -> list[str]:
    """Return this machine's apt options for reaching a mirror, as lines of an apt.conf."""
    dump = run(["apt-config", "dump"], timeout_s=30).stdout
    return [match.group(0) for match in CARRIED_OPTION.finditer(dump)]
