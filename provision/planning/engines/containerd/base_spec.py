"""Renders the base OCI specification of our runtime handler: what containerd itself would begin with, plus the hook.

containerd's CRI plugin starts a container from this file (``base_runtime_spec``) instead of its built-in defaults and
then sets everything that the pod says. Three differences to ``ctr oci spec`` (containerd 1.6 to 2.x) besides the hook,
each for a reason:

- no ``process.rlimits``: with its own defaults the CRI plugin clears their limit of 1024 open files, with a base
  specification it leaves limits alone, as if they were intended (``buildLinuxSpec``);
- no ``linux.cgroupsPath``: it is set for each container;
- ``ociVersion`` is one that every runtime of the last years accepts.

Where the default runtime names a specification of its own (RLIMITs, seccomp), ours is that one with the hook added: it
runs first, and what would give GPUs to every container is refused. What is written is what was checked, by names of
runtime-spec 1.3 alone, as Go takes a key in any case.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from provision.planning.engines.files.engine_file import DISTINCT_FILES, Table, parse_json, shown
from provision.planning.engines.files.hook import HOOK_PATH, hook_entry
from provision.planning.engines.files.runtimes import is_injector
from provision.planning.render.errors import EngineConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_CAPABILITIES = (
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FSETID",
    "CAP_FOWNER",
    "CAP_MKNOD",
    "CAP_NET_RAW",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETFCAP",
    "CAP_SETPCAP",
    "CAP_NET_BIND_SERVICE",
    "CAP_SYS_CHROOT",
    "CAP_KILL",
    "CAP_AUDIT_WRITE",
)
_MOUNTS = (
    ("/proc", "proc", "proc", "nosuid noexec nodev"),
    ("/dev", "tmpfs", "tmpfs", "nosuid strictatime mode=755 size=65536k"),
    ("/dev/pts", "devpts", "devpts", "nosuid noexec newinstance ptmxmode=0666 mode=0620 gid=5"),
    ("/dev/shm", "tmpfs", "shm", "nosuid noexec nodev mode=1777 size=65536k"),  # noqa: S108 - inside the container
    ("/dev/mqueue", "mqueue", "mqueue", "nosuid noexec nodev"),
    ("/sys", "sysfs", "sysfs", "nosuid noexec nodev ro"),
    ("/run", "tmpfs", "tmpfs", "nosuid strictatime mode=755 size=65536k"),
)
_NAMESPACES = ("pid", "ipc", "uts", "mount", "network")
_MASKED_PATHS = (
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",  # from containerd 2.4 on
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
    "/proc/scsi",
)
_READONLY_PATHS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")

_DENY_ALL: Final = {"allow": False, "access": "rwm"}
# Character devices that may be GPUs: NVIDIA's, DRM's, and majors that Linux gives out as it likes (nvidia-uvm).
_GPU_MAJORS: Final = (range(195, 196), range(226, 227), range(234, 255), range(384, 512))
_MAJORS: Final = range(512)  # Linux has no others for character devices, and runtimes cut a number off
_SPEAKING_ANNOTATIONS: Final = ("grapnel.dev/", "io.kubernetes.cri")
_LESS: Final = "take it out of that file, or have the default runtime of nodes with GPUs name another one"
# What an object may have, by its place; lists of objects have those of each.
_KNOWN: Final[Mapping[tuple[str, ...], frozenset[str]]] = {
    place: frozenset(keys.split())
    for place, keys in {
        (): "ociVersion process root hostname domainname mounts hooks annotations linux",
        ("process",): "terminal consoleSize user args env cwd capabilities rlimits noNewPrivileges apparmorProfile "
        "oomScoreAdj scheduler selinuxLabel ioPriority execCPUAffinity",
        ("mounts",): "destination type source options uidMappings gidMappings",
        ("hook",): "path args env timeout",
        ("hooks",): "prestart createRuntime createContainer startContainer poststart poststop",
        ("linux",): "uidMappings gidMappings sysctl resources cgroupsPath namespaces devices netDevices seccomp "
        "rootfsPropagation maskedPaths readonlyPaths mountLabel intelRdt memoryPolicy personality timeOffsets",
        ("linux", "namespaces"): "type path",
        ("linux", "devices"): "path type major minor fileMode uid gid",
        ("linux", "resources"): "devices memory cpu pids blockIO hugepageLimits network rdma unified",
        ("linux", "resources", "devices"): "allow type major minor access",
    }.items()
}


@dataclass(frozen=True)
class InheritedSpec:
    """A specification with our hook; ``brings`` are hooks and devices of its own that containers get as well."""

    text: str
    brings: tuple[str, ...] = ()


@lru_cache(maxsize=DISTINCT_FILES)
def inherit_base_spec(path: str, text: str, *, hook_timeout_s: int) -> InheritedSpec:
    """Return the default runtime's specification with our hook; raises `EngineConfigError`."""
    spec = _object(parse_json(path, text, show="its log, when it starts"), ())
    if not spec.text("ociVersion"):
        raise EngineConfigError(
            f"{shown(path)} is no base specification: it has no ociVersion", hint="write it anew: ctr oci spec"
        )
    hooks, linux = _object(spec.table("hooks"), ("hooks",)), _object(spec.table("linux"), ("linux",))
    list(_objects(spec, "mounts"))
    _require_silent(spec, _object(spec.table("process"), ("process",)))
    if not any(each.values == {"type": "mount"} for each in _objects(linux, "namespaces")):
        raise _refused(path, "gives containers no mount namespace", "the hook would change the node's own mounts")
    brings = (*_hooks_in(hooks), *_devices_in(linux))
    ours = [hook_entry(hook_timeout_s=hook_timeout_s), *(each.values for each in _entries(hooks, "prestart"))]
    tree = {**spec.values, "hooks": {**hooks.values, "prestart": ours}}
    return InheritedSpec(json.dumps(tree, indent=2) + "\n", brings)


