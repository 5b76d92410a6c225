"""What the agent does with a request; and the connection to the host, which is a process in namespaces of its own."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from provision.apply.runner import AnsibleRunner, RunFinished, RunRequest, RunStatus, TaskDone, TaskOutcome, TaskStarted
from provision.cli import main
from provision.controller.jobs.agent import (
    CUT_OFF,
    MAX_DOCUMENT_BYTES,
    RequestError,
    open_log,
    read_request,
    run_request,
)
from provision.controller.jobs.seal import JOB_UID, SEAL_KEY, Seal
from provision.controller.jobs.wire import SCHEMA, JobRequest, LineReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from provision.apply.runner import Event

ROOT = Path(__file__).parents[3]
COLLECTION = ROOT / "playbooks"
SEAL = Seal(bytes(range(32)), "0f6a")


class Runner:
    """Keeps what it is asked for."""

    def __init__(self) -> None:
        self.requests: list[RunRequest] = []

    def run(self, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
        """Run one task."""
        del cancel
        self.requests.append(request)
        yield TaskStarted("n1", "x")
        yield TaskDone("n1", "x", TaskOutcome.CHANGED)
        yield RunFinished(RunStatus.SUCCESSFUL)


def job(**more: Any) -> JobRequest:
    return JobRequest(**{"schema": SCHEMA, "node": "n1", "playbook": "facts", **more})


def handed(folder: Path, document: object) -> Path:
    return mounted(folder, gzip.compress(json.dumps(document).encode()))


def mounted(folder: Path, request: bytes) -> Path:
    """Write what a Job's pod has mounted; return the request's path."""
    (folder / SEAL_KEY).write_bytes(SEAL.key)
    (folder / JOB_UID).write_text(SEAL.job)
    path = folder / "request.json.gz"
    path.write_bytes(request)
    return path


def told(request: JobRequest, runner: Any, host_pid: int = 1) -> list[Event]:
    lines: list[str] = []
    run_request(request, runner, COLLECTION, open_log(SEAL, lines.append), threading.Event(), host_pid=host_pid)
    return events_in(lines)


def events_in(lines: Iterable[str]) -> list[Event]:
    return list(LineReader("n1", SEAL, frozenset({"facts"})).read(line.encode() for line in lines))


def test_no_more_of_a_request_is_unpacked_than_it_may_be_long(tmp_path: Path) -> None:
    path = tmp_path / "request.json.gz"
    path.write_bytes(gzip.compress(bytes(8 * MAX_DOCUMENT_BYTES)))
    tracemalloc.start()
    try:
        with pytest.raises(RequestError, match="is longer than"):
            read_request(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * MAX_DOCUMENT_BYTES


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"nothing", id="no gzip"),
        pytest.param(gzip.compress(b"{}"), id="no request"),
        pytest.param(gzip.compress(b"x")[:-12] + b"\0" * 12, id="damaged gzip"),
    ],
)
def test_a_request_of_another_controller_is_refused_as_the_end_of_a_run(
    data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The agent ended with an error, and was started again for ten minutes."""
    path = mounted(tmp_path, data)
    assert main(["agent", "--request", str(path)]) == 0
    (end,) = events_in(capsys.readouterr().out.splitlines())
    assert isinstance(end, RunFinished)
    assert end.status is RunStatus.ERROR
    assert str(path) in end.message


