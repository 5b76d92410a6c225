"""Reads the kernels that may boot next, and the driver's modules that each of them has.

A driver that has a module for the running kernel alone is gone after the next boot into another one.
"""

from __future__ import annotations

import os
import platform
import posixpath
import re
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.machine.memory import remembered
from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_MODULES = "/lib/modules"
_MAX_KERNELS = 16  # the newest
_MAX_FILES = 16  # of one kernel
_TIMEOUT_S = 180.0  # several compressed modules of 90 MB: seconds on a free machine
_MAX_PARTS = 256  # of a path and the links in it; a loop ends here
_RELEASE = re.compile(r"^[0-9][A-Za-z0-9.+_~-]{0,120}$")
_IMAGES = ("vmlinuz-{}", "vmlinux-{}", "Image-{}", "image-{}")
# Where makers of modules put them (depmod.d(5)): DKMS, RPM's kmod and KMP packages, Ubuntu's prebuilt ones.
_PLACES = ("updates", "extra", "extramodules", "weak-updates", "misc", "kernel/drivers/video", "kernel/drivers/char")
_UBUNTU_PLACE = re.compile(r"^nvidia-")  # kernel/nvidia-550srv
_FILE = re.compile(
    r"^nvidia(-current|-tesla(-[0-9]+)?|-legacy-[0-9]+xx|-[0-9]+(srv|server)?)?(-open)?\.ko(\.(gz|xz|zst))?$"
)
_FIELD = re.compile(r"^(filename|version|license|signer): +(.*)$")
_GRUB_FOLDERS = ("/boot/grub2", "/boot/grub")
_GRUB_DEFAULT = re.compile(r"""^\s*GRUB_DEFAULT=["']?([^"'\n]*)""", re.MULTILINE)
_SAVED = re.compile(r"^saved_entry=(.*)$", re.MULTILINE)
_LINUX = re.compile(r"^\s*linux(?:efi|16)?\s+\S*/(?:vmlinu[xz]|[Ii]mage)-(\S+)", re.MULTILINE)
_NUMBER = re.compile(r"([0-9]+)")


def read_kernels(host: Host) -> list[dict[str, Any]]:
    """Return the facts ``kernels``, the newest first; raises HostError when modules cannot be read in time."""
    running = platform.uname().release
    releases = newest_first(name for name in host.names(_MODULES) if _may_boot(host, name, running))[:_MAX_KERNELS]
    default = find_default(host, releases)
    return [
        {
            "release": release,
            "running": release == running,
            "default": release == default,
            "headers": _has_headers(host, release),
            "modules": _read_modules(host, release),
        }
        for release in releases
    ]


def _may_boot(host: Host, release: str, running: str) -> bool:
    """Tell whether there is a kernel image for a folder of modules; a removed kernel may leave the folder behind."""
    if not _RELEASE.match(release):
        return False
    paths = [f"{_MODULES}/{release}/vmlinuz", *(f"/boot/{image.format(release)}" for image in _IMAGES)]
    return release == running or any(host.path(path).exists() for path in paths)


def newest_first(releases: Iterable[str]) -> list[str]:
    """Return kernel releases in the order in which boot loaders list them."""
    return sorted(releases, key=_version_key, reverse=True)


