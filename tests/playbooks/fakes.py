"""A machine made of a folder and of commands that answer as they are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ansible_collections.grapnel.node.plugins.module_utils.host import Finished, Host

Answer = Callable[[], "Finished"]


class Machine:
    """Files below ``root``; commands are answered by the longest beginning of their line that was taught."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.calls: list[str] = []
        self._answers: dict[str, Answer] = {}

    @property
    def host(self) -> Host:
        from ansible_collections.grapnel.node.plugins.module_utils.host import Host  # noqa: PLC0415 - see conftest

        return Host(self.root, self._run)

    def write(self, path: str, text: str = "", *, mode: int = 0o644) -> Path:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
        place.chmod(mode)
        return place

    def read(self, path: str) -> str:
        return (self.root / path.lstrip("/")).read_text(encoding="utf-8")

    def teach(self, beginning: str, answer: str | Answer = "", *, return_code: int = 0, stderr: str = "") -> None:
        """Say what a command prints; a function is asked at every call."""
        from ansible_collections.grapnel.node.plugins.module_utils.host import Finished  # noqa: PLC0415 - see above

        fixed = answer if callable(answer) else lambda: Finished(return_code, str(answer), stderr)
        self._answers[beginning] = fixed

    def _run(self, arguments: Sequence[str], timeout_s: float) -> Finished:
        assert timeout_s > 0
        line = " ".join(arguments)
        self.calls.append(line)
        known = [beginning for beginning in self._answers if line.startswith(beginning)]
        assert known, f"nobody said what this prints: {line}"
        return self._answers[max(known, key=len)]()


class Systemd:
    """Units that start, stop and fail as a test says, behind the command ``systemctl``."""

    def __init__(self, machine: Machine, unit: str, *, active: str, enabled: str) -> None:
        self.active, self.enabled = active, enabled
        self.is_broken: Callable[[], bool] = lambda: False
        machine.teach(f"systemctl show --property ActiveState --value {unit}", lambda: self._say(self.active))
        machine.teach(f"systemctl show --property UnitFileState --value {unit}", lambda: self._say(self.enabled))
        machine.teach("systemctl daemon-reload")
        for step in ("start", "restart", "stop", "enable", "disable"):
            machine.teach(f"systemctl {step} {unit}", lambda step=step: self._do(step))

    def _say(self, text: str) -> Finished:
        from ansible_collections.grapnel.node.plugins.module_utils.host import Finished  # noqa: PLC0415 - see above

        return Finished(0, f"{text}\n")

    def _do(self, step: str) -> Finished:
        if step in ("enable", "disable"):
            self.enabled = f"{step}d"
        elif step == "stop":
            self.active = "inactive"
        else:
            self.active = "failed" if self.is_broken() else "active"
        return self._say("")
