"""What a hostile node answers spoils its own row and nothing else: not the run, not the controller, not the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.attack.attacks import ATTACKS, HONEST
from tests.attack.conftest import GOOD_CODES
from tests.attack.stand_ins import CONTROLS, name_of

if TYPE_CHECKING:
    from tests.attack.attacks import Attack
    from tests.attack.conftest import Look

pytestmark = pytest.mark.functional


@pytest.mark.parametrize("attack", ATTACKS, ids=name_of)
def test_an_answer_spoils_its_own_row_alone(attack: Attack, outcomes: dict[str, Look], peace: Look) -> None:
    seen = outcomes[attack.name]
    own = seen.row(name_of(attack))

    assert seen.as_json.returncode in GOOD_CODES, seen.as_json.stderr
    assert seen.as_table.returncode in GOOD_CODES, seen.as_table.stderr
    assert seen.row(HONEST) == peace.row(HONEST)
    assert seen.changed_files == {}
    assert own
    assert not attack.is_told or "message" in own, own
    assert CONTROLS.findall(str(own)) == [] or own.keys() >= {"message"} or "reason" in str(own)


def test_all_attacks_at_once_leave_the_honest_node_as_it_is(war: Look, peace: Look) -> None:
    assert war.row(HONEST)
    assert war.row(HONEST) == peace.row(HONEST)
    assert war.changed_files == {}


def test_nothing_that_a_node_answers_speaks_to_the_terminal(war: Look) -> None:
    assert sorted(set(CONTROLS.findall(war.shown))) == []
