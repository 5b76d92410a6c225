"""The tests' side of the arena: what to play, and what came of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.runtime_hook.drivertree import DriverTree

REPOSITORY = Path(__file__).resolve().parents[3]
TIMEOUT_S = 120
ASKED = (
    "NVIDIA_VISIBLE_DEVICES=all",
    "NVIDIA_DRIVER_CAPABILITIES=all",
    "NVIDIA_IMEX_CHANNELS=0,7",
    *(f"NVIDIA_{word}=enabled" for word in ("GDS", "GDRCOPY", "MOFED", "NVSWITCH")),
)
CONTAINER = {
    "process": {"env": list(ASKED)},
    "linux": {"resources": {"devices": [{"allow": True, "access": "rwm"}]}},
}


@dataclass(frozen=True)
class Scene:
    """What stands at a target (or changes places with it), for how many rounds, against which hook ("" is ours).

    ``shares``: the container's root is a mount that the host has as well and hands on to it.
    """

    name: str
    target: str = "the library folder"
    kind: str = ""
    swaps: bool = False
    rounds: int = 1
    files: dict[str, str] = field(default_factory=dict)
    sin: str = ""
    shares: bool = False


@dataclass(frozen=True)
class Round:
    """What one round came to: "done" or "refused" with its reason, and what should not have happened."""

    scene: str
    outcome: str
    text: str
    breaches: list[str]


@dataclass(frozen=True)
class Ground:
    """Where rounds are played: an empty folder, a driver tree, the hook's configuration."""

    world: Path
    driver: DriverTree
    arguments: list[str]

    def play(self, *scenes: Scene) -> list[Round]:
        """Play scenes in a mount namespace of their own."""
        self.world.mkdir(exist_ok=True)
        root = Path(os.path.realpath(self.world))
        job = {
            "world": str(root),
            "driver": str(self.driver.root),
            "config": self.arguments[1],
            "container": CONTAINER,
            "scenes": [asdict(scene) for scene in scenes],
        }
        argv = ["unshare", "--mount", sys.executable, "-P", "-m", "tests.runtime_hook.attack.arena"]
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        done = subprocess.run(
            argv, input=json.dumps(job), capture_output=True, text=True, timeout=TIMEOUT_S, env=environment, check=False
        )
        assert done.returncode == 0, done.stderr
        return [Round(**json.loads(line)) for line in done.stdout.splitlines()]


def breaches(rounds: list[Round]) -> list[str]:
    """Return everything that should not have happened, with the scene that it happened in."""
    return [f"{one.scene}: {breach} ({one.outcome} {one.text})" for one in rounds for breach in one.breaches]
