"""What is kept of GpuStacks: the newest of each, whatever a later version has written into one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from provision.cluster.kubernetes.api.client import Api
from provision.cluster.kubernetes.api.exchange import ApiResponse
from provision.controller.stacks import follower
from provision.controller.stacks.follower import StackBook, require_served
from provision.controller.stacks.model import Stack, StackObject, Unreadable
from provision.controller.stacks.secret_hosts import FILES, NOWHERE, SecretHosts
from provision.controller.stacks.status import StackStatus
from provision.rollout.errors import ClusterError
from tests.provision.stacks.samples import stored

if TYPE_CHECKING:
    from provision.cluster.kubernetes.api.exchange import Request, Stream


def thing(name: str = "pool", *, generation: int = 1, version: int = 1, **more: Any) -> StackObject:
    found = stored(name, generation=generation)
    found["metadata"] |= {"resourceVersion": str(version), **more.pop("metadata", {})}
    return msgspec.convert({**found, **more}, StackObject)


def test_a_status_of_a_later_version_is_no_reason_to_end() -> None:
    """The list of all stacks could not be read for it, and the controller ended again and again."""
    book = StackBook(lambda: None)
    book.put(thing(status={"state": {"phase": "x"}, "nodes": 7}))
    book.put(thing("other", status={"state": "AsDeclared", "more": 1}))
    assert book.all()["pool"].status == StackStatus()
    assert book.all()["other"].status.state == "AsDeclared"


def test_a_spec_that_is_none_is_an_answer() -> None:
    book = StackBook(lambda: None)
    book.put(thing(spec=None))
    assert isinstance(book.all()["pool"].stack, Unreadable)


def test_secrets_are_sent_where_the_book_was_told() -> None:
    gate = {"name": "a", "prometheus": "https://p.example.com", "query": "up", "tokenFile": f"{FILES}/gates/token"}
    allowed = SecretHosts({"gates": frozenset({"p.example.com"})})
    for hosts, kind in ((NOWHERE, Unreadable), (allowed, Stack), (None, Stack)):
        book = StackBook(lambda: None, hosts)
        book.put(thing(spec=stored(rollout={"gates": [gate]})["spec"]))
        assert isinstance(book.all()["pool"].stack, kind), hosts


def test_a_bug_in_one_stack_leaves_the_others_alone(monkeypatch: Any) -> None:
    book = StackBook(lambda: None)
    monkeypatch.setattr(follower, "decode_stack", lambda document, _hosts: document["missing"])
    book.put(thing())
    found = book.all()["pool"].stack
    assert isinstance(found, Unreadable)
    assert found.reasons == ("it cannot be read, which is a bug: KeyError: 'missing'",)


def test_an_older_version_that_comes_late_is_not_gone_back_to() -> None:
    """What was written ourselves came back before the watch had said what was before it."""
    book = StackBook(lambda: None)
    book.put(thing(generation=2, version=9))
    book.put(thing(generation=1, version=8))
    assert book.all()["pool"].stack.generation == 2
    again = thing(generation=1, version=3, metadata={"uid": "made-again"})
    book.put(again)
    assert book.all()["pool"].stack.uid == "made-again"
    book.change("DELETED", thing())
    assert set(book.all()) == {"pool"}, "it was another one that has gone"
    book.change("DELETED", again)
    assert book.all() == {}


def test_only_what_matters_wakes() -> None:
    rung: list[int] = []
    book = StackBook(lambda: rung.append(1))
    book.put(thing())
    book.put(thing(version=2, status={"state": "Changing"}))
    assert len(rung) == 1
    book.put(thing(version=3, metadata={"finalizers": ["example.com/x"]}))
    assert len(rung) == 2
    assert isinstance(book.all()["pool"].stack, Stack)


@dataclass(frozen=True)
class Server:
    """An API server that answers everything with one code."""

    code: int
    name: str = "cluster x"

    def send(self, request: Request) -> ApiResponse:
        assert request.path == "/apis/grapnel.dev/v1alpha1"
        return ApiResponse(code=self.code, body=b"{}", headers={})

    def stream(self, request: Request) -> Stream:
        raise NotImplementedError(request)


def test_a_cluster_without_the_custom_resource_or_with_a_later_one_says_so() -> None:
    """Nobody could tell from `the server could not find the requested resource`."""
    require_served(Api(Server(200)))
    with pytest.raises(ClusterError, match=r"cluster x does not serve GpuStacks of grapnel\.dev/v1alpha1") as raised:
        require_served(Api(Server(404)))
    assert "deploy/crd/gpustacks.yaml" in raised.value.hint
