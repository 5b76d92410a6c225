"""Device rules as the container's configuration has them, and where cgroup v1 keeps them."""

from __future__ import annotations

import pytest

from runtime_hook.bundle import DeviceRule
from runtime_hook.container.devicerules import is_allowed
from runtime_hook.container.devicerules.hierarchy import Group, locate_group

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
