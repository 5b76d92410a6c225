"""An attack that harms nobody proves nothing: each one spoils a reader who believes what a node prints."""

from __future__ import annotations

import pytest

from tests.attack import naive
from tests.attack.attacks import ATTACKS, Attack, Harm
from tests.attack.conftest import ALL
from tests.attack.further import FURTHER
from tests.attack.hostile_python import tamper
from tests.attack.stand_ins import name_of, recorded

BELIEVED = (*ATTACKS, *FURTHER)  # of containerd's files he believes nothing: only the planner reads them


@pytest.mark.slow
@pytest.mark.parametrize("attack", BELIEVED, ids=name_of)
def test_an_attack_harms_whoever_believes_it(attack: Attack) -> None:
    output = tamper(recorded(naive.SENDER), attack.to_json())

    assert attack.harm in naive.harm(output, attack.error)


def test_an_honest_answer_harms_nobody() -> None:
    assert naive.harm(tamper(recorded(naive.SENDER), {})) == {Harm.PLAUSIBLE}


def test_attacks_have_names_of_their_own() -> None:
    assert len({name_of(attack) for attack in ALL}) == len(ALL)
