"""A fake machine: a folder, and commands that return prepared answers."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished, Host

Answer = Callable[[], "Finished"]


class Machine:
    """Files below ``root``; commands are answered by the longest beginning of their line that was taught."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.calls: list[str] = []
        self._answers: dict[str, Answer] = {}

    @property
    def host(self) -> Host:
        from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host  # noqa: PLC0415 - see conftest

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
        from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished  # noqa: PLC0415 - see above

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
    """Units that start, stop and fail as a test says, behind the command ``systemctl``.

    No time goes by: systemd refuses the fourth start, as it does for Docker within a minute.
    """

    _START_LIMIT = 3

    def __init__(self, machine: Machine, unit: str, *, active: str, enabled: str) -> None:
        self.active, self.enabled = active, enabled
        self.is_broken: Callable[[], bool] = lambda: False
        self._starts = 0
        machine.teach(
            f"systemctl show --property UnitFileState,ActiveState {unit}",
            lambda: self._say(f"UnitFileState={self.enabled}\nActiveState={self.active}"),
        )
        machine.teach("systemctl daemon-reload")
        machine.teach(f"journalctl --unit {unit}")
        for step in ("start", "restart", "reload", "stop", "enable", "disable"):
            machine.teach(f"systemctl {step} {unit}", lambda step=step: self._do(step))
        machine.teach(f"systemctl --no-reload enable {unit}", lambda: self._do("enable"))
        machine.teach(f"systemctl reset-failed {unit}", self._forget_starts)

    def _say(self, text: str) -> Finished:
        from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished  # noqa: PLC0415 - see above

        return Finished(0, f"{text}\n")

    def _forget_starts(self) -> Finished:
        self._starts = 0
        return self._say("")

    def _do(self, step: str) -> Finished:
        if step in ("enable", "disable"):
            self.enabled = f"{step}d"
        elif step == "stop":
            self.active = "inactive"
        elif step == "reload":
            self.active = "failed" if self.is_broken() else "active"
        elif self._starts == self._START_LIMIT:
            self.active = "failed"
        else:
            self._starts += 1
            self.active = "failed" if self.is_broken() else "active"
        return self._say("")


