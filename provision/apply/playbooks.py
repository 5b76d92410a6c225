"""Requests to run the collection's playbooks: which one, on which nodes, with which variables and limits."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import msgspec

from provision.apply.gather import RESULT
from provision.apply.runner import RunRequest
from provision.planning.node_plan import NodePlan, Role, role_variables

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from provision.planning.supply.builds.model import ModuleBuild
    from provision.planning.supply.bundle.handover import HandedFile, Handover

FACTS_TIMEOUT_S = 600
APPLY_TIMEOUT_S = 7200  # a node may have to reboot for its driver, and for the way back from it
DAEMON_TIMEOUT_S = 600
DRIVER_TIMEOUT_S = 7200
REBOOT_TIMEOUT_S = 3600
REMOVE_TIMEOUT_S = 1800
COLLECT_TIMEOUT_S = 4 * 3600  # it may build modules for several kernels
BUILT_MODULE_TIMEOUT_S = 1800
# For how long the lock on a node is kept for the next step of the same rollout. It is renewed by every step.
KEEP_S: Final = 300
DAEMON_RESULT = "daemon"
REMOVAL_RESULT = "removal"
FORESEEN_RESULT = "foreseen"  # of a driver
_ID_DIGITS: Final = 12  # as many as the name of a driver change has
_BOOT: Final = re.compile(r"[0-9a-f-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Playbooks:
    """Requests for the collection's playbooks. ``inventory`` is ``Fleet.inventories``.

    ``environment`` goes to every run, ``forks`` is for the facts of many nodes at once. ``offline``: no package source
    is contacted for facts; ``offline_nodes`` are those of which this is true in any case. ``mig_nodes`` are asked how
    their GPUs are divided, those of ``kubelets`` for the settings of that service. With ``traces`` all of them are
    asked who changed them.
    """

    collection: Path
    inventory: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    forks: int = 20
    check: bool = False
    offline: bool = False
    offline_nodes: frozenset[str] = frozenset()
    mig_nodes: frozenset[str] = frozenset()
    kubelets: Mapping[str, str] = field(default_factory=dict)
    traces: bool = False

    def facts(self, nodes: Iterable[str]) -> RunRequest:
        """Gather the facts of nodes; never in check mode, because gathering changes nothing."""
        names = tuple(nodes)
        return RunRequest(
            playbook=self.collection / "facts.yml",
            inventory=self.inventory,
            nodes=names,
            extra_vars={
                **self._network(names),
                **self._asked(names),
                **({"grapnel_traces": True} if self.traces else {}),
            },
            forks=max(1, min(self.forks, len(names))),
            timeout_s=FACTS_TIMEOUT_S,
            environment=self.environment,
            keep=frozenset({RESULT}),
            only_reads=True,
        )

    def apply(
        self,
        plan: NodePlan,
        expectation: Mapping[str, object] | None = None,
        handover: Handover | None = None,
        engine: Sequence[HandedFile] = (),
        *,
        is_out_of_service: bool = False,
    ) -> RunRequest:
        """Apply one node's plan, verify its driver if there is an expectation, and gather its facts.

        With a ``handover`` a driver is staged from these files, without a network where they are all that is needed;
        from those of ``engine`` the engine is installed.
        A node that ``is_out_of_service`` is put back into service by a later step of the same rollout.
        """
        expected = {} if expectation is None else {"grapnel_expectation": expectation}
        kept = {"grapnel_keep_s": KEEP_S} if is_out_of_service else {}
        handed = {**_handover(handover), **_engine_handover(engine)}
        return self._of_plan("apply.yml", plan, {**plan_variables(plan), **expected, **kept, **handed})

    def stage(self, plan: NodePlan, handover: Handover | None = None, engine: Sequence[HandedFile] = ()) -> RunRequest:
        """Stage driver and engine of one node's plan, from what is handed over, and gather the node's facts."""
        handed = {**_handover(handover), **_engine_handover(engine)}
        return self._of_plan("stage.yml", plan, {**plan_variables(plan), **handed})

    def _of_plan(self, playbook: str, plan: NodePlan, variables: Mapping[str, object]) -> RunRequest:
        return RunRequest(
            playbook=self.collection / playbook,
            inventory=self.inventory,
            nodes=(plan.node,),
            extra_vars={**variables, **self._network((plan.node,)), **self._asked((plan.node,))},
            forks=1,
            check=self.check,
            timeout_s=APPLY_TIMEOUT_S,
            environment=self.environment,
            keep=frozenset({RESULT, DAEMON_RESULT}),
        )

    def _network(self, nodes: tuple[str, ...]) -> dict[str, object]:
        named = [] if self.offline else [node for node in nodes if node in self.offline_nodes]
        if self.offline or len(named) == len(nodes) > 0:
            return {"grapnel_is_offline": True}
        return {"grapnel_offline_nodes": named} if named else {}

    def _asked(self, nodes: tuple[str, ...]) -> dict[str, object]:
        """Return which nodes are asked for more than the planner always needs."""
        divided = [node for node in nodes if node in self.mig_nodes]
        kubelets = {node: self.kubelets[node] for node in nodes if node in self.kubelets}
        return {
            **({"grapnel_mig_nodes": divided} if divided else {}),
            **({"grapnel_kubelets": kubelets} if kubelets else {}),
        }

    def collect(self, node: str, collection: Mapping[str, object]) -> RunRequest:
        """Have a node collect a driver for others; ``collection`` is documented in the playbook."""
        return RunRequest(
            playbook=self.collection / "collect.yml",
            inventory=self.inventory,
            nodes=(node,),
            extra_vars={"grapnel_collection": collection},
            forks=1,
            timeout_s=COLLECT_TIMEOUT_S,
            environment=self.environment,
            keep=frozenset({RESULT}),
        )

    def built_module(self, node: str, build: ModuleBuild, destination: Path, limit_bytes: int) -> RunRequest:
        """Get the modules that a node has built, as a file of at most ``limit_bytes``; changes nothing on the node."""
        wanted = {
            "kernel": build.kernel,
            "dkms": build.dkms,
            "version": build.version,
            "flavour": build.flavour,
            "destination": str(destination),
            "limit_bytes": limit_bytes,
        }
        return RunRequest(
            playbook=self.collection / "built_module.yml",
            inventory=self.inventory,
            nodes=(node,),
            extra_vars={"grapnel_built": wanted},
            forks=1,
            timeout_s=BUILT_MODULE_TIMEOUT_S,
            environment=self.environment,
        )

    def driver(self, verb: str, node: str, undone: str = "") -> RunRequest:
        """Tell a node's driver program to go ``back``, or to ``remove`` the driver; the node is out of service.

        ``undone`` is the change that ``back`` is to lead away from: a node that has done so already is left as it is.
        Who carries this out on the node may be ended just after that, and its successor begins again.
        """
        return RunRequest(
            playbook=self.collection / "driver.yml",
            inventory=self.inventory,
            nodes=(node,),
            extra_vars={
                "grapnel_driver_verb": verb,
                "grapnel_driver_undone": undone,
                "grapnel_is_out_of_service": True,
                **({"grapnel_keep_s": KEEP_S} if verb == "back" else {}),  # without a driver no step follows
            },
            forks=1,
            timeout_s=DRIVER_TIMEOUT_S,
            environment=self.environment,
        )

    def wait_for_driver(self, node: str) -> RunRequest:
        """Wait until a node's driver program is not at work; changes nothing."""
        return RunRequest(
            playbook=self.collection / "driver_wait.yml",
            inventory=self.inventory,
            nodes=(node,),
            forks=1,
            timeout_s=DRIVER_TIMEOUT_S,
            environment=self.environment,
        )

    def remove(self, parts: Iterable[str], nodes: Iterable[str]) -> RunRequest:
        """Take parts of grapnel away from nodes that are out of service; the driver is taken away by itself before."""
        names = tuple(nodes)
        return RunRequest(
            playbook=self.collection / "remove.yml",
            inventory=self.inventory,
            nodes=names,
            extra_vars={"grapnel_remove_parts": sorted(str(part) for part in parts)},
            forks=max(1, min(self.forks, len(names))),
            timeout_s=REMOVE_TIMEOUT_S,
            environment=self.environment,
        )

    def foresee_removal(self, parts: Iterable[str], nodes: Iterable[str], *, driver: bool) -> RunRequest:
        """Say what a removal of these parts, and of the ``driver``, would do on nodes; changes nothing."""
        request, names = self.remove(parts, nodes), {REMOVAL_RESULT, FORESEEN_RESULT}
        asked = {**request.extra_vars, **({"grapnel_foresees_driver": True} if driver else {})}
        return replace(request, extra_vars=asked, check=True, keep=frozenset(names))

    def foresee_back(self, nodes: Iterable[str]) -> RunRequest:
        """Say what the way back to their former drivers would do on nodes; changes nothing."""
        names = tuple(nodes)
        return RunRequest(
            playbook=self.collection / "driver.yml",
            inventory=self.inventory,
            nodes=names,
            extra_vars={"grapnel_driver_verb": "back", "grapnel_is_out_of_service": True},
            forks=max(1, min(self.forks, len(names))),
            check=True,
            timeout_s=REMOVE_TIMEOUT_S,
            environment=self.environment,
            keep=frozenset({FORESEEN_RESULT}),
        )

    def reboot(self, node: str, boot: str) -> RunRequest:
        """Reboot a node that is out of service, unless it has left that boot already, and wait until it is back."""
        if not is_boot(boot):  # a node tells its own, and Ansible would render a template
            raise ValueError(f"{boot!r} is not the name of a boot")
        return RunRequest(
            playbook=self.collection / "reboot.yml",
            inventory=self.inventory,
            nodes=(node,),
            extra_vars={"grapnel_boot_id": boot, "grapnel_keep_s": KEEP_S},
            forks=1,
            timeout_s=REBOOT_TIMEOUT_S,
            environment=self.environment,
        )

    def daemon(self, verb: str, node: str, variables: Mapping[str, object]) -> RunRequest:
        """Ask a node's daemon for its part of a change: ``release``, ``verify``, ``resume`` or ``offered``."""
        return RunRequest(
            playbook=self.collection / f"{verb}.yml",
            inventory=self.inventory,
            nodes=(node,),
            extra_vars={**variables, **({"grapnel_keep_s": KEEP_S} if verb == "release" else {})},
            forks=1,
            timeout_s=DAEMON_TIMEOUT_S,
            environment=self.environment,
            keep=frozenset({DAEMON_RESULT}),
        )


