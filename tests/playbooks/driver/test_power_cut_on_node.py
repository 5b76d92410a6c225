"""The program on a booted node is cut off at every step that it writes down, and within a transaction of dpkg.

Everything of its unit is killed, or the whole node, whose kernel forgets then what was loaded. The modules come in
packages, ready-made; what DKMS adds to that has its own file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.log import FINISH, RUN
from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.run import (
    ADOPT,
    BACKWARD_PREFIX,
    CHECK,
    INITRAMFS,
    REPAIR,
    STEPS,
)

from tests.playbooks.driver.driven_node import PackagedNode, driven_node
from tests.playbooks.staging.small_driver import NEW, OLD
from tests.sampled import every_second

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.playbooks.driver.driven_node import DrivenNode

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(600)]  # one test walks all steps of a return

FORWARD_STEPS = [RUN, REPAIR, CHECK, *(name for name, _ in STEPS), ADOPT, INITRAMFS, FINISH]
BACKWARD_STEPS = [*(BACKWARD_PREFIX + name for name, _ in STEPS), ADOPT, INITRAMFS, FINISH]
# The moments within a transaction at which dpkg leaves a package half there, unpacked, or not configured.
SCRIPTS = ["liblab.preinst", "liblab.postrm", "nvidia-lab-modules.prerm", "nvidia-lab-modules.postinst"]
BROKEN = "verify: nvidia-smi fails with 1"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DrivenNode]:
    with driven_node(PackagedNode, "cut", tmp_path_factory.mktemp("driver")) as made:
        yield made


@pytest.fixture(scope="module")
def newer(node: DrivenNode) -> str:
    """The staged change to the newer driver."""
    return node.prepare(NEW)


@pytest.fixture
def broken(node: DrivenNode) -> Iterator[None]:
    """A newer driver that cannot be verified, so that every swap to it returns."""
    node.break_smi()
    yield
    node.sh("rm /usr/bin/nvidia-smi")


def steps_of_last_run(node: DrivenNode) -> list[str]:
    return list(dict.fromkeys(str(event["step"]) for event in node.call("status")["steps"]))


def test_the_steps_that_are_cut_are_all_that_are_written_down(node: DrivenNode, newer: str) -> None:
    assert node.swap(newer)["state"] == "done"
    swap = steps_of_last_run(node)
    assert node.back()["state"] == "done"
    back = steps_of_last_run(node)
    node.break_smi()
    assert node.swap(newer)["state"] == "returned"
    returned = steps_of_last_run(node)
    node.sh("rm /usr/bin/nvidia-smi")

    assert swap == back == FORWARD_STEPS
    assert returned == [*FORWARD_STEPS[: FORWARD_STEPS.index(ADOPT)], *BACKWARD_STEPS]
    node.assert_has(OLD)


@pytest.mark.parametrize("place", every_second([*FORWARD_STEPS, *SCRIPTS]))
def test_a_swap_and_a_way_back_that_are_killed_come_to_their_end(node: DrivenNode, newer: str, place: str) -> None:
    node.cut(place, "swap", newer)
    there = node.swap(newer)
    assert (there["state"], there["reason"], there["verb"]) == ("done", "", "swap")
    assert steps_of_last_run(node)[-3:] == FORWARD_STEPS[-3:], "the initramfs is not forgotten"
    node.assert_has(NEW)

    node.cut(place, "back")
    back = node.back()
    assert (back["state"], back["reason"], back["verb"]) == ("done", "", "back")
    assert steps_of_last_run(node)[-3:] == FORWARD_STEPS[-3:], "the initramfs is not forgotten"
    node.assert_has(OLD)


@pytest.mark.usefixtures("broken")
def test_a_return_that_is_killed_at_one_step_after_the_other_comes_to_its_end(node: DrivenNode, newer: str) -> None:
    """Each time it goes on, it is killed at the step that it has not reached before."""
    for place in BACKWARD_STEPS:
        node.cut(place, "swap", newer)
        run = node.call("status")["run"]
        assert (run["state"], run["direction"], run["step"]) == ("running", "back", place)

    record = node.swap(newer)

    assert record["state"] == "returned", record["reason"]
    assert record["reason"].startswith(BROKEN)
    node.assert_has(OLD)


@pytest.mark.parametrize("place", ["liblab.preinst", "load", "adopt"])
def test_a_node_that_loses_its_power_has_the_new_driver_once_the_swap_goes_on(
    node: DrivenNode, newer: str, place: str
) -> None:
    node.cut_power(place, "swap", newer)

    record = node.swap(newer)
    assert (record["state"], record["reason"]) == ("done", "")
    node.assert_has(NEW)

    back = node.back()
    assert back["state"] == "done", back["reason"]
    node.assert_has(OLD)


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize("place", ["back-packages"])
def test_a_node_that_loses_its_power_has_the_old_driver_once_the_return_goes_on(
    node: DrivenNode, newer: str, place: str
) -> None:
    node.cut_power(place, "swap", newer)

    record = node.swap(newer)

    assert record["state"] == "returned", record["reason"]
    assert record["reason"].startswith(BROKEN), record
    node.assert_has(OLD)
