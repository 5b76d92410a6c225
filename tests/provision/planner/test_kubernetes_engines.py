"""k3s, RKE2, k0s and microk8s: into which file our handler goes, which service restarts, when nothing is touched."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from provision.declaration.fleet.facts.node import Engine, Service
from provision.planning.engines.containerd.handler import BASE_SPEC_PATH
from provision.planning.engines.files.mark import without_block
from provision.planning.engines.kubernetes.template import BASE_TEMPLATE
from provision.planning.node_plan import Disruption
from provision.planning.planner.runtime.hand_edits import overwrite_edits
from provision.planning.render.hook_config import HOOK_CONFIG_PATH
from tests.provision.samples import (
    RUNNING,
    edit_file,
    make_facts,
    make_stack,
    plan,
    replace,
    simulate_apply,
    steps,
    text_of,
)

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.planning.node_plan import NodePlan

DATA = Path(__file__).parents[1] / "render/data/kubernetes"
K3S, RKE2 = "/var/lib/rancher/k3s/agent/etc/containerd", "/var/lib/rancher/rke2/agent/etc/containerd"
MICROK8S = "/var/snap/microk8s/current/args"
NONE = Service()

V2, V3 = "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"
OURS = {
    "runtime_type": "io.containerd.runc.v2",
    "base_runtime_spec": BASE_SPEC_PATH,
    "container_annotations": ["grapnel.dev/*"],
}
SYSTEMD = {"options": {"SystemdCgroup": True}}


def recorded(name: str) -> str:
    return (DATA / name).read_text()


def stack_of(engine: str, **runtime: object) -> Any:
    return make_stack(driver={"enabled": False}, runtime={"engine": engine, **runtime})


def node(engine: str, config: str, unit: str, files: dict[str, str]) -> NodeFacts:
    """Return a node on which a distribution runs, and nothing of grapnel is."""
    found = Engine(binary=f"/usr/local/bin/{engine}", version="1.35.2", config=config)
    facts = make_facts(engines={engine: found})
    for path, text in files.items():
        facts = edit_file(facts, path, text)
    return replace(facts, services={unit: replace(RUNNING, kill_mode="process")}, kubelet_engine=engine)


def k3s(name: str, unit: str = "k3s.service", **more: str) -> NodeFacts:
    return node("k3s", f"{K3S}/config.toml", unit, {f"{K3S}/config.toml": recorded(name), **more})


def handler_in(text: str) -> dict[str, Any]:
    ((plugin, table),) = tomllib.loads(text)["plugins"].items()
    return {"plugin": plugin, **table["containerd"]["runtimes"]["nvidia"]}


NODES: dict[str, tuple[NodeFacts, str, str, dict[str, Any]]] = {
    "k3s that imports drop-ins": (
        k3s("k3s-1.35-imports.toml"),
        f"{K3S}/config-v3.toml.d/99-nvidia.toml",
        "k3s.service",
        {"plugin": V3, **OURS, **SYSTEMD},
    ),
    "an agent of k3s": (
        k3s("k3s-1.35-imports.toml", "k3s-agent.service"),
        f"{K3S}/config-v3.toml.d/99-nvidia.toml",
        "k3s-agent.service",
        {"plugin": V3, **OURS, **SYSTEMD},
    ),
    "RKE2 with its data elsewhere": (
        node(
            "rke2",
            "/data/rke2/agent/etc/containerd/config.toml",
            "rke2-agent.service",
            {
                "/data/rke2/agent/etc/containerd/config.toml": recorded("k3s-1.35-imports.toml").replace(
                    "/var/lib/rancher/k3s", "/data/rke2"
                )
            },
        ),
        "/data/rke2/agent/etc/containerd/config-v3.toml.d/99-nvidia.toml",
        "rke2-agent.service",
        {"plugin": V3, **OURS, **SYSTEMD},
    ),
    "k3s with containerd 2 before it imported drop-ins": (
        k3s("k3s-1.32.toml"),
        f"{K3S}/config-v3.toml.tmpl",
        "k3s.service",
        {"plugin": V3, **OURS, **SYSTEMD},
    ),
    "k3s with containerd 1.7": (
        k3s("k3s-1.28.toml"),
        f"{K3S}/config.toml.tmpl",
        "k3s.service",
        {"plugin": V2, **OURS, **SYSTEMD},
    ),
    "RKE2 with containerd 1.7": (
        node(
            "rke2",
            f"{RKE2}/config.toml",
            "rke2-server.service",
            {f"{RKE2}/config.toml": recorded("k3s-1.28.toml")},
        ),
        f"{RKE2}/config.toml.tmpl",
        "rke2-server.service",
        {"plugin": V2, **OURS, **SYSTEMD},
    ),
    "k0s that merges by itself": (
        node(
            "k0s",
            "/etc/k0s/containerd.toml",
            "k0sworker.service",
            {
                "/etc/k0s/containerd.toml": recorded("k0s-1.27.toml"),
                "/run/k0s/containerd-cri.toml": recorded("k0s-1.27-merged.toml"),
            },
        ),
        "/etc/k0s/containerd.d/99-nvidia.toml",
        "k0sworker.service",
        {"plugin": V2, **OURS, "options": {"BinaryName": "", "SystemdCgroup": False}},
    ),
    "k0s with containerd 2, a controller that works": (
        node(
            "k0s",
            "/etc/k0s/containerd.toml",
            "k0scontroller.service",
            {"/etc/k0s/containerd.toml": recorded("k0s-1.36.toml")},
        ),
        "/etc/k0s/containerd.d/99-nvidia.toml",
        "k0scontroller.service",
        {"plugin": V3, **OURS},
    ),
    "microk8s": (
        node(
            "microk8s",
            f"{MICROK8S}/containerd.toml",
            "snap.microk8s.daemon-containerd.service",
            {f"{MICROK8S}/containerd-template.toml": recorded("microk8s-template.toml")},
        ),
        f"{MICROK8S}/containerd-template.toml",
        "snap.microk8s.daemon-containerd.service",
        {"plugin": V2, **OURS},
    ),
}


def of_engine(facts: NodeFacts) -> str:
    (name,) = facts.engines
    return name


def written(result: NodePlan, path: str) -> str:
    assert result.roles.runtime is not None
    return next(file.content for file in result.roles.runtime.runtime_files if file.path == path)


@pytest.mark.parametrize(("facts", "path", "unit", "handler"), NODES.values(), ids=NODES)
def test_the_handler_goes_where_the_distribution_takes_it_in(
    facts: NodeFacts, path: str, unit: str, handler: dict[str, Any]
) -> None:
    result = plan(facts, stack_of(of_engine(facts)))

    runtime = [step for step in steps(result.items) if step[1] not in {"node", "grapnel-node.service"}]
    assert result.problems == ()
    assert [step for step in runtime if "grapnel-node" not in step[1] and "node.json" not in step[1]] == [
        ("deploy", "hook"),
        ("write", HOOK_CONFIG_PATH),
        ("write", BASE_SPEC_PATH),
        ("write", path),
        ("restart", unit),
    ]
    text = written(result, path)
    assert handler_in(text.removeprefix(without_block(text))) == handler
    assert result.disruption is Disruption.RESTART_RUNTIME


@pytest.mark.parametrize(("facts", "path"), [(facts, path) for facts, path, _, _ in NODES.values()], ids=NODES)
def test_a_node_that_was_configured_needs_nothing_more(facts: NodeFacts, path: str) -> None:
    stack = stack_of(of_engine(facts))
    after = simulate_apply(facts, plan(facts, stack))

    assert plan(after, stack).is_empty
    assert text_of(after, path).count("base_runtime_spec") == 1


def test_nothing_but_the_handler_is_in_a_drop_in_so_that_an_upgrade_finds_nothing_outdated() -> None:
    facts, path, _, _ = NODES["k3s that imports drop-ins"]

    tree = tomllib.loads(written(plan(facts, stack_of("k3s")), path))

    assert tree == {"version": 3, "plugins": {V3: {"containerd": {"runtimes": {"nvidia": {**OURS, **SYSTEMD}}}}}}


def test_a_template_of_our_own_begins_with_k3ss_and_stays_the_way_after_an_upgrade_to_drop_ins() -> None:
    facts, path, _, _ = NODES["k3s with containerd 2 before it imported drop-ins"]
    after = simulate_apply(facts, plan(facts, stack_of("k3s")))
    assert text_of(after, path).startswith(BASE_TEMPLATE)
    block = text_of(after, path).removeprefix(BASE_TEMPLATE)

    upgraded = edit_file(after, f"{K3S}/config.toml", recorded("k3s-1.35-imports.toml") + block)

    assert plan(upgraded, stack_of("k3s")).is_empty


SITE_TEMPLATE = (
    f'{BASE_TEMPLATE}\n[plugins."{V2}".containerd.runtimes.runsc]\n  runtime_type = "io.containerd.runsc.v1"'
)


def test_somebodys_own_template_keeps_every_byte_above_our_block() -> None:
    facts = k3s("k3s-1.28.toml", **{f"{K3S}/config.toml.tmpl": SITE_TEMPLATE})

    result = plan(facts, stack_of("k3s"))

    text = written(result, f"{K3S}/config.toml.tmpl")
    assert without_block(text) == f"{SITE_TEMPLATE}\n"
    assert not any(".edited-" in target for _, target in steps(result.items))


def test_a_line_below_our_block_is_an_edit() -> None:
    facts = k3s("k3s-1.28.toml", **{f"{K3S}/config.toml.tmpl": SITE_TEMPLATE})
    stack = stack_of("k3s")
    after = simulate_apply(facts, plan(facts, stack))
    path = f"{K3S}/config.toml.tmpl"
    edited = edit_file(after, path, f"{text_of(after, path)}\n[debug]\nlevel = 'debug'\n")

    (problem,) = plan(edited, stack).problems

    assert problem.code == "hand-edited"
    forced = simulate_apply(edited, plan(edited, overwrite_edits(stack)))
    assert text_of(forced, path) == text_of(after, path)
    assert plan(forced, stack).is_empty


REFUSED: dict[str, tuple[NodeFacts, str, str]] = {
    "a handler that k3s made of NVIDIA's toolkit": (
        k3s("k3s-1.28-with-toolkit.toml"),
        "engine-config",
        f"{K3S}/config.toml has a handler 'nvidia' already: NVIDIA's runtime",
    ),
    "a service that never ran": (
        node("k3s", f"{K3S}/config.toml", "k3s.service", {}),
        "engine-config",
        "k3s has not written /var/lib/rancher/k3s/agent/etc/containerd/config.toml yet",
    ),
    "a configuration that is not TOML": (
        node("k3s", f"{K3S}/config.toml", "k3s.service", {f"{K3S}/config.toml": "version = 3\n[plugins\n"}),
        "engine-config",
        f"{K3S}/config.toml: expected ']' at the end of a table declaration (at line 2, column 9)",
    ),
    "version 1": (
        node("k3s", f"{K3S}/config.toml", "k3s.service", {f"{K3S}/config.toml": "[plugins.cri.containerd]\n"}),
        "engine-config",
        f"{K3S}/config.toml has version 1, to which no handler can be added",
    ),
    "a configuration that k0s leaves to people": (
        node(
            "k0s",
            "/etc/k0s/containerd.toml",
            "k0sworker.service",
            {"/etc/k0s/containerd.toml": recorded("k0s-1.36.toml").split("\n", 2)[2]},
        ),
        "engine-config",
        "/etc/k0s/containerd.toml is not managed by k0s, so files of /etc/k0s/containerd.d have no effect",
    ),
    "somebody's drop-in that has the handler": (
        k3s(
            "k3s-1.35-imports.toml",
            **{
                f"{K3S}/config-v3.toml.d/10-site.toml": (
                    f'[plugins."{V3}".containerd.runtimes.nvidia]\nruntime_type = "x"\n'
                )
            },
        ),
        "engine-config",
        "the runtime handler 'nvidia' already exists",
    ),
    "a service that systemd does not know": (
        replace(k3s("k3s-1.35-imports.toml"), services={"k3s.service": NONE}),
        "engine-service",
        "n1 has k3s, but systemd says that k3s.service is not-found",
    ),
    "no such program": (
        replace(k3s("k3s-1.35-imports.toml"), engines={"k3s": None}),
        "engine-missing",
        "n1 has no k3s, and debian has no package of it",
    ),
}


@pytest.mark.parametrize(("facts", "code", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_done_is_a_problem_and_touches_nothing(facts: NodeFacts, code: str, words: str) -> None:
    result = plan(facts, stack_of(of_engine(facts)))

    (problem,) = result.problems
    assert problem.code == code
    assert problem.message.startswith(words)
    assert problem.hint
    assert result.roles.runtime is None


def test_an_engine_that_the_kubelet_does_not_use_is_not_configured() -> None:
    facts = k3s("k3s-1.35-imports.toml")

    (problem,) = plan(facts, stack_of("containerd")).problems

    assert problem.code == "kubelet-uses-another-engine"
    assert problem.message == "the kubelet of n1 uses k3s, and runtime.engine is containerd"
    assert problem.hint == "declare runtime.engine: k3s for the group of this node"


@pytest.mark.parametrize(
    ("used", "runtime"),
    [
        pytest.param(None, {}, id="no kubelet that is known"),
        pytest.param("k3s", {"entitlement": "env"}, id="containers that no kubelet starts"),
    ],
)
def test_another_engine_than_the_kubelets_may_be_configured(used: str | None, runtime: dict[str, object]) -> None:
    facts = replace(make_facts(), kubelet_engine=used)

    codes = [problem.code for problem in plan(facts, stack_of("containerd", **runtime)).problems]

    assert "kubelet-uses-another-engine" not in codes


def test_a_restart_that_ends_containers_waits_until_they_have_left() -> None:
    facts = k3s("k3s-1.35-imports.toml")
    ending = replace(facts, services={"k3s.service": replace(RUNNING, kill_mode="control-group")})

    assert plan(ending, stack_of("k3s")).disruption is Disruption.DRAIN


def test_every_name_of_the_handler_is_in_the_drop_in() -> None:
    facts, path, _, _ = NODES["k3s that imports drop-ins"]

    text = written(plan(facts, stack_of("k3s", handlerAliases=["nvidia-cdi", "nvidia-legacy"])), path)

    runtimes = tomllib.loads(text)["plugins"][V3]["containerd"]["runtimes"]
    assert list(runtimes) == ["nvidia", "nvidia-cdi", "nvidia-legacy"]
    assert runtimes["nvidia"] == runtimes["nvidia-cdi"] == runtimes["nvidia-legacy"]
