"""Small fakes behind the adapter's seam: an API server that answers from a list, and one that keeps a Lease."""

from __future__ import annotations

import json
from collections import deque
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

from provision.cluster.api import Api
from provision.cluster.exchange import Answer
from provision.rollout.errors import UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from provision.cluster.exchange import Request


def answer(code: int = 200, body: object = None, headers: Mapping[str, str] | None = None) -> Answer:
    """Return an answer with a JSON body."""
    return Answer(code=code, body=json.dumps(body or {}).encode(), headers=headers or {})


def refusal(
    code: int, message: str = "", *, causes: tuple[str, ...] = (), headers: Mapping[str, str] | None = None
) -> Answer:
    """Return a refusal as the API server words it."""
    details = {"causes": [{"reason": "DisruptionBudget", "message": cause} for cause in causes]}
    return answer(code, {"kind": "Status", "message": message, "details": details}, headers)


class Clock:
    """A clock that only advances on sleep."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.slept.append(seconds)
        self.now += seconds


class ScriptedServer:
    """Answers in the order of its list; an UnreachableError in it is raised, the last entry stays."""

    name = "cluster x"

    def __init__(self, *answers: Answer | UnreachableError) -> None:
        self.answers = deque(answers)
        self.requests: list[Request] = []

    def send(self, request: Request) -> Answer:
        """Return the next answer."""
        self.requests.append(request)
        following = self.answers.popleft() if len(self.answers) > 1 else self.answers[0]
        if isinstance(following, UnreachableError):
            raise following
        return following


class LeaseServer:
    """Keeps one Lease with the optimistic locking of the real one, and has a clock of its own."""

    name = "cluster x"

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.stored: dict[str, Any] | None = None
        self.before: Callable[[], None] = lambda: None  # runs once ahead of the next write, as a rival would
        self.is_down = False
        self._version = 0
        self._epoch = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)

    def api(self) -> Api:
        """Return a client."""
        return Api(self, sleep=self.clock.sleep, clock=self.clock)

    def send(self, request: Request) -> Answer:
        """Answer as the API server does."""
        if self.is_down:
            raise UnreachableError("cluster x does not answer: connection refused")
        if request.method != "GET":
            hook, self.before = self.before, lambda: None
            hook()
        return self._do(request)

    def _do(self, request: Request) -> Answer:
        moment = format_datetime(self._epoch + timedelta(seconds=self.clock.now), usegmt=True)
        date = {"Date": moment}
        if request.method == "GET":
            return answer(200, self.stored, date) if self.stored else refusal(404, headers=date)
        assert request.body is not None
        if request.method == "POST" and self.stored:
            return refusal(409, "already exists", headers=date)
        version = request.body["metadata"].get("resourceVersion")
        # A PUT of a lease that is not there makes it, as the real server does.
        if request.method == "PUT" and self.stored and version != self.stored["metadata"]["resourceVersion"]:
            return refusal(409, "the object has been modified", headers=date)
        self.touch(request.body)
        return answer(200, self.stored, date)

    def touch(self, body: Any = None) -> None:  # noqa: ANN401 - an object of the API
        """Store ``body``, or the same again, under a new version."""
        self._version += 1
        self.stored = json.loads(json.dumps(body or self.stored))
        assert self.stored is not None
        self.stored["metadata"]["resourceVersion"] = str(self._version)
