"""Finds the containerd that a Kubernetes distribution brings, and the engine that the node's kubelet uses.

k3s, RKE2, k0s and microk8s start containerd only for their kubelet, with the configuration's path on its command line:
what runs tells which it is and where its data are. Where nothing runs, the distribution's own settings tell.
"""

from __future__ import annotations

import os
import re
import socket
import stat
from contextlib import closing
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.engines.table import (
    CONTAINERD,
    DISTRIBUTIONS,
    ENGINES,
    K0S,
    K3S,
    MICROK8S,
    RKE2,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.grapnel.node.plugins.module_utils.engines.table import Distribution
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_TIMEOUT_S = 20.0
_VERSION = re.compile(r"v?([0-9]+\.[0-9]+\.[0-9]+)")
_DATA_DIR = re.compile(r"""^\s*["']?data-dir["']?\s*:\s*["']?(/[^"'\s#]+)""", re.MULTILINE)
_AGENT = "/agent/etc/containerd"
_PROCESS = re.compile(r"[0-9]{1,9}")
_CONFIG_OPTIONS = ("-c", "--config")
# The kubelet takes YAML, of which JSON is a part: there the key is quoted, and may follow another one on its line.
_ENDPOINT = re.compile(
    r"""(?:^\s*["']?|[{,]\s*["'])containerRuntimeEndpoint["']?\s*:\s*["']?([^"'\s#,}]+)""", re.MULTILINE
)
_SOCKETS = {each.socket: name for name, each in ENGINES.items() if each.socket and name not in DISTRIBUTIONS}
_MAX_COMMAND_BYTES = 64 * 1024


def read_distributions(host: Host) -> dict[str, Any]:
    """Return the facts ``engines`` of these four; None for those that are not installed."""
    running = dict(_running(host))
    return {name: _describe(host, each, running.get(name)) for name, each in DISTRIBUTIONS.items()}


def read_kubelet_engine(host: Host) -> str | None:
    """Return which engine the node's kubelet uses; None where no kubelet runs, or it uses one that is not known."""
    running = list(_running(host))
    if running:
        return running[0][0]
    for words in _commands(host):
        if _name_of(words[0]) == "kubelet":
            endpoint = _option(words, "--container-runtime-endpoint") or _configured_endpoint(host, words)
            return _SOCKETS.get(endpoint.replace("unix://", "").replace("/var/run/", "/run/"))
    return None


def files_of(host: Host) -> Iterator[str]:
    """Return the paths of the files that decide what a distribution's containerd reads."""
    for name, each in DISTRIBUTIONS.items():
        if not _program(host, each):
            continue
        config = config_of(host, name)
        folder = config.rpartition("/")[0]
        yield config
        if each is MICROK8S:
            yield f"{folder}/containerd-template.toml"
        elif each is K0S:
            yield "/run/k0s/containerd-cri.toml"
            yield from _drop_ins(host, f"{folder}/containerd.d")
        else:
            for generation in ("config", "config-v3"):
                yield f"{folder}/{generation}.toml.tmpl"
                yield from _drop_ins(host, f"{folder}/{generation}.toml.d")


def data_of(host: Host, name: str) -> str:
    """Return the folder of k3s or RKE2: what runs says it, else their settings, else it is the usual one."""
    config = dict(_running(host)).get(name) or ""
    return config.partition(_AGENT)[0] if _AGENT in config else _data_of(host, DISTRIBUTIONS[name])


def config_of(host: Host, name: str) -> str:
    """Return the file that a distribution writes for its containerd."""
    distribution = DISTRIBUTIONS[name]
    if distribution.config:
        return distribution.config
    return dict(_running(host)).get(name) or f"{_data_of(host, distribution)}{_AGENT}/config.toml"


def silence_of(host: Host, name: str) -> str | None:
    """Return why a distribution's containerd does not answer, None when it does; it may only need more time."""
    place = host.path(DISTRIBUTIONS[name].socket)
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as client:
        client.settimeout(_TIMEOUT_S)
        try:
            client.connect(str(place))
        except OSError as error:
            return f"{DISTRIBUTIONS[name].socket} does not answer: {error.strerror or error}"
    return None


def log_of(host: Host, name: str) -> str | None:
    """Return the file that containerd's own log goes to, None where it is the unit's."""
    config = config_of(host, name)
    return f"{config[: -len('/etc/containerd/config.toml')]}/containerd/containerd.log" if _AGENT in config else None


def client_of(host: Host, name: str) -> list[str]:
    """Return the words with which containerd's client is called for a distribution's, none where it brings none."""
    distribution = DISTRIBUTIONS[name]
    program = _program(host, distribution) or ""
    data = config_of(host, name)[: -len(f"{_AGENT}/config.toml")]
    for words in distribution.client:
        command = [word.format(program=program, data=data) for word in words]
        if os.access(host.path(command[0]), os.X_OK):
            return command
    return []


def _describe(host: Host, distribution: Distribution, running: str | None) -> dict[str, Any] | None:
    program = _program(host, distribution)
    if program is None:
        return None
    found = _VERSION.search(host.run([program, *distribution.version_question], _TIMEOUT_S).stdout)
    return {
        "binary": program,
        "version": found.group(1) if found else "",
        "config_error": None,
        "config": running if running and not distribution.config else config_of(host, distribution.name),
    }


def _program(host: Host, distribution: Distribution) -> str | None:
    return next((path for path in distribution.programs if os.access(host.path(path), os.X_OK)), None)


def _data_of(host: Host, distribution: Distribution) -> str:
    found = _DATA_DIR.search(host.read_text(distribution.settings) or "")
    return found.group(1).rstrip("/") if found else distribution.data_folder


def _drop_ins(host: Host, folder: str) -> Iterator[str]:
    return (f"{folder}/{name}" for name in host.names(folder) if name.endswith(".toml"))


def _running(host: Host) -> Iterator[tuple[str, str]]:
    """Yield the distributions whose containerd runs, each with the configuration that is on its command line."""
    for words in _commands(host):
        if _name_of(words[0]) != "containerd":
            continue
        config = next((found for option in _CONFIG_OPTIONS if (found := _option(words, option))), "")
        name = _whose(host, config)
        if name:
            yield name, config


def _whose(host: Host, config: str) -> str:
    if config.endswith(f"{_AGENT}/config.toml"):
        is_rke2 = "/rke2/" in config or not _program(host, K3S)
        return RKE2.name if is_rke2 else K3S.name
    if config == K0S.config:
        return K0S.name
    return MICROK8S.name if config.startswith("/var/snap/microk8s/") else ""


def _commands(host: Host) -> Iterator[list[str]]:
    """Yield the command lines of root's processes outside of containers: others could call themselves anything."""
    own = _pid_namespace(host, "1")
    for pid in sorted((name for name in host.names("/proc") if _PROCESS.fullmatch(name)), key=int):
        place = host.path(f"/proc/{pid}/cmdline")
        try:
            status = place.stat()
            is_foreign = status.st_uid != os.geteuid() or _pid_namespace(host, pid) != own
            if is_foreign or not stat.S_ISREG(status.st_mode):
                continue
            with place.open("rb") as stream:
                words = stream.read(_MAX_COMMAND_BYTES).decode("utf-8", "replace").rstrip("\0").split("\0")
        except OSError:
            continue
        if words and words[0]:
            yield words


def _name_of(program: str) -> str:
    return program.rpartition("/")[2]


def _pid_namespace(host: Host, pid: str) -> str:
    try:
        return str(host.path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""


def _option(words: list[str], name: str) -> str:
    """Return the value of an option, written with a space or an equals sign; empty when it is not there."""
    for place, word in enumerate(words):
        if word == name and place + 1 < len(words):
            return words[place + 1]
        if word.startswith(f"{name}="):
            return word[len(name) + 1 :]
    return ""


def _configured_endpoint(host: Host, words: list[str]) -> str:
    """Return the endpoint in a kubelet's configuration: of its drop-ins, read by name, the last one that has it."""
    folder = _option(words, "--config-dir")
    drop_ins = [f"{folder}/{name}" for name in sorted(host.names(folder)) if name.endswith(".conf")] if folder else []
    for path in [*reversed(drop_ins), _option(words, "--config")]:
        found = _ENDPOINT.search(host.read_text(path) or "") if path.startswith("/") else None
        if found:
            return found.group(1)
    return f"unix://{CONTAINERD.socket}"  # the kubelet's own
