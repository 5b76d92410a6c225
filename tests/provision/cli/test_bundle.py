"""`grapnel bundle`: what it prints, and how it refuses."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

from provision.apply.supply.collect import Collector
from provision.base.errors import ExitCode
from provision.cli import main
from provision.cli.around.bundle_collect import Wanted
from provision.planning.supply.bundle.sets import Contents
from provision.planning.supply.bundle.write import write_bundle
from tests.provision.apply.fakes import FakeFleet, Watcher, context, facts_of
from tests.provision.bundle.test_bundle import DEBIAN, KERNEL, NEW, change_of, staged_set
from tests.provision.samples import PAYLOAD, make_stack

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


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


def test_a_bundle_of_nothing_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bundle", "create", str(tmp_path / "b"), "--drivers-only"]) == ExitCode.USAGE
    assert main(["bundle", "create", str(tmp_path / "b"), "--set", "debian-13"]) == ExitCode.USAGE
    assert "not DISTRIBUTION=DIR" in capsys.readouterr().err
    assert not (tmp_path / "b").exists()
