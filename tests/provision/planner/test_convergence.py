"""Whatever a node looks like: a plan that was carried out leaves nothing to do, within the passes that apply makes."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provision.declaration.fleet.facts.node import (
    DeviceHolder,
    Engine,
    FileState,
    Installation,
    InstalledPackage,
    KernelModule,
    NodeFacts,
    Service,
)
from provision.planning.driver.packages.pins.apt import PIN_PATH
from provision.planning.engines.containerd.handler import BASE_SPEC_PATH
from provision.planning.engines.containerd.imports import DROP_IN_PATH, MAIN_PATH
from provision.planning.node_plan import NodePlan
from provision.planning.planner.drivers.kernel_module import RELOAD_MARK
from provision.planning.planner.node_daemon import UNIT_PATH
from provision.planning.render.hook_config import HOOK_CONFIG_PATH
from provision.planning.render.node_config import NODE_CONFIG_PATH
from tests.provision.samples import (
    DEBIAN_CONFIG,
    GPU,
    PAYLOAD,
    RUNNING,
    available,
    configured,
    make_facts,
    make_file,
    make_module,
    make_stack,
    plan,
    replace,
    simulate_apply,
    steps,
)

PASSES = 3
VERSIONS = ("550.163.01", "535.309.01", "535.261.03")
NVIDIA = sorted(
    name for name, versions in available().items() if any(each.source == "nvidia-graphics-drivers" for each in versions)
)
SYSTEMD_RUNC = """
version = 2
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = true
"""
MAIN_FILES = (
    None,
    "",
    "# nothing\n",
    DEBIAN_CONFIG,
    'version = 2\nimports = ["/etc/containerd/conf.d/*.toml"]\n',
    'version = 3\n\n[plugins."io.containerd.cri.v1.runtime".containerd]\ndefault_runtime_name = "runc"\n',
    SYSTEMD_RUNC,
)
OUR_PATHS = (PIN_PATH, BASE_SPEC_PATH, DROP_IN_PATH, HOOK_CONFIG_PATH, NODE_CONFIG_PATH, UNIT_PATH)


@st.composite
def installed_packages(draw: st.DrawFn) -> dict[str, InstalledPackage]:
    """Return any mixture of the driver's packages that apt may have left behind."""
    packages = {}
    for name in draw(st.lists(st.sampled_from(NVIDIA), max_size=8, unique=True)):
        versions = [each for each in available()[name] if each.source == "nvidia-graphics-drivers"]
        version = draw(st.sampled_from(versions))
        packages[name] = InstalledPackage(
            version=version.version,
            source=version.source,
            hold=draw(st.booleans()),
            status=draw(st.sampled_from(["installed", "half-configured"])),
        )
    return packages


def file_states() -> st.SearchStrategy[FileState | None]:
    """Return any file, or none, where one of ours should be."""
    return st.none() | st.builds(make_file, st.text(max_size=20), st.sampled_from(["0644", "0600"]))


def services() -> st.SearchStrategy[Service]:
    return st.builds(
        Service,
        load=st.just("loaded"),
        active=st.sampled_from(["active", "failed", "inactive"]),
        enabled=st.sampled_from(["enabled", "disabled"]),
    )


@st.composite
def nodes(draw: st.DrawFn) -> NodeFacts:
    """Return the facts of any machine that can be brought to what is declared."""
    has_engine = draw(st.booleans())
    files = {path: draw(file_states()) for path in OUR_PATHS}
    main = draw(st.sampled_from(MAIN_FILES))
    files[MAIN_PATH] = None if main is None else make_file(main)
    daemon = {"grapnel-node.service": draw(services())} if draw(st.booleans()) else {}
    engine = {"containerd.service": draw(services())} if has_engine else {}
    facts = make_facts(
        packages=draw(installed_packages()),
        files=files,
        services=daemon | engine,
        engines={"containerd": Engine(binary="/usr/bin/containerd", version="1.7.24")} if has_engine else {},
        installed={part: draw(st.none() | st.just(Installation(digest="0" * 64))) for part in ("hook", "node")},
        device_holders=draw(st.just(()) | st.just((DeviceHolder(pid=9, command="train"),))),
    )
    pythons = draw(st.sampled_from([None, {"/usr/bin/python3": "3.9", "/usr/bin/python3.11": "3.11"}]))
    return replace(
        facts,
        node=replace(facts.node, pythons=pythons),
        package_manager=replace(facts.package_manager, interrupted=draw(st.booleans())),
    )


def modules(version: str) -> st.SearchStrategy[KernelModule]:
    """Return any state of the kernel module from which a node can be brought to a version."""
    others = st.sampled_from([None, *VERSIONS])
    return st.just(make_module(None, None)) | st.builds(make_module, others, st.just(version))


def stacks() -> st.SearchStrategy[dict[str, dict[str, object]]]:
    capabilities = st.sampled_from(["compute", "utility", "video", "graphics"])
    return st.fixed_dictionaries(
        {
            "driver": st.fixed_dictionaries(
                {
                    "version": st.sampled_from(VERSIONS),
                    "hold": st.booleans(),
                    "capabilities": st.lists(capabilities, min_size=1, unique=True),
                }
            ),
            "runtime": st.fixed_dictionaries({"entitlement": st.sampled_from(["kubelet", "env"])}),
            "plugin": st.fixed_dictionaries({"enabled": st.booleans()}),
        }
    )


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(data=st.data(), facts=nodes(), sections=stacks())
def test_applied_plans_leave_nothing_to_do(
    data: st.DataObject, facts: NodeFacts, sections: dict[str, dict[str, object]]
) -> None:
    stack = make_stack(**sections)
    module = data.draw(modules(str(sections["driver"]["version"])))
    mark = {RELOAD_MARK: data.draw(st.none() | st.just(make_file("{}")))}
    facts = replace(facts, module=module, gpus=data.draw(st.sampled_from([(), (GPU,)])), files=facts.files | mark)

    for _ in range(PASSES):
        current = plan(facts, stack)
        assert current.problems == ()
        facts = simulate_apply(facts, current)

    assert steps(plan(facts, stack).items) == []


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(facts=nodes(), sections=stacks())
def test_a_plan_survives_its_format(facts: NodeFacts, sections: dict[str, dict[str, object]]) -> None:
    current = plan(facts, make_stack(**sections))

    assert msgspec.json.decode(msgspec.json.encode(current), type=NodePlan) == current


@pytest.mark.slow
@settings(deadline=None, max_examples=15)
@given(
    first=st.sampled_from(VERSIONS),
    second=st.sampled_from(VERSIONS),
    capabilities=st.lists(st.sampled_from(["compute", "utility", "video", "graphics"]), min_size=1, unique=True),
)
def test_going_to_another_driver_and_back_ends_where_it_began(first: str, second: str, capabilities: list[str]) -> None:
    one, other = (make_stack(driver={"version": each, "capabilities": capabilities}) for each in (first, second))
    before = configured(one)

    there = simulate_apply(before, plan(before, other))
    back = simulate_apply(there, plan(there, one))

    assert replace(back, driver=before.driver) == before
    assert all(service == RUNNING for service in back.services.values())
    assert back.installed_digest("hook") == PAYLOAD.hook.digest
