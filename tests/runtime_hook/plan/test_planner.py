"""What is planned for a grant: libraries, programs and files by capability, and what hides the other GPUs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from runtime_hook.base.errors import InventoryError
from runtime_hook.loader.layout import choose_layout
from runtime_hook.loader.platforms import PLATFORMS
from runtime_hook.plan.planner import Planner, render_profile, with_implied
from runtime_hook.request.grant import Grant
from tests.runtime_hook.inventories import FULL, LIBRARIES, LIBRARIES_32, MIG, VERSION, changed

if TYPE_CHECKING:
    from runtime_hook.host.inventory import Inventory
    from runtime_hook.loader.layout import Layout

PLATFORM = PLATFORMS["x86_64"]
DEBIAN = choose_layout(PLATFORM, lambda path: path == "/etc/debian_version")
RED_HAT = choose_layout(PLATFORM, lambda _: False)
ALPINE = choose_layout(PLATFORM, lambda path: path.startswith("/lib/ld-musl"))


def plan(*words: str, layout: Layout = DEBIAN, host: Inventory = FULL, **fields: object) -> list[str]:
    """Return a plan in words."""
    given = {"source": "devices", "gpus": FULL.gpus[:1], "capabilities": words, "adds_devices": False, **fields}
    operations = Planner(host, PLATFORM, str).plan(Grant(**given), layout, ())
    return [operation.describe() for operation in operations]


def targets(described: list[str], verb: str) -> set[str]:
    """Return where the operations of a kind put something."""
    word = {"bind": " on ", "link": "link "}[verb]
    lines = [line for line in described if line.startswith(verb)]
    return {line.partition(word)[2].partition(",")[0].partition(" to ")[0] for line in lines}


def test_compute_and_utility_bring_their_own_files_alone() -> None:
    described = plan("compute", "utility")
    assert targets(described, "bind") == {
        f"{LIBRARIES}/libcuda.so.{VERSION}",
        f"{LIBRARIES}/libnvidia-gpucomp.so.{VERSION}",
        f"{LIBRARIES}/libnvidia-ml.so.{VERSION}",
        "/usr/bin/nvidia-smi",
        "/usr/bin/nvidia-cuda-mps-control",
        "/run/nvidia-persistenced/socket",
        "/tmp/nvidia-mps",
        f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin",
    }
    assert targets(described, "link") == {
        f"{LIBRARIES}/libcuda.so.1",
        f"{LIBRARIES}/libcuda.so",
        f"{LIBRARIES}/libnvidia-gpucomp.so.1",
        f"{LIBRARIES}/libnvidia-ml.so.1",
    }
    assert described[-1] == "merge 4 names into /etc/ld.so.cache"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(("video",), {"video", "compute"}, id="video needs compute's libraries"),
        pytest.param(("display",), {"display", "graphics"}, id="display needs graphics' libraries"),
        pytest.param(("utility",), {"utility"}, id="utility needs nothing else"),
    ],
)
def test_capabilities_bring_the_libraries_that_they_need(words: tuple[str, ...], expected: set[str]) -> None:
    assert with_implied(words) == expected


def test_video_has_its_folder_which_is_not_in_the_loader_cache() -> None:
    described = plan("video")
    assert f"{LIBRARIES}/vdpau/libvdpau_nvidia.so.{VERSION}" in targets(described, "bind")
    assert f"{LIBRARIES}/vdpau/libvdpau_nvidia.so.1" in targets(described, "link")
    assert described[-1] == "merge 4 names into /etc/ld.so.cache"


def test_sockets_stay_writable_and_belong_to_a_capability() -> None:
    assert "bind /run/nvidia-persistenced/socket on /run/nvidia-persistenced/socket, for use" in plan("utility")
    assert "/tmp/nvidia-mps" not in targets(plan("utility"), "bind")
    assert "/run/nvidia-persistenced/socket" not in targets(plan("compute"), "bind")


def test_the_folder_of_mps_is_for_nobody_who_can_change_its_mount() -> None:
    given = Grant(source="devices", gpus=FULL.gpus[:1], capabilities=("compute",), adds_devices=False)
    operations = Planner(FULL, PLATFORM, str).plan(given, DEBIAN, (), can_change_mounts=True)
    assert "/tmp/nvidia-mps" in targets(plan("compute"), "bind")
    assert [line for line in (each.describe() for each in operations) if "mps" in line.replace("cuda-mps", "")] == [
        "give /tmp/nvidia-mps"
    ]


@pytest.mark.parametrize(
    ("layout", "folder"),
    [pytest.param(DEBIAN, LIBRARIES_32, id="Debian"), pytest.param(RED_HAT, "/usr/lib", id="Red Hat")],
)
def test_32_bit_libraries_come_with_compat32_alone(layout: Layout, folder: str) -> None:
    path = f"{folder}/libcuda.so.{VERSION}"
    assert path in targets(plan("compute", "compat32", layout=layout), "bind")
    assert path not in targets(plan("compute", layout=layout), "bind")
    assert plan("compute", "compat32", layout=layout)[-1] == "merge 5 names into /etc/ld.so.cache"


def test_a_musl_image_has_no_place_for_32_bits() -> None:
    described = plan("compute", "compat32", layout=ALPINE)
    assert len([path for path in targets(described, "bind") if "libcuda" in path]) == 1


def test_a_library_of_two_capabilities_is_bound_once() -> None:
    described = plan("compute", "graphics")
    assert len([line for line in described if line.endswith(f"/libnvidia-gpucomp.so.{VERSION}, read-only")]) == 1


def test_graphics_brings_links_and_the_profile_of_its_gpus() -> None:
    described = plan("graphics", gpus=FULL.gpus)
    assert f"{LIBRARIES}/gbm/nvidia-drm_gbm.so" in targets(described, "link")
    assert f"{LIBRARIES}/libGLX_indirect.so.0" in targets(described, "link")
    assert described[-1] == "merge 3 names into /etc/ld.so.cache", "the link in a separate folder is not among them"
    assert "write /etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf" in described
    assert not any("10-container.conf" in line for line in plan("compute", "utility"))


def test_the_profile_has_a_bit_for_each_gpu() -> None:
    text = render_profile({0, 3})
    assert "0x9" in text
    assert json.loads(text.replace("0x9", "9"))["profiles"][0]["settings"] == ["EGLVisibleDGPUDevices", 9]


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        pytest.param({}, "gpus/0000:10:00.0", id="one GPU"),
        pytest.param({"gpus": FULL.gpus}, "gpus/0000:10:00.0, gpus/0000:20:00.0", id="two GPUs"),
        pytest.param({"gpus": ()}, "nothing", id="no GPU"),
        pytest.param(
            {"gpus": (), "mig": (MIG,)},
            "gpus/0000:20:00.0, capabilities/gpu1/mig/gi3/access, capabilities/gpu1/mig/gi3/ci0/access",
            id="a MIG device",
        ),
        pytest.param({"extras": ("mig-config",)}, "gpus/0000:10:00.0, capabilities", id="the right to configure MIG"),
        pytest.param({"extras": ("mig-monitor",)}, "gpus/0000:10:00.0, capabilities", id="the right to monitor MIG"),
    ],
)
def test_procfs_shows_the_containers_gpus_alone(fields: dict[str, object], shown: str) -> None:
    assert f"mask /proc/driver/nvidia, but for {shown}" in plan("utility", **fields)


def test_direct_storage_brings_what_it_reads_besides_devices() -> None:
    described = plan("compute", extras=("nvidia-fs",))
    assert {"/run/udev/data", "/etc/cufile.json"} <= targets(described, "bind")
    assert not {"/run/udev", "/run"} & targets(described, "bind"), "the socket of the host's udevd is there"
    assert "/run/udev/data" not in targets(plan("compute"), "bind")


def test_a_capability_without_its_library_is_refused() -> None:
    host = changed(FULL, libraries=tuple(library for library in FULL.libraries if library.elf_class == 32))
    with pytest.raises(InventoryError, match=r"no libcuda\.so\.1 for compute"):
        plan("compute", host=host)
