"""Defines the facts about a node's kernel: settings that can be declared, and how its security modules stand."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from provision.declaration.fleet.facts import grammar
from provision.declaration.fleet.facts.fact import MESSAGE, Fact, tidy

_Argument = Annotated[str, Meta(pattern=r"^[a-z0-9_.]{1,64}=[A-Za-z0-9_.,:-]{0,128}$(?!\n)")]
_NumaNode = Annotated[int, Meta(ge=0, le=1023)]
_Type = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_]{0,64}$(?!\n)")]
_Size = Annotated[str, Meta(pattern=r"^[0-9]{1,6}[KMG]i$(?!\n)")]


class KernelState(Fact, frozen=True, kw_only=True):
    """The running kernel's settings, as far as they can be declared.

    ``numa_balancing`` is None where the kernel has no such setting. ``hugepages`` counts persistent pages by size.
    ``arguments`` are those of its command line that are about huge pages and the IOMMU, in their order. ``boot_loader``
    is by which program they are changed: ``grub``, ``grubby``, or empty where that is not known. ``tuned_arguments``
    are those that tuned's profile adds at the end of the command line.
    ``numa_nodes_without_cpus`` are those of ``numa_nodes`` whose memory is a device's: on Grace it is that of the GPUs.
    """

    numa_balancing: Annotated[int, Meta(ge=0, le=3)] | None = None
    hugepages: Annotated[dict[_Size, grammar.Count], Meta(max_length=16)] = {}
    arguments: Annotated[tuple[_Argument, ...], Meta(max_length=64)] = ()
    tuned_arguments: Annotated[tuple[_Argument, ...], Meta(max_length=64)] = ()
    boot_loader: grammar.Word = ""
    numa_nodes: Annotated[tuple[_NumaNode, ...], Meta(max_length=1024)] = ()
    numa_nodes_without_cpus: Annotated[tuple[_NumaNode, ...], Meta(max_length=1024)] = ()


class SelinuxState(Fact, frozen=True, kw_only=True):
    """How SELinux stands: the mode that the running kernel is in, and where it is not off what there is of grapnel's.

    ``tools``: semodule and restorecon are there. ``module`` is the SHA-256 of grapnel's policy module as the policy has
    it, None without it, empty where that cannot be told. ``nodes`` are the types of the GPUs' device nodes by path,
    ``denials`` the latest refusals that were about GPUs or grapnel.
    """

    mode: Literal["disabled", "permissive", "enforcing"]
    policy: grammar.Word = ""
    tools: bool = True
    module: Annotated[str, Meta(pattern=r"^([0-9a-f]{64})?$(?!\n)")] | None = None
    nodes: Annotated[dict[grammar.AbsolutePath, _Type], Meta(max_length=256)] = {}
    denials: Annotated[tuple[str, ...], Meta(max_length=64)] = ()

    def __post_init__(self) -> None:
        tidy(self, "denials", MESSAGE)

    @property
    def is_on(self) -> bool:
        """Whether the kernel has a policy."""
        return self.mode != "disabled"


class ApparmorState(Fact, frozen=True, kw_only=True):
    """Whether the running kernel has AppArmor on; ``denials`` are its latest refusals about GPUs or grapnel."""

    mode: Literal["disabled", "enabled"]
    denials: Annotated[tuple[str, ...], Meta(max_length=64)] = ()

    def __post_init__(self) -> None:
        tidy(self, "denials", MESSAGE)
