"""Writes the events of a run to a named pipe, and the text for people to the output as Ansible's own callback does.

Loaded by ansible-playbook, not imported by grapnel: only Ansible and the standard library are at hand. Which host an
event is about comes from Ansible's own task, never from what a host has answered; an answer travels as JSON of a
stated size behind the event's header, so that no text in it can look like an event. The reader is
``provision.apply.runner.channel``, which describes the form.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import time
from typing import TYPE_CHECKING, Any

from ansible.plugins.callback.default import CallbackModule as DefaultCallback

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DOCUMENTATION = """
    name: grapnel_events
    type: stdout
    short_description: Events of a run on a channel of their own
    description:
      - Prints what the default callback prints, and writes events to the named pipe of E(GRAPNEL_EVENTS).
    extends_documentation_fragment:
      - default_callback
      - result_format_callback
"""

CHANNEL = "GRAPNEL_EVENTS"
KEYS = "GRAPNEL_EVENT_KEYS"
MAX_ANSWER_BYTES = 4 * 1024 * 1024
MAX_SHOWN_BYTES = 256 * 1024
_MAX_TEXT = 16 * 1024
_MESSAGE = "msg"
# New objects; at Python's 700, looking for the little garbage that there is takes a run a fifteenth of its time.
_COLLECT_AT = 100_000
_STREAMS = ("module_stderr", "stderr", "exception", "module_stdout", "stdout")


class CallbackModule(DefaultCallback):  # type: ignore[misc] # Ansible ships no types
    """The callback ``grapnel_events``."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "grapnel_events"

    def __init__(self) -> None:
        super().__init__()
        gc.freeze()  # Ansible stays to the end; looking through it would copy it into the process of each task
        gc.set_threshold(_COLLECT_AT)
        self._keys = tuple(filter(None, os.environ.get(KEYS, "").split(",")))
        self._pipe = _open_pipe(os.environ.get(CHANNEL, ""))

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        """Tell that a task begins on a host."""
        self._write({"event": "started", **_about(host, task)})
        super().v2_runner_on_start(host, task)

    def v2_runner_on_ok(self, result: Any) -> None:
        """Tell that a task ended well."""
        self._end("ok", result, super().v2_runner_on_ok)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:  # noqa: FBT001, FBT002 - Ansible's
        """Tell that a task failed."""

        def show(one: Any) -> None:
            DefaultCallback.v2_runner_on_failed(self, one, ignore_errors=ignore_errors)

        self._end("failed", result, show, ignored=bool(ignore_errors))

    def v2_runner_on_skipped(self, result: Any) -> None:
        """Tell that a task was not run."""
        self._end("skipped", result, super().v2_runner_on_skipped)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """Tell that a host could not be reached."""
        self._end("unreachable", result, super().v2_runner_on_unreachable)

    def v2_playbook_on_no_hosts_matched(self) -> None:
        """Tell that a play matches no host."""
        self._write({"event": "no-hosts"})
        super().v2_playbook_on_no_hosts_matched()

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Tell Ansible's count for each host; the run is over."""
        counts = {host: stats.summarize(host) for host in stats.processed}
        self._write({"event": "stats"}, json.dumps(counts).encode())
        super().v2_playbook_on_stats(stats)

    def _end(self, event: str, result: Any, show: Callable[[Any], None], *, ignored: bool = False) -> None:
        about = _about(result.host, result.task)
        answer = result.result
        header = {"event": event, **about, "changed": answer.get("changed") is True, "ignored": ignored}
        try:
            body = _encode(answer, self._keys)
        except (ValueError, TypeError, RecursionError, MemoryError) as error:
            header["refused"], body = f"it cannot be written as JSON ({type(error).__name__})", b""
        if len(body) > MAX_ANSWER_BYTES:
            header["refused"], body = f"it is larger than {MAX_ANSWER_BYTES} bytes", b""
        self._write(header, body)
        if "refused" in header or len(body) > MAX_SHOWN_BYTES:
            self._display.display(f"{event}: [{about['node']}]: an answer of {len(body)} bytes is not shown")
        else:
            self._show(show, result)

    def v2_on_file_diff(self, result: Any) -> None:
        """Print what a task changes."""
        self._show(super().v2_on_file_diff, result)

    def _show(self, show: Callable[[Any], None], result: Any) -> None:
        """Print for people; an answer that cannot be printed spoils no other."""
        try:
            show(result)
        except Exception as error:  # noqa: BLE001 - the answer is a node's, and so may be anything
            self._display.display(f"[{result.host.get_name()}]: an answer cannot be shown ({type(error).__name__})")

    def _write(self, header: Mapping[str, object], body: bytes = b"") -> None:
        if self._pipe is None:
            return
        head = json.dumps({**header, "time": time.time(), "size": len(body)}).encode()
        try:
            self._pipe.write(head + b"\n" + body)
            self._pipe.flush()
        except OSError:  # the reader was killed: what has begun is still brought to its end
            self._pipe = None


def _open_pipe(path: str) -> Any:
    """Open the channel; a reader that is gone must not hold the run up."""
    if not path:
        return None
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENOENT):
            return None
        raise
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "wb")


def _about(host: Any, task: Any) -> dict[str, str]:
    role = getattr(task, "_role", None)
    return {
        "node": host.get_name(),
        "task": task.name or task.action,
        "action": task.action,
        "role": "" if role is None else role.get_name(),
        "id": task._uuid,  # noqa: SLF001 - tasks have no other identity
    }


def _encode(answer: Mapping[str, Any], keys: tuple[str, ...]) -> bytes:
    """Return what the run's reader may want of an answer: the asked keys, and the texts that say what went wrong."""
    told = _telling(answer)
    texts = {key: told[key][-_MAX_TEXT:] for key in _STREAMS if isinstance(told.get(key), str)}
    if isinstance(told.get(_MESSAGE), str):
        texts[_MESSAGE] = told[_MESSAGE][:_MAX_TEXT]
    status = told.get("rc")
    body = {
        "texts": texts,
        "status": status if type(status) is int else None,
        "censored": "censored" in told,
        "values": {key: answer[key] for key in keys if key in answer},
    }
    return json.dumps(body, allow_nan=False, check_circular=True).encode()


def _telling(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the first failed item of a loop, else the answer itself."""
    results = answer.get("results")
    items = results if isinstance(results, list) else []
    return next((item for item in items if isinstance(item, dict) and item.get("failed")), answer)
