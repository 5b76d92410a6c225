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
  - With O(state=staged) the files for an exchange, and those that lead back, are downloaded and rehearsed, and nothing
    that is installed changes. The exchange uses just these where they are what is wanted.
author:
  - The grapnel authors (@grapnel)
options:
  engine:
    description: The engine.
    type: str
    required: true
  state:
    description: Whether packages are installed, or lie ready for that; none that do are removed where none are named.
    type: str
    choices: [present, staged]
    default: present
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
note:
  description: What is wrong with the way back from what is staged, or why what was staged was not used; else empty.
  returned: success
  type: str
"""

from contextlib import nullcontext
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.priority import give_way
from ansible_collections.grapnel.node.plugins.module_utils.engines.handed import forget_handed
from ansible_collections.grapnel.node.plugins.module_utils.engines.packages import hold, install, let_go, unhold
from ansible_collections.grapnel.node.plugins.module_utils.engines.staged import HANDED, HOME
from ansible_collections.grapnel.node.plugins.module_utils.engines.staging import (
    Arrival,
    EnginePackageError,
    clear,
    find_arrival,
    stage,
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
            "state": {"type": "str", "choices": ["present", "staged"], "default": "present"},
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
    wanted = {name: str(given["versions"].get(name, "")) for name in given["packages"]}
    if module.check_mode and given["handed"]:  # nothing was handed over
        module.exit_json(changed=bool(wanted or given["hold"] or given["unhold"]), coming=[], note="")
    try:
        if given["state"] == "staged":
            answer = _stage(host, wanted, given["handed"], is_check=module.check_mode)
        else:
            answer = _bring(host, given, wanted, is_check=module.check_mode)
    except (OSError, OriginalsError, EnginePackageError, PackageError) as error:
        module.fail_json(msg=str(error))
    finally:
        if given["handed"]:
            forget_handed(host)
    module.exit_json(**answer)


def _stage(host: Host, wanted: dict[str, str], handed: str, *, is_check: bool) -> dict[str, Any]:
    """Have packages lie ready; return what is answered."""
    arrival, note = find_arrival(host, wanted, handed), ""
    is_left = host.path(HOME).exists() or host.path(HANDED).exists()
    changed = arrival.staged is None and bool(arrival.wanted or is_left)
    if not is_check:
        if arrival.wanted:
            give_way(host)
            note = stage(host, arrival)
        else:
            forget_handed(host)
            note = clear(host)
    return {"changed": changed, "coming": list(arrival.coming), "note": note}


def _bring(host: Host, given: dict[str, Any], wanted: dict[str, str], *, is_check: bool) -> dict[str, Any]:
    """Install and hold packages; return what is answered."""
    note = ""
    with nullcontext() if is_check or not wanted else let_go(host):
        arrival = find_arrival(host, wanted, given["handed"])
        if arrival.wanted and not is_check:
            _install(host, arrival, given["engine"], given["unit"])
            if arrival.former.keys() & wanted.keys() and given["unit"] and arrival.unstaged:  # else the engine is new
                note = f"{', '.join(arrival.wanted)} was downloaded while the node was out of service: "
                note += arrival.unstaged
    if not is_check:
        unhold(host, given["unhold"])
        hold(host, given["hold"])
    coming = list(arrival.coming)
    diff = {"before": "", "after": "".join(f"{name}\n" for name in coming)} if coming else {}
    changed = bool(arrival.wanted or given["hold"] or given["unhold"])
    return {"changed": changed, "coming": coming, "diff": diff, "note": note}


def _install(host: Host, arrival: Arrival, engine: str, unit: str) -> None:
    if arrival.coming:
        known = Packages(arrival.coming, absent_data(host, engine), absent_groups(host, engine))
        remember_packages(host, engine, known)
    install(host, arrival, engine, unit, Clock())


if __name__ == "__main__":
    main()
