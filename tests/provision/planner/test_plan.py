"""What a node needs: the items, their order, their reasons and their price."""

from __future__ import annotations

import pytest

from provision.declaration.fleet.facts.node import (
    DeviceHolder,
    Engine,
    InstalledPackage,
)
from provision.planning.driver.packages.pins.apt import PIN_PATH
from provision.planning.driver_change import change_id
from provision.planning.engines.containerd.handler import BASE_SPEC_PATH
from provision.planning.engines.containerd.imports import DROP_IN_PATH, MAIN_PATH
from provision.planning.engines.files.hook import HOOK_PATH
from provision.planning.node_plan import Action, Disruption, NodePlan, Role
from provision.planning.planner.node_daemon import UNIT_PATH
from provision.planning.planner.plan import plan_node
from provision.planning.render.hook_config import HOOK_CONFIG_PATH
from provision.planning.render.node_config import NODE_CONFIG_PATH
from tests.provision.samples import (
    PAYLOAD,
    configured,
    edit_file,
    edit_service,
    make_facts,
    make_stack,
    plan,
    replace,
    simulate_apply,
    steps,
    text_of,
)

HOLDER = DeviceHolder(pid=4711, command="python3 train.py", devices=("/dev/nvidia0",))
DAEMON_HOLDER = DeviceHolder(pid=12, command="grapnel-node", devices=("/dev/nvidiactl",), unit="grapnel-node.service")


def test_a_bare_machine_gets_everything_in_order_and_nothing_that_runs_is_touched() -> None:
    result = plan(make_facts())

    change = result.roles.driver.driver_change if result.roles.driver else None
    closure = [package.name for package in change.packages] if change else []
    assert steps(result.items) == [
        ("deploy", "driver"),
        ("stage", "driver 550.163.01"),
        ("write", PIN_PATH),
        *(("install", name) for name in closure),
        ("hold", "driver packages"),
        ("install", "containerd"),
        ("deploy", "hook"),
        ("write", HOOK_CONFIG_PATH),
        ("write", BASE_SPEC_PATH),
        ("write", MAIN_PATH),
        ("write", DROP_IN_PATH),
        ("restart", "containerd.service"),
        ("deploy", "node"),
        ("write", NODE_CONFIG_PATH),
        ("write", UNIT_PATH),
        ("enable", "grapnel-node.service"),
    ]
    assert not any(item.deferred for item in result.items)
    assert result.disruption is Disruption.NONE
    assert result.problems == ()
    assert all(item.reason for item in result.items)


def test_the_first_pass_has_the_variables_of_every_role() -> None:
    roles = plan(make_facts()).roles

    assert roles.driver is not None
    assert roles.driver.driver_version == "550.163.01"
    assert roles.driver.driver_archive == PAYLOAD.driver.path
    assert (roles.driver.driver_stage, roles.driver.driver_swap) == (True, True)  # nobody can use a GPU
    change = roles.driver.driver_change
    assert change is not None
    assert roles.driver.driver_change_id == change_id(change)
    assert {package.version for package in change.packages} == {"550.163.01-2"}
    assert change.remove == ()
    assert [file.path for file in change.files] == [PIN_PATH]
    assert roles.runtime is not None
    assert roles.runtime.runtime_packages == ("containerd",)
    files = [file.path for file in roles.runtime.runtime_files]
    assert files == [HOOK_CONFIG_PATH, BASE_SPEC_PATH, MAIN_PATH, DROP_IN_PATH]
    assert roles.runtime.runtime_hook_archive == PAYLOAD.hook.path
    assert roles.runtime.runtime_restart
    assert roles.node_daemon is not None
    assert roles.node_daemon.node_daemon_archive == PAYLOAD.node.path
    assert roles.node_daemon.node_daemon_enabled
    assert not roles.node_daemon.node_daemon_restart


