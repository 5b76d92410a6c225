"""`grapnel bundle`: what it prints, and how it refuses."""

from __future__ import annotations

import argparse
import json
import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING

from provision.apply.supply.collect import Collector
from provision.base.errors import ExitCode
from provision.cli import main
from provision.cli.around import bundle_collect
from provision.cli.around.bundle_collect import Wanted
from provision.declaration.fleet.facts.node import AvailablePackage
from provision.planning.supply.bundle.sets import Contents, StagedSet
from provision.planning.supply.bundle.write import write_bundle
from provision.planning.supply.payload import store
from tests.provision.apply.fakes import FakeFleet, Watcher, context, facts_of
from tests.provision.bundle.test_bundle import DEBIAN, KERNEL, NEW, change_of, staged_set
from tests.provision.samples import PAYLOAD, make_facts, make_stack, replace

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec
    from provision.planning.driver_change import DriverChange

KEY = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDMEZQAA\n-----END PGP PUBLIC KEY BLOCK-----\n"


def test_a_bundle_is_made_of_a_staged_set_and_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    staged = staged_set(tmp_path / "set", change_of())
    file = str(tmp_path / "drivers.bundle")

    made = main(["bundle", "create", file, "--set", f"{DEBIAN}={staged.folder}", "--drivers-only"])
    told = capsys.readouterr().out
    checked = main(["bundle", "verify", file])

    assert (made, checked) == (ExitCode.DONE, ExitCode.DONE)
    assert capsys.readouterr().out == told
    assert f"{DEBIAN}: driver {NEW} (proprietary), 2 packages, modules for: {KERNEL}" in told


def test_engines_of_a_bundle_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    contents = Contents()
    contents.add_engine(staged_set(tmp_path / "set", change_of()), "libcuda1")
    write_bundle(tmp_path / "engines.bundle", contents.sources, contents.listing("0.2.0"))

    assert main(["bundle", "verify", str(tmp_path / "engines.bundle")]) == ExitCode.DONE
    assert f"{DEBIAN}: engine libcuda1 {NEW}-2, 2 packages" in capsys.readouterr().out


def test_the_list_of_a_bundle_is_told_to_scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    staged = staged_set(tmp_path / "set", change_of())
    file = str(tmp_path / "drivers.bundle")

    main(["bundle", "create", file, "--set", f"{DEBIAN}={staged.folder}", "--drivers-only", "--json"])
    told = json.loads(capsys.readouterr().out)
    main(["bundle", "verify", file, "--json"])

    assert json.loads(capsys.readouterr().out) == told
    assert told["schema"] == "grapnel.dev/bundle/v1alpha1"
    assert [(driver["distribution"], driver["version"]) for driver in told["drivers"]] == [(DEBIAN, NEW)]


def test_a_damaged_bundle_is_told_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    staged = staged_set(tmp_path / "set", change_of())
    file = tmp_path / "drivers.bundle"
    main(["bundle", "create", str(file), "--set", f"{DEBIAN}={staged.folder}", "--drivers-only"])
    file.write_bytes(file.read_bytes().replace(b"libcuda1 550", b"libcuda1 551"))

    assert main(["bundle", "verify", str(file)]) == ExitCode.FAILED
    assert f"packages/libcuda1_{NEW}-2_amd64.deb at byte" in capsys.readouterr().err


def test_nodes_that_differ_in_their_kernels_alone_are_collected_for_once() -> None:
    wanted = Wanted()
    collector = Collector(
        context(FakeFleet({})), PAYLOAD.driver, "build1", facts_of("build1"), Watcher(), threading.Event()
    )

    declared = make_stack().driver
    wanted.add(collector, change_of(kernels=("6.12.1",)), declared)
    wanted.add(collector, change_of(kernels=("6.12.2", "6.12.1")), declared)
    wanted.add(collector, change_of("535.309.01", kernels=("6.12.3",)), declared)

    assert [(change.version, change.kernels) for _, change in wanted.all()] == [
        (NEW, ("6.12.1", "6.12.2")),
        ("535.309.01", ("6.12.3",)),
    ]


@dataclass
class Repositories:
    """A collecting node, whose sources have of CRI-O what the repository has that was written last."""

    node: str
    facts: NodeFacts
    minor: str = ""
    collected: list[str] = field(default_factory=list)

    def with_engine_source(self, stack: StackSpec) -> NodeFacts:
        self.minor = (stack.runtime.version or "").rpartition(".")[0]
        offered = AvailablePackage(version=f"{self.minor}.1-1", source="cri-o")
        return replace(self.facts, available={"cri-o": (offered,)})

    def collect(self, change: DriverChange, _folder: Path, *, with_modules: bool) -> StagedSet:
        assert not with_modules
        assert change.version.startswith(f"{self.minor}."), "the repository does not have it"
        self.collected.append(change.version)
        return StagedSet("debian-13", _folder)


def test_engines_of_two_repositories_are_collected_each_from_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CRI-O has one for each minor version, and the file that names it is written anew for each."""
    stacks = {
        name: make_stack(
            driver={"enabled": False},
            runtime={"engine": "crio", "source": "crio", "version": version, "repository": {"key": KEY}},
        )
        for name, version in (("n1", "1.36.1"), ("n2", "1.35.1"))
    }
    fleet = SimpleNamespace(nodes=[SimpleNamespace(name=name, stack=stack) for name, stack in stacks.items()])
    facts = {name: replace(make_facts(), available={}) for name in stacks}
    node = Repositories("n1", facts["n1"])
    args = argparse.Namespace(limit="", collectors=["n1"], payload=None, file=tmp_path, versions=[], flavour=None)
    made = context(FakeFleet({}))
    monkeypatch.setattr(bundle_collect, "build_context", lambda *_: made)
    monkeypatch.setattr(bundle_collect, "payload_folder", lambda *_: tmp_path)
    monkeypatch.setattr(store, "load_payload", lambda _folder: PAYLOAD)
    monkeypatch.setattr(bundle_collect, "load_fleet", lambda _args: fleet)
    monkeypatch.setattr(bundle_collect, "gather_facts", lambda *_: facts)
    monkeypatch.setattr(bundle_collect, "Collector", lambda *_: node)
    monkeypatch.setattr(Contents, "add_engine", lambda *_: None)

    bundle_collect.Creation(args, Contents(), ()).collect(tmp_path)

    assert sorted(node.collected) == ["1.35.1", "1.36.1"]


def test_a_bundle_of_nothing_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bundle", "create", str(tmp_path / "b"), "--drivers-only"]) == ExitCode.USAGE
    assert main(["bundle", "create", str(tmp_path / "b"), "--set", "debian-13"]) == ExitCode.USAGE
    assert "not DISTRIBUTION=DIR" in capsys.readouterr().err
    assert not (tmp_path / "b").exists()
