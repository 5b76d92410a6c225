"""A node that is as declared, and what somebody may do to it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from plugin.cli.drift import compare_now, show_drift
from plugin.drift.model import DriftKind
from tests.plugin.drift.node import BOOTED, CONTENT, DPKG, FILE, NOW, VERSION, Node, unit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MEND = "grapnel apply n17"
CONTAINERD, TIMER = unit("containerd.service"), unit("grapnel-drift.timer")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def gpu(node: Node, minor: int) -> None:
    node.write(f"/proc/driver/nvidia/gpus/0000:{minor:02x}:00.0/information", f"Model: X\nDevice Minor: \t {minor}\n")


def packages(text: str) -> Callable[[Node], object]:
    return lambda node: setattr(node, "packages", text)


def units(*blocks: str) -> Callable[[Node], object]:
    return lambda node: setattr(node, "units", "\n".join(blocks))


def rpm(node: Node) -> None:
    node.declare(manager="dnf", packages=[{"name": "kmod-nvidia", "version": "580.1-1", "hold": True}])
    node.packages = "bash\t0:5.1-1\t1777000000\tx86_64\nkmod-nvidia\t0:580.2-1\t1777000001\tx86_64\n"


DRIFT = {
    "a package was upgraded": (
        packages(DPKG.replace(VERSION, "550.1-1")),
        [(DriftKind.VERSION, "libcuda1", "550.1-1", VERSION)],
    ),
    "a package was removed": (
        packages("dpkg\t1\tinstall\tinstalled\tamd64\nlibcuda1\t\tdeinstall\tconfig-files\tamd64\n"),
        [(DriftKind.VERSION, "libcuda1", "not installed", VERSION)],
    ),
    "a package of another architecture does not count": (
        packages(DPKG.replace("amd64\n", "i386\n").replace("i386", "amd64", 1)),
        [(DriftKind.VERSION, "libcuda1", "not installed", VERSION)],
    ),
    "dpkg was killed": (
        packages(DPKG.replace("hold\tinstalled", "hold\tunpacked")),
        [(DriftKind.VERSION, "libcuda1", "unpacked", VERSION)],
    ),
    "a hold was taken off": (
        packages(DPKG.replace("hold\t", "install\t")),
        [(DriftKind.HOLD, "libcuda1", "not held", "held")],
    ),
    "a version lock of dnf is missing, and the version is another": (
        rpm,
        [(DriftKind.VERSION, "kmod-nvidia", "580.2-1", "580.1-1"), (DriftKind.HOLD, "kmod-nvidia", "not held", "held")],
    ),
    "a file was removed": (
        lambda node: (node.root / FILE.lstrip("/")).unlink(),
        [(DriftKind.FILE, FILE, "absent", "there")],
    ),
    "a file was made readable for fewer": (
        lambda node: (node.root / FILE.lstrip("/")).chmod(0o600),
        [(DriftKind.FILE, FILE, "mode 0600", "mode 0644")],
    ),
    "a file was written by somebody else, for fewer": (
        lambda node: node.write(FILE, "other\n").chmod(0o600),
        [
            (DriftKind.FILE, FILE, "content 7e4fa2eb8c7a", "content 05275efa3aea"),
            (DriftKind.FILE, FILE, "mode 0600", "mode 0644"),
        ],
    ),
    "a service was stopped": (
        units(unit("containerd.service", active="inactive"), TIMER),
        [(DriftKind.SERVICE, "containerd.service", "inactive", "active")],
    ),
    "a service does not start at boot": (
        units(unit("containerd.service", enabled="disabled"), TIMER),
        [(DriftKind.SERVICE, "containerd.service", "disabled", "enabled")],
    ),
    "a service was disabled and stopped": (
        units(unit("containerd.service", enabled="disabled", active="inactive"), TIMER),
        [
            (DriftKind.SERVICE, "containerd.service", "disabled", "enabled"),
            (DriftKind.SERVICE, "containerd.service", "inactive", "active"),
        ],
    ),
    "a unit is gone": (
        units(CONTAINERD, TIMER.replace("loaded", "not-found")),
        [(DriftKind.SERVICE, "grapnel-drift.timer", "not installed", "active")],
    ),
    "another module is loaded": (
        lambda node: node.write("/sys/module/nvidia/version", "535.1\n"),
        [(DriftKind.MODULE, "nvidia", "535.1", "550.163.01")],
    ),
    "no module is loaded": (
        lambda node: (node.root / "sys/module/nvidia/version").unlink(),
        [(DriftKind.MODULE, "nvidia", "not loaded", "550.163.01")],
    ),
    "another hook is installed": (
        lambda node: node.write("/usr/lib/grapnel/hook/RELEASE", "cd" * 32),
        [(DriftKind.SOFTWARE, "hook", "cdcdcdcdcdcd", "abababababab")],
    ),
    "device nodes are gone": (
        lambda node: gpu(node, 3),
        [
            (DriftKind.DEVICE_NODE, "/dev/nvidia3", "absent", "there"),
            (DriftKind.DEVICE_NODE, "/dev/nvidiactl", "absent", "there"),
        ],
    ),
}


@pytest.mark.parametrize(("change", "expected"), DRIFT.values(), ids=DRIFT.keys())
def test_what_somebody_changed_is_told(
    node: Node, change: Callable[[Node], object], expected: list[tuple[DriftKind, str, str, str]]
) -> None:
    change(node)

    found = compare_now(node.record, node.host())

    assert (found.reason, found.at) == ("", NOW)
    assert [(each.kind, each.name, each.found, each.declared) for each in found.differences] == expected
    if expected[0][0] is not DriftKind.DEVICE_NODE:
        assert {each.mend for each in found.differences} == {MEND}


QUIET = {
    "a node that is as declared": lambda _: None,
    "a driver that leaves device nodes to udev": lambda node: (
        gpu(node, 0),
        node.write("/proc/driver/nvidia/params", "ModifyDeviceFiles: 0\n"),
    ),
    "packages that nobody is to hold": lambda node: (
        node.declare(packages=[{"name": "libcuda1", "version": VERSION, "hold": False}]),
        setattr(node, "packages", DPKG.replace("hold\t", "install\t")),
    ),
    "a unit that is on its way": units(unit("containerd.service", active="activating"), TIMER),
    "a lock of dnf for the version": lambda node: (
        rpm(node),
        node.declare(manager="dnf", packages=[{"name": "kmod-nvidia", "version": "580.2-1", "hold": True}]),
        node.write("/etc/dnf/plugins/versionlock.list", "# ours\nkmod-nvidia-0:580.2-1.*\n"),
    ),
    "a lock of zypper": lambda node: (
        rpm(node),
        node.declare(manager="zypper", packages=[{"name": "kmod-nvidia", "version": "580.2-1", "hold": True}]),
        node.write("/etc/zypp/locks", "\ntype: package\nmatch_type: glob\nsolvable_name: kmod-nvidia\n"),
    ),
    "a node without a driver": lambda node: node.declare(packages=[], module=None),
}


@pytest.mark.parametrize("change", QUIET.values(), ids=QUIET.keys())
def test_what_is_as_declared_is_quiet(node: Node, change: Callable[[Node], object]) -> None:
    change(node)

    assert compare_now(node.record, node.host()).differences == ()


def test_a_file_of_somebody_else_is_told_by_its_owner(node: Node) -> None:
    if os.getuid():
        pytest.skip("only root gives files away")
    os.chown(node.root / FILE.lstrip("/"), 1000, 1000)

    assert [each.found for each in compare_now(node.record, node.host()).differences] == ["owner 1000:1000"]


def test_a_difference_says_since_when_where_the_node_tells(node: Node) -> None:
    os.utime(node.write(FILE, CONTENT + "#\n"), (1_777_000_000, 1_777_000_000))
    (node.root / "var/lib/dpkg/info").mkdir(parents=True)
    os.utime(node.write("/var/lib/dpkg/info/libcuda1:amd64.list", ""), (1_777_100_000, 1_777_100_000))
    node.packages = DPKG.replace(VERSION, "550.1-1")
    node.units = "\n".join((unit("containerd.service", active="failed", at=9_000_000), TIMER))

    found = {each.kind: each.since for each in compare_now(node.record, node.host()).differences}

    assert found[DriftKind.VERSION] == 1_777_100_000
    assert found[DriftKind.SERVICE] == BOOTED + 9
    assert (found[DriftKind.FILE] or 0) > 1_777_000_000  # its inode changed later than its content


AT_WORK = {
    "a driver change that runs": ("/var/lib/grapnel/driver/run.json", json.dumps({"state": "running"})),
    "a driver change that waits for a reboot": (
        "/var/lib/grapnel/driver/run.json",
        json.dumps({"state": "needs-reboot"}),
    ),
    "an exchange of the kernel module": ("/run/grapnel/kernel-module.json", "{}"),
    "a release": ("/var/lib/grapnel/node/released.json", "{}"),
}


@pytest.mark.parametrize(("path", "text"), AT_WORK.values(), ids=AT_WORK.keys())
def test_nothing_is_told_while_a_change_is_at_work(node: Node, path: str, text: str) -> None:
    node.write(path, text)
    node.packages = DPKG.replace(VERSION, "550.1-1")

    found = compare_now(node.record, node.host())

    assert (found.differences, bool(found.reason), node.asked) == ((), True, [])


def test_a_change_that_begins_during_the_comparison_spoils_it(node: Node) -> None:
    (node.root / FILE.lstrip("/")).unlink()
    host, ask = node.host(), node.host()._ask

    def begin(command: tuple[str, ...]) -> str:
        node.write("/run/grapnel/kernel-module.json", "{}")
        return ask(command)

    host._ask = begin

    assert compare_now(node.record, host).reason == "the kernel module is being exchanged"


def test_a_driver_change_that_is_done_is_not_in_the_way(node: Node) -> None:
    node.write("/var/lib/grapnel/driver/run.json", json.dumps({"state": "done"}))

    assert compare_now(node.record, node.host()).reason == ""


@pytest.mark.parametrize(
    ("verb", "later_s", "is_compared"),
    [("back", 60, False), ("back", -60, True), ("swap", 60, True)],
    ids=["a rollback after the last apply", "an apply after the rollback", "a swap"],
)
def test_a_rollback_is_no_drift_until_the_next_apply(node: Node, verb: str, later_s: int, is_compared: bool) -> None:  # noqa: FBT001 - a column
    run = node.write("/var/lib/grapnel/driver/run.json", json.dumps({"state": "done", "verb": verb}))
    at = node.record.stat().st_mtime + later_s
    os.utime(run, (at, at))

    assert (compare_now(node.record, node.host()).reason == "") is is_compared


UNKNOWN = {
    "there is no record": (lambda node: node.record.unlink(), "no such file or directory (grapnel apply writes it)"),
    "the record is broken": (lambda node: node.record.write_text("{"), "not valid json"),
    "dpkg does not know itself": (packages(""), "the package manager does not even know dpkg"),
    "systemd does not answer": (units(""), "systemd does not say how its units are"),
}


@pytest.mark.parametrize(("change", "words"), UNKNOWN.values(), ids=UNKNOWN.keys())
def test_what_cannot_be_known_is_no_difference(node: Node, change: Callable[[Node], object], words: str) -> None:
    change(node)

    found = compare_now(node.record, node.host())

    assert found.differences == ()
    assert words in found.reason


def test_names_cannot_become_options(node: Node) -> None:
    compare_now(node.record, node.host())

    assert [each[-3:] for each in node.asked if each[0].endswith("systemctl")] == [
        ("--", "containerd.service", "grapnel-drift.timer")
    ]


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        pytest.param(lambda _: None, 0, "as declared\n", id="as declared"),
        pytest.param(
            packages(DPKG.replace("hold\t", "install\t")),
            3,
            f"hold: libcuda1 is not held, declared held\nmend: {MEND}\n",
            id="drifted",
        ),
        pytest.param(
            lambda node: node.write("/run/grapnel/kernel-module.json", "{}"),
            1,
            "not compared: the kernel module is being exchanged\n",
            id="a change is at work",
        ),
    ],
)
def test_people_read_what_scripts_get_by_the_exit_code(
    node: Node,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[Node], object],
    code: int,
    words: str,
) -> None:
    change(node)

    assert show_drift(None, as_json=False, path=node.record, host=node.host()) == code
    assert capsys.readouterr().out == words
    output = node.root / "result.json"
    assert show_drift(output, as_json=True, path=node.record, host=node.host()) == 0
    assert output.read_text() == capsys.readouterr().out
    assert output.stat().st_mode & 0o777 == 0o644
