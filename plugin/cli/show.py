"""`grapnel-node config`, and how a tool looks at the driver: nothing is changed."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from plugin.admin.client import ask
from plugin.base.errors import AdminError, ConfigError, DriverNotReady
from plugin.changes.driver_change.release.store import read_release
from plugin.cli.grammar.options import invocation_of
from plugin.cli.other_devices import explain_classes
from plugin.devices.inventory import Inventory, next_inventory
from plugin.devices.observer import snapshot_of_gpus
from plugin.kubelet.list_size import plan_that_fits
from plugin.settings.explain import explain, notes_on_patterns, show_cell
from plugin.settings.load import load
from plugin.settings.nvidia.table import HINT as SETTINGS_HINT
from plugin.settings.store import read_heard_label

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence
    from types import SimpleNamespace

    from plugin.devices.inventory import HostTree
    from plugin.driver.snapshot import GpuSource
    from plugin.settings.load import Invocation
    from plugin.settings.node_config import NodeConfig

_STATUS_S = 2.0


def run(arguments: argparse.Namespace | SimpleNamespace) -> int:
    """Run the verb and return the exit code."""
    if arguments.explain:
        return explain_config(invocation_of(arguments), as_json=arguments.json)
    return show_config(invocation_of(arguments))


def take_inventory(source: GpuSource, tree: HostTree) -> Inventory:
    """Look once, and let go of the driver."""
    source.open()
    try:
        return next_inventory(Inventory(), snapshot_of_gpus(source), tree)
    finally:
        source.close()


def format_table(rows: Sequence[tuple[str, ...]]) -> str:
    """Return columns as wide as they need to be."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows)
    return "\n".join(lines)


def show_config(invocation: Invocation) -> int:
    """Print the configuration in the form of node.json."""
    print(json.dumps(load(invocation).config.to_json(), indent=2))
    return 0


def _models(config: NodeConfig) -> tuple[str, ...] | None:
    """Return the products that the daemon has seen, None where no daemon says."""
    try:
        status = ask(config.admin_socket, {"verb": "status"}, _STATUS_S) if config.settings.patterns else None
        return None if status is None else tuple(dict.fromkeys(str(gpu["model"]) for gpu in status["gpus"]))
    except (AdminError, LookupError, TypeError):
        return None


def _about_the_label(config: NodeConfig) -> Iterator[str]:
    """Say what the daemon could not do with the label of its Node, and where that is not known."""
    by_label = config.settings.by_label
    if by_label is None or not config.kubernetes_api:
        return
    heard = read_heard_label(config.state_folder)
    if heard is None:
        yield f"the value of label {by_label.label} is not known: the daemon has not heard it, or this is not root"
    elif heard.problem:
        yield f"label {by_label.label}: {heard.problem}"


def explain_config(invocation: Invocation, *, as_json: bool) -> int:
    """Print every setting's value, where it came from, and why it changes nothing where that is so."""
    loaded = load(invocation)
    lines = explain(loaded.resolved, loaded.settings, has_file=loaded.has_file)
    of_classes, problems = explain_classes(loaded.config)
    lines = (*lines, *of_classes)
    patterns = notes_on_patterns(loaded.config.settings.patterns, _models(loaded.config))
    too_long, about_lists = _lists(loaded.config)
    notes = (*loaded.resolved.notes, *_about_the_label(loaded.config), *patterns, *problems, *about_lists)
    if as_json:
        settings = [
            {"name": line.name, "value": line.value, "origin": line.origin, "noEffect": line.effect or None}
            for line in lines
        ]
        print(json.dumps({"settings": settings, "notes": notes}, indent=2))
        return _refuse(too_long)
    rows = [
        (line.name, show_cell(line.value), line.origin, f"no: {line.effect}" if line.effect else "yes")
        for line in lines
    ]
    print(format_table([("SETTING", "VALUE", "FROM", "COUNTS"), *rows]))
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    return _refuse(too_long)


def _refuse(too_long: Sequence[str]) -> int:
    """Return 0 where every list can be taken; raises ConfigError else."""
    if too_long:
        raise ConfigError("; ".join(too_long), SETTINGS_HINT)
    return 0


def _lists(config: NodeConfig) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return resources whose lists no kubelet takes, and what is to be said of it; whole GPUs are never that many."""
    if not config.settings.shares or read_release(config.state_folder) is not None:
        return (), ()
    from plugin.driver.nvml.loading.library import NvmlSource

    try:
        inventory = take_inventory(NvmlSource(config.settings.driver_root), config.host_tree)
    except DriverNotReady as error:
        return (), (f"how long the lists for the kubelet are is not known: {error.message}",)
    plan = plan_that_fits(inventory, config.offer_rules)
    return tuple(message for topic, message in plan.findings if topic in plan.refused), ()
