"""Runs the attacks: a fleet of fake nodes with one hostile node per attack, planned in one run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.attack.attacks import ATTACKS, HONEST, Harm
from tests.attack.configurations import CONFIGURATIONS
from tests.attack.further import FURTHER
from tests.attack.stand_ins import StandIns, name_of
from tests.journey.conftest import Controller

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence
    from pathlib import Path

    from tests.attack.attacks import Attack

ALL = (*ATTACKS, *CONFIGURATIONS, *FURTHER)
SPEAKING = (Harm.ANOTHER_NODE, Harm.TERMINAL)
GOOD_CODES = (0, 1)  # every node has its result, good or bad


@dataclass(frozen=True)
class Look:
    """The output of `grapnel plan` for a fleet, as JSON and as text, and the files that it left behind."""

    as_json: subprocess.CompletedProcess[str]
    as_table: subprocess.CompletedProcess[str]
    changed_files: dict[str, str]
    rows: dict[str, list[dict[str, Any]]]

    @property
    def shown(self) -> str:
        """Everything that reached a terminal, or a pipe."""
        runs = (self.as_json, self.as_table)
        return "".join(text for run in runs for text in (run.stdout, run.stderr))

    def row(self, node: str) -> dict[str, Any]:
        """Return the plan or the failure of a node; it has one of them, and only one."""
        (row,) = self.rows.get(node, [{}])
        return row


def look(folder: Path, attacks: Sequence[Attack]) -> Look:
    """Plan a fleet of the honest node and one node for each attack; people see those that might speak to a terminal."""
    controller = Controller(folder)
    controller.declare()
    fleet = StandIns(controller)
    fleet.prepare(attacks)
    before = fleet.canaries()
    as_json = fleet.grapnel("plan", "--json")
    speaking = [name_of(attack) for attack in attacks if attack.harm in SPEAKING]
    as_table = fleet.grapnel("plan", ",".join([HONEST, *speaking]))
    changed = dict(fleet.canaries().items() ^ before.items())
    return Look(as_json, as_table, changed, _rows(as_json))


def _rows(done: subprocess.CompletedProcess[str]) -> dict[str, list[dict[str, Any]]]:
    rows: dict[str, list[dict[str, Any]]] = {}
    if done.returncode in GOOD_CODES and done.stdout:
        document = json.loads(done.stdout)
        for row in (*document["plans"], *document["failures"]):
            rows.setdefault(row["node"], []).append(row)
    return rows


@pytest.fixture(scope="session")
def peace(tmp_path_factory: pytest.TempPathFactory) -> Look:
    """The honest node among nobody."""
    return look(tmp_path_factory.mktemp("peace"), ())


@pytest.fixture(scope="session")
def war(tmp_path_factory: pytest.TempPathFactory) -> Look:
    """The honest node among all attacks at once."""
    return look(tmp_path_factory.mktemp("war"), ALL)


@pytest.fixture(scope="session")
def outcomes(war: Look, peace: Look, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Look]:
    """The plan run for each attack: the common one, or a separate one if that one failed."""
    is_good = war.row(HONEST) == peace.row(HONEST) and not war.changed_files
    if is_good:
        return {attack.name: war for attack in ALL}
    return {attack.name: look(tmp_path_factory.mktemp(name_of(attack)[:40]), [attack]) for attack in ALL}
