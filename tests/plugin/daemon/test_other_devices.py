"""The shell around the looks: what hangs or fails costs nobody anything."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from plugin.base.log import Logger
from plugin.daemon.optional.other_devices import OtherDevices
from plugin.settings.node_config import NodeConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from plugin.daemon.optional.other_claims import OtherClaims
    from plugin.devices.other.offered import OtherPlan
    from plugin.kubelet.offering import Offering


class Shown:
    """Stands for the offering: remembers what it was to show."""

    def __init__(self) -> None:
        self.plans: list[OtherPlan] = []

    def show_others(self, _config: NodeConfig, plan: OtherPlan, *, is_offered: bool = True) -> None:
        self.plans.append(plan)


class NoClaims:
    """Nobody has anything by a claim."""

    def is_needed(self, _config: NodeConfig) -> bool:
        return False

    def show(self, _config: NodeConfig, plan: OtherPlan) -> OtherPlan:
        return plan


@pytest.fixture
def config(tmp_path: Path) -> NodeConfig:
    (tmp_path / "devices.d").mkdir()
    (tmp_path / "sys").mkdir()
    return replace(
        NodeConfig(), sys_root=tmp_path / "sys", dev_root=tmp_path / "dev", device_classes=tmp_path / "devices.d"
    )


def write(config: NodeConfig, name: str, **keys: object) -> None:
    document = {"schema": "grapnel.dev/device-class/v1alpha1", "resource": f"a.b/{name}", "rescanSeconds": 0.1, **keys}
    (config.device_classes / f"{name}.json").write_text(json.dumps(document))


def made(shown: Shown, stall_s: float = 60.0) -> OtherDevices:
    offering: Offering = shown  # type: ignore[assignment] # the one call that is made of it
    claims: OtherClaims = NoClaims()  # type: ignore[assignment] # the same
    return OtherDevices(offering, claims, Logger(), lambda: None, stall_s)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0.01)


def test_without_a_folder_nothing_is_looked_for(config: NodeConfig) -> None:
    config.device_classes.rmdir()
    shown = Shown()

    async def follow() -> None:
        made(shown).follow(config)
        await asyncio.sleep(0.2)

    asyncio.run(follow())
    assert shown.plans == []


def test_it_looks_until_it_is_closed(config: NodeConfig) -> None:
    write(config, "card", unit={"count": 1})
    shown = Shown()

    async def follow() -> None:
        others = made(shown)
        others.follow(config)
        await until(lambda: len(shown.plans) >= 3)
        others.close()
        count = len(shown.plans)
        await asyncio.sleep(0.3)
        assert len(shown.plans) == count

    asyncio.run(follow())
    assert all(plan == shown.plans[0] for plan in shown.plans)


def test_an_empty_folder_is_looked_into_once(config: NodeConfig) -> None:
    shown = Shown()

    async def follow() -> None:
        made(shown).follow(config)
        await until(lambda: shown.plans)
        await asyncio.sleep(0.3)

    asyncio.run(follow())
    assert [plan.resources for plan in shown.plans] == [{}]


class Folder:
    """A folder whose listing waits, or fails as a program with a bug does."""

    def __init__(self, folder: Path, listed: Callable[[], object]) -> None:
        self._folder = folder
        self._listed = listed

    def is_dir(self) -> bool:
        return True

    def iterdir(self) -> object:
        self._listed()
        return self._folder.iterdir()

    def __str__(self) -> str:
        return str(self._folder)


def listed(config: NodeConfig, call: Callable[[], object]) -> NodeConfig:
    folder: Path = Folder(config.device_classes, call)  # type: ignore[assignment] # what is asked of a folder
    return replace(config, device_classes=folder)


def test_a_look_that_hangs_is_told_of_once_and_nobody_waits(
    config: NodeConfig, caplog: pytest.LogCaptureFixture
) -> None:
    write(config, "card", unit={"count": 1})
    gate = threading.Event()
    shown = Shown()

    async def follow() -> None:
        others = made(shown, stall_s=0.1)
        others.follow(listed(config, lambda: gate.wait(30)))
        await until(lambda: "sysfs has not answered" in caplog.text)
        await asyncio.sleep(0.3)
        assert shown.plans == []
        gate.set()
        await until(lambda: shown.plans)
        others.close()

    with caplog.at_level(logging.INFO, "grapnel"):
        asyncio.run(follow())
    assert caplog.text.count("sysfs has not answered") == 1


def test_a_daemon_ends_while_a_look_hangs(config: NodeConfig) -> None:
    gate = threading.Event()

    async def follow() -> None:
        others = made(Shown())
        others.follow(listed(config, lambda: gate.wait(30)))
        await asyncio.sleep(0.1)
        others.close()

    asyncio.run(follow())  # returns although the thread is still there
    assert any(thread.name == "other-devices" for thread in threading.enumerate())
    gate.set()


def test_a_bug_is_told_of_and_ends_nothing(config: NodeConfig, caplog: pytest.LogCaptureFixture) -> None:
    shown = Shown()

    async def follow() -> None:
        others = made(shown)
        others.follow(listed(config, lambda: 1 // 0))
        await until(lambda: "looking for devices failed: ZeroDivisionError" in caplog.text)
        write(config, "card", unit={"count": 1})
        others.follow(config)
        await until(lambda: shown.plans)
        others.close()

    asyncio.run(follow())
    assert list(shown.plans[-1].resources) == ["a.b/card"]


class Refusing(Shown):
    """An offering with a bug."""

    def show_others(self, config: NodeConfig, plan: OtherPlan, *, is_offered: bool = True) -> None:
        super().show_others(config, plan, is_offered=is_offered)
        raise ZeroDivisionError("a bug")


def test_a_bug_in_what_offers_is_told_of(config: NodeConfig, caplog: pytest.LogCaptureFixture) -> None:
    write(config, "card", unit={"count": 1})

    async def follow() -> None:
        made(Refusing()).follow(config)
        await until(lambda: "nobody looks for devices any more: ZeroDivisionError: a bug" in caplog.text)

    asyncio.run(follow())


def test_a_look_that_fails_when_nobody_waits_for_it_is_not_told_of(
    config: NodeConfig, caplog: pytest.LogCaptureFixture
) -> None:
    gate = threading.Event()

    def fail() -> None:
        gate.wait(30)
        raise ZeroDivisionError

    async def follow() -> None:
        others = made(Shown())
        others.follow(listed(config, fail))
        await asyncio.sleep(0.1)
        others.close()
        gate.set()
        await until(lambda: all(thread.name != "other-devices" for thread in threading.enumerate()))
        await asyncio.sleep(0)

    asyncio.run(follow())
    gc.collect()
    assert "never retrieved" not in caplog.text


def test_what_an_older_configuration_looked_for_is_not_shown(config: NodeConfig) -> None:
    write(config, "card", unit={"count": 1})
    gate = threading.Event()
    shown = Shown()

    async def follow() -> None:
        others = made(shown)
        others.follow(listed(config, lambda: gate.wait(30)))
        await asyncio.sleep(0.1)
        write(config, "card", unit={"count": 2})
        others.follow(config)
        await until(lambda: shown.plans)
        gate.set()
        await until(lambda: len(shown.plans) >= 3)
        others.close()

    asyncio.run(follow())
    assert {len(plan.resources["a.b/card"].offers) for plan in shown.plans} == {2}
