"""Marks that cannot be written: they are said, and written later."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from provision.cluster.kubernetes.api.client import Api
from provision.cluster.kubernetes.api.exchange import ApiResponse
from provision.cluster.record import encode_record
from provision.controller.marker import AGAIN_S, Mark, Marker, Word, render_mark
from provision.controller.nodes import NodeBook
from provision.rollout.model import Phase
from tests.provision.controller.samples import node, record

if TYPE_CHECKING:
    from provision.cluster.kubernetes.api.exchange import Request, Stream
    from provision.cluster.kubernetes.objects.nodes import Node

FORBIDDEN = (
    'nodes "n1" is forbidden: User "system:serviceaccount:grapnel-system:grapnel-controller" cannot patch resource '
    '"nodes" in API group "" at the cluster scope'
)


@dataclass
class Server:
    """An API server that lets nobody write, until it does."""

    name: str = "cluster x"
    may_write: bool = False
    now: Node = field(default_factory=node)
    asked: int = 0
    written: list[Request] = field(default_factory=list)

    def send(self, request: Request) -> ApiResponse:
        """Answer a GET, or a PATCH on the present version or on none."""
        if request.method == "GET":
            self.asked += 1
            return ApiResponse(code=200, body=msgspec.json.encode(self.now), headers={})
        if not self.may_write:
            return ApiResponse(code=403, body=msgspec.json.encode({"code": 403, "message": FORBIDDEN}), headers={})
        body: Any = request.body
        if body["metadata"].get("resourceVersion") not in (None, self.now.metadata.resource_version):
            return ApiResponse(code=409, body=msgspec.json.encode({"code": 409, "message": "changed"}), headers={})
        self.written.append(request)
        return ApiResponse(code=200, body=msgspec.json.encode(node(version=9)), headers={})

    def stream(self, request: Request) -> Stream:
        """There is nothing to follow."""
        raise NotImplementedError(request)


def test_a_mark_that_may_not_be_written_is_said_and_written_when_it_may() -> None:
    """It was said in the log alone: the stack waited, and did not say for what."""
    server, book, said, now = Server(), NodeBook(lambda: None), list[str](), [0.0]
    book.put(node())
    marker = Marker(Api(server), book, said.append, lambda: now[0])
    marker.mark(Mark("n1", "uid-n1", "f00"))
    marker.close()
    assert "may not patch nodes" in marker.unwritten()["n1"]
    assert marker.marking() == {"n1"}
    assert "may not patch nodes" in said[0]

    server.may_write = True
    marker = later(marker, server, book, now)
    marker.again()
    marker.close()
    assert server.written == [], "not at once"
    now[0] = AGAIN_S
    marker = later(marker, server, book, now)
    marker.again()
    marker.close()
    assert len(server.written) == 1
    assert marker.unwritten() == {}
    assert marker.marking() == set()


def later(marker: Marker, server: Server, book: NodeBook, now: list[float]) -> Marker:
    """Return a marker that goes on where one that was closed, and so is done with its threads, was."""
    found = Marker(Api(server), book, str, lambda: now[0])
    found._unwritten = marker._unwritten
    return found


def begun(server: Server, known: Node) -> Marker:
    """Return a marker that knows a Node as it was seen last."""
    book = NodeBook(lambda: None)
    book.put(known)
    server.may_write = True
    return Marker(Api(server), book, str)


def patched(server: Server) -> dict[str, Any]:
    (request,) = server.written
    body: Any = request.body
    found: dict[str, Any] = body["metadata"]
    return found


def test_a_claim_is_written_on_the_version_that_was_seen_with_one_request() -> None:
    server = Server(now=node(version=4))
    begun(server, server.now).write(Mark("n1", "uid-n1", "f00"))
    assert (server.asked, patched(server)["resourceVersion"]) == (0, "4")


def test_a_claim_on_a_node_that_has_changed_is_written_on_what_it_is_now() -> None:
    server = Server(now=node(version=5))
    begun(server, node(version=4)).write(Mark("n1", "uid-n1", "f00"))
    assert (server.asked, patched(server)["resourceVersion"]) == (1, "5")


def test_no_claim_is_written_on_a_node_that_is_being_changed_again() -> None:
    server = Server(now=node(version=5, upgrade=encode_record(record(Phase.CORDON))))
    begun(server, node(version=4)).write(Mark("n1", "uid-n1", "f00"))
    assert server.written == []


def test_a_node_whose_end_was_not_heard_of_yet_is_asked() -> None:
    """Its record is written by a rollout, and heard of a moment later."""
    done = node(version=5, upgrade=encode_record(record(Phase.DONE)))
    server = Server(now=done)
    begun(server, node(version=4, upgrade=encode_record(record(Phase.RESUME)))).write(Mark("n1", "uid-n1", "f00"))
    assert patched(server)["annotations"]["grapnel.dev/as-declared"] == "f00"


def test_a_record_ends_with_what_it_describes_and_no_other_one_does() -> None:
    returned = record(Phase.RETURNED)
    server = Server(now=node(version=4, upgrade=encode_record(returned)))
    begun(server, server.now).write(Mark("n1", "uid-n1", "f00", ended=returned))
    assert patched(server)["annotations"]["grapnel.dev/upgrade"] is None
    assert patched(server)["labels"] == {"grapnel.dev/upgrade": None, "nvidia.com/gpu-driver-upgrade-state": None}
    server = Server(now=node(version=4, upgrade=encode_record(record(Phase.DONE))))
    begun(server, server.now).write(Mark("n1", "uid-n1", "f00", ended=returned))
    assert server.written == []


def test_a_claim_is_withdrawn_where_there_is_one() -> None:
    server = Server(now=node(as_declared="f00"))
    begun(server, server.now).withdraw("n1")
    assert patched(server) == {"uid": "uid-n1", "annotations": {"grapnel.dev/as-declared": None}}
    server = Server()
    begun(server, server.now).withdraw("n1")
    assert server.written == []


def test_what_could_not_be_written_is_forgotten_with_its_declaration() -> None:
    """It would have been written a minute later, when the node had been brought to another one and back."""
    server, book, now = Server(), NodeBook(lambda: None), [0.0]
    book.put(node())
    marker = Marker(Api(server), book, str, lambda: now[0])
    marker.mark(Mark("n1", "uid-n1", "f00"))
    marker.close()
    marker.forget(["n1"])
    server.may_write, now[0] = True, AGAIN_S
    marker = later(marker, server, book, now)
    marker.again()
    marker.close()
    assert server.written == []


def test_what_was_taken_off_leaves_no_mark() -> None:
    patch = render_mark(Mark("n1", "uid-n1", "", Word.REMOVED))["metadata"]
    assert set(patch["annotations"]) == {
        f"grapnel.dev/{key}" for key in ("as-declared", "looked-at", "failed", "upgrade")
    }
    assert {*patch["annotations"].values(), *patch["labels"].values()} == {None}
