"""What every decoder of the controller is called with, and what must hold whatever the bytes are.

Whoever is root of a node may have written them. An expected failure is a GrapnelError of the decoder's own kind;
everything else that comes out is a finding.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import os
import re
import sys
import tarfile
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from provision.apply.planner_process.errors import PlanningError
from provision.apply.planner_process.wire import decode_answer
from provision.apply.runner import RunFinished, TaskDone
from provision.apply.runner.frames import Decoder, FrameError
from provision.apply.runner.translate import Translator
from provision.cluster.errors import RecordError, StateFileError
from provision.cluster.local.state_file import read_state
from provision.cluster.record import decode_record, encode_record
from provision.controller.jobs.seal import Seal
from provision.controller.jobs.wire import MARK, LineReader, LogError
from provision.declaration.fleet.errors import AnswerError, FactsError
from provision.declaration.fleet.facts.node import parse_facts
from provision.declaration.fleet.facts.release_result import parse_release_result
from provision.planning.engines import crio, docker
from provision.planning.engines.containerd import configuration as containerd
from provision.planning.engines.containerd.imports import DROP_IN_FOLDER
from provision.planning.engines.files.engine_file import is_same
from provision.planning.node_plan import NodePlan
from provision.planning.planner.plan import plan_node
from provision.planning.render.errors import EngineConfigError
from provision.planning.supply.builds.archive import rewrite_archive
from provision.planning.supply.builds.errors import BuildsError
from provision.planning.supply.bundle.errors import BundleError
from provision.planning.supply.bundle.module_archive import read_module_archive
from tests.fuzz.carried import CARRIED
from tests.provision.builds.samples import build_of
from tests.provision.samples import PAYLOAD, make_stack

# The collection under its own name, without Ansible.
sys.path.append(str(Path(__file__).parents[2] / "playbooks" / "collections"))
from ansible_collections.grapnel.node.plugins.plugin_utils.answer import (
    AnswerError as UnacceptableAnswer,
)
from ansible_collections.grapnel.node.plugins.plugin_utils.answer import (
    check_answer,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from provision.base.errors import GrapnelError
    from provision.controller.jobs.wire import Event

# Without and with a kernel module of grapnel's: the second one looks at kernels, DKMS, signatures and space too.
STACKS = (make_stack(), make_stack(driver={"kernelModule": "auto"}))
HANDLER = "nvidia"
JOB_SEAL = Seal(bytes(range(32)), "0f6a")
BUILD = build_of("6.12")
BUILT = re.compile(
    r"\./(?:dkms_binaries_only/(?:PACKAGE_NAME|PACKAGE_VERSION|dkms\.conf)|dkms_main_tree/6\.12/x86_64/module/[\w+-]+\.ko[.\w]*)"
)


def _assert_tidy(refusal: GrapnelError) -> None:
    assert refusal.message.isprintable()
    assert len(refusal.message) < 1000


def node_facts(data: bytes) -> None:
    """Facts that are taken can be planned for, and the plan says whose it is."""
    try:
        facts = parse_facts(data, node="n1")
    except FactsError as refusal:
        _assert_tidy(refusal)
        return
    for stack in STACKS:
        plan = plan_node(facts, stack, PAYLOAD, name="n1")
        assert plan.node == "n1"
        assert all(f"{each.message}{each.hint}".isprintable() for each in (*plan.problems, *plan.warnings))
        assert all(f"{each.value}{each.reason}".isprintable() for each in plan.derived)


def released(data: bytes) -> None:
    """What a daemon says of who holds a GPU can be shown as it is."""
    try:
        found = parse_release_result(data)
    except AnswerError as refusal:
        _assert_tidy(refusal)
        return
    assert all(f"{one.command}{one.unit}{one.pod_uid}".isprintable() for one in found.holders)


def plan_answer(data: bytes) -> None:
    """An answer of the planner's process is a plan that can be written down, or none."""
    try:
        answer = decode_answer(data)
    except PlanningError as refusal:
        _assert_tidy(refusal)
        return
    if answer.plan is not None:
        assert msgspec.json.decode(msgspec.json.encode(answer.plan), type=NodePlan) == answer.plan


def record(data: bytes) -> None:
    """A record that is read can be written and read again."""
    try:
        found = decode_record(data)
    except RecordError as refusal:
        _assert_tidy(refusal)
        return
    again = decode_record(encode_record(found))
    assert (again.phase, again.target, again.since) == (found.phase, found.target, found.since)


def state_file(data: bytes) -> None:
    """A state file is read, or refused as unreadable."""
    descriptor = os.memfd_create("state-file")
    try:
        os.write(descriptor, data)
        read_state(Path(f"/proc/self/fd/{descriptor}"))
    except StateFileError as refusal:
        _assert_tidy(refusal)
    finally:
        os.close(descriptor)