@pytest.mark.parametrize("file", [pytest.param("seal.key", id="key"), pytest.param("job-uid", id="the Job's uid")])
@pytest.mark.parametrize("content", [None, b"", b"\xff"])
def test_nothing_is_done_and_nothing_told_where_nothing_can_be_sealed(
    file: str, content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A controller of before hands no key out: its Job ends without a word, and people read why."""
    path = handed(tmp_path, {"schema": SCHEMA, "node": "n1", "playbook": "facts"})
    (tmp_path / file).unlink()
    if content is not None:
        (tmp_path / file).write_bytes(content)
    assert main(["agent", "--request", str(path)]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("grapnel: error: there is nothing to seal with: ")
    assert err.endswith("hint: the image belongs to another controller\n")


def test_a_bug_of_the_agent_is_named_in_its_log_and_not_quoted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log had the words of the exception, which may be those of a file."""

    def broken(*_: object) -> None:
        raise ValueError("password = hunter2hunter2")

    def in_a_thread(*_: object) -> Iterator[Event]:
        thread = threading.Thread(target=broken)
        thread.start()
        thread.join()
        yield TaskStarted("n1", "x")
        broken()

    monkeypatch.setattr(AnsibleRunner, "run", in_a_thread)
    assert (
        main(["agent", "--request", str(handed(tmp_path, {"schema": SCHEMA, "node": "n1", "playbook": "facts"}))]) == 70
    )
    out, err = capsys.readouterr()
    assert "hunter2" not in out + err
    assert err.count("a bug in a run on this node: ValueError") == 2
    assert events_in(out.splitlines()) == [TaskStarted("n1", "x")]


def test_a_request_is_run_on_the_host_as_root() -> None:
    runner = Runner()
    events = told(job(variables={"a": 1}, keep=("facts",)), runner)
    assert events[-1] == RunFinished(RunStatus.SUCCESSFUL, events[-1].stats)  # type: ignore[union-attr]  # the last one
    (request,) = runner.requests
    assert request.playbook == COLLECTION / "facts.yml"
    assert request.nodes == ("n1",)
    assert request.extra_vars["a"] == 1
    assert request.extra_vars["ansible_connection"] == "grapnel.node.host"
    assert request.extra_vars["ansible_become"] is False


class Endless:
    """Runs until it is canceled, as ansible-playbook does."""

    def run(self, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
        """Run one task that comes to no end by itself."""
        del request
        yield TaskStarted("n1", "x")
        cancel.wait(60)
        yield RunFinished(RunStatus.CANCELED, message="canceled")


def test_an_agent_that_is_told_to_end_does_not_tell_the_end_of_the_run() -> None:
    """It told that the run was canceled, which nobody had asked for, and a good swap was taken back."""
    lines: list[str] = []
    cancel = threading.Event()
    cancel.set()
    assert not run_request(job(), Endless(), COLLECTION, open_log(SEAL, lines.append), cancel)
    assert events_in(lines) == [TaskStarted("n1", "x")]
    assert run_request(job(), Runner(), COLLECTION, open_log(SEAL, lines.append), threading.Event())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_job_of_an_agent_that_is_ended_goes_on(number: signal.Signals, tmp_path: Path) -> None:
    """A pod that ends with 0 completes its Job, which makes no other one then."""
    script = (
        "import sys, provision.apply.runner\n"
        "from tests.provision.jobs.test_agent import Endless\n"
        "provision.apply.runner.AnsibleRunner = lambda collection: Endless()\n"
        "from provision.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    request = handed(tmp_path, {"schema": SCHEMA, "node": "n1", "playbook": "facts"})
    command = [sys.executable, "-c", script, "agent", "--request", str(request)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(number)
        rest = process.stdout.read()
        assert process.wait(60) == CUT_OFF
    assert events_in([first, *rest.splitlines()]) == [TaskStarted("n1", "x")]


def test_variables_of_a_request_cannot_choose_another_connection() -> None:
    runner = Runner()
    told(job(variables={"ansible_connection": "local", "ansible_grapnel_host_pid": 7}), runner)
    assert runner.requests[0].extra_vars["ansible_connection"] == "grapnel.node.host"
    assert runner.requests[0].extra_vars["ansible_grapnel_host_pid"] == 1


def test_a_playbook_of_another_version_is_said() -> None:
    (end,) = told(job(playbook="unheard_of"), Runner())
    assert isinstance(end, RunFinished)
    assert end.status is RunStatus.ERROR
    assert "no playbook unheard_of" in end.message


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"schema": "grapnel.dev/node-job/v9", "node": "n1", "playbook": "facts"},
        {"schema": SCHEMA, "node": "n1", "playbook": "../../etc/x"},
        {"schema": SCHEMA, "node": "n1", "playbook": "facts", "more": 1},
        {"schema": SCHEMA, "node": "n1", "playbook": "facts", "timeoutSeconds": 0},
    ],
)
def test_what_is_no_request_is_refused(tmp_path: Path, document: object) -> None:
    with pytest.raises(RequestError):
        read_request(handed(tmp_path, document))


def test_what_is_not_compressed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "request"
    path.write_bytes(b"{}")
    with pytest.raises(RequestError, match="cannot be read"):
        read_request(path)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """A process that stands for the host's first one, with a folder in its mount namespace that nobody else sees."""
    inside = tmp_path / "inside"
    inside.mkdir()
    own = f"mount -t tmpfs none {inside} && hostname the-host && touch {inside}/there"
    script = f"{own} && echo ready && exec sleep 600"
    command = ["unshare", "--mount", "--uts", "--propagation", "private", "sh", "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process.pid, inside
        process.kill()


@pytest.mark.functional
def test_modules_run_in_the_namespaces_of_the_host(host: tuple[int, Path], tmp_path: Path) -> None:
    pid, inside = host
    playbook = tmp_path / "probe.yml"
    playbook.write_text(PROBE)
    (tmp_path / "source").write_bytes(bytes(range(256)) * 300)
    found = subprocess.run(
        [
            str(Path(sys.executable).parent / "ansible-playbook"),
            *("-i", "n1,", "-e", "ansible_connection=grapnel.node.host", "-e", f"ansible_grapnel_host_pid={pid}"),
            *("-e", f"inside={inside}", "-e", f"source={tmp_path / 'source'}", "-e", f"back={tmp_path / 'back'}"),
            str(playbook),
        ],
        env={
            "PATH": "/usr/bin:/bin",
            "ANSIBLE_COLLECTIONS_PATH": str(COLLECTION / "collections"),
            "HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert (tmp_path / "back").read_bytes() == (tmp_path / "source").read_bytes()
    assert list(inside.iterdir()) == [], "nothing of it is outside of the host"


PROBE = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.stat: {path: "{{ inside }}/there"}
      register: found
    - ansible.builtin.assert: {that: found.stat.exists}
    - ansible.builtin.command: hostname
      register: name
      changed_when: false
    - ansible.builtin.assert: {that: "name.stdout == 'the-host'"}
    - ansible.builtin.copy: {src: "{{ source }}", dest: "{{ inside }}/copy", mode: "0600"}
    - ansible.builtin.fetch: {src: "{{ inside }}/copy", dest: "{{ back }}", flat: true}
"""


@pytest.mark.functional
def test_a_host_that_cannot_be_entered_is_said() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    events = told(job(), AnsibleRunner(COLLECTION), host_pid=gone.pid)
    done = [event for event in events if isinstance(event, TaskDone)]
    assert done[-1].outcome is TaskOutcome.UNREACHABLE, done
    assert "namespaces cannot be entered" in done[-1].message
