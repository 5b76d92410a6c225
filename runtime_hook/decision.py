"""Decides what happens to a container: nothing, a refusal, or a plan that gives it GPUs. Pure.

``prestart`` applies the decision, ``explain`` shows it. Facts come in, and the decision goes downhill from them::

    config.json, configuration    the node's rules; what is claimed?           request.policy, request.entitlement
    + inventory of the host       what is granted? can the image run on it?    request.grant, request.requirements
    + layout of the root          what has to be done for it?                  plan

Most containers end at the first line. So the two facts that cost something are handed over as functions, each of which
is called once at most, and only for a container that gets so far.
"""

from __future__ import annotations

from runtime_hook.base.errors import InventoryError
from runtime_hook.base.values import value
from runtime_hook.inputs.config import CUDA_COMPAT_DISABLED
from runtime_hook.request.claim import REQUIRE_PREFIX, Nothing, is_legacy_image
from runtime_hook.request.entitlement import find_claim

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Optional, Union

    from runtime_hook.container.operations.operation import Operation
    from runtime_hook.host.inventory import Inventory
    from runtime_hook.inputs.bundle import ContainerConfig
    from runtime_hook.inputs.config import HookConfig
    from runtime_hook.loader.layout import Layout
    from runtime_hook.request.claim import Claim
    from runtime_hook.request.grant import Grant
    from runtime_hook.request.requirements import Finding

    # What fails with HookError refuses the container. The layout is asked for with the inventory whose driver CUDA
    # forward compatibility is compared with, or with None where that does not count.
    ReadInventory = Callable[[], Inventory]
    FindLayout = Callable[[Optional[Inventory]], Layout]


@value
class Refused:
    """The container must not start. ``source`` is where its claim stands, ``findings`` are on its requirements.

    An error that is not a HookError is a bug.
    """

    error: Exception
    source: str
    findings: tuple[Finding, ...] = ()


@value
class Granted:
    """The container has what ``grant`` says when every operation of ``plan`` has been applied."""

    grant: Grant
    plan: tuple[Operation, ...]
    inventory: Inventory
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]


if TYPE_CHECKING:
    Decision = Union[Nothing, Refused, Granted]


def decide(container: ContainerConfig, config: HookConfig, inventory: ReadInventory, root: FindLayout) -> Decision:
    """Decide on one container. Once it claims anything, whatever fails refuses it: a HookError, or a bug."""
    if config.rules:
        from runtime_hook.inputs.origin import find_origin
        from runtime_hook.request.policy import apply_rules

        config = apply_rules(config, container, find_origin(container.annotations, container.cgroup))
    claim = find_claim(container, config)
    if isinstance(claim, Nothing):
        return claim
    findings: tuple[Finding, ...] = ()
    try:
        host = _read_for(claim, inventory)
        if isinstance(host, Nothing):
            return host
        grant = _grant(claim, container, config, host)
        if isinstance(grant, Nothing):
            return grant
        findings = _evaluate(grant, container.environment, config, host)
        notes = _check(findings)
        plan = _plan(grant, container, config, host, root)
    except Exception as error:  # noqa: BLE001 - fail closed, and let the caller tell what it was
        return Refused(error, claim.source, findings)
    return Granted(grant, plan, host, findings, notes)


def _read_for(claim: Claim, read_inventory: ReadInventory) -> Inventory | Nothing:
    """Read the inventory; a node without a driver has nothing to say about a container with some other device."""
    try:
        return read_inventory()
    except InventoryError as missing:
        if claim.is_certain:
            raise
        return Nothing(f"none of the container's devices is known as a GPU: {missing}", is_traced=False)


def _grant(claim: Claim, container: ContainerConfig, config: HookConfig, inventory: Inventory) -> Grant | Nothing:
    from runtime_hook.request import grant as grants

    grant = grants.resolve_claim(claim, container, config, inventory)
    if not isinstance(grant, Nothing):
        grants.check_versions(inventory)
        grants.check_nodes(inventory, container.devices)
    return grant


def _evaluate(
    grant: Grant, environment: dict[str, str], config: HookConfig, inventory: Inventory
) -> tuple[Finding, ...]:
    """Hold what the image says that it needs against what it would be given."""
    if not is_legacy_image(environment) and not any(name.startswith(REQUIRE_PREFIX) for name in environment):
        return ()
    from runtime_hook.request.grant import gpus_of
    from runtime_hook.request.requirements import evaluate, find_requirements

    found = find_requirements(environment, is_disabled=config.disable_require)
    return evaluate(found, inventory, gpus_of(grant, inventory))


def _check(findings: tuple[Finding, ...]) -> tuple[str, ...]:
    if not findings:
        return ()
    from runtime_hook.request.requirements import check_findings

    return check_findings(findings)


def _plan(
    grant: Grant, container: ContainerConfig, config: HookConfig, inventory: Inventory, find_layout: FindLayout
) -> tuple[Operation, ...]:
    from runtime_hook.plan.planner import Planner

    has_compat = "compute" in grant.capabilities and config.cuda_compat != CUDA_COMPAT_DISABLED
    layout = find_layout(inventory if has_compat else None)
    planner = Planner(inventory, layout.platform, config.host_path)
    can_write = container.can_change_mounts
    return tuple(planner.plan(grant, layout, container.device_rules, container.devices, can_change_mounts=can_write))
