"""Versions for declared branches, on nodes that know their package source, and on such as do not yet."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from plugin.settings.node_config import parse_config
from provision.apply.context import ApplyContext
from provision.apply.converge import assess
from provision.apply.declarations import Declarations
from provision.apply.model import Assessment
from provision.apply.playbooks import Playbooks
from provision.apply.runner import Event, RunFinished, RunRequest, RunStatus, TaskDone, TaskOutcome
from provision.declaration.fleet.facts.node import AvailablePackage
from provision.declaration.spec.model import GpuInterface
from provision.planning.driver.packages import repository
from provision.planning.driver.packages.catalogue import find_distribution
from provision.planning.node_plan import Problem, Role, Roles
from provision.planning.planner.drivers.choice import request_packages
from provision.planning.render.node_config import render_node_config
from tests.provision.apply.fakes import COLLECTION, Watcher
from tests.provision.samples import as_json, edit_file, make_facts, make_stack, plan, replace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec

KEY = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmQ==\n-----END PGP PUBLIC KEY BLOCK-----\n"
ELSEWHERE = {"source": "nvidia", "repository": {"url": "https://mirror.example/debian13", "key": KEY}}


@pytest.fixture
def stack() -> StackSpec:
    return make_stack(driver={"branch": "550", "version": None, "kernelModule": "none", **ELSEWHERE})


def with_source(stack: StackSpec) -> NodeFacts:
    """Return the facts of a node whose package source is the declared one."""
    facts = make_facts()
    distribution = find_distribution(facts.node)
    assert not isinstance(distribution, Problem)
    files = repository.render(distribution, stack.driver.source, stack.driver.repository)
    wanted = request_packages(facts, stack.driver, distribution)
    assert not isinstance(files, Problem)
    assert not isinstance(wanted, Problem)
    for file in files:
        facts = edit_file(facts, file.path, file.content)
    packages = {
        name: (AvailablePackage(version="550.163.01-1", source="nvidia-graphics-drivers"),)
        for name in wanted.request.roots
    }
    return replace(facts, available=packages)


def test_a_node_that_does_not_know_its_source_gets_it_first_and_its_version_then(stack: StackSpec) -> None:
    declarations = Declarations({"n1": stack})
    declarations.choose_versions({"n1": make_facts()})
    assert declarations.problems == {}
    first = plan(make_facts(), declarations.stacks["n1"])
    assert [item.target for item in first.items if item.role is Role.DRIVER and item.deferred] == [
        "driver of branch 550"
    ]
    assert first.problems == ()

    declarations.choose_versions({"n1": with_source(stack)})

    assert declarations.stacks["n1"].driver.version == "550.163.01"
    assert declarations.reasons["n1"] == "the newest version of branch 550"


def test_nodes_that_learn_their_source_one_after_the_other_get_one_version(stack: StackSpec) -> None:
    declarations = Declarations({"n1": stack, "n2": stack})
    declarations.choose_versions({"n1": with_source(stack), "n2": make_facts()})
    declarations.choose_versions({"n2": with_source(stack)})
    assert {each.driver.version for each in declarations.stacks.values()} == {"550.163.01"}
    assert declarations.reasons["n2"] == "the version of branch 550 that nodes with the same declaration were given"


def test_a_problem_is_gone_once_the_node_can_have_the_version(stack: StackSpec) -> None:
    declarations = Declarations({"n1": stack})
    declarations.choose_versions({"n1": replace(with_source(stack), available={})})
    assert declarations.problems["n1"].code == "branch-not-available"
    declarations.choose_versions({"n1": with_source(stack)})
    assert declarations.problems == {}


@dataclass
class ToldFacts:
    """A runner by which a node tells its facts."""

    facts: NodeFacts

    def run(self, request: RunRequest, _cancel: threading.Event) -> Iterator[Event]:
        told = json.dumps(as_json(self.facts)).encode()
        for name in request.nodes:
            yield TaskDone(name, "gather facts", TaskOutcome.OK, values={"facts": told})
        yield RunFinished(RunStatus.SUCCESSFUL)


def test_what_else_would_be_done_is_shown_beside_a_branch_without_a_version(stack: StackSpec) -> None:
    """A branch that no version could be chosen for hid every other change of the node."""
    declarations = Declarations({"n1": stack})
    facts = replace(with_source(stack), available={"containerd": make_facts().available["containerd"]})
    context = ApplyContext(
        runner=ToldFacts(facts),
        plan=lambda node, known, _cancel: plan(known, declarations.stacks[node]),
        playbooks=Playbooks(collection=COLLECTION),
        declarations=declarations,
    )

    answer = assess(context, ["n1"], Watcher(), threading.Event())["n1"]

    assert isinstance(answer, Assessment)
    assert [problem.code for problem in answer.plan.problems] == ["branch-not-available"]
    assert {item.role for item in answer.plan.items} == {Role.RUNTIME, Role.NODE_DAEMON}
    assert answer.plan.roles == Roles()


def test_what_only_one_interface_has_is_not_declared_with_the_other() -> None:
    """The daemon refuses such a configuration, so that no way led back to the interface before."""
    plugin = {"interface": "dra", "kubernetesApi": "/etc/kubernetes/kubelet.conf", "dynamicMig": True}
    declarations = Declarations({"n1": make_stack(plugin=plugin | {"computeDomains": True})})

    with declarations.with_interface("n1", GpuInterface.DEVICE_PLUGIN):
        config = parse_config(render_node_config(declarations.stacks["n1"]), "node.json")
        assert (config.interface, config.dynamic_mig, config.compute_domains) == ("devicePlugin", False, False)

    with declarations.with_interface("n1", None):
        assert declarations.stacks["n1"].plugin.dynamic_mig
    assert declarations.stacks["n1"].plugin.dynamic_mig
