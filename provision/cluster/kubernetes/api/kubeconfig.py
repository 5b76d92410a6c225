"""Finds and reads the kubeconfig as kubectl does: of several files, the first to name a thing wins.

The result is one cluster, one user and one context with absolute paths, so that nothing is left for a client to
choose. Messages name files and keys and never a value of ``users``.
"""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec
import yaml

from provision.base import decoding
from provision.base.regular_file import read_regular
from provision.cluster.errors import KubeconfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_ANOTHER: Final = "`--kubeconfig` names another one"
MAX_BYTES: Final = 4 * 1024 * 1024
_TOKEN_FOLDER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# Keys that hold paths, which are relative to the file that they stand in.
_PATHS: Final = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubeconfig:
    """How to reach one cluster. ``document`` is a kubeconfig with nothing else in it; it holds secrets."""

    context: str
    server: str
    document: Mapping[str, Any] = field(repr=False)

    @property
    def name(self) -> str:
        """What messages call the cluster."""
        return f"cluster {self.context} ({self.server})"


class _Named(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    cluster: dict[str, Any] | None = None
    user: dict[str, Any] | None = None
    context: dict[str, Any] | None = None


class _File(msgspec.Struct, frozen=True, kw_only=True, rename={"current_context": "current-context"}):
    clusters: tuple[_Named, ...] | None = None
    users: tuple[_Named, ...] | None = None
    contexts: tuple[_Named, ...] | None = None
    current_context: str | None = None


def find_kubeconfig(flag: Path | None, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the files that are meant, in the order of their weight; empty where there is none.

    The flag, else every file of ``KUBECONFIG``, else ``~/.kube/config``. Raises KubeconfigError when what was
    named is not there; of several files some may be missing, as for kubectl.
    """
    if flag is not None:
        if not flag.is_file():
            raise KubeconfigError(f"kubeconfig {flag} is not a file", hint="`--kubeconfig` names a file")
        return (flag,)
    if named := environ.get("KUBECONFIG"):
        paths = [Path(each).expanduser() for each in named.split(os.pathsep) if each]
        if not (found := tuple(path for path in paths if path.is_file())):
            raise KubeconfigError(f"KUBECONFIG names {named}, which does not exist", hint=f"unset it; {_ANOTHER}")
        return found
    usual = Path(environ.get("HOME") or "~").expanduser() / ".kube" / "config"
    return (usual,) if usual.is_file() else ()


def read_kubeconfig(paths: Sequence[Path], context: str | None) -> Kubeconfig:
    """Return how to reach the cluster of ``context``, or of the current context.

    Raises KubeconfigError: a file cannot be read, there is no such context, or what it refers to is missing.
    """
    files = [(path, _read(path)) for path in paths]
    contexts = _merged(((path, each) for path, file in files for each in file.contexts or ()), "context")
    where = ", ".join(str(path) for path in paths)
    name = context or next((file.current_context for _path, file in files if file.current_context), None)
    if name is None:
        raise KubeconfigError(f"{where} has no current context", hint=f"add `--context`; {_known(contexts)}")
    if name not in contexts:
        raise KubeconfigError(f"{where} has no context {name}", hint=_known(contexts))
    clusters = _merged(((path, each) for path, file in files for each in file.clusters or ()), "cluster")
    users = _merged(((path, each) for path, file in files for each in file.users or ()), "user")
    cluster = clusters.get(_text(contexts[name], "cluster"))
    if cluster is None or not (server := _text(cluster, "server")):
        raise KubeconfigError(f"context {name} of {where} has no cluster with a server", hint=_known(contexts))
    user_name = _text(contexts[name], "user")
    if user_name and user_name not in users:
        raise KubeconfigError(f"context {name} of {where} names user {user_name}, who does not exist")
    return _kubeconfig(name, server, cluster, users.get(user_name, {}))


def in_cluster(environ: Mapping[str, str], folder: Path = _TOKEN_FOLDER) -> Kubeconfig | None:
    """Return how a pod reaches its own cluster with its ServiceAccount; None outside of a pod."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port or not folder.joinpath("token").is_file():
        return None
    server = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    cluster = {"server": server, "certificate-authority": str(folder / "ca.crt")}
    return _kubeconfig("in-cluster", server, cluster, {"tokenFile": str(folder / "token")})


def _kubeconfig(name: str, server: str, cluster: dict[str, Any], user: dict[str, Any]) -> Kubeconfig:
    parts = urlsplit(server)
    return Kubeconfig(
        context=name,
        server=f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}",  # without a password in it
        document={
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": name, "user": user}],
        },
    )


def _read(path: Path) -> _File:
    """Read one file. YAML's own message is not passed on: it quotes the lines around, which may hold a token."""
    try:
        loaded = yaml.safe_load(read_regular(path, MAX_BYTES).decode())
        return decoding.convert(loaded or {}, _File)
    except OSError as error:
        raise KubeconfigError(f"kubeconfig {path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f":{mark.line + 1}"
        raise KubeconfigError(f"kubeconfig {path}{line} is not YAML") from None
    except msgspec.ValidationError as error:
        reason = str(error)
        raise KubeconfigError(f"kubeconfig {path} is malformed: {reason[:1].lower()}{reason[1:]}") from None


def _merged(entries: Iterable[tuple[Path, _Named]], kind: str) -> dict[str, dict[str, Any]]:
    """Return what each name stands for: the first file that names it, with its paths made absolute."""
    found: dict[str, dict[str, Any]] = {}
    for path, named in entries:
        body = getattr(named, kind) or {}
        found.setdefault(named.name, _absolute(body, path.parent.absolute()))
    return found


def _absolute(body: dict[str, Any], folder: Path) -> dict[str, Any]:
    paths: dict[str, Any] = {key: str(folder / _text(body, key)) for key in _PATHS if _text(body, key)}
    plugin = body.get("exec")
    if isinstance(plugin, dict) and os.sep in (command := _text(plugin, "command")):  # a bare name is looked up on PATH
        paths["exec"] = {**plugin, "command": str(folder / command)}
    return {**body, **paths}


def _text(body: dict[str, Any], key: str) -> str:
    value = body.get(key)
    return value if isinstance(value, str) else ""


def _known(contexts: Mapping[str, object]) -> str:
    names = ", ".join(sorted(contexts))
    return f"contexts: {names}" if names else _ANOTHER


# Files in memory for a library that takes paths alone, such as OpenSSL: what stands in a kubeconfig needs no disk.
# The kernel takes them away with the process, also one that is killed, and no other process inherits them.

# Keys of clusters, users and OIDC providers that hold a file in base64, and those that would name it.
_FILES: Final = {
    f"{name}-data": name
    for name in ("certificate-authority", "client-certificate", "client-key", "idp-certificate-authority")
}


class MemoryFiles:
    """Files in memory, until `close`."""

    def __init__(self) -> None:
        self._descriptors: list[int] = []

    def put(self, content: bytes) -> str:
        """Return the path of a file of this content, for this process alone. It may be opened again and again."""
        descriptor = os.memfd_create("credentials", os.MFD_CLOEXEC)
        self._descriptors.append(descriptor)
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(content)
        return f"/proc/self/fd/{descriptor}"

    def close(self) -> None:
        """Let the kernel have them back."""
        while self._descriptors:
            os.close(self._descriptors.pop())


def by_path(document: Mapping[str, Any], files: MemoryFiles) -> dict[str, Any]:
    """Return a kubeconfig that names files in memory for what stands in it. Raises ValueError for what is no base64."""
    clusters = [{**each, "cluster": _named(each["cluster"], files)} for each in document["clusters"]]
    users = [{**each, "user": _user(each["user"], files)} for each in document["users"]]
    return {**document, "clusters": clusters, "users": users}


def _user(user: Mapping[str, Any], files: MemoryFiles) -> dict[str, Any]:
    named, provider = _named(user, files), user.get("auth-provider")
    if isinstance(provider, dict) and isinstance(config := provider.get("config"), dict):
        named["auth-provider"] = {**provider, "config": _named(config, files)}
    return named


def _named(body: Mapping[str, Any], files: MemoryFiles) -> dict[str, Any]:
    held = {key: value for key, value in body.items() if key in _FILES and isinstance(value, str) and value}
    paths = {_FILES[key]: files.put(base64.standard_b64decode(value)) for key, value in held.items()}
    return {**{key: value for key, value in body.items() if key not in held}, **paths}
