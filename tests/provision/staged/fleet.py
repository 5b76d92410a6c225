"""An operator's folder whose machines are staged: declaration, inventory, and `grapnel` as processes of their own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.provision.staged.grapnel import FOLDER
from tests.provision.staged.machines import Machine, Machines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

ROOT: Final = Path(__file__).parents[3]
OLD, NEW = "535.261.03", "550.163.01"
PERSON: Final = "ada"
TIMEOUT_S: Final = 90.0
POLL_S: Final = 0.05
NO_KUBELET: Final = {"runtime": {"enabled": False}, "plugin": {"enabled": False}}


@dataclass
class Fleet:
    """One inventory with its declaration; ``environment`` is added to that of each command."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def machines(self) -> Machines:
        """The machines, all of them with names of the inventory."""
        return Machines(self.folder)

    @property
    def state_file(self) -> Path:
        """The state file of the inventory, once there is one."""
        (found,) = (path for path in self.folder.glob("state/grapnel/node-state-*.json") if _is_state_file(path))
        return found

    def lay_out(self, hosts: Mapping[str, str], groups: Mapping[str, Mapping[str, Any]], **sections: object) -> None:
        """Write an inventory of ``hosts``, by name with their addresses, and machines that have the old driver.

        ``groups`` are the inventory's. ``sections`` are those of the declaration, which asks for the new driver.
        """
        nodes = {name: {"ansible_host": address} for name, address in hosts.items()}
        inventory = {"all": {"hosts": nodes, "children": groups}}
        self.folder.joinpath("inventory.yaml").write_text(json.dumps(inventory))
        for name in hosts:
            self.machines.make(name, Machine([OLD]))
        self.declare(NEW, **sections)

    def declare(self, version: str, **sections: object) -> None:
        """Write the declaration."""
        spec = {"driver": {"version": version, "kernelModule": "none"}, **sections}
        declaration = {"apiVersion": "grapnel.dev/v1alpha1", "kind": "GpuStack", "spec": spec}
        self.folder.joinpath("grapnel.yaml").write_text(json.dumps(declaration))

    def call(self, verb: str, *words: str, code: int | None = 0, **environment: str) -> str:
        """Run a verb to its end, hold it to an exit code, and return what it wrote, its white space made one blank."""
        done = subprocess.run(
            self.command(verb, *words),
            cwd=self.folder,
            env=self.environ(**environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert code is None or done.returncode == code, (done.returncode, done.stdout)
        return " ".join(done.stdout.split())

    def status(self) -> dict[str, Any]:
        """Return what `grapnel status --json` says."""
        done = subprocess.run(
            self.command("status", "--json"),
            cwd=self.folder,
            env=self.environ(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.stdout, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def states(self) -> dict[str, str]:
        """Return the state of each node, as `grapnel status` has it."""
        return {node["name"]: node["state"] for node in self.status()["nodes"]}

    def reasons(self) -> dict[str, str]:
        """Return why each node waits, as `grapnel status` has it."""
        return {node["name"]: node["reason"] for node in self.status()["nodes"]}

    @contextlib.contextmanager
    def running(self, verb: str, *words: str) -> Iterator[Running]:
        """Run a verb beside the test; what is left of it at the end is killed."""
        path = self.folder / f"output-{time.monotonic_ns()}"
        with (
            path.open("w") as output,
            subprocess.Popen(
                self.command(verb, *words),
                cwd=self.folder,
                env=self.environ(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            ) as process,
        ):
            try:
                yield Running(process, path)
            finally:
                process.kill()

    def command(self, verb: str, *words: str) -> list[str]:
        """Return the command line of a verb."""
        return [sys.executable, "-P", "-m", "tests.provision.staged.grapnel", verb, *words]

    def environ(self, **more: str) -> dict[str, str]:
        """Return the environment of a person who has this folder and nothing else."""
        own = {
            "PYTHONPATH": str(ROOT),
            FOLDER: str(self.folder),
            "HOME": str(self.folder),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "USER": PERSON,
            "KUBECONFIG": "",
            "COLUMNS": "400",
        }
        return {**os.environ, **own, **self.environment, **more}


def _is_state_file(path: Path) -> bool:
    return "nodes" in json.loads(path.read_text())


@dataclass
class Running:
    """A verb at work."""

    process: subprocess.Popen[str]
    path: Path

    @property
    def output(self) -> str:
        """What it has written so far, its white space made one blank."""
        return " ".join(self.path.read_text().split())

    def says(self, words: str) -> None:
        """Wait until it has written something."""
        self.until(lambda: words in self.output, words)

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        """Wait for something that happens while it is at work."""
        deadline = time.monotonic() + TIMEOUT_S
        while not is_so():
            assert self.process.poll() is None or is_so(), f"ended before: {what}\n{self.path.read_text()}"
            assert time.monotonic() < deadline, f"waited in vain: {what}\n{self.path.read_text()}"
            time.sleep(POLL_S)

    def end(self, code: int = 0) -> str:
        """Wait for its end, hold it to an exit code, and return all that it wrote."""
        found = self.process.wait(TIMEOUT_S)
        assert found == code, (found, self.path.read_text())
        return self.output
