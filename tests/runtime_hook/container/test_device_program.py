"""Device rules under cgroup v2, on real groups: programs are read, extended, replaced and put back."""

from __future__ import annotations

import itertools
import os
import stat
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runtime_hook.base.errors import InjectionError
from runtime_hook.container import libc
from runtime_hook.container.devicerules import Unrestricted, bpf
from runtime_hook.container.devicerules.hierarchy import Group, open_device_rules, own_folders
from runtime_hook.container.devicerules.v2 import DevicePrograms, extend, find_programs, has_references

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.functional

DENY = struct.pack("=BBhiBBhi", 0xB7, 0, 0, 0, 0x95, 0, 0, 0)
ALLOW = struct.pack("=BBhiBBhi", 0xB7, 0, 0, 1, 0x95, 0, 0, 0)
# What runc starts its programs with: the parts of the request, each in a register of its own, then nothing allowed.
LIKE_RUNC = (
    struct.pack("=BBhiBBhi", 0x61, 0x12, 0, 0, 0x54, 0x02, 0, 0xFFFF)
    + struct.pack("=BBhiBBhi", 0x61, 0x13, 0, 0, 0x74, 0x03, 0, 16)
    + struct.pack("=BBhiBBhi", 0x61, 0x14, 4, 0, 0x61, 0x15, 8, 0)
    + DENY
)
CALL = struct.pack("=BBhi", 0x85, 0, 0, 14) + DENY  # bpf_get_current_pid_tgid
NULL, ZERO, RANDOM = (1, 3), (1, 5), (1, 8)
OPEN = {"r": "exec 3< {node}", "w": "exec 3> {node}", "rw": "exec 3<> {node}", "m": "mknod {node}.made c 1 3"}
MULTI = bpf.BPF_F_ALLOW_MULTI
numbers = itertools.count()


def v2_root() -> Path:
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        if " - cgroup2 " in line:
            return Path(line.split()[4])
    pytest.skip("no hierarchy of cgroup v2 is mounted")


class V2Group:
    """A group of its own, with programs as a runtime attaches them."""

    def __init__(self, path: Path, nodes: Path) -> None:
        self.path = path
        self.nodes = nodes
        path.mkdir()

    def attach(self, program: bytes, flags: int = MULTI) -> None:
        loaded, group = bpf.load(program), os.open(self.path, os.O_RDONLY)
        attribute = struct.pack("=IIIII", group, loaded, bpf.BPF_CGROUP_DEVICE, flags, 0)
        libc.bpf(bpf.BPF_PROG_ATTACH, bytearray(attribute))
        os.close(loaded)
        os.close(group)

    def attached(self) -> bpf.Attached:
        group = os.open(self.path, os.O_RDONLY)
        try:
            return bpf.query(group)
        finally:
            os.close(group)

    def may(self, access: str, device: tuple[int, int] = NULL) -> bool:
        node = self.nodes / f"{device[0]}-{device[1]}"
        if not node.exists():
            os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(*device))
        script = f"echo 0 > {self.path}/cgroup.procs && {OPEN[access].format(node=node)}"
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
        Path(f"{node}.made").unlink(missing_ok=True)
        assert done.returncode == 0 or "ermission denied" in done.stderr or "not permitted" in done.stderr, done.stderr
        return done.returncode == 0


@pytest.fixture
def group(tmp_path: Path) -> Iterator[V2Group]:
    """Make a group of cgroup v2; its programs go with it."""
    made = V2Group(v2_root() / f"grapnel-test-{os.getpid()}-{next(numbers)}", tmp_path)
    yield made
    made.path.rmdir()


@pytest.mark.parametrize(
    "program", [pytest.param(DENY, id="a short one"), pytest.param(LIKE_RUNC, id="one like runc's")]
)
@pytest.mark.parametrize("flags", [0, 1, MULTI], ids=["alone", "that may be overridden", "among others"])
def test_a_rule_opens_one_device_and_undoing_shuts_it(group: V2Group, program: bytes, flags: int) -> None:
    group.attach(program, flags)
    before = group.attached()
    rules = find_programs([str(group.path)])
    assert not group.may("rw")
    rules.allow(("c 1:3 rw",))
    assert (group.may("r"), group.may("w"), group.may("rw")) == (True, True, True)
    assert not group.may("r", ZERO)
    assert not group.may("m"), "the rule says nothing of making nodes"
    assert group.attached().flags == before.flags
    rules.deny(("c 1:3 rw",))
    assert not group.may("r")
    assert group.attached() == before


@pytest.mark.parametrize(
    ("rule", "allowed"),
    [
        pytest.param("c 1:3 r", "r", id="reading"),
        pytest.param("c 1:3 w", "w", id="writing"),
        pytest.param("c 1:3 rwm", "r w rw m", id="everything"),
        pytest.param("b 1:3 rwm", "", id="a block device of the same number"),
        pytest.param("c 3:1 rwm", "", id="the numbers the other way round"),
        pytest.param("c 1:1048575 rwm", "", id="a large minor"),
    ],
)
def test_a_rule_means_what_it_says(group: V2Group, rule: str, allowed: str) -> None:
    group.attach(DENY)
    find_programs([str(group.path)]).allow((rule,))
    assert [access for access in OPEN if group.may(access)] == [name for name in OPEN if name in allowed.split()]


