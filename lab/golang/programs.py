"""Lists what can be built: module, flags and resulting files. Values only; nothing is run here.

A version is known when ``modules/PROGRAM/VERSION`` holds its ``go.mod`` and ``go.sum``: they pin every module of the
build with its hash, so that the build needs only the module proxy and is reproducible.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lab.golang.errors import GolangError

if TYPE_CHECKING:
    from collections.abc import Mapping

MODULES = Path(__file__).with_name("modules")
SETTING = "GRAPNEL_KUBERNETES"
KUBERNETES_VERSION = "1.36.3"  # unless the setting names another
KUBERNETES_ROLES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kubelet")
CONTAINERD_VERSION = "2.2.1"
NEWEST_CONTAINERD_VERSION = "2.4.2"  # for tests marked long
RUNC_VERSION = "1.3.6"
KWOK_VERSION = "0.8.0"
CRIO_VERSION = "1.36.3"
HELM_VERSION = "4.3.1"
KUBECONFORM_VERSION = "0.8.0"
GIB = 1 << 30
GO_DIRECTIVE = re.compile(r"^go (\S+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Program:
    """A build: the files of its main module, the arguments of `go build`, the resulting files.

    ``links`` are further names of ``files[0]``. ``probe`` is a command to run in the finished folder and ``answer``
    a word that it must print. ``memory_bytes`` and ``disk_bytes`` must be free to build it (measured, rounded up).
    ``has_c``: it is partly C, and needs the machine's C compiler. ``tags`` leave out parts that need libraries of C.
    ``beside``: programs in C of the same modules: their name, and the module and folder with their sources.
    """

    name: str
    version: str
    sources: tuple[Path, ...]
    target: str
    variables: Mapping[str, str]
    files: tuple[str, ...]
    links: tuple[str, ...] = ()
    probe: tuple[str, ...]
    answer: str
    memory_bytes: int
    disk_bytes: int
    has_c: bool = False
    tags: tuple[str, ...] = ()
    beside: tuple[tuple[str, str, str], ...] = ()

    @property
    def title(self) -> str:
        """The program's display name."""
        return f"{self.name} {self.version}"

    @property
    def flags(self) -> tuple[str, ...]:
        """Arguments of `go build`: static, without paths and symbols, modules as pinned."""
        linking = ["-s", "-w", *(f"-X {name}={value}" for name, value in self.variables.items())]
        tags = (f"-tags={','.join(('netgo', 'osusergo', *self.tags))}",) if self.has_c else ()
        linking += ["-extldflags=-static"] if self.has_c else []
        return ("-trimpath", "-mod=readonly", "-buildvcs=false", *tags, f"-ldflags={' '.join(linking)}")

    @property
    def go_version(self) -> str:
        """The oldest Go that builds it, as its go.mod says."""
        text = next(source for source in self.sources if source.name == "go.mod").read_text()
        match = GO_DIRECTIVE.search(text)
        return match[1] if match else ""


def kubernetes_version() -> str:
    """Return the version in ``GRAPNEL_KUBERNETES`` (with or without a v), else the default."""
    return os.environ.get(SETTING, "").strip().removeprefix("v") or KUBERNETES_VERSION


def known_versions(name: str, modules: Path = MODULES) -> list[str]:
    """Return the versions of a program that can be built, oldest first."""
    found = [path.parent.name for path in (modules / name).glob("*/go.mod")]
    return sorted(found, key=lambda version: tuple(map(int, version.split("."))))


def kubernetes(version: str) -> Program:
    """Return the multi-call binary of Kubernetes and etcd. Raises GolangError for a version that is not known."""
    known = known_versions("kubernetes")
    if version not in known:
        hint = f"known: {', '.join(known)}; to add one: python3 -m lab.golang add {version}"
        raise GolangError(f"unknown Kubernetes version {version} (from {SETTING} or the caller)", hint=hint)
    major, minor, _ = version.split(".")
    package = "k8s.io/component-base/version"  # what /version and the Node objects show
    home = MODULES / "kubernetes"
    return Program(
        name="kubernetes",
        version=version,
        sources=(home / "main.go", home / version / "go.mod", home / version / "go.sum"),
        target=".",
        variables={
            f"{package}.gitVersion": f"v{version}",
            f"{package}.gitMajor": major,
            f"{package}.gitMinor": minor,
        },
        files=("hyper",),
        links=KUBERNETES_ROLES,
        probe=("kubelet", "--version"),
        answer=f"v{version}",
        memory_bytes=3 * GIB,
        disk_bytes=6 * GIB,
    )


