"""The default runtime's base specification is inherited, followed when it changes, and written once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from provision.planning.drift.compare import differences_of
from provision.planning.drift.model import DriftKind
from provision.planning.engines.containerd.base_spec import base_spec
from provision.planning.engines.containerd.handler import BASE_SPEC_PATH
from provision.planning.engines.containerd.imports import MAIN_PATH
from provision.planning.node_plan import Disruption
from provision.planning.render.hook_config import HOOK_TIMEOUT_S
from tests.provision.planner.test_kubernetes_engines import K3S, k3s, recorded, stack_of
from tests.provision.samples import (
    DEBIAN_CONFIG,
    configured,
    edit_file,
    edit_file_state,
    make_facts,
    plan,
    simulate_apply,
    steps,
    text_of,
)

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts

SPEC = "/etc/containerd/cri-base.json"
RUNC = '[plugins."{}".containerd.runtimes.runc]\nruntime_type = "io.containerd.runc.v2"\nbase_runtime_spec = "{}"\n'
CONFIG = f"{DEBIAN_CONFIG}{RUNC.format('io.containerd.grpc.v1.cri', SPEC)}"
HOOKS = base_spec(hook_timeout_s=HOOK_TIMEOUT_S)["hooks"]


def spec(limit: int = 65536, **more: Any) -> dict[str, Any]:
    """Return a specification with a limit on open files, and no hook unless ``more`` has some."""
    tree = {**base_spec(hook_timeout_s=1), "hooks": {}, **more}
    tree["process"] = tree["process"] | {"rlimits": [{"type": "RLIMIT_NOFILE", "hard": limit, "soft": limit}]}
    return tree


def node(text: str, facts: NodeFacts | None = None) -> NodeFacts:
    """Return a configured node whose default runtime names a base specification."""
    facts = edit_file(configured() if facts is None else facts, MAIN_PATH, CONFIG)
    return edit_file(facts, SPEC, text)


def applied(facts: NodeFacts) -> NodeFacts:
    planned = plan(facts)
    assert planned.problems == ()
    after = simulate_apply(facts, planned)
    assert plan(after).is_empty
    return after


def test_ours_is_the_default_s_with_our_hook() -> None:
    after = applied(node(json.dumps(spec())))

    assert json.loads(text_of(after, BASE_SPEC_PATH)) == {**spec(), "hooks": HOOKS}
    assert plan(after).warnings == ()


def test_a_default_s_that_changes_is_followed_once_and_the_plan_says_why() -> None:
    before = applied(node(json.dumps(spec())))
    planned = plan(edit_file(before, SPEC, json.dumps(spec(1024))))

    assert steps(planned.items) == [("write", BASE_SPEC_PATH), ("restart", "containerd.service")]
    assert planned.items[0].reason == (
        f"{BASE_SPEC_PATH} differs from what follows from {SPEC}, that of the default runtime"
    )
    assert planned.items[1].disruption is Disruption.RESTART_RUNTIME
    assert [(each.kind, each.reason) for each in differences_of(planned)] == [(DriftKind.FILE, planned.items[0].reason)]
    after = applied(edit_file(before, SPEC, json.dumps(spec(1024))))
    assert json.loads(text_of(after, BASE_SPEC_PATH)) == {**spec(1024), "hooks": HOOKS}


def test_another_layout_of_the_same_changes_nothing() -> None:
    before = applied(node(json.dumps(spec())))

    assert plan(edit_file(before, SPEC, json.dumps(spec(), indent=4) + "\n")).is_empty


def test_a_default_without_a_specification_has_containerd_s_own_again() -> None:
    before = applied(node(json.dumps(spec())))
    after = applied(edit_file(before, MAIN_PATH, DEBIAN_CONFIG))

    assert json.loads(text_of(after, BASE_SPEC_PATH)) == base_spec(hook_timeout_s=HOOK_TIMEOUT_S)


def test_ours_may_be_read_by_nobody_who_may_not_read_the_default_s() -> None:
    facts = edit_file_state(node(json.dumps(spec())), SPEC, mode="0600")
    after = simulate_apply(facts, plan(facts))

    state = after.file(BASE_SPEC_PATH)
    assert state is not None
    assert state.mode == "0600"


def test_hooks_of_the_default_s_are_a_warning() -> None:
    hooks = {"createContainer": [{"path": "/kind/bin/mount-product-files.sh"}]}
    planned = plan(node(json.dumps(spec(hooks=hooks))))

    (warning,) = planned.warnings
    assert (planned.problems, warning.code) == ((), "base-spec-brings")
    assert "createContainer /kind/bin/mount-product-files.sh. Containers with GPUs get them as well" in warning.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", f"{SPEC}: not JSON: "),
        (json.dumps(spec(linux={"resources": {"devices": [{"allow": True}]}})), "gives containers no mount namespace"),
    ],
)
def test_a_default_s_that_is_not_taken_changes_nothing(text: str, words: str) -> None:
    planned = plan(node(text))

    (problem,) = planned.problems
    assert problem.code == "engine-config"
    assert words in problem.message
    assert problem.hint
    assert BASE_SPEC_PATH not in [item.target for item in planned.items]


def test_facts_that_do_not_have_the_file_are_told() -> None:
    """Such as those of an older collection, or of a path that is not absolute."""
    (problem,) = plan(edit_file(configured(), MAIN_PATH, CONFIG)).problems

    assert problem.message == f"{SPEC}, the base specification of the default runtime, was not read on the node"


def test_a_site_s_file_is_inherited_before_the_engine_is_there() -> None:
    after = applied(node(json.dumps(spec()), make_facts()))

    assert json.loads(text_of(after, BASE_SPEC_PATH)) == {**spec(), "hooks": HOOKS}


def test_that_of_a_distribution_s_containerd_is_inherited() -> None:
    config, stack = f"{K3S}/config.toml", stack_of("k3s")
    named = f'runtimes.runc]\nbase_runtime_spec = "{SPEC}"\n'
    text = recorded("k3s-1.35-imports.toml").replace("runtimes.runc]\n", named)
    facts = edit_file(edit_file(k3s("k3s-1.35-imports.toml"), config, text), SPEC, json.dumps(spec()))
    after = simulate_apply(facts, plan(facts, stack))

    assert plan(after, stack).is_empty
    assert json.loads(text_of(after, BASE_SPEC_PATH)) == {**spec(), "hooks": HOOKS}
