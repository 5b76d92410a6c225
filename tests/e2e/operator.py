"""Who runs `grapnel` against the lab's cluster: a folder with declaration and inventory, and a kubeconfig."""

from __future__ import annotations

import subprocess
import textwrap
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.journey.conftest import Controller

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.stage import LabNode

OLD, NEW = "535.261.03", "535.309.01"
APPLY_TIMEOUT_S = 900.0
VERB_TIMEOUT_S = 60.0
PERSON = "ada"
DECLARATION = """\
apiVersion: grapnel.dev/v1alpha1
kind: GpuStack
metadata:
  name: stage
spec:
  driver:
    version: "{version}"
    kernelModule: none
  rollout:
"""
ONE_AT_A_TIME = "maxUnavailable: 1\n"


@dataclass(frozen=True)
class Operator(Controller):
    """`grapnel` as an operator of the cluster runs it."""

    kubeconfig: Path

    def environment(self) -> dict[str, str]:
        """Return the environment of a person whose name is known."""
        return {**super().environment(), "USER": PERSON}

    def declare(self, version: str, rollout: str = ONE_AT_A_TIME) -> None:
        """Write the declaration; ``rollout`` are the keys of that section."""
        text = DECLARATION.format(version=version) + textwrap.indent(rollout, "    ")
        self.folder.joinpath("grapnel.yaml").write_text(text)

    def apply_command(self, *options: str) -> list[str]:
        """Return the command line that brings the fleet to the declaration."""
        return ["grapnel", "apply", "-i", "inventory.yaml", "--yes", "--kubeconfig", str(self.kubeconfig), *options]

    def apply(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Bring the fleet to the declaration."""
        return subprocess.run(
            self.apply_command(*options),
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=APPLY_TIMEOUT_S,
            check=False,
        )

    @contextmanager
    def applying(self, output: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
        """Run an apply that writes to ``output``; one that is left over is ended as by Ctrl-C."""
        with (
            output.open("w") as file,
            subprocess.Popen(
                self.apply_command(*options),
                cwd=self.folder,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                text=True,
            ) as apply,
        ):
            try:
                yield apply
            finally:
                if apply.poll() is None:
                    apply.terminate()

    def status(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Ask how the upgrade stands."""
        return self._call("status", *options)

    def tell(self, verb: str, *words: str) -> str:
        """Have a verb that changes no machine do what it is for; return what it says."""
        done = self._call(verb, *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _call(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["grapnel", verb, "-i", "inventory.yaml", "--kubeconfig", str(self.kubeconfig), *words],
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=VERB_TIMEOUT_S,
            check=False,
        )

    def converge(self, *nodes: LabNode) -> None:
        """Apply to these nodes, without any to all of them, and hold it to success."""
        done = self.apply(*(node.name for node in nodes))
        assert done.returncode == 0, done.stdout
