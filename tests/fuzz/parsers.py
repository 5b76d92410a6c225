"""What every parser of the hook is called with, and what must hold whatever the bytes are.

An expected failure is a HookError, or for plain JSON a ValueError; everything else that comes out is a finding.
"""

from __future__ import annotations

import json
import math
import os
from typing import TYPE_CHECKING, Any

from runtime_hook.base.errors import CacheError, HookError, RequestError, RequirementError, one_line
from runtime_hook.base.jsonfast import c_scanner, loads, public_scanner
from runtime_hook.container.devicerules import is_allowed
from runtime_hook.container.devicerules.hierarchy import Group, locate_group, own_folders
from runtime_hook.container.devicerules.v2 import extend, has_references
from runtime_hook.container.mounttable import is_mounted_outside
from runtime_hook.container.operations.loaderpaths import add_folder
from runtime_hook.decision import Refused, decide
from runtime_hook.host.devices import find_devices
from runtime_hook.host.fingerprint import module_version
from runtime_hook.host.inventory import parse_inventory, render_inventory
from runtime_hook.host.nvmlfacts import merge_facts, parse_facts
from runtime_hook.inputs.bundle import ALLOCATION_ANNOTATION, CRIO_CONTAINER_ANNOTATIONS, parse_container, parse_state
from runtime_hook.inputs.commandline import STARTING_VERBS, read_call
from runtime_hook.inputs.config import DRIVER_CAPABILITIES, HookConfig, parse_config
from runtime_hook.inputs.origin import parse_owner
from runtime_hook.loader.cache import CacheEntry, LoaderCache, merge
from runtime_hook.loader.compat import HostDriver, examine, parse_compat_note, read_compat_note
from runtime_hook.loader.elf import identify
from runtime_hook.loader.layout import COMPAT_FOLDER, choose_layout
from runtime_hook.loader.platforms import PLATFORMS
from runtime_hook.request.claim import Nothing
from runtime_hook.request.requirements import check_findings, evaluate
from tests.runtime_hook.nodes import inventory as inventory_of_a_node

if TYPE_CHECKING:
    from collections.abc import Callable

    from runtime_hook.inputs.bundle import ContainerConfig

NODE = inventory_of_a_node()
PLATFORM = PLATFORMS["x86_64"]
DEBIAN = choose_layout(PLATFORM, lambda path: path == "/etc/debian_version")
VARIABLES = ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_REQUIRE_CUDA", "NVIDIA_IMEX_CHANNELS")
ENTRIES = tuple(
    CacheEntry(name, f"/usr/lib/x86_64-linux-gnu/{name}", PLATFORM.cache_flags)
    for name in ("libcuda.so", "libcuda.so.1", "libnvidia-ml.so.1")
)
KUBELET = HookConfig()
MODES = (
    KUBELET,
    HookConfig(entitlement="env", supported_capabilities=DRIVER_CAPABILITIES),
    HookConfig(
        entitlement="env",
        accept_volume_mounts=True,
        accept_cdi_annotations=True,
        accept_envvar_unprivileged=False,
        swarm_resources=("DOCKER_RESOURCE_GPU",),
    ),
)


def json_text(data: bytes) -> None:
    """The C scanner and the public module agree on what is valid JSON, and on its value."""
    answers = []
    for scanner in (c_scanner(), public_scanner()):
        try:
            answers.append(loads(data, scanner))
        except ValueError:
            answers.append(ValueError)
    assert _same(*answers), answers


