"""``ansible-playbook playbooks/site.yml`` without the command line: the honest node gets the usual modules."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.attack.attacks import ATTACKS, HONEST, Harm
from tests.attack.stand_ins import CONTROLS, StandIns, name_of
from tests.journey.conftest import ROOT, Controller

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.attack.attacks import Attack

pytestmark = pytest.mark.functional

# What Ansible itself would take an order from; the names of variables are a table of `test_answers`.
TAKEN = (
    "the fact grapnel_plan",
    "the fact apply_plan",
    "the fact ansible_connection",
    "a host of its own",
    "a group of its own",
)
ORDERS = tuple(attack for attack in ATTACKS if attack.name in TAKEN)
SPEAKING = tuple(attack for attack in ATTACKS if attack.harm is Harm.TERMINAL and attack.is_told)


DECLARATION = """\
apiVersion: grapnel.dev/v1alpha1
kind: GpuStack
spec:
  driver: {enabled: false}
  runtime: {entitlement: env}
  plugin: {enabled: false}
"""


@dataclass(frozen=True)
class Played:
    """What a run printed, how each node fared, and what the honest one was asked for."""

    said: str
    recap: dict[str, str]
    asked: list[str]
    changed_files: dict[str, str]


def play(folder: Path, attacks: Iterable[Attack]) -> Played:
    """Run the playbook on the honest node and a node for each attack."""
    controller = Controller(folder)
    folder.joinpath("grapnel.yaml").write_text(DECLARATION)
    fleet = StandIns(controller)
    fleet.prepare(attacks)
    before = fleet.canaries()
    variables = {"grapnel_stack_file": str(folder / "grapnel.yaml"), "grapnel_wait_s": 0}
    argv = ["ansible-playbook", str(ROOT / "playbooks/site.yml"), "-i", "inventory.yaml", "--check", "--forks", "20"]
    done = controller.run(*argv, "-e", json.dumps(variables))
    recap = {line.split()[0]: line.partition(":")[2].strip() for line in done.stdout.splitlines() if " ok=" in line}
    asked = [module for module, _ in fleet.asked(HONEST)]
    return Played(done.stdout + done.stderr, recap, asked, dict(fleet.canaries().items() ^ before.items()))


@pytest.fixture(scope="module")
def peace(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """The honest node alone."""
    return play(tmp_path_factory.mktemp("peace"), ())


@pytest.fixture(scope="module")
def war(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """The honest node among nodes that give orders, and such as speak to the terminal."""
    return play(tmp_path_factory.mktemp("war"), (*ORDERS, *SPEAKING))


def test_the_honest_node_is_asked_what_it_always_is(peace: Played, war: Played) -> None:
    assert len(ORDERS) == len(TAKEN)
    assert "configuration" in peace.asked
    assert war.asked == peace.asked
    assert war.recap[HONEST] == peace.recap[HONEST]
    assert war.changed_files == {}


@pytest.mark.parametrize("attack", SPEAKING, ids=name_of)
def test_a_failure_is_the_failing_node_s_own(attack: Attack, war: Played) -> None:
    assert "failed=1" in war.recap[name_of(attack)]


def test_messages_of_nodes_do_not_speak_to_the_terminal(war: Played) -> None:
    assert set(CONTROLS.findall(war.said)) <= {"\t"}  # a column; diffs have them
