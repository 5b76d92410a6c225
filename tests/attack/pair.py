"""Two booted nodes, one of them with a hostile root, and the operator of both."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.attack import hostile_python
from tests.attack.attacks import HONEST, PWNED, SECRET

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from lab.nodes import Node
    from tests.attack.attacks import Attack
    from tests.journey.conftest import Controller

HOSTILE = "hostile"
PYTHON = "usr/bin/python3"
REAL = "/usr/bin/python3.13"
# What of a node an operator has set up: no file, service or package of it may come to differ for another node's sake.
FINGERPRINT = """
dpkg-query -W; apt-mark showhold
find /etc /usr/lib/grapnel /usr/lib/systemd /root /var/lib/grapnel -xdev -type f ! -path '*/.ansible/*' \\
  -exec sha256sum {} + 2>/dev/null | sort
find /etc /usr/lib/grapnel -xdev -printf '%p %m %u %g\\n' 2>/dev/null | sort
systemctl is-active containerd
"""


@dataclass
class Pair:
    """The hostile and the honest node, and an operator's folder."""

    hostile: Node
    honest: Node
    controller: Controller

    @property
    def pwned(self) -> Path:
        """The marker that exists if an attack on the controller succeeded."""
        return self.controller.folder / "pwned"

    @property
    def secret(self) -> Path:
        """A file that only the controller's user may read."""
        return self.controller.folder / "secret"

    def fingerprint(self) -> str:
        """Return what of the honest node must be the same whatever the hostile one does."""
        return self.honest.run(["sh", "-c", FINGERPRINT], check=False).stdout

    def row(self, done: subprocess.CompletedProcess[str], node: str = HONEST) -> dict[str, object]:
        """Return what ``grapnel plan --json`` has for a node."""
        document = json.loads(done.stdout)
        rows = {row["node"]: row for row in (*document["plans"], *document["failures"])}
        found: dict[str, object] = rows[node]
        return found

    @contextlib.contextmanager
    def attacked(self, attack: Attack) -> Iterator[None]:
        """Put the hostile Python in the place of the node's own, for as long as the context lasts."""
        place = self.hostile.root / PYTHON
        own = place.readlink()
        text = json.dumps({**attack.to_json(), "real": REAL, "asked": ""})
        for mark, value in {PWNED: self.pwned, SECRET: self.secret}.items():
            text = text.replace(mark, str(value))
        place.unlink()
        try:
            program = Path(hostile_python.__file__).read_text().replace("#!/usr/bin/python3\n", f"#!{REAL} -I\n", 1)
            place.write_text(program)
            place.chmod(0o755)
            place.with_name("python3.json").write_text(text)
            yield
        finally:
            place.unlink()
            place.symlink_to(own)

    @contextlib.contextmanager
    def replaced(self, files: dict[str, bytes]) -> Iterator[None]:
        """Write files on the hostile node, and restore them afterwards."""
        before = {path: self._content(path) for path in files}
        try:
            for path, content in files.items():
                self._write(path, content)
            yield
        finally:
            for path, former in before.items():
                self._write(path, former)

    def _content(self, path: str) -> bytes | None:
        place = self.hostile.root / path.lstrip("/")
        return place.read_bytes() if place.exists() else None

    def _write(self, path: str, content: bytes | None) -> None:
        place = self.hostile.root / path.lstrip("/")
        if content is None:
            place.unlink(missing_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
