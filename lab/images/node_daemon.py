"""Builds an image of this checkout's node daemon: the node payload, with Debian's Python, shell and setpriv.

It is for tests. Everything but the payload is taken from the base tree of nodes, which is there already.
"""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lab.images.layout import image_archive
from lab.trees.build import ensure

if TYPE_CHECKING:
    from collections.abc import Iterator

REFERENCE: Final = "docker.io/local/grapnel-node:1"
SUITE: Final = "trixie"
PYTHON: Final = "3.13"  # of that suite
HOME: Final = "usr/lib/grapnel/node"
_PROGRAMS: Final = ("cat", "dash", "python3", f"python{PYTHON}", "setpriv", "sh", "sleep", "test")
_LIBRARIES: Final = "usr/lib/x86_64-linux-gnu"
_LEFT_OUT: Final = frozenset({"ensurepip", "idlelib", "lib2to3", "test", "tkinter", "turtledemo", "__pycache__"})
_MERGED: Final = ("bin", "sbin", "lib", "lib64")
_FOLDERS: Final = (
    *("dev", "proc", "sys", "tmp", "run/grapnel", "host/usr", "etc/grapnel", "var/lib/grapnel/node"),
    *("var/lib/grapnel/drift", "var/lib/kubelet/device-plugins", "var/lib/kubelet/plugins_registry"),
    *("var/lib/kubelet/pod-resources", "var/log/pods", "var/log/containers"),
)


def build(folder: Path, payload: Path) -> Path:
    """Return the archive of an image for `ctr images import`, in ``folder``; ``payload`` is the folder of a payload."""
    tree, layer = ensure(SUITE), io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as packed:
        for name in _MERGED:
            _link(packed, name, f"usr/{name}")
        for name in _FOLDERS:
            _folder(packed, name)
        for path in _files(tree):
            packed.add(path, str(path.relative_to(tree)), filter=_plain)
        _unpack(packed, payload)
        _link(packed, "usr/bin/grapnel-node", f"/{HOME}/grapnel-node")
    archive = folder / "grapnel-node.tar"
    archive.write_bytes(image_archive(REFERENCE, layer.getvalue(), {"Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]}))
    return archive


def _files(tree: Path) -> Iterator[Path]:
    yield from (tree / "usr/bin" / name for name in _PROGRAMS)
    yield from (tree / "usr/lib64").iterdir()
    yield from sorted(each for each in (tree / _LIBRARIES).iterdir() if ".so" in each.name and not each.is_dir())
    yield tree / "usr/lib" / f"python{PYTHON}"
    yield from (tree / "etc" / name for name in ("ld.so.cache", "passwd", "group"))


def _unpack(packed: tarfile.TarFile, payload: Path) -> None:
    """Put the daemon where nodes have it."""
    name = json.loads((payload / "manifest.json").read_text())["node"][PYTHON]["name"]
    with tarfile.open(payload / name) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isreg() else None
            member.name = f"{HOME}/{member.name}"
            packed.addfile(member, content)


def _link(packed: tarfile.TarFile, name: str, target: str) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    packed.addfile(member)


def _folder(packed: tarfile.TarFile, name: str) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
    packed.addfile(member)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Return a member as root's, None for one that the daemon never needs."""
    if _LEFT_OUT & set(Path(member.name).parts):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
