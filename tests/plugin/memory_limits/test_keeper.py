"""What the hook hears: set, not set and why, not needed; and what is remembered of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from plugin.base.errors import LimitError, LimitUnsupported
from plugin.base.log import Logger
from plugin.driver.telemetry import GroupMemory
from plugin.sharing.memory_limits.keeper import LimitKeeper
from plugin.system.thread_calls import ThreadCalls
from tests.plugin.fakes import gpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

GIB = 1 << 30
UUID = gpu(0).uuid
ID = "a1" * 32
GROUP = f"/kubepods/besteffort/pod0a1b2c3d-0000-4000-8000-00112233aabb/{ID}"


class Given:
    """Allocations that are known."""

    def __init__(self, *memory: Mapping[str, int]) -> None:
        self.memory = memory

    async def find(self, memory: Mapping[str, int]) -> Mapping[str, int] | None:
        return memory if memory in self.memory else None


class Driver:
    """Keeps limits in memory, or fails."""

    def __init__(self, error: LimitError | None = None) -> None:
        self.error = error
        self.limits: dict[tuple[str, str], int] = {}

    def set_limit(self, uuid: str, group: str, limit_bytes: int) -> None:
        if self.error:
            raise self.error
        self.limits[uuid, group] = limit_bytes

    def read_group(self, uuid: str, group: str) -> GroupMemory:
        if self.error:
            raise self.error
        return GroupMemory(self.limits.get((uuid, group)), 7)


def at_once(function: Callable[[], None]) -> None:
    function()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a hierarchy with the container's group."""
    (tmp_path / "cgroup.controllers").touch()
    group = tmp_path / GROUP[1:]
    group.mkdir(parents=True)
    (group / "cgroup.procs").touch()
    return tmp_path


def keeper(
    root: Path,
    driver: Driver,
    policy: str = "preferred",
    hand_over: Callable[[Callable[[], None]], None] = at_once,
    given: Iterable[Mapping[str, int]] = ({UUID: GIB},),
) -> LimitKeeper:
    return LimitKeeper(
        allocations=Given(*given),
        calls=ThreadCalls(hand_over),
        policy=lambda: policy,
        logger=Logger(),
        driver=driver,
        root=root,
        driver_s=5.0 if hand_over is at_once else 0.01,
    )


def ask(of: LimitKeeper, memory: str = f"{UUID}={GIB}", cgroup: str = GROUP, container: str = ID) -> dict[str, Any]:
    return asyncio.run(of.answer({"verb": "limit", "container": container, "cgroup": cgroup, "memory": memory}))


@pytest.mark.parametrize("policy", ["preferred", "required"])
def test_a_container_gets_exactly_the_bytes_that_it_was_given(root: Path, policy: str) -> None:
    driver = Driver()
    answer = ask(keeper(root, driver, policy))
    assert answer == {"result": "set", "required": policy == "required", "limits": {UUID: GIB}}
    assert driver.limits == {(UUID, f"{root}{GROUP}"): GIB}


def test_where_limits_are_off_nothing_is_set(root: Path) -> None:
    driver = Driver()
    assert ask(keeper(root, driver, "off")) == {"result": "not needed", "required": False}
    assert driver.limits == {}


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        pytest.param({"memory": f"{UUID}={2 * GIB}"}, "no container was given this memory", id="more than was given"),
        pytest.param({"cgroup": ""}, "no group of cgroup v2", id="cgroup v1"),
        pytest.param({"cgroup": f"{GROUP}/../{'b2' * 32}"}, "not the path", id="a path that escapes"),
        pytest.param({"container": "b2" * 32}, "not the group of container", id="the group of another container"),
        pytest.param(
            {"container": "b2" * 32, "cgroup": GROUP.replace(ID, "b2" * 32)}, "is not there", id="a group that is gone"
        ),
    ],
)
@pytest.mark.parametrize("policy", ["preferred", "required"])
def test_what_cannot_be_is_not_set_and_says_why(root: Path, asked: dict[str, str], reason: str, policy: str) -> None:
    driver = Driver()
    answer = ask(keeper(root, driver, policy), **asked)
    assert (answer["result"], answer["required"]) == ("not set", policy == "required")
    assert reason in answer["reason"]
    assert driver.limits == {}


@pytest.mark.parametrize(
    "error", [LimitUnsupported("no limits here"), LimitError("gpu is lost")], ids=["unsupported", "failed"]
)
@pytest.mark.parametrize("policy", ["preferred", "required"])
def test_a_driver_that_cannot_is_reported(root: Path, error: LimitError, policy: str) -> None:
    answer = ask(keeper(root, Driver(error), policy))
    assert answer == {"result": "not set", "required": policy == "required", "reason": error.message, "hint": ""}


def test_the_annotation_does_not_decide_whether_a_limit_is_required(root: Path) -> None:
    assert ask(keeper(root, Driver()), f"required,{UUID}={GIB}")["required"] is False


def test_a_request_that_no_hook_writes_is_an_error(root: Path) -> None:
    assert "does not name" in ask(keeper(root, Driver()), memory="everything")["error"]


def test_a_driver_that_hangs_is_not_waited_for(root: Path) -> None:
    answer = ask(keeper(root, Driver(), "required", lambda _function: None))
    assert (answer["result"], answer["required"]) == ("not set", True)
    assert "does not answer" in answer["reason"]


def test_a_container_that_asks_for_each_of_its_claims_is_limited_on_all_their_gpus(root: Path) -> None:
    driver, other = Driver(), gpu(1).uuid
    limits = keeper(root, driver, given=[{UUID: GIB}, {other: 2 * GIB}])
    ask(limits)
    ask(limits, f"{other}={2 * GIB}")
    assert [dict(group.memory) for group in limits.groups] == [{UUID: GIB, other: 2 * GIB}]
    ((_, used),) = asyncio.run(limits.read())
    assert used == {UUID: GroupMemory(GIB, 7), other: GroupMemory(2 * GIB, 7)}


def test_what_is_used_is_read_until_the_group_is_gone(root: Path) -> None:
    driver = Driver()
    limits = keeper(root, driver)
    ask(limits)
    ((group, memory),) = asyncio.run(limits.read())
    assert (group.path, memory) == (f"{root}{GROUP}", {UUID: GroupMemory(GIB, 7)})
    driver.error = LimitError("gone meanwhile")
    assert asyncio.run(limits.read()) == ()
    (root / GROUP[1:] / "cgroup.procs").unlink()
    assert limits.groups == ()


def test_containers_that_have_ended_are_forgotten_when_another_one_starts(root: Path) -> None:
    limits, other = keeper(root, Driver()), "b2" * 32
    ask(limits)
    (root / GROUP[1:] / "cgroup.procs").rename(root / "cgroup.procs")
    group = root / GROUP[1:].replace(ID, other)
    group.mkdir()
    (root / "cgroup.procs").rename(group / "cgroup.procs")
    ask(limits, cgroup=GROUP.replace(ID, other), container=other)
    assert limits.containers == {other}
