"""A node in a folder, as declared, with programs that answer for it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plugin.drift.host import Host

if TYPE_CHECKING:
    from pathlib import Path

NOW, BOOTED = 1_777_615_920, 1_777_600_000
DIGEST = "ab" * 32
CONTENT = "options nvidia NVreg_EnableGpuFirmware=0\n"
FILE = "/etc/modprobe.d/grapnel-nvidia.conf"
VERSION = "550.163.01-2"
DPKG = f"dpkg\t1.21.22\tinstall\tinstalled\tamd64\nlibcuda1\t{VERSION}\thold\tinstalled\tamd64\n"
UNIT = (
    "Id={name}\nLoadState=loaded\nActiveState={active}\nUnitFileState={enabled}\nStateChangeTimestampMonotonic={at}\n"
)


def unit(name: str, active: str = "active", enabled: str = "enabled", at: int = 5_000_000) -> str:
    return UNIT.format(name=name, active=active, enabled=enabled, at=at)


@dataclass
class Node:
    """Below `root`; `packages` and `units` are what the programs print, None for what does not answer."""

    root: Path
    packages: str = DPKG
    units: str = "\n".join((unit("containerd.service"), unit("grapnel-drift.timer")))
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.write(FILE, CONTENT)
        self.write("/sys/module/nvidia/version", "550.163.01\n")
        self.write("/usr/lib/grapnel/hook/RELEASE", f"{DIGEST}\n")
        self.declare()

    @property
    def record(self) -> Path:
        return self.root / "etc/grapnel/declared.json"

    def write(self, path: str, text: str) -> Path:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        place.chmod(0o644)
        return place

    def declare(self, **changes: object) -> None:
        sha256 = hashlib.sha256(CONTENT.encode()).hexdigest()
        document = {
            "schema": "grapnel.dev/declared/v1alpha1",
            "node": "n17",
            "manager": "apt",
            "packages": [{"name": "libcuda1", "version": VERSION, "hold": True}],
            "files": [{"path": FILE, "sha256": sha256, "mode": "0644"}],
            "units": ["containerd.service", "grapnel-drift.timer"],
            "module": "550.163.01",
            "software": {"hook": DIGEST},
        }
        self.write("/etc/grapnel/declared.json", json.dumps({**document, **changes}))

    def host(self) -> Host:
        return Host(self.root, self._ask, clock=lambda: float(NOW - BOOTED), now=lambda: float(NOW))

    def _ask(self, command: tuple[str, ...]) -> str:
        self.asked.append(command)
        return self.units if command[0].endswith("systemctl") else self.packages
