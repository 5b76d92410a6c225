"""The worker's side: frames in, frames out."""

from __future__ import annotations

import subprocess
import sys

import msgspec

from provision.apply.planner_process.limits import DEFAULT, Limits
from provision.apply.planner_process.wire import LENGTH, PlanAnswer, Question, Setup, encode_frame
from provision.apply.planner_process.worker import answer_question
from provision.planning.supply.payload.model import Artifact
from tests.provision.samples import PAYLOAD, configured, make_facts, make_stack, replace

SETUP = Setup(payload=PAYLOAD, limits=DEFAULT)
QUESTION = Question(node="n1", stack=make_stack(), facts=configured())


def serve_bytes(requests: bytes) -> list[PlanAnswer]:
    """Ask a worker of its own: what a process of tests has used and kept counts against its limits."""
    worker = [sys.executable, "-P", "-m", "provision.apply.planner_process.worker"]
    rest = subprocess.run(worker, input=requests, stdout=subprocess.PIPE, check=True).stdout
    found = []
    while rest:
        (length,) = LENGTH.unpack_from(rest)
        found.append(msgspec.json.decode(rest[LENGTH.size : LENGTH.size + length], type=PlanAnswer))
        rest = rest[LENGTH.size + length :]
    return found


def test_questions_are_answered_until_there_are_no_more() -> None:
    other = Question(node="n2", stack=make_stack(), facts=make_facts())
    answers = serve_bytes(encode_frame(SETUP) + encode_frame(QUESTION) + encode_frame(other))
    assert [answer.error for answer in answers] == ["", ""]
    first, second = answers
    assert first.plan is not None
    assert (first.plan.node, first.plan.is_empty) == ("n1", True)
    assert second.plan is not None
    assert (second.plan.node, second.plan.is_empty) == ("n2", False)


def test_half_a_question_is_the_end() -> None:
    assert serve_bytes(encode_frame(SETUP) + encode_frame(QUESTION)[:-1]) == []
    assert serve_bytes(encode_frame(SETUP) + encode_frame(QUESTION)[:3]) == []


def test_a_bug_is_answered_with_its_place_and_its_traceback() -> None:
    broken = replace(PAYLOAD, hook=Artifact("/hook.tar", 7))  # type: ignore[arg-type]  # no digest is a number
    answer = answer_question(QUESTION, Setup(payload=broken, limits=Limits(cpu_s=3600, memory_bytes=1 << 40)))
    bug = "a bug while planning n1: TypeError: 'int' object is not subscriptable (provision/planning/planner/"
    assert answer.error.startswith(bug)
    assert "Traceback" in answer.trace
    assert not answer.is_last