@pytest.mark.parametrize(
    ("kill_mode", "disruption"),
    [
        pytest.param("process", Disruption.RESTART_RUNTIME, id="as containerd ships it"),
        pytest.param("", Disruption.RESTART_RUNTIME, id="not told, by an older collection"),
        pytest.param("control-group", Disruption.DRAIN, id="systemd's default"),
        pytest.param("mixed", Disruption.DRAIN, id="the shims are killed"),
    ],
)
def test_a_restart_that_would_end_containers_takes_the_node_out_of_service(
    kill_mode: str, disruption: Disruption
) -> None:
    facts = edit_file(configured(), DROP_IN_PATH, None)
    facts = edit_service(facts, "containerd.service", kill_mode=kill_mode)

    restart = next(each for each in plan(facts).items if each.action is Action.RESTART)

    assert restart.disruption is disruption
    ends = f"its restart ends all containers: KillMode={kill_mode} of containerd.service"
    assert (ends in restart.reason) == (disruption is Disruption.DRAIN)


def test_a_node_that_is_as_declared_needs_nothing() -> None:
    assert plan(configured()) == NodePlan(node="n1")


def test_the_plan_bears_the_inventory_s_name() -> None:
    assert plan_node(configured(), make_stack(), PAYLOAD, name="gpu-07").node == "gpu-07"


def test_a_change_of_driver_names_every_package_and_restarts_the_daemon() -> None:
    facts = configured()

    result = plan(facts, make_stack(driver={"version": "535.309.01"}))

    downgrades = [item for item in result.items if item.action is Action.DOWNGRADE]
    assert [item.target for item in downgrades] == sorted(facts.packages)
    assert {(item.from_, item.to) for item in downgrades} == {("550.163.01-2", "535.309.01-0+deb12u1")}
    assert {item.reason for item in downgrades} == {"declared driver is 535.309.01"}
    assert steps(result.items)[:2] == [("stage", "driver 535.309.01"), ("write", PIN_PATH)]
    assert steps(result.items)[-1] == ("restart", "grapnel-node.service")
    assert result.disruption is Disruption.NONE  # no module is loaded: nobody can use a GPU


def test_a_change_of_driver_under_a_process_that_holds_a_gpu_needs_a_drain_and_names_it() -> None:
    facts = replace(configured(), device_holders=(DAEMON_HOLDER, HOLDER))

    result = plan(facts, make_stack(driver={"version": "535.309.01"}))

    assert result.disruption is Disruption.DRAIN
    package = next(item for item in result.items if item.target == "libcuda1")
    assert package.reason == "declared driver is 535.309.01; a GPU is held by python3 train.py (pid 4711)"


def test_the_daemon_itself_is_no_reason_to_drain() -> None:
    facts = replace(configured(), device_holders=(DAEMON_HOLDER,))

    assert plan(facts, make_stack(driver={"version": "535.309.01"})).disruption is Disruption.NONE


def test_adding_a_capability_disturbs_nobody() -> None:
    facts = replace(configured(), device_holders=(HOLDER,))

    result = plan(facts, make_stack(driver={"capabilities": ["compute", "utility", "video"]}))

    added = [item.target for item in result.items if item.action is Action.INSTALL]
    assert added == ["libnvcuvid1", "libnvidia-encode1", "libnvidia-opticalflow1"]
    assert result.disruption is Disruption.NONE


def test_what_else_is_installed_of_the_driver_moves_with_it_or_goes() -> None:
    extra = InstalledPackage(version="550.163.01-2", source="nvidia-graphics-drivers")
    facts = configured()
    facts = replace(facts, packages=facts.packages | {"libnvidia-gpucomp": extra, "nvidia-opencl-icd": extra})

    result = plan(facts, make_stack(driver={"version": "535.309.01"}))

    assert ("remove", "libnvidia-gpucomp") in steps(result.items)
    assert ("downgrade", "nvidia-opencl-icd") in steps(result.items)
    assert result.roles.driver is not None
    assert result.roles.driver.driver_change is not None
    assert result.roles.driver.driver_change.remove == ("libnvidia-gpucomp",)


