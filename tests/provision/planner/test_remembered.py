"""What is remembered of equal files and packages changes no plan: thousands of nodes share it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from provision.declaration.fleet.facts.node import Engine as FoundEngine
from provision.declaration.spec.model import Engine
from provision.planning.driver.packages import catalogue, closure
from provision.planning.engines import crio
from provision.planning.engines.containerd import base_spec
from provision.planning.engines.containerd import engine as containerd_engine
from provision.planning.engines.files import engine_file
from provision.planning.render import hook_config
from tests.provision.samples import RUNNING, available, edit_file, make_facts, make_stack, plan, replace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec
    from provision.planning.node_plan import NodePlan

REMEMBERED = (
    containerd_engine._rendered,
    crio._rendered,
    engine_file.is_same,
    base_spec.inherit_base_spec,
    base_spec.render_base_spec,
    catalogue._packages,
    closure._resolve,
    hook_config._rendered,
)
MAINS = (
    None,
    "",
    'version = 2\nimports = ["/etc/containerd/conf.d/*.toml"]\n',
    'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\nsandbox_image = "pause"\n',
    "version = 3\n",
    "version = 1\n",
    "version = [\n",
    '[crio.runtime]\ndefault_runtime = "crun"\n',
)
DROP_INS = (
    'version = 2\n[plugins."io.containerd.grpc.v1.cri".registry]\nconfig_path = "/etc/certs"\n',
    "version = 3\n",
    "[crio.runtime.runtimes.crun]\n",
)
ENGINES = {
    Engine.CONTAINERD.value: ("/etc/containerd/config.toml", "/etc/containerd/conf.d/{}.toml"),
    Engine.CRIO.value: ("/etc/crio/crio.conf", "/etc/crio/crio.conf.d/{}.conf"),
}
NODES = st.fixed_dictionaries(
    {
        "engine": st.sampled_from(sorted(ENGINES)),
        "version": st.sampled_from(["1.6.20", "1.7.24", "2.1.0"]),
        "main": st.sampled_from(MAINS),
        "drop_ins": st.dictionaries(st.sampled_from(["10-registry", "99-zz"]), st.sampled_from(DROP_INS)),
        "handler": st.sampled_from(["nvidia", "gpu"]),
        "driver": st.sampled_from(["550.163.01", "535.261.03", "999.1.02"]),
        "capabilities": st.sampled_from([["compute"], ["compute", "utility"]]),
        "lacks": st.sets(st.sampled_from(["libcuda1", "nvidia-smi", "nvidia-alternative"]), max_size=1),
    }
)


def node(given: Mapping[str, object]) -> tuple[NodeFacts, StackSpec]:
    """Return facts and declaration of a node with these files and packages."""
    engine, version, lacks = str(given["engine"]), str(given["version"]), given["lacks"]
    main, drop_in = ENGINES[engine]
    known = {name: each for name, each in available().items() if name not in lacks}  # type: ignore[operator]
    facts = replace(
        make_facts(engines={engine: FoundEngine(binary=f"/usr/bin/{engine}", version=version)}),
        services={f"{engine}.service": RUNNING},
        available=known,
    )
    facts = edit_file(facts, main, given["main"])  # type: ignore[arg-type]
    for name, text in given["drop_ins"].items():  # type: ignore[attr-defined]
        facts = edit_file(facts, drop_in.format(name), text)
    driver = {"version": given["driver"], "kernelModule": "none", "capabilities": given["capabilities"]}
    return facts, make_stack(driver=driver, runtime={"engine": engine, "handler": given["handler"]})


def planned_alone(facts: NodeFacts, stack: StackSpec) -> NodePlan:
    for each in REMEMBERED:
        each.cache_clear()
    return plan(facts, stack)


@settings(max_examples=60, deadline=None)
@given(st.lists(NODES, min_size=2, max_size=8))
def test_plans_of_a_fleet_are_those_of_its_nodes_by_themselves(fleet: list[dict[str, object]]) -> None:
    nodes = [node(each) for each in fleet]
    alone = [planned_alone(*each) for each in nodes]

    assert [plan(*each) for each in (*nodes, *nodes)] == [*alone, *alone]


def test_equal_files_are_parsed_once() -> None:
    facts, stack = node(
        {
            "engine": "containerd",
            "version": "1.7.24",
            "main": MAINS[3],
            "drop_ins": {"10-registry": DROP_INS[0]},
            "handler": "nvidia",
            "driver": "550.163.01",
            "capabilities": ["compute"],
            "lacks": set(),
        }
    )
    planned_alone(facts, stack)
    before = [each.cache_info().misses for each in REMEMBERED]

    for number in range(3):
        plan(replace(facts, node=replace(facts.node, hostname=f"n{number}")), stack)

    assert [each.cache_info().misses for each in REMEMBERED] == before
