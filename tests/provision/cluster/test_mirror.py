"""Objects are told of in any order, and more than once: what is kept is the newest that was told."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from provision.cluster.kubernetes.objects.nodes import Node
from provision.cluster.kubernetes.objects.pods import Pod
from provision.cluster.kubernetes.pods.gpu_pods import pod_use
from provision.cluster.kubernetes.pods.pod_rules import PodRules
from provision.cluster.kubernetes.watch.mirror import NodeCopy, NodeMirror, PodCopy, PodMirror
from provision.rollout.model import NodeView

if TYPE_CHECKING:
    from provision.rollout.interface.cluster import NodeProblem

RULES = PodRules(resources=frozenset())
KEYS = [("jobs", "a"), ("jobs", "b"), ("web", "a")]


def node(name: str, version: int, *, cordoned: bool = False, **more: Any) -> Node:
    whole = {
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)},
        "spec": {"unschedulable": cordoned},
        **more,
    }
    return msgspec.convert(whole, Node)


def pod(key: tuple[str, str], version: int, *, where: str = "n1", gpus: int = 1) -> Pod:
    whole = {
        "metadata": {
            "namespace": key[0],
            "name": key[1],
            "uid": f"uid-{version}",
            "resourceVersion": str(version),
        },
        "spec": {"nodeName": where, "containers": [{"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}]},
    }
    return msgspec.convert(whole, Pod)


class Nodes:
    """A mirror of Nodes and what it has called."""

    def __init__(self) -> None:
        self.wakes = 0
        self.mirror = NodeMirror(self.see, self.wake, threading.RLock())

    def see(self, each: Node) -> NodeView | NodeProblem:
        return NodeView(name=each.metadata.name, record=None, is_cordoned=each.spec.unschedulable, is_ready=True)

    def wake(self) -> None:
        self.wakes += 1


def pods_of(mirror: PodMirror, name: str = "n1") -> list[str]:
    return [each.uid for each in mirror.on(name).gpu]


def pod_mirror() -> PodMirror:
    return PodMirror(lambda each: pod_use(each, RULES), lambda: None, lambda _node: True, threading.RLock())


def test_only_what_changes_the_view_wakes() -> None:
    nodes = Nodes()
    nodes.mirror.put(node("n1", 1))
    nodes.mirror.put(node("n1", 2))
    assert nodes.wakes == 1
    nodes.mirror.put(node("n1", 3, cordoned=True))
    assert nodes.wakes == 2
    entry = nodes.mirror.get("n1")
    assert entry is not None
    assert entry.node.metadata.resource_version == "3"


def test_an_older_version_changes_nothing() -> None:
    nodes = Nodes()
    nodes.mirror.put(node("n1", 100, cordoned=True))
    nodes.mirror.put(node("n1", 99))
    nodes.mirror.drop("n1", 99)
    entry = nodes.mirror.get("n1")
    assert entry is not None
    assert isinstance(entry.view, NodeView)
    assert entry.view.is_cordoned


def test_what_was_written_does_not_bring_back_what_has_gone() -> None:
    nodes = Nodes()
    nodes.mirror.put(node("n1", 1))
    nodes.mirror.drop("n1", 3)
    nodes.mirror.put(node("n1", 2), is_written=True)
    assert nodes.mirror.get("n1") is None


def test_machines_are_matched_again_only_when_a_node_is_another_or_has_moved() -> None:
    nodes = Nodes()
    nodes.mirror.put(node("n1", 1))
    nodes.mirror.take()
    nodes.mirror.put(node("n1", 2, cordoned=True))
    assert nodes.mirror.take() == ({"n1"}, False)
    nodes.mirror.put(node("n1", 3, status={"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}))
    assert nodes.mirror.take() == ({"n1"}, True)
    nodes.mirror.drop("n1", 4)
    assert nodes.mirror.take() == ({"n1"}, True)


def test_a_list_drops_what_is_not_in_it_save_what_came_after_it() -> None:
    nodes = Nodes()
    for name, version in (("gone", 5), ("stays", 6), ("newer", 20)):
        nodes.mirror.put(node(name, version))
    copy = NodeCopy(nodes.mirror)
    copy.begin()
    copy.add(node("stays", 6))
    copy.settle("10")
    assert sorted(nodes.mirror.names()) == ["newer", "stays"]


def test_a_list_of_one_node_says_nothing_of_others() -> None:
    mirror = pod_mirror()
    mirror.put(pod(KEYS[0], 1))
    mirror.put(pod(KEYS[1], 2, where="n2"))
    copy = PodCopy(mirror, "n1")
    copy.begin()
    copy.settle("10")
    assert (pods_of(mirror), pods_of(mirror, "n2")) == ([], ["uid-2"])


def test_pods_without_a_gpu_are_not_kept() -> None:
    mirror = pod_mirror()
    mirror.put(pod(KEYS[0], 1, gpus=0))
    assert not mirror._pods
    assert not mirror.take()


def test_a_read_that_is_newer_is_believed() -> None:
    mirror = pod_mirror()
    mirror.put(pod(KEYS[0], 1))
    mirror.reach("5", "")
    found = mirror.confirm("n1", [pod(KEYS[1], 4)], "6")
    assert found is not None
    assert [each.uid for each in found.gpu] == ["uid-4"] == pods_of(mirror), "lost by the watch"
    assert mirror.confirm("n1", [pod(KEYS[1], 4)], "7") is None


def test_a_read_that_is_older_is_told_and_not_kept() -> None:
    mirror = pod_mirror()
    mirror.reach("9", "")
    found = mirror.confirm("n1", [pod(KEYS[0], 4)], "6")
    assert found is not None
    assert [each.uid for each in found.gpu] == ["uid-4"]
    assert pods_of(mirror) == [], "it may have gone since"
    assert mirror.take() == {"n1"}, "it is looked at once more"


def test_an_older_read_of_nothing_does_not_hide_what_came_since() -> None:
    mirror = pod_mirror()
    mirror.put(pod(KEYS[0], 8))
    mirror.reach("9", "")
    found = mirror.confirm("n1", [], "6")
    assert found is not None
    assert [each.uid for each in found.gpu] == ["uid-8"]


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, tuple[str, str], str]]:
    """Changes with their versions: of which pod, and the node that it is on then, empty where it is deleted."""
    changes = draw(st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(["", "n1", "n2"])), max_size=12))
    return [(version, key, where) for version, (key, where) in enumerate(changes, start=1)]


@given(histories(), st.data())
def test_whatever_the_order_the_newest_of_each_pod_is_kept(
    history: list[tuple[int, tuple[str, str], str]], data: st.DataObject
) -> None:
    """Deletions come in their order with what they delete, as the API server tells them; the rest comes in any."""
    mirror = pod_mirror()
    copy = PodCopy(mirror)
    late = data.draw(st.permutations([each for each in history if each[2]]))
    for version, key, where in history:
        copy.change("MODIFIED" if where else "DELETED", pod(key, version, where=where or "n1"))
    newest = {key: (version, where) for version, key, where in history}
    for version, key, where in late:
        if newest[key][1]:  # one that is there: what comes late is older
            copy.change("MODIFIED", pod(key, version, where=where))
    for name in ("n1", "n2"):
        there = sorted(f"uid-{version}" for version, where in newest.values() if where == name)
        assert sorted(pods_of(mirror, name)) == there
