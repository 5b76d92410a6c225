"""Renders settings of the kernel: what it has while it runs, and what it is started with."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
from msgspec import Meta

from provision.base.decoding import decoder_of
from provision.declaration.spec.model import Iommu
from provision.planning.architecture import AARCH64, X86_64

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from provision.declaration.spec.model import Kernel

SYSCTL_PATH: Final = "/etc/sysctl.d/90-grapnel.conf"
GRUB_PATH: Final = "/etc/default/grub.d/90-grapnel.cfg"
CMDLINE_PATH: Final = "/etc/kernel/cmdline"
TUNING_RECORD_PATH: Final = "/etc/grapnel/tuning.json"
NUMA_BALANCING: Final = "kernel.numa_balancing"
HUGEPAGES: Final = "vm.nr_hugepages"
_IOMMU: Final[dict[str, dict[Iommu, tuple[str, ...]]]] = {
    X86_64.name: {
        Iommu.ENABLED: ("intel_iommu=on",),
        Iommu.PASSTHROUGH: ("intel_iommu=on", "iommu=pt"),
        Iommu.DISABLED: ("intel_iommu=off", "amd_iommu=off"),
    },
    # The SMMU is always on, and no argument of the kernel's leaves devices without it.
    AARCH64.name: {Iommu.ENABLED: ("iommu.passthrough=0",), Iommu.PASSTHROUGH: ("iommu.passthrough=1",)},
}

_Number = Annotated[str, Meta(pattern=r"^[0-9]{1,9}$(?!\n)")]
_Argument = Annotated[str, Meta(pattern=r"^[a-z_.]{1,32}=[A-Za-z0-9]{1,32}$(?!\n)")]
_Name = Annotated[str, Meta(pattern=r"^(kernel\.numa_balancing|vm\.nr_hugepages)$(?!\n)")]


class LeavingArguments(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the kernel is not to be started with any more, and the boot in which that was told."""

    boot_id: str
    arguments: tuple[_Argument, ...]


class TuningRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What of a kernel's settings is grapnel's, and which value each had before; it is read back from the node."""

    version: Literal[1] = 1
    values: dict[_Name, _Number] = {}
    former: dict[_Name, _Number] = {}
    boot_arguments: tuple[_Argument, ...] = ()
    leaving: LeavingArguments | msgspec.UnsetType = msgspec.UNSET


def render_tuning_record(record: TuningRecord) -> str:
    """Return the text of the record's file."""
    return msgspec.json.format(msgspec.json.encode(record), indent=2).decode() + "\n"


def parse_tuning_record(text: str | None) -> TuningRecord | None:
    """Return a record; None where there is none, or it is not one."""
    try:
        return None if text is None else decoder_of(TuningRecord).decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None


def running_values(kernel: Kernel) -> dict[str, str]:
    """Return the declared settings of the running kernel, by the names of sysctl.d(5)."""
    values = {} if kernel.numa_balancing is None else {NUMA_BALANCING: str(int(kernel.numa_balancing))}
    pages = kernel.hugepages.get("2Mi")
    return values if pages is None else {**values, HUGEPAGES: str(pages)}


def has_iommu_arguments(kernel: Kernel, architecture: str) -> bool:
    """Tell whether the kernel of an architecture can be told what is declared of the IOMMU."""
    return kernel.iommu is None or kernel.iommu in _IOMMU.get(architecture, {})


def boot_arguments(kernel: Kernel, architecture: str) -> tuple[str, ...]:
    """Return what the kernel is to be started with (kernel.org, "The kernel's command-line parameters")."""
    pages = kernel.hugepages.get("1Gi")
    huge = ("hugepagesz=1G", f"hugepages={pages}") if pages else ()
    iommu = () if kernel.iommu is None else _IOMMU.get(architecture, {}).get(kernel.iommu, ())
    return (*iommu, *huge)


def render_sysctl(values: Mapping[str, str]) -> str:
    """Return our file of sysctl.d."""
    return "".join(f"{name} = {value}\n" for name, value in values.items())


def render_grub(arguments: Sequence[str]) -> str:
    """Return our file beside Debian's /etc/default/grub, which a shell reads."""
    return f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {" ".join(arguments)}"\n'


def render_cmdline(text: str, arguments: Sequence[str], former: Sequence[str]) -> str:
    """Return the text of kernel-install's file with ``arguments``, and without what of ``former`` is none of them.

    All else stays, byte by byte.
    """
    wanted = told_together(arguments)
    for gone in (each for each in told_together(former) if each not in wanted):
        text = re.sub(rf"(?:^|[ \t]+){re.escape(gone)}(?!\S)", "", text)
    missing = (each for each in wanted if not re.search(rf"(?<!\S){re.escape(each)}(?!\S)", text))
    return " ".join([text.rstrip(), *missing]) + text[len(text.rstrip()) :]


def told_together(arguments: Sequence[str]) -> list[str]:
    """Return arguments as they are told: a number of pages with the size before it, as others are of another size."""
    return re.sub(r"(hugepagesz=\S+)\n(?=hugepages=)", r"\1 ", "\n".join(arguments)).splitlines()
