#!/usr/bin/python3
"""Remembers which packages come with an engine, before it is installed."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: originals
short_description: Remember which packages an engine brings, before they are installed
version_added: 0.1.0
description:
  - Asks apt which packages would come, and notes those that are not there (docs/contracts/originals), so that
    M(grapnel.node.removal) takes away no others.
author:
  - The grapnel authors (@grapnel)
options:
  engine:
    description: The engine that is about to be installed.
    type: str
    required: true
  packages:
    description: What is about to be installed.
    type: list
    elements: str
    required: true
attributes:
  check_mode:
    description: Nothing is noted.
    support: full
  diff_mode:
    description: There is nothing to show.
    support: none
"""

EXAMPLES = r"""
- name: Remember what comes with the engine
  grapnel.node.originals:
    engine: containerd
    packages: [containerd]
"""

RETURN = r"""
coming:
  description: The packages that are not there yet.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.grapnel.node.plugins.module_utils.host import Host
from ansible_collections.grapnel.node.plugins.module_utils.removal.originals import (
    OriginalsError,
    Packages,
    remember_packages,
)
from ansible_collections.grapnel.node.plugins.module_utils.removal.packages import (
    RemovalError,
    absent_data,
    absent_groups,
    packages_to_come,
)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "engine": {"type": "str", "required": True},
            "packages": {"type": "list", "elements": "str", "required": True},
        },
        supports_check_mode=True,
    )
    host, engine, coming = Host(), module.params["engine"], []
    try:
        coming = packages_to_come(host, module.params["packages"])
        if coming and not module.check_mode:
            known = Packages(tuple(coming), absent_data(host, engine), absent_groups(host, engine))
            remember_packages(host, engine, known)
    except (OSError, OriginalsError, RemovalError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, coming=coming)


if __name__ == "__main__":
    main()