def built_modules(data: bytes) -> None:
    """An archive of a node that is taken, unpacked here, becomes one with modules of the wanted kernel alone.

    A bundle takes or refuses it too, and says why in printable words.
    """
    given, written = (os.memfd_create(name) for name in ("given", "written"))
    try:
        os.write(given, gzip.compress(data, 0))
        _read_for_a_bundle(Path(f"/proc/self/fd/{given}"))
        rewrite_archive(
            Path(f"/proc/self/fd/{given}"), Path(f"/proc/self/fd/{written}"), BUILD, Path(tempfile.gettempdir())
        )
        with tarfile.open(f"/proc/self/fd/{written}") as tar:
            assert all(one.isreg() and BUILT.fullmatch(one.name) for one in tar)
    except BuildsError as refusal:  # that this machine has no zstd, too
        _assert_tidy(refusal)
    finally:
        os.close(given)
        os.close(written)


def _read_for_a_bundle(given: Path) -> None:
    try:
        read_module_archive(given)
    except BundleError as refusal:
        _assert_tidy(refusal)


def documents(data: bytes) -> None:
    """Every small document of JSON, with the same bytes."""
    for decoder in (released, plan_answer, record, state_file):
        decoder(data)


def containerd_files(version: str, main: str | None, others: list[str]) -> None:
    """A rendered drop-in has the intended meaning for the engine."""
    drop_ins = {f"{DROP_IN_FOLDER}/{number}.toml": text for number, text in enumerate(others)}
    files = containerd.render_containerd(main=main, drop_ins=drop_ins, handlers=(HANDLER,), engine_version=version)
    assert is_same("a.toml", f"{files.drop_in}\n", files.drop_in)


def crio_files(version: str, main: str | None, others: list[str]) -> None:
    """The drop-in has the handler."""
    drop_ins = {f"{crio.DROP_IN_FOLDER}/{number}.conf": text for number, text in enumerate(others)}
    assert HANDLER in crio.render_crio(main=main, drop_ins=drop_ins, handlers=(HANDLER,), engine_version=version)


def docker_files(version: str, main: str | None, _others: list[str]) -> None:
    """A second rendering changes nothing."""
    once = docker.render_docker(main=main, handlers=(HANDLER,), engine_version=version)
    assert docker.render_docker(main=once, handlers=(HANDLER,), engine_version=version) == once


def engine_files(data: bytes) -> None:
    """Every engine's configuration, with the same bytes: version, main file and drop-ins, parted by NUL."""
    version, *files = data.decode("utf-8", "replace").split("\0")
    for render in (containerd_files, crio_files, docker_files):
        with contextlib.suppress(EngineConfigError):
            render(version[:64], files[0] if files else None, files[1:])


def run_events(data: bytes) -> None:
    """Whatever comes through a run's channel is about the run's nodes, in lines."""
    translator = Translator(("n1",))
    with contextlib.suppress(FrameError):
        for frame in Decoder().feed(data):
            event = translator.translate(frame)
            assert event is None or event.node == "n1"
            if isinstance(event, TaskDone):
                assert len(event.message.splitlines()) <= 1
                assert all(len(line) <= 1000 for line in event.tail)


def module_answer(data: bytes) -> None:
    """What passes of a module's answer is plain JSON."""
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        return
    for returns in (None, {"facts": dict, "paths": list, "previous": str}):
        with contextlib.suppress(UnacceptableAnswer):
            json.dumps(check_answer(answer, returns), allow_nan=False).encode()


def runs(data: bytes) -> None:
    """What a run of Ansible brings, with the same bytes."""
    run_events(data)
    module_answer(data)


def job_log(data: bytes) -> None:
    """A line is believed where the agent of the Job has sealed it, and nothing in it is about another node.

    Root of a node has the key: the same bytes are read as a log that somebody has written into, and as events that an
    agent has sealed, one piece of them each up to `--`: packed, or JSON.
    """
    assert not list(_told(data.splitlines())), "nobody has sealed it"
    lines = []
    start = JOB_SEAL.start("a")
    for number, piece in enumerate(data.split(b"\n--\n")):
        end = "+" if piece.endswith(b"+") else "."
        packed = zlib.compress(piece) if piece.startswith(b"{") else piece.removesuffix(b"+")
        sealed = base64.b64encode(start.seal(number, end, packed)).decode()
        lines.append(f"{MARK} a {number} {end} {sealed}".encode())
    for event in _told(lines):
        assert isinstance(event, RunFinished) or event.node == "n1"
        assert not isinstance(event, TaskDone) or event.values.keys() <= {"facts"}


def _told(lines: list[bytes]) -> Iterator[Event]:
    """Yield what is read before the log is refused."""
    with contextlib.suppress(LogError):
        yield from LineReader("n1", JOB_SEAL, frozenset({"facts"})).read(lines)


CONTROLLER: dict[str, Callable[[bytes], Any]] = {
    "node-facts": node_facts,
    "node-documents": documents,
    "engine-files": engine_files,
    "run-events": runs,
    "job-log": job_log,
    "built-modules": built_modules,
    **CARRIED,
}
