"""A whole apply with real Ansible against this machine, as a process that tests can kill.

The node's packages are files in a folder; installing one waits for a file named ``gate``. With ``rollout`` as second
argument the node has to be taken out of service first; a state file records how far that went.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from provision.apply.context import ApplyContext
from provision.apply.declarations import Declarations
from provision.apply.lock import Claim, lock_machines
from provision.apply.playbooks import Playbooks
from provision.apply.runner import AnsibleRunner
from provision.cli.change.apply import apply_nodes
from provision.cli.session.scope import Scope
from provision.cluster import LocalCluster
from tests.provision.apply.fakes import plan_drain, plan_packages, pure, raw_facts
from tests.provision.samples import make_stack

if TYPE_CHECKING:
    from provision.apply.context import Planner

FACTS_MODULE = """
import json, os
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule({"state": {"type": "path"}})
facts = json.loads('@facts@')
for name in os.listdir(module.params["state"]):
    facts["packages"][name] = {"version": "1", "source": name}
module.exit_json(changed=False, facts=facts)
"""
FACTS_PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - name: gather facts
      grapnel.node.facts: {state: "{{ state }}"}
"""
APPLY_PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - name: wait for the gate
      ansible.builtin.wait_for: {path: "{{ gate }}", timeout: 120, sleep: 1}
    - name: install
      ansible.builtin.copy: {dest: "{{ state }}/{{ item.target }}", content: "", mode: "0644"}
      loop: "{{ grapnel_plan['items'] | rejectattr('deferred') }}"
    - name: gather facts
      grapnel.node.facts: {state: "{{ state }}"}
"""
DAEMON_MODULE = """
import os
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule({"verb": {}, "log": {"type": "path"}, "expect": {"type": "dict"}})
with open(module.params["log"], "a") as log:
    log.write(module.params["verb"] + os.linesep)
module.exit_json(changed=False, daemon={"released": True, "holders": []})
"""
DAEMON_PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - name: {verb}
      grapnel.node.daemon:
        verb: {verb}
        log: "{{{{ log }}}}"
        expect: "{{{{ grapnel_expectation | default({{}}) }}}}"
"""


CLAIM = Claim("hosts", {"n1": ["10.0.0.1:22"]})


def lay_out(folder: Path) -> None:
    import json  # noqa: PLC0415 - the process under test does not need it

    collection = folder / "playbooks"
    (collection / "plugins" / "modules").mkdir(parents=True)
    (folder / "state").mkdir()
    (collection / "galaxy.yml").write_text("namespace: grapnel\nname: node\nversion: 0.1.0\n")
    module = FACTS_MODULE.replace("@facts@", json.dumps(raw_facts("n1", [], [])))
    (collection / "plugins" / "modules" / "facts.py").write_text(module)
    (collection / "plugins" / "modules" / "daemon.py").write_text(DAEMON_MODULE)
    for verb in ("release", "verify", "resume"):
        (collection / f"{verb}.yml").write_text(DAEMON_PLAY.format(verb=verb))
    (collection / "facts.yml").write_text(FACTS_PLAY)
    (collection / "apply.yml").write_text(APPLY_PLAY)
    (folder / "hosts").write_text(
        "n1 ansible_connection=local ansible_python_interpreter=/usr/bin/python3\n"
        f"[all:vars]\nstate={folder}/state\ngate={folder}/gate\nlog={folder}/verbs\n"
    )


def main(folder: Path, plan: Planner) -> int:
    hosts = str(folder / "hosts")
    with lock_machines(CLAIM, {**os.environ, "XDG_STATE_HOME": str(folder)}) as environment:
        playbooks = Playbooks(collection=folder / "playbooks", inventory=(hosts,), environment=environment)
        context = ApplyContext(
            runner=AnsibleRunner(folder / "playbooks"), plan=plan, playbooks=playbooks, declarations=Declarations({})
        )
        scope = Scope(stacks={"n1": make_stack()}, cluster=LocalCluster(folder / "state_file.json"))
        return apply_nodes(context, scope, parallel=1, consent=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), pure(plan_drain if sys.argv[2:] == ["rollout"] else plan_packages)))
