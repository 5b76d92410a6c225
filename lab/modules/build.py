"""Builds one driver's kernel modules with dkms: ``build.py CONFIG``, in its own mount and PID namespaces.

The module package is unpacked, not installed: its scripts would compress an initial RAM disk twice, for nothing.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ENVIRONMENT = {
    "LC_ALL": "C.UTF-8",
    "PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "KCFLAGS": "-g0",  # dkms strips what it is without
}
COMPILER = Path(__file__).with_name("gcc.sh")
ARCHIVE = "/tmp/built.dkms.tar.gz"  # in a tree of this process's own
LOG_LINES = 40


def main(config_path: str) -> int:
    """Unpack, build, archive; leave the archive in the folder ``out``."""
    config = json.loads(Path(config_path).read_text())
    folder = Path(config["folder"])
    root = folder / "root"
    layers = f"lowerdir={':'.join(config['lower'])},upperdir={folder / 'upper'},workdir={folder / 'work'}"
    _mount("-t", "overlay", "builder", "-o", layers, str(root))
    _mount("--bind", "/dev", str(root / "dev"))
    _mount("-t", "proc", "proc", str(root / "proc"))
    subprocess.run(["dpkg-deb", "--extract", config["package"], str(root)], check=True)
    hurry(root, root / "usr/src" / config["module"].replace("/", "-") / "Kbuild")
    _correct(root, config)
    of = (config["module"], "-k", config["kernel"], "-a", "x86_64")
    _dkms(root, "add", config["module"])
    try:
        _dkms(root, "build", *of)
    except subprocess.CalledProcessError:
        for log in (root / "var/lib/dkms").rglob("make.log"):
            print("\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:]))
        raise
    _dkms(root, "mktarball", *of, "--binaries-only", "--archive", ARCHIVE)
    shutil.copy(root / ARCHIVE.lstrip("/"), folder / "out" / config["file"])
    for place in ("proc", "dev", ""):
        subprocess.run(["umount", str(root / place)], check=True)
    return 0


def hurry(root: Path, makefile: Path) -> None:
    """Take two thirds of the build time away, for the same modules.

    NVIDIA's Kbuild expands the conftest flags recursively, so that make runs gcc again for each of the 300 conftests:
    `:=` expands them once. Most of the rest is spent on reading headers, see ``gcc.sh``. The archive is unpacked again
    at once, so that fast compression does.
    """
    text = makefile.read_text()
    makefile.write_text(text.replace("NV_CONFTEST_CFLAGS =\n", "NV_CONFTEST_CFLAGS :=\n"))
    compiler = root / "usr/local/bin" / (root / "usr/bin/gcc").resolve().name
    compiler.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(COMPILER, compiler)
    compiler.chmod(0o755)
    (root / "etc/dkms/framework.conf.d").mkdir(parents=True, exist_ok=True)
    (root / "etc/dkms/framework.conf.d/quick.conf").write_text('compress_xz_opts="--check=crc32 -0 -T0"\n')


def _correct(root: Path, config: dict[str, Any]) -> None:
    """Apply the correction for these sources, if the kernel's headers are such that they need it."""
    correction = config["correction"]
    common = config["kernel"].rpartition("-")[0]
    if not correction:
        return
    header = root / f"usr/src/linux-headers-{common}-common" / correction["header"]
    if correction["if"] not in header.read_text():
        return
    source = root / "usr/src" / config["module"].replace("/", "-") / correction["file"]
    text = source.read_text()
    if correction["old"] not in text:
        raise SystemExit(f"{source} has nothing to correct")
    source.write_text(text.replace(correction["old"], correction["new"]))


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def _dkms(root: Path, *arguments: str) -> None:
    command = ["chroot", str(root), "dkms", *arguments]
    subprocess.run(command, check=True, env=ENVIRONMENT, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
