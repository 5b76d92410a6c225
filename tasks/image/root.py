"""Packs the root of the image as a tar: sorted, owned by root, without times; the same input gives the same bytes.

No path is in it twice: the storage that CRI-O and Podman have in common refuses such a layer ("duplicates of file paths
not supported", of github.com/vbatts/tar-split), while containerd takes it.
"""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from tasks.errors import TaskError
from tasks.image import node

if TYPE_CHECKING:
    from collections.abc import Sequence

HOME: Final = "opt/grapnel"
USER: Final = 65532
# Documents but their licences, translations, and what only an installation would use.
_IN_DOC = 3  # slashes in the name of a package's folder there
_LEFT_OUT: Final = (
    *("usr/share/locale", "usr/share/man", "usr/share/info", "usr/share/perl5", "usr/share/lintian"),
    *("usr/share/bash-completion", "usr/share/debconf", "usr/share/bug", "usr/share/readline"),
    *("usr/share/doc-base", "usr/share/menu", "usr/share/common-licenses/GFDL-1.2", "var/cache", "var/log"),
    *("var/lib/apt", "var/lib/dpkg/info", "boot", "home", "media", "mnt", "srv", "dev", "etc/apt", "etc/cron.daily"),
    *("etc/logrotate.d", "etc/hostname", "etc/resolv.conf", "etc/fstab", "usr/lib/python3.13/test"),
    *("usr/bin/perl", "etc/dpkg", "usr/lib/dpkg", "usr/share/dpkg", "usr/bin/mawk"),
)
_FOLDERS: Final = {"dev": 0o755, "proc": 0o755, "sys": 0o755, "run": 0o755, "tmp": 0o1777, "etc/grapnel": 0o755}
_PASSWD: Final = (
    "root:x:0:0:root:/root:/usr/sbin/nologin\n"
    f"grapnel:x:{USER}:{USER}:grapnel:/tmp:/usr/sbin/nologin\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
)
_GROUP: Final = f"root:x:0:\ngrapnel:x:{USER}:\nnogroup:x:65534:\n"
_CERTIFICATES: Final = "usr/share/ca-certificates/mozilla"


def pack(tree: Path, folders: Sequence[tuple[str, Path]], target: Path) -> None:
    """Write the tar of Debian's tree and of further folders, each with its place in the image.

    Two of them may have a folder in common; raises TaskError for anything else that two of them have.
    """
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as packed:
        layer = _Layer(packed)
        _add_tree(layer, tree, "")
        for place, folder in folders:
            _add_tree(layer, folder, place)
        for name, mode in _FOLDERS.items():
            _add_folder(layer, name, mode)
        for name, text in _texts(tree).items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text), 0o644
            layer.add(member, io.BytesIO(text))
        _add_link(layer, "usr/bin/grapnel", f"/{HOME}/lib/bin/grapnel")
        _add_link(layer, "usr/bin/grapnel-node", f"/{node.HOME}/grapnel-node")
        _add_link(layer, "usr/bin/ansible-playbook", f"/{HOME}/lib/bin/ansible-playbook")


@dataclass(frozen=True)
class _Layer:
    """A tar that gets each path once; ``members`` are those that it has, by name."""

    packed: tarfile.TarFile
    members: dict[str, tarfile.TarInfo] = field(default_factory=dict)

    def add(self, member: tarfile.TarInfo, content: IO[bytes] | None = None) -> None:
        """Add a member, unless it is a folder that is there. Raises TaskError for another one of its name."""
        there = self.members.setdefault(member.name, member)
        if there is member:
            self.packed.addfile(member, content)
        elif not (there.isdir() and member.isdir()):
            raise TaskError(f"the image would have /{member.name} twice")


def _texts(tree: Path) -> dict[str, bytes]:
    """Return what maintainer scripts would have written."""
    certificates = sorted((tree / _CERTIFICATES).glob("*.crt"))
    return {
        "etc/passwd": _PASSWD.encode(),
        "etc/group": _GROUP.encode(),
        "etc/ssl/certs/ca-certificates.crt": b"".join(path.read_bytes() for path in certificates),
        # Any Python of the image finds the packages, without an environment that a host would inherit.
        "usr/lib/python3/dist-packages/grapnel.pth": f"/{HOME}/lib\n".encode(),
    }


def _add_tree(layer: _Layer, folder: Path, prefix: str) -> None:
    for path in sorted(folder.rglob("*")):
        name = str(Path(prefix) / path.relative_to(folder))
        if _is_wanted(name):
            member = layer.packed.gettarinfo(path, name)
            _make_plain(member)
            if member.isreg():
                with path.open("rb") as file:
                    layer.add(member, file)
            else:
                layer.add(member)


def _is_wanted(name: str) -> bool:
    if name in _FOLDERS or any(f"{name}/".startswith(f"{each}/") for each in _LEFT_OUT):
        return False
    return not name.startswith("usr/share/doc/") or name.count("/") == _IN_DOC or name.endswith("/copyright")


def _make_plain(member: tarfile.TarInfo) -> None:
    """Take from a member what depends on when and by whom it was unpacked; a hard link becomes a file of its own."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 0
    member.pax_headers = {}
    if member.islnk():
        member.type = tarfile.REGTYPE


def _add_folder(layer: _Layer, name: str, mode: int) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.mode = tarfile.DIRTYPE, mode
    layer.add(member)


def _add_link(layer: _Layer, name: str, target: str) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    layer.add(member)
