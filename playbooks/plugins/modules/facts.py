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
  - Changes nothing, with two exceptions. The lists of the package manager are refreshed when they are missing or older
    than O(max_age_s). A refresh that fails is reported in the facts and is no error. And a node that was not as
    declared when it was last compared is compared once more, but not in check mode.
author:
  - The grapnel authors (@grapnel)
options:
  max_age_s:
    description: Age in seconds from which the package manager's lists are refreshed.
    type: int
    default: 3600
  refresh:
    description: Whether the lists may be refreshed. Without it no package source is contacted.
    type: bool
    default: true
  refresh_timeout_s:
    description: Longest time in seconds that a refresh may take, the wait for the package manager's lock included.
    type: int
    default: 120
  lock_timeout_s:
    description: Longest time in seconds to wait for another process that uses the package manager. The facts name it.
    type: int
    default: 60
  mig:
    description: Whether the node daemon's program is asked how the GPUs are divided by MIG.
    type: bool
    default: false
  kubelet:
    description: The kubelet's service, if its settings are asked for. Those that grapnel has changed are told anyway.
    type: str
    default: ""
  traces:
    description: Whether the node's records are read for who changed it, logs of packages, times of files and units.
    type: bool
    default: false
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
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.grapnel.node.plugins.module_utils.daemon.gpu_settings import read_gpu_settings
from ansible_collections.grapnel.node.plugins.module_utils.daemon.mig import read_mig
from ansible_collections.grapnel.node.plugins.module_utils.daemon.program import compare_again
from ansible_collections.grapnel.node.plugins.module_utils.driver.initramfs import read_initramfs
from ansible_collections.grapnel.node.plugins.module_utils.engines.found import read_engine_holds, read_engines
from ansible_collections.grapnel.node.plugins.module_utils.engines.of_kubernetes import read_kubelet_engine
from ansible_collections.grapnel.node.plugins.module_utils.engines.staged import read_engine_staged
from ansible_collections.grapnel.node.plugins.module_utils.files.of_products import read_product_files
from ansible_collections.grapnel.node.plugins.module_utils.files.watched import read_files
from ansible_collections.grapnel.node.plugins.module_utils.kubelet.place import (
    read_cgroup_v1,
    read_kubelet,
    settings_files,
)
from ansible_collections.grapnel.node.plugins.module_utils.machine.gpus import read_hardware, read_module
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Host, HostError
from ansible_collections.grapnel.node.plugins.module_utils.machine.identity import read_identity
from ansible_collections.grapnel.node.plugins.module_utils.machine.installation import (
    read_installations,
    read_inventory,
)
from ansible_collections.grapnel.node.plugins.module_utils.machine.kernel_settings import read_kernel
from ansible_collections.grapnel.node.plugins.module_utils.machine.selinux import read_apparmor, read_selinux
from ansible_collections.grapnel.node.plugins.module_utils.machine.units import read_units
from ansible_collections.grapnel.node.plugins.module_utils.packages.facts import find_facts
from ansible_collections.grapnel.node.plugins.module_utils.packages.lists import Freshness
from ansible_collections.grapnel.node.plugins.module_utils.packages.release import read_release_upgrade
from ansible_collections.grapnel.node.plugins.module_utils.preflight.disk import read_disk_free
from ansible_collections.grapnel.node.plugins.module_utils.preflight.dkms import read_build_tools, read_dkms
from ansible_collections.grapnel.node.plugins.module_utils.preflight.foreign_driver import read_foreign_driver
from ansible_collections.grapnel.node.plugins.module_utils.preflight.kernels import read_kernels
from ansible_collections.grapnel.node.plugins.module_utils.preflight.nouveau import read_nouveau
from ansible_collections.grapnel.node.plugins.module_utils.preflight.pending_reboot import read_pending_reboot
from ansible_collections.grapnel.node.plugins.module_utils.preflight.secure_boot import read_secure_boot
from ansible_collections.grapnel.node.plugins.module_utils.preflight.staged import read_driver_state
from ansible_collections.grapnel.node.plugins.module_utils.preflight.unattended import read_unattended
from ansible_collections.grapnel.node.plugins.module_utils.traces.read import read_traces
from ansible_collections.grapnel.node.plugins.module_utils.use.device_holders import read_device_holders

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.packages.facts import PackageFacts

