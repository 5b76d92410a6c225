"""What a test leaves is told with its name."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace as Some
from typing import TYPE_CHECKING, cast

import pytest

from tests.e2e.fleet import UPGRADE
from tests.e2e.leftovers import leftovers, require_clean
from tests.e2e.manifests import RESOURCE

if TYPE_CHECKING:
    from tests.e2e.stage import Stage


@dataclass
class FakeApi:
    """One node and some pods."""

    at: Some
    offered: int = 2
    pods: list[Some] = field(default_factory=list)

    def node(self, _name: str) -> Some:
        return self.at

    def allocatable(self, _name: str) -> int:
        return self.offered

    def all_pods(self) -> list[Some]:
        return self.pods


@dataclass
class FakeStage:
    api: FakeApi
    lab_nodes: tuple[Some, ...] = (Some(name="gpu1", uuids=("a", "b")),)

    def evidence(self) -> str:
        return "journals"


def stage(
    *, unschedulable: bool = False, taints: tuple[Some, ...] = (), offered: int = 2, pods: tuple[Some, ...] = ()
) -> Stage:
    node = Some(
        metadata=Some(labels={UPGRADE: "failed"}), spec=Some(unschedulable=unschedulable, taints=list(taints) or None)
    )
    return cast("Stage", FakeStage(FakeApi(node, offered, list(pods))))


def pod(namespace: str, *, phase: str = "Running", gpus: bool = True, init_gpus: bool = False) -> Some:
    def container(*, takes: bool) -> Some:
        return Some(resources=Some(limits={RESOURCE: "1"} if takes else None))

    return Some(
        metadata=Some(namespace=namespace, name="p", deletion_timestamp=None),
        spec=Some(containers=[container(takes=gpus)], init_containers=[container(takes=init_gpus)], node_name="gpu1"),
        status=Some(phase=phase),
    )


@pytest.mark.parametrize(
    ("left", "words"),
    [
        pytest.param(stage(unschedulable=True), "gpu1 is cordoned, its upgrade is at failed", id="a cordon"),
        pytest.param(stage(taints=(Some(key="k", effect="NoSchedule"),)), "the taint k:NoSchedule", id="a taint"),
        pytest.param(stage(offered=1), "gpu1 offers 1 of 2 GPUs", id="a GPU"),
        pytest.param(stage(pods=(pod("other"),)), "pod other/p is Running on gpu1", id="a pod"),
        pytest.param(stage(pods=(pod("other", gpus=False, init_gpus=True),)), "pod other/p", id="an init container"),
    ],
)
def test_what_is_left_is_told_with_who_left_it(left: Stage, words: str) -> None:
    with pytest.raises(AssertionError) as raised:
        require_clean(left, {"mine"}, "test_before", timeout_s=0)
    assert "left by test_before:" in str(raised.value)
    assert words in str(raised.value)


def test_pods_of_open_rooms_and_those_that_have_ended_are_not_left_over() -> None:
    pods = (pod("mine"), pod("other", phase="Succeeded"), pod("other", gpus=False))
    assert leftovers(stage(pods=pods), {"mine"}) == []
