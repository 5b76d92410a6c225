"""A node that declares a runfile is handed its packages; what the file lacks is a problem of the plan."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lab.runfile import SmallDriver
from provision.apply.declarations import Declarations
from provision.apply.model import Assessment
from provision.apply.supply.rounds import Round, next_round
from provision.apply.supply.supply import Runfiles
from provision.planning.driver_change import PackageVersion
from provision.planning.node_plan import NodePlan
from tests.provision.apply.fakes import FakeFleet, context, facts_of
from tests.provision.apply.test_bundled import plan_of
from tests.provision.bundle.test_bundle import change_of
from tests.provision.samples import make_stack

if TYPE_CHECKING:
    from pathlib import Path

    from provision.apply.context import ApplyContext

VERSION = "550.54.15"
PACKAGES = ("nvidia-runfile", "nvidia-runfile-dkms")


class Operator:
    """Who declares a runfile, and plans and stages with it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "driver.run"
        self.digest = SmallDriver(VERSION, flavours=("proprietary",)).write(self.file)

    def context(self, **declared: Any) -> ApplyContext:
        runfile = {"path": str(self.file), "sha256": self.digest}
        stack = make_stack(driver={"source": "runfile", "version": VERSION, "runfile": runfile, **declared})
        made = context(FakeFleet({}), lambda node, _facts: NodePlan(node=node))
        stacks = Declarations({"n1": stack, "n2": stack})
        return replace(made, declarations=stacks, runfiles=Runfiles(self.folder / "cache"))

    def plan(self, *names: str, is_staged: bool = False) -> NodePlan:
        version = f"{VERSION}-1+r{self.digest[:8]}"
        packages = tuple(PackageVersion(name, version) for name in names or PACKAGES)
        return plan_of(msgspec.structs.replace(change_of(VERSION), packages=packages), is_staged=is_staged)


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(tmp_path)


def test_a_node_is_handed_the_packages_of_its_change_beside_its_package_sources(operator: Operator) -> None:
    made = operator.context()

    handover = made.handover(Assessment(facts_of("n1"), operator.plan()))

    assert handover is not None
    assert not handover.is_complete
    version = f"{VERSION}-1+r{operator.digest[:8]}"
    assert [file.place for file in handover.files] == [f"packages/{name}_{version}_amd64.deb" for name in PACKAGES]
    assert all(hashlib.sha256(file.source.read_bytes()).hexdigest() == file.sha256 for file in handover.files)


def test_what_is_staged_already_needs_no_file(operator: Operator) -> None:
    made = operator.context()
    operator.file.unlink()
    staged = operator.plan(is_staged=True)

    assert made.handover(Assessment(facts_of("n1"), staged)) is None
    assert made.judged(staged, facts_of("n1")) == staged


def test_a_good_file_is_no_problem_and_is_converted_once_for_all_nodes(operator: Operator) -> None:
    made = operator.context()
    plans = [operator.plan(), operator.plan()]
    assert made.judged(plans[0], facts_of("n1")) == plans[0]
    operator.file.unlink()

    assert made.judged(plans[1], facts_of("n2")) == plans[1]


@pytest.mark.parametrize(
    ("declared", "names", "words"),
    [
        pytest.param({"version": "550.163.01"}, PACKAGES, f"is driver {VERSION}", id="another version"),
        pytest.param(
            {},
            ("nvidia-runfile", "nvidia-runfile-open-dkms"),
            "has no open kernel module; it has: proprietary",
            id="flavour",
        ),
        pytest.param(
            {"runfile": {"path": "/nowhere/driver.run", "sha256": "0" * 64}}, PACKAGES, "no such file", id="no file"
        ),
    ],
)
def test_what_the_file_lacks_is_a_problem_of_the_plan(
    operator: Operator, declared: dict[str, Any], names: tuple[str, ...], words: str
) -> None:
    judged = operator.context(**declared).judged(operator.plan(*names), facts_of("n1"))

    (problem,) = judged.problems
    assert problem.code == "runfile-not-usable"
    assert words in problem.message
    assert problem.hint
    assert judged.roles.driver is None


def test_a_file_without_the_persistence_daemon_says_what_to_declare(operator: Operator) -> None:
    driver = SmallDriver(VERSION, flavours=("proprietary",))
    del driver.files["nvidia-persistenced"]
    driver.lines = [line for line in driver.lines if not line.startswith("nvidia-persistenced ")]
    operator.digest = driver.write(operator.file)

    judged = operator.context().judged(operator.plan(*PACKAGES, "nvidia-runfile-persistenced"), facts_of("n1"))

    assert judged.problems[0].hint == "declare driver.companions without persistenced"


@pytest.mark.parametrize("is_there", [True, False])
def test_a_playbook_s_round_hands_the_packages_over_or_says_why_not(operator: Operator, *, is_there: bool) -> None:
    if not is_there:
        operator.file.unlink()
    answers = {"n1": Assessment(facts_of("n1"), operator.plan())}

    found = next_round(operator.context(), answers, Round(), expects_more=False)

    assert set(found.handover) == ({"n1"} if is_there else set())
    assert set(found.refused) == (set() if is_there else {"n1"})
    if not is_there:
        assert "no such file or directory" in found.refused["n1"]