def _object(table: Table, place: tuple[str, ...]) -> Table:
    """Return an object without what is null, which is as if it were not there; refuses keys that are not known."""
    unknown = sorted(table.values.keys() - _KNOWN[place])
    if unknown:
        raise EngineConfigError(
            f"{shown(table.path)}: {table.name(unknown[0])} is not known of base specifications",
            hint="see whether it is written as runtime-spec 1.3 has it, upper and lower case included, or take it out",
        )
    values = {key: value for key, value in table.values.items() if value is not None}
    return Table(table.path, values, table.keys, table.kind)


def _objects(table: Table, key: str) -> Iterator[Table]:
    """Yield the objects of a list, whose keys are known."""
    return (_object(each, (*table.keys, key)) for each in _entries(table, key))


def _entries(table: Table, key: str) -> Iterator[Table]:
    listed = table.values.get(key, [])
    for entry in listed if isinstance(listed, list) else [listed]:
        if listed is entry or not isinstance(entry, dict):
            raise table.wrong(key, "a list of objects")
        values = {name: value for name, value in entry.items() if value is not None}
        yield Table(table.path, values, (*table.keys, key), table.kind)


def _require_silent(spec: Table, process: Table) -> None:
    """Refuse what would speak for every container: of GPUs that it asks for, or was given."""
    told = [key for key in spec.table("annotations").values if key.startswith(_SPEAKING_ANNOTATIONS)]
    asked = [each.partition("=")[0] for each in process.texts("env") if each.upper().startswith("NVIDIA_")]
    if told or asked:
        what = f"the annotation {shown(told[0])}" if told else f"{shown(asked[0])} in its environment"
        raise _refused(spec.path, f"gives every container {what}", "which speaks of GPUs that it is to have")


def _hooks_in(hooks: Table) -> Iterator[str]:
    """Yield the hooks by stage; raises `EngineConfigError` for those that give GPUs themselves."""
    for stage in hooks.values:
        for hook in (_object(each, ("hook",)) for each in _entries(hooks, stage)):
            program = hook.text("path")
            said = [program, *hook.texts("args"), *hook.texts("env")]
            if is_injector(said) or HOOK_PATH in said:
                whose = "grapnel's hook itself" if HOOK_PATH in said else "NVIDIA's hook, which gives GPUs"
                raise _refused(hooks.path, f"starts {shown(program)} for every container", whose)
            yield f"{stage} {shown(program)}"


def _devices_in(linux: Table) -> Iterator[str]:
    """Yield the devices; raises `EngineConfigError` for what may be a GPU."""
    for device in _objects(linux, "devices"):
        name = device.text("path")
        if _may_be_gpu(device) or is_injector([name]) or "/dri" in name:
            raise _refused(linux.path, f"has the device {shown(name)} for every container", "which may be a GPU")
        yield f"device {shown(name)}"
    rules = list(_objects(_object(linux.table("resources"), ("linux", "resources")), "devices"))
    if not rules or rules[0].values != _DENY_ALL:
        raise EngineConfigError(
            f"{shown(linux.path)}: linux.resources.devices does not begin with the rule that denies all devices",
            hint='put {"allow": false, "access": "rwm"} there first, as ctr oci spec has it',
        )
    for rule in rules:
        if rule.values.get("allow") is not False and _may_be_gpu(rule):
            kind, major = rule.text("type") or "a", rule.number("major", -1)
            which = f"{shown(kind)} {major if major >= 0 else '*'}"
            raise _refused(linux.path, f"allows every container devices {which}", "among which are GPUs")


def _may_be_gpu(device: Table) -> bool:
    """Tell by type and number, as containers get at a device by these."""
    if device.text("type") in {"b", "p"}:
        return False
    major = device.number("major", -1)
    return major not in _MAJORS or any(major in each for each in _GPU_MAJORS)


def _refused(path: str, what: str, why: str) -> EngineConfigError:
    return EngineConfigError(f"{shown(path)}, the base specification of the default runtime, {what}: {why}", hint=_LESS)


@lru_cache(maxsize=4)
def render_base_spec(*, hook_timeout_s: int) -> str:
    """Return the specification as JSON; ``hook_timeout_s`` is after how long the hook gives up by itself."""
    return json.dumps(base_spec(hook_timeout_s=hook_timeout_s), indent=2) + "\n"


def base_spec(*, hook_timeout_s: int) -> dict[str, Any]:
    """Return the specification as a tree."""
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "cwd": "/",
            "capabilities": {kind: list(_CAPABILITIES) for kind in ("bounding", "effective", "permitted")},
            "noNewPrivileges": True,
        },
        "root": {"path": "rootfs"},
        "mounts": [
            {"destination": destination, "type": kind, "source": source, "options": options.split()}
            for destination, kind, source, options in _MOUNTS
        ],
        "hooks": {"prestart": [hook_entry(hook_timeout_s=hook_timeout_s)]},
        "linux": {
            "resources": {"devices": [{"allow": False, "access": "rwm"}]},
            "namespaces": [{"type": each} for each in _NAMESPACES],
            "maskedPaths": list(_MASKED_PATHS),
            "readonlyPaths": list(_READONLY_PATHS),
        },
    }
