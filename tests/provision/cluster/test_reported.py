"""What a Node says of its machine is read as the node daemon and the kubelet write it, and not believed for long."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from plugin.devices.inventory import Inventory
from plugin.devices.observer import Observation
from plugin.drift.model import Difference, DriftKind
from plugin.drift.result import Result
from plugin.publication.node_object.conditions import conditions_of, drift_condition
from plugin.publication.node_object.model import Condition as Written
from provision.cluster.kubernetes.nodes.reported import has_gpus, reported_of
from provision.cluster.kubernetes.objects.nodes import Node
from provision.rollout.model import Phase, Record
from provision.rollout.status.reported import Daemon, Drift, Reported

NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)
VERSION = "550.163.01"
OBSERVED = conditions_of(Observation(Inventory(driver_version=VERSION)), "")
GPUS = Written("GPUsHealthy", "True", "AllGPUsHealthy", "4 GPUs can be used")


def at(minutes: float) -> str:
    return (NOON + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


def node(*said: Written, minutes: float = -4, ready: str = "True", offered: int = 4) -> Node:
    """Return a Node as the API has it, of which a daemon said this some minutes after noon."""
    conditions = [
        {
            "type": each.kind,
            "status": each.status,
            "reason": each.reason,
            "message": each.message,
            "lastHeartbeatTime": at(minutes),
        }
        for each in said
    ]
    document = {
        "metadata": {"name": "n1", "labels": {"grapnel.dev/driver.kernel-module": "open"}},
        "status": {
            "conditions": [{"type": "Ready", "status": ready, "lastHeartbeatTime": at(-1)}, *conditions],
            "capacity": {"cpu": "16", "nvidia.com/gpu": "4", "hugepages-1Gi": "0"},
            "allocatable": {"cpu": "15500m", "nvidia.com/gpu": str(offered), "example.com/odd": "1500m"},
            "nodeInfo": {"kubeletVersion": "v1.31.2", "containerRuntimeVersion": "containerd://1.7.27"},
        },
    }
    return msgspec.json.decode(msgspec.json.encode(document), type=Node)


def read(there: Node, record: Record | None = None) -> Reported:
    return reported_of(there, record, NOON)


def record(minutes: float) -> Record:
    began = NOON + timedelta(minutes=minutes)
    return Record(phase=Phase.DONE, target=VERSION, began=began, since=began + timedelta(minutes=3))


def test_what_daemon_and_kubelet_say_now_is_read() -> None:
    as_declared = drift_condition(Result(0))

    assert read(node(OBSERVED[1], GPUS, as_declared)) == Reported(
        heard=NOON - timedelta(minutes=1),
        kubelet="v1.31.2",
        engine="containerd 1.7.27",
        daemon=Daemon.REPORTS,
        said=NOON - timedelta(minutes=4),
        driver=VERSION,
        module="open",
        seen=4,
        drift=Drift.NONE,
        offered={"nvidia.com/gpu": 4},
        capacity={"nvidia.com/gpu": 4},
    )


@pytest.mark.parametrize("minutes", [-31, -600], ids=["for half an hour", "for long"])
def test_a_daemon_that_says_nothing_any_more_is_silent_and_not_believed(minutes: float) -> None:
    told = read(node(OBSERVED[1], GPUS, minutes=minutes))

    assert (told.daemon, told.driver, told.module, told.seen) == (Daemon.SILENT, "", "", None)
    assert told.said == NOON + timedelta(minutes=minutes)
    assert told.offered == {"nvidia.com/gpu": 4}, "that is the kubelet's word"


def test_a_daemon_that_never_spoke_is_not_silent() -> None:
    assert read(node()).daemon is Daemon.NO_REPORT


def test_labels_alone_are_no_evidence() -> None:
    assert not read(node()).module


def test_what_was_said_before_an_upgrade_began_is_not_what_is_so() -> None:
    assert not read(node(OBSERVED[1], GPUS), record(-3)).driver
    assert read(node(OBSERVED[1], GPUS), record(-5)).driver == VERSION, (
        "the daemon says so when it has the driver again"
    )


def test_a_kubelet_that_does_not_report_offers_nothing_that_is_known() -> None:
    assert read(node(ready="Unknown")).offered is None


def test_a_driver_that_does_not_answer_says_why() -> None:
    observed = conditions_of(Observation(Inventory(), waiting_for="no driver is loaded", hint="modprobe nvidia"), "")
    told = read(node(*observed, offered=0))

    assert (told.driver, told.seen) == ("", None)
    assert told.driver_trouble == "no driver is loaded (modprobe nvidia)"


def test_a_released_node_says_so() -> None:
    told = read(node(*conditions_of(Observation(Inventory(driver_version=VERSION)), "released by ada"), offered=0))

    assert told.driver_trouble == "released by ada: the driver is not asked"


def test_gpus_that_cannot_be_used_are_counted() -> None:
    said = replace_message(GPUS, "False", "1 of 4 GPUs cannot be used: GPU-02bdf2c8: xid 79")
    told = read(node(OBSERVED[1], said, offered=3))

    assert (told.seen, told.unusable, told.gpu_trouble) == (4, 1, said.message)


def test_drift_is_told_in_the_words_of_the_node() -> None:
    difference = Difference(DriftKind.FILE, "/etc/x", "a", "b", None, "grapnel apply")
    told = read(node(OBSERVED[1], drift_condition(Result(0, differences=(difference,)))))

    assert told.drift is Drift.DRIFTED
    assert told.drift_words == "1 difference, to be mended by `grapnel apply`: file /etc/x is a, declared b"
    assert read(node(OBSERVED[1], drift_condition(Result(0, reason="busy")))).drift is Drift.NOT_COMPARED
    assert read(node(OBSERVED[1])).drift is Drift.NOT_KNOWN


def test_what_a_node_makes_up_is_not_believed() -> None:
    made_up = replace_message(GPUS, "True", "99999999 GPUs can be used")
    told = read(node(OBSERVED[1]._replace(message="driver \x1b[2J answers"), made_up))

    assert (told.driver, told.seen) == ("", None)
    assert "\x1b" not in told.driver_trouble


def test_a_node_with_gpus_is_known_by_its_kubelet_or_its_daemon() -> None:
    assert has_gpus(node())
    bare = msgspec.json.decode(b'{"metadata": {"name": "n1"}, "status": {"capacity": {"cpu": "4"}}}', type=Node)
    assert not has_gpus(bare)


def replace_message(said: Written, status: str, message: str) -> Written:
    return said._replace(status=status, message=message)


def test_the_same_node_half_an_hour_later_says_nothing() -> None:
    there = node(OBSERVED[1], GPUS)

    assert replace(reported_of(there, None, NOON), heard=None).driver == VERSION
    assert reported_of(there, None, NOON + timedelta(minutes=30)).daemon is Daemon.SILENT
