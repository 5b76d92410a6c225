"""Carries a run out with ansible-runner.

ansible-runner calls its event handler in the middle of reading Ansible's output, and breaks when that takes
long (ansible-runner issue 1343). So the run has a thread of its own whose handler only enqueues; the caller
reads typed events from the queue as slowly as it likes.
"""

from __future__ import annotations

import os
import queue
import re
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from provision.runner.environment import MARKER, build_environment, forced_by_ansible_runner
from provision.runner.model import Event, NodeStats, RunFinished, RunRequest, RunStatus
from provision.runner.processes import end_processes
from provision.runner.translate import condense, parse_complaint, parse_event, parse_stats
from provision.runner.workspace import IDENT, Workspace, keep_artifacts, open_workspace

# How often ansible-runner asks whether it is to stop.
_POLL_S = 0.5
_GRACE_S = 3.0
_NO_NODES = re.compile(r"leaves us with no hosts to target|Could not match supplied host pattern")
_RAW = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Ended:
    """ansible-runner's own word on how the run ended; ``error`` when it broke."""

    status: str
    return_code: int | None
    error: Exception | None = None


@dataclass(slots=True)
class _Record:
    """What is known of a run while its events pass by."""

    tasks: int = 0
    stats: dict[str, NodeStats] | None = None
    complaints: list[str] = field(default_factory=list)

    def note(self, raw: _RAW) -> None:
        stats = parse_stats(raw)
        if stats is not None:
            self.stats = stats
        complaint = parse_complaint(raw)
        if complaint:
            self.complaints.append(complaint)


@dataclass(frozen=True, slots=True)
class AnsibleRunner:
    """Runs playbooks of the ``grapnel.node`` collection, or any other playbook.

    ``collection`` is the root of that collection; ``keep`` the folder that receives output and events of
    every run.
    """

    collection: Path | None = None
    keep: Path | None = None

    def run(self, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
        """Yield the events of a run; the last one is always ``RunFinished``.

        When ``cancel`` is set, or the iterator is closed early, the run and every process of it are ended
        first.
        """
        with open_workspace(request.playbook, self.collection) as workspace:
            yield from _run(request, workspace, cancel, self.keep)


def _run(request: RunRequest, workspace: Workspace, cancel: threading.Event, keep: Path | None) -> Iterator[Event]:
    marker = uuid.uuid4().hex
    events: queue.SimpleQueue[_RAW | _Ended] = queue.SimpleQueue()
    closed = threading.Event()

    def is_to_stop() -> bool:
        if not (cancel.is_set() or closed.is_set()):
            return False
        end_processes(MARKER, marker, grace_s=_GRACE_S)
        return True

    workspace.write_variables(request.extra_vars)
    arguments = _arguments(request, workspace, marker, keep)
    thread = threading.Thread(target=_execute, args=(arguments, events, is_to_stop), name=f"run-{marker[:8]}")
    thread.start()
    record = _Record()
    try:
        while not isinstance(raw := events.get(), _Ended):
            record.note(raw)
            event = parse_event(raw, request.keep)
            if event is not None:
                record.tasks += 1
                yield event
    finally:
        closed.set()
        thread.join()
        end_processes(MARKER, marker, grace_s=0 if cancel.is_set() else _GRACE_S)
    yield _finish(raw, record, _keep(request, workspace, keep))


def _arguments(request: RunRequest, workspace: Workspace, marker: str, keep: Path | None) -> dict[str, Any]:
    environment = build_environment(
        os.environ, request.environment, marker=marker, executables=Path(sys.executable).parent
    )
    return {
        "private_data_dir": str(workspace.root),
        "ident": IDENT,
        "playbook": str(workspace.playbook),
        "project_dir": str(Path.cwd()),  # Ansible's working folder: the user's ansible.cfg and relative key paths
        "inventory": list(request.inventory),
        "limit": workspace.write_limit(request.nodes),
        "forks": request.forks,
        "cmdline": "--check --diff" if request.check else None,
        "timeout": request.timeout_s,
        "envvars": environment,
        "fact_cache_type": "as-configured",  # anything but "jsonfile" leaves the user's fact cache alone
        "quiet": True,
        "settings": {"pexpect_timeout": _POLL_S, "suppress_output_file": keep is None},
    }


def _execute(
    arguments: dict[str, Any], events: queue.SimpleQueue[_RAW | _Ended], is_to_stop: Callable[[], bool]
) -> None:
    from ansible_runner import interface  # noqa: PLC0415 - half a second that --help need not wait for

    keep_events = not arguments["settings"]["suppress_output_file"]

    def enqueue(raw: _RAW) -> bool:
        events.put(raw)
        return keep_events

    try:
        runner = interface.init_runner(event_handler=enqueue, cancel_callback=is_to_stop, **arguments)
        for name in forced_by_ansible_runner(os.environ):
            runner.config.env.pop(name, None)
        runner.run()
    except Exception as error:  # noqa: BLE001 - whatever the library raises has to reach the reader
        events.put(_Ended("error", None, error))
    else:
        events.put(_Ended(runner.status, runner.rc))


def _finish(ended: _Ended, record: _Record, artifacts: Path | None) -> RunFinished:
    status = _status(ended, record)
    message = "" if status is RunStatus.SUCCESSFUL else _message(status, ended, record)
    return RunFinished(status, record.stats or {}, message, artifacts)


def _status(ended: _Ended, record: _Record) -> RunStatus:
    if ended.status == "canceled":
        return RunStatus.CANCELED
    if ended.status == "timeout":
        return RunStatus.TIMED_OUT
    if ended.error is not None:
        return RunStatus.ERROR
    if not record.tasks and any(_NO_NODES.search(text) for text in record.complaints):
        return RunStatus.NO_NODES
    if ended.return_code == 0:
        return RunStatus.SUCCESSFUL if record.tasks else RunStatus.NO_NODES
    return RunStatus.FAILED if record.tasks else RunStatus.ERROR


def _message(status: RunStatus, ended: _Ended, record: _Record) -> str:
    if ended.error is not None:
        return f"ansible-runner: {type(ended.error).__name__}: {ended.error}"
    if status is RunStatus.CANCELED:
        return "canceled"
    if status is RunStatus.TIMED_OUT:
        return "took longer than its time limit"
    errors = [text for text in record.complaints if text.startswith(("[ERROR]", "ERROR!"))]
    spoken = [*errors, *record.complaints]
    return condense(spoken[0]) if spoken else f"ansible-playbook ended with status {ended.return_code}"


def _keep(request: RunRequest, workspace: Workspace, folder: Path | None) -> Path | None:
    if folder is None:
        return None
    where = request.nodes[0] if len(request.nodes) == 1 else "nodes"
    return keep_artifacts(workspace, folder, f"{request.playbook.stem}-{where}")
