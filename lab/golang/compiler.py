"""Runs `go` to fetch and compile one program in a scratch folder, and reports progress."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lab.golang.toolchain import environment
from lab.machine.command import follow

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.golang.programs import Program
    from lab.golang.toolchain import Toolchain

TIMEOUT_S = 3600.0
SOURCE, MADE, TEMPORARY = "source", "made", "tmp"


@dataclass(frozen=True)
class Compiler:
    """A program, the Go that builds it, an empty scratch folder, and the cache that survives a killed build."""

    program: Program
    toolchain: Toolchain
    scratch: Path
    compiled: Path
    say: Callable[[str], None]

    def prepare(self) -> None:
        """Write the main module; go's temporary files go next to it, so that they are removed with it."""
        for name in (SOURCE, MADE, TEMPORARY):
            (self.scratch / name).mkdir()
        for file in self.program.sources:
            shutil.copy(file, self.scratch / SOURCE)

    def download(self) -> int:
        """Fetch the modules that the build needs, checked against go.sum; return the number of packages."""
        packages = 0

        def read(line: str) -> None:
            nonlocal packages
            if line.startswith("go: "):
                self.say(f"{self.program.title}: {line.removeprefix('go: ')}")
            else:
                packages += 1

        self._go(["list", "-mod=readonly", "-deps", self.program.target], read)
        return packages

    def build(self, packages: int) -> None:
        """Compile and link into the folder `made`; packages that an earlier attempt compiled are not counted."""
        count = 0

        def read(line: str) -> None:
            nonlocal count
            count += 1
            self.say(f"{self.program.title}: {count} of {packages} packages compiled, now {line}")

        output = f"{self.scratch / MADE}/"
        self._go(["build", "-v", *self.program.flags, "-o", output, self.program.target], read)
        for name, module, folder in self.program.beside:
            self._build_c(name, module, folder)

    def _build_c(self, name: str, module: str, folder: str) -> None:
        where: list[str] = []
        self._go(["list", "-m", "-f", "{{.Dir}}", module], where.append)
        sources = sorted(str(path) for path in Path(where[-1], folder).glob("*.c"))
        command = ["cc", "-Os", "-s", "-static", "-o", str(self.scratch / MADE / name), *sources]
        follow(command, self.say, timeout_s=TIMEOUT_S)

    def _go(self, arguments: list[str], read: Callable[[str], None]) -> None:
        env = {**environment(has_c=self.program.has_c), "GOTMPDIR": str(self.scratch / TEMPORARY)}
        if not os.environ.get("GOCACHE"):  # the user's own cache is used, and kept
            env["GOCACHE"] = str(self.compiled)
        follow([self.toolchain.go, *arguments], read, timeout_s=TIMEOUT_S, env=env, cwd=self.scratch / SOURCE)
