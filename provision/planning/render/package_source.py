"""Renders the files by which a package manager knows a source of packages: deb822 of apt, repositories of dnf, zypper.

A source of grapnel's is called ``grapnel-NAME`` in all its files.
"""

from __future__ import annotations

from typing import Final

_HEADER: Final = "# managed by grapnel: the next apply puts back what is changed here"
_REPO_FOLDERS: Final = {"dnf": "/etc/yum.repos.d", "zypper": "/etc/zypp/repos.d"}


def apt_key_path(name: str) -> str:
    """Return where the key of a source is for apt."""
    return f"/etc/apt/keyrings/grapnel-{name}.asc"


def apt_source_path(name: str) -> str:
    """Return the file that tells apt of a source."""
    return f"/etc/apt/sources.list.d/grapnel-{name}.sources"


def rpm_key_path(name: str) -> str:
    """Return where the key of a source is for dnf and zypper."""
    return f"/etc/pki/rpm-gpg/RPM-GPG-KEY-grapnel-{name}"


def repo_path(manager: str, name: str) -> str:
    """Return the file that tells dnf or zypper of a source."""
    return f"{_REPO_FOLDERS[manager]}/grapnel-{name}.repo"


def render_deb822(*, url: str, suites: str, components: str, key_path: str) -> str:
    """Return a source for apt (sources.list(5)); one without components is flat, and its suite a folder."""
    lines = [_HEADER, "Types: deb", f"URIs: {url}", f"Suites: {suites}", f"Signed-By: {key_path}"]
    if components:
        lines.insert(4, f"Components: {components}")
    return "\n".join([*lines, ""])


def render_repo(manager: str, name: str, title: str, url: str) -> str:
    """Return a source for dnf or zypper (dnf.conf(5), zypper(8)).

    ``module_hotfixes`` stays off: it would hide the streams by which branches of a driver are told apart.
    """
    lines = [
        _HEADER,
        f"[grapnel-{name}]",
        f"name={title}",
        f"baseurl={url}",
        "enabled=1",
        "gpgcheck=1",
        f"gpgkey=file://{rpm_key_path(name)}",
    ]
    if manager == "zypper":
        lines += ["type=rpm-md", "autorefresh=1", "pkg_gpgcheck=1"]
    return "\n".join([*lines, ""])
