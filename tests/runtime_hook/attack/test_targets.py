"""Whatever an image has where the hook writes: nothing of the host changes, nothing is left half-made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runtime_hook.decision import Granted, decide
from runtime_hook.host.discovery import discover
from runtime_hook.host.hosttree import HostTree
from runtime_hook.inputs.bundle import parse_container
from runtime_hook.inputs.config import load_config
from tests.runtime_hook.attack.conftest import FURTHER
from tests.runtime_hook.attack.hostile import FOLDER_TARGETS, KINDS, LINKS, TARGETS
from tests.runtime_hook.attack.rounds import CONTAINER, Scene, breaches
from tests.runtime_hook.nodes import LAYOUT
from tests.sampled import every_second

if TYPE_CHECKING:
    from tests.runtime_hook.attack.rounds import Ground

pytestmark = pytest.mark.functional

ROUNDS = 30


def test_an_image_without_malice_gets_its_gpu(ground: Ground) -> None:
    (only,) = ground.play(Scene("an honest image"))
    assert (only.outcome, only.breaches) == ("done", []), only.text


def test_an_image_without_malice_gets_everything_that_is_attacked(ground: Ground) -> None:
    host, settings = discover(HostTree(str(ground.driver.root))), load_config(ground.arguments[1], trusted=False)
    asking = parse_container({**CONTAINER, "root": {"path": "/root"}}, "/bundle")
    decision = decide(asking, settings, lambda: host, lambda _: LAYOUT)

    assert isinstance(decision, Granted)
    planned = " ".join(operation.describe() for operation in decision.plan)
    for place in ("/run/udev/data on", "/etc/cufile.json on", *(f"/dev/{name} " for name in FURTHER)):
        assert place in planned
    assert "give " not in planned, "something is not on this host"


def test_a_root_that_hands_mounts_on_to_the_host_is_refused(ground: Ground) -> None:
    (only,) = ground.play(Scene("a shared root", shares=True))
    assert (only.outcome, only.breaches) == ("refused", []), only.text
    assert "shared mount" in only.text


@pytest.mark.parametrize("kind", [*LINKS, *KINDS])
def test_no_target_leads_to_the_host(ground: Ground, kind: str) -> None:
    played = ground.play(*(Scene(target, target, kind) for target in TARGETS))
    assert len(played) == len(TARGETS)
    assert breaches(played) == []


@pytest.mark.parametrize("target", every_second(list(TARGETS)))
def test_swapping_a_target_while_the_hook_works_never_reaches_the_host(ground: Ground, target: str) -> None:
    """As a process with the same root does: what is there and a link to the host change places all the time."""
    kinds = ["an absolute link", "a climbing link"] if target in FOLDER_TARGETS else ["an absolute link", "a hard link"]
    played = ground.play(*(Scene(kind, target, kind, swaps=True, rounds=ROUNDS) for kind in kinds))
    assert len(played) == ROUNDS * len(kinds)
    assert breaches(played) == []
