"""Finds the machine's Go and checks that it is new enough."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab.golang.errors import GolangError
from lab.machine.command import follow
from lab.machine.errors import CommandError

if TYPE_CHECKING:
    from pathlib import Path

    from lab.golang.programs import Program

ASK_TIMEOUT_S = 600.0  # the first call may download a toolchain
NUMBERS = re.compile(r"go(\d+(?:\.\d+)*)")
# From this version on Go fetches the release that a go.mod requires, unless GOTOOLCHAIN=local forbids it, as some
# distributions and container images do. Debian 12's package (1.19) is too old for that.
SWITCHING = "1.21"
INSTALL_HINT = (
    "install Go {wanted} or newer and put its bin folder on PATH; a Go from {switching} on (Debian 13: apt-get install"
    " golang-go) fetches that by itself with GOTOOLCHAIN=auto in the environment"
)


@dataclass(frozen=True)
class Toolchain:
    """A Go that is new enough: its program, its own version and the architecture that it builds for."""

    go: str
    version: str
    architecture: str


def find_toolchain(program: Program, folder: Path) -> Toolchain:
    """Return the Go that builds ``program``, whose go.mod is in ``folder``. Raises GolangError.

    It is queried inside the folder, where a Go that may switch toolchains reports the one it switches to.
    """
    wanted = program.go_version
    go = find_go(program.title, wanted)
    answer: list[str] = []
    try:
        follow(
            [go, "env", "GOVERSION", "GOARCH"], answer.append, timeout_s=ASK_TIMEOUT_S, cwd=folder, env=environment()
        )
    except CommandError as error:
        raise GolangError(f"{go} cannot become Go {wanted}, which {program.title} needs", hint=error.hint) from error
    version, architecture = [*(line for line in answer if not line.startswith("go: ")), "", ""][:2]
    if is_older(version, wanted):
        raise GolangError(f"{go} is {version}: {program.title} needs {wanted} or newer", hint=_hint(wanted))
    return Toolchain(go, version, architecture)


def find_go(title: str, wanted: str = SWITCHING) -> str:
    """Return the path of `go`. Raises GolangError, which names the Go that ``title`` needs."""
    go = shutil.which("go")
    if go is None:
        raise GolangError(f"go is not on PATH: {title} is built from source", hint=_hint(wanted))
    return go


def _hint(wanted: str) -> str:
    return INSTALL_HINT.format(wanted=wanted, switching=SWITCHING)


def is_older(found: str, wanted: str) -> bool:
    """Whether a GOVERSION (``go1.26.8``, ``go1.27rc1``) is before ``1.26.8``; development versions have no number."""
    match = NUMBERS.match(found)
    return match is not None and _numbers(match[1]) < _numbers(wanted)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def environment(*, has_c: bool = False) -> dict[str, str]:
    """Return the environment of go on top of the user's settings (proxy, checksum database, module cache).

    Static programs run on every node; the user's workspaces and targets must not affect the result.
    """
    return {
        "CGO_ENABLED": str(int(has_c)),
        "GOOS": "linux",
        "GOARCH": "",
        "GOWORK": "off",
        "GO111MODULE": "on",
        "GOFLAGS": "",
    }
