"""Stages a change on a booted node: ``on_node.py VERB FOLDER < change``, as the installed program does; prints JSON."""

from __future__ import annotations

import json
import sys

sys.path.insert(0, sys.argv[2])

from ansible_collections.grapnel.node.plugins.module_utils.driver.change import (
    change_id,
    parse_change,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.verbs import check, stage
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

change = parse_change(sys.stdin.buffer.read())
if sys.argv[1] == "stage":
    answer = stage(Host(), change).document()
else:
    answer = {"findings": [one.document() for one in check(Host(), change_id(change))]}
sys.stdout.write(json.dumps(answer))
