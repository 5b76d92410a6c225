"""Reads how SELinux stands on a machine, and changes what is grapnel's of it: a policy module and labels of files.

No boolean and no setting of the machine's own is ever changed. Of AppArmor it reads what was refused, and changes
nothing: a container keeps the profile that its engine gives it, and the hook has that of the runtime.
"""

from __future__ import annotations

import bz2
import contextlib
import hashlib
import os
import re
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

MODULE_PATH = "/etc/grapnel/selinux/grapnel.cil"
GPU_TYPE = "grapnel_gpu_device_t"
_MODULE = "grapnel"
_ENFORCE = "/sys/fs/selinux/enforce"
_CONFIG = "/etc/selinux/config"
_STORE = "/var/lib/selinux"
_PRIORITY = "400"  # at which semodule takes modules in and out; packages of a system have theirs at 100
_POLICY = re.compile(r"^\s*SELINUXTYPE\s*=\s*([A-Za-z0-9_.-]{1,64})\s*$", re.MULTILINE)
_NODE = re.compile(r"nvidia[a-z0-9-]{0,60}")
_TYPE = re.compile(r"[A-Za-z0-9_]{1,64}")
_DENIED = re.compile(
    r"avc: +denied +\{ (?P<what>[a-z_ ]{1,200}) \} for .*?scontext=[^: ]+:[^: ]+:(?P<who>\w{1,64})\S* "
    r"tcontext=[^: ]+:[^: ]+:(?P<whose>\w{1,64})\S* tclass=(?P<kind>\w{1,64})"
)
_APPARMOR = "/sys/module/apparmor/parameters/enabled"
_DENIED_BY_PROFILE = re.compile(
    r'apparmor="DENIED" operation="(?P<operation>[a-z_]{1,64})"(?=.*? profile="(?P<profile>[^"]{1,200})")'
    r'(?:.*? name="(?P<name>[^"]{1,300})")?(?:.*? denied_mask="(?P<mask>[a-z ]{1,64})")?'
)
_AUDIT_LOG = "/var/log/audit/audit.log"
_AUDIT_BYTES = 1 << 20
_ABOUT = re.compile(r"grapnel|nvidia")
_SHOWN = 8
_PATH = re.compile(r' (?:path|name)="(?P<path>[^"]{1,300})"')
_SOCKET = "/run/grapnel/node.sock"
_OWN = ("/etc/grapnel", "/usr/lib/grapnel", _SOCKET)  # what is elsewhere has its folder's label
_LIMIT_BYTES = 1 << 20
_SEMODULE_TIMEOUT_S = 600.0  # the whole policy is made anew: half a minute on a slow machine
_RESTORECON_TIMEOUT_S = 120.0
_JOURNAL_TIMEOUT_S = 20.0


class SelinuxError(Exception):
    """The policy or a label could not be changed; the message says which."""


def read_selinux(host: Host) -> dict[str, Any]:
    """Return the facts ``selinux``: the mode, and where it is not off what there is of grapnel's."""
    enforce = host.read_text(_ENFORCE)
    if enforce is None:
        return {"mode": "disabled"}
    named = _POLICY.search(host.read_text(_CONFIG) or "")
    policy = named[1] if named else "targeted"  # as libselinux has it
    return {
        "mode": "permissive" if enforce == "0" else "enforcing",
        "policy": policy,
        "tools": bool(host.find_command("semodule") and host.find_command("restorecon")),
        "module": _module_digest(host, policy),
        "nodes": _node_types(host),
        "denials": _read_denials(host, _of_policy),
    }


def _module_digest(host: Host, policy: str) -> str | None:
    """Return the SHA-256 of our module's text as the policy has it; "" where that cannot be told."""
    modules = f"{_STORE}/{policy}/active/modules"
    places = [f"{modules}/{priority}/{_MODULE}" for priority in host.names(modules)]
    found = [place for place in places if host.path(place).is_dir()]
    if not found:
        return None
    try:
        with host.open(f"{found[-1]}/cil") as stream:
            data = stream.read(_LIMIT_BYTES)
        text = bz2.BZ2Decompressor().decompress(data, _LIMIT_BYTES) if data.startswith(b"BZh") else data
    except (OSError, ValueError):
        return ""
    return hashlib.sha256(text).hexdigest()


