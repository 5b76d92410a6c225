"""A planner and a node know the same engines, and the same of each."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.grapnel.node.plugins.module_utils.engines.files import KNOWN
from ansible_collections.grapnel.node.plugins.module_utils.engines.table import DISTRIBUTIONS, ENGINES
from ansible_collections.grapnel.node.plugins.module_utils.packages.interest import WITH_ENGINES
from ansible_collections.grapnel.node.plugins.modules import configuration

from provision.declaration.spec.model import Engine
from provision.planning.engines.table import ENGINES as PLANNED
from provision.planning.engines.table import find_engine
from tests.provision.samples import make_facts, make_stack

ROLE = Path(__file__).parents[2] / "playbooks/roles/runtime/meta/argument_specs.yml"


def test_everybody_knows_the_same_engines() -> None:
    names = [engine.value for engine in Engine]
    module = yaml.safe_load(configuration.DOCUMENTATION)["options"]["engine"]["choices"]
    role = yaml.safe_load(ROLE.read_text())["argument_specs"]["planned"]["options"]["runtime_engine"]["choices"]

    assert [engine.value for engine in PLANNED] == names
    assert list(ENGINES) == names
    assert [module, role] == [["", *names], names]


@pytest.mark.parametrize("engine", Engine)
def test_a_node_looks_at_what_is_planned_for_an_engine(engine: Engine) -> None:
    row, planned = ENGINES[engine.value], find_engine(make_facts(), engine)
    files = {*planned.engine_paths, *(file.path for file in planned.own_files(make_stack()))}

    assert planned.service in (row.units or ("",))
    assert planned.reloads is row.reloads
    assert planned.package_names <= {*row.packages}
    packages = (package for of_source in planned.packages.values() for package in of_source.values())
    assert {name for package in packages for name in package.besides} <= {*WITH_ENGINES}
    assert engine.value in DISTRIBUTIONS or files <= KNOWN
    assert PLANNED[engine].folder in ("", f"{row.folder}/")
