"""The command line starts the unit once, watches it, and tells what became of it; what is wrong is told at once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.driver.program import main
from ansible_collections.grapnel.node.plugins.module_utils.driver.record import run as run_record
from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.unit import UNIT
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished, Host

from tests.playbooks.driver.conftest import NEW, OLD, make_change, put_driver, stage
from tests.playbooks.driver.killing import KilledError, Killer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.steps import Node

    from tests.playbooks.driver.conftest import Staged
    from tests.playbooks.driver.machines import FakeMachine


class Systemd:
    """Runs what it is told to in a unit, which ends at the next look at it, or the one after that."""

    def __init__(self, staged: Staged, *, looks: int = 1, dies_at: int = -1) -> None:
        self.staged, self.looks, self.dies_at = staged, looks, dies_at
        self.started: list[list[str]] = []

    def node(self) -> Node:
        from dataclasses import replace  # noqa: PLC0415 - one use

        node = self.staged.node()
        inner = node.host

        def run(arguments: Sequence[str], timeout_s: float) -> Finished:
            words = list(arguments)
            if words[0] == "systemd-run":
                self.started.append(words[words.index("run") :])
                return Finished(0)
            if words[0] == "systemctl" and UNIT in words:
                return Finished(0, "active\n" if self._is_active() else "inactive\n")
            return inner.run(arguments, timeout_s)

        return replace(node, host=Host(inner.root, run))

    def _is_active(self) -> bool:
        if not self.started:
            return False
        if self.looks:
            self.looks -= 1
            return True
        if self.started[-1]:
            words, self.started[-1] = self.started[-1], []
            try:
                self.staged.run(words[1], Killer(self.dies_at))
            except KilledError:
                return False
        return False


def call(systemd: Systemd, *words: str) -> int:
    return main(list(words), systemd.node())


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return dict(json.loads(capsys.readouterr().out))


def test_a_swap_runs_in_its_unit_and_is_waited_for(upgrade: Staged, capsys: pytest.CaptureFixture[str]) -> None:
    systemd = Systemd(upgrade, looks=3)

    code = call(systemd, "swap", upgrade.id)

    said = printed(capsys)
    assert code == 0
    assert (said["run"]["state"], said["current"], said["active"]) == ("done", upgrade.id, False)
    assert said["staged"] == [{"id": upgrade.id, "version": NEW, "complete": True, "cost": {}}]
    upgrade.assert_has(NEW, held=True)


def test_a_swap_that_went_back_is_not_done(upgrade: Staged, capsys: pytest.CaptureFixture[str]) -> None:
    upgrade.machine.unloadable = {NEW}

    code = call(Systemd(upgrade), "swap", upgrade.id)

    assert code == 1
    assert printed(capsys)["run"]["state"] == "returned"
    upgrade.assert_has(OLD, held=False)


def test_a_swap_that_needs_a_reboot_says_so_and_goes_on_after_it(
    fake: FakeMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    put_driver(fake, OLD)
    staged = stage(fake, make_change(NEW, reboot=True), make_change(OLD, files=(), services=()))
    fake.pinned = {"nvidia"}
    fake.show()
    systemd = Systemd(staged)

    asked = call(systemd, "swap", staged.id)
    said = capsys.readouterr()
    rebooted = call(systemd, "reboot")
    fake.reboot()
    code = call(systemd, "swap", staged.id)

    assert (asked, rebooted, code) == (1, 0, 0)
    assert "the node has to reboot: kernel module 535.309.01 is in use" in said.err
    assert json.loads(said.out)["run"]["state"] == "needs-reboot"
    assert "systemctl --no-block reboot" in fake.calls
    staged.assert_has(NEW, held=True)


def test_a_reboot_that_nothing_waits_for_is_refused(upgrade: Staged, capsys: pytest.CaptureFixture[str]) -> None:
    upgrade.run("swap")

    assert call(Systemd(upgrade), "reboot") == 1
    assert "no driver change waits for a reboot of this node" in capsys.readouterr().err


def test_whoever_waits_too_long_is_told_that_it_goes_on(upgrade: Staged, capsys: pytest.CaptureFixture[str]) -> None:
    code = call(Systemd(upgrade, looks=10_000), "swap", upgrade.id, "--timeout", "5")

    assert code == 1
    assert "`swap` still runs after 5 s, and goes on" in capsys.readouterr().err


def test_a_second_call_watches_the_run_that_goes_on(upgrade: Staged, capsys: pytest.CaptureFixture[str]) -> None:
    systemd = Systemd(upgrade, looks=10_000)
    call(systemd, "swap", upgrade.id, "--timeout", "5")
    host = upgrade.machine.host()
    record = run_record.RunRecord("20260101T000000Z-x", upgrade.id, "swap", UNIT)
    run_record.write_run(host, record)
    capsys.readouterr()
    systemd.looks = 2

    code = call(systemd, "swap", upgrade.id)

    assert code == 0
    assert len(systemd.started) == 1
    assert printed(capsys)["run"]["run"] == record.run


def test_another_verb_waits_for_the_run_that_goes_on(upgrade: Staged, capsys: pytest.CaptureFixture[str]) -> None:
    systemd = Systemd(upgrade, looks=10_000)
    call(systemd, "swap", upgrade.id, "--timeout", "5")
    capsys.readouterr()

    assert call(systemd, "back", "--timeout", "5") == 1
    told = capsys.readouterr().err
    systemd.looks = 3
    assert call(systemd, "back") == 0

    assert "another run changes the driver of this node now, and still does after 5 s" in told
    assert printed(capsys)["run"]["verb"] == "back"
    assert len(systemd.started) == 2
    upgrade.assert_has(OLD, held=False)


def test_what_goes_back_by_itself_meanwhile_is_not_gone_back_from_again(
    upgrade: Staged, capsys: pytest.CaptureFixture[str]
) -> None:
    upgrade.machine.unloadable = {NEW}
    systemd = Systemd(upgrade, looks=10_000)
    call(systemd, "swap", upgrade.id, "--timeout", "5")
    capsys.readouterr()
    systemd.looks = 3

    assert call(systemd, "back") == 0

    run = printed(capsys)["run"]
    assert (run["verb"], run["state"]) == ("swap", "returned")
    assert len(systemd.started) == 1
    upgrade.assert_has(OLD, held=False)


def test_the_way_back_from_a_swap_that_was_cut_short_is_done(
    upgrade: Staged, capsys: pytest.CaptureFixture[str]
) -> None:
    call(Systemd(upgrade, dies_at=60), "swap", upgrade.id)
    capsys.readouterr()

    assert call(Systemd(upgrade), "back") == 0

    assert printed(capsys)["run"]["state"] == "returned"
    upgrade.assert_has(OLD, held=False)


def test_a_unit_that_was_killed_is_told_and_continued(upgrade: Staged, capsys: pytest.CaptureFixture[str]) -> None:
    killed = call(Systemd(upgrade, dies_at=40), "swap", upgrade.id)
    said = capsys.readouterr().err
    continued = call(Systemd(upgrade), "swap", upgrade.id)

    assert (killed, continued) == (1, 0)
    assert "`swap` has ended without a result" in said
    assert printed(capsys)["run"]["state"] == "done"


def test_what_is_not_staged_is_refused_without_a_unit(upgrade: Staged, capsys: pytest.CaptureFixture[str]) -> None:
    systemd = Systemd(upgrade)

    assert call(systemd, "swap", "0" * 12) == 1
    assert systemd.started == []
    assert "driver change 000000000000 is not staged on this node: stage it first" in capsys.readouterr().err


def test_a_check_names_what_is_in_the_way_and_changes_nothing(
    upgrade: Staged, capsys: pytest.CaptureFixture[str]
) -> None:
    good = call(Systemd(upgrade), "check", upgrade.id)
    assert printed(capsys) == {"change": upgrade.id, "problems": []}
    upgrade.machine.packages["libcuda1"].version = "1"
    upgrade.machine.show()

    bad = call(Systemd(upgrade), "check", upgrade.id)

    assert (good, bad) == (0, 1)
    assert (
        "stale-way-back: packages were changed after the change was staged: libcuda1" in printed(capsys)["problems"][0]
    )
    assert upgrade.machine.changes() == []


def test_a_check_before_the_release_does_not_count_the_node_daemon(
    upgrade: Staged, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = upgrade.machine
    for pid, command, unit in ((640, "grapnel-node", "grapnel-node.service"), (641, "train", "job.service")):
        machine.write(f"proc/{pid}/comm", f"{command}\n")
        machine.write(f"proc/{pid}/cgroup", f"0::/system.slice/{unit}\n")
        machine.write(f"proc/{pid}/maps")
        (machine.root / f"proc/{pid}/fd").mkdir()
        (machine.root / f"proc/{pid}/fd/3").symlink_to("/dev/nvidia0")

    call(Systemd(upgrade), "check", upgrade.id)
    (now,) = printed(capsys)["problems"]
    call(Systemd(upgrade), "check", upgrade.id, "--before-release")
    (later,) = printed(capsys)["problems"]

    assert "grapnel-node (pid 640" in now
    assert later == "the driver is in use: train (pid 641, job.service) has /dev/nvidia0 open"


def test_verify_tells_what_has_drifted(upgrade: Staged, capsys: pytest.CaptureFixture[str]) -> None:
    upgrade.run("swap")
    good = call(Systemd(upgrade), "verify")
    capsys.readouterr()
    upgrade.machine.packages["libcuda1"].held = False
    upgrade.machine.show()

    assert (good, call(Systemd(upgrade), "verify")) == (0, 1)
    assert printed(capsys)["differences"] == ["package libcuda1 is not held"]


@pytest.mark.parametrize(
    "words",
    [["swap"], ["swap", "a", "b"], ["back", "a"], ["walk"], ["status", "now"], ["swap", "--timeout"], ["run", "walk"]],
    ids=" ".join,
)
def test_a_wrong_command_line_is_told_with_the_right_ones(
    words: list[str], upgrade: Staged, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(Systemd(upgrade), *words) == 2
    assert "usage: grapnel-driver VERB" in capsys.readouterr().err


def test_help_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "continues a run that was cut short" in capsys.readouterr().out
