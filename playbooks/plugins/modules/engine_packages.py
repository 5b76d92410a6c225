#!/usr/bin/python3
"""Installs the packages of an engine, and holds them; remembers which came with it, and which nobody held."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: engine_packages
short_description: Install the packages of an engine, and remember which came with it
version_added: 0.1.0
description:
  - Asks the package manager which packages would come, and notes those that are not there (docs/contracts/originals),
    so that M(grapnel.node.removal) takes away no others. Then they are installed, without what they only recommend.
  - A package that is installed stays as it is, unless another version of it is asked for. If one would have to go,
    nothing is installed.
  - What is held was not held by others, and is noted there as well. Nothing that others hold is let go.
  - A service that ran is restarted with another version, and has to answer and to start containers as the former one
    did; else the former packages are put back.
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
    default: []
  versions:
    description: Their versions as the package manager has them, by name; without one, whichever is there or comes.
    type: dict
    default: {}
  hold:
    description: Packages that no other upgrade is to change; those that are installed are held afterwards.
    type: list
    elements: str
    default: []
  unhold:
    description: Packages that are let go where grapnel holds them.
    type: list
    elements: str
    default: []
  handed:
    description:
      - The C(id) that M(grapnel.node.handover) was given, from whose files alone everything is installed then.
      - Empty to have it from the package sources.
    type: str
    default: ""
  unit:
    description: The engine's service, empty for an engine without one.
    type: str
    default: ""
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

from contextlib import nullcontext

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.grapnel.node.plugins.module_utils.engines.handed import forget_handed
from ansible_collections.grapnel.node.plugins.module_utils.engines.packages import (
    Arrival,
    EnginePackageError,
    find_arrival,
    hold,
    install,
    let_go,
    unhold,
)
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Host
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError
from ansible_collections.grapnel.node.plugins.module_utils.removal.originals import (
    OriginalsError,
    Packages,
    remember_packages,
)
from ansible_collections.grapnel.node.plugins.module_utils.removal.packages import (
    absent_data,
    absent_groups,
)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "engine": {"type": "str", "required": True},
            "packages": {"type": "list", "elements": "str", "default": []},
            "versions": {"type": "dict", "default": {}},
            "hold": {"type": "list", "elements": "str", "default": []},
            "unhold": {"type": "list", "elements": "str", "default": []},
            "handed": {"type": "str", "default": ""},
            "unit": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    host, given = Host(), module.params
    names, versions = given["packages"], given["versions"]
    if module.check_mode and given["handed"]:  # nothing was handed over
        module.exit_json(changed=bool(names), coming=[])
    try:
        with nullcontext() if module.check_mode or not names else let_go(host):
            arrival = find_arrival(host, {name: str(versions.get(name, "")) for name in names}, given["handed"])
            if arrival.wanted and not module.check_mode:
                _install(host, arrival, given["engine"], given["unit"])
        if not module.check_mode:
            unhold(host, given["unhold"])
            hold(host, given["hold"])
    except (OSError, OriginalsError, EnginePackageError, PackageError) as error:
        module.fail_json(msg=str(error))
    finally:
        if given["handed"]:
            forget_handed(host)
    coming = list(arrival.coming)
    diff = {"before": "", "after": "".join(f"{name}\n" for name in coming)} if coming else {}
    changed = bool(arrival.wanted or given["hold"] or given["unhold"])
    module.exit_json(changed=changed, coming=coming, diff=diff)


def _install(host: Host, arrival: Arrival, engine: str, unit: str) -> None:
    if arrival.coming:
        known = Packages(arrival.coming, absent_data(host, engine), absent_groups(host, engine))
        remember_packages(host, engine, known)
    install(host, arrival, engine, unit, Clock())


if __name__ == "__main__":
    main()
