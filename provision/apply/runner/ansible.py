"""Runs a playbook with ansible-runner, which handles the process: its environment, end, time limit and workspace.

ansible-runner would take events out of the output, where whatever a node prints can pass for one. So the output goes
to a file, as text for people, and events come through a channel of their own (``channel``), written by our callback.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provision.apply.runner.channel import KEYS_VARIABLE, VARIABLE, FrameError, open_channel
from provision.apply.runner.environment import MARKER, build_environment, callback_variables, forced_by_ansible_runner
from provision.apply.runner.model import Event, NodeStats, RunFinished, RunRequest, RunStatus
from provision.apply.runner.processes import end_processes
from provision.apply.runner.translate import Translator, condense
from provision.apply.runner.workspace import IDENT, Workspace, count_artifacts, keep_artifacts, open_workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from provision.apply.runner.channel import Channel
    from provision.apply.runner.early import EarlyAnsible, EarlyProcess

# How often ansible-runner asks whether it is to stop.
_POLL_S = 0.5
_GRACE_S = 3.0
_NO_NODES = re.compile(r"leaves us with no hosts to target|Could not match supplied host pattern")
_INTO_FILE = 'exec "$@" >"$0" 2>&1'


@dataclass(slots=True)
class _Ended:
    """What ansible-runner reports about the end of the run; ``error`` when it broke."""

    status: str = "error"
    return_code: int | None = None
    error: Exception | None = None


@dataclass(slots=True)
class _Process:
    """ansible-playbook under ansible-runner, with what replaces ansible-runner's own events and output."""

    arguments: dict[str, Any]
    variables: dict[str, str]
    output: Path
    early: EarlyProcess | None = None
    ended: _Ended = field(default_factory=_Ended)

    def execute(self, channel: Channel, is_to_stop: Callable[[], bool]) -> None:
        """Run to the end, on a thread of its own."""
        from ansible_runner import interface  # noqa: PLC0415 - half a second that --help need not wait for

        try:
            runner = interface.init_runner(cancel_callback=is_to_stop, **self.arguments)
            for name in forced_by_ansible_runner(os.environ):
                runner.config.env.pop(name, None)
            runner.config.env.update(self.variables)
            with self._command(runner.config.command) as command:
                runner.config.command = command
                runner.run()
            self.ended.status, self.ended.return_code = runner.status, runner.rc
        except Exception as error:  # noqa: BLE001 - whatever the library raises has to reach the reader
            self.ended.error = error
        finally:
            channel.finish()

    @contextlib.contextmanager
    def _command(self, command: list[str]) -> Iterator[list[str]]:
        """Run ansible-playbook with its output in a file, in the process that was started early if there is any."""
        if self.early is None:
            yield ["/bin/sh", "-c", _INTO_FILE, str(self.output), *command]
            return
        with self.early.become(command, self.variables, self.output, self.output.with_name("end")) as wait:
            yield wait


@dataclass(frozen=True, slots=True)
class AnsibleRunner:
    """Runs playbooks of the ``grapnel.node`` collection, or any other playbook.

    ``collection`` is the root of that collection; ``keep`` the folder that receives output and events of every run, or,
    where there is a ``most``, of the first that many and of those that fail. The first run that only
    reads is carried out by ``early``.
    """

    collection: Path | None = None
    keep: Path | None = None
    most: int | None = None
    early: EarlyAnsible | None = None

    def run(self, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
        """Yield the events of a run; the last one is always ``RunFinished``.

        When ``cancel`` is set, or the iterator is closed early, the run and every process of it are ended
        first.
        """
        with open_workspace(request.playbook, self.collection) as workspace:
            yield from _run(request, workspace, cancel, self)


def _run(request: RunRequest, workspace: Workspace, cancel: threading.Event, runner: AnsibleRunner) -> Iterator[Event]:
    early = runner.early.take(request.environment) if runner.early is not None and request.only_reads else None
    marker = uuid.uuid4().hex if early is None else early.marker
    closed = threading.Event()

    def is_to_stop() -> bool:
        if not (cancel.is_set() or closed.is_set()):
            return False
        end_processes(MARKER, marker, grace_s=_GRACE_S)
        return True

    workspace.write_variables(request.extra_vars)
    process = _Process(
        _arguments(request, workspace, marker),
        {**request.environment, **_own_variables(request, workspace)},
        workspace.output,
        early,
    )
    ended, translator = process.ended, Translator(frozenset(request.nodes))
    with open_channel(workspace.events) as channel:
        thread = threading.Thread(target=process.execute, args=(channel, is_to_stop), name=f"run-{marker[:8]}")
        thread.start()
        try:
            while (got := channel.frames.get()) is not None:
                if isinstance(got, FrameError):
                    closed.set()  # nothing more can be known of the run
                    thread.join()
                    ended.error = got
                    continue
                if runner.keep is not None:
                    workspace.log_event(got.header)
                if (event := translator.translate(got)) is not None:
                    yield event
        finally:
            closed.set()
            thread.join()
            end_processes(MARKER, marker, grace_s=0 if cancel.is_set() else _GRACE_S)
    finished = _finish(ended, translator, workspace)
    yield replace(
        finished, artifacts=_keep(request, workspace, runner, is_good=finished.status is RunStatus.SUCCESSFUL)
    )


def _arguments(request: RunRequest, workspace: Workspace, marker: str) -> dict[str, Any]:
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
        "settings": {"pexpect_timeout": _POLL_S, "suppress_output_file": True},
    }


