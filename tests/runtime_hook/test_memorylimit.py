"""Asking the node daemon for a memory limit: what it answers, what it does not, and who answers in its place."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from runtime_hook.base.errors import LimitError
from runtime_hook.container.memorylimit import limit_memory, socket_beside
from runtime_hook.inputs.bundle import OciState
from tests.plugin.admin.test_socket import served
from tests.runtime_hook.answering import answering
from tests.runtime_hook.containers import run_hook

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MEMORY = "GPU-00000000-0000-0000-0000-000000000000=1073741824"
REQUIRED = f"required,{MEMORY}"
NOBODY = 65534


def state() -> OciState:
    return OciState(id="a1" * 32, pid=os.getpid(), bundle="/")


@pytest.mark.parametrize("result", ["set", "not needed"])
def test_a_container_with_what_it_needs_starts(tmp_path: Path, result: str) -> None:
    path = tmp_path / "node.sock"
    answer = json.dumps({"result": result, "required": True}).encode() + b"\n"
    with answering(path, answer) as heard:
        assert limit_memory(str(path), state(), REQUIRED) == (f"memory limit {result}",)
    asked = json.loads(heard[0])
    assert {key: asked[key] for key in ("verb", "container", "memory")} == {
        "verb": "limit",
        "container": "a1" * 32,
        "memory": REQUIRED,
    }
    assert asked["cgroup"] == "" or asked["cgroup"].startswith("/")


@pytest.mark.parametrize(
    ("memory", "answer", "is_refused"),
    [
        pytest.param(
            MEMORY, {"result": "not set", "required": True, "reason": "no"}, True, id="required by the daemon"
        ),
        pytest.param(REQUIRED, {"result": "not set", "required": False, "reason": "no"}, False, id="not any more"),
        pytest.param(REQUIRED, {"error": "no such verb"}, True, id="an older daemon, and it was required"),
        pytest.param(MEMORY, {"error": "no such verb"}, False, id="an older daemon"),
        pytest.param(MEMORY, {"result": "not set", "required": "yes", "reason": "no"}, True, id="in doubt"),
        pytest.param(REQUIRED, {}, True, id="nothing said"),
        pytest.param(REQUIRED, {"result": ["set"]}, True, id="said in a list"),
        pytest.param(REQUIRED, {"result": "set\n"}, True, id="another word"),
    ],
)
def test_a_container_without_its_limit_starts_only_where_it_may(
    tmp_path: Path,
    memory: str,
    answer: dict[str, object],
    is_refused: bool,  # noqa: FBT001 - of a table
) -> None:
    path = tmp_path / "node.sock"
    with answering(path, json.dumps(answer).encode() + b"\n"):
        if is_refused:
            with pytest.raises(LimitError, match="memory is not limited"):
                limit_memory(str(path), state(), memory)
        else:
            (note,) = limit_memory(str(path), state(), memory)
            assert note.startswith("memory limit not set: no")


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"", id="hung up"),
        pytest.param(b'{"result": "set"', id="half an answer"),
        pytest.param(b"[]\n", id="no object"),
        pytest.param(b"\xff\n", id="no text"),
        pytest.param(b"[" * 50_000 + b"\n", id="nested deeply"),
        pytest.param(b" " * 200_000, id="without an end"),
    ],
)
def test_an_answer_that_is_none_counts_as_none(tmp_path: Path, answer: bytes) -> None:
    path = tmp_path / "node.sock"
    with answering(path, answer), pytest.raises(LimitError, match="the node daemon does not say so"):
        limit_memory(str(path), state(), REQUIRED, timeout_s=0.3)


def test_only_root_is_believed(tmp_path: Path) -> None:
    path = tmp_path / "node.sock"
    answer = json.dumps({"result": "set"}).encode() + b"\n"
    with answering(path, answer, uid=NOBODY), pytest.raises(LimitError, match="user 65534 listens there, and not root"):
        limit_memory(str(path), state(), REQUIRED)


def test_without_a_daemon_the_annotation_decides(tmp_path: Path) -> None:
    path = str(tmp_path / "node.sock")
    with pytest.raises(LimitError, match=r"node\.sock: no such file"):
        limit_memory(path, state(), REQUIRED, timeout_s=0.1)
    (note,) = limit_memory(path, state(), MEMORY, timeout_s=0.1)
    assert "no such file" in note


def test_a_daemon_that_says_nothing_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "node.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        with pytest.raises(LimitError, match="timed out"):
            limit_memory(str(path), state(), REQUIRED, timeout_s=0.1)


def test_a_daemon_that_restarts_is_waited_for(tmp_path: Path) -> None:
    path, notes = tmp_path / "node.sock", []
    asking = threading.Thread(target=lambda: notes.append(limit_memory(str(path), state(), REQUIRED, timeout_s=30)))
    asking.start()
    time.sleep(0.2)  # it finds nobody
    with answering(path, json.dumps({"result": "set"}).encode() + b"\n"):
        asking.join(30)
    assert notes == [("memory limit set",)]


def test_a_daemon_that_has_too_much_to_do_is_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "node.sock"
    asked = []

    async def answer(request: dict[str, object]) -> dict[str, object]:
        asked.append(request)
        return {"error": "too many requests at once"} if len(asked) < 3 else {"result": "set"}

    with served(path, answer):
        assert limit_memory(str(path), state(), REQUIRED, timeout_s=30) == ("memory limit set",)
    assert len(asked) == 3


def test_the_socket_is_beside_the_inventory() -> None:
    assert socket_beside("/run/grapnel/inventory.json") == "/run/grapnel/node.sock"


def called(bundle: Path, *calls: list[str]) -> bytes:
    """Return the state of a container to which our CDI file has added these calls of the hook, and others theirs."""
    ours = [{"path": "/usr/bin/grapnel-hook", "args": ["grapnel-hook", *arguments]} for arguments in calls]
    others = [{"path": "/usr/bin/other", "args": ["other", "limit", MEMORY]}, {"path": "/usr/bin/grapnel-hook"}]
    (bundle / "config.json").write_text(json.dumps({"hooks": {"createRuntime": [*ours, *others]}}))
    return json.dumps({"ociVersion": "1.0.2", "id": "c1", "pid": os.getpid(), "bundle": str(bundle)}).encode()


@pytest.mark.parametrize("number", [0, 1, 2])
def test_each_part_that_a_container_has_of_a_gpu_asks_for_their_sum(
    tmp_path: Path, configure: Callable[..., list[str]], number: int
) -> None:
    """The last one of two parts was the limit, as each had the whole limit set to itself."""
    (tmp_path / "run").mkdir()
    uuid, other = (f"GPU-{each}0000000-0000-0000-0000-000000000000" for each in (0, 1))
    parts = [["limit", f"{uuid}=4096"], ["limit", f"{uuid}=4096", "--part", "1"], ["limit", f"{uuid}=512"]]
    stdin = called(tmp_path, ["prestart"], *parts, ["limit", f"{other}=64"], parts[1])  # engines may add one twice
    with answering(tmp_path / "run/node.sock", b'{"result": "set", "required": true}\n') as heard:
        done = run_hook([*parts[number], *configure()[:2]], stdin)
    assert done.returncode == 0, done.stderr
    assert json.loads(heard[0])["memory"] == f"{uuid}=8704"


@pytest.mark.parametrize(
    ("answer", "status", "line"),
    [
        ({"result": "set", "required": True}, 0, "decision=limited container=c1 source=claim memory="),
        ({"result": "not set", "required": False, "reason": "no"}, 0, 'notes="memory limit not set: no"'),
        ({"result": "not set", "required": True, "reason": "no"}, 1, "decision=refused container=c1 source=claim"),
    ],
)
def test_the_hook_that_the_cdi_file_adds_for_a_claim_asks_the_daemon(
    tmp_path: Path, configure: Callable[..., list[str]], answer: dict[str, Any], status: int, line: str
) -> None:
    (tmp_path / "run").mkdir()
    log = tmp_path / "log"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard_log:
        heard_log.bind(str(log))
        heard_log.settimeout(20)
        options = configure(log=str(log))[:2]
        with answering(tmp_path / "run/node.sock", json.dumps(answer).encode() + b"\n") as heard:
            done = run_hook(["limit", MEMORY, *options], called(tmp_path, ["limit", MEMORY]))
        assert done.returncode == status, done.stderr
        assert json.loads(heard[0])["memory"] == MEMORY
        assert line in heard_log.recv(1 << 16).decode()


@pytest.mark.parametrize("arguments", [[], [MEMORY, "--config"], [MEMORY, "--root", "/"], [MEMORY, "--part"]])
def test_a_call_that_no_cdi_file_makes_is_a_usage_error(arguments: list[str]) -> None:
    assert run_hook(["limit", *arguments], b"").returncode == 2


@pytest.mark.parametrize(
    ("call", "unknown"),
    [
        (["limit", MEMORY, "--share", "1"], "--share"),
        (["prestart", "--verbose"], "--verbose"),
        (["prestart", "--entitlement", "later"], "--entitlement later"),
    ],
)
def test_a_call_of_a_later_node_daemon_says_what_helps(call: list[str], unknown: str) -> None:
    """The pod's events had a line of usage, and nobody knew that an apply was due."""
    said = run_hook(call, b"").stderr.decode()
    assert f"{unknown} is not known to this hook" in said
    assert "`grapnel apply`" in said
