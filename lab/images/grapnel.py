"""Builds an image of this checkout's controller: Debian's Python and util-linux, the pinned packages, the collection.

It is for tests. The layer is made of the base tree of nodes, which is there already, without what nothing in it needs.
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Final

from lab.images.layout import image_archive
from lab.machine.folders import cache_dir, content_key
from lab.trees.build import ensure

REFERENCE: Final = "docker.io/local/grapnel:1"
SUITE: Final = "trixie"
PYTHON: Final = "3.13"  # of that suite
ROOT: Final = Path(__file__).parents[2]
_REQUIREMENTS: Final = ROOT / "requirements" / "provision.txt"
_HOME: Final = "opt/grapnel"
_LEFT_OUT: Final = tuple(
    f"usr/{name}"
    for name in (
        *("share/doc", "share/locale", "share/man", "share/i18n", "share/perl", "share/bash-completion"),
        *("lib/modules", "lib/firmware", "lib/gcc", "src", "include"),
    )
)
_FOLDERS: Final = ("etc", "proc", "sys", "dev", "run", "root")
_MERGED: Final = ("bin", "sbin", "lib", "lib64")
_OF_ETC: Final = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "passwd", "group", "alternatives", "ssl")
_PROGRAM: Final = f"""\
#!/bin/sh
export PYTHONPATH=/{_HOME}:/{_HOME}/site PATH=/{_HOME}/site/bin:$PATH
exec python3 -P -c 'import sys; from provision.cli import main; sys.exit(main())' "$@"
"""


def build(folder: Path, payload: Path, uv: Path) -> Path:
    """Return the archive of an image for `ctr images import`, in ``folder``.

    The payload lies where it lies here: a controller that runs here names it by that path.
    """
    archive = folder / "grapnel.tar"
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as packed:
        _base(packed, ensure(SUITE))
        packed.add(_site(uv), f"{_HOME}/site", filter=_plain)
        for part in ("provision", "playbooks"):
            packed.add(ROOT / part, f"{_HOME}/{part}", filter=_plain)
        packed.add(payload, str(payload).lstrip("/"), filter=_plain)
        program = tarfile.TarInfo("usr/bin/grapnel")
        program.size, program.mode = len(_PROGRAM), 0o755
        packed.addfile(program, io.BytesIO(_PROGRAM.encode()))
    environment = {"Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]}
    archive.write_bytes(image_archive(REFERENCE, layer.getvalue(), environment))
    return archive


def _base(packed: tarfile.TarFile, tree: Path) -> None:
    for name in _MERGED:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = tarfile.SYMTYPE, f"usr/{name}"
        packed.addfile(member)
    for name in (*_FOLDERS, "tmp"):
        member = tarfile.TarInfo(name)
        member.type, member.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
        packed.addfile(member)
    packed.add(tree / "usr", "usr", filter=_plain)
    for name in _OF_ETC:
        if (tree / "etc" / name).exists():
            packed.add(tree / "etc" / name, f"etc/{name}", filter=_plain)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Return a member as root's, None for one that nothing in the image needs."""
    if "__pycache__" in member.name or any(f"{member.name}/".startswith(f"{name}/") for name in _LEFT_OUT):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _site(uv: Path) -> Path:
    """Return the pinned packages for the image's Python, from the cache."""
    target = cache_dir() / "images" / f"site-{content_key(PYTHON, _REQUIREMENTS.read_bytes())}"
    if target.is_dir():
        return target
    partial = target.with_suffix(f".{os.getpid()}")
    words = ["pip", "install", "--quiet", "--only-binary", ":all:", "--require-hashes", "-r", str(_REQUIREMENTS)]
    platform = ["--python-version", PYTHON, "--python-platform", "x86_64-unknown-linux-gnu"]
    subprocess.run([str(uv), *words, *platform, "--target", str(partial)], check=True)
    for program in (partial / "bin").iterdir():  # they name the Python that uv ran with
        _, _, rest = program.read_bytes().partition(b"\n")
        program.write_bytes(b"#!/usr/bin/python3\n" + rest)
    partial.rename(target)
    return target
