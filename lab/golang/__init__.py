"""Builds Kubernetes, containerd and what else is written in Go from published modules, once, and keeps it in the cache.

    kubernetes()    folder with hyper, etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl, kubelet
    containerd()    folder with containerd, containerd-shim-runc-v2, ctr
    runc()          folder with runc, for pods with user namespaces
    crio()          folder with crio and pinns
    kwok()          folder with kwok, which plays kubelets of Nodes without machines
    helm()          folder with helm
    kubeconform()   folder with kubeconform

`programs` and the `go.mod` and `go.sum` files below `modules/` define programs and versions, `toolchain` finds the
machine's Go, `build` builds and keeps. `lab.cluster` runs the results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.golang import programs
from lab.golang.build import ensure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["PROGRAMS", "containerd", "crio", "helm", "kubeconform", "kubernetes", "kwok", "runc"]


def _quiet(line: str) -> None:
    """Tell nobody."""


def kubernetes(version: str | None = None, *, say: Callable[[str], None] = _quiet) -> Path:
    """Return the folder with Kubernetes' programs and etcd, building them if not in the cache (eight minutes of CPU).

    The version defaults to ``GRAPNEL_KUBERNETES``, then to the built-in one. ``say`` is called with progress.
    Raises GolangError.
    """
    return ensure(programs.kubernetes(version or programs.kubernetes_version()), say)


def containerd(version: str | None = None, *, say: Callable[[str], None] = _quiet) -> Path:
    """Return the folder with containerd 2, its shim and ctr, building them if not in the cache. Raises GolangError.

    ``version`` is one below ``modules/containerd``; by default that of the cluster's nodes.
    """
    return ensure(programs.containerd(version or programs.CONTAINERD_VERSION), say)


def runc(*, say: Callable[[str], None] = _quiet) -> Path:
    """Return the folder with a runc that serves ``hostUsers: false``, built now if the cache has none.

    Debian 12 and 13 have older ones, which cannot. Raises GolangError.
    """
    return ensure(programs.runc(), say)


def crio(*, say: Callable[[str], None] = _quiet) -> Path:
    """Return the folder with CRI-O, building it if not in the cache (four minutes of CPU). Raises GolangError."""
    return ensure(programs.crio(), say)


def kwok(*, say: Callable[[str], None] = _quiet) -> Path:
    """Return the folder with KWOK, building it if not in the cache (three minutes of CPU). Raises GolangError."""
    return ensure(programs.kwok(), say)


def helm(*, say: Callable[[str], None] = _quiet) -> Path:
    """Return the folder with helm, building it if not in the cache (three minutes of CPU). Raises GolangError."""
    return ensure(programs.helm(), say)


def kubeconform(*, say: Callable[[str], None] = _quiet) -> Path:
    """Return the folder with kubeconform, building it if not in the cache. Raises GolangError."""
    return ensure(programs.kubeconform(), say)


PROGRAMS = {
    "kubernetes": kubernetes,
    "containerd": containerd,
    "runc": runc,
    "crio": crio,
    "kwok": kwok,
    "helm": helm,
    "kubeconform": kubeconform,
}
