"""`grapnel-node gpu-settings`: what GPUs are set to, what the declared settings would change, and the change.

They are as declared after each boot and each change of the driver, which forgets them: the daemon's unit applies them
before the daemon starts, and `resume` does.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from plugin.base.errors import EXIT_FAILURE, EXIT_NOT_AS_WANTED, EXIT_OK, NodeDaemonError
from plugin.changes.driver_change.release.store import BOOT_ID, sole_change
from plugin.changes.gpu_settings.carry_out import SettingsResult, carry_out
from plugin.changes.gpu_settings.document import values_to_json
from plugin.changes.gpu_settings.model import shown
from plugin.changes.gpu_settings.plan import missing_indices, plan_settings
from plugin.changes.gpu_settings.store import DECLARED, RECORD_FILE, Record, read_record, read_settings, write_record
from plugin.cli.session import DriverSession, config_of
from plugin.driver.gpu_settings import Setting
from plugin.driver.nvml.changes.gpu_settings import read_settable, write_setting

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path
    from types import SimpleNamespace

    from plugin.changes.gpu_settings.model import GpuPlan
    from plugin.driver.gpu_settings import SettableGpu, Value
    from plugin.settings.node_config import NodeConfig


class Session(DriverSession):
    """Reads and writes settings."""

    def read(self) -> tuple[SettableGpu, ...]:
        """Return the GPUs, with the reason of one that does not answer."""
        return self.ask(read_settable)

    def write(self, uuid: str, setting: Setting, value: Value | None) -> None:
        """Set one setting; raises GpuSettingsError."""
        self.ask(lambda: write_setting(uuid, setting, value))


# Show and plan


def run(arguments: argparse.Namespace | SimpleNamespace) -> int:
    """Run the verb and return the exit code."""
    config, limits = arguments.config, {"timeout_s": arguments.timeout, "as_json": arguments.json}
    if arguments.act == "show":
        return show_settings(config, **limits)
    file = arguments.file or DECLARED
    if arguments.act == "plan":
        return plan_gpu_settings(config, file, **limits)
    return apply_settings(config, file, **limits)


def show_settings(config_path: Path | None, *, timeout_s: float, as_json: bool) -> int:
    """Print what the GPUs are set to, and within which limits that can be changed."""
    config = config_of(config_path)
    record = _of_this_boot(config)
    with Session(config, timeout_s) as session:
        gpus = session.read()
    if as_json:
        print(json.dumps({"gpus": [_gpu_to_json(gpu, record) for gpu in gpus]}, indent=2))
        return EXIT_OK
    for gpu in gpus:
        print(f"gpu {gpu.index}  {gpu.uuid}  {gpu.model}".rstrip())
        for line in [f"note: it does not answer: {gpu.problem}"] if gpu.problem else _lines(gpu, record):
            print(f"  {line}")
    return EXIT_OK


def _lines(gpu: SettableGpu, record: Record) -> list[str]:
    known = {**(record.gpus[gpu.uuid].values if gpu.uuid in record.gpus else {}), **gpu.values}
    lines = []
    for setting in Setting:
        limits = gpu.limits.get(setting)
        words = (
            shown(setting, known.get(setting)) if setting in {*known, Setting.GRAPHICS, Setting.MEMORY} else "not told"
        )
        if limits and setting is Setting.POWER:
            words += f" (can be {shown(setting, limits[0])} to {shown(setting, limits[1])})"
        elif limits:
            words += f" by grapnel (at most {limits[1]} MHz)"
        lines.append(f"{setting.value}: {words}")
    return lines


def _gpu_to_json(gpu: SettableGpu, record: Record) -> dict[str, object]:
    locked = record.gpus[gpu.uuid].values if gpu.uuid in record.gpus else {}
    clocks = {setting: locked[setting] for setting in (Setting.GRAPHICS, Setting.MEMORY) if setting in locked}
    power = gpu.limits.get(Setting.POWER)
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "model": gpu.model,
        "pciDeviceId": f"0x{gpu.pci_device_id:08X}",
        "pciSubsystemId": f"0x{gpu.pci_subsystem_id:08X}",
        "migEnabled": gpu.is_cut,
        "settings": values_to_json({**gpu.values, **clocks}),
        "powerLimitsMilliwatts": None if power is None else {"min": power[0], "max": power[1]},
        "highestClockMHz": {setting.value: gpu.limits[setting][1] for setting in _clocks_of(gpu)},
        "problem": gpu.problem,
    }


def _clocks_of(gpu: SettableGpu) -> list[Setting]:
    return [setting for setting in (Setting.GRAPHICS, Setting.MEMORY) if setting in gpu.limits]


def plan_gpu_settings(config_path: Path | None, file: Path, *, timeout_s: float, as_json: bool) -> int:
    """Print what would be changed; 0 where that is nothing, 3 where it is something, 1 where a GPU cannot have it."""
    config, entries = config_of(config_path), read_settings(file)
    with Session(config, timeout_s) as session:
        gpus = session.read()
    plans = plan_settings(entries, gpus, read_record(config.state_folder), _boot_id())
    missing = missing_indices(entries, gpus)
    if as_json:
        print(json.dumps({"gpus": [_plan_to_json(plan) for plan in plans], "missing": missing}, indent=2))
    else:
        _print_plans(plans)
        _print_missing(missing)
    if missing or any(plan.refusals or plan.problem for plan in plans):
        return EXIT_FAILURE
    return EXIT_NOT_AS_WANTED if any(plan.news for plan in plans) else EXIT_OK


def _plan_to_json(plan: GpuPlan) -> dict[str, object]:
    return {
        "index": plan.index,
        "uuid": plan.uuid,
        "wanted": values_to_json(plan.wanted),
        "changes": [str(change) for change in plan.news],
        "refusals": {setting.value: why for setting, why in plan.refusals.items()},
        "problem": plan.problem,
    }


def _print_plans(plans: Sequence[GpuPlan]) -> None:
    for plan in plans:
        print(f"gpu {plan.index}  {plan.uuid}  {_summary(plan)}")
        for change in plan.news:
            print(f"  {change}")
        for setting, why in plan.refusals.items():
            print(f"  {setting.value} cannot be had: {why}")


def _summary(plan: GpuPlan) -> str:
    if plan.problem:
        return f"does not answer: {plan.problem}"
    if plan.news:
        return "to be changed"
    return "as declared" if plan.wanted else "nothing is declared of it"


def _print_missing(missing: Sequence[int]) -> None:
    for index in missing:
        print(f"note: an entry is about gpu {index}, and there is none")


# Apply


def apply_settings(config_path: Path | None, file: Path, *, timeout_s: float, as_json: bool) -> int:
    """Set what differs; returns 0, 3 where a GPU cannot have what is declared, 1 where a change failed.

    What is declared no more is given back, also where the file is gone. The driver is not asked where neither is.
    """
    config = config_of(config_path)
    with sole_change(config.state_folder, timeout_s):
        outcome, missing = apply_now(config, file, timeout_s)
    return _report(outcome, missing, as_json=as_json)


def apply_now(config: NodeConfig, file: Path, timeout_s: float) -> tuple[SettingsResult, tuple[int, ...]]:
    """Do the same, by whoever has the lock of the state folder; returns the indices that no GPU has as well."""
    entries = read_settings(file)
    record = read_record(config.state_folder)
    if not entries and not record.gpus:
        return SettingsResult(), ()
    with Session(config, timeout_s) as session:
        outcome = carry_out(entries, session, record, _boot_id(), lambda new: write_record(config.state_folder, new))
        missing = missing_indices(entries, session.read()) if any(entry.devices for entry in entries) else ()
    if not entries and not outcome.failed:
        (config.state_folder / RECORD_FILE).unlink(missing_ok=True)
    return outcome, missing


def notes_of_settings(config: NodeConfig, timeout_s: float, file: Path = DECLARED) -> list[str]:
    """Apply the settings while something else is done for the node, which they do not keep from it."""
    try:
        outcome, missing = apply_now(config, file, timeout_s)
    except NodeDaemonError as error:
        return [f"the gpus' settings are not as declared: {error.message}"]
    return [f"the gpus' settings are not as declared: {line}" for line in _complaints(outcome, missing)]


def _complaints(outcome: SettingsResult, missing: Sequence[int]) -> list[str]:
    return [
        *(f"{change.uuid}: {why}" for change, why in outcome.failed),
        *(f"{plan.uuid}: {setting.value}: {why}" for plan in outcome.plans for setting, why in plan.refusals.items()),
        *(f"{plan.uuid} does not answer: {plan.problem}" for plan in outcome.plans if plan.problem),
        *(f"an entry is about gpu {index}, and there is none" for index in missing),
    ]


def _report(outcome: SettingsResult, missing: Sequence[int], *, as_json: bool) -> int:
    complaints = _complaints(outcome, missing)
    code = EXIT_FAILURE if outcome.failed else EXIT_NOT_AS_WANTED if complaints else EXIT_OK
    news = [change for change in outcome.done if not change.is_again]
    if as_json:
        changed = [{"uuid": change.uuid, "step": str(change)} for change in news]
        print(json.dumps({"changed": changed, "problems": complaints}, indent=2))
        return code
    for change in news:
        print(f"{change.uuid}: {change}")
    for line in complaints:
        print(f"not as declared: {line}")
    if not news and not complaints:
        print("the gpus are set as declared already")
    return code


def _of_this_boot(config: NodeConfig) -> Record:
    record = read_record(config.state_folder)
    return record if record.boot_id == _boot_id() else Record()


def _boot_id() -> str:
    return BOOT_ID.read_text().strip()
