"""A driver of real packages moves through three nodes: a canary, then two that are one domain, of which one fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.stage.rolling import CANARY, LEFT, NAMES, RIGHT, Fleet, boot
from tests.journey.conftest import OLD_VERSION, VERSION, Controller
from tests.journey.test_driver_swap import RELEASED, is_there, loaded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.nodes import Site

# Eleven driver changes of DKMS packages on two cores.
pytestmark = [pytest.mark.nodes, pytest.mark.long, pytest.mark.timeout(1500)]

TIMEOUT_S = 900  # of a command: a first installation unpacks a lot, on three nodes at once


@pytest.fixture(scope="module")
def fleet(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """The nodes with the older driver."""
    folder: Path = tmp_path_factory.mktemp("rollout")
    made = Fleet(boot(site, folder), folder, Controller(folder, timeout_s=TIMEOUT_S).run)
    made.declare(OLD_VERSION)
    done = made.change("apply")
    assert done.returncode == 0, done.stdout + done.stderr
    yield made
    for name in NAMES:
        site.remove(name)


def assert_have(fleet: Fleet, *versions: str) -> None:
    """Hold the nodes to drivers: module, libraries, and GPUs that are in service."""
    query = ["nvidia-smi", "--query-gpu=driver_version,uuid", "--format=csv,noheader"]
    for name, version in zip(NAMES, versions, strict=True):
        node = fleet.nodes[name]
        shown = node.run(query).stdout.splitlines()
        assert sorted(shown) == sorted(f"{version}, {gpu.uuid}" for gpu in node.gpus), name
        assert loaded(node) == version, name
        assert not is_there(node, RELEASED), name
        assert not is_there(node, "/etc/dkms/no-autoinstall"), name


def test_a_domain_of_which_one_node_fails_goes_back_as_one_and_the_canary_stays(fleet: Fleet) -> None:
    fleet.declare(VERSION)
    fleet.fail(RIGHT)

    done = fleet.change("apply")

    said = " ".join(done.stdout.split())
    assert done.returncode == 1, done.stdout + done.stderr
    records = fleet.records()
    assert {name: one["phase"] for name, one in records.items()} == {
        CANARY: "done",
        LEFT: "returned",
        RIGHT: "returned",
    }, said
    assert "CUDA_ERROR_OUT_OF_MEMORY" in records[RIGHT]["reason"]
    assert records[LEFT]["becauseOf"] == RIGHT
    assert records[CANARY]["since"] < min(records[LEFT]["began"], records[RIGHT]["began"])
    assert_have(fleet, VERSION, OLD_VERSION, OLD_VERSION)


def test_when_the_cause_is_gone_the_domain_follows(fleet: Fleet) -> None:
    fleet.heal(RIGHT)

    done = fleet.change("apply")

    assert done.returncode == 0, done.stdout + done.stderr
    assert {one["phase"] for one in fleet.records().values()} == {"done"}
    assert_have(fleet, VERSION, VERSION, VERSION)


def test_the_fleet_goes_back_wave_by_wave(fleet: Fleet) -> None:
    done = fleet.change("rollback")

    assert done.returncode == 0, done.stdout + done.stderr
    records = fleet.records()
    assert records[CANARY]["since"] < min(records[LEFT]["began"], records[RIGHT]["began"])
    assert_have(fleet, OLD_VERSION, OLD_VERSION, OLD_VERSION)
