#!/usr/bin/python3
"""Gathers everything the planner may know about a node, in one round trip (``docs/contracts/node-facts``)."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: facts
short_description: Gather what grapnel's planner needs to know about a node
version_added: 0.1.0
description:
  - Returns operating system, GPUs, kernel module, packages, available driver versions, configuration files, services,
    container engines and processes that hold a GPU, in one round trip.
  - Changes nothing, in check mode or not, with one exception. The lists of apt are refreshed when they are missing or
    older than O(max_age_s). A refresh that fails is reported in the facts and is no error.
author:
  - The grapnel authors (@grapnel)
options:
  max_age_s:
    description: Age in seconds from which the lists of apt are refreshed.
    type: int
    default: 3600
  refresh_timeout_s:
    description: Longest time in seconds that a refresh may take, the wait for apt's lock included.
    type: int
    default: 120
  lock_timeout_s:
    description: Longest time in seconds to wait for another process that uses dpkg. The facts name it.
    type: int
    default: 60
  files:
    description: Files to report beside those that the planner always needs.
    type: list
    elements: path
    default: []
attributes:
  check_mode:
    description: Facts are gathered in check mode too.
    support: full
  diff_mode:
    description: There is nothing to show.
    support: none
"""

EXAMPLES = r"""
- name: Gather the facts of a node
  grapnel.node.facts:
  register: node
"""

RETURN = r"""
facts:
  description: The facts, in the form of docs/contracts/node-facts.
  returned: always
  type: dict
"""

from dataclasses import dataclass
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.grapnel.node.plugins.module_utils.apt import (
    Freshness,
    read_available,
    refresh_lists,
)
from ansible_collections.grapnel.node.plugins.module_utils.device_holders import read_device_holders
from ansible_collections.grapnel.node.plugins.module_utils.dpkg import read_installed, wait_for_lock
from ansible_collections.grapnel.node.plugins.module_utils.engines import read_engines
from ansible_collections.grapnel.node.plugins.module_utils.gpus import read_gpus, read_module
from ansible_collections.grapnel.node.plugins.module_utils.host import Clock, Host, HostError
from ansible_collections.grapnel.node.plugins.module_utils.identity import read_identity
from ansible_collections.grapnel.node.plugins.module_utils.installation import read_installations, read_inventory
from ansible_collections.grapnel.node.plugins.module_utils.units import read_units
from ansible_collections.grapnel.node.plugins.module_utils.watched_files import read_files

SCHEMA = "grapnel.dev/facts/v1alpha1"


@dataclass(frozen=True)
class Waits:
    """How long gathering may wait for others."""

    lists: Freshness
    lock_timeout_s: float


def gather(host: Host, waits: Waits, clock: Clock, files: list[str]) -> dict[str, Any]:
    """Return all facts of a node."""
    lists = refresh_lists(host, waits.lists, clock)
    locked_by = wait_for_lock(host, waits.lock_timeout_s, clock)
    packages, is_halfway = read_installed(host)
    return {
        "schema": SCHEMA,
        "node": read_identity(host),
        "gpus": read_gpus(host),
        "module": read_module(host),
        "packages": packages,
        "available": read_available(host),
        "package_manager": {
            "name": "apt",
            "interrupted": is_halfway and locked_by is None,  # at work is not interrupted
            "locked_by": locked_by,
            **lists,
        },
        "files": read_files(host, files),
        "services": read_units(host),
        "engines": read_engines(host),
        "installed": read_installations(host),
        "inventory": read_inventory(host),
        "device_holders": read_device_holders(host),
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "max_age_s": {"type": "int", "default": 3600},
            "refresh_timeout_s": {"type": "int", "default": 120},
            "lock_timeout_s": {"type": "int", "default": 60},
            "files": {"type": "list", "elements": "path", "default": []},
        },
        supports_check_mode=True,
    )
    freshness = Freshness(module.params["max_age_s"], module.params["refresh_timeout_s"])
    waits = Waits(freshness, module.params["lock_timeout_s"])
    try:
        facts = gather(Host(), waits, Clock(), module.params["files"])
    except HostError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, facts=facts)


if __name__ == "__main__":
    main()
