"""Rounds that a playbook carries out come to what `grapnel apply` comes to: two nodes of a kind build."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import msgspec

from provision.apply.converge import assess, stage
from provision.apply.model import Assessment
from provision.apply.supply.rounds import Round, next_round
from provision.planning.supply.builds.errors import BuildsError
from provision.planning.supply.builds.shelf import Shelf
from tests.provision.apply.fakes import Watcher
from tests.provision.apply.workshop import Machine, Workshop, evil_for, workshop_context
from tests.provision.builds.samples import KERNEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from provision.apply.context import ApplyContext
    from provision.planning.supply.builds.model import ModuleBuild


class Play:
    """A play that stages the nodes of a batch as its rounds say; a node whose task fails has no more tasks."""

    def __init__(self, fleet: Workshop, folder: Path, declared: Mapping[str, object] | None = None) -> None:
        self.fleet, self.folder = fleet, folder
        self.declared = {name: declared or {} for name in fleet.nodes}
        self.notes: list[str] = []
        self.last = Round()

    def run(self, batch: Iterable[str], *, expects_more: bool = False) -> None:
        """Carry out all rounds, then stage whoever is left; each round is another process."""
        states = {name: one for name, one in self._assess(batch).items() if isinstance(one, Assessment)}
        for _ in range(20):
            supply = self._context()
            before = msgspec.json.decode(msgspec.json.encode(self.last), type=Round)
            self.last = next_round(supply, states, before, expects_more=expects_more)
            self.notes += self.last.notes
            if not self.last.providers:
                break
            for node, builds in self.last.providers.items():
                self._stage(supply, states, node)
                self._keep(node, builds if node in states else ())
        for node in list(states):
            self._stage(supply, states, node)

    def _context(self) -> ApplyContext:
        return workshop_context(self.fleet, self.folder, declared=self.declared)

    def _assess(self, nodes: Iterable[str]) -> Mapping[str, object]:
        return assess(self._context(), tuple(nodes), Watcher(), threading.Event())

    def _stage(self, context: ApplyContext, states: dict[str, Assessment], node: str) -> None:
        driver = states[node].plan.roles.driver
        if driver is not None and driver.driver_stage:
            handed = {one["place"] for one in self.last.handover.get(node, [])}
            done = stage(context, node, states[node], Watcher(), threading.Event())
            assert set(self.fleet.machine(node).handed) == handed
            if isinstance(done, Assessment):
                states[node] = done
            else:
                del states[node]

    def _keep(self, node: str, builds: Iterable[ModuleBuild]) -> None:
        context, shelf = self._context(), Shelf(self.folder)
        for build in builds:
            with shelf.partial_folder() as folder:
                request = context.playbooks.built_module(node, build, folder / "given", 1 << 20)
                list(context.runner.run(request, threading.Event()))
                try:
                    shelf.keep(build, node, folder / "given", self.last.machines[node])
                except BuildsError as error:
                    self.notes.append(f"{node}: {error.message}")


def fleet_of(**nodes: Machine) -> Workshop:
    return Workshop(dict(nodes))


def test_two_nodes_build_and_the_others_are_handed_what_both_came_to(tmp_path: Path) -> None:
    fleet = fleet_of(n1=Machine(), n2=Machine(), n3=Machine(), n4=Machine())
    play = Play(fleet, tmp_path / "shelf")

    play.run(fleet.nodes)

    assert fleet.built() == {"n1": [KERNEL], "n2": [KERNEL]}
    of = f"builds driver 550.163.01 (proprietary) for kernel {KERNEL}, compared with that of"
    assert play.notes == [f"n1 {of} n2, for n3, n4", f"n2 {of} n1, for n3, n4"]


def test_where_two_differ_each_node_builds_its_own_and_both_are_named(tmp_path: Path) -> None:
    fleet = fleet_of(n1=Machine(), n2=Machine(gives=evil_for(KERNEL)), n3=Machine(), n4=Machine())
    play = Play(fleet, tmp_path / "shelf")

    play.run(fleet.nodes)

    assert list(fleet.built()) == ["n1", "n2", "n3", "n4"]
    assert play.notes[-1].endswith("since n1 and n2 have built different modules (nvidia-current.ko)")


def test_one_machine_under_several_names_is_no_second_word(tmp_path: Path) -> None:
    fleet = fleet_of(**{f"n{number}": Machine(machine="twin") for number in range(1, 5)})

    Play(fleet, tmp_path / "shelf").run(fleet.nodes)

    assert list(fleet.built()) == list(fleet.nodes)


def test_a_later_run_hands_out_what_was_kept(tmp_path: Path) -> None:
    Play(fleet_of(n1=Machine(), n2=Machine(), n3=Machine()), tmp_path / "shelf").run(("n1", "n2", "n3"))
    fleet = fleet_of(n1=Machine(), n4=Machine())
    play = Play(fleet, tmp_path / "shelf")

    play.run(["n4"])

    assert fleet.built() == {}
    assert play.notes == [f"n1, n2 built earlier driver 550.163.01 (proprietary) for kernel {KERNEL}, for n4"]


def test_what_two_of_a_batch_have_built_is_for_later_batches_as_well(tmp_path: Path) -> None:
    fleet = fleet_of(**{f"n{number}": Machine() for number in range(1, 6)})
    play = Play(fleet, tmp_path / "shelf")

    play.run(["n1", "n2", "n3"], expects_more=True)
    play.run(["n4", "n5"])

    assert fleet.built() == {"n1": [KERNEL], "n2": [KERNEL]}


def test_the_only_nodes_of_a_batch_are_not_believed_by_later_ones(tmp_path: Path) -> None:
    fleet = fleet_of(n1=Machine(), n2=Machine(), n3=Machine())
    play = Play(fleet, tmp_path / "shelf")

    play.run(["n1", "n2"], expects_more=True)
    play.run(["n3"])

    assert list(fleet.built()) == ["n1", "n2", "n3"]


def test_a_declared_builder_of_the_first_batch_builds_for_later_ones(tmp_path: Path) -> None:
    fleet = fleet_of(n1=Machine(), n2=Machine())
    play = Play(fleet, tmp_path / "shelf", {"builder": "n1"})

    play.run(["n1"], expects_more=True)
    play.run(["n2"])

    assert fleet.built() == {"n1": [KERNEL]}
    assert play.notes[0].endswith("for later nodes")


def test_a_single_node_is_asked_for_nothing(tmp_path: Path) -> None:
    fleet = fleet_of(n1=Machine())
    play = Play(fleet, tmp_path / "shelf")

    play.run(["n1"])

    assert fleet.built() == {"n1": [KERNEL]}
    assert not (tmp_path / "shelf").exists()


def test_another_node_builds_where_the_first_cannot(tmp_path: Path) -> None:
    fleet = fleet_of(n1=Machine(broken="stage"), n2=Machine(), n3=Machine(), n4=Machine())

    Play(fleet, tmp_path / "shelf").run(fleet.nodes)

    assert fleet.built() == {"n2": [KERNEL], "n3": [KERNEL]}
    assert fleet.machine("n4").handed


def test_what_a_node_gives_is_refused_and_the_next_one_builds(tmp_path: Path) -> None:
    fleet = fleet_of(n1=Machine(gives={"../../etc/cron.d/x": b"x"}), n2=Machine(), n3=Machine(), n4=Machine())
    play = Play(fleet, tmp_path / "shelf")

    play.run(fleet.nodes)

    assert list(fleet.built()) == ["n1", "n2", "n3"]
    assert any("its archive of built modules was refused" in note for note in play.notes)


def test_after_three_failures_every_node_builds_its_own(tmp_path: Path) -> None:
    names = ("n1", "n2", "n3", "n4", "n5")
    fleet = fleet_of(**{name: Machine(broken="give") for name in names})
    play = Play(fleet, tmp_path / "shelf")

    play.run(fleet.nodes)

    assert list(fleet.built()) == list(names)
    assert play.notes[-1].endswith("for itself, since n1, n2, n3, n4 did not provide it")


def test_a_declared_builder_builds_and_nobody_else(tmp_path: Path) -> None:
    fleet = fleet_of(n1=Machine(), n2=Machine(), n3=Machine())

    Play(fleet, tmp_path / "shelf", {"builder": "n2"}).run(fleet.nodes)

    assert fleet.built() == {"n2": [KERNEL]}


def test_nodes_that_are_to_build_their_own_do(tmp_path: Path) -> None:
    fleet = fleet_of(n1=Machine(), n2=Machine())

    Play(fleet, tmp_path / "shelf", {"build": "each"}).run(fleet.nodes)

    assert fleet.built() == {"n1": [KERNEL], "n2": [KERNEL]}