def _version_key(release: str) -> tuple[tuple[int, int, str], ...]:
    parts = (part for part in _NUMBER.split(release) if part)
    return tuple((1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts)


def find_default(host: Host, releases: list[str]) -> str | None:
    """Return the kernel that the boot loader starts by itself, as far as its files say so; else the newest.

    GRUB's saved entry counts where it is asked to use it (Fedora and its kin, with entries in ``/boot/loader``); else
    its first entry does.
    """
    newest = releases[0] if releases else None
    wanted = _grub_default(host)
    if wanted == "saved":
        texts = (host.read_text(f"{folder}/grubenv") or "" for folder in _GRUB_FOLDERS)
        saved = (match.group(1) for text in texts if (match := _SAVED.search(text)))
        return _named_in(next(saved, ""), releases) or newest
    if wanted not in ("", "0"):
        return _named_in(wanted, releases) or newest
    configs = (host.read_text(f"{folder}/grub.cfg") or "" for folder in _GRUB_FOLDERS)
    first = next((match.group(1) for text in configs if (match := _LINUX.search(text))), "")
    return first if first in releases else newest


def _grub_default(host: Host) -> str:
    match = _GRUB_DEFAULT.search(host.read_text("/etc/default/grub") or "")
    return match.group(1).strip() if match else ""


def _named_in(entry: str, releases: list[str]) -> str | None:
    """Return the release in an entry's name; of 6.1.0-1 and 6.1.0-10 the longer one."""
    return next((release for release in sorted(releases, key=len, reverse=True) if release in entry), None)


def _has_headers(host: Host, release: str) -> bool:
    return host.path(f"{resolve(host, f'{_MODULES}/{release}/build')}/Makefile").is_file()


def resolve(host: Host, path: str) -> str:
    """Follow every link of a path within the machine's root, where /lib may be one itself."""
    done, left = "/", [part for part in path.split("/") if part]
    for _ in range(_MAX_PARTS):
        if not left:
            return done
        part = left.pop(0)
        if part == "..":
            done = posixpath.dirname(done)
            continue
        place = posixpath.join(done, part)
        try:
            target = os.fspath(host.path(place).readlink())
        except OSError:
            done = place
            continue
        done = "/" if target.startswith("/") else done
        left[:0] = [each for each in target.split("/") if each not in ("", ".")]
    return path


def _read_modules(host: Host, release: str) -> list[dict[str, Any]]:
    files = list(_find_files(host, f"{_MODULES}/{release}"))[:_MAX_FILES]
    if not files:
        return []
    places = [host.path(file) for file in files]
    # modinfo unpacks a whole module, and a compressed one is a second of work.
    return remembered(
        host, f"modules-{release}", lambda: places, lambda: _ask(host, places), lambda found: len(found) == len(files)
    )


def _ask(host: Host, places: Sequence[Path]) -> list[dict[str, Any]]:
    shown = host.ask(["modinfo", *map(str, places)], _TIMEOUT_S)
    prefix = str(host.path("/")).rstrip("/")
    return [_describe(record, prefix) for record in _records(shown.stdout)]


def _find_files(host: Host, folder: str) -> Iterator[str]:
    """Yield the driver's own modules; of those in links (weak-updates) only such that lead somewhere."""
    kernel = (f"kernel/{name}" for name in host.names(f"{folder}/kernel") if _UBUNTU_PLACE.match(name))
    for place in (*_PLACES, *kernel):
        top = str(host.path(f"{folder}/{place}"))
        for path, _, names in sorted(os.walk(top)):
            found = (f"{folder}/{place}{path[len(top) :]}/{name}" for name in sorted(names) if _FILE.match(name))
            yield from (file for file in found if host.path(file).exists())


def _records(text: str) -> Iterator[dict[str, str]]:
    """Split what modinfo says about several files: each begins with its name."""
    record: dict[str, str] = {}
    for line in text.splitlines():
        match = _FIELD.match(line)
        if match is None:
            continue
        if match.group(1) == "filename" and record:
            yield record
            record = {}
        record.setdefault(*match.groups())
    if record:
        yield record


def _describe(record: Mapping[str, str], prefix: str) -> dict[str, Any]:
    return {
        "path": record.get("filename", "").removeprefix(prefix) or None,
        "version": record.get("version") or None,
        "flavour": flavour_of(record.get("license", "")),
        "signer": printable(record["signer"]) if record.get("signer") else None,
    }


def flavour_of(license_: str) -> str | None:
    """Tell the flavours apart by the licence that the module declares to the kernel: "Dual MIT/GPL" or "NVIDIA"."""
    if not license_:
        return None
    return "open" if "GPL" in license_ else "proprietary"