def _own_variables(request: RunRequest, workspace: Workspace) -> dict[str, str]:
    """Return what replaces ansible-runner's own choice of a callback."""
    return {
        **callback_variables(os.environ),
        VARIABLE: str(workspace.events),
        KEYS_VARIABLE: ",".join(sorted(request.keep)),
    }


def _finish(ended: _Ended, translator: Translator, workspace: Workspace) -> RunFinished:
    spoken = workspace.read_output()
    status = _status(ended, translator, spoken)
    message = "" if status is RunStatus.SUCCESSFUL else _message(status, ended, translator, spoken)
    stats: dict[str, NodeStats] = dict(translator.stats or {})
    return RunFinished(status, stats, message)


def _status(ended: _Ended, translator: Translator, spoken: str) -> RunStatus:
    if ended.status == "canceled":
        return RunStatus.CANCELED
    if ended.status == "timeout":
        return RunStatus.TIMED_OUT
    if ended.error is not None or translator.strangers:
        return RunStatus.ERROR
    if not translator.tasks:  # nothing of a node is in the output
        is_for_nobody = translator.has_no_hosts or ended.return_code == 0 or _NO_NODES.search(spoken)
        return RunStatus.NO_NODES if is_for_nobody else RunStatus.ERROR
    return RunStatus.SUCCESSFUL if ended.return_code == 0 else RunStatus.FAILED


def _message(status: RunStatus, ended: _Ended, translator: Translator, spoken: str) -> str:
    if status is RunStatus.CANCELED:
        return "canceled"
    if status is RunStatus.TIMED_OUT:
        return "took longer than its time limit"
    if isinstance(ended.error, FrameError):
        return f"the events of ansible-playbook cannot be read: {ended.error}"
    if ended.error is not None:
        return f"ansible-runner: {type(ended.error).__name__}: {ended.error}"
    if translator.strangers:
        return f"ansible-playbook ran tasks on {', '.join(sorted(translator.strangers))}, which it was not asked to"
    if translator.tasks:
        return f"ansible-playbook ended with status {ended.return_code}"
    return _complaint(spoken) or f"ansible-playbook ended with status {ended.return_code}"


def _complaint(spoken: str) -> str:
    """Return what Ansible says of itself when it ends before any task: its first error, else its first words."""
    paragraphs = [part.strip() for part in re.split(r"\n(?=\[|ERROR!|PLAY|\s*$)", spoken) if part.strip()]
    errors = [part for part in paragraphs if part.startswith(("[ERROR]", "ERROR!"))]
    return condense((errors or paragraphs or [""])[0])


def _keep(request: RunRequest, workspace: Workspace, runner: AnsibleRunner, *, is_good: bool) -> Path | None:
    """Keep output and events; that they cannot be kept, as on a full disk, is no failure of the run."""
    if runner.keep is None:
        return None
    where = request.nodes[0] if len(request.nodes) == 1 else "nodes"
    with contextlib.suppress(OSError):
        if not is_good or runner.most is None or count_artifacts(runner.keep) < runner.most:
            return keep_artifacts(workspace, runner.keep, f"{request.playbook.stem}-{where}")
    return None


INSTALLED = Path("_collection", "ansible_collections", "grapnel", "node")


def find_collection(package: Path) -> Path | None:
    """Return the collection's root for the ``provision`` package at ``package``; None if there is none.

    A wheel carries the collection inside the package; a checkout has it in ``playbooks`` beside the package.
    """
    for candidate in (package / INSTALLED, package.parent / "playbooks"):
        if (candidate / "galaxy.yml").is_file() or (candidate / "facts.yml").is_file():
            return candidate.resolve()
    return None