def is_boot(text: str) -> bool:
    """Tell whether a text is the name of a boot, as Linux gives one."""
    return _BOOT.fullmatch(text) is not None


def _handover(handover: Handover | None) -> dict[str, object]:
    if handover is None:
        return {}
    return {"grapnel_handover": handed_files(handover.files), "grapnel_offline": handover.is_complete}


def _engine_handover(files: Sequence[HandedFile]) -> dict[str, object]:
    """Return the variable of an engine's files; they are one handover by what they are."""
    if not files:
        return {}
    digest = hashlib.sha256("\n".join(f"{one.place} {one.sha256}" for one in files).encode()).hexdigest()
    return {"grapnel_engine_handover": {"id": digest[:_ID_DIGITS], "files": handed_files(files)}}


def handed_files(files: Iterable[HandedFile]) -> list[dict[str, object]]:
    """Return the files of a handover as the collection's module of that name takes them."""
    return [_handed(one) for one in files]


def _handed(file: HandedFile) -> dict[str, object]:
    described: dict[str, object] = {"source": str(file.source), "place": file.place, "sha256": file.sha256}
    if file.package is not None:
        name, version = file.package
        described["package"] = {"name": name, "version": version}
    return described


def plan_variables(plan: NodePlan) -> dict[str, object]:
    """Return Ansible's variables for a plan: the plan itself, and the variables of the roles it needs."""
    variables: dict[str, object] = {"grapnel_plan": msgspec.to_builtins(plan)}
    for role in Role:
        variables.update(role_variables(plan, role))
    return variables
