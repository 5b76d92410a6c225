#!/usr/bin/python3
"""Exchanges the loaded kernel module of the driver for the one on disk."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: kernel_module
short_description: Load the NVIDIA kernel module in one version, after unloading another one
version_added: 0.1.0
description:
  - Does nothing when the version is loaded. Otherwise the version has to be on disk already, where modprobe finds it.
  - Unloads the driver's modules that are loaded, dependents first, and loads the same ones
    again, C(nvidia) and C(nvidia_uvm) in any case. The driver's own services (persistence daemon, fabric manager, DCGM
    and others) are stopped for it if they run, and started again, also when something fails.
  - Fails before anything is changed while anybody else uses the driver, naming the processes with their unit or pod.
  - What a killed run left unfinished is done by the next one.
author:
  - The grapnel authors (@grapnel)
options:
  version:
    description: Version of the driver to load.
    type: str
    required: true
  state:
    description:
      - With C(loaded) the version is loaded.
      - With C(free) nothing is changed, and the task fails if the version could not be loaded now. Use it before the
        packages of another version are installed.
    type: str
    choices: [loaded, free]
    default: loaded
attributes:
  check_mode:
    description:
      - Reports what would be done. A process that uses the driver now is a warning, because that work may still move.
        The node daemon does not count: it lets go when it is told to release.
    support: full
  diff_mode:
    description: Shows the versions.
    support: full
"""

EXAMPLES = r"""
- name: Exchange the kernel module
  grapnel.node.kernel_module:
    version: 550.163.01
"""

RETURN = r"""
previous:
  description: Version that was loaded, empty when there was none.
  returned: success
  type: str
modules:
  description: The driver's modules that are loaded.
  returned: success
  type: list
  elements: str
obstacles:
  description: Who uses the driver and would be in the way, one line each; in check mode.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.grapnel.node.plugins.module_utils.host import Host
from ansible_collections.grapnel.node.plugins.module_utils.kernel_module import (
    KernelModuleError,
    bring_to,
    obstacles_to,
    read_state,
    require_free,
    require_on_disk,
)
from ansible_collections.grapnel.node.plugins.module_utils.module_use import loaded_modules
from ansible_collections.grapnel.node.plugins.module_utils.units import DAEMON_UNIT


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "version": {"type": "str", "required": True},
            "state": {"type": "str", "default": "loaded", "choices": ["loaded", "free"]},
        },
        supports_check_mode=True,
    )
    host, version = Host(), module.params["version"]
    is_change = module.params["state"] == "loaded"
    before = read_state(host)
    changed = is_change and not before.is_as_wanted(version)
    obstacles = obstacles_to(host, before, version, (DAEMON_UNIT,)) if module.check_mode else []
    try:
        require_on_disk(before, version)
        if changed and not module.check_mode:
            bring_to(host, version)
        elif not module.check_mode:
            require_free(host, before, version)
    except (OSError, KernelModuleError) as error:
        module.fail_json(msg=str(error))
    previous = before.version or ""
    diff = {"before": f"kernel module nvidia {previous}\n", "after": f"kernel module nvidia {version}\n"}
    module.exit_json(
        changed=changed,
        previous=previous,
        modules=loaded_modules(host),
        obstacles=obstacles,
        diff=diff if changed else {},
    )


if __name__ == "__main__":
    main()
