"""A fleet without machines: every node is a fake Python that returns recorded answers, or those of an attack.

Ansible runs them with its local connection, so that its workers, its strategy and its callbacks are the real ones and
dozens of nodes cost seconds; ssh, systemd and apt are what the booted nodes of ``test_nodes.py`` are for.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.attack import hostile_python
from tests.attack.attacks import HONEST, PWNED, SECRET
from tests.journey.conftest import ROOT, Controller

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterable, Mapping

    from tests.attack.attacks import Attack

SAMPLE = ROOT / "docs/contracts/node-facts/good/configured-trixie.json"
SITE_MARK = "/var/lib/grapnel/site-upgrade"
# What reaches a terminal: a line feed is all that may, no other control character of one byte or two, and nothing that
# changes the order of what is read.
CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def recorded(hostname: str) -> dict[str, Any]:
    """Return an honest answer of the facts module."""
    facts = json.loads(SAMPLE.read_text())
    facts["node"]["hostname"] = hostname
    facts["files"][SITE_MARK] = None
    return {"changed": False, "facts": facts}


def name_of(attack: Attack) -> str:
    """Return the name of the attack's node in the inventory."""
    return re.sub(r"[^a-z0-9]+", "-", attack.name.lower())


@dataclass
class StandIns:
    """Nodes in ``controller.folder``, and the honest one among them."""

    controller: Controller
    names: list[str] = field(default_factory=list)
    machines: dict[str, dict[str, object]] = field(default_factory=dict)  # others, reached by ssh

    @property
    def pwned(self) -> Path:
        """The marker that exists if an attack on the controller succeeded."""
        return self.controller.folder / "pwned"

    @property
    def secret(self) -> Path:
        """A file that only the controller's user may read."""
        return self.controller.folder / "secret"

    def prepare(
        self,
        attacks: Iterable[Attack],
        honest: Mapping[str, object] | None = None,
        others: Mapping[str, Mapping[str, object]] | None = None,
    ) -> None:
        """Make the honest node, others that are honest too, and one for each attack, and their inventory.

        ``honest`` are the first one's answers by module, ``others`` those of the others by name.
        """
        self.secret.write_text("the controller's own\n")
        self.secret.chmod(0o600)
        self._add(HONEST, {}, honest or {})
        for name, answers in (others or {}).items():
            self._add(name, {}, answers)
        for attack in attacks:
            self._add(name_of(attack), attack.to_json(), {})
        hosts = {name: self._variables(name) for name in self.names} | self.machines
        inventory = {"gpu_nodes": {"hosts": hosts}}
        self.controller.folder.joinpath("inventory.yaml").write_text(json.dumps(inventory))

    def _variables(self, name: str) -> dict[str, str]:
        python = str(self._folder(name) / "python3")
        return {
            "ansible_connection": "local",
            "ansible_python_interpreter": python,
            "ansible_python3_interpreter": python,
        }

    def _folder(self, name: str) -> Path:
        return self.controller.folder / "nodes" / name

    def _add(self, name: str, attack: dict[str, object], answers: Mapping[str, object]) -> None:
        folder = self._folder(name)
        folder.mkdir(parents=True)
        program = folder / "python3"
        shutil.copy(Path(hostile_python.__file__), program)
        program.chmod(0o755)
        self._write(name, attack, answers)
        self.names.append(name)

    def answers(self, honest: Mapping[str, object]) -> None:
        """Have the honest node answer otherwise."""
        self._write(HONEST, {}, honest)

    def _write(self, name: str, attack: dict[str, object], answers: Mapping[str, object]) -> None:
        folder = self._folder(name)
        own = {"recorded": {"facts": recorded(name), **answers}, "asked": str(folder / "asked")}
        text = json.dumps(attack | own)
        for mark, value in {PWNED: self.pwned, SECRET: self.secret}.items():
            text = text.replace(mark, str(value))
        folder.joinpath("python3.json").write_text(text)

    def asked(self, name: str) -> list[tuple[str, object]]:
        """Return which modules a node was asked to run since the last call, with their parameters."""
        path = self._folder(name) / "asked"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return [(module, json.loads(text or "null")) for module, text in map(json.loads, lines)]

    def grapnel(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run the command line on the fleet."""
        return self.controller.grapnel(*argv)

    def canaries(self) -> dict[str, str]:
        """Return the controller's own files, those that a run may leave behind apart."""
        passing = {".ansible", ".local", "ansible-modules", "nodes"}
        files = (path for path in self.controller.folder.rglob("*") if path.is_file())
        return {
            str(path.relative_to(self.controller.folder)): f"{path.stat().st_mode:o} {path.read_text()}"
            for path in files
            if not passing.intersection(path.relative_to(self.controller.folder).parts)
        }
