"""What people do to a rollout at moments that nobody has planned for, and what they are told then."""

from __future__ import annotations

import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.provision.staged.fleet import NEW, NO_KUBELET, OLD, TIMEOUT_S, Fleet

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.functional

HOSTS = {f"n{number}": f"10.78.0.{number}" for number in range(1, 5)}
RACKS: dict[str, dict[str, object]] = {
    "rack1": {"hosts": {"n1": {}, "n2": {}}},
    "rack2": {"hosts": {"n3": {}, "n4": {}}},
}


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """Four machines of two racks without a scheduler, with an old driver."""
    made = Fleet(tmp_path)
    made.lay_out(HOSTS, RACKS, **NO_KUBELET)
    return made


def drivers(fleet: Fleet) -> list[str]:
    return [fleet.machines.driver(name) for name in HOSTS]


def test_a_rollout_outlasts_whoever_reads_its_output(fleet: Fleet) -> None:
    """`grapnel apply | head` ended in the middle, without a word."""
    process = subprocess.Popen(
        fleet.command("apply", "--yes"),
        cwd=fleet.folder,
        env=fleet.environ(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
        assert process.wait(TIMEOUT_S) == 0, said

    assert drivers(fleet) == [NEW] * 4
    assert said.count("nobody reads the output any more: going on; `grapnel status` shows how it stands") == 1


@pytest.mark.long
def test_an_interruption_is_told_as_one_and_a_second_one_changes_nothing(fleet: Fleet) -> None:
    fleet.machines.hold("n1", "apply")
    with fleet.running("apply", "--yes") as apply:
        apply.says("n1 swap: the driver is exchanged")
        apply.process.send_signal(signal.SIGINT)
        apply.process.send_signal(signal.SIGINT)
        output = apply.end(code=130)

    assert "n1 stays out of service: run `grapnel apply` again: it goes on there" in output
    assert "fix what is reported" not in output
    assert fleet.states() == {"n1": "left-in-swap", "n2": "not-begun", "n3": "not-begun", "n4": "not-begun"}
    fleet.machines.let("n1", "apply")
    assert "4 nodes: 4 converged" in fleet.call("apply", "--yes")


def test_a_saved_plan_is_applied_exactly_or_not_at_all(fleet: Fleet) -> None:
    """Between a plan that somebody has approved and its apply, anything could change without a word."""
    assert "`grapnel apply --saved p.json` does exactly this" in fleet.call("plan", "-o", "p.json", "rack1")
    fleet.declare(NEW, **NO_KUBELET, rollout={"maxParallel": 2})
    assert "n1, n2: declared otherwise: rollout.maxParallel" in fleet.call("apply", "--saved", "p.json", code=1)
    assert drivers(fleet) == [OLD] * 4

    fleet.declare(NEW, **NO_KUBELET)
    assert "2 nodes: 2 converged" in fleet.call(
        "apply", "--saved", "p.json"
    )  # nobody is asked, and its nodes are the plan's
    assert drivers(fleet) == [NEW, NEW, OLD, OLD]
    assert "n1, n2: no longer: upgrade driver" in fleet.call("apply", "--saved", "p.json", code=1)


def test_nobody_else_changes_the_same_machines_meanwhile_and_verbs_still_work(fleet: Fleet) -> None:
    fleet.machines.hold("n1", "apply")
    with fleet.running("apply", "--yes") as apply:
        apply.says("n1 swap: the driver is exchanged")
        for verb in ("apply", "rollback"):
            told = fleet.call(verb, "--yes", code=1)
            assert f"n1 and 3 more are being changed by process {apply.process.pid}" in told
        assert "n1: has not failed: its upgrade is in swap" in fleet.call("retry", "n1", code=1)
        assert "n1: is yours: its upgrade ended in swap and is forgotten" in fleet.call("abandon", "n1")
        assert "no host or group of the inventory matches 'n9'" in fleet.call("skip", "n9", code=1)
        fleet.machines.let("n1", "apply")
        output = apply.end(code=1)

    assert "skipped: no upgrade begins on it until `grapnel skip --undo n1`" in output
    assert fleet.states()["n1"] == "skipped"


def test_a_part_of_a_domain_is_refused_with_what_it_lacks(fleet: Fleet) -> None:
    """Naming some nodes put two drivers into service in one domain."""
    fleet.declare(NEW, **NO_KUBELET, rollout={"maxUnavailable": 2, "maxParallel": 2, "domains": {"groups": [*RACKS]}})

    for verb in ("plan", "apply"):
        consent = ["--yes"] if verb == "apply" else []
        told = fleet.call(verb, *consent, "n1,rack2", code=1)
        reason = "its domain rack1 is changed as one, and n2 of it is not named: name all of its nodes"
        assert reason in told
    assert drivers(fleet) == [OLD, OLD, NEW, NEW]
