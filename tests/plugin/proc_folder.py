"""A folder in the form of /proc, as far as the daemon reads it, and the kubelet's folders of logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from plugin.holdings.holders.cgroup import Place
    from plugin.kubelet.pod_resources.attribution import PodContainer


class ProcFolder:
    """Processes that belong where they are said to; its namespace is the machine's own until another is set."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.set_namespace("pid:[4026531836]")

    def set_namespace(self, name: str | None) -> None:
        link = self.folder / "self/ns/pid"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        if name is not None:
            link.symlink_to(name)

    def add(self, pid: int, place: Place, *, began_ticks: int = 0) -> None:
        process = self.folder / str(pid)
        process.mkdir()
        (process / "stat").write_text(f"{pid} (a (b) c) S 1 " + "0 " * 17 + f"{began_ticks} 0 0\n")
        path = (
            f"/kubepods/pod{place.pod_uid}/{place.container_id or ''}" if place.pod_uid else "/system.slice/x.service"
        )
        (process / "cgroup").write_text(f"0::{path}\n")


class LogFolder:
    """What a kubelet makes for its containers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "pods").mkdir(parents=True)
        (folder / "containers").mkdir()

    def add(self, place: Place, name: PodContainer, *, with_link: bool = True) -> None:
        log = self.folder / "pods" / f"{name.namespace}_{name.pod}_{place.pod_uid}" / name.container / "0.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
        if with_link:
            link = f"{name.pod}_{name.namespace}_{name.container}-{place.container_id}"[:251] + ".log"
            (self.folder / "containers" / link).symlink_to(log)