def _same(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return repr(one) == repr(other)


def _assert_tidy(refusal: HookError) -> None:
    line = one_line(str(refusal), 2000)
    assert line.isprintable()
    assert len(line) <= 2001


def _document(data: bytes) -> object:
    try:
        return loads(data)
    except ValueError:
        return None


def state(data: bytes) -> None:
    """A state that is taken names a process and an absolute bundle."""
    try:
        found = parse_state(data)
    except HookError as reason:
        _assert_tidy(reason)
        return
    assert found.id
    assert found.pid > 0
    assert found.bundle.startswith("/")


def configuration(data: bytes) -> None:
    """``config.json``: whatever is taken can be decided on, in both modes, and planned."""
    try:
        container = parse_container(_document(data), "/bundle")
    except HookError:
        return
    os.fsencode(container.rootfs)
    is_allowed(container.device_rules, 195, 0)
    _decide(container)


def _decide(container: ContainerConfig) -> None:
    for settings in MODES:
        decision = decide(container, settings, lambda: NODE, lambda _: DEBIAN)
        if isinstance(decision, Nothing):
            continue
        assert settings is not KUBELET or container.devices or container.annotations, "an image's word counted"
        if isinstance(decision, Refused):
            if not isinstance(decision.error, HookError):
                raise decision.error
            _assert_tidy(decision.error)
            continue
        assert set(decision.grant.capabilities) <= set(settings.supported_capabilities)
        assert all(operation.describe() for operation in decision.plan)


def environment(data: bytes) -> None:
    """Variables, parted by NUL: an image can say anything, and under Kubernetes none of it counts."""
    values = data.decode("utf-8", "surrogateescape").split("\0")
    lines = [value if "=" in value else f"{name}={value}" for name, value in zip(VARIABLES, values, strict=False)]
    lines += values[len(VARIABLES) :]
    mount = {"destination": f"/var/run/nvidia-container-devices/{values[-1]}", "source": "/dev/null"}
    annotations = {ALLOCATION_ANNOTATION: values[0], CRIO_CONTAINER_ANNOTATIONS: values[-1], "cdi.k8s.io/x": values[0]}
    dice = len(data)  # as good as any other: the fuzzer can choose it
    process = {"env": lines, "capabilities": {"bounding": ["CAP_SYS_ADMIN"] if dice & 1 else []}}
    notes = annotations if dice & 2 else {}
    _decide(parse_container({"process": process, "annotations": notes, "mounts": [mount]}, "/bundle"))


def requirements(data: bytes) -> None:
    """A requirement is met, not met or absent; a refusal agrees with the report on the individual factors."""
    asked = {"NVIDIA_REQUIRE_CUDA": data.decode("utf-8", "surrogateescape")}
    try:
        findings = evaluate(asked, NODE, NODE.gpus)
    except RequestError as reason:
        _assert_tidy(reason)
        return
    assert len(findings) == len(NODE.gpus)
    is_refused = False
    try:
        check_findings(findings)
    except RequirementError as reason:
        _assert_tidy(reason)
        is_refused = True
    assert is_refused != all(finding.is_met for finding in findings)


def settings(data: bytes) -> None:
    """``hook.json``: settings or one error; nobody can get a limit of zero or a relative path in."""
    try:
        found = parse_config(_document(data), "hook.json")
    except HookError:
        return
    assert 1 <= found.timeout_s <= 300
    assert found.inventory_path.startswith("/")


def inventory(data: bytes) -> None:
    """An inventory that is read can be written and read again, and no name in it leads anywhere else."""
    try:
        found = parse_inventory(_document(data), "inventory.json")
    except HookError:
        return
    assert parse_inventory(json.loads(json.dumps(render_inventory(found))), "again") == found
    for library in found.libraries:
        assert "/" not in library.soname + "".join(library.links)
        assert ".." not in library.path.split("/")


def loader_cache(data: bytes) -> None:
    """A cache that is read can be merged; the result is a cache that has ours, and everything that was there."""
    try:
        cache = LoaderCache(data)
        before = cache.entries()
    except CacheError:
        return
    try:
        after = LoaderCache(merge(cache, ENTRIES)).entries()
    except CacheError as reason:  # an image's cache may be too odd to add to, but what is written must be one
        raise AssertionError(f"a merged cache is invalid: {reason}") from reason
    assert {(one.name, one.path) for one in before} <= {(one.name, one.path) for one in after}
    assert {(one.name, one.path) for one in ENTRIES} <= {(one.name, one.path) for one in after}
    assert len(after) <= len(before) + len(ENTRIES)


def elf(data: bytes) -> None:
    """A library: its kind and the content of its note, or None."""
    with _File(data) as read_at:
        found = identify(read_at)
        read_compat_note(read_at)
    assert found is None or len(found.soname) <= 256


class _File:
    """Bytes as a file, so that reads behave as the kernel's do."""

    def __init__(self, data: bytes) -> None:
        self._descriptor = os.memfd_create("fuzz")
        os.write(self._descriptor, data)

    def __enter__(self) -> Callable[[int, int], bytes]:
        return lambda length, offset: os.pread(self._descriptor, length, offset)

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


class _CompatFolder:
    """An image's compat folder: its first line are names, what follows is each file's content and each link's text."""

    def __init__(self, data: bytes) -> None:
        names, _, self._content = data.partition(b"\n")
        self._names = names.decode("utf-8", "surrogateescape").split("\0")

    path = COMPAT_FOLDER

    def names(self, limit: int) -> list[str] | None:
        return self._names if len(self._names) <= limit else None

    def link(self, name: str) -> str | None:
        return self._content.decode("utf-8", "surrogateescape") if len(name) % 3 == 0 else None

    def inspect(self, name: str, look: Callable[[Any], Any]) -> Any:
        assert name in self._names
        with _File(self._content) as read_at:
            return look(read_at)


def compat(data: bytes) -> None:
    """An image's libraries of forward compatibility: used or not, and never a path out of their folder."""
    parse_compat_note(data)
    found = examine(_CompatFolder(data), HostDriver("550.163.01", "12.4"), PLATFORM)
    assert found.is_used or not found.entries
    assert found.reason.isprintable()
    for entry in found.entries:
        folder, _, name = entry.path.rpartition("/")
        assert folder == COMPAT_FOLDER
        assert name.isascii()
        assert "/" not in entry.name


def musl_path(data: bytes) -> None:
    """The folder is on the path afterwards, and added once."""
    once = add_folder(data, "/usr/lib64")
    assert add_folder(data if once is None else once, "/usr/lib64") is None
    assert once is None or once.startswith(data.partition(b"\0")[0])


class _Tree:
    """A host whose files all have the same content, and whose folders the same names."""

    root = "/"

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._names = ["0000:07:00.0", *data[:200].decode("utf-8", "surrogateescape").split("\0")]

    def read(self, path: str, limit_bytes: int) -> bytes | None:
        return self._data[:limit_bytes]

    def names(self, folder: str) -> list[str]:
        return self._names

    def status(self, path: str) -> os.stat_result | None:
        return None


def host(data: bytes) -> None:
    """The kernel's tables on the host (information, mig-minors, devices): whatever it writes."""
    tree = _Tree(data)
    found = find_devices(tree)
    assert all(gpu.minor_number >= 0 for gpu in found.gpus)
    module_version(tree)
    parse_owner(data.decode("ascii", "replace"))


def facts(data: bytes) -> None:
    """What NVML said: merged into an inventory that can be written and read."""
    try:
        found = parse_facts(_document(data), "nvml.json")
    except HookError:
        return
    merged = merge_facts(NODE, found)
    assert parse_inventory(json.loads(json.dumps(render_inventory(merged))), "again") == merged


def command_line(data: bytes) -> None:
    """A runtime's command line: a starting verb among the words is never missed."""
    words = data.decode("utf-8", "surrogateescape").split("\0")
    call = read_call(words)
    assert call.verb in {"", *words}
    if words[0] in STARTING_VERBS:
        assert call.verb == words[0]


def program(data: bytes) -> None:
    """A device program: whole instructions, ours in front, theirs as they were."""
    whole = data[: len(data) // 8 * 8]
    has_references(whole)
    longer = extend(whole, ("c 195:0 rw", "c 510:1 rwm"))
    assert longer.endswith(whole)
    assert len(longer) % 8 == 0


def mounts(data: bytes) -> None:
    """The kernel's tables of mounts and groups; a path of a mount may hold anything."""
    groups, _, table = data.decode("utf-8", "surrogateescape").partition("\0")
    for parse in (lambda: is_mounted_outside(table, "2", "1"), lambda: locate_group(groups, table)):
        try:
            found = parse()
        except (HookError, ValueError):  # the kernel writes these: an invalid line refuses the container
            continue
        if isinstance(found, Group):
            assert ".." not in found.path.split("/") or ".." in table
            own_folders(found.path)


PARSERS: dict[str, Callable[[bytes], Any]] = {
    "json": json_text,
    "state": state,
    "configuration": configuration,
    "environment": environment,
    "requirements": requirements,
    "settings": settings,
    "inventory": inventory,
    "loader-cache": loader_cache,
    "elf": elf,
    "mounts": mounts,
    "compat": compat,
    "musl-path": musl_path,
    "host": host,
    "facts": facts,
    "command-line": command_line,
    "program": program,
}
