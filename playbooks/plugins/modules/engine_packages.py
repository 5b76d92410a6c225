#!/usr/bin/python3
"""Installs the packages of an engine, and remembers which came with it."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: engine_packages
short_description: Install the packages of an engine, and remember which came with it
version_added: 0.1.0
description:
  - Asks apt which packages would come, and notes those that are not there (docs/contracts/originals), so that
    M(grapnel.node.removal) takes away no others. Then they are installed, without what they only recommend.
  - A package that is installed stays at its version.
author:
  - The grapnel authors (@grapnel)
options:
  engine:
    description: The engine.
    type: str
    required: true
  packages:
    description: What is installed.
    type: list
    elements: str
    required: true
  lock_timeout_s:
    description: Longest time in seconds to wait for another process that uses the package manager.
    type: int
    default: 120
attributes:
  check_mode:
    description: Tells what would be installed. Nothing is noted.
    support: full
  diff_mode:
    description: Shows the packages that come.
    support: full
"""

EXAMPLES = r"""
- name: Install containerd
  grapnel.node.engine_packages:
    engine: containerd
    packages: [containerd]
"""

RETURN = r"""
coming:
  description: The packages that were not there.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host
from ansible_collections.grapnel.node.plugins.module_utils.removal.originals import (
    OriginalsError,
    Packages,
    remember_packages,
)
from ansible_collections.grapnel.node.plugins.module_utils.removal.packages import (
    RemovalError,
    absent_data,
    absent_groups,
    install,
    not_installed,
    packages_to_come,
)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "engine": {"type": "str", "required": True},
            "packages": {"type": "list", "elements": "str", "required": True},
            "lock_timeout_s": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    host, engine, coming = Host(), module.params["engine"], []
    wanted = not_installed(host, module.params["packages"])
    try:
        coming = packages_to_come(host, wanted) if wanted else []
        if wanted and not module.check_mode:
            if coming:
                known = Packages(tuple(coming), absent_data(host, engine), absent_groups(host, engine))
                remember_packages(host, engine, known)
            install(host, wanted, module.params["lock_timeout_s"])
    except (OSError, OriginalsError, RemovalError) as error:
        module.fail_json(msg=str(error))
    diff = {"before": "", "after": "".join(f"{name}\n" for name in coming)} if coming else {}
    module.exit_json(changed=bool(wanted), coming=coming, diff=diff)


if __name__ == "__main__":
    main()
