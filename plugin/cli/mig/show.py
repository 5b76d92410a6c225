"""`grapnel-node mig show` and `plan`: how the GPUs are cut, and what the declared layout would change. Nothing is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from plugin.base.errors import EXIT_FAILURE, EXIT_NOT_AS_WANTED, EXIT_OK, MigError
from plugin.changes.mig_layout.holders import names_of, with_users
from plugin.changes.mig_layout.plan import plan_layout
from plugin.changes.mig_layout.store import read_layout
from plugin.cli.holders import named_now
from plugin.cli.session import DriverSession, config_of
from plugin.dra.partitions import set_apart
from plugin.dra.store import read_partitions
from plugin.driver.capabilities import read_mig_minors
from plugin.driver.nvml.changes import mig_instances

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plugin.changes.mig_layout.carry_out import Cutter
    from plugin.changes.mig_layout.holders import Users
    from plugin.changes.mig_layout.model import GpuLayout, GpuPlan, Instance, Layout
    from plugin.driver.mig_instances import CuttableGpu
    from plugin.settings.node_config import NodeConfig

DEFAULT_LAYOUT = Path("/etc/grapnel/mig-layout.json")
_MODES = {None: "not supported", True: "on", False: "off"}


class Session(DriverSession):
    """Reads how GPUs are cut, and cuts them."""

    cutter: Cutter = mig_instances

    def __init__(self, config: NodeConfig, timeout_s: float) -> None:
        super().__init__(config, timeout_s)
        self._folder = config.state_folder

    def read(self) -> tuple[CuttableGpu, ...]:
        """Return the GPUs, with the reason of one that does not answer; what is made for claims is no layout's."""
        return set_apart(self.ask(self.cutter.read_gpus), read_partitions(self._folder))


def declared(path: Path) -> Layout:
    """Return the declared layout; raises MigError, also where none is declared."""
    layout = read_layout(path)
    if layout is None:
        raise MigError(f"{path} is not there: no layout is declared", "declare one, or name a file with --layout")
    return layout


def show_mig(config_path: Path | None, *, timeout_s: float, as_json: bool) -> int:
    """Print how every GPU is cut, and where more could lie."""
    config = config_of(config_path)
    with Session(config, timeout_s) as session:
        found = session.read()
    gpus = with_users(found, _users(config))
    if as_json:
        print(
            json.dumps(
                {"gpus": [_gpu_to_json(gpu) for gpu in gpus if not gpu.problem], "problems": _silent(gpus)}, indent=2
            )
        )
        return EXIT_OK
    for gpu in gpus:
        if gpu.problem:
            continue
        waits = "" if gpu.is_pending is gpu.is_cut else f", {_MODES[gpu.is_pending]} after a reset"
        print(f"gpu {gpu.index}  {gpu.uuid}  {gpu.model}  mig {_MODES[gpu.is_cut]}{waits}")
        for instance in gpu.instances:
            used = f"  used by {', '.join(instance.holders)}" if instance.holders else ""
            print(f"  {instance}{used}")
        for instance in gpu.for_claims:
            print(f"  {instance}  made for a claim")
        if gpu.profiles:
            print(f"  profiles: {', '.join(profile.name for profile in gpu.profiles)}")
    for problem in _silent(gpus):
        print(f"note: {problem}")
    return EXIT_OK


def _users(config: NodeConfig) -> Users:
    """Return the names of processes that NVML knows by number."""
    return names_of(named_now(config.sys_root, config.proc_root), read_mig_minors(config.proc_root))


def _silent(gpus: Sequence[GpuLayout]) -> list[str]:
    return [f"gpu {gpu.index} does not answer: {gpu.problem}" for gpu in gpus if gpu.problem]


def _gpu_to_json(gpu: GpuLayout) -> dict[str, object]:
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "model": gpu.model,
        "pciDeviceId": f"0x{gpu.pci_device_id:08X}",
        "pciSubsystemId": f"0x{gpu.pci_subsystem_id:08X}",
        "migEnabled": gpu.is_cut,
        "migPending": gpu.is_pending,
        "instances": [{**instance_to_json(each), "holders": list(each.holders)} for each in gpu.instances],
        "profiles": [
            {"name": each.name, "most": each.most, "places": [list(place) for place in each.places]}
            for each in gpu.profiles
        ],
    }


def instance_to_json(instance: Instance) -> dict[str, object]:
    """Return what is of interest of an instance."""
    return {
        "profile": instance.profile,
        "start": instance.start,
        "size": instance.size,
        "compute": list(instance.compute),
    }


def plan_mig(config_path: Path | None, layout_path: Path, *, timeout_s: float, as_json: bool) -> int:
    """Print what would be changed; 0 where that is nothing, 3 where it is something, 1 where it cannot be.

    Who has what is asked of NVML alone here: `apply` asks kubelet and processes as well.
    """
    config, layout = config_of(config_path), declared(layout_path)
    with Session(config, timeout_s) as session:
        found = session.read()
    plans = plan_layout(layout, with_users(found, _users(config)))
    if as_json:
        print(json.dumps({"gpus": [plan_to_json(plan) for plan in plans]}, indent=2))
    else:
        print_plans(plans)
    if any(plan.is_wrong for plan in plans):
        return EXIT_FAILURE
    return EXIT_NOT_AS_WANTED if any(plan.steps or plan.refusal for plan in plans) else EXIT_OK


def plan_to_json(plan: GpuPlan) -> dict[str, object]:
    """Return a plan in the form of `--json`."""
    return {
        "index": plan.index,
        "uuid": plan.uuid,
        "declared": plan.is_declared,
        "steps": [str(step) for step in plan.steps],
        "refusal": plan.refusal,
        "hint": plan.hint,
    }


def print_plans(plans: Sequence[GpuPlan]) -> None:
    """Print what would happen to each GPU."""
    for plan in plans:
        print(f"gpu {plan.index}  {plan.uuid}  {_summary(plan)}")
        for step in plan.steps:
            print(f"  {step}")
        if plan.more:
            print(f"  {plan.more}")
        if plan.hint:
            print(f"  hint: {plan.hint}")


def _summary(plan: GpuPlan) -> str:
    if plan.refusal:
        return f"not changed: {plan.refusal}"
    if not plan.is_declared:
        return "no entry of the layout is about it: it stays as it is"
    return "to be changed" if plan.steps else "as declared"
