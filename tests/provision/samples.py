"""Nodes, declarations and payloads for tests, and what applying a plan does to a node's facts.

`simulate_apply` says in few lines what the roles do; the property "a plan that was carried out leaves nothing to do"
is checked against it.
"""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from provision.declaration.fleet.facts.driver import DriverRun, StagedChange
from provision.declaration.fleet.facts.node import (
    AvailablePackage,
    Engine,
    FileState,
    Gpu,
    Installation,
    InstalledPackage,
    KernelModule,
    NodeFacts,
    Service,
    parse_facts,
)
from provision.declaration.spec.model import StackSpec
from provision.planning.driver_change import DriverChange, change_id
from provision.planning.planner.drivers.kernel_module import RELOAD_MARK
from provision.planning.planner.node_daemon import UNIT_PATH
from provision.planning.planner.part import RESTART_MARKS
from provision.planning.planner.plan import plan_node
from provision.planning.render.kubelet_record import KUBELET_RECORD_PATH
from provision.planning.render.selinux import GPU_TYPE
from provision.planning.render.tuning import HUGEPAGES, NUMA_BALANCING, TUNING_RECORD_PATH
from provision.planning.supply.payload.model import Artifact, Payload

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.kernel import SelinuxState
    from provision.planning.node_plan import (
        DriverVariables,
        Item,
        KubeletVariables,
        NodeDaemonVariables,
        NodePlan,
        RuntimeVariables,
        TuningVariables,
    )

Value = TypeVar("Value", bound=msgspec.Struct)

DATA = Path(__file__).parent / "driver" / "data"
DEBIAN_CONFIG = """\
version = 2

[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    [plugins."io.containerd.grpc.v1.cri".cni]
      bin_dir = "/usr/lib/cni"
      conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.internal.v1.opt"]
    path = "/var/lib/containerd/opt"
"""
PAYLOAD = Payload(
    hook=Artifact("/srv/payload/hook.tar", "a1" * 32),
    driver=Artifact("/srv/payload/driver.tar", "d4" * 32),
    node=Artifact("/srv/payload/node.tar", "c3" * 32, "3.10"),
    unit="[Service]\nExecStart=/usr/lib/grapnel/node/grapnel-node serve\n",
)
VERSIONS = {"containerd": "1.7.24", "docker": "26.1.5", "podman": "5.4.2"}
RUNNING = Service(load="loaded", active="active", enabled="enabled")
GPU = Gpu(address="0000:10:00.0", vendor="10de", device="20b0", class_="030200")


