"""Defines the section `mig`: how GPUs are divided by MIG, in the form of NVIDIA's mig-parted.

Its format has keys of its own spelling (`mig-devices`), which are kept: a file of mig-parted is one of ours.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from provision.declaration.spec.model.section import Section, doc
from provision.declaration.spec.model.texts import ControllerFile, DeviceFilter, LayoutName, MigProfileName

GpuIndex = Annotated[int, Meta(ge=0, le=255)]
DeviceCount = Annotated[int, Meta(ge=0, le=56)]


class MigEntry(Section, frozen=True, kw_only=True, rename="kebab"):
    """How some of a node's GPUs are divided."""

    device_filter: Annotated[
        DeviceFilter | tuple[DeviceFilter, ...],
        doc("PCI ids of the GPUs that the entry is for: device and vendor, and behind ':' subsystem; empty: any."),
    ] = ()
    devices: Annotated[
        Literal["all"] | tuple[GpuIndex, ...], doc("Which of these GPUs: all, or a list of indices as nvidia-smi has.")
    ]
    mig_enabled: Annotated[bool, doc("Whether the GPUs are in MIG mode.")]
    mig_devices: Annotated[
        dict[MigProfileName, DeviceCount] | None,
        doc("MIG devices that each of the GPUs has: profile and number; {}: none. Required in MIG mode."),
    ] = None

    @property
    def filters(self) -> tuple[str, ...]:
        """The PCI ids in lower case, empty for any."""
        given = (self.device_filter,) if isinstance(self.device_filter, str) else self.device_filter
        return tuple(each.lower() for each in given)


class MigConfig(Section, frozen=True, kw_only=True, rename="kebab"):
    """Layouts by name, as mig-parted's file has them."""

    version: Annotated[Literal["v1"], doc("Version of mig-parted's format.")]
    mig_configs: Annotated[
        dict[LayoutName, Annotated[tuple[MigEntry, ...], Meta(min_length=1)]], doc("The layouts by their names.")
    ]


class Mig(Section, frozen=True, kw_only=True):
    """How the node's GPUs are divided by MIG."""

    layout: Annotated[
        LayoutName | None, doc("Name of the layout that the node's GPUs have; null: grapnel leaves MIG as it is.")
    ] = None
    config: Annotated[
        MigConfig | None, doc("Layouts in the form of NVIDIA's mig-parted; those of configFile count beside them.")
    ] = None
    config_file: Annotated[
        ControllerFile | None,
        doc("File with layouts in that form, on the machine that runs grapnel; a relative path: from the declaration."),
    ] = None
