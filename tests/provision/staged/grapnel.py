"""`grapnel` whose playbooks run on the machines of a folder: ``GRAPNEL_MACHINES=FOLDER python -m ... VERB...``.

All of it is the product but what runs playbooks, and what plans the contents of a node.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from provision.apply.context import ApplyContext
from provision.apply.declarations import Declarations
from provision.apply.playbooks import Playbooks
from provision.cli import import_verb, main
from tests.provision.staged.machines import Machines, planner

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from provision.cli import Verb
    from provision.declaration.fleet.model import Fleet

FOLDER = "GRAPNEL_MACHINES"
COLLECTION = Path("/no/collection")  # its playbooks are known by their names
STAGED = ("apply", "plan", "rollback")


class OnMachines:
    """A verb of the product, with the machines of the folder."""

    def __init__(self, verb: Verb) -> None:
        self.run = partial(cast("Any", verb).run, build=build)


def build(
    _args: argparse.Namespace, fleet: Fleet, *, check: bool = False, environment: Mapping[str, str] | None = None
) -> ApplyContext:
    """Put runner and planner of the machines together, and playbooks."""
    stacks = {node.name: node.stack for node in fleet.nodes}
    return ApplyContext(
        runner=Machines(Path(os.environ[FOLDER])),
        plan=planner(stacks),
        playbooks=Playbooks(collection=COLLECTION, check=check, environment=environment or {}),
        declarations=Declarations(stacks),
    )


def load(name: str) -> Verb:
    """Return the module of a verb, or the verb as it is on these machines."""
    verb = import_verb(name)
    return OnMachines(verb) if name in STAGED else verb


if __name__ == "__main__":
    sys.exit(main(load=load))
