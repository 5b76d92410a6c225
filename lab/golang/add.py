"""Adds a version of Kubernetes: writes its go.mod and go.sum, for review and commit.

Kubernetes' own module replaces its staging modules by local folders, so it cannot be required as is: our main
module replaces each of them by its published version, v0.N.P for Kubernetes v1.N.P.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from lab.golang.errors import GolangError
from lab.golang.programs import MODULES
from lab.golang.toolchain import environment, find_go
from lab.machine.command import run
from lab.machine.errors import CommandError
from lab.machine.folders import write_atomic

if TYPE_CHECKING:
    from collections.abc import Callable

RELEASE = re.compile(r"1\.(\d+\.\d+)")
STAGED = re.compile(r"^\s*(\S+) => \./staging/", re.MULTILINE)
ETCD = re.compile(r"^\s*go\.etcd\.io/etcd/client/v3 (\S+)", re.MULTILINE)  # client and server are released together
GO = re.compile(r"^go \S+$", re.MULTILINE)
TIMEOUT_S = 1800.0


def add_kubernetes(version: str, say: Callable[[str], None], modules: Path = MODULES) -> Path:
    """Write go.mod and go.sum of that version and return their folder (downloads a few hundred modules)."""
    if not RELEASE.fullmatch(version):
        raise GolangError(f"{version} is not a release of Kubernetes", hint="releases look like 1.36.3")
    home = modules / "kubernetes"
    with tempfile.TemporaryDirectory(prefix="gn-golang-") as scratch:
        shutil.copy(home / "main.go", scratch)
        say(f"resolving the modules of Kubernetes {version}")
        try:
            _resolve(version, Path(scratch))
        except CommandError as error:
            raise GolangError(f"Kubernetes {version} cannot be added", hint=error.hint) from error
        for name in ("go.sum", "go.mod"):  # in this order: a version counts as known once its go.mod exists
            write_atomic(home / version / name, Path(scratch, name).read_text())
    return home / version


def _resolve(version: str, folder: Path) -> None:
    """Write go.mod and go.sum next to main.go; every hash is checked against the checksum database."""
    go = find_go(f"Kubernetes {version}")

    def ask(*arguments: str) -> str:
        return run([go, "-C", str(folder), *arguments], timeout_s=TIMEOUT_S, env=environment()).stdout

    published = json.loads(ask("mod", "download", "-json", f"k8s.io/kubernetes@v{version}"))
    (folder / "go.mod").write_text(render_go_mod(version, Path(published["GoMod"]).read_text()))
    # -e: tests of dependencies may need unpublished modules; `go list` reports what the program itself lacks.
    ask("mod", "tidy", "-e")
    ask("list", "-mod=readonly", "-deps", ".")


def render_go_mod(version: str, kubernetes: str) -> str:
    """Return our main module's go.mod before `go mod tidy`, from the go.mod of Kubernetes itself."""
    go, etcd, staged = GO.search(kubernetes), ETCD.search(kubernetes), STAGED.findall(kubernetes)
    if not (go and etcd and staged):
        raise GolangError(
            f"the go.mod of Kubernetes {version} has no go, etcd or staging line", hint="see lab/golang/add.py"
        )
    staging = f"v0.{version.removeprefix('1.')}"
    lines = ["module hyper", "", go[0], ""]
    lines += [f"replace {module} => {module} {staging}" for module in staged]
    lines += ["", "require (", f"\tgo.etcd.io/etcd/server/v3 {etcd[1]}", f"\tk8s.io/kubernetes v{version}", ")"]
    return "\n".join(lines) + "\n"
