"""Device rules as the container's configuration has them, and where cgroup v1 keeps them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runtime_hook.base.errors import InjectionError
from runtime_hook.container.devicerules import Unrestricted, is_allowed
from runtime_hook.container.devicerules.hierarchy import Group, locate_group, open_device_rules
from runtime_hook.inputs.bundle import DeviceRule

if TYPE_CHECKING:
    from collections.abc import Iterator

DENY_ALL = DeviceRule(allow=False, type="a", major=-1, minor=-1, access="rwm")
ALLOW_ALL = DeviceRule(allow=True, type="a", major=-1, minor=-1, access="rwm")
GROUPS = "5:devices:/pod/c1\n4:memory:/other\n0::/unified\n"
MOUNT = "30 25 0:26 {root} /sys/fs/cgroup/devices rw,relatime shared:9 - cgroup cgroup rw,devices\n"
MOUNT_V2 = "30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
V1 = Group("/sys/fs/cgroup/devices/pod/c1", 1)


def rule(access: str, *, major: int = 195, minor: int = 0, kind: str = "c", allow: bool = True) -> DeviceRule:
    return DeviceRule(allow=allow, type=kind, major=major, minor=minor, access=access)


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        pytest.param((), False, id="no rule"),
        pytest.param((DENY_ALL,), False, id="deny all"),
        pytest.param((DENY_ALL, rule("rw")), True, id="allowed after all"),
        pytest.param((rule("rw"), DENY_ALL), False, id="denied after all"),
        pytest.param((ALLOW_ALL,), True, id="allow all"),
        pytest.param((DENY_ALL, rule("r")), False, id="read only"),
        pytest.param((DENY_ALL, rule("r"), rule("w")), True, id="in two rules"),
        pytest.param((DENY_ALL, rule("rw", minor=1)), False, id="another minor"),
        pytest.param((DENY_ALL, rule("rwm", minor=-1)), True, id="any minor"),
        pytest.param((DENY_ALL, rule("rw", kind="b")), False, id="a block device"),
        pytest.param((ALLOW_ALL, rule("w", allow=False)), False, id="writing denied"),
    ],
)
def test_rules_count_in_their_order(rules: tuple[DeviceRule, ...], allowed: bool) -> None:  # noqa: FBT001 - a table's column
    assert is_allowed(rules, 195, 0) == allowed


@pytest.mark.parametrize(
    ("groups", "mounts", "place"),
    [
        pytest.param(GROUPS, MOUNT.format(root="/"), Group("/sys/fs/cgroup/devices/pod/c1", 1), id="cgroup v1"),
        pytest.param(GROUPS, MOUNT.format(root="/pod"), Group("/sys/fs/cgroup/devices/c1", 1), id="a mounted part"),
        pytest.param(GROUPS, MOUNT.format(root="/po"), None, id="a part with a similar name"),
        pytest.param("0::/pod/c1\n", MOUNT_V2, Group("/sys/fs/cgroup/pod/c1", 2), id="cgroup v2"),
        pytest.param("0::/\n", MOUNT_V2, Group("/sys/fs/cgroup", 2), id="the root of cgroup v2"),
        pytest.param(GROUPS, MOUNT_V2 + MOUNT.format(root="/"), V1, id="a hybrid host with the v1 controller"),
        pytest.param("4:memory:/other\n0::/c1\n", MOUNT_V2, Group("/sys/fs/cgroup/c1", 2), id="a hybrid host without"),
        pytest.param("0::/../c1\n", MOUNT_V2, None, id="a group outside the reader's cgroup namespace"),
        pytest.param("0::/pod/c1\n", MOUNT.format(root="/"), None, id="cgroup v2 that is not mounted"),
    ],
)
def test_the_device_group_is_found(groups: str, mounts: str, place: Group | None) -> None:
    assert locate_group(groups, mounts) == place


@pytest.fixture
def v1_group() -> Iterator[Path]:
    """Make a group of the v1 devices controller in which nothing is allowed."""
    root = Path("/sys/fs/cgroup/devices")
    if not (root / "devices.list").exists():
        pytest.skip("the devices controller of cgroup v1 is not mounted")
    path = root / f"grapnel-test-{os.getpid()}"
    path.mkdir()
    (path / "devices.deny").write_text("a")
    yield path
    path.rmdir()


@pytest.mark.functional
def test_under_cgroup_v1_rules_are_added_and_taken_away(v1_group: Path) -> None:
    rules = open_device_rules(Group(str(v1_group), 1), is_shared=False)
    rules.allow(("c 1:3 rw", "c 1:5 rw"))
    assert (v1_group / "devices.list").read_text() == "c 1:3 rw\nc 1:5 rw\n"
    rules.deny(("c 1:3 rw", "c 1:5 rw"))
    assert (v1_group / "devices.list").read_text() == ""


@pytest.mark.functional
def test_under_cgroup_v1_a_rule_that_fails_takes_those_before_it_along(v1_group: Path) -> None:
    rules = open_device_rules(Group(str(v1_group), 1), is_shared=False)
    with pytest.raises(OSError, match="Invalid argument"):
        rules.allow(("c 1:3 rw", "nonsense"))
    assert (v1_group / "devices.list").read_text() == ""


@pytest.mark.functional
def test_under_cgroup_v1_a_restricted_group_of_others_is_refused(v1_group: Path) -> None:
    with pytest.raises(InjectionError, match="not the container's own group"):
        open_device_rules(Group(str(v1_group), 1), is_shared=True)


def test_a_group_of_cgroup_v1_in_which_all_is_allowed_needs_no_rule(tmp_path: Path) -> None:
    (tmp_path / "devices.list").write_text("a *:* rwm\n")
    assert isinstance(open_device_rules(Group(str(tmp_path), 1), is_shared=True), Unrestricted)
