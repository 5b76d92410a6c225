"""Logs one structured line for every container that involves NVIDIA devices: granted, refused or left alone.

Written straight to the journal's or syslog's datagram socket, never blocking; where there is none, nothing is lost
but the line (a refusal is on stderr anyway).
"""

from __future__ import annotations

import os

from runtime_hook.base.errors import HookError, RequirementError, one_line
from runtime_hook.inputs.origin import Origin, find_origin

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket

    from runtime_hook.inputs.bundle import ContainerConfig
    from runtime_hook.request.grant import Grant
else:
    import _socket as socket  # the C half; the Python half costs 5 ms

JOURNAL_SOCKET = "/run/systemd/journal/socket"
SYSLOG_SOCKET = "/dev/log"
_FACILITY_AUTHPRIV = 10 << 3
_LEVEL_NOTICE = 5
_LEVEL_WARNING = 4
_VALUE_LIMIT = 1000


def report(target: str, decision: str, fields: dict[str, str], container: ContainerConfig | None = None) -> bool:
    """Send one line; return whether a socket took it. ``target`` is the configuration's ``log``.

    The container's configuration, where it is known, tells namespace and pod.
    """
    level = _LEVEL_WARNING if decision == "refused" else _LEVEL_NOTICE
    origin = find_origin(container.annotations, container.cgroup) if container else Origin()
    members = {"decision": decision, "namespace": origin.namespace, "pod": origin.pod, **fields}
    line = " ".join(f"{name}={_quote(content)}" for name, content in members.items() if content)
    for path in _sockets(target):
        message = _journal_message(level, line, members) if path == JOURNAL_SOCKET else _syslog_message(level, line)
        if _send(path, message):
            return True
    return False


def grant_fields(grant: Grant, notes: tuple[str, ...]) -> dict[str, str]:
    """Return what the line of a grant says of it."""
    channels = (f"imex{number}" for number in grant.imex_channels)
    return {
        "source": grant.source,
        "gpus": ",".join(grant.names) or "none",
        "capabilities": ",".join(grant.capabilities) or "none",
        "extras": ",".join((*grant.extras, *channels)),
        "memory": grant.memory,
        "notes": "; ".join(note for note in (grant.note, *notes) if note),
    }


def refusal_fields(source: str, refusal: Exception) -> dict[str, str]:
    """Return what the line of a refusal says of it."""
    requirement = refusal.requirement if isinstance(refusal, RequirementError) else ""
    return {"source": source, "requirement": requirement, "reason": describe_refusal(refusal)}


def describe_refusal(refusal: Exception) -> str:
    """Return why a container is refused, in one line; anything but a HookError is a bug, and refuses as well."""
    told = str(refusal) if isinstance(refusal, HookError) else f"internal error: {type(refusal).__name__}: {refusal}"
    return one_line(told)


def _sockets(target: str) -> tuple[str, ...]:
    known = {
        "auto": (JOURNAL_SOCKET, SYSLOG_SOCKET),
        "journal": (JOURNAL_SOCKET,),
        "syslog": (SYSLOG_SOCKET,),
    }
    return (target,) if target.startswith("/") else known.get(target, ())


def _quote(content: str) -> str:
    text = one_line(content, _VALUE_LIMIT)
    if text.isascii() and not set(text) & set(' "=\\'):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _syslog_message(level: int, line: str) -> bytes:
    return f"<{_FACILITY_AUTHPRIV | level}>grapnel-hook[{os.getpid()}]: {line}".encode()


def _journal_message(level: int, line: str, members: dict[str, str]) -> bytes:
    lines = [f"MESSAGE={line}", f"PRIORITY={level}", "SYSLOG_IDENTIFIER=grapnel-hook"]
    lines += [f"GRAPNEL_{name.upper()}={one_line(content, _VALUE_LIMIT)}" for name, content in members.items()]
    return ("\n".join(lines) + "\n").encode()


def _send(path: str, message: bytes) -> bool:
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        sender.sendto(message, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL, path)
    except OSError:
        return False
    finally:
        sender.close()
    return True
