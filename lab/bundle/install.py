"""Installs packages into an overlay of a tree: ``install.py CONFIG``, in its own mount and PID namespaces.

The changes end up in the folder ``upper``, without apt's lists and caches. No service is started, because nothing runs
in the tree.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = "deb [signed-by=/srv/bundle/{key}] file:/srv/bundle ./\n"
OPTIONS = (
    "Dir::Etc::SourceList=/srv/sources.list", "Dir::Etc::SourceParts=/srv/none",
    "APT::Install-Recommends=false", "Acquire::Languages=none", "APT::Sandbox::User=root",
    "Dpkg::Options::=--force-confold", "Dpkg::Options::=--force-unsafe-io",
)  # fmt: skip
LEFT_BEHIND = ("srv", "usr/sbin/policy-rc.d", "var/lib/apt/lists", "var/cache/apt", "var/log/apt", "tmp")


def main(config_path: str) -> int:
    """Mount, install, tidy up."""
    config = json.loads(Path(config_path).read_text())
    root, upper, work = (Path(config["folder"], name) for name in ("root", "upper", "work"))
    _mount("-t", "overlay", "layer", "-o", f"lowerdir={config['tree']},upperdir={upper},workdir={work}", str(root))
    (root / "srv/bundle").mkdir()
    (root / "srv/sources.list").write_text(SOURCE.format(key=config["key"]))
    if "initramfs-tools" in config["packages"]:
        keep_initramfs_small(root)
    policy = root / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    _mount("--bind", config["bundle"], str(root / "srv/bundle"))
    _mount("--bind", "/dev", str(root / "dev"))
    _mount("-t", "proc", "proc", str(root / "proc"))
    _apt(root, "update")
    _apt(root, "install", *config["packages"])
    for place in ("proc", "dev", "srv/bundle", ""):
        subprocess.run(["umount", str(root / place)], check=True)
    for name in LEFT_BEHIND:
        path = upper / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    return 0


def keep_initramfs_small(root: Path) -> None:
    """Leave modules out of it: nothing boots from one, and to pack them takes ten seconds, twice here alone."""
    settings = root / "etc/initramfs-tools/conf.d"
    settings.mkdir(parents=True)
    (settings / "lab").write_text("MODULES=list\n")


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def _apt(root: Path, *arguments: str) -> None:
    options = [word for option in OPTIONS for word in ("-o", option)]
    environment = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    command = ["chroot", str(root), "apt-get", "-qq", "-y", *options, *arguments]
    subprocess.run(command, check=True, env=environment, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