def test_a_hold_that_is_not_wanted_is_taken_off() -> None:
    result = plan(configured(), make_stack(driver={"hold": False}))

    assert steps(result.items) == [("stage", "driver 550.163.01"), ("unhold", "driver packages")]


def test_a_driver_that_is_not_managed_is_left_alone() -> None:
    result = plan(make_facts(), make_stack(driver={"enabled": False}))

    assert not [item for item in result.items if item.role is Role.DRIVER]
    assert result.roles.driver is None


def test_a_plugin_that_is_switched_off_is_stopped_once() -> None:
    stack = make_stack(plugin={"enabled": False})
    facts = configured()

    result = plan(facts, stack)

    assert steps(result.items) == [("disable", "grapnel-node.service")]
    assert result.roles.node_daemon is not None
    assert not result.roles.node_daemon.node_daemon_enabled
    assert plan(simulate_apply(facts, result), stack).is_empty


def test_a_daemon_that_becomes_a_pod_keeps_its_files_and_timers_and_has_no_service() -> None:
    stack = make_stack(plugin={"daemon": "daemonset"})
    facts = configured()

    result = plan(facts, stack)

    assert steps(result.items) == [("disable", "grapnel-node.service")]
    assert result.disruption is Disruption.NONE
    assert result.roles.node_daemon is not None
    assert result.roles.node_daemon.node_daemon_as_pod
    assert result.roles.node_daemon.node_daemon_enabled
    after = simulate_apply(facts, result)
    assert plan(after, stack).is_empty
    assert ("enable", "grapnel-node.service") in steps(plan(after, make_stack()).items)


def test_a_new_node_of_a_daemon_in_a_pod_gets_no_unit_of_it() -> None:
    result = plan(make_facts(), make_stack(plugin={"daemon": "daemonset"}))

    targets = [item.target for item in result.items if item.role is Role.NODE_DAEMON]
    assert NODE_CONFIG_PATH in targets
    assert UNIT_PATH not in targets
    assert "grapnel-node.service" not in targets


def test_a_new_configuration_of_a_daemon_in_a_pod_starts_no_service() -> None:
    pod = {"daemon": "daemonset"}
    facts = simulate_apply(configured(), plan(configured(), make_stack(plugin=pod)))

    result = plan(facts, make_stack(plugin={**pod, "memoryUnits": [{}]}))

    assert {item.action for item in result.items} == {Action.WRITE}
    assert result.roles.node_daemon is not None
    assert result.roles.node_daemon.node_daemon_as_pod
    assert not result.roles.node_daemon.node_daemon_restart


def test_what_is_shared_is_written_before_the_file_that_names_it_and_once() -> None:
    stack = make_stack(plugin={"memoryUnits": [{}], "migStrategy": "mixed"})
    facts = configured()

    result = plan(facts, stack)

    assert [item.target for item in result.items if item.action is Action.WRITE] == [
        "/etc/grapnel/nvidia.json",
        NODE_CONFIG_PATH,
    ]
    assert plan(simulate_apply(facts, result), stack).is_empty


def test_the_daemon_reads_its_files_again_without_a_restart() -> None:
    stack = make_stack(plugin={"memoryUnits": [{}], "migStrategy": "mixed"})

    result = plan(configured(), stack)

    assert steps(result.items)[-1] == ("reload", "grapnel-node.service")
    assert result.disruption is Disruption.NONE
    assert result.roles.node_daemon is not None
    assert result.roles.node_daemon.node_daemon_restart
    assert result.roles.node_daemon.node_daemon_reload


@pytest.mark.parametrize("case", ["unit", "code", "interrupted"])
def test_what_a_reload_does_not_take_in_is_a_restart(case: str) -> None:
    stack = make_stack(plugin={"memoryUnits": [{}]})
    facts = configured()
    if case == "unit":
        facts = edit_file(facts, UNIT_PATH, "")
    elif case == "code":
        facts = replace(facts, installed={**facts.installed, "node": None})
    else:
        facts = edit_file(facts, "/run/grapnel/restart/grapnel-node.service", "")

    result = plan(facts, stack)

    assert ("restart", "grapnel-node.service") in steps(result.items)
    assert result.roles.node_daemon is not None
    assert not result.roles.node_daemon.node_daemon_reload


