"""Builds signed rpm repositories and the first rpm database of a system: ``inside.py CONFIG``, in its own namespaces.

rpmbuild, rpmsign, createrepo_c, gpg and rpm are Debian's, in an overlay of a tree that has them. The key is made for
this build and forgotten; only its public half stays beside the repositories.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

BUSY_S = 10.0
OWNER = "grapnel laboratory <lab@grapnel.invalid>"
ENVIRONMENT = {"LC_ALL": "C.UTF-8", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "GNUPGHOME": "/root/gpg"}
MACROS = """\
%_dbpath /var/lib/rpm
%_topdir /root/rpmbuild
%__gpg /usr/bin/gpg
%_gpg_path /root/gpg
%_gpg_name lab@grapnel.invalid
%_gpg_sign_cmd_extra_args --pinentry-mode loopback
"""
# A node of another system has no apt: what looks for one must not find Debian's.
HIDDEN = (
    "usr/bin/apt*",
    "usr/bin/dpkg*",
    "usr/lib/python3/dist-packages/apt*",
    "var/lib/dpkg",
    "etc/apt",
    "etc/debian_version",
)


def main(config_path: str) -> int:
    """Build, sign, index; install the first packages; leave both in the folder."""
    config = json.loads(Path(config_path).read_text())
    folder = Path(config["folder"])
    root = folder / "root"
    _overlay(config, "build")
    (root / "etc/rpm").mkdir(exist_ok=True)
    (root / "etc/rpm/macros").write_text(MACROS)
    (root / "work").mkdir()
    _mount("--bind", str(folder / "stage"), str(root / "work"))
    _chroot(root, "install", "-d", "-m", "700", "/root/gpg")
    _chroot(root, *_gpg("--passphrase", "", "--quick-generate-key", OWNER, "rsa2048", "sign", "never"))
    _chroot(root, *_gpg("--armor", "--output", "/work/out/signing-key.asc", "--export"))
    for repository in config["repositories"]:
        _build(root, repository)
    _chroot(root, "gpgconf", "--kill", "all")
    _umount(root, "work", "proc", "dev", "")
    _install(config, folder, root)
    return 0


def _build(root: Path, name: str) -> None:
    """Build the packages of every spec file of one repository, in one go."""
    specs = [f"/work/specs/{name}/{spec.name}" for spec in sorted((root / "work/specs" / name).iterdir())]
    for spec in specs:
        _chroot(root, "rpmbuild", "--quiet", "-bb", "--define", f"_rpmdir /work/out/{name}", spec)
    rpms = [f"/{path.relative_to(root)}" for path in (root / "work/out" / name).rglob("*.rpm")]
    _chroot(root, "rpmsign", "--addsign", *rpms)
    _chroot(root, "createrepo_c", "--quiet", f"/work/out/{name}")
    modules = f"/work/specs/{name}.modules.yaml"
    if (root / modules.lstrip("/")).exists():
        command = ("modifyrepo_c", "--mdtype=modules", modules, f"/work/out/{name}/repodata")
        _chroot(root, *command, stdout=subprocess.DEVNULL)
    _chroot(root, *_gpg("--armor", "--detach-sign", f"/work/out/{name}/repodata/repomd.xml"))


def _install(config: dict[str, object], folder: Path, root: Path) -> None:
    """Put what the system has from the start into a layer of its own."""
    _overlay(config, "system")
    (root / "etc/rpm").mkdir(exist_ok=True)
    (root / "etc/rpm/macros").write_text(MACROS.splitlines(keepends=True)[0])
    (root / "work").mkdir()
    _mount("--bind", str(folder / "stage"), str(root / "work"))
    wanted = tuple(f"{name}-" for name in config["first"])  # type: ignore[attr-defined]  # a list of names
    rpms = [path for path in (root / "work/out/base").rglob("*.rpm") if _name(path.name) in wanted]
    _chroot(root, "rpm", "--import", "/work/out/signing-key.asc")
    _chroot(root, "rpm", "--force-debian", "--install", *(f"/{path.relative_to(root)}" for path in rpms))
    _umount(root, "work", "proc", "dev")
    (root / "work").rmdir()
    for pattern in HIDDEN:
        for path in root.glob(pattern):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    _umount(root, "")


def _name(file: str) -> str:
    return file.rsplit("-", 2)[0] + "-"


def _overlay(config: dict[str, object], name: str) -> None:
    folder = Path(str(config["folder"]))
    root, upper, work = folder / "root", folder / name, folder / f"{name}.work"
    for path in (root, upper, work):
        path.mkdir(exist_ok=True)
    upper.chmod(0o755)
    lower = ":".join(config["lower"])  # type: ignore[arg-type]  # a list of paths
    _mount("-t", "overlay", "sources", "-o", f"lowerdir={lower},upperdir={upper},workdir={work}", str(root))
    _mount("--bind", "/dev", str(root / "dev"))
    _mount("-t", "proc", "proc", str(root / "proc"))


def _gpg(*arguments: str) -> tuple[str, ...]:
    return ("gpg", "--batch", "--quiet", "--pinentry-mode", "loopback", *arguments)


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def _umount(root: Path, *places: str) -> None:
    """Unmount; what is busy for a moment, as while gpg's agent ends, is tried again."""
    for place in places:
        deadline = time.monotonic() + BUSY_S
        while subprocess.run(["umount", str(root / place)], check=False).returncode:
            if time.monotonic() > deadline:
                raise SystemExit(f"{root / place} stays busy")
            time.sleep(0.1)


def _chroot(root: Path, *command: str, stdout: int | None = None) -> None:
    argv = ["chroot", str(root), *command]
    subprocess.run(argv, check=True, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=stdout)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