def _node_types(host: Host) -> dict[str, str]:
    """Return the types of the GPUs' device nodes, by path."""
    names = [name for name in host.names("/dev") if _NODE.fullmatch(name) and not host.path(f"/dev/{name}").is_dir()]
    return {f"/dev/{name}": _type_of(host, f"/dev/{name}") for name in names[:256]}


def _type_of(host: Host, path: str) -> str:
    with contextlib.suppress(OSError, IndexError):
        label = os.getxattr(host.path(path), "security.selinux", follow_symlinks=False)
        found = label.decode("ascii", "replace").split(":")[2]
        return found if _TYPE.fullmatch(found) else ""
    return ""


def read_apparmor(host: Host) -> dict[str, Any]:
    """Return the facts ``apparmor``: whether the kernel has it on, and its latest denials about GPUs and grapnel."""
    if (host.read_text(_APPARMOR) or "").strip() != "Y":
        return {"mode": "disabled"}
    return {"mode": "enabled", "denials": _read_denials(host, _of_profile)}


def _read_denials(host: Host, describe: Callable[[str], str | None]) -> list[str]:
    """Return the latest denials that are about GPUs or grapnel, each once: of the audit log, else the kernel's own."""
    found: dict[str, None] = {}
    for line in reversed(_audit_lines(host)):
        told = describe(line) if _ABOUT.search(line) else None
        if told is not None:
            found[told] = None
    return list(found)[:_SHOWN]


def _of_policy(line: str) -> str | None:
    denied, named = _DENIED.search(line), _PATH.search(line)
    if denied is None:
        return None
    place = printable(named["path"], 100) if named else "?"
    return f"{denied['who']} {denied['what']} {place} ({denied['whose']}, {denied['kind']})"


def _of_profile(line: str) -> str | None:
    denied = _DENIED_BY_PROFILE.search(line)
    if denied is None:
        return None
    wanted = f" ({denied['mask']})" if denied["mask"] else ""
    who, place = printable(denied["profile"], 100), printable(denied["name"] or "?", 100)
    return f"{who} {denied['operation']} {place}{wanted}"


def _audit_lines(host: Host) -> list[str]:
    try:
        with host.open(_AUDIT_LOG) as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - _AUDIT_BYTES))
            return stream.read(_AUDIT_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:  # without auditd they are in the kernel's log
        words = ["--dmesg", "--boot", "--lines", "5000", "--output", "cat", "--no-pager", "--quiet"]
        return host.run(["journalctl", *words], _JOURNAL_TIMEOUT_S).stdout.splitlines()


def is_on(host: Host) -> bool:
    """Tell whether the kernel has a policy."""
    return host.read_text(_ENFORCE) is not None


def install_module(host: Host) -> None:
    """Have the policy take in our module; raises `SelinuxError`."""
    _run(host, ["semodule", "--install", MODULE_PATH], _SEMODULE_TIMEOUT_S)


def has_module(host: Host) -> bool:
    """Tell whether a policy of the machine has our module, whether SELinux is on or not."""
    return any(
        host.path(f"{_STORE}/{policy}/active/modules/{_PRIORITY}/{_MODULE}").is_dir() for policy in host.names(_STORE)
    )


def remove_module(host: Host) -> None:
    """Take our module out of the policy, and give what had its types the former ones; raises `SelinuxError`."""
    _run(host, ["semodule", "--remove", _MODULE], _SEMODULE_TIMEOUT_S)
    restore_labels(host, [_SOCKET, *device_nodes(host)])


def restore_labels(host: Host, paths: Sequence[str] | None = None) -> None:
    """Give files the labels that the policy has for them, without ``paths`` what is installed; raises `SelinuxError`.

    Where SELinux is off, or the tool is not there, nothing is done: labels would be kept by nobody.
    """
    if not is_on(host) or host.find_command("restorecon") is None:
        return
    wanted = (*_OWN, *device_nodes(host)) if paths is None else paths
    there = [path for path in wanted if os.path.lexists(host.path(path))]
    if there:
        _run(host, ["restorecon", "-R", "-F", *there], _RESTORECON_TIMEOUT_S)


def device_nodes(host: Host) -> list[str]:
    """Return the device nodes of NVIDIA's driver, and the folders of such."""
    return [f"/dev/{name}" for name in host.names("/dev") if _NODE.fullmatch(name)]


def _run(host: Host, command: list[str], timeout_s: float) -> None:
    done = host.run(command, timeout_s)
    if done.return_code:
        raise SelinuxError(f"{' '.join(command[:3])} failed: {printable(done.complaints, 1000)}")
