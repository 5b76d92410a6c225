"""`grapnel-node labels`: what this node is labelled, from the driver itself; the daemon need not run."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

from plugin.base.errors import DriverNotReady
from plugin.changes.driver_change.release.store import read_release
from plugin.cli.grammar.options import invocation_of
from plugin.cli.show import take_inventory
from plugin.publication.labels.file import render_labels
from plugin.publication.labels.host import read_host
from plugin.publication.labels.node_labels import label_notes, make_labels
from plugin.settings.load import load
from plugin.sharing.mps.plan import refusals_of_node

if TYPE_CHECKING:
    import argparse
    from types import SimpleNamespace

    from plugin.settings.load import Invocation


def run(arguments: argparse.Namespace | SimpleNamespace) -> int:
    """Run the verb and return the exit code."""
    return show_labels(invocation_of(arguments), as_json=arguments.json)


def show_labels(invocation: Invocation, *, as_json: bool) -> int:
    """Print every label and its value; on a released node the driver is not asked."""
    config = load(invocation).config
    release = read_release(config.state_folder)
    if release is not None:
        hint = "the labels stay as they were: kubectl get node NODE --show-labels"
        raise DriverNotReady(f"{release.describe()}: the driver is not asked", hint)
    from plugin.driver.nvml.loading.library import NvmlSource

    inventory = take_inventory(NvmlSource(config.settings.driver_root), config.host_tree)
    settings, refused = config.settings.labels, refusals_of_node(config, inventory)
    addresses = [device.gpu.pci_address for device in inventory.devices]
    labels = make_labels(
        inventory,
        read_host(config.sys_root, addresses, settings.machine_file, proc_root=config.proc_root),
        config.offer_rules,
        refused=refused,
        timestamp=int(time.time()) if settings.has_timestamp else None,
    )
    notes = list(label_notes(inventory, config.offer_rules, refused=refused))
    if as_json:
        print(json.dumps({"labels": labels, "notes": notes}, indent=2))
        return 0
    print(render_labels(labels), end="")
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    return 0