SCHEMA = "grapnel.dev/facts/v1alpha1"


@dataclass(frozen=True)
class Waits:
    """How long gathering may wait for others; without ``lists`` the package manager's are left as they are."""

    lists: Freshness | None
    lock_timeout_s: float


@dataclass(frozen=True)
class More:
    """What is asked beside what the planner always needs.

    Files; how GPUs are divided, which asks the driver; the kubelet's service; and who changed the node, which reads
    logs.
    """

    files: list[str]
    mig: bool = False
    kubelet: str = ""
    traces: bool = False


def gather(host: Host, waits: Waits, clock: Clock, more: More) -> dict[str, Any]:
    """Return all facts of a node."""
    manager = find_facts(host)
    packages = _read_packages(host, manager, waits, clock)  # first: it waits for a transaction that changes the rest
    kernels = read_kernels(host)
    kubelet = read_kubelet(host, more.kubelet)
    settings = settings_files(host, kubelet)
    watched = read_files(host, [*more.files, *settings])
    services = read_units(host, clock, watched, {kubelet["unit"]: settings} if kubelet else {})
    return {
        "schema": SCHEMA,
        "node": read_identity(host),
        **read_hardware(host),
        **packages,
        "module": read_module(host, kernels),
        "files": watched,
        "services": services,
        "engines": read_engines(host),
        "engine_holds": read_engine_holds(host),
        "engine_staged": read_engine_staged(host),
        "kubelet_engine": read_kubelet_engine(host),
        "installed": read_installations(host),
        "inventory": read_inventory(host),
        "device_holders": read_device_holders(host),
        "kernels": kernels,
        "dkms": read_dkms(host),
        "build_tools": read_build_tools(host),
        "secure_boot": read_secure_boot(host),
        "nouveau": read_nouveau(host),
        "disk_free": read_disk_free(host),
        "foreign_driver": read_foreign_driver(host, manager.is_owned),
        "unattended": read_unattended(host, services),
        "pending_reboot": read_pending_reboot(host),
        "initramfs": read_initramfs(host),
        "driver": read_driver_state(host),
        "mig": read_mig(host) if more.mig else None,
        "gpu_settings": read_gpu_settings(host),
        "kernel": read_kernel(host),
        "selinux": read_selinux(host),
        "apparmor": read_apparmor(host),
        "kubelet": kubelet,
        "cgroup_v1": read_cgroup_v1(host, more.kubelet),
        "product_files": read_product_files(host),
        "traces": read_traces(host, clock, manager.NAME, watched, services) if more.traces else None,
    }


def _read_packages(host: Host, manager: PackageFacts, waits: Waits, clock: Clock) -> dict[str, Any]:
    """Return the facts that the package manager tells."""
    lists = manager.refresh_lists(host, waits.lists, clock) if waits.lists else {}
    locked_by = manager.wait_for_lock(host, waits.lock_timeout_s, clock)
    packages, is_halfway = manager.read_installed(host)
    return {
        "packages": packages,
        "available": manager.read_available(host),
        "package_manager": {
            "name": manager.NAME,
            "interrupted": is_halfway and locked_by is None,  # at work is not interrupted
            "locked_by": locked_by,
            "release_upgrade": read_release_upgrade(host),
            **lists,
            **manager.read_state(host),
        },
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "max_age_s": {"type": "int", "default": 3600},
            "refresh": {"type": "bool", "default": True},
            "refresh_timeout_s": {"type": "int", "default": 120},
            "lock_timeout_s": {"type": "int", "default": 60},
            "mig": {"type": "bool", "default": False},
            "kubelet": {"type": "str", "default": ""},
            "traces": {"type": "bool", "default": False},
            "files": {"type": "list", "elements": "path", "default": []},
        },
        supports_check_mode=True,
    )
    freshness = Freshness(module.params["max_age_s"], module.params["refresh_timeout_s"])
    waits = Waits(freshness if module.params["refresh"] else None, module.params["lock_timeout_s"])
    try:
        more = More(**{name: module.params[name] for name in ("files", "mig", "kubelet", "traces")})
        facts = gather(Host(), waits, Clock(), more)
        if not module.check_mode:
            compare_again(Host())
    except HostError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, facts=facts)


if __name__ == "__main__":
    main()
