"""Reads what the runtime provides: the container state (stdin) and the bundle's ``config.json``.

Sources: OCI runtime specification, "State" and "Configuration". Only what the hook needs is read; the rest may hold
anything. The bundle belongs to the engine, but its content (environment, annotations) is partly the user's.
"""

from __future__ import annotations

import os

from runtime_hook.base.document import Document
from runtime_hook.base.errors import StateError
from runtime_hook.base.jsonfast import loads
from runtime_hook.base.reading import read_descriptor, read_regular
from runtime_hook.base.values import value

HOOK_NAME = "grapnel-hook"
INJECTION_BY_CDI = "cdi"  # among the arguments of the hook that our CDI file adds
GPUS_PROGRAM = "nvidia-container-runtime-hook"  # what dockerd adds to a container that is given --gpus
ALLOCATION_ANNOTATION = "grapnel.dev/allocation"
MEMORY_ANNOTATION = "grapnel.dev/memory"  # how much of a GPU's memory; it counts where the one above counts
# CRI-O alone writes this one, for every container; Podman writes some of its other keys.
CRIO_CONTAINER_ANNOTATIONS = "io.kubernetes.cri-o.Annotations"
_CONTAINERD_MARK = "io.kubernetes.cri.container-type"  # containerd's CRI writes it for every container
_NO_BUNDLE = "/"
STATE_LIMIT_BYTES = 4 << 20
CONFIG_LIMIT_BYTES = 16 << 20
_CAP_SYS_ADMIN = "CAP_SYS_ADMIN"
_MAX_ID_LENGTH = 1024
# NVIDIA's toolkit takes an empty mount below this folder as a request for the device that it is named after.
_REQUEST_FOLDER = "nvidia-container-devices"
REQUEST_MOUNTS = f"/var/run/{_REQUEST_FOLDER}/"
_REQUEST_SOURCE = "/dev/null"


@value
class OciState:
    """The container state, as far as a prestart hook needs it. ``root`` is crun's own key, "" under other runtimes."""

    id: str
    pid: int
    bundle: str
    root: str = ""


@value
class DeviceNode:
    """One entry of ``linux.devices``."""

    path: str
    type: str
    major: int
    minor: int


@value
class DeviceRule:
    """One entry of ``linux.resources.devices``; -1 stands for any number, type "a" for any type."""

    allow: bool
    type: str
    major: int
    minor: int
    access: str


@value
class ContainerConfig:
    """The part of ``config.json`` that decides what the hook does.

    ``mount_requests`` are the names of mounts that ask for devices; ``user`` is the process's user id as the host
    has it, ``own_user`` as its user namespace has it; ``is_privileged`` is about the bounding set, in whichever one;
    ``has_cdi_hook`` says whether the hook of our CDI file is among the container's, ``has_gpus_hook`` whether that of
    Docker's ``--gpus`` is; ``cgroup`` is as the engine wrote it; ``is_restored`` that its annotations come from a
    checkpoint image, not from the kubelet; ``mount_label`` is the SELinux label of the container's mounts, "" where the
    engine gives none. ``engine_user`` stands in no file: it is the user who runs a rootless
    engine, None for root's.
    """

    rootfs: str
    environment: dict[str, str]
    annotations: dict[str, str]
    devices: tuple[DeviceNode, ...]
    device_rules: tuple[DeviceRule, ...]
    is_privileged: bool
    mount_requests: tuple[str, ...] = ()
    user: int = 0
    has_cdi_hook: bool = False
    has_gpus_hook: bool = False
    cgroup: str = ""
    is_restored: bool = False
    engine_user: int | None = None
    own_user: int = 0
    has_user_namespace: bool = False
    mount_label: str = ""

    @property
    def could_take_it_anyway(self) -> bool:
        """Whether it is privileged on the host, so that what it asks for is no more than it has."""
        return self.is_privileged and not self.has_user_namespace

    @property
    def can_change_mounts(self) -> bool:
        """Whether it can make its mounts for reading writable, without being privileged on the host."""
        return self.is_privileged and self.has_user_namespace


