"""Names of pods and containers from the kubelet's folders of logs."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.holdings.holders.cgroup import Place
from plugin.holdings.holders.pod_names import PodNames
from plugin.kubelet.pod_resources.attribution import PodContainer
from tests.plugin.proc_folder import LogFolder

if TYPE_CHECKING:
    from pathlib import Path

UID, OTHER_UID = "0f3b7a52-9d1e-4c60-8a77-3f1d5e6b9a10", "11111111-2222-4333-8444-555566667777"
ID, OTHER_ID = "4f1c" * 16, "09ab" * 16
MAIN = PodContainer("team-a", "train-0", "main")
SIDE = PodContainer("team-a", "train-0", "side")
PLACE, OTHER_PLACE = Place(None, UID, ID), Place("cri-containerd.scope", UID, OTHER_ID)
LABEL = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
POD = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,40}[a-z0-9])?", fullmatch=True)


@pytest.fixture
def logs(tmp_path: Path) -> LogFolder:
    return LogFolder(tmp_path / "log")


def test_a_container_is_known_by_its_link(logs: LogFolder) -> None:
    logs.add(PLACE, MAIN)
    logs.add(OTHER_PLACE, SIDE)
    assert PodNames(logs.folder).look_up([PLACE, OTHER_PLACE]) == {PLACE: MAIN, OTHER_PLACE: SIDE}


def test_a_container_whose_control_group_has_no_pod_is_known_by_its_link(logs: LogFolder) -> None:
    logs.add(PLACE, MAIN)
    alone = Place(None, None, ID)
    assert PodNames(logs.folder).look_up([alone]) == {alone: MAIN}


def test_a_link_into_another_pods_folder_is_not_believed(logs: LogFolder) -> None:
    logs.add(PLACE, MAIN)
    forged = Place(None, OTHER_UID, ID)
    assert PodNames(logs.folder).look_up([forged]) == {}


def test_the_only_container_of_a_pod_needs_no_link(logs: LogFolder) -> None:
    logs.add(PLACE, MAIN, with_link=False)
    assert PodNames(logs.folder).look_up([PLACE]) == {PLACE: MAIN}


def test_of_several_containers_without_a_link_the_pod_alone_is_told(logs: LogFolder) -> None:
    logs.add(PLACE, MAIN, with_link=False)
    logs.add(OTHER_PLACE, SIDE, with_link=False)
    assert PodNames(logs.folder).look_up([PLACE]) == {PLACE: PodContainer("team-a", "train-0", "")}


def test_a_name_that_is_cut_off_is_found_by_the_pods_folder(logs: LogFolder) -> None:
    long = PodContainer("n" * 63, "p" * 120, "main")
    logs.add(PLACE, long)
    assert PodNames(logs.folder).look_up([PLACE]) == {PLACE: long}


def test_a_pod_that_is_not_known_has_no_name(logs: LogFolder) -> None:
    logs.add(PLACE, MAIN)
    assert PodNames(logs.folder).look_up([Place(None, OTHER_UID, OTHER_ID)]) == {}


def test_without_folders_nobody_has_a_name(tmp_path: Path) -> None:
    assert PodNames(tmp_path / "nothing").look_up([PLACE]) == {}


@pytest.mark.parametrize(
    "name", ["x", "a_b", "a_b_c_d", "a_b_c-123.log", f"a_b_c-{ID}.log.gz", f"a_b-{ID}.log", ".log"]
)
def test_what_others_leave_in_the_folders_is_passed_over(logs: LogFolder, name: str) -> None:
    (logs.folder / "containers" / name).touch()
    (logs.folder / "pods" / name).mkdir()
    logs.add(PLACE, MAIN)
    assert PodNames(logs.folder).look_up([PLACE]) == {PLACE: MAIN}


def test_folders_are_read_again_only_for_who_is_new(logs: LogFolder) -> None:
    logs.add(PLACE, MAIN)
    names = PodNames(logs.folder)
    names.look_up([PLACE])
    shutil.rmtree(logs.folder / "containers")
    shutil.rmtree(logs.folder / "pods")
    assert names.look_up([PLACE]) == {PLACE: MAIN}
    assert names.look_up([]) == {}
    assert names.look_up([PLACE]) == {}, "a container that is gone is forgotten"


def test_a_container_whose_link_comes_late_is_looked_for_again(logs: LogFolder) -> None:
    logs.add(PLACE, MAIN, with_link=False)
    logs.add(OTHER_PLACE, SIDE, with_link=False)
    names = PodNames(logs.folder)
    assert names.look_up([PLACE])[PLACE].container == ""
    logs.add(PLACE, MAIN)
    assert names.look_up([PLACE]) == {PLACE: MAIN}


@pytest.mark.slow
@given(st.dictionaries(st.tuples(LABEL, POD, LABEL), st.uuids().map(str), min_size=1, max_size=5))
def test_every_name_that_kubernetes_allows_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, pods: dict[tuple[str, str, str], str]
) -> None:
    logs = LogFolder(tmp_path_factory.mktemp("log") / "log")
    expected = {}
    for number, (names, uid) in enumerate(pods.items()):
        place = Place(None, uid, f"{number:064x}")
        expected[place] = PodContainer(*names)
        logs.add(place, expected[place])
    assert PodNames(logs.folder).look_up(expected) == expected
