"""What a kill, a second run and a node that changes leave of what is staged."""

from __future__ import annotations

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.driver.change import change_id
from ansible_collections.grapnel.node.plugins.module_utils.driver.judge.drift import still_fits

from tests.playbooks.staging.node import HOME, Node, Packages, change_of
from tests.playbooks.staging.sets import NEW, OLD, codes, staged


def test_a_damaged_set_is_made_good(node: Node) -> None:
    folder = staged(node, change_of())
    node.write(f"{folder}/packages/glx_1.2.deb", "rubbish")
    assert codes(node, change_of()) == ["not-staged"]

    again = node.stage(change_of())

    assert again.changed
    assert codes(node, change_of()) == []


class Killed(BaseException):
    """As if the process ended here."""


STEPS = [
    "resolve",
    f"fetch nvidia-dkms_{NEW}.deb",
    "dkms add",
    "dkms build",
    "dkms mktarball",
    "rehearse",
    "rehearse back",
]


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_leaves_no_set_and_the_next_run_makes_one(node: Node, step: str) -> None:
    def kill(at: str) -> None:
        if at == step:
            raise Killed

    node.interrupt = kill
    with pytest.raises(Killed):
        node.stage(change_of())
    assert codes(node, change_of()) == ["not-staged"]
    node.interrupt = lambda _: None

    staged(node, change_of())

    assert codes(node, change_of()) == []
    assert len(node.fetched) == len(set(node.fetched)), "what was downloaded is not downloaded again"
    assert not [name for name in node.host.names(f"{HOME}/staged") if name.startswith(".")]


def test_two_runs_do_not_stage_at_once(node: Node) -> None:
    inner: list[str] = []

    def also(at: str) -> None:
        if at == "resolve":
            node.interrupt = lambda _: None
            inner.extend(one.code for one in node.stage(change_of(OLD)).findings)

    node.interrupt = also

    result = node.stage(change_of())

    assert inner == ["staging-now"]
    assert result.complete


def test_old_sets_go_but_not_the_one_that_the_node_runs(node: Node) -> None:
    first, second, third = change_of(OLD), change_of(NEW, hold=False), change_of(NEW)
    staged(node, first)
    node.swap(first, change_id(first))
    staged(node, second)

    staged(node, third)

    assert set(node.host.names(f"{HOME}/staged")) == {change_id(first), change_id(third)}


@pytest.mark.parametrize(
    ("code", "happens"),
    [
        pytest.param("kernel-not-staged", lambda node: node.add_kernel("6.13.0-amd64"), id="a new kernel"),
        pytest.param("stale-way-back", lambda node: node.installed.update(libcuda1="999"), id="a package changed"),
    ],
)
def test_a_node_that_changed_meanwhile_is_noticed(node: Node, code: str, happens: object) -> None:
    staged(node, change_of())
    assert callable(happens)

    before = not still_fits(node.host, Packages(node).installed, change_id(change_of()))
    happens(node)

    assert codes(node, change_of()) == [code]
    assert (before, not still_fits(node.host, Packages(node).installed, change_id(change_of()))) == (False, True)


def test_a_half_done_swap_still_finds_its_set_good(node: Node) -> None:
    staged(node, change_of())
    node.installed["libcuda1"] = NEW

    assert codes(node, change_of()) == []
