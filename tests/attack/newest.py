"""A controller with the newest ansible-core, which wants a newer Python than a Debian 12 machine has.

Its Python is that of the lab's Debian 13 tree; its libraries are wheels, installed once into the cache by their
hashes. It runs in an overlay of that tree in which this checkout and the operator's folder are where they always are.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lab import trees
from lab.machine.folders import cache_dir
from provision.planning.supply.payload.libraries import CachedLibraries
from tests.journey.conftest import ROOT, TIMEOUT_S, Controller

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PYTHON = "3.13"  # of Debian 13
SITE = "/usr/local/lib/python3.13/dist-packages"  # where that looks for what is no package of Debian's
COMMANDS = {
    "grapnel": "provision.cli",
    "ansible-playbook": "ansible.cli.playbook",
    "ansible-inventory": "ansible.cli.inventory",
}
SCRIPT = "#!/usr/bin/python3\nimport sys\nfrom {module} import main\nsys.exit(main())\n"


def libraries() -> Path:
    """Return the folder of the newest ansible-core and its dependencies."""
    cached = CachedLibraries(ROOT / "requirements/newest.txt", cache_dir() / "libraries", os.environ)
    return cached.site(PYTHON)


@dataclass(frozen=True)
class NewestController(Controller):
    """An operator's folder whose commands run with the newest ansible-core.

    ``places`` are further folders of this machine that they find where they always are.
    """

    places: tuple[Path, ...] = field(default=(), kw_only=True)

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the folder to its end, in a mount namespace of its own."""
        places = {str(each): each for each in (self.folder, ROOT, *self.places)} | {SITE: libraries()}
        root = self.folder / ".root"
        for part in ("upper", "work", "merged"):
            (root / part).mkdir(parents=True, exist_ok=True)
        self._install_commands(root / "upper/usr/local/bin")
        for place in places:
            (root / f"upper{place}").mkdir(parents=True, exist_ok=True)
        script = self._script(root, places, argv)
        return subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-euc", script],
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def environment(self) -> dict[str, str]:
        """Return the environment of a person of that machine."""
        own = {"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8"}
        return {**super().environment(), **own}

    def _install_commands(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, module in COMMANDS.items():
            folder.joinpath(name).write_text(SCRIPT.format(module=module))
            folder.joinpath(name).chmod(0o755)

    def _script(self, root: Path, places: Mapping[str, Path], argv: tuple[str, ...]) -> str:
        merged = root / "merged"
        layers = f"lowerdir={trees.ensure('trixie')},upperdir={root / 'upper'},workdir={root / 'work'}"
        return "\n".join(
            [
                shlex.join(["mount", "-t", "overlay", "grapnel", "-o", layers, str(merged)]),
                *(
                    shlex.join(["mount", "--rbind", str(source), f"{merged}{place}"])
                    for place, source in places.items()
                ),
                *(shlex.join(["mount", "--rbind", place, f"{merged}{place}"]) for place in ("/proc", "/dev")),
                shlex.join(
                    [
                        "exec",
                        "/usr/sbin/chroot",
                        str(merged),
                        "sh",
                        "-c",
                        f"cd {shlex.quote(str(self.folder))} && exec {shlex.join(argv)}",
                    ]
                ),
            ]
        )
