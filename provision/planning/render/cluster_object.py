"""Defines objects of a cluster that a declaration becomes, as values: what they are, and what is to be in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

TENANCY_LABEL: Final = "grapnel.dev/tenancy"
_LABELS: Final = {"app.kubernetes.io/managed-by": "grapnel", TENANCY_LABEL: "true"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectKind:
    """A kind of object. ``fixed`` are fields, as paths, that Kubernetes lets nobody change: it is made again."""

    kind: str
    group: str
    version: str
    plural: str
    is_namespaced: bool = False
    fixed: tuple[tuple[str, ...], ...] = ()

    @property
    def api_version(self) -> str:
        """As manifests have it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """The path of its API version."""
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"

    @property
    def everywhere(self) -> str:
        """The path of all of its objects."""
        return f"{self.root}/{self.plural}"

    def path(self, namespace: str, name: str) -> str:
        """Return the path of one of its objects."""
        folder = f"/namespaces/{quote(namespace, safe='')}" if self.is_namespaced else ""
        return f"{self.root}{folder}/{self.plural}/{quote(name, safe='')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterObject:
    """An object as declared; ``content`` is what stands beside its metadata."""

    kind: ObjectKind
    name: str
    namespace: str = ""
    content: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells it from all others."""
        return (self.kind.plural, self.namespace, self.name)

    @property
    def path(self) -> str:
        """Where it is in the API."""
        return self.kind.path(self.namespace, self.name)

    def manifest(self, uid: str = "") -> dict[str, Any]:
        """Return it as it is applied; with ``uid``, to that object and no later one of its name."""
        metadata: dict[str, Any] = {"name": self.name, "labels": dict(_LABELS)}
        metadata |= {"namespace": self.namespace} if self.namespace else {}
        metadata |= {"uid": uid} if uid else {}
        return {"apiVersion": self.kind.api_version, "kind": self.kind.kind, "metadata": metadata, **self.content}
