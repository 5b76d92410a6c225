"""Builds one .deb of a table with dpkg-deb."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.machine.command import run
from lab.sources.content import scripts

if TYPE_CHECKING:
    from pathlib import Path

    from lab.sources.tables import Package

BUILD_TIMEOUT_S = 60.0
SCRIPTS = {"post": "postinst", "preun": "prerm"}
FIELDS = {"requires": "Depends", "provides": "Provides", "conflicts": "Conflicts", "obsoletes": "Replaces"}


def control(package: Package) -> str:
    """Return the control file."""
    lines = [f"Package: {package.name}", f"Version: {package.version}-{package.release}", "Architecture: amd64"]
    if package.source != package.name:
        lines.append(f"Source: {package.source}")
    for name, field in FIELDS.items():
        if values := getattr(package, name):
            lines.append(f"{field}: {', '.join(values)}")
    lines += ["Maintainer: grapnel laboratory <lab@grapnel.invalid>", "Section: restricted/kernel"]
    return "\n".join([*lines, f"Description: stand-in for {package.name}"]) + "\n"


def build(package: Package, staged: Path, folder: Path) -> None:
    """Pack the files in ``staged`` into a package in ``folder``."""
    (staged / "DEBIAN").mkdir()
    (staged / "DEBIAN" / "control").write_text(control(package))
    for name, text in scripts(package).items():
        path = staged / "DEBIAN" / SCRIPTS[name]
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    if settings := sorted(path for path in (staged / "etc").rglob("*") if path.is_file()):
        (staged / "DEBIAN" / "conffiles").write_text("".join(f"/{path.relative_to(staged)}\n" for path in settings))
    file = folder / f"{package.name}_{package.version}-{package.release}_amd64.deb"
    run(
        ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(staged), str(file)],
        timeout_s=BUILD_TIMEOUT_S,
    )
