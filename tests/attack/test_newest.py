"""What a node says is no template, with the oldest ansible-core that is allowed and with the newest."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.attack.attacks import ATTACKS, HONEST, TEMPLATE, Harm
from tests.attack.newest import NewestController
from tests.attack.stand_ins import StandIns, name_of
from tests.journey.conftest import Controller

if TYPE_CHECKING:
    from tests.attack.attacks import Attack

pytestmark = pytest.mark.nodes  # the newest one runs in the nodes' base tree

TEMPLATES = tuple(attack for attack in ATTACKS if attack.harm is Harm.TEMPLATE or "tagged" in attack.name)
IN_A_FILE = "a template in an engine's configuration"
CONTROLLERS = {"the oldest": Controller, "the newest": NewestController}


@dataclass(frozen=True)
class Believed:
    """What a controller did with templates: rows by node, what it wrote, whether it rendered one."""

    rows: dict[str, dict[str, Any]]
    written: list[str]
    is_pwned: bool


@pytest.fixture(scope="module", params=CONTROLLERS)
def believed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Believed:
    """A plan of all nodes, and an apply on the one whose file has a template."""
    controller = CONTROLLERS[request.param](tmp_path_factory.mktemp("core"))
    controller.declare()
    fleet = StandIns(controller)
    fleet.prepare(TEMPLATES)
    planned = fleet.grapnel("plan", "--json")
    assert planned.returncode in (0, 1), planned.stderr
    document = json.loads(planned.stdout)
    target = next(name_of(attack) for attack in TEMPLATES if attack.name == IN_A_FILE)
    fleet.grapnel("apply", "--yes", target)
    given = [json.dumps(parameters) for module, parameters in fleet.asked(target) if module == "configuration"]
    rows = {row["node"]: row for row in (*document["plans"], *document["failures"])}
    return Believed(rows, given, fleet.pwned.exists())


def test_every_node_has_its_row(believed: Believed) -> None:
    assert believed.rows.keys() == {HONEST, *map(name_of, TEMPLATES)}
    assert believed.rows[HONEST]["items"]
    assert not believed.is_pwned


@pytest.mark.parametrize("attack", TEMPLATES, ids=name_of)
def test_a_template_is_text(attack: Attack, believed: Believed) -> None:
    row = json.dumps(believed.rows[name_of(attack)])

    assert "message" in row or "items" in row
    assert "{{ lookup(" in row or "touch" not in row


def test_a_template_in_a_file_is_written_as_it_was_read(believed: Believed) -> None:
    expected = TEMPLATE.partition("touch")[0]

    assert any(expected in text for text in believed.written), believed.written