class Kernel:
    """The driver's modules, behind ``modprobe``, ``modinfo`` and ``rmmod``, and its services behind ``systemctl``.

    A module is in use while another needs it, a process has a device node open, or somebody uses it whom no process
    shows. ``broken`` are modules that cannot be loaded. No time goes by: systemd refuses the sixth start of a service.
    """

    NEEDS: ClassVar[dict[str, tuple[str, ...]]] = {
        "nvidia": (),
        "nvidia_uvm": ("nvidia",),
        "nvidia_modeset": ("nvidia",),
        "nvidia_drm": ("nvidia_modeset",),
        "gdrdrv": ("nvidia",),
    }
    SERVICE = "nvidia-persistenced.service"
    _SERVICE_PID = 640
    _START_LIMIT = 5

    def __init__(
        self,
        machine: Machine,
        loaded: str | None,
        on_disk: str | None,
        *,
        service: bool = False,
        more: tuple[str, ...] = (),
    ) -> None:
        self.machine, self.on_disk = machine, on_disk
        self.broken: set[str] = set()
        self._hidden: set[str] = set()
        self.service_runs = False
        self._starts = 0
        self._versions: dict[str, str] = {}
        self._pids: set[int] = set()
        for name in self.NEEDS:
            machine.teach(f"modprobe {name}", lambda name=name: self._load(name))
            machine.teach(f"rmmod {name}", lambda name=name: self._unload(name))
        machine.teach("modprobe --show-depends nvidia", self._show_file)
        machine.teach("/usr/lib/grapnel/driver/grapnel-driver mig", lambda: _finished(0, "{}"))
        machine.teach("modinfo --field version /nvidia.ko", lambda: _finished(0, f"{self.on_disk}\n"))
        machine.teach("systemctl show --property Id,ActiveState", self._show_service)
        machine.teach(f"systemctl show --property LoadState --value {self.SERVICE}", "loaded\n")
        machine.teach(f"systemctl stop {self.SERVICE}", self.stop_service)
        machine.teach(f"systemctl start {self.SERVICE}", self.start_service)
        machine.teach(f"systemctl reset-failed {self.SERVICE}", self._forget_starts)
        if loaded is not None:
            for name in ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", *more):
                self._versions[name] = loaded
        if service:
            self.start_service()
        self._show()

    @property
    def loaded(self) -> dict[str, str]:
        """Version by loaded module."""
        return dict(self._versions)

    def add_process(self, pid: int, command: str, unit: str) -> None:
        """Let a process open the first GPU."""
        self.machine.write(f"/proc/{pid}/comm", f"{command}\n")
        self.machine.write(f"/proc/{pid}/cgroup", f"0::/system.slice/{unit}\n")
        (self.machine.root / f"proc/{pid}/fd").mkdir()
        (self.machine.root / f"proc/{pid}/maps").touch()
        (self.machine.root / f"proc/{pid}/fd/0").symlink_to("/dev/nvidia0")
        self._pids.add(pid)
        self._show()

    def use(self, *names: str) -> None:
        """Let something use modules that no process shows, and nothing else of that kind."""
        self._hidden = set(names)
        self._show()

    def end_process(self, pid: int) -> None:
        shutil.rmtree(self.machine.root / f"proc/{pid}")
        self._pids.discard(pid)
        self._show()

    def start_service(self) -> Finished:
        if "nvidia" not in self._versions:
            return _finished(1, stderr=f"Job for {self.SERVICE} failed.\n")
        if not self.service_runs:
            self._starts += 1
            if self._starts > self._START_LIMIT:
                return _finished(1, stderr="start of the service was attempted too often\n")
            self.service_runs = True
            self.add_process(self._SERVICE_PID, "nvidia-persiste", self.SERVICE)
        return _finished(0)

    def _forget_starts(self) -> Finished:
        self._starts = 0
        return _finished(0)

    def stop_service(self) -> Finished:
        if self.service_runs:
            self.service_runs = False
            self.end_process(self._SERVICE_PID)
        return _finished(0)

    def _show_service(self) -> Finished:
        state = "active" if self.service_runs else "inactive"
        return _finished(0, f"Id=dcgm.service\nActiveState=inactive\n\nId={self.SERVICE}\nActiveState={state}\n")

    def _show_file(self) -> Finished:
        if self.on_disk is None:
            return _finished(1, stderr="modprobe: FATAL: Module nvidia not found in directory /lib/modules/6.12\n")
        return _finished(0, "insmod /nvidia.ko \n")

    def _users(self, name: str) -> list[str]:
        return [user for user, needs in self.NEEDS.items() if name in needs and user in self._versions]

    def _uses(self, name: str) -> int:
        return (name in self._hidden) + (len(self._pids) if name == "nvidia" else 0)

    def _load(self, name: str) -> Finished:
        for needed in self.NEEDS[name]:
            done = self._load(needed)
            if done.return_code:
                return done
        if name in self._versions:
            return _finished(0)
        if name in self.broken or self.on_disk is None:
            return _finished(1, stderr=f"modprobe: ERROR: could not insert '{name}': Key was rejected by service\n")
        if name != "nvidia" and self._versions["nvidia"] != self.on_disk:
            return _finished(1, stderr=f"modprobe: ERROR: could not insert '{name}': Invalid argument\n")
        self._versions[name] = self.on_disk
        self._show()
        return _finished(0)

    def _unload(self, name: str) -> Finished:
        if name not in self._versions:
            return _finished(1, stderr=f"rmmod: ERROR: Module {name} is not currently loaded\n")
        if self._users(name) or self._uses(name):
            return _finished(1, stderr=f"rmmod: ERROR: Module {name} is in use\n")
        del self._versions[name]
        self._show()
        return _finished(0)

    def _show(self) -> None:
        """Rewrite /sys/module."""
        folder = self.machine.root / "sys/module"
        shutil.rmtree(folder, ignore_errors=True)
        for name, version in self._versions.items():
            users = self._users(name)
            self.machine.write(f"/sys/module/{name}/version", f"{version}\n")
            self.machine.write(f"/sys/module/{name}/refcnt", f"{len(users) + self._uses(name)}\n")
            for user in users:
                self.machine.write(f"/sys/module/{name}/holders/{user}")


def _finished(return_code: int, stdout: str = "", stderr: str = "") -> Finished:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished  # noqa: PLC0415 - see conftest

    return Finished(return_code, stdout, stderr)
