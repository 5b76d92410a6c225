"""Which mirrors are found in what apt says."""

from __future__ import annotations

import pytest

from lab.machine.errors import MirrorError
from lab.machine.mirrors import parse_targets

DEBIAN = "Debian|Debian|bookworm|main|http://mirror.invalid/debian/"
SECURITY = "Debian|Debian-Security|bookworm-security|main|http://mirror.invalid/debian-security/"
VENDOR = "Vendor|Vendor|bookworm|main|http://vendor.invalid/linux/debian/"
UNREAD = "||bookworm|main|http://mirror.invalid/proxy/debian/"
UNREAD_SECURITY = "$(ORIGIN)|$(LABEL)|bookworm-security|main|http://mirror.invalid/proxy/debian-security/"


@pytest.mark.parametrize(
    ("lines", "archive", "security"),
    [
        pytest.param(
            [DEBIAN, SECURITY],
            "http://mirror.invalid/debian",
            "http://mirror.invalid/debian-security",
            id="plain",
        ),
        pytest.param(
            [VENDOR, SECURITY, DEBIAN],
            "http://mirror.invalid/debian",
            "http://mirror.invalid/debian-security",
            id="a vendor's repository that looks like Debian's comes first",
        ),
        pytest.param(
            [UNREAD, UNREAD_SECURITY],
            "http://mirror.invalid/proxy/debian",
            "http://mirror.invalid/proxy/debian-security",
            id="lists were never fetched",
        ),
        pytest.param(
            [DEBIAN.replace("bookworm", "bookworm-backports").replace("/debian/", "/other/"), DEBIAN, SECURITY],
            "http://mirror.invalid/debian",
            "http://mirror.invalid/debian-security",
            id="backports are not the archive",
        ),
    ],
)
def test_mirrors_are_debians_own(lines: list[str], archive: str, security: str) -> None:
    found = parse_targets("\n".join(lines))
    assert (found.archive, found.security) == (archive, security)


@pytest.mark.parametrize(
    ("lines", "missing"),
    [
        pytest.param([], "no Debian mirror", id="nothing configured"),
        pytest.param([VENDOR], "no Debian mirror", id="only a vendor"),
        pytest.param([DEBIAN], "security", id="no security updates"),
    ],
)
def test_a_missing_mirror_is_one_clear_line(lines: list[str], missing: str) -> None:
    with pytest.raises(MirrorError, match=missing):
        parse_targets("\n".join(lines))


def test_sources_of_a_suite_cover_updates_and_security() -> None:
    lines = parse_targets(f"{DEBIAN}\n{SECURITY}").source_lines("trixie")
    assert [line.split("] ")[1].split()[:2] for line in lines] == [
        ["http://mirror.invalid/debian", "trixie"],
        ["http://mirror.invalid/debian", "trixie-updates"],
        ["http://mirror.invalid/debian-security", "trixie-security"],
    ]