def read_state(descriptor: int) -> OciState:
    """Read the container state from a descriptor (0 in a hook)."""
    try:
        data = read_descriptor(descriptor, STATE_LIMIT_BYTES)
    except OSError as reason:
        raise StateError(f"cannot read the container state on stdin: {reason.strerror}") from reason
    if data is None:
        raise StateError(f"the container state on stdin is larger than {STATE_LIMIT_BYTES >> 20} MiB")
    if not data.strip():
        raise StateError("no container state on stdin", "the runtime writes it; try: grapnel-hook explain BUNDLE")
    return parse_state(data)


def parse_state(data: bytes) -> OciState:
    """Parse the container state."""
    where = "container state"
    try:
        document = Document(loads(data), where, StateError)
    except ValueError as reason:
        raise StateError(f"{where}: {reason}") from reason
    root = document.text("root", "")
    state = OciState(id=document.text("id"), pid=document.number("pid"), bundle=document.text("bundle"), root=root)
    if not state.id or len(state.id) > _MAX_ID_LENGTH:
        raise StateError(f"{where}: id is empty or longer than {_MAX_ID_LENGTH}")
    if state.pid <= 0:
        raise StateError(f"{where}: pid {state.pid} is no process")
    if not state.bundle.startswith("/") or "\0" in state.bundle:
        raise StateError(f"{where}: bundle is not an absolute path")
    return state


def read_container(state: OciState, engine_user: int | None = None) -> ContainerConfig:
    """Read the configuration of the container that this hook was started for.

    crun (1.8 to 1.29 at least; containers/crun pull request 2263) reports its working directory as the bundle, and
    has left it for ``/`` by the time of its hooks where the container has a user namespace and devices.
    """
    bundle = _find_bundle(state)
    container = read_container_file(f"{bundle}/config.json", bundle, engine_user)
    if bundle != state.bundle and container.rootfs != os.path.join(bundle, state.root):
        raise StateError(f"{bundle}/config.json is about the root {container.rootfs}, the runtime about {state.root}")
    return _with_restore(container) if _may_be_a_checkpoints(container) else container


def read_limit_calls(state: OciState) -> tuple[tuple[str, ...], ...]:
    """Return the arguments of each call of ``grapnel-hook limit`` that the engine took from our CDI file."""
    path = f"{_find_bundle(state)}/config.json"
    hooks = Document(_read_json(path), path, StateError).child("hooks").children("createRuntime")
    calls = (entry.texts("args") for entry in hooks if _is_ours(entry))
    return tuple(tuple(call[2:]) for call in calls if call[1:2] == ["limit"] and call[2:])


def _find_bundle(state: OciState) -> str:
    if state.bundle != _NO_BUNDLE:
        return state.bundle
    from runtime_hook.inputs.runtimecall import find_bundle, read_runtime_call

    return find_bundle(read_runtime_call(), state.id)


def _may_be_a_checkpoints(container: ContainerConfig) -> bool:
    """Tell whether something counts in a container of Kubernetes that a checkpoint image can have written.

    CRI-O 1.25 and containerd 2.1 take the container's annotations out of such an image in place of the kubelet's.
    """
    annotations = container.annotations
    if CRIO_CONTAINER_ANNOTATIONS in annotations:
        return True
    return _CONTAINERD_MARK in annotations and (container.has_cdi_hook or ALLOCATION_ANNOTATION in annotations)


def _with_restore(container: ContainerConfig) -> ContainerConfig:
    from runtime_hook.inputs.runtimecall import is_restore, read_runtime_call

    if not is_restore(read_runtime_call()):
        return container
    return ContainerConfig(**{**vars(container), "is_restored": True})


def read_container_file(path: str, bundle: str, engine_user: int | None = None) -> ContainerConfig:
    """Read a configuration file whose relative root path counts from the bundle."""
    return parse_container(_read_json(path), bundle, path, engine_user)


def _read_json(path: str) -> object:
    try:
        return loads(read_regular(path, CONFIG_LIMIT_BYTES, StateError))
    except FileNotFoundError:
        raise StateError(f"{path} does not exist") from None
    except ValueError as reason:
        raise StateError(f"{path}: {reason}") from reason