def test_a_unit_is_a_reload_where_the_hook_hands_out_devices() -> None:
    stack = make_stack(runtime={"entitlement": "env"})
    facts = edit_file(configured(stack), UNIT_PATH, "")

    assert plan(facts, stack).disruption is Disruption.RELOAD


def test_an_engine_configuration_is_only_restarted_into_when_the_engine_runs() -> None:
    facts = edit_file(configured(), DROP_IN_PATH, None)
    facts = edit_service(facts, "containerd.service", active="inactive")

    result = plan(facts)

    assert steps(result.items) == [("write", DROP_IN_PATH), ("start", "containerd.service")]
    assert result.disruption is Disruption.NONE


def test_a_broken_file_at_our_place_is_kept_and_replaced_although_the_engine_refuses_it() -> None:
    facts = edit_file(configured(), DROP_IN_PATH, "version = \n")
    broken = Engine(binary="/usr/bin/containerd", version="1.7.24", config_error="(1, 11): expecting a value")
    facts = replace(facts, engines={"containerd": broken})

    result = plan(facts)

    kept = "/etc/containerd/99-nvidia.toml.edited-7b8ef6ad"
    assert steps(result.items) == [("keep", kept), ("write", DROP_IN_PATH), ("restart", "containerd.service")]
    assert result.problems == ()


def test_the_hook_s_path_is_where_its_release_is_linked() -> None:
    facts = configured()

    assert HOOK_PATH in text_of(facts, BASE_SPEC_PATH)


def test_a_node_whose_gpus_are_released_is_named_and_left_as_it_is() -> None:
    released = edit_file(configured(), "/var/lib/grapnel/node/released.json", "{}")

    result = plan(released)

    assert result.is_empty
    assert [warning.code for warning in result.warnings] == ["gpus-released"]
    assert plan(configured()).warnings == ()


@pytest.mark.parametrize(
    ("unit", "newer", "remedy"),
    [
        ("containerd.service", DROP_IN_PATH, "`systemctl restart containerd.service`"),
        (
            "containerd.service",
            "/etc/systemd/system/containerd.service.d/limits.conf",
            "`systemctl daemon-reload && systemctl restart containerd.service`",
        ),
        ("grapnel-node.service", UNIT_PATH, "`systemctl daemon-reload && systemctl restart grapnel-node.service`"),
    ],
)
def test_a_service_that_runs_since_before_its_files_changed_is_told_and_left_alone(
    unit: str, newer: str, remedy: str
) -> None:
    facts = edit_service(configured(), unit, newer_files=(newer,))

    found = plan(facts)

    assert found.is_empty
    (warning,) = (each for each in found.warnings if each.code == "service-not-restarted")
    assert unit in warning.message
    assert newer in warning.message
    assert remedy in warning.hint


def test_of_a_service_that_is_restarted_anyway_nothing_more_is_said() -> None:
    facts = edit_service(configured(), "containerd.service", newer_files=(MAIN_PATH,))
    facts = edit_file(facts, DROP_IN_PATH, content="# grapnel\n")
    found = plan(facts, make_stack(runtime={"handEdits": "overwrite"}))
    assert ("restart", "containerd.service") in steps(found.items)
    assert not [each for each in found.warnings if each.code == "service-not-restarted"]


def test_a_service_that_is_not_declared_may_have_newer_files() -> None:
    facts = edit_service(configured(), "containerd.service", newer_files=(DROP_IN_PATH,))
    stack = make_stack(runtime={"enabled": False})
    assert not [each for each in plan(facts, stack).warnings if each.code == "service-not-restarted"]
