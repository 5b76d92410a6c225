"""CRI-O as a node's engine: the same plan with other files, another unit, and no package to install."""

from __future__ import annotations

import pytest

from provision.declaration.fleet.facts.node import Engine, NodeFacts
from provision.planning.engines.crio import DROP_IN_PATH, HOOK_FILE_PATH
from provision.planning.node_plan import Disruption
from provision.planning.render.hook_config import HOOK_CONFIG_PATH
from tests.provision.samples import (
    PAYLOAD,
    RUNNING,
    edit_file,
    edit_service,
    make_facts,
    make_stack,
    plan,
    replace,
    simulate_apply,
    steps,
)

STACK = make_stack(driver={"enabled": False}, runtime={"engine": "crio"})
SITE = "/etc/crio/crio.conf.d/10-site.conf"
UNIT = "crio.service"


def bare(*, config_error: str | None = None, version: str = "1.36.3") -> NodeFacts:
    """Return a node on which CRI-O runs, and nothing of grapnel is."""
    engine = Engine(binary="/usr/bin/crio", version=version, config_error=config_error)
    facts = edit_file(
        make_facts(engines={"crio": engine}), SITE, '[crio.runtime.runtimes.crun]\nruntime_path = "/x/crun"\n'
    )
    return replace(facts, services={UNIT: RUNNING})


def configured() -> NodeFacts:
    """Return the node after everything was carried out."""
    facts = simulate_apply(bare(), plan(bare(), STACK))
    assert plan(facts, STACK).is_empty
    return facts


def test_hook_handler_and_restart_are_one_pass() -> None:
    result = plan(bare(), STACK)

    assert steps(result.items)[:5] == [
        ("deploy", "hook"),
        ("write", HOOK_CONFIG_PATH),
        ("write", HOOK_FILE_PATH),
        ("write", DROP_IN_PATH),
        ("restart", UNIT),
    ]
    assert not result.problems
    variables = result.roles.runtime
    assert variables is not None
    assert (variables.runtime_engine, variables.runtime_service, variables.runtime_packages) == ("crio", UNIT, ())
    assert variables.runtime_hook_archive == PAYLOAD.hook.path
    assert result.disruption is Disruption.RESTART_RUNTIME


@pytest.mark.parametrize(
    ("path", "content", "expected"),
    [
        pytest.param(DROP_IN_PATH, None, [("write", DROP_IN_PATH), ("restart", UNIT)], id="the drop-in is gone"),
        pytest.param(HOOK_FILE_PATH, "{}", [("write", HOOK_FILE_PATH)], id="CRI-O notices hook files by itself"),
        pytest.param(
            SITE,
            '[crio.runtime.runtimes.crun]\nruntime_path = "/y/crun"\n',
            [("write", DROP_IN_PATH), ("restart", UNIT)],
            id="the default runtime moved",
        ),
        pytest.param(
            SITE, "# crun's own\n[crio.runtime.runtimes.crun]\nruntime_path = '/x/crun'\n", [], id="another layout"
        ),
    ],
)
def test_drift_is_put_right_with_no_more_than_it_needs(
    path: str, content: str | None, expected: list[tuple[str, str]]
) -> None:
    assert steps(plan(edit_file(configured(), path, content), STACK).items) == expected


@pytest.mark.parametrize(
    ("path", "named"),
    [
        pytest.param("/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json", None, id="CRI-O's own folder"),
        pytest.param("/etc/containers/oci/hooks.d/gpu.json", None, id="the folder that our drop-in adds"),
        pytest.param("/opt/hooks/gpu.json", ["/opt/hooks"], id="a folder that the configuration names"),
    ],
)
@pytest.mark.parametrize("before", ["bare", "configured"])
def test_a_leftover_hook_file_of_nvidias_is_a_problem_with_its_remedy(
    before: str, path: str, named: list[str] | None
) -> None:
    facts = bare() if before == "bare" else configured()
    if named:
        facts = edit_file(facts, "/etc/crio/crio.conf", f"[crio.runtime]\nhooks_dir = {named}\n")

    result = plan(edit_file(facts, path, '{"hook": {"path": "/usr/bin/nvidia-container-runtime-hook"}}'), STACK)

    (problem,) = result.problems
    assert problem.code == "engine-config"
    assert problem.message.startswith(f"{path}: starts NVIDIA's hook for containers of CRI-O")
    assert problem.hint.startswith("remove it")
    assert result.roles.runtime is None


@pytest.mark.parametrize(
    ("path", "text"),
    [
        pytest.param("/opt/hooks/gpu.json", '{"hook": {"path": "/x/nvidia"}}', id="a folder that is not read"),
        pytest.param("/usr/share/containers/oci/hooks.d/a.json", '{"hook": {"path": "/x/other"}}', id="another hook"),
        pytest.param(HOOK_FILE_PATH, '{"hook": {"path": "/x/nvidia"}}', id="our own, which is put right"),
    ],
)
def test_any_other_hook_file_is_no_problem(path: str, text: str) -> None:
    assert not plan(edit_file(configured(), path, text), STACK).problems


def test_a_layout_of_our_own_file_is_written_without_a_restart() -> None:
    facts = configured()
    text = facts.content(DROP_IN_PATH)
    assert text is not None

    assert steps(plan(edit_file(facts, DROP_IN_PATH, f"# more\n{text}"), STACK).items) == [("write", DROP_IN_PATH)]


def test_crios_own_complaint_stands_in_the_way_once_nothing_of_ours_could_be_the_cause() -> None:
    facts = replace(configured(), engines=bare(config_error="level=fatal").engines)

    (problem,) = plan(facts, STACK).problems

    assert (problem.code, problem.hint) == ("engine-config", "fix it, then plan again; to see it: crio config")
    assert problem.message == "crio on n1 refuses its configuration: level=fatal"
    assert not plan(bare(config_error="level=fatal"), STACK).problems


@pytest.mark.parametrize(
    ("facts", "code", "message"),
    [
        pytest.param(bare(version="1.30.2"), "engine-config", "CRI-O 1.30.2 cannot tell the hook", id="too old"),
        pytest.param(
            edit_service(bare(), UNIT, load="not-found"), "engine-service", "crio.service is not-found", id="no unit"
        ),
    ],
)
def test_problems_name_crio(facts: NodeFacts, code: str, message: str) -> None:
    (problem,) = plan(facts, STACK).problems

    assert problem.code == code
    assert message in problem.message
