"""The node's slices stay as they have to be, whatever the API server and its watches do."""

from __future__ import annotations

import json
import queue
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from plugin.base.errors import ClusterError
from plugin.base.log import Logger
from plugin.dra import keeper
from plugin.dra.devices import DRIVER, DraDevice
from plugin.dra.slices import Owner, plan_writes
from plugin.kubelet.cdi_names import OTHERS
from plugin.settings.node_config import IN_CLUSTER
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from plugin.publication.node_object.api.budget import Backoff
    from plugin.publication.node_object.api.messages import Request

DEVICE = DraDevice("gpu-0", "GPU-0", ("GPU-0",), (), {"uuid": {"string": "GPU-0"}}, {})


class Server:
    """An API server with one Node, and the watch of its slices; in place of a connection."""

    def __init__(self) -> None:
        self.node_uid = "first"
        self.slices: dict[str, dict[str, Any]] = {}
        self.others: set[str] = set()  # names that slices of other nodes have
        self.is_asked_twice = False  # for a slice to be made: the first answer is lost on its way
        self.version = 0
        self.watches = 0
        self.has_taints = True
        self.refused: set[str] = set()  # writes that concern other nodes
        self.tried = 0
        self.may_write = True
        self.lines: queue.Queue[bytes | None] = queue.Queue()  # None: the watch ends
        self.asked: Counter[str] = Counter()
        self.tells_first = False  # of a write, whoever watches, before its answer comes
        self.told = threading.Event()

    def ask(self, request: Request) -> dict[str, Any]:
        self.asked[request.verb] += 1
        if request.resource == "nodes":
            return {"metadata": {"uid": self.node_uid}}
        if request.verb == "list":
            return {"items": list(self.slices.values())}
        if request.verb == "delete":
            del self.slices[request.path.rpartition("/")[2]]
            return {}
        return self.write(request)

    def write(self, request: Request) -> dict[str, Any]:
        assert request.verb in ("create", "update")
        if not self.may_write:
            raise ClusterError("no rule allows it", status=403)
        if "dryRun=All" in request.path:
            self.tried += 1
            spec = json.loads(request.body)["spec"]
            assert spec["pool"]["name"] != "n1"
            words = "in pools of other nodes" if spec["nodeName"] == "n1" else "of other nodes"
            if words in self.refused:
                raise ClusterError("denied", status=403)
            if spec["driver"] in self.refused:
                raise ClusterError("is invalid: denied by grapnel-resourceslices", status=422)
            return {}
        document: dict[str, Any] = json.loads(request.body)
        if request.verb == "create" and document["metadata"]["name"] in {*self.others, *self.slices}:
            raise ClusterError("already exists", status=409)
        for device in document["spec"]["devices"] if not self.has_taints else ():
            device.pop("taints", None)
        self.version += 1
        document["metadata"]["resourceVersion"] = str(self.version)
        self.slices[document["metadata"]["name"]] = document
        if self.is_asked_twice and request.verb == "create":
            raise ClusterError("already exists", status=409)
        if self.tells_first:
            self.told.clear()
            self.lines.put(json.dumps({"type": "MODIFIED", "object": document}).encode())
            self.told.wait(0.2)  # it must not be understood before the answer is
        return document

    def follow(self, _request: Request, hear: Callable[[bytes], None]) -> None:
        self.watches += 1
        hear(b"")
        while (line := self.lines.get()) is not None:
            hear(line)
            self.told.set()

    def close(self) -> None:
        """Nothing is open."""

    def delete(self, name: str) -> None:
        found = self.slices.pop(name)
        self.lines.put(json.dumps({"type": "DELETED", "object": found}).encode())

    def owners(self) -> list[str]:
        return [each["metadata"]["ownerReferences"][0]["uid"] for each in self.slices.values()]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    made = Server()
    monkeypatch.setattr(keeper, "ClusterApi", lambda _source, _environment: made)
    yield made
    made.lines.put(None)


@pytest.fixture
def slices(server: Server) -> Iterator[keeper.SliceKeeper]:
    made = keeper.SliceKeeper("n1", "kubelet.conf", {}, lambda: True, Logger())
    yield made
    made.close()
    server.lines.put(None)


@pytest.mark.parametrize("missing", ["of other nodes", "in pools of other nodes"])
def test_a_pod_whose_account_is_held_to_nothing_publishes_nothing_and_says_what_helps(
    server: Server, missing: str
) -> None:
    server.refused = {"of other nodes", "in pools of other nodes"} - {missing}
    made = keeper.SliceKeeper("n1", IN_CLUSTER, {}, lambda: True, Logger())
    try:
        made.publish((DEVICE,))
        wait_until(lambda: f"slices {missing}" in made.problem, lambda: made.problem)
        assert "deploy/rbac/node-claims.yaml" in made.problem
        assert not server.slices
        server.refused.add(missing)
        wait_until(lambda: made.is_settled, lambda: made.problem)
        assert made.problem == ""
        assert len(server.slices) == 1
        tried = server.tried
        made.publish((DEVICE._replace(unhealthy="xid 79"),))
        wait_until(lambda: made.is_settled)
        assert server.tried == tried, "once it is shown"
    finally:
        made.close()