@functools.cache
def available(codename: str = "trixie") -> dict[str, tuple[AvailablePackage, ...]]:
    """Return what apt knows on a real Debian; trixie's sources have bookworm's beside them, those of arm64 have not."""
    text = DATA.joinpath(f"available-{codename}.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, tuple[AvailablePackage, ...]])


def make_stack(**sections: dict[str, object]) -> StackSpec:
    """Return an effective declaration: driver 550.163.01 without its module, unless ``driver`` says something else."""
    driver = {"version": "550.163.01", "kernelModule": "none"} | sections.pop("driver", {})
    return msgspec.convert({"driver": driver} | sections, StackSpec)


def make_facts(**changes: object) -> NodeFacts:
    """Return the facts of a bare Debian 13 machine."""
    bare = parse_facts(
        {
            "schema": "grapnel.dev/facts/v1alpha1",
            "node": {
                "hostname": "n1",
                "machine_id": "0f5e4c8dc9d54f0b8e6f7f9a3f1f4b11",
                "boot_id": "6c5a2a0e-9b63-4c1c-a6c1-0d8b4f0a9d0e",
                "kernel": "6.12.107+deb13-amd64",
                "architecture": "x86_64",
                "python": "3.13",
                "os": {"id": "debian", "version_id": "13", "codename": "trixie"},
            },
            "package_manager": {"name": "apt", "lists_age_s": 12},
        }
    )
    return replace(bare, **({"available": available()} | changes))


def make_module(loaded: str | None, on_disk: str | None) -> KernelModule:
    """Return a kernel module that is loaded in one version and on disk in another; None for not at all."""
    return KernelModule(loaded=loaded is not None, version=loaded, on_disk=on_disk)


def make_file(content: str, mode: str = "0644") -> FileState:
    """Return the state of a file of root."""
    return FileState(mode=mode, uid=0, gid=0, sha256=hashlib.sha256(content.encode()).hexdigest(), content=content)


def replace(value: Value, **changes: object) -> Value:
    """Return a value with some fields changed."""
    return msgspec.structs.replace(value, **changes)


def edit_package(facts: NodeFacts, name: str, **changes: object) -> NodeFacts:
    """Return facts with one installed package changed."""
    return replace(facts, packages=facts.packages | {name: replace(facts.packages[name], **changes)})


def edit_service(facts: NodeFacts, unit: str, **changes: object) -> NodeFacts:
    """Return facts with one service changed."""
    return replace(facts, services=facts.services | {unit: replace(facts.service(unit), **changes)})


def edit_package_manager(facts: NodeFacts, **changes: object) -> NodeFacts:
    """Return facts with another state of apt and dpkg."""
    return replace(facts, package_manager=replace(facts.package_manager, **changes))


def edit_file_state(facts: NodeFacts, path: str, **changes: object) -> NodeFacts:
    """Return facts with one file's owner, mode or readability changed."""
    state = facts.files[path]
    assert state is not None
    return replace(facts, files=facts.files | {path: replace(state, **changes)})


def edit_file(facts: NodeFacts, path: str, content: str | None) -> NodeFacts:
    """Return facts with one file of other content, or without it."""
    state = None if content is None else make_file(content)
    return replace(facts, files=facts.files | {path: state})


def text_of(facts: NodeFacts, path: str) -> str:
    """Return the text of a file that is there."""
    content = facts.content(path)
    assert content is not None
    return content


def plan(facts: NodeFacts, stack: StackSpec | None = None) -> NodePlan:
    """Return the plan for a node with the sample payload."""
    return plan_node(facts, stack or make_stack(), PAYLOAD)


def staged(facts: NodeFacts, stack: StackSpec | None = None) -> NodeFacts:
    """Return the facts of a node after the driver of its plan was staged, and nothing else was done."""
    variables = plan(facts, stack).roles.driver
    assert variables is not None
    return _apply_driver(facts, replace(variables, driver_swap=False))


def configured(stack: StackSpec | None = None) -> NodeFacts:
    """Return the facts of a node that is as declared."""
    facts = make_facts()
    for _ in range(3):
        facts = simulate_apply(facts, plan(facts, stack))
    assert plan(facts, stack).is_empty
    return facts


def steps(items: tuple[Item, ...]) -> list[tuple[str, str]]:
    """Return the plain words of a plan: action and target."""
    return [(item.action.value, item.target) for item in items]


def simulate_apply(facts: NodeFacts, plan: NodePlan) -> NodeFacts:
    """Return the facts after the roles have carried a plan out."""
    roles = plan.roles
    if roles.driver is not None:
        facts = _apply_driver(facts, roles.driver)
    if roles.runtime is not None:
        facts = _apply_runtime(facts, roles.runtime)
    if roles.tuning is not None:
        facts = _apply_tuning(facts, roles.tuning)
    if roles.kubelet is not None:
        facts = _apply_kubelet(facts, roles.kubelet)
    if roles.node_daemon is not None:
        facts = _apply_node_daemon(facts, roles.node_daemon)
    return facts


def _apply_driver(facts: NodeFacts, variables: DriverVariables) -> NodeFacts:
    if variables.driver_archive:
        installed = {
            **facts.installed,
            "driver": Installation(digest=variables.driver_digest, python=variables.driver_python),
        }
        facts = replace(facts, installed=installed)
    for source in variables.driver_sources:
        facts = edit_file(facts, source.path, source.content)
    change = variables.driver_change
    if change is not None and variables.driver_stage:
        staged = StagedChange(id=variables.driver_change_id, version=change.version, complete=True)
        facts = replace(facts, driver=replace(facts.driver, staged=(*facts.driver.staged, staged)))
    return _swap(facts, change) if change is not None and variables.driver_swap else facts


def _swap(facts: NodeFacts, change: DriverChange) -> NodeFacts:
    assert change_id(change) in {each.id for each in facts.driver.staged}
    packages = {name: each for name, each in facts.packages.items() if name not in change.remove}
    for package in change.packages:
        version = next(each for each in facts.available[package.name] if each.version == package.version)
        packages[package.name] = InstalledPackage(version=package.version, source=version.source, hold=change.hold)
    manager = replace(facts.package_manager, interrupted=False)
    on_disk = facts.module.on_disk if change.flavour == "none" else change.version
    facts = replace(facts, packages=packages, package_manager=manager, module=replace(facts.module, on_disk=on_disk))
    if change.module is not None and on_disk is not None:
        assert on_disk == change.module.version
        flavour = None if change.flavour == "none" else change.flavour
        facts = replace(facts, module=replace(make_module(on_disk, on_disk), flavour=flavour))
        facts = edit_file(facts, RELOAD_MARK, None)
    files = {file.path: make_file(file.content, file.mode) for file in change.files}
    state = replace(facts.driver, current=change_id(change), run=DriverRun(state="done", change=change_id(change)))
    return replace(facts, files=facts.files | files, driver=state)


def _apply_runtime(facts: NodeFacts, variables: RuntimeVariables) -> NodeFacts:
    if variables.runtime_packages:
        name = variables.runtime_engine
        facts = replace(facts, engines={name: Engine(binary=f"/usr/bin/{name}", version=VERSIONS[name])})
        if name == "containerd" and facts.file("/etc/containerd/config.toml") is None:
            facts = edit_file(facts, "/etc/containerd/config.toml", DEBIAN_CONFIG)
    installed = dict(facts.installed)
    if variables.runtime_hook_archive:
        installed["hook"] = Installation(digest=variables.runtime_hook_digest, python=variables.runtime_hook_python)
    written = {each.path: make_file(each.content, each.mode) for each in variables.runtime_files}
    files = facts.files | written
    services = dict(facts.services)
    if variables.runtime_restart:
        files.pop(f"{RESTART_MARKS}/{variables.runtime_service}", None)
    if variables.runtime_service:
        services[variables.runtime_service] = RUNNING
    return replace(
        facts,
        installed=installed,
        files=files,
        services=services,
        engines={variables.runtime_engine: replace(_engine(facts, variables.runtime_engine), config_error=None)},
        selinux=_with_module(facts, variables.runtime_selinux),
    )


def _with_module(facts: NodeFacts, digest: str) -> SelinuxState | None:
    state = facts.selinux
    if state is None or not digest:
        return state
    return replace(state, module=digest, nodes=dict.fromkeys(state.nodes, GPU_TYPE))


def _engine(facts: NodeFacts, name: str) -> Engine:
    engine = facts.engines[name]
    assert engine is not None
    return engine


def _apply_tuning(facts: NodeFacts, variables: TuningVariables) -> NodeFacts:
    assert facts.kernel is not None
    written = {each.path: make_file(each.content, each.mode) for each in variables.tuning_files}
    forgotten = [TUNING_RECORD_PATH] if variables.tuning_forget else []
    kernel, values = facts.kernel, variables.tuning_values
    if NUMA_BALANCING in values:
        kernel = replace(kernel, numa_balancing=int(values[NUMA_BALANCING]))
    if HUGEPAGES in values:
        kernel = replace(kernel, hugepages=kernel.hugepages | {"2Mi": int(values[HUGEPAGES])})
    if variables.tuning_boot_id:
        kernel = replace(kernel, arguments=variables.tuning_boot_arguments)
        facts = replace(facts, node=replace(facts.node, boot_id=f"{variables.tuning_boot_id}+"))
    return replace(
        facts, files=facts.files | written | dict.fromkeys([*variables.tuning_absent, *forgotten]), kernel=kernel
    )


def _apply_kubelet(facts: NodeFacts, variables: KubeletVariables) -> NodeFacts:
    assert facts.kubelet is not None or not variables.kubelet_files
    written = {each.path: make_file(each.content, each.mode) for each in variables.kubelet_files}
    forgotten = [KUBELET_RECORD_PATH] if variables.kubelet_forget else []
    files = facts.files | written | dict.fromkeys([*variables.kubelet_absent, *forgotten])
    kubelet = facts.kubelet and replace(facts.kubelet, active="active", restart_due=False)
    return replace(facts, files=files, kubelet=kubelet)


def _apply_node_daemon(facts: NodeFacts, variables: NodeDaemonVariables) -> NodeFacts:
    installed = dict(facts.installed)
    if variables.node_daemon_archive:
        installed["node"] = Installation(digest=variables.node_daemon_digest, python=variables.node_daemon_python)
    texts = (*variables.node_daemon_mig_files, *variables.node_daemon_files)
    written = {each.path: make_file(each.content, each.mode) for each in texts}
    stopped = Service(load="loaded", active="inactive", enabled="disabled")
    service = RUNNING if variables.node_daemon_enabled else stopped
    is_service = variables.node_daemon_enabled and not variables.node_daemon_as_pod
    files = facts.files | written | dict.fromkeys(variables.node_daemon_absent)
    if variables.node_daemon_restart:
        files.pop(f"{RESTART_MARKS}/grapnel-node.service", None)
    if is_service:
        assert files[UNIT_PATH] is not None
    told = facts.gpu_settings and replace(facts.gpu_settings, changes=())
    services = facts.services | dict.fromkeys(variables.node_daemon_timers, service)
    services["grapnel-node.service"] = RUNNING if is_service else stopped
    return replace(facts, installed=installed, files=files, services=services, gpu_settings=told)


def as_json(facts: NodeFacts) -> dict[str, Any]:
    """Return facts as the module would."""
    return dict(json.loads(msgspec.json.encode(facts)))
