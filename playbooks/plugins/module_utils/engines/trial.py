"""Starts containers through an engine, to see that it does: one without a GPU, and one with, by grapnel's handler.

They are made of the machine's own shell and the libraries that it needs, so nobody's image has to be there. They have
no network, are in no pod, and in a namespace that no kubelet looks at. What the one with a GPU has says whether handler
and hook work: it is compared with what it had before the engine was changed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ansible_collections.grapnel.node.plugins.module_utils.engines.table import CONTAINERD, CTR, DOCKER, OWN_FOLDER
from ansible_collections.grapnel.node.plugins.module_utils.machine.selinux import is_on

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished, Host

PLAIN, WITH_GPU = "a container without a GPU", "a container with a GPU"
HOOK = "/usr/lib/grapnel/hook/grapnel-hook"
HOOK_CONFIG = "/etc/grapnel/hook.json"
_SHELL = "/bin/sh"
_NAME, _NAMESPACE = "trial", "grapnel"
MARK = "trial-of"  # has the engine's name from before the first start until nothing is left in it
_STARTED = "started"
_LABEL = "container_file_t"
# In words that every shell has built in: nothing else is in the container.
_LOOK = (
    "for each in /dev/nvidia* /lib*/libcuda.so.1 /lib*/*/libcuda.so.1 /usr/lib*/libcuda.so.1 /usr/lib*/*/libcuda.so.1; "
    f'do if [ -e "$each" ]; then echo "$each"; fi; done; echo {_STARTED}'
)
_COMMAND = (_SHELL, "-c", _LOOK)
_TIMEOUT_S = 60.0
_BASE_SPEC = f"{OWN_FOLDER}/base-spec.json"
_POD_NAMESPACE = "io.kubernetes.cri.sandbox-namespace"  # an annotation of containerd's
_OF_DOCKER = "/usr/lib/grapnel/hook/grapnel-runtime"
_FILE = re.compile(r"(?:^|=>)\s*(/\S+)", re.MULTILINE)  # of what ldd prints
_TABLE = re.compile(r"^\s*\[(.*)\]\s*$")
_SETTING = re.compile(r"""^\s*(\w+)\s*=\s*["']?(.*?)["']?\s*$""")


class TrialError(Exception):
    """No container can be tried, or one that has to start does not; the message says which and why."""


@dataclass(frozen=True)
class Gpu:
    """What a container is asked to have: the name of a device, and the paths of its nodes."""

    name: str
    nodes: tuple[str, ...]

    @property
    def environment(self) -> tuple[str, ...]:
        """What asks for it where the environment counts."""
        return (f"NVIDIA_VISIBLE_DEVICES={self.name}", "NVIDIA_DRIVER_CAPABILITIES=compute,utility")


Seen = Mapping[str, frozenset[str]]  # by `PLAIN` or `WITH_GPU`, the paths that it had of nodes and the driver's library


class _Client(Protocol):
    """How an engine is told to start a container, by a program that begins its complaints with its name."""

    program: str

    def handler(self) -> Sequence[str] | None:
        """Return what names grapnel's handler on its command line, None where it knows none."""

    def start(self, root: Path, handler: Sequence[str], gpu: Gpu | None) -> Finished:
        """Start a container from a folder and wait for its end."""

    def remove(self) -> bool:
        """Take everything away again that a start may leave; tells whether nothing is left, by the engine's word."""


def try_containers(host: Host, engine: str, scratch: str) -> Seen:
    """Start containers and return what each had; none of an engine that is not asked. Raises `TrialError`.

    Without a GPU on the node, or without a handler, one without is all. ``scratch`` is a folder for what they are made
    of.
    """
    client = _find_client(host, engine)
    if client is None:
        return {}
    root, mark = host.path(f"{scratch}/{_NAME}"), host.path(f"{scratch}/{MARK}")
    shutil.rmtree(root, ignore_errors=True)
    try:
        _make_root(host, root)
        client.remove()  # of a run that was killed
        mark.write_text(engine)
        return _start_all(host, client, root)
    except (OSError, ValueError, LookupError) as error:
        raise TrialError(f"a container cannot be made up: {error}") from error
    finally:
        if client.remove():
            mark.unlink(missing_ok=True)
        shutil.rmtree(root, ignore_errors=True)


def remove_trial(host: Host, scratch: str) -> str:
    """Remove what a trial that was killed has left in an engine; return the engine where it does not say that it went.

    CRI-O and Podman are not tried, so nothing is left in them.
    """
    engine = (host.read_text(f"{scratch}/{MARK}") or "").strip()
    client = _find_client(host, engine)
    if client is not None and not client.remove():
        return engine
    host.path(f"{scratch}/{MARK}").unlink(missing_ok=True)
    return ""


def _start_all(host: Host, client: _Client, root: Path) -> Seen:
    seen = {PLAIN: _start(client, PLAIN, root, (), None)}
    handler, gpu = client.handler(), _find_gpu(host)
    if handler is not None and gpu is not None:
        seen[WITH_GPU] = _start(client, WITH_GPU, root, handler, gpu)
    return seen


def find_lack(before: Seen, now: Seen) -> str | None:
    """Return what containers had before and have not any more, None where nothing is lacking."""
    for kind, had in before.items():
        if kind not in now:
            return f"{kind} cannot be started: the engine has grapnel's handler no more, or the hook knows no GPU"
        if lacking := sorted(had - now[kind]):
            return f"{kind} starts without {', '.join(lacking)}, which one had before"
    return None


def _start(client: _Client, kind: str, root: Path, handler: Sequence[str], gpu: Gpu | None) -> frozenset[str]:
    done = client.start(root, handler, gpu)
    *found, last = done.stdout.split() or [""]
    if done.return_code or last != _STARTED:
        warned, named, error = done.complaints.partition(f"{client.program}: ")
        raise TrialError(f"{kind} does not start: {named + error or warned}")
    return frozenset(found)


def _make_root(host: Host, root: Path) -> None:
    """Copy the shell, and the libraries that it is started with, to their own places below a folder."""
    asked = host.run(["ldd", _SHELL], _TIMEOUT_S)
    if asked.return_code:
        raise TrialError(f"the libraries of {_SHELL} cannot be listed: {asked.complaint}")
    for path in (_SHELL, *_FILE.findall(asked.stdout)):
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(host.path(path), place)
    for folder in ("dev", "etc", "proc", "sys", "tmp"):
        (root / folder).mkdir()
    if is_on(host):  # an engine may start nothing that has the label of /var/lib; a policy without containers lets it
        host.run(["chcon", "-R", "-t", _LABEL, str(root)], _TIMEOUT_S)


def _find_gpu(host: Host) -> Gpu | None:
    """Return the first device that the hook knows, None where it is not there or knows none."""
    asked = host.run([HOOK, "cdi", "--output", "-"], _TIMEOUT_S) if host.path(HOOK).exists() else None
    if asked is None or asked.return_code:
        return None
    described = json.loads(asked.stdout)
    first = described["devices"][0]
    edits = (first["containerEdits"], described["containerEdits"])
    return Gpu(first["name"], tuple(node["path"] for each in edits for node in each.get("deviceNodes", ())))


def _find_client(host: Host, engine: str) -> _Client | None:
    if engine == CONTAINERD.name:
        return next((_Ctr(host, name) for name in CTR if host.find_command(name)), None)
    return _DockerClient(host) if engine == DOCKER.name and host.find_command(_DockerClient.program) else None


class _Ctr:
    """containerd's own client, which starts what a specification says: for ours, that of grapnel's handler."""

    program = "ctr"

    def __init__(self, host: Host, command: str) -> None:
        self._host = host
        self._command = command

    def handler(self) -> Sequence[str] | None:
        asked = self._host.run([CONTAINERD.programs[0], *CONTAINERD.question], _TIMEOUT_S)
        if asked.return_code:
            raise TrialError(f"containerd does not say what it runs with: {asked.complaint}")
        options = _handler_options(asked.stdout)
        if options is None:
            return None
        program = options.get("BinaryName", "")
        systemd = options.get("SystemdCgroup") == "true"
        return (*(["--runc-binary", program] if program else []), *(["--runc-systemd-cgroup"] if systemd else []))

    def start(self, root: Path, handler: Sequence[str], gpu: Gpu | None) -> Finished:
        spec = json.loads(self._host.read_text(_BASE_SPEC) or "" if gpu else self._ctr("oci", "spec").stdout)
        in_slice = "--runc-systemd-cgroup" in handler
        spec["root"] = {"path": str(root)}
        spec["process"].update(args=list(_COMMAND), terminal=False, cwd="/")
        spec["linux"]["cgroupsPath"] = f"system.slice:{_NAMESPACE}:{_NAME}" if in_slice else f"/{_NAMESPACE}/{_NAME}"
        if gpu:
            self._add(spec, gpu)
        file = root.with_suffix(".json")
        file.write_text(json.dumps(spec))
        return self._ctr("run", "--rm", *handler, "--config", str(file), _NAME)

    def remove(self) -> bool:
        self._ctr("tasks", "delete", "--force", _NAME)
        self._ctr("containers", "delete", _NAME)
        self._ctr("namespaces", "remove", _NAMESPACE)
        left = self._ctr("namespaces", "list", "--quiet")
        return left.return_code == 0 and _NAMESPACE not in left.stdout.split()

    def _ctr(self, *words: str) -> Finished:
        return self._host.run([self._command, "--namespace", _NAMESPACE, *words], _TIMEOUT_S)

    def _add(self, spec: dict[str, Any], gpu: Gpu) -> None:
        """Add what a kubelet would of a device plugin's answer: nodes, and the rules by which they may be opened."""
        spec["process"].setdefault("env", []).extend(gpu.environment)
        if namespaces := _allowed_namespaces(self._host):
            spec.setdefault("annotations", {})[_POD_NAMESPACE] = namespaces[0]
        rules = spec["linux"].setdefault("resources", {}).setdefault("devices", [])
        for path in gpu.nodes:
            number = self._host.path(path).stat().st_rdev
            node = {"type": "c", "major": os.major(number), "minor": os.minor(number)}
            spec["linux"].setdefault("devices", []).append({**node, "path": path, "fileMode": 0o666})
            rules.append({**node, "allow": True, "access": "rw"})


def _allowed_namespaces(host: Host) -> list[str]:
    """Return the namespaces to whose pods alone the hook gives GPUs, none where it asks for none."""
    rules = json.loads(host.read_text(HOOK_CONFIG) or "{}").get("rules", [])
    return [name for rule in rules for name in rule.get("namespaces", [])]


def _handler_options(dump: str) -> Mapping[str, str] | None:
    """Return the options of the handler with grapnel's base specification, None where containerd has none.

    ``dump`` is what containerd prints, one setting a line.
    """
    tables: dict[str, dict[str, str]] = {}
    table = tables.setdefault("", {})
    for line in dump.splitlines():
        if named := _TABLE.match(line):
            table = tables.setdefault(named[1], {})
        elif setting := _SETTING.match(line):
            table[setting[1]] = setting[2]
    ours = [name for name, each in tables.items() if each.get("base_runtime_spec") == _BASE_SPEC]
    return tables.get(f"{ours[0]}.options", {}) if ours else None


class _DockerClient:
    """Docker's client: it needs an image, which is made of the folder."""

    program = "docker"

    def __init__(self, host: Host) -> None:
        self._host = host

    def handler(self) -> Sequence[str] | None:
        if _allowed_namespaces(self._host):
            return None  # no container of Docker's is in one
        runtimes = json.loads(self._host.read_text(DOCKER.main) or "{}").get("runtimes") or {}
        ours = [name for name, each in runtimes.items() if each.get("path") == _OF_DOCKER]
        return ("--runtime", ours[0]) if ours else None

    def start(self, root: Path, handler: Sequence[str], gpu: Gpu | None) -> Finished:
        archive, image = root.with_suffix(".tar"), f"{_NAMESPACE}-{_NAME}"
        with tarfile.open(archive, "w") as packed:
            packed.add(root, ".")
        self.remove()  # an image whose name another one gets stays without one
        made = self._docker("import", str(archive), image)
        if made.return_code:
            return made
        asked = [word for path in gpu.nodes for word in ("--device", path)] if gpu else []
        asked += [word for each in gpu.environment for word in ("--env", each)] if gpu else []
        words = ("run", "--rm", "--name", image, "--network", "none", *handler, *asked, image, *_COMMAND)
        return self._docker(*words)

    def remove(self) -> bool:
        name = f"{_NAMESPACE}-{_NAME}"
        self._docker("rm", "--force", name)
        self._docker("image", "rm", "--force", name)
        left = self._docker("image", "ls", "--quiet", name)
        return left.return_code == 0 and not left.stdout.strip()

    def _docker(self, *words: str) -> Finished:
        return self._host.run([self.program, *words], _TIMEOUT_S)