def parse_container(
    content: object, bundle: str, where: str = "config.json", engine_user: int | None = None
) -> ContainerConfig:
    """Turn a parsed ``config.json`` into what the hook needs of it."""
    document = Document(content, where, StateError)
    hooks = document.child("hooks")
    process = document.child("process")
    linux = document.child("linux")
    user = process.child("user").number("uid", 0)
    rootfs = document.child("root").text("path", "rootfs")
    try:
        is_path = b"\0" not in os.fsencode(rootfs)
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can spell
        is_path = False
    if not is_path:
        raise StateError(f"{where}: root: path holds a NUL byte or half a character")
    return ContainerConfig(
        rootfs=os.path.join(bundle, rootfs),
        environment=_environment(process.texts("env")),
        annotations=document.mapping("annotations"),
        devices=tuple(_device(entry) for entry in linux.children("devices")),
        device_rules=tuple(_rule(entry) for entry in linux.child("resources").children("devices")),
        is_privileged=_CAP_SYS_ADMIN in process.child("capabilities").texts("bounding"),
        mount_requests=_mount_requests(document.items("mounts")),
        user=_host_user(user, linux),
        has_cdi_hook=any(_is_cdi_hook(entry) for entry in hooks.children("createRuntime")),
        has_gpus_hook=any(_is_gpus_hook(entry) for entry in hooks.children("prestart")),
        cgroup=linux.text("cgroupsPath", ""),
        engine_user=engine_user,
        own_user=user,
        has_user_namespace=any(_is_of_users(entry) for entry in linux.items("namespaces")),
        mount_label=linux.text("mountLabel", ""),
    )


def _is_of_users(namespace: object) -> bool:
    return isinstance(namespace, dict) and namespace.get("type") == "user"


def _is_cdi_hook(entry: Document) -> bool:
    """Tell whether the engine took a hook from our CDI file; only the engine can name a hook."""
    return _is_ours(entry) and INJECTION_BY_CDI in entry.texts("args")


def _is_ours(entry: Document) -> bool:
    return os.path.basename(entry.text("path", "")) == HOOK_NAME


def _is_gpus_hook(entry: Document) -> bool:
    """Tell whether dockerd added a hook for ``--gpus``, NVIDIA's program or the one that stands in for it.

    It hands its own environment on; NVIDIA's runtime adds that program as well, for what an image asks, and hands none.
    Source: moby, ``daemon/nvidia_linux.go`` (v20.10 to v28), ``daemon/devices_nvidia_linux.go`` (v28.3 to v29).
    """
    name = os.path.basename(entry.text("path", ""))
    return name == GPUS_PROGRAM and entry.texts("args") == [GPUS_PROGRAM, "prestart"] and bool(entry.texts("env"))


def _environment(entries: list[str]) -> dict[str, str]:
    """Return the environment; the last of several entries for one name counts, as NVIDIA's toolkit reads it."""
    pairs = (entry.partition("=") for entry in entries)
    return {name: content for name, _, content in pairs}


def _mount_requests(mounts: list[object]) -> tuple[str, ...]:
    """Return what mounts of /dev/null below NVIDIA's folder are named after; other mounts do not matter here.

    Paths count as they are cleaned up, and ``nvidia-container-devicesX`` is another folder.
    """
    found = []
    for mount in mounts:
        if not isinstance(mount, dict):
            continue
        destination, source = mount.get("destination"), mount.get("source")
        if not isinstance(destination, str) or _REQUEST_FOLDER not in destination:
            continue
        path = _clean(destination)
        if path.startswith(REQUEST_MOUNTS) and isinstance(source, str) and _clean(source) == _REQUEST_SOURCE:
            found.append(path[len(REQUEST_MOUNTS) :])
    return tuple(found)


def _clean(path: str) -> str:
    return os.path.normpath("/" + path.lstrip("/"))


def _host_user(user: int, linux: Document) -> int:
    """Return the host's id of a user of the container's user namespace; the id itself where there is none."""
    for mapping in linux.children("uidMappings"):
        inside = mapping.number("containerID", 0)
        if inside <= user < inside + mapping.number("size", 0):
            return mapping.number("hostID", 0) + user - inside
    return user


def _device(entry: Document) -> DeviceNode:
    return DeviceNode(
        path=entry.text("path"),
        type=entry.text("type"),
        major=entry.number("major", 0),
        minor=entry.number("minor", 0),
    )


def _rule(entry: Document) -> DeviceRule:
    return DeviceRule(
        allow=entry.flag("allow", default=False),
        type=entry.text("type", "a"),
        major=entry.number("major", -1),
        minor=entry.number("minor", -1),
        access=entry.text("access", "rwm"),
    )
