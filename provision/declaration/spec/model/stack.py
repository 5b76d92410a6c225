"""Defines the declaration; its sections are beside it."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from provision.declaration.spec.model.driver import Driver
from provision.declaration.spec.model.mig import Mig
from provision.declaration.spec.model.node import Node
from provision.declaration.spec.model.plugin import Plugin
from provision.declaration.spec.model.rollout.policy import Rollout
from provision.declaration.spec.model.runtime import Runtime
from provision.declaration.spec.model.scheduler import Scheduler
from provision.declaration.spec.model.section import Section, doc
from provision.declaration.spec.model.tenancy import Tenancy
from provision.declaration.spec.model.texts import DnsLabel

API_VERSION: Final = "grapnel.dev/v1alpha1"
KIND: Final = "GpuStack"


class Metadata(Section, frozen=True, kw_only=True):
    """Names the declaration."""

    name: Annotated[DnsLabel, doc("What messages and reports call this declaration.")] = "default"


class StackSpec(Section, frozen=True, kw_only=True):
    """What every node of a group should be: the effective declaration of one node has this type."""

    driver: Driver = Driver()
    runtime: Runtime = Runtime()
    plugin: Plugin = Plugin()
    mig: Mig = Mig()
    node: Node = Node()
    tenancy: Tenancy = Tenancy()
    rollout: Rollout = Rollout()
    scheduler: Scheduler = Scheduler()


class GpuStack(Section, frozen=True, kw_only=True):
    """The declaration, as it stands in grapnel.yaml."""

    api_version: Annotated[Literal["grapnel.dev/v1alpha1"], doc("Version of this format.")]
    kind: Annotated[Literal["GpuStack"], doc("Type of the document.")]
    metadata: Metadata = Metadata()
    spec: StackSpec
