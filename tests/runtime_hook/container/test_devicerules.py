"""Device rules as the container's configuration has them, and where cgroup v1 keeps them."""

from __future__ import annotations

import pytest

from runtime_hook.bundle import DeviceRule
from runtime_hook.container.devicerules import is_allowed, locate_device_group

DENY_ALL = DeviceRule(allow=False, type="a", major=-1, minor=-1, access="rwm")
ALLOW_ALL = DeviceRule(allow=True, type="a", major=-1, minor=-1, access="rwm")
GROUPS = "5:devices:/pod/c1\n4:memory:/other\n0::/unified\n"
MOUNT = "30 25 0:26 {root} /sys/fs/cgroup/devices rw,relatime shared:9 - cgroup cgroup rw,devices\n"


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
        pytest.param(GROUPS, MOUNT.format(root="/"), "/sys/fs/cgroup/devices/pod/c1", id="cgroup v1"),
        pytest.param(GROUPS, MOUNT.format(root="/pod"), "/sys/fs/cgroup/devices/c1", id="a mounted part"),
        pytest.param(GROUPS, MOUNT.format(root="/po"), "", id="a part with a similar name"),
        pytest.param("0::/pod/c1\n", "30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "", id="cgroup v2"),
    ],
)
def test_the_device_group_is_found(groups: str, mounts: str, place: str) -> None:
    assert locate_device_group(groups, mounts) == place