def test_a_policy_for_the_slices_of_few_drivers_does_not_do_for_an_account_that_may_write_all(server: Server) -> None:
    """`grapnel-resourceslices` is in the chart by default, and says nothing of the cards of other nodes."""
    server.refused = {DRIVER, OTHERS}
    made = keeper.SliceKeeper("n1", IN_CLUSTER, {}, lambda: True, Logger())
    try:
        made.publish((DEVICE,))
        wait_until(lambda: bool(made.problem) and bool(server.tried), lambda: made.problem)
        wait_until(lambda: "nothing keeps this pod's account" in made.problem, lambda: made.problem)
        assert not server.slices
    finally:
        made.close()


def test_a_right_that_comes_later_is_not_taken_for_the_policy(server: Server) -> None:
    server.may_write = False
    made = keeper.SliceKeeper("n1", IN_CLUSTER, {}, lambda: True, Logger())
    try:
        made.publish((DEVICE,))
        wait_until(lambda: "no rule allows it" in made.problem, lambda: made.problem)
        server.may_write = True
        wait_until(lambda: "nothing keeps this pod's account" in made.problem, lambda: made.problem)
        assert not server.slices
    finally:
        made.close()


def test_a_name_that_another_node_took_first_keeps_no_slice_from_being_written(
    server: Server, slices: keeper.SliceKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    """It was tried again for ever: the node could not read whose slice it was, and published nothing."""
    (write,) = plan_writes(Owner("n1", "first"), [DEVICE], [])
    server.others.add(write.name)
    slices.publish((DEVICE,))
    wait_until(lambda: slices.is_settled, lambda: slices.problem)
    (name,) = server.slices
    assert name.startswith(f"{write.name}-")
    assert f"the resource slice {write.name} is another node's, or driver's" in caplog.messages
    written = server.version
    server.others.clear()
    slices.publish((DEVICE._replace(unhealthy="xid 79"),))
    wait_until(lambda: slices.is_settled, lambda: slices.problem)
    assert (list(server.slices), server.version) == ([name], written + 1)
    next_one = keeper.SliceKeeper("n1", "kubelet.conf", {}, lambda: True, Logger())
    try:
        next_one.publish((DEVICE._replace(unhealthy="xid 79"),))
        wait_until(lambda: next_one.is_settled, lambda: next_one.problem)
        assert (list(server.slices), server.version) == ([name], written + 1), "it writes no slice anew"
    finally:
        next_one.close()


def test_a_slice_of_its_own_that_is_there_already_keeps_its_name(
    server: Server, slices: keeper.SliceKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    (write,) = plan_writes(Owner("n1", "first"), [DEVICE], [])
    server.is_asked_twice = True
    slices.publish((DEVICE,))
    wait_until(lambda: slices.is_settled, lambda: slices.problem)
    assert list(server.slices) == [write.name]
    assert "another node's" not in caplog.text


def test_slices_belong_to_the_node_that_was_made_anew(server: Server, slices: keeper.SliceKeeper) -> None:
    """With the UID of the Node before, each slice would be deleted as soon as it is written."""
    slices.publish((DEVICE,))
    wait_until(lambda: server.owners() == ["first"])
    server.node_uid = "second"
    server.delete(next(iter(server.slices)))
    wait_until(lambda: server.owners() == ["second"])


def test_a_change_is_one_look_and_one_write_and_without_one_nothing_is_asked(
    server: Server, slices: keeper.SliceKeeper
) -> None:
    """5,000 nodes ask an API server what one of them does; who watches hears of its own write before the answer."""
    server.tells_first = True
    slices.publish((DEVICE,))
    wait_until(lambda: slices.is_settled and server.watches == 1 and server.told.is_set())
    for unhealthy in ("xid 79", "", "xid 48"):
        before = server.asked.copy()
        slices.publish((DEVICE._replace(unhealthy=unhealthy),))
        wait_until(lambda: slices.is_settled and server.told.is_set())
        assert server.asked - before == {"list": 1, "update": 1}
        for _ in range(100):
            slices.publish((DEVICE._replace(unhealthy=unhealthy),))
        assert server.asked - before == {"list": 1, "update": 1}


def test_what_an_api_server_did_not_have_is_tried_again_when_a_kubelet_comes(
    server: Server, slices: keeper.SliceKeeper
) -> None:
    """A cluster is upgraded: its API server first, then its kubelets. The daemon runs on."""
    server.has_taints = False
    slices.publish((DEVICE._replace(unhealthy="xid 79"),))
    wait_until(lambda: not slices.features.taints and not server.slices)
    server.has_taints = True
    slices.check()
    wait_until(
        lambda: ["taints" in row for each in server.slices.values() for row in each["spec"]["devices"]] == [True]
    )


def test_a_watch_that_ends_at_once_is_not_begun_again_at_once(
    server: Server, slices: keeper.SliceKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused, goes_on = threading.Semaphore(0), threading.Semaphore(0)

    def pause(_backoff: Backoff, _at_least_s: float) -> None:
        paused.release()
        goes_on.acquire(timeout=60)

    monkeypatch.setattr(slices, "_wait", pause)
    for _ in range(100):
        server.lines.put(None)
    slices.publish((DEVICE,))
    for number in (1, 2, 3):
        assert paused.acquire(timeout=60)
        assert server.watches == number  # the next one waits for the end of the pause
        goes_on.release()
    slices.close()
    goes_on.release()


def test_a_watch_is_begun_again_after_a_line_of_no_known_form(server: Server, slices: keeper.SliceKeeper) -> None:
    slices.publish((DEVICE,))
    server.lines.put(b"[" * 100_000)
    wait_until(lambda: server.watches > 1)
