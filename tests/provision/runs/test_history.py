"""What past runs left of each node, as `grapnel status` tells it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from provision.planning.node_plan import Action, Item, Problem, Role
from provision.report.console import make_console
from provision.report.history import render_history
from provision.report.runs import events as happened
from provision.report.runs.history import History, history_of, last_words
from provision.report.terminal import show
from tests.provision.runs.story import at, began, ended, report_of

if TYPE_CHECKING:
    from provision.report.runs.model import RunReport


def report(run: str, verb: str, *results: tuple[str, str, bool], planned: happened.Planned | None = None) -> RunReport:
    first = happened.Began(
        **{
            **{name: getattr(began(), name) for name in ("time", "schema", "by", "grapnel", "inventory", "nodes")},
            "run": run,
            "command": (verb,),
        }
    )
    nodes = [ended(node, result, is_good=is_good) for node, result, is_good in results]
    plans = [] if planned is None else [planned]
    return report_of([first, *plans, *nodes, happened.Ended(time=at(60), exit_code=0)])


NEWEST = report("r3", "stage", ("n1", "staged", True))
BACK = report("r2", "rollback", ("n2", "returned", True))
APPLY = report("r1", "apply", *((f"n{number}", "converged", True) for number in (1, 2)), ("n3", "failed", False))


def test_the_newest_word_about_a_node_counts_and_staging_is_none() -> None:
    history = history_of([NEWEST, BACK, APPLY])

    assert history.last is NEWEST
    assert {name: (one.run, one.result) for name, one in history.nodes.items()} == {
        "n1": ("r1", "converged"),
        "n2": ("r2", "returned"),
        "n3": ("r1", "failed"),
    }
    assert history.as_declared == ["n1"]


def test_a_run_that_did_not_reach_a_node_says_nothing_of_it() -> None:
    waited = report("r4", "apply", ("n1", "waiting", False), ("n2", "declined", True))
    assert history_of([waited, APPLY]).nodes["n1"].run == "r1"


def applied(run: str, *items: Item, result: str = "converged", verb: str = "apply", is_good: bool = True) -> RunReport:
    return report(run, verb, ("n1", result, is_good), planned=happened.Planned(time=at(1), nodes=("n1",), items=items))


STAGED = Item(role=Role.DRIVER, action=Action.STAGE, target="driver 550.163.01", to="sha256:ab", reason="r")
LOADED = Item(role=Role.DRIVER, action=Action.LOAD, target="nvidia", to="550.163.01", reason="r")
UPGRADED = Item(
    role=Role.DRIVER, action=Action.UPGRADE, target="libcuda1", from_="535.1", to="550.163.01-1", reason="r"
)
ENGINE = Item(role=Role.RUNTIME, action=Action.WRITE, target="/etc/x", reason="r")


@pytest.mark.parametrize(
    ("reports", "driver"),
    [
        ([applied("r1", STAGED, LOADED, ENGINE)], "550.163.01"),
        ([applied("r1", STAGED, UPGRADED)], "550.163.01"),
        ([applied("r2", ENGINE), applied("r1", LOADED)], "550.163.01"),
        ([applied("r2", result="unchanged"), applied("r1", LOADED)], "550.163.01"),
        ([applied("r2", verb="reboot", result="rebooted"), applied("r1", LOADED)], "550.163.01"),
        ([applied("r2", verb="remove", result="removed"), applied("r1", LOADED)], ""),
        ([applied("r2", verb="rollback", result="returned"), applied("r1", LOADED)], ""),
        ([applied("r2", ENGINE, result="failed", is_good=False), applied("r1", LOADED)], ""),
        ([applied("r2", UPGRADED), applied("r1", LOADED)], ""),
        ([applied("r1", ENGINE)], ""),
    ],
    ids=[
        "loaded",
        "staged and swapped",
        "something else later",
        "nothing later",
        "rebooted later",
        "removed later",
        "rolled back later",
        "failed later",
        "another one later that is not named",
        "no driver in it",
    ],
)
def test_the_driver_that_a_run_left_is_known_while_nothing_came_after_it(reports: list[RunReport], driver: str) -> None:
    told = last_words(history_of(reports))["n1"]

    assert told.driver == (f"{driver}, as the run of {at(60):%Y-%m-%d %H:%M} UTC left it" if driver else "")


def test_what_a_person_sees() -> None:
    out = io.StringIO()
    show(make_console(out, width=100), render_history(history_of([BACK, APPLY]), ["n1", "n2", "n3", "n4"], at(3600)))

    assert [line.rstrip() for line in out.getvalue().splitlines()] == [
        "",
        "last run: rollback by ada@control, 1h00m ago: succeeded (1 returned)",
        "  `grapnel report r2` says what happened",
        "last applied: 1 of 4 nodes as declared then",
        "  n2  returned by rollback, 59m00s ago",
        "  n3  failed by apply, 59m00s ago",
        "    do: mend what is reported, then run the command again: what is done already is not done twice",
        "    `grapnel apply`",
        "  n4  in no run that is kept",
    ]


def test_edited_files_come_with_the_command_that_overwrites_them() -> None:
    edited = Problem(
        code="hand-edited", message="it was edited", hint="have it overwritten by --force, or undo the edit"
    )
    run = happened.Planned(time=at(1), nodes=("n1",), problems=(edited,))
    refused = report("r5", "apply", ("n1", "refused", False), planned=run)

    out = io.StringIO()
    show(make_console(out, width=100), render_history(history_of([refused]), ["n1"], at(3600)))
    assert [line.rstrip() for line in out.getvalue().splitlines()][-3:] == [
        "  n1  refused by apply, 59m00s ago",
        "    do: have it overwritten by --force, or undo the edit",
        "    `grapnel apply n1 --force`",
    ]


def test_without_runs_nothing_is_said() -> None:
    assert list(render_history(History(), ["n1"], at(0))) == []
