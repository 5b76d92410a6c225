"""Marks that cannot be written: they are said, and written later."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from provision.cluster.api import Api
from provision.cluster.exchange import Answer
from provision.controller.marker import AGAIN_S, Mark, Marker, Word, render_mark
from provision.controller.nodes import NodeBook
from tests.provision.controller.samples import node

if TYPE_CHECKING:
    from provision.cluster.exchange import Request, Stream

FORBIDDEN = (
    'nodes "n1" is forbidden: User "system:serviceaccount:grapnel-system:grapnel-controller" cannot patch resource '
    '"nodes" in API group "" at the cluster scope'
)


@dataclass
class Server:
    """An API server that lets nobody write, until it does."""

    name: str = "cluster x"
    may_write: bool = False
    written: list[Request] = field(default_factory=list)

    def send(self, request: Request) -> Answer:
        """Answer a PATCH."""
        if not self.may_write:
            return Answer(code=403, body=msgspec.json.encode({"code": 403, "message": FORBIDDEN}), headers={})
        self.written.append(request)
        return Answer(code=200, body=msgspec.json.encode(node(version=2)), headers={})

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


def later(marker: Marker, server: Server, book: NodeBook, now: list[float]) -> Marker:
    """Return a marker that goes on where one that was closed, and so is done with its threads, was."""
    found = Marker(Api(server), book, str, lambda: now[0])
    found._unwritten = marker._unwritten
    return found


def test_what_was_taken_off_leaves_no_mark() -> None:
    patch = render_mark(Mark("n1", "uid-n1", "", Word.REMOVED))["metadata"]
    assert set(patch["annotations"]) == {"grapnel.dev/as-declared", "grapnel.dev/failed", "grapnel.dev/upgrade"}
    assert {*patch["annotations"].values(), *patch["labels"].values()} == {None}
