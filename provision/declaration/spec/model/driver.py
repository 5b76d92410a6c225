"""Defines the section `driver`: which NVIDIA driver a node has, where it comes from, and how it gets there."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from provision.declaration.spec.model.section import Section, doc
from provision.declaration.spec.model.texts import (
    CertificatePath,
    DriverBranch,
    DriverVersion,
    FolderPath,
    HostName,
    ParameterName,
    ParameterText,
    PublicKey,
    RepositoryUrl,
    RunfilePath,
    RunfileUrl,
    Sha256,
    SigningKeyPath,
)

# Of each pair one key is declared. A level that declares one of them takes back the other, from weaker levels.
ALTERNATIVES: Final = (
    (("driver", "version"), ("driver", "branch")),
    (("driver", "repository", "url"), ("driver", "repository", "folder")),
    (("driver", "runfile", "url"), ("driver", "runfile", "path")),
)
ParameterNumber = Annotated[int, Meta(ge=0, le=4_294_967_295)]


class DriverSource(Enum):
    """Where the driver's packages come from."""

    DISTRIBUTION = "distribution"
    NVIDIA = "nvidia"
    CANONICAL = "canonical"
    BUNDLE = "bundle"
    RUNFILE = "runfile"
    NONE = "none"


class KernelModule(Enum):
    """Which flavour of the kernel module a node has, and whether grapnel provides it."""

    AUTO = "auto"
    OPEN = "open"
    PROPRIETARY = "proprietary"
    NONE = "none"


class Capability(Enum):
    """A set of the driver's user-space libraries and tools, in NVIDIA's words."""

    COMPUTE = "compute"
    UTILITY = "utility"
    GRAPHICS = "graphics"
    VIDEO = "video"
    DISPLAY = "display"
    NGX = "ngx"
    COMPAT32 = "compat32"


class Companion(Enum):
    """A service, library or kernel module beside the driver that some hardware needs."""

    FABRICMANAGER = "fabricmanager"
    NSCQ = "nscq"
    IMEX = "imex"
    PERSISTENCED = "persistenced"
    GDRCOPY = "gdrcopy"
    PEERMEM = "peermem"


class Compile(Enum):
    """When a node may compile a kernel module."""

    STAGE = "stage"
    ANYWHERE = "anywhere"


class Build(Enum):
    """Which nodes build a kernel module that nobody has built for them."""

    ONCE = "once"
    EACH = "each"


class Repository(Section, frozen=True, kw_only=True):
    """A repository that is not the node's own."""

    url: Annotated[
        RepositoryUrl | None,
        doc(
            "URL under which the node itself reads the repository, https or file; for nvidia the folder of the "
            "node's distribution and architecture, for canonical the archive's root; null: the source's own."
        ),
    ] = None
    folder: Annotated[
        FolderPath | None,
        doc(
            "A bundle on the machine that runs grapnel, for source bundle: its file, or the folder that it is unpacked "
            "in; nodes are handed what they need from it."
        ),
    ] = None
    key: Annotated[
        PublicKey | None,
        doc(
            "Key that signs the packages, as armored text; required for nvidia; null: a key that the node has already."
        ),
    ] = None


class Runfile(Section, frozen=True, kw_only=True):
    """One of NVIDIA's installer files, of which grapnel makes packages."""

    path: Annotated[RunfilePath | None, doc("The file on the machine that runs grapnel.")] = None
    url: Annotated[RunfileUrl | None, doc("Where the machine that runs grapnel gets the file, https.")] = None
    sha256: Annotated[Sha256, doc("The file's SHA-256 digest: no other file is used.")]


class Signing(Section, frozen=True, kw_only=True):
    """The key that signs kernel modules, and the certificate that they are checked against wherever they came from."""

    key: Annotated[
        SigningKeyPath, doc("The private key: a file that only root may read, on every node that builds a module.")
    ]
    certificate: Annotated[CertificatePath, doc("The key's certificate, DER: a file on every node.")]


class Driver(Section, frozen=True, kw_only=True):
    """The NVIDIA driver on the node, kernel module included, as exact packages."""

    enabled: Annotated[bool, doc("Whether grapnel manages the driver; false leaves the node's driver alone.")] = True
    source: Annotated[
        DriverSource,
        doc(
            "Where packages come from; distribution: the node's own system; nvidia: NVIDIA's repository; canonical: "
            "Ubuntu's archive with its signed modules; bundle: a bundle that was made for nodes without a network; "
            "runfile: one of NVIDIA's installer files, as packages; none: grapnel installs no packages."
        ),
    ] = DriverSource.DISTRIBUTION
    repository: Annotated[
        Repository | None,
        doc("NVIDIA's repository with its key, a mirror, or a bundle; null: what the node has configured."),
    ] = None
    runfile: Annotated[
        Runfile | None,
        doc("NVIDIA's installer file for source runfile: its place and its digest; null: none."),
    ] = None
    version: Annotated[
        DriverVersion | None,
        doc("Upstream version of the driver, quoted; either version or branch, while the driver is enabled."),
    ] = None
    branch: Annotated[
        DriverBranch | None,
        doc("Branch of the driver, quoted: the newest version of it that every node which declares the same can have."),
    ] = None
    kernel_module: Annotated[
        KernelModule,
        doc("Flavour of the kernel module; auto: what the node's GPUs need; none: something else provides the module."),
    ] = KernelModule.AUTO
    capabilities: Annotated[
        tuple[Capability, ...],
        doc("Which of the driver's libraries and tools to install.", minItems=1, uniqueItems=True),
    ] = (Capability.COMPUTE, Capability.UTILITY)
    companions: Annotated[
        Annotated[tuple[Companion, ...], doc("", uniqueItems=True)] | None,
        doc("What to install beside the driver; an empty list: nothing; null: what the node's hardware needs."),
    ] = None
    module_parameters: Annotated[
        dict[ParameterName, ParameterNumber | ParameterText],
        doc("Parameters of the kernel module nvidia."),
    ] = msgspec.field(default_factory=dict)
    signing: Annotated[
        Signing | None,
        doc("Key that signs the modules which a node builds; null: the one that its DKMS uses."),
    ] = None
    compile: Annotated[
        Compile,
        doc("When a node may compile the module; stage: only beforehand, in service; anywhere: out of service too."),
    ] = Compile.STAGE
    build: Annotated[
        Build,
        doc(
            "Who builds a module; once: two nodes that are drawn, for all nodes of their kind (distribution, kernel, "
            "driver, flavour), which take it if both have built the same, or the builder; each: every node its own."
        ),
    ] = Build.ONCE
    builder: Annotated[
        HostName | None,
        doc(
            "Host of the inventory from which alone nodes take a built module, if it is of their kind, by its word; "
            "null: from two nodes of their kind that have built the same."
        ),
    ] = None
    reboot: Annotated[
        bool,
        doc("Whether grapnel may reboot a node, out of service, where a driver change needs it."),
    ] = False
    hold: Annotated[bool, doc("Whether packages are held, so that no other upgrade moves them.")] = True
