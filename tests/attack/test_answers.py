"""What a hostile node answers spoils its own row and nothing else: not the run, not the controller, not the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.attack.attacks import HONEST
from tests.attack.configurations import DROP_IN, PASSWORD, PASSWORDS, WRAPPERS
from tests.attack.conftest import ALL, GOOD_CODES
from tests.attack.stand_ins import CONTROLS, name_of

if TYPE_CHECKING:
    from tests.attack.attacks import Attack
    from tests.attack.conftest import Look

pytestmark = pytest.mark.functional


@pytest.mark.parametrize("attack", ALL, ids=name_of)
def test_an_answer_spoils_its_own_row_alone(attack: Attack, outcomes: dict[str, Look], peace: Look) -> None:
    seen = outcomes[attack.name]
    own = seen.row(name_of(attack))

    assert seen.as_json.returncode in GOOD_CODES, seen.as_json.stderr
    assert seen.as_table.returncode in GOOD_CODES, seen.as_table.stderr
    assert seen.row(HONEST) == peace.row(HONEST)
    assert seen.changed_files == {}
    assert own
    assert not attack.is_told or "message" in own, own


def test_all_attacks_at_once_leave_the_honest_node_as_it_is(war: Look, peace: Look) -> None:
    assert war.row(HONEST)
    assert war.row(HONEST) == peace.row(HONEST)
    assert war.changed_files == {}


def test_nothing_that_a_node_answers_speaks_to_the_terminal(war: Look) -> None:
    assert sorted(set(CONTROLS.findall(war.shown))) == []


def written(seen: Look, attack: Attack) -> dict[str, dict[str, str]]:
    """Return the files that a node's plan writes for the engine, by path."""
    files = seen.row(name_of(attack)).get("roles", {}).get("runtime", {}).get("runtime_files", ())
    return {file["path"]: file for file in files}


def test_a_password_is_not_copied_to_where_others_read_it(outcomes: dict[str, Look]) -> None:
    drop_in = written(outcomes[PASSWORDS.name], PASSWORDS)[DROP_IN]

    assert PASSWORD not in drop_in["content"] or drop_in["mode"] == "0600"


@pytest.mark.parametrize("attack", WRAPPERS, ids=name_of)
def test_another_vendor_s_wrapper_is_not_inherited(attack: Attack, outcomes: dict[str, Look]) -> None:
    files = written(outcomes[attack.name], attack)
    handler = files[DROP_IN]["content"].partition("runtimes.nvidia")[2] if DROP_IN in files else ""

    assert "nvidia-container-runtime" not in handler
