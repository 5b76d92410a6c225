"""How a copy is kept up to date: what is asked of the server, how often, and when the copy is not believed."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from provision.cluster.errors import ForbiddenError, RefusedError
from provision.cluster.kubernetes.api.client import Api
from provision.cluster.kubernetes.api.exchange import ApiResponse, Stream
from provision.cluster.kubernetes.objects.nodes import Node
from provision.cluster.kubernetes.watch.watcher import STALE_S, Source, Watcher
from provision.rollout.errors import ClusterError, UnreachableError
from tests.provision.cluster.fakes import Clock, answer, refusal

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

    from provision.cluster.kubernetes.api.exchange import Request

AWAY = UnreachableError("cluster x does not answer: connection refused")
FORBIDDEN = 'nodes is forbidden: User "eve" cannot watch resource "nodes" in API group ""'
Watch = ApiResponse | UnreachableError | list[bytes | UnreachableError]


def event(kind: str, name: str, version: int) -> bytes:
    return json.dumps({"type": kind, "object": {"metadata": {"name": name, "resourceVersion": str(version)}}}).encode()


def bookmark(version: int) -> bytes:
    return event("BOOKMARK", "", version)


GONE = b'{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old resource version"}}'


@dataclass
class Scripted:
    """Lists one Node at a version that grows, and answers watches one after the other; then the watcher is ended."""

    watches: deque[Watch]
    name: str = "cluster x"
    version: int = 100
    lists: int = 0
    asked: list[str] = field(default_factory=list)

    def send(self, request: Request) -> ApiResponse:
        assert "watch" not in request.query
        self.lists += 1
        self.version += 1
        listed = {"metadata": {"name": f"list-{self.lists}", "resourceVersion": str(self.version)}}
        return answer(200, {"metadata": {"resourceVersion": str(self.version)}, "items": [listed]})

    def stream(self, request: Request) -> Stream:
        self.asked.append(str(request.query["resourceVersion"]))
        script = self.watches.popleft()
        if isinstance(script, UnreachableError):
            raise script
        if isinstance(script, ApiResponse):
            return Stream(
                code=script.code,
                headers=script.headers,
                lines=iter([script.body]),
                close=lambda: None,
                release=lambda: None,
            )
        return Stream(code=200, headers={}, lines=_lines(script), close=lambda: None, release=lambda: None)


def _lines(script: list[bytes | UnreachableError]) -> Iterator[bytes]:
    for each in script:
        if isinstance(each, UnreachableError):
            raise each
        yield each


@dataclass
class Told:
    """A copy that remembers what it is told; ``error`` is raised instead."""

    told: list[str] = field(default_factory=list)
    error: Exception | None = None

    def begin(self) -> None:
        self.told.append("begin")

    def add(self, thing: Node) -> None:
        self.told.append(thing.metadata.name)

    def settle(self, version: str) -> None:
        self.told.append(f"settle {version}")

    def change(self, kind: str, thing: Node) -> None:
        if self.error is not None:
            raise self.error
        self.told.append(f"{kind} {thing.metadata.name}")

    def reach(self, version: str) -> None:
        self.told.append(f"reach {version}")


@dataclass
class Followed:
    """A watcher that has followed a script to its end, in no time."""

    server: Scripted
    clock: Clock = field(default_factory=Clock)
    copy: Told = field(default_factory=Told)
    problems: list[str] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)

    def run(self) -> Followed:
        source = Source(path="/api/v1/nodes", item=Node)
        api = Api(self.server, sleep=self.clock.sleep, clock=self.clock)
        self.watcher = Watcher(api, source, self.copy, clock=self.clock, pause=self._pause)
        self.watcher.start()
        self.watcher._thread.join(30)
        assert not self.watcher._thread.is_alive()
        return self

    def _pause(self, stopped: threading.Event, pause_s: float) -> None:
        self.clock.now += pause_s
        self.pauses.append(pause_s)
        try:
            self.watcher.check()
            self.problems.append("")
        except ClusterError as error:
            self.problems.append(type(error).__name__)
        if not self.server.watches:
            stopped.set()


def follow(*watches: Watch, copy: Told | None = None) -> Followed:
    return Followed(Scripted(deque(watches)), copy=copy or Told()).run()


END: Watch = AWAY  # the last one of a script


def test_a_watch_goes_on_where_the_last_one_ended() -> None:
    followed = follow([event("MODIFIED", "a", 150), bookmark(170)], [event("DELETED", "a", 171)], [], END)

    assert followed.server.asked == ["101", "170", "171", "171"]
    assert followed.server.lists == 1
    assert followed.copy.told == [
        *("begin", "list-1", "settle 101"),
        *("MODIFIED a", "reach 150", "reach 170", "DELETED a", "reach 171"),
    ]


def test_one_that_breaks_off_loses_nothing() -> None:
    followed = follow([event("MODIFIED", "a", 150), AWAY], [event("MODIFIED", "a", 151)], END)

    assert followed.server.asked[:2] == ["101", "150"]
    assert followed.server.lists == 1


@pytest.mark.parametrize("forgotten", [refusal(410, "too old"), [GONE]], ids=["refused", "told by an event"])
def test_a_forgotten_version_is_listed_again(forgotten: Watch) -> None:
    followed = follow(forgotten, [bookmark(200)], END)

    assert (followed.server.lists, followed.server.asked[:2]) == (2, ["101", "102"])


def test_a_server_that_forgets_at_once_is_asked_ever_more_rarely() -> None:
    followed = follow(*[[GONE]] * 20, END)

    assert followed.server.lists <= 21
    assert all(pause_s >= 2.5 for pause_s in followed.pauses[5:]), "half of the longest pause at least"


def test_a_watch_that_always_ends_at_once_is_asked_ever_more_rarely() -> None:
    followed = follow(*[[]] * 20, END)

    assert followed.server.lists == 1
    assert all(pause_s >= 2.5 for pause_s in followed.pauses[5:])


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(AWAY, id="no answer"),
        pytest.param(refusal(503, "shutting down"), id="an error of its own"),
        pytest.param([b'{"type":"ERROR","object":{"code":500,"message":"etcd"}}'], id="an error in the watch"),
    ],
)
def test_trouble_is_borne_for_a_while_and_then_told(trouble: Watch) -> None:
    followed = follow(*[trouble] * 20)

    first = next(index for index, problem in enumerate(followed.problems) if problem)
    assert sum(followed.pauses[: first + 1]) >= STALE_S
    assert sum(followed.pauses[:first]) < STALE_S
    assert set(followed.problems[first:]) == {"UnreachableError"}
    with pytest.raises(UnreachableError):
        followed.watcher.check()


def test_trouble_is_over_with_the_next_event() -> None:
    followed = follow(*[AWAY] * 20, [bookmark(120)], [])

    assert followed.problems[-2] == "UnreachableError"
    assert not followed.problems[-1]


def test_a_permission_that_is_missing_is_told_at_once() -> None:
    followed = follow(refusal(403, FORBIDDEN))

    assert followed.problems == ["ForbiddenError"]
    with pytest.raises(ForbiddenError, match="eve may not watch nodes on cluster x"):
        followed.watcher.check()


def test_something_else_that_answers_is_told_at_once() -> None:
    followed = follow([b"<html>"])

    with pytest.raises(RefusedError, match="does not answer as a Kubernetes API server does"):
        followed.watcher.check()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_bug_does_not_leave_a_copy_that_nobody_keeps() -> None:
    followed = follow([event("MODIFIED", "a", 150)], copy=Told(error=ZeroDivisionError()))

    with pytest.raises(ClusterError, match="watching /api/v1/nodes of cluster x failed"):
        followed.watcher.check()
