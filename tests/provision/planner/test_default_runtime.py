"""A handler that is renamed or dropped while somebody's default runtime names it: said before anything is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from provision.planning.engines.containerd.configuration import render_containerd
from provision.planning.engines.containerd.imports import MAIN_PATH
from provision.planning.render.errors import EngineConfigError
from tests.provision.planner import test_crio, test_docker
from tests.provision.planner.test_kubernetes_engines import K3S, V2, V3, k3s, recorded
from tests.provision.samples import DEBIAN_CONFIG, edit_file, make_facts, make_stack, plan, simulate_apply, text_of

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec

TABLE = '[plugins."{plugin}".containerd]\n  default_runtime_name = "nvidia-legacy"\n'


def stack_of(engine: str, **runtime: object) -> StackSpec:
    return make_stack(driver={"enabled": False}, runtime={"engine": engine, **runtime})


def configured(facts: NodeFacts, engine: str) -> NodeFacts:
    """Return a node whose handler has a second name."""
    stack = stack_of(engine, handlerAliases=["nvidia-legacy"])
    after = simulate_apply(facts, plan(facts, stack))
    assert plan(after, stack).is_empty
    return after


def with_default(engine: str) -> tuple[NodeFacts, str]:
    """Return a node whose administrator made the second name the default, and the place of that line."""
    if engine == "crio":
        site = test_crio.SITE
        facts = test_crio.bare()
        said = '[crio.runtime]\ndefault_runtime = "nvidia-legacy"\n'
        return configured(edit_file(facts, site, said + text_of(facts, site)), engine), f"{site}:2"
    if engine == "k3s":
        path, text = f"{K3S}/config.toml", recorded("k3s-1.35-imports.toml")
        facts = edit_file(k3s("k3s-1.35-imports.toml"), path, text + TABLE.format(plugin=V3))
        return configured(facts, engine), f"{path}:{text.count(chr(10)) + 2}"
    facts = edit_file(make_facts(), MAIN_PATH, DEBIAN_CONFIG + TABLE.format(plugin=V2))
    after = configured(facts, engine)
    lines = text_of(after, MAIN_PATH).splitlines()
    return after, f"{MAIN_PATH}:{lines.index(TABLE.splitlines()[1]) + 1}"


@pytest.mark.parametrize("engine", ["containerd", "crio", "k3s"])
@pytest.mark.parametrize(
    "runtime",
    [pytest.param({}, id="an alias is dropped"), pytest.param({"handler": "gpu"}, id="the handler is renamed")],
)
def test_a_default_runtime_that_would_have_no_handler_is_told_with_its_line(
    engine: str, runtime: dict[str, Any]
) -> None:
    """The engine came up without its CRI plugin, after its node was drained."""
    facts, place = with_default(engine)

    result = plan(facts, stack_of(engine, **runtime))

    (problem,) = result.problems
    assert problem.message.startswith(place)
    assert problem.message.endswith("has 'nvidia-legacy' as default runtime, and no handler of that name is left")
    assert problem.hint.endswith("or keep it: runtime.handlerAliases: [nvidia-legacy]")
    assert result.roles.runtime is None


@pytest.mark.parametrize("engine", ["containerd", "crio", "k3s"])
def test_a_name_that_is_kept_is_in_nobodys_way(engine: str) -> None:
    facts, _ = with_default(engine)

    assert plan(facts, stack_of(engine, handler="gpu", handlerAliases=["nvidia-legacy"])).problems == ()


def test_the_last_of_containerds_files_says_which_is_the_default() -> None:
    main = 'version = 3\nimports = ["/etc/containerd/conf.d/*.toml"]\n'
    others = {"/etc/containerd/conf.d/10-site.toml": f"version = 3\n{TABLE.format(plugin=V3)}"}
    runc = TABLE.format(plugin=V3).replace("nvidia-legacy", "runc")
    later = {"/etc/containerd/conf.d/20-site.toml": f"version = 3\n{runc}"}

    with pytest.raises(EngineConfigError, match=r"10-site\.toml:3 has 'nvidia-legacy' as default runtime"):
        render_containerd(main=main, drop_ins=others, handlers=("nvidia",), engine_version="2.1.0")
    assert render_containerd(main=main, drop_ins={**others, **later}, handlers=("nvidia",), engine_version="2.1.0")


def test_docker_keeps_a_name_that_is_no_longer_declared() -> None:
    facts = test_docker.with_docker()
    before = make_stack(**test_docker.NO_KUBELET, runtime={"engine": "docker", "entitlement": "env"})
    after = simulate_apply(facts, plan(facts, before))
    renamed = make_stack(**test_docker.NO_KUBELET, runtime={"engine": "docker", "entitlement": "env", "handler": "gpu"})

    text = text_of(simulate_apply(after, plan(after, renamed)), test_docker.MAIN_PATH)

    assert '"nvidia": {' in text
    assert '"gpu": {' in text
