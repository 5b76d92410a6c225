"""Labels tell how GPUs are shared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plugin.devices.naming import NamePattern
from plugin.devices.resources import OfferRules
from plugin.devices.sharing import ShareRule, Strategy
from plugin.publication.labels.node_labels import label_notes, make_labels
from plugin.settings.model import DaemonSettings
from plugin.settings.node_config import NodeConfig
from plugin.sharing.mps.plan import refusals_of_node
from tests.plugin.labels.nodes import HOST, PAIR, a100, cut, inventory_of, labels_of

TIME = ShareRule(Strategy.TIME_SLICING, "nvidia.com/gpu", "nvidia.com/gpu", 4)
OTHER_NAME = replace(TIME, shown_as="nvidia.com/gpu.shared")


@pytest.mark.parametrize(
    ("rule", "product", "replicas", "strategy"),
    [
        pytest.param(TIME, "NVIDIA-A100-SXM4-80GB-SHARED", "4", "time-slicing", id="under the same name"),
        pytest.param(OTHER_NAME, "NVIDIA-A100-SXM4-80GB", "4", "time-slicing", id="under another name"),
        pytest.param(
            replace(TIME, strategy=Strategy.MPS), "NVIDIA-A100-SXM4-80GB-SHARED", "4", "mps", id="through MPS"
        ),
        pytest.param(
            replace(OTHER_NAME, strategy=Strategy.MEMORY, replicas=0, unit_bytes=2**30),
            "NVIDIA-A100-SXM4-80GB",
            "80",
            "memory",
            id="as memory",
        ),
    ],
)
def test_the_labels_tell_how_gpus_are_shared(rule: ShareRule, product: str, replicas: str, strategy: str) -> None:
    found = labels_of(shares=(rule,))
    assert (found["gpu.product"], found["gpu.replicas"], found["gpu.sharing-strategy"], found["gpu.count"]) == (
        product,
        replicas,
        strategy,
        "2",
    )
    assert found["mps.capable"] == ("true" if strategy == "mps" else "false")


@pytest.mark.parametrize("strategy", [Strategy.TIME_SLICING, Strategy.MPS])
def test_gpus_in_mig_mode_are_not_labelled_as_shared(strategy: Strategy) -> None:
    """No process can use a share of such a GPU, whatever is declared."""
    shares = (replace(TIME, strategy=strategy),)
    found = labels_of([cut(0, "1g.10gb"), cut(1)], shares=shares)
    assert (found["gpu.product"], found["gpu.replicas"]) == ("NVIDIA-A100-SXM4-80GB", "0")
    assert (found["gpu.sharing-strategy"], found["mps.capable"]) == ("none", "false")

    beside = labels_of([cut(0, "1g.10gb"), a100(1)], shares=shares)
    assert (beside["gpu.replicas"], beside["gpu.sharing-strategy"]) == ("4", strategy.value)


def test_mig_devices_are_labelled_as_shared_by_their_own_resource() -> None:
    rule = replace(TIME, resource="nvidia.com/mig-1g.10gb", shown_as="nvidia.com/mig-1g.10gb", replicas=3)
    found = labels_of([cut(0, "1g.10gb"), a100(1)], strategy="mixed", shares=(rule,))
    assert found["mig-1g.10gb.product"] == "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb-SHARED"
    assert (found["mig-1g.10gb.replicas"], found["gpu.replicas"]) == ("3", "1")


def test_gpus_that_are_shared_in_several_ways_are_told() -> None:
    rules = OfferRules((NamePattern("*", "nvidia.com/gpu"),), shares=(replace(TIME, chosen=("1",)),))
    assert any("others are shared in another way" in note for note in label_notes(inventory_of(PAIR), rules))


def test_labels_say_nothing_of_mps_where_no_gpu_can_be_shared_through_it() -> None:
    """A GPU whose driver does not say its memory was labelled as shared, and offered by nobody."""
    rules = OfferRules((NamePattern("*", "nvidia.com/gpu"),), shares=(replace(TIME, strategy=Strategy.MPS),))
    silent = replace(a100(0), memory_bytes=None)
    config = NodeConfig(settings=DaemonSettings(shares=rules.shares))
    refused = refusals_of_node(config, inventory_of([silent]))
    made = make_labels(inventory_of([silent]), HOST, rules, refused=refused)
    assert made["nvidia.com/gpu.sharing-strategy"] == "none"
    assert (made["nvidia.com/gpu.replicas"], made["nvidia.com/mps.capable"]) == ("0", "false")
    (note, *_) = label_notes(inventory_of([silent]), rules, refused=refused)
    assert "the driver does not say how much memory it has" in note


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(
            ShareRule(Strategy.MEMORY, "nvidia.com/gpu", "aliyun.com/gpu-mem", unit_bytes=2**30), id="no unit is known"
        ),
        pytest.param(
            ShareRule(Strategy.MEMORY, "nvidia.com/gpu", "aliyun.com/gpu-mem", unit_bytes=2**20, memory_bytes=2**37),
            id="more units than a kubelet takes",
        ),
    ],
)
def test_a_gpu_of_which_nothing_is_offered_is_labelled_so(rule: ShareRule) -> None:
    found = labels_of([replace(a100(0), memory_bytes=None)], shares=(rule,))
    assert (found["gpu.count"], found["gpu.replicas"], found["gpu.sharing-strategy"]) == ("1", "0", "none")
