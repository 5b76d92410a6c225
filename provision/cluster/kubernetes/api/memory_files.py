"""Files in memory for a library that takes paths alone, such as OpenSSL: what stands in a kubeconfig needs no disk.

The kernel takes them away with the process, also one that is killed, and no other process inherits them.
"""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

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
