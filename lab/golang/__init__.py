"""Real Kubernetes, containerd and runc, built once from their published Go modules and kept in the cache.

    kubernetes()    folder with hyper, etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl, kubelet
    containerd()    folder with containerd, containerd-shim-runc-v2, ctr
    runc()          folder with runc, for pods with user namespaces

What is built, and of which versions, stands in `programs` and in the `go.mod` and `go.sum` files below `modules/`;
the toolchain that the machine has in `toolchain`; building and keeping in `build`. Running what was built belongs to
`lab.cluster`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.golang import programs
from lab.golang.build import ensure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["PROGRAMS", "containerd", "kubernetes", "runc"]


def _quiet(line: str) -> None:
    """Tell nobody."""


def kubernetes(version: str | None = None, *, say: Callable[[str], None] = _quiet) -> Path:
    """Return the folder with Kubernetes' programs and etcd, built now if the cache has none (eight minutes of CPU).

    Without a version it is the one that ``GRAPNEL_KUBERNETES`` names, else the default. ``say`` gets a line now and
    then while it builds. Raises GolangError.
    """
    return ensure(programs.kubernetes(version or programs.kubernetes_version()), say)


def containerd(*, say: Callable[[str], None] = _quiet) -> Path:
    """Return the folder with containerd 2, its shim and ctr, built now if the cache has none. Raises GolangError."""
    return ensure(programs.containerd(), say)


def runc(*, say: Callable[[str], None] = _quiet) -> Path:
    """Return the folder with a runc that serves ``hostUsers: false``, built now if the cache has none.

    Debian 12 and 13 have older ones, which cannot. Raises GolangError.
    """
    return ensure(programs.runc(), say)


PROGRAMS = {"kubernetes": kubernetes, "containerd": containerd, "runc": runc}