def containerd(version: str = CONTAINERD_VERSION) -> Program:
    """Return containerd 2 with the shim and the client; its go.mod names the three as tools."""
    home = MODULES / "containerd" / version
    return Program(
        name="containerd",
        version=version,
        sources=(home / "go.mod", home / "go.sum"),
        target="tool",
        variables={"github.com/containerd/containerd/v2/version.Version": f"v{version}"},
        files=("containerd", "containerd-shim-runc-v2", "ctr"),
        probe=("containerd", "--version"),
        answer=f"v{version}",
        memory_bytes=1 * GIB,
        disk_bytes=2 * GIB,
    )


def runc() -> Program:
    """Return a runc that can make user namespaces for pods (1.2 and later), without seccomp."""
    home = MODULES / "runc" / RUNC_VERSION
    return Program(
        name="runc",
        version=RUNC_VERSION,
        sources=(home / "go.mod", home / "go.sum"),
        target="tool",
        variables={},
        files=("runc",),
        probe=("runc", "--version"),
        answer=RUNC_VERSION,
        memory_bytes=1 * GIB,
        disk_bytes=1 * GIB,
        has_c=True,
    )


def crio() -> Program:
    """Return CRI-O with pinns, which pins a pod's namespaces; without seccomp, btrfs and GPGME."""
    home = MODULES / "crio" / CRIO_VERSION
    return Program(
        name="crio",
        version=CRIO_VERSION,
        sources=(home / "go.mod", home / "go.sum"),
        target="tool",
        variables={},
        files=("crio", "pinns"),
        probe=("crio", "--version"),
        answer=CRIO_VERSION,
        memory_bytes=2 * GIB,
        disk_bytes=3 * GIB,
        has_c=True,
        tags=("containers_image_openpgp", "exclude_graphdriver_btrfs"),
        beside=(("pinns", "github.com/cri-o/cri-o", "pinns/src"),),
    )


def kwok() -> Program:
    """Return KWOK, which plays the kubelets of Nodes without machines."""
    home = MODULES / "kwok" / KWOK_VERSION
    return Program(
        name="kwok",
        version=KWOK_VERSION,
        sources=(home / "go.mod", home / "go.sum"),
        target="tool",
        variables={"sigs.k8s.io/kwok/pkg/consts.Version": f"v{KWOK_VERSION}"},
        files=("kwok",),
        probe=("kwok", "--version"),
        answer=f"v{KWOK_VERSION}",
        memory_bytes=1 * GIB,
        disk_bytes=2 * GIB,
    )


def helm() -> Program:
    """Return helm 4, as people install the chart with."""
    home = MODULES / "helm" / HELM_VERSION
    return Program(
        name="helm",
        version=HELM_VERSION,
        sources=(home / "go.mod", home / "go.sum"),
        target="tool",
        variables={"helm.sh/helm/v4/internal/version.version": f"v{HELM_VERSION}"},
        files=("helm",),
        probe=("helm", "version", "--template={{.Version}}"),
        answer=f"v{HELM_VERSION}",
        memory_bytes=2 * GIB,
        disk_bytes=2 * GIB,
    )


def kubeconform() -> Program:
    """Return kubeconform, which holds manifests to the schemas of the API server."""
    home = MODULES / "kubeconform" / KUBECONFORM_VERSION
    return Program(
        name="kubeconform",
        version=KUBECONFORM_VERSION,
        sources=(home / "go.mod", home / "go.sum"),
        target="tool",
        variables={"main.version": f"v{KUBECONFORM_VERSION}"},
        files=("kubeconform",),
        probe=("kubeconform", "-v"),
        answer=f"v{KUBECONFORM_VERSION}",
        memory_bytes=1 * GIB,
        disk_bytes=1 * GIB,
    )
