"""What these tests are told, and how they wait: without a cluster."""

from __future__ import annotations

import pytest

from tests.e2e.manifests import RESOURCE, container, pod
from tests.e2e.samples import Names, folder_of, reduce_config, reduce_hook
from tests.e2e.sight import parse_sight
from tests.e2e.waiting import for_each, holds, wait_for

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
