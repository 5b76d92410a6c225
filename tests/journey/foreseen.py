"""Holds a plan to what became of a booted node: nothing changes that was not shown, nothing shown stays undone."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.journey.snapshot import Snapshot, take_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lab.nodes import Node

Step = tuple[str, str]  # an action and what it is about
_RELEASED = "/var/lib/grapnel/node/released.json"  # what the node daemon keeps of GPUs that it does not offer
_BOOT_LOADER = "/boot/grub/grub.cfg"  # which update-grub writes from what a node is to be started with
_CHANGED = "StateChangeTimestampMonotonic"  # by a reload, this alone
_NOW = """
import json, os, subprocess, sys
targets, packages = json.loads(sys.argv[1])
def say(*words):
    return subprocess.run(words, capture_output=True, text=True).stdout.split()
def read(path):
    return open(path).read().strip() if os.path.exists(path) else ""
shown = "ActiveState,UnitFileState,ExecMainStartTimestampMonotonic,StateChangeTimestampMonotonic"
names = [one for one in targets if "." in one and "/" not in one]
units = {one: dict(line.split("=", 1) for line in say("systemctl", "show", "-p", shown, one)) for one in names}
print(json.dumps({
    "paths": {one: os.lstat(one).st_ctime_ns if os.path.lexists(one) else None for one in targets if one[0] == "/"},
    "units": units,
    "modules": {one: read(f"/sys/module/{one}/version") for one in os.listdir("/sys/module") if one[:6] == "nvidia"},
    "held": say("apt-mark", "showhold"),
    "boot": read("/proc/sys/kernel/random/boot_id"),
    "owned": {one: say("dpkg-query", "-L", one) for one in packages},
    "initramfs": {one: os.stat("/boot/" + one).st_mtime_ns for one in os.listdir("/boot") if one.startswith("initrd")},
}))
"""


@dataclass(frozen=True)
class Moment:
    """A node as it is at one moment, and what the targets of a plan's steps are like then."""

    snapshot: Snapshot
    now: Mapping[str, Any]

    @property
    def owned(self) -> set[str]:
        """Return the files of the packages that the plan is about."""
        return {path for paths in self.now["owned"].values() for path in paths}


def steps_of(document: str, name: str) -> list[Step]:
    """Return the steps that ``--plan --json`` has for a node."""
    (found,) = (one for one in json.loads(document)["nodes"] if one["node"] == name)
    assert found.get("problems", []) == []
    return [(one["action"], one["target"]) for one in found["steps"]]


def look(node: Node, steps: Iterable[Step]) -> Moment:
    """Return what a node is like."""
    steps = list(steps)
    packages = [target.split()[0] for action, target in steps if action in {"purge", "install"}]
    given = json.dumps([[_place(step) for step in steps], packages])
    return Moment(take_snapshot(node), json.loads(node.run(["python3", "-IS", "-c", _NOW, given]).stdout))


def not_shown(steps: Iterable[Step], before: Moment, after: Moment) -> dict[str, str]:
    """Return what has changed on a node, and no step tells of."""
    steps = list(steps)
    changed = before.snapshot.difference(after.snapshot)
    paths = {path for path in changed if path.startswith("/")}
    told = {path for path in paths if _is_told(path, steps, before, after)}
    told |= {path for path in paths - told if _is_emptied(path, told, before.snapshot, after.snapshot)}
    lists = {name: _rows_not_told(name, steps, before, after) for name in changed if name not in paths}
    rows = {name: ", ".join(rows) for name, rows in lists.items() if rows}
    return {**{path: changed[path] for path in paths - told}, **rows}


def not_done(steps: Iterable[Step], before: Moment, after: Moment) -> list[Step]:
    """Return the steps of which nothing is to be seen."""
    return [step for step in steps if not _is_done(step, before, after)]


def _place(step: Step) -> str:
    """Return where it is seen whether a step was done."""
    return _RELEASED if step[0] == "resume" else step[1]


