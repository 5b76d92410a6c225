"""A node is handed the files of a bundle that its own change names, and no others."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from provision import __version__
from provision.apply.converge import converge, stage
from provision.apply.declarations import Declarations
from provision.apply.model import Assessment, Failure, Status
from provision.apply.playbooks import Playbooks
from provision.cli.session.context import carried_payload, open_bundle
from provision.declaration.fleet.facts.node import OperatingSystem
from provision.planning.node_plan import Action, DriverVariables, Item, NodePlan, Role, Roles, RuntimeVariables
from provision.planning.supply.builds.model import BuiltModule
from provision.planning.supply.builds.shelf import Shelf
from provision.planning.supply.bundle.errors import BundleError
from provision.planning.supply.bundle.model import BundleList
from provision.planning.supply.bundle.offer import distribution_names
from provision.planning.supply.bundle.read import Bundle, unpack_bundle
from provision.planning.supply.bundle.sets import Contents
from provision.planning.supply.bundle.write import write_bundle
from tests.provision.apply.fakes import COLLECTION, FakeFleet, FakeNode, Watcher, context, facts_of
from tests.provision.bundle.test_bundle import DEBIAN, KERNEL, NEW, change_of, staged_set
from tests.provision.samples import make_facts, make_stack

if TYPE_CHECKING:
    from pathlib import Path

    from provision.apply.context import ApplyContext
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.planning.driver_change import DriverChange


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    contents = Contents()
    contents.add_set(staged_set(tmp_path / "set", change_of(kernels=(KERNEL, "6.13.0-amd64"))))
    write_bundle(tmp_path / "drivers.bundle", contents.sources, contents.listing("0.2.0"))
    return tmp_path / "drivers.bundle"


def node_on(version_id: str = "13") -> Any:
    facts = facts_of("n1")
    system = msgspec.structs.replace(facts.node.os, version_id=version_id)
    return msgspec.structs.replace(facts, node=msgspec.structs.replace(facts.node, os=system))


def plan_of(change: DriverChange, *, is_staged: bool = False) -> NodePlan:
    driver = DriverVariables(driver_version=change.version, driver_change=change, driver_stage=not is_staged)
    return NodePlan(node="n1", roles=Roles(driver=driver))


def offline(archive: Path, fleet: FakeFleet) -> ApplyContext:
    bundle = unpack_bundle(archive, archive.parent / "unpacked")
    return replace(context(fleet, lambda node, _facts: NodePlan(node=node)), bundle=bundle)


def test_staging_is_given_what_the_change_names(archive: Path) -> None:
    fleet = FakeFleet({"n1": FakeNode()})

    stage(offline(archive, fleet), "n1", Assessment(node_on(), plan_of(change_of())), Watcher(), threading.Event())

    handover: Any = fleet.requests[0].extra_vars["grapnel_handover"]
    assert [one["place"] for one in handover] == [
        f"modules/{KERNEL}.tar.gz",
        f"packages/libcuda1_{NEW}-2_amd64.deb",
        "packages/libpci3_1%3a3.13.0-2_amd64.deb",
    ]
    assert all(one["source"].startswith(f"{archive.parent}/unpacked/drivers/{DEBIAN}/") for one in handover)


@pytest.mark.parametrize(
    ("change", "is_staged"), [(None, False), (change_of(), True)], ids=["no change", "staged already"]
)
def test_nothing_is_handed_over_where_nothing_is_staged(
    archive: Path, change: DriverChange | None, *, is_staged: bool
) -> None:
    plan = NodePlan(node="n1") if change is None else plan_of(change, is_staged=is_staged)

    assert offline(archive, FakeFleet({})).handover(Assessment(node_on(), plan)) is None


def test_a_module_that_the_bundle_lacks_is_built_once_and_goes_with_it(archive: Path, tmp_path: Path) -> None:
    other = "6.14.0-amd64"
    fleet = FakeFleet({})
    stacks = {"n1": make_stack(driver={"version": NEW})}
    made = replace(offline(archive, fleet), shelf=Shelf(tmp_path / "shelf"), declarations=Declarations(stacks))
    assessment = Assessment(node_on(), plan_of(change_of(kernels=(KERNEL, other))))

    (build,) = made.builds(assessment)
    given = tmp_path / "given"
    made.built[build] = BuiltModule(build=build, nodes=("n2", "n3"), path=given, sha256="a" * 64, size_bytes=1)
    handover = made.handover(assessment)

    assert build.kernel == other
    assert handover is not None
    assert handover.is_complete
    assert [file.place for file in handover.files if file.place.startswith("modules/")] == [
        f"modules/{KERNEL}.tar.gz",
        f"modules/{other}.tar.gz",
    ]


ENGINE = "libcuda1"  # as good a name as any


def plan_engine(node: str, facts: NodeFacts) -> NodePlan:
    """An engine of whichever version there is, until it is there."""
    if ENGINE in facts.packages:
        return NodePlan(node=node)
    install = Item(role=Role.RUNTIME, action=Action.INSTALL, target=ENGINE, reason="there is none")
    variables = RuntimeVariables(runtime_engine="containerd", runtime_service="", runtime_packages=(ENGINE,))
    return NodePlan(node=node, items=(install,), roles=Roles(runtime=variables))


@pytest.mark.parametrize("has_bundle", [True, False])
def test_an_engine_is_installed_from_what_its_bundle_has_and_that_has_one_name(
    tmp_path: Path, *, has_bundle: bool
) -> None:
    contents = Contents()
    contents.add_engine(staged_set(tmp_path / "set", change_of()), ENGINE)
    write_bundle(tmp_path / "engines.bundle", contents.sources, contents.listing("0.2.0"))
    fleet = FakeFleet({"n1": FakeNode()})
    bundle = unpack_bundle(tmp_path / "engines.bundle", tmp_path / "unpacked")
    made = replace(context(fleet, plan_engine), bundle=bundle if has_bundle else None)

    result = converge(made, "n1", Assessment(node_on(), plan_engine("n1", node_on())), Watcher(), threading.Event())

    assert result.status is Status.CONVERGED
    given: Any = fleet.requests[0].extra_vars.get("grapnel_engine_handover")
    assert (given is not None) is has_bundle
    if has_bundle:
        assert re.fullmatch("[0-9a-f]{12}", given["id"])  # as the node takes it
        assert [(one["place"], one.get("package", {}).get("name")) for one in given["files"]] == [
            (f"packages/{ENGINE}_{NEW}-2_amd64.deb", None),
            ("packages/libpci3_1%3a3.13.0-2_amd64.deb", "libpci3"),
        ]


def test_without_a_bundle_the_node_downloads() -> None:
    assert context(FakeFleet({})).handover(Assessment(node_on(), plan_of(change_of()))) is None


@pytest.mark.parametrize(
    ("change", "version_id", "words"),
    [
        pytest.param(
            change_of("560.1"), "13", f"the bundle has no driver 560.1 (proprietary) for {DEBIAN}", id="driver"
        ),
        pytest.param(
            change_of(), "12", f"the bundle has no driver {NEW} (proprietary) for debian-12", id="distribution"
        ),
    ],
)
def test_what_the_bundle_lacks_is_the_failure_of_that_node(
    archive: Path, change: DriverChange, version_id: str, words: str
) -> None:
    fleet = FakeFleet({"n1": FakeNode()})

    answer = stage(
        offline(archive, fleet), "n1", Assessment(node_on(version_id), plan_of(change)), Watcher(), threading.Event()
    )

    assert isinstance(answer, Failure)
    assert words in answer.message
    assert fleet.requests == []


@pytest.mark.parametrize(
    ("system", "architecture", "names"),
    [
        (OperatingSystem(id="debian", version_id="13"), "x86_64", ("debian-13",)),
        (OperatingSystem(id="rocky", version_id="9.5"), "x86_64", ("rocky-9.5", "rocky-9")),
        (OperatingSystem(id="ubuntu", version_id="24.04"), "x86_64", ("ubuntu-24.04", "ubuntu-24")),
        (OperatingSystem(id="debian", version_id="13"), "aarch64", ("debian-13-aarch64",)),
        (OperatingSystem(id="rocky", version_id="9.5"), "aarch64", ("rocky-9.5-aarch64", "rocky-9-aarch64")),
    ],
)
def test_a_bundle_may_name_a_release_exactly_or_not(
    system: OperatingSystem, architecture: str, names: tuple[str, ...]
) -> None:
    node = msgspec.structs.replace(make_facts().node, os=system, architecture=architecture)

    assert distribution_names(node) == names


def test_a_bundle_is_unpacked_once_and_by_its_content(archive: Path, tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache")}

    first, again = open_bundle(archive, environment), open_bundle(archive, environment)

    assert first.folder == again.folder
    assert first.folder.parent == tmp_path / "cache/grapnel/bundles"
    assert [one.distribution for one in first.listing.drivers] == [DEBIAN]


def test_a_bundle_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"away\.bundle: no such file or directory"):
        open_bundle(tmp_path / "away.bundle", {"HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("made_by", "payload", "words"),
    [(__version__, "payload", ""), ("0.0.1", "", ""), ("0.0.1", "payload", "payload of grapnel 0.0.1")],
    ids=["of this grapnel", "without a payload", "of another one"],
)
def test_a_payload_of_another_grapnel_is_not_used(tmp_path: Path, made_by: str, payload: str, words: str) -> None:
    bundle = Bundle(tmp_path, BundleList(grapnel=made_by, files=(), drivers=(), payload=payload))

    if words:
        with pytest.raises(BundleError, match=words):
            carried_payload(bundle)
    else:
        assert carried_payload(bundle) == (tmp_path / payload if payload else None)


def test_with_a_bundle_no_run_on_a_node_contacts_a_package_source() -> None:
    playbooks = Playbooks(collection=COLLECTION, offline=True)
    plan = plan_of(change_of())

    requests = [playbooks.facts(["n1"]), playbooks.stage(plan), playbooks.apply(plan)]

    assert [request.extra_vars["grapnel_is_offline"] for request in requests] == [True] * 3
    assert "grapnel_is_offline" not in Playbooks(collection=COLLECTION).facts(["n1"]).extra_vars


def test_a_node_is_told_which_package_each_file_beside_the_drivers_is(archive: Path) -> None:
    fleet = FakeFleet({"n1": FakeNode()})

    stage(offline(archive, fleet), "n1", Assessment(node_on(), plan_of(change_of())), Watcher(), threading.Event())

    handover: Any = fleet.requests[0].extra_vars["grapnel_handover"]
    assert [one.get("package") for one in handover] == [None, None, {"name": "libpci3", "version": "1:3.13.0-2"}]
