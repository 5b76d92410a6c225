"""Plans nodes in a worker process, one at a time, and goes on with a new worker after one that had to be ended."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING

from provision.apply.errors import CanceledError, PlanningError
from provision.apply.planner_process.limits import DEFAULT
from provision.apply.planner_process.process import (
    POLL_S,
    CanceledWorkError,
    EndedError,
    LateError,
    OversizeError,
    WorkerProcess,
)
from provision.apply.planner_process.wire import Question, Setup, decode_answer, encode_frame

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.apply.declarations import Declarations
    from provision.apply.planner_process.limits import Limits
    from provision.apply.planner_process.wire import PlanAnswer
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.planning.node_plan import NodePlan
    from provision.planning.supply.payload.model import Payload

_LOG = logging.getLogger(__name__)


class BoundedPlanner:
    """The planner of an apply. The first worker starts at once, so that it is ready when facts are.

    ``declarations`` are those of all nodes, as they are when a plan is made. May be called on several threads: one plan
    is made at a time.
    """

    def __init__(self, declarations: Declarations, payload: Payload, limits: Limits = DEFAULT) -> None:
        self._declarations, self._limits = declarations, limits
        self._setup = encode_frame(Setup(payload=payload, limits=limits))
        self._turn = threading.Lock()
        self._start()

    def __call__(self, node: str, facts: NodeFacts, cancel: threading.Event) -> NodePlan:
        """Return a node's plan; raises PlanningError, and CanceledError soon after ``cancel`` is set."""
        stack, reason = self._declarations.stacks[node], self._declarations.reasons.get(node, "")
        request = encode_frame(Question(node=node, stack=stack, version_reason=reason, facts=facts))
        with self._my_turn(node, cancel):
            answer = self._ask(node, request, cancel)
        if answer.trace:
            _LOG.debug("%s\n%s", answer.error, answer.trace)
        if answer.plan is None or answer.plan.node != node:
            raise PlanningError(answer.error or f"planning {node} returned another node's plan")
        return answer.plan

    @property
    def worker(self) -> WorkerProcess:
        """The process that plans now."""
        return self._worker

    def _start(self) -> None:
        self._worker, self._unsent = WorkerProcess(), self._setup

    @contextlib.contextmanager
    def _my_turn(self, node: str, cancel: threading.Event) -> Iterator[None]:
        while not self._turn.acquire(timeout=POLL_S):
            if cancel.is_set():
                raise _canceled(node)
        try:
            yield
        finally:
            self._turn.release()

    def _ask(self, node: str, request: bytes, cancel: threading.Event) -> PlanAnswer:
        if not self._worker.is_alive:
            self._start()
        limits, doing = self._limits, f"planning {node}"
        request, self._unsent = self._unsent + request, b""
        try:
            frame = self._worker.ask(request, cancel, wall_s=limits.wall_s, limit_bytes=limits.answer_bytes)
            answer = decode_answer(frame)
        except CanceledWorkError:
            raise _canceled(node) from None
        except LateError:
            raise limits.too_slow(doing) from None
        except OversizeError:
            raise limits.too_long(doing) from None
        except EndedError as error:
            raise PlanningError(f"{doing}: the planner's process ended {error}") from None
        if answer.is_last:
            self._worker.end()
        return answer


def _canceled(node: str) -> CanceledError:
    return CanceledError(f"canceled while planning {node}", hint="nothing was changed")
