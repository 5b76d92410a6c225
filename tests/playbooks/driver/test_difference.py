"""What ``--diff`` shows of a driver change."""

from __future__ import annotations

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.driver.change import change_id
from ansible_collections.grapnel.node.plugins.module_utils.driver.installed import (
    describe_difference,
    describe_staging,
    is_done,
)
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import InstalledPackage

from tests.playbooks.driver.conftest import NEW, OLD, make_change


def test_a_swap_is_shown_with_what_the_node_has() -> None:
    change = make_change(NEW)
    installed = {"libcuda1": InstalledPackage(OLD, is_held=True)}

    diff = describe_difference(change, installed, OLD)

    assert diff["before"] == f"libcuda1 {OLD}\nkernel module nvidia {OLD}\n"
    assert f"kernel module nvidia {NEW}\n" in diff["after"]
    assert (diff["before_header"], diff["after_header"]) == ("driver", f"driver change {change_id(change)}")


def test_staging_is_shown_as_what_is_kept_ready_whatever_the_node_runs() -> None:
    change = make_change(NEW)

    diff = describe_staging(change)

    assert (diff["before"], diff["before_header"]) == ("", "not staged")
    assert diff["after"] == describe_difference(change, {}, OLD)["after"]


@pytest.mark.parametrize(
    ("verb", "state", "expected"),
    [
        ("swap", "done", True),
        ("swap", "returned", False),
        ("back", "done", True),
        ("back", "returned", True),
        ("back", "quarantined", False),
        ("remove", "returned", False),
    ],
)
def test_whether_a_verb_has_done_what_it_is_for(verb: str, state: str, expected: bool) -> None:  # noqa: FBT001 - a column
    assert is_done(verb, {"run": {"state": state}}) is expected
    assert not is_done(verb, {"run": None})
