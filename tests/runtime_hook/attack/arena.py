"""Runs the hook against hostile processes, hundreds of rounds a second: a host, a container and a hook in one script.

Every round has a container root of its own and two processes: the hostile one lives in a mount namespace like those
that runc makes, has prepared the root and may go on changing it; the hook works on it with the hook's own code. Then
what a host could notice is compared: its files, its mounts, what is mounted inside, what was executed. The script's own
mount namespace is the host: private to it, but shared below, as systemd leaves it.

Reads a job (JSON, see ``rounds.py``) on stdin and writes a line of JSON for every round.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime_hook.base.errors import HookError
from runtime_hook.prestart import prestart
from tests.runtime_hook.attack import hostile, naive
from tests.runtime_hook.attack.watch import DriverWatch, Watch, snapshot
from tests.runtime_hook.containers import BUSYBOX, MULTIARCH

if TYPE_CHECKING:
    from collections.abc import Callable

CLONE_NEWNS = 0x20000
MS_REC, MS_PRIVATE, MS_SLAVE, MS_SHARED = 1 << 14, 1 << 18, 1 << 19, 1 << 20
FOLDERS = ("bin", "dev", "etc", "proc", "run", "tmp", "usr/bin", "usr/share", MULTIARCH, "usr/lib64", "lib/firmware")
IMPORTED = ("container.kernel", "container.injection", "host.store", "host.discovery", "plan.planner", "audit")
OWN_MOUNTS = ("dev", "proc")  # of the container: file systems of their own
OTHERS = (f"{tempfile.gettempdir()}/", "/run/", "/var/lib/")  # where tests and engines mount what they need
MNT_DETACH = 2
READY = b"r"


def mount(source: str, target: Path | str, kind: str | None, flags: int) -> None:
    arguments = (part.encode() if part else None for part in (source, str(target), kind))
    if hostile.libc.mount(*arguments, flags, None):
        raise OSError(hostile.ctypes.get_errno(), "mount", str(target))


def others_mounts(places: list[str], own: tuple[str, ...]) -> list[str]:
    """Return where tests and engines have mounted something that none of our ``own`` folders is in, last first."""
    needed = [place for place in places if any(folder.startswith(f"{place}/") for folder in own)]
    return [place for place in reversed(places) if place.startswith(OTHERS) and place not in needed]


class Arena:
    """One job: a place on a file system of its own, so that hard links to the victim are possible."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self.world = Path(job["world"])
        self.root, self.bundle, self.victim = self.world / "root", self.world / "bundle", self.world / "victim"
        self.count = 0
        self.driver = DriverWatch(job["driver"])
        self._leave_others_mounts()
        mount("world", self.world, "tmpfs", 0)
        mount("none", "/", None, MS_REC | MS_SHARED)
        self.victim.mkdir()
        for name in ("secret", "ld.so.cache", "nvidia-smi", "libcuda.so.1"):
            (self.victim / name).write_text("the host's own")
        self.bundle.mkdir()
        shutil.copy(BUSYBOX, self.world / "busybox")

    def _leave_others_mounts(self) -> None:
        """Take away what other tests have mounted: it comes and goes, and would be taken for the hook's doing."""
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
        own = (f"{self.world}/", f"{self.job['driver']}/")
        for place in others_mounts([line.split(" ")[4] for line in lines], own):
            hostile.libc.umount2(place.encode(), MNT_DETACH)  # gone already: so much the better

    def play(self) -> dict[str, Any]:
        """Play one round; ``breaches`` are what the host or the container should not have seen."""
        self._build_root()
        watch = Watch(self.driver, self.victim, self.root)
        process = self._start_hostile()
        try:
            watch.begin(process)
            before = {} if self.job["swaps"] else snapshot(self.root)
            outcome, text = self._run_hook(process)
            os.kill(process, signal.SIGSTOP)
            breaches = watch.breaches(process)
            if outcome == "refused" and not self.job["swaps"]:
                breaches += [f"left behind: {path}" for path in snapshot(self.root).keys() ^ before.keys()]
        finally:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        if outcome == "bug":
            breaches.append(f"internal error: {text}")
        return {"outcome": outcome, "text": text, "breaches": breaches}

    def _build_root(self) -> None:
        """Make a new root; the old ones go with the arena's file system, whatever is in them."""
        self.count += 1
        self.root = self.world / f"root{self.count}"
        for name in FOLDERS:
            (self.root / name).mkdir(parents=True)
        (self.root / "etc/debian_version").write_text("12.0\n")
        configuration = {**self.job["container"], "root": {"path": str(self.root)}}
        (self.bundle / "config.json").write_text(json.dumps(configuration))

    def _start_hostile(self) -> int:
        """Start the container's process; it is ready when its root is, and lives until it is killed."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            _end_with(lambda: self._be_hostile(writer))
        os.close(writer)
        answer = os.read(reader, 1)
        os.close(reader)
        if answer != READY:
            os.waitpid(child, 0)
            raise RuntimeError("the hostile process could not start")
        return child

    def _be_hostile(self, ready: int) -> None:
        name, kind = self.job["target"], self.job["kind"]
        target = self.root / hostile.TARGETS.get(name, name)
        aside = target.with_name("aside")
        is_late = kind == "a mount" or target.relative_to(self.root).parts[0] in OWN_MOUNTS
        if not is_late or target.parent == self.root:
            self._prepare(target, aside)
        if self.job["shares"]:
            mount(str(self.root), self.root, None, hostile.MS_BIND | MS_REC)
            hostile.libc.unshare(CLONE_NEWNS)
        else:
            hostile.libc.unshare(CLONE_NEWNS)
            mount("none", "/", None, MS_REC | MS_SLAVE)
            mount(str(self.root), self.root, None, hostile.MS_BIND | MS_REC)
            mount("none", self.root, None, MS_PRIVATE)
        for folder in OWN_MOUNTS:
            if self.root / folder != target:
                mount("tmpfs", self.root / folder, "tmpfs", 0)
        if is_late and (target.parent != self.root or kind == "a mount"):
            self._prepare(target, aside)
        os.write(ready, READY)
        if self.job["sin"] == "run the host's ldconfig":
            naive.steal_programs(Path(self.job["driver"]))
        elif self.job["swaps"]:
            hostile.swap_for_ever(target, aside)
        signal.pause()

    def _prepare(self, target: Path, aside: Path) -> None:
        """Put the hostile thing in its place, or beside it where the two will change places."""
        kind, swaps = self.job["kind"], self.job["swaps"]
        is_folder = self.job["target"] in hostile.FOLDER_TARGETS
        if swaps and is_folder:
            target.mkdir(parents=True, exist_ok=True)
        elif swaps:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(b"")
        if kind:
            victim = self.victim if is_folder else self.victim / "secret"
            hostile.occupy(aside if swaps else target, kind, victim)
        for path, text in self.job["files"].items():
            self._write(path, text)

    def _write(self, path: str, text: str) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("link:"):
            place.symlink_to(text[5:].format(victim=self.victim))
        elif text == "busybox":
            os.link(self.world / "busybox", place)
        else:
            place.write_text(text)
            place.chmod(0o755)

    def _run_hook(self, process: int) -> tuple[str, str]:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            _end_with(lambda: os.write(writer, json.dumps(self._hook(process)).encode()))
        os.close(writer)
        with os.fdopen(reader, "rb") as file:
            answer = file.read()
        os.waitpid(child, 0)
        outcome, text = json.loads(answer or '["bug", "no answer"]')
        return outcome, text

    def _hook(self, process: int) -> tuple[str, str]:
        try:
            if self.job["sin"]:
                naive.inject(self.job["sin"], process, self.root, Path(self.job["driver"]))
            else:
                state = {"ociVersion": "1.0.2", "id": "arena", "pid": process, "bundle": str(self.bundle)}
                reader, writer = os.pipe()
                os.write(writer, json.dumps(state).encode())
                os.close(writer)
                prestart(self.job["config"], self.job["driver"], reader)
        except HookError as refusal:
            return "refused", str(refusal)
        except OSError as failure:
            return ("refused" if self.job["sin"] else "bug"), f"{type(failure).__name__}: {failure}"
        except Exception as bug:  # noqa: BLE001 - told to whoever reads the rounds
            return "bug", f"{type(bug).__name__}: {bug}"
        return "done", ""


def _end_with(work: Callable[[], object]) -> None:
    status = 1
    try:
        work()
        status = 0
    finally:
        if status:
            import traceback  # noqa: PLC0415 - only when a process of the arena itself is broken

            traceback.print_exc()
        os._exit(status)


def main() -> None:
    job = json.load(sys.stdin)
    for name in IMPORTED:
        importlib.import_module(f"runtime_hook.{name}")
    arena = Arena(job)
    gc.disable()
    gc.freeze()  # forked processes share what is there already
    for scene in job["scenes"]:
        arena.job = {**job, **scene}
        for number in range(scene["rounds"], 0, -1):
            answer = arena.play()
            if number == 1 or scene["sin"]:
                answer["breaches"] += arena.driver.breaches()
            print(json.dumps({"scene": scene["name"], **answer}), flush=True)  # noqa: T201 - its answer
            if answer["breaches"] and arena.job["sin"]:
                break


if __name__ == "__main__":
    main()
