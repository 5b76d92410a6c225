"""The options of these tests, and how they wait: without a cluster."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.e2e.manifests import RESOURCE, container, pod
from tests.e2e.samples import FOLDER, Json, Names, deciding, folder_of, reduce_config, reduce_hook, stored_for
from tests.e2e.sight import parse_sight
from tests.e2e.waiting import for_each, holds, wait_for

if TYPE_CHECKING:
    from pathlib import Path

ONE, TWO = (f"GPU-{digit * 8}-{digit * 4}-{digit * 4}-{digit * 4}-{digit * 12}" for digit in "ab")
GPUS = {ONE: "/dev/nvidia0", TWO: "/dev/nvidia1"}
NUMBERS = {"/dev/nvidiactl": (4, 62), "/dev/nvidia0": (4, 16), "/dev/nvidia1": (4, 17)}


def test_a_look_around_is_read() -> None:
    sight = parse_sight(
        f"env {ONE}\nnode /dev/nvidiactl\nnode /dev/nvidia3\nlibrary /usr/lib/libcuda.so.1\ntool nvidia-smi\n"
        f"GPU 0: NVIDIA A100 (UUID: {ONE})\nlooked\n"
    )

    assert (sight.uuids, sight.gpu_nodes) == ({ONE}, {"/dev/nvidia3"})
    assert sight.libraries == {"/usr/lib/libcuda.so.1"}
    assert not sight.is_blind
    assert not sight.has_no_driver_files


@pytest.mark.parametrize(
    ("log", "is_blind", "has_no_driver_files"),
    [
        pytest.param("env all\nlooked\n", True, True, id="nothing but a variable"),
        pytest.param("env \nnode /dev/nvidia0\nlooked\n", False, True, id="a device node alone"),
        pytest.param("env \nlibrary /usr/lib/libcuda.so\nlooked\n", False, False, id="a library alone"),
        pytest.param("env \ntool nvidia-smi\nlooked\n", False, False, id="the program alone"),
    ],
)
def test_seeing_nothing_means_nothing_at_all(log: str, *, is_blind: bool, has_no_driver_files: bool) -> None:
    sight = parse_sight(log)

    assert (sight.is_blind, sight.has_no_driver_files) == (is_blind, has_no_driver_files)


def test_a_container_without_gpus_asks_for_none() -> None:
    assert RESOURCE not in str(pod("one", container()))
    assert container(gpus=2)["resources"] == {"limits": {RESOURCE: "2"}}


def test_a_wait_that_is_in_vain_says_what_was_seen() -> None:
    with pytest.raises(AssertionError, match=r"not within 0 s: it is there \(last seen: None\)\nthe evidence"):
        wait_for("it is there", lambda: None, timeout_s=0, evidence=lambda: "the evidence")


def test_a_wait_ends_with_the_first_true_value() -> None:
    values = iter([0, "", "found"])

    assert wait_for("a value", lambda: next(values), timeout_s=10) == "found"


def test_what_must_not_happen_is_noticed() -> None:
    values = iter([True, False])

    assert not holds(lambda: next(values), duration_s=10)


def test_the_first_failure_of_many_is_raised() -> None:
    def refuse(key: str) -> str:
        if key == "bad":
            raise ValueError(key)
        return key.upper()

    assert for_each(["a", "b"], refuse) == {"a": "A", "b": "B"}
    with pytest.raises(ValueError, match="bad"):
        for_each(["a", "bad"], refuse)


def test_a_sample_keeps_what_decides_under_stable_names() -> None:
    given = {"type": "c", "major": 4, "minor": 17}
    config = {
        "process": {
            "env": ["HOSTNAME=x", f"NVIDIA_VISIBLE_DEVICES={TWO}", "PATH=/bin"],
            "capabilities": {"bounding": ["CAP_CHOWN", "CAP_MKNOD"]},
        },
        "annotations": {"grapnel.dev/allocation": TWO, "io.kubernetes.cri.sandbox-id": "4711"},
        "linux": {
            "devices": [
                {"path": "/dev/nvidia1", "fileMode": 438, "uid": 0, **given},
                {"path": "/dev/tty", "type": "c", "major": 5, "minor": 0},
            ],
            "resources": {"devices": [{"allow": False, "access": "rwm"}, {"allow": True, "access": "rw", **given}]},
        },
    }
    names = Names.of(config, GPUS, NUMBERS)

    reduced, first = reduce_config(config, names), "GPU-00000000-0000-0000-0000-000000000000"

    assert reduced["process"] == {
        "env": [f"NVIDIA_VISIBLE_DEVICES={first}"],
        "capabilities": {"bounding": ["CAP_MKNOD"]},
    }
    assert reduced["annotations"] == {
        "grapnel.dev/allocation": first,
        "io.kubernetes.cri.sandbox-id": "<sandbox-id>",
    }
    number = {"type": "c", "major": 195, "minor": 0}
    assert reduced["linux"]["devices"] == [{"path": "/dev/nvidia0", **number}]
    assert reduced["linux"]["resources"]["devices"] == [
        {"allow": False, "access": "rwm"},
        {"allow": True, "access": "rw", **number},
    ]
    line = {"GRAPNEL_DECISION": "granted", "GRAPNEL_GPUS": TWO, "GRAPNEL_DRIVER": "535"}
    assert reduce_hook(line, names) == {"decision": "granted", "gpus": first}
    assert reduce_hook(None, names) is None


def test_samples_are_kept_by_engine_and_minor_version() -> None:
    assert folder_of("containerd://1.6.20~ds1").name == "containerd-1.6"
    assert folder_of("containerd://2.2.1+unknown").name == "containerd-2.2"
    assert folder_of("cri-o://1.35.6").name == "cri-o-1.35"


@pytest.mark.parametrize(
    ("engine", "stored", "expected"),
    [
        pytest.param("cri-o://1.36.3", ("1.35", "1.36"), "cri-o-1.36", id="its own"),
        pytest.param("cri-o://1.35.6", ("1.36",), "cri-o-1.36", id="the next one where there is no older one"),
        pytest.param("cri-o://1.36.0", ("1.9", "1.34", "1.37"), "cri-o-1.34", id="the newest older one, by number"),
        pytest.param("containerd://2.2.1", ("2.0", "1.7"), "containerd-2.0", id="of this engine alone"),
    ],
)
def test_an_engine_without_samples_is_held_against_the_nearest_version(
    tmp_path: Path, engine: str, stored: tuple[str, ...], expected: str
) -> None:
    """Every CRI-O but 1.36 failed for want of a folder of its own."""
    name = engine.partition(":")[0]
    for folder in (*(f"{name}-{version}" for version in stored), "other-9.9", "schema.json"):
        (tmp_path / folder).mkdir()
    assert stored_for(engine, tmp_path).name == expected


def stored_sample() -> Json:
    sample: Json = json.loads((FOLDER / "cri-o-1.36/good/one-gpu.json").read_text())
    return sample


def test_notes_of_an_engine_are_no_difference_between_its_versions() -> None:
    """CRI-O 1.36.0 and 1.36.1 differ in one of them, 1.34 and 1.35 in another."""
    newer, older = stored_sample(), stored_sample()
    annotations = older["config"]["annotations"]
    del annotations["io.kubernetes.cri-o.ImageRepoDigests"]
    annotations["io.kubernetes.cri-o.PlatformRuntimePath"] = annotations.pop("platform-runtime-path.crio.io")
    older["version"] = "1.34.0"
    assert deciding(older) == deciding(newer)


@pytest.mark.parametrize(
    "key",
    ["grapnel.dev/allocation", "grapnel.dev/handler", "io.kubernetes.cri-o.Annotations", "io.kubernetes.pod.namespace"],
)
def test_what_counts_is_a_difference(key: str) -> None:
    newer, older = stored_sample(), stored_sample()
    del older["config"]["annotations"][key]
    assert deciding(older) != deciding(newer)