def test_several_rules_go_back_one_by_one(group: V2Group) -> None:
    group.attach(DENY)
    rules = find_programs([str(group.path)])
    rules.allow(("c 1:3 rw",))
    rules.allow(("c 1:5 rw",))
    assert (group.may("rw"), group.may("rw", ZERO)) == (True, True)
    rules.deny(("c 1:5 rw",))
    assert (group.may("rw"), group.may("rw", ZERO)) == (True, False)


def test_rules_that_are_added_together_go_together(group: V2Group) -> None:
    group.attach(DENY)
    before = group.attached()
    rules = find_programs([str(group.path)])
    rules.allow(("c 1:3 rw", "b 1:3 rw", "c 1:5 r", "c 1:8 rw"))
    assert (group.may("rw"), group.may("r", ZERO), group.may("w", ZERO), group.may("w", RANDOM)) == (
        True,
        True,
        False,
        True,
    )
    rules.deny(("c 1:3 rw", "b 1:3 rw", "c 1:5 r", "c 1:8 rw"))
    assert group.attached() == before


def test_every_program_of_the_group_is_extended(group: V2Group) -> None:
    """A manager such as systemd attaches a program of its own beside the runtime's: both must allow."""
    group.attach(DENY)
    group.attach(LIKE_RUNC)
    rules = find_programs([str(group.path)])
    rules.allow(("c 1:3 rw",))
    assert group.may("rw")
    assert len(group.attached().ids) == 2
    rules.deny(("c 1:3 rw",))
    assert not group.may("rw")


def test_what_a_program_allowed_it_still_allows(group: V2Group) -> None:
    group.attach(ALLOW)
    find_programs([str(group.path)]).allow(("c 1:3 rw",))
    assert group.may("rw", ZERO)


def test_a_program_that_was_replaced_meanwhile_is_left_alone(group: V2Group) -> None:
    group.attach(DENY)
    late, early = find_programs([str(group.path)]), find_programs([str(group.path)])
    early.allow(("c 1:5 rw",))
    before = group.attached()
    with pytest.raises(OSError, match="replaced by another meanwhile"):
        late.allow(("c 1:3 rw",))
    assert group.attached() == before


def test_when_one_of_two_programs_cannot_be_replaced_the_other_goes_back(group: V2Group) -> None:
    group.attach(DENY)
    group.attach(LIKE_RUNC)
    late = find_programs([str(group.path)])
    assert isinstance(late, DevicePrograms)
    late._programs[1].extend(("c 1:5 rw",))
    late._programs[1]._program = late._programs[1]._before[0][0]  # as if somebody else had done that
    before = group.attached()
    with pytest.raises(OSError, match="meanwhile"):
        late.allow(("c 1:3 rw",))
    assert group.attached() == before


def test_a_program_that_calls_functions_is_refused(group: V2Group) -> None:
    group.attach(CALL)
    with pytest.raises(InjectionError, match="calls functions or uses maps"):
        find_programs([str(group.path)])


def test_a_group_without_a_program_needs_no_rule(group: V2Group) -> None:
    assert isinstance(find_programs([str(group.path)]), Unrestricted)
    assert isinstance(open_device_rules(Group(str(group.path), 2), is_shared=True), Unrestricted)


def test_a_restricted_group_of_others_is_refused(group: V2Group) -> None:
    group.attach(DENY)
    with pytest.raises(InjectionError, match="not the container's own group"):
        open_device_rules(Group(str(group.path), 2), is_shared=True)


def test_without_any_hierarchy_the_refusal_says_what_to_do() -> None:
    with pytest.raises(InjectionError, match="not found below any mounted cgroup hierarchy"):
        open_device_rules(None, is_shared=False)


@pytest.mark.parametrize(
    ("path", "folders"),
    [
        pytest.param("/g/libpod-1.scope/container", ("/g/libpod-1.scope/container", "/g/libpod-1.scope"), id="crun's"),
        pytest.param("/g/session-1.scope/c1", ("/g/session-1.scope/c1",), id="below somebody's session"),
        pytest.param("/g/kubepods/container", ("/g/kubepods/container",), id="no scope around it"),
    ],
)
def test_only_groups_of_the_container_alone_are_changed(path: str, folders: tuple[str, ...]) -> None:
    assert own_folders(path) == folders


def test_constants_are_no_references() -> None:
    constant = struct.pack("=BBhiBBhi", 0x18, 0, 0, 7, 0, 0, 0, 0)
    table = struct.pack("=BBhiBBhi", 0x18, 0x10, 0, 7, 0, 0, 0, 0)
    assert not has_references(extend(constant + DENY, ("c 195:255 rw",)))
    assert has_references(table + DENY)


@pytest.mark.parametrize("runtime", ["runc-v2", "crun-v2"])
def test_env_mode_opens_the_gpu_and_no_other(container: Callable[..., object], runtime: str) -> None:
    v2_root()
    script = (
        "for n in 0 1; do (: < /dev/nvidia$n) 2>/dev/null && echo $n open || echo $n shut; done;"
        "mknod /dev/other c 4 17; (: < /dev/other) 2>&1 | grep -o 'Operation not permitted'; cat /proc/self/cgroup"
    )
    environment = ["NVIDIA_VISIBLE_DEVICES=0"]
    made = container(["/bin/sh", "-c", script], {"entitlement": "env"}, environment=environment)
    done = made.run(runtime)  # type: ignore[attr-defined] # the fixture's Container
    assert done.stdout.startswith("0 open\n1 shut\nOperation not permitted\n"), done.stderr
    assert "\n0::/grapnel-test-" in done.stdout, "the container had a group of cgroup v2"
