"""Plans in a process of its own: frames on standard input and output.

It ends when its input does, so none is left behind when the controller is killed.
"""

from __future__ import annotations

import resource
import sys
import traceback
from typing import BinaryIO

from provision.apply.errors import LimitError
from provision.apply.planner_process.limits import limit_this_process
from provision.apply.planner_process.wire import LENGTH, PlanAnswer, Question, Setup, encode_frame
from provision.base.bug import describe_bug
from provision.base.decoding import decoder_of
from provision.base.errors import GrapnelError
from provision.planning.planner.plan import plan_node


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer questions until there are no more, or one has exceeded a limit."""
    setup = decoder_of(Setup).decode(_read_frame(requests))
    is_last = False
    while not is_last and (frame := _read_frame(requests)):
        answer = answer_question(decoder_of(Question).decode(frame), setup)
        answers.write(encode_frame(answer))
        answers.flush()
        is_last = answer.is_last


def _read_frame(stream: BinaryIO) -> bytes:
    """Return a frame's content, empty at the end."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return b""
    (length,) = LENGTH.unpack(head)
    body = stream.read(length)
    return body if len(body) == length else b""


def answer_question(question: Question, setup: Setup) -> PlanAnswer:
    """Return the plan of a node, or why there is none."""
    doing = f"planning {question.node}"
    try:
        with limit_this_process(doing, setup.limits):
            plan = plan_node(
                question.facts,
                question.stack,
                setup.payload,
                name=question.node,
                version_reason=question.version_reason,
            )
            return PlanAnswer(plan=plan)
    except LimitError as error:
        return PlanAnswer(error=error.message, is_last=True)
    except GrapnelError as error:
        return PlanAnswer(error=f"{doing}: {error.message}")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is about this node
        return PlanAnswer(error=describe_bug(error, doing), trace=traceback.format_exc(limit=-20)[-8000:])


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve(sys.stdin.buffer, sys.stdout.buffer)