def _is_told(path: str, steps: Iterable[Step], before: Moment, after: Moment) -> bool:
    if path in before.owned | after.owned or _is_alternative(path, before, after):
        return True
    for action, target in steps:
        package = target.split()[0]
        info = rf"/var/lib/dpkg/info/{re.escape(package)}(:\w+)?\.\w+"
        if action in {"purge", "install"} and re.fullmatch(info, path):
            return True
        if (action, path) == ("reboot", _BOOT_LOADER):
            return True
        if action == "rebuild" and path.startswith("/boot/initr") and path.endswith(target.split()[-1]):
            return True
        if path == _place((action, target)) or path.startswith(f"{target}/"):
            return True
        if action == "disable" and re.fullmatch(rf"/etc/systemd/system/[^/]+\.(wants|requires)/{target}", path):
            return True
    return False


def _is_alternative(path: str, before: Moment, after: Moment) -> bool:
    """Tell whether scripts of packages keep a link, by update-alternatives(1), to what is in a package."""
    if path.startswith("/var/lib/dpkg/alternatives/"):
        return True
    rows = [each.snapshot.files.get(path, ()) for each in (before, after)]
    links = {str(row[-1]) for row in rows if row and str(row[0]).startswith("0o12")}
    return bool(links) and all(one.startswith("/etc/alternatives/") or one in before.owned for one in links)


def _is_emptied(path: str, told: set[str], before: Snapshot, after: Snapshot) -> bool:
    """Tell whether a folder went with everything that was in it, of which steps tell."""
    within = {one for one in before.files if one.startswith(f"{path}/")}
    is_folder = path in before.files and str(before.files[path][0]).startswith("0o4")
    return is_folder and path not in after.files and bool(within) and within <= told | _folders(within, before)


def _folders(paths: Iterable[str], snapshot: Snapshot) -> set[str]:
    return {path for path in paths if str(snapshot.files[path][0]).startswith("0o4")}


def _rows_not_told(name: str, steps: list[Step], before: Moment, after: Moment) -> list[str]:
    rows = set(before.snapshot.lists[name]) ^ set(after.snapshot.lists[name])
    names = {row: re.split(r"[ :]", row)[0] for row in rows}
    shown = {target.split()[-1 if action == "remove" else 0] for action, target in steps}
    files = {path.rpartition("/")[2] for path in before.owned | after.owned} | {
        target.rpartition("/")[2] for _, target in steps
    }
    return sorted(row for row in rows if names[row] not in shown | (files if name == "units" else set()))


def _is_done(step: Step, before: Moment, after: Moment) -> bool:
    action, target = step[0], _place(step)
    if action in {"purge", "install"}:
        name, version = target.split()[:2]
        rows = {re.split(r"[ :]", row)[0]: row.split()[1] for row in after.snapshot.lists["packages"]}
        return (rows.get(name) == version) is (action == "install")
    if action in {"unload", "load"}:
        was, has = (moment.now["modules"].get(target.split()[-1]) for moment in (before, after))
        return has is not None if action == "load" else not has or has != was  # it may be loaded again
    if action in {"hold", "unhold"}:
        return (target in after.now["held"]) is (action == "hold")
    if made := {"reboot": "boot", "rebuild": "initramfs"}.get(action):
        return bool(before.now[made]) and before.now[made] != after.now[made]
    if action in {"disable", "stop"}:
        return not {"active", "enabled"} & set(after.now["units"][target].values())
    if action in {"restart", "start", "reload"} and "kernel module" not in target:
        was, has = (moment.now["units"][target] for moment in (before, after))
        is_another = {**was, _CHANGED: ""} != {**has, _CHANGED: ""}
        return not is_another and was != has if action == "reload" else is_another
    if target.startswith("group "):
        return not any(row.startswith(f"{target.split()[1]}:") for row in after.snapshot.lists["groups"])
    if not target.startswith("/"):
        return True  # settings of GPUs: `test_gpu_settings` looks at those
    if action in {"remove", "resume"}:
        return after.now["paths"][target] is None
    return bool(before.now["paths"][target] != after.now["paths"][target])
