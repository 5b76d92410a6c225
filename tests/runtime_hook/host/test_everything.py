"""A host that has everything of a driver: what is found, under which capability, and where a container has it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from runtime_hook.host.discovery import discover
from runtime_hook.host.fingerprint import is_fresh
from runtime_hook.host.hosttree import HostTree
from runtime_hook.host.inventory import ImexChannels
from tests.runtime_hook.driverlayers import COMPAT32, EVERYTHING, GRAPHICS, MORE_COMPUTE, MORE_UTILITY, NGX, VIDEO
from tests.runtime_hook.drivertree import MAJOR, MULTIARCH, SONAMES, VERSION, DriverTree, uuid

if TYPE_CHECKING:
    from pathlib import Path

    from runtime_hook.host.inventory import Inventory

pytestmark = pytest.mark.functional

LAYOUTS = ["debian", "multiarch", "lib64"]


def find(tmp_path: Path, objects: Path, layout: str = "debian", layers: tuple[str, ...] = EVERYTHING) -> Inventory:
    driver = DriverTree(tmp_path / "host", objects, layout=layout, layers=layers).build()
    return discover(HostTree(str(driver.root)))


def stems(inventory: Inventory, capability: str, elf_class: int = 64) -> set[str]:
    return {
        library.path.rpartition("/")[2].partition(".so")[0]
        for library in inventory.libraries
        if (library.capability, library.elf_class) == (capability, elf_class)
    }


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_capability_has_its_libraries(tmp_path: Path, objects: Path, layout: str) -> None:
    found = find(tmp_path, objects, layout)
    own_version = {"libnvidia-egl-gbm", "libnvidia-egl-wayland"}
    shared = {"libnvidia-gpucomp", "libnvidia-allocator"}
    assert stems(found, "utility") == {"libnvidia-ml", *MORE_UTILITY}
    assert stems(found, "compute") == {*SONAMES, *MORE_COMPUTE, "libnvidia-nvvm70"} - {"libnvidia-ml"}
    assert stems(found, "video") == {*VIDEO, "libvdpau_nvidia"}
    assert stems(found, "graphics") == {*GRAPHICS, *own_version, *shared}
    assert stems(found, "ngx") == set(NGX)


@pytest.mark.parametrize(
    ("layout", "folder"),
    [
        ("debian", "/usr/lib/i386-linux-gnu/nvidia/current"),
        ("multiarch", "/usr/lib/i386-linux-gnu"),
        ("lib64", "/usr/lib"),
    ],
)
def test_32_bit_libraries_keep_the_capability_of_their_twins(
    tmp_path: Path, objects: Path, layout: str, folder: str
) -> None:
    found = [library for library in find(tmp_path, objects, layout).libraries if library.elf_class == 32]
    assert {library.path for library in found} == {f"{folder}/{stem}.so.{VERSION}" for stem in COMPAT32}
    assert {library.soname: library.capability for library in found} == {
        "libcuda.so.1": "compute",
        "libnvidia-ptxjitcompiler.so.1": "compute",
        "libnvidia-ml.so.1": "utility",
        "libnvidia-encode.so.1": "video",
        "libGLX_nvidia.so.0": "graphics",
        f"libnvidia-glcore.so.{VERSION}": "graphics",
    }


def test_names_and_places_in_a_container(tmp_path: Path, objects: Path) -> None:
    found = find(tmp_path, objects)
    by_soname = {library.soname: library for library in found.libraries if library.elf_class == 64}
    assert by_soname["libvdpau_nvidia.so.1"].subfolder == "vdpau"
    assert by_soname["libnvidia-opticalflow.so.1"].links == ("libnvidia-opticalflow.so",)
    assert by_soname["libnvidia-vulkan-producer.so"].links == ()  # its SONAME is that name already
    assert by_soname["libnvidia-egl-gbm.so.1"].path == f"/{MULTIARCH}/libnvidia-egl-gbm.so.1.1.1"
    assert [(link.subfolder, link.name, link.target, link.capability) for link in found.links] == [
        ("", "libGLX_indirect.so.0", f"libGLX_nvidia.so.{VERSION}", "graphics"),
        ("gbm", "nvidia-drm_gbm.so", "../libnvidia-allocator.so.1", "graphics"),
    ]


@pytest.mark.parametrize("tail", ["²", "1.²", "1..2", ".", "1.1.1.bak"])
def test_a_library_whose_version_is_no_number_is_passed_over(tmp_path: Path, objects: Path, tail: str) -> None:
    driver = DriverTree(tmp_path / "host", objects, "multiarch", layers=EVERYTHING).build()
    folder = driver.root / MULTIARCH
    (folder / f"libnvidia-egl-gbm.so.{tail}").write_bytes((folder / "libnvidia-egl-gbm.so.1.1.1").read_bytes())
    by_soname = {library.soname: library.path for library in discover(HostTree(str(driver.root))).libraries}
    assert by_soname["libnvidia-egl-gbm.so.1"] == f"/{MULTIARCH}/libnvidia-egl-gbm.so.1.1.1"


@pytest.mark.parametrize(
    ("layout", "extensions"),
    [("debian", "/usr/lib/nvidia/current"), ("multiarch", "/usr/lib/xorg/modules/extensions")],
)
def test_files_stand_where_loaders_in_a_container_look(
    tmp_path: Path, objects: Path, layout: str, extensions: str
) -> None:
    found = find(tmp_path, objects, layout)
    targets = {file.target: (file.path, file.capability, file.kind) for file in found.files}
    modules, firmware = "/usr/lib/xorg/modules", f"/lib/firmware/nvidia/{VERSION}"
    expected = {
        "/etc/OpenCL/vendors/nvidia.icd": ("/etc/OpenCL/vendors/nvidia.icd", "compute", "config"),
        "/etc/vulkan/icd.d/nvidia_icd.json": ("/usr/share/vulkan/icd.d/nvidia_icd.json", "graphics", "config"),
        f"{modules}/drivers/nvidia_drv.so": (f"{modules}/drivers/nvidia_drv.so", "display", "config"),
        f"{modules}/extensions/libglxserver_nvidia.so": (
            f"{extensions}/libglxserver_nvidia.so.{VERSION}",
            "display",
            "config",
        ),
        f"{firmware}/gsp_ga10x.bin": (f"{firmware}/gsp_ga10x.bin", "utility", "firmware"),
        "/run/nvidia-persistenced/socket": ("/run/nvidia-persistenced/socket", "utility", "socket"),
        "/tmp/nvidia-mps": ("/tmp/nvidia-mps", "compute", "socket"),
    }
    assert {target: targets[target] for target in expected} == expected
    assert len(targets) == len(found.files) == 15


def test_firmware_comes_from_the_first_folder_of_the_kernels_order(tmp_path: Path, objects: Path) -> None:
    driver = DriverTree(tmp_path / "host", objects, layers=("firmware",)).build()
    custom = driver.root / "opt/firmware"
    (custom / "nvidia" / VERSION).mkdir(parents=True)
    (custom / "nvidia" / VERSION / "gsp_ga10x.bin").write_bytes(b"")
    parameter = driver.root / "sys/module/firmware_class/parameters/path"
    parameter.parent.mkdir(parents=True)
    parameter.write_text("/opt/firmware\n")
    found = discover(HostTree(str(driver.root))).files
    assert [(file.path, file.target) for file in found] == [
        (f"/opt/firmware/nvidia/{VERSION}/gsp_ga10x.bin", f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin")
    ]


def test_a_folder_of_mps_that_is_not_roots_is_nobodys(tmp_path: Path, objects: Path) -> None:
    """Anybody may make /tmp/nvidia-mps, and a container gets it."""
    driver = DriverTree(tmp_path / "host", objects, layers=("sockets",)).build()
    tree, folder = HostTree(str(driver.root)), driver.root / "tmp/nvidia-mps"
    before = discover(tree)
    folder.rmdir()
    (driver.root / "etc/secret").mkdir()
    folder.symlink_to("/etc/secret")
    assert not is_fresh(before, tree)
    assert "compute" not in {file.capability for file in discover(tree).files}
    folder.unlink()
    folder.mkdir()
    os.chown(folder, 1000, 1000)
    assert "compute" not in {file.capability for file in discover(tree).files}


def test_a_link_to_another_socket_is_none(tmp_path: Path, objects: Path) -> None:
    """The folder belongs to the service's own user, and a container may talk to what is bound there."""
    driver = DriverTree(tmp_path / "host", objects, layers=("sockets",)).build()
    place = driver.root / "run/nvidia-persistenced/socket"
    place.unlink()
    place.symlink_to("/run/nvidia-fabricmanager/socket")
    found = [file.target for file in discover(HostTree(str(driver.root))).files]
    assert found == ["/run/nvidia-fabricmanager/socket", "/tmp/nvidia-mps"]


def test_devices_of_every_kind_are_found(tmp_path: Path, objects: Path) -> None:
    found = find(tmp_path, objects)
    kinds: dict[str, list[str]] = {}
    for device in found.control:
        kinds.setdefault(device.kind, []).append(device.path)
    assert kinds == {
        "ctl": ["/dev/nvidiactl"],
        "uvm": ["/dev/nvidia-uvm"],
        "uvm-tools": ["/dev/nvidia-uvm-tools"],
        "modeset": ["/dev/nvidia-modeset"],
        "nvidia-fs": ["/dev/nvidia-fs0", "/dev/nvidia-fs1"],
        "gdrdrv": ["/dev/gdrdrv"],
        "infiniband": ["/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm"],
        "nvswitch": ["/dev/nvidia-nvswitchctl", "/dev/nvidia-nvswitch0"],
        "mig-config": ["/dev/nvidia-caps/nvidia-cap1"],
        "mig-monitor": ["/dev/nvidia-caps/nvidia-cap2"],
    }
    assert found.stale == ()
    assert found.imex == ImexChannels(MAJOR, ((0, 1),))
    first = found.gpus[0]
    assert [node.path for node in first.drm] == ["/dev/dri/card0", "/dev/dri/renderD128"]
    assert (first.model, first.brand, first.compute_capability) == ("NVIDIA A100-SXM4-40GB", "Nvidia", "8.0")
    assert found.cuda_version == "12.4"


def test_a_mig_device_opens_its_gpu_instance_and_itself(tmp_path: Path, objects: Path) -> None:
    found = find(tmp_path, objects, layers=("mig",))
    nodes = {
        (device.gpu_uuid, device.gpu_instance, device.compute_instance): [node.path[-4:] for node in device.nodes]
        for device in found.mig
    }
    assert nodes == {
        (uuid(0), 1, 0): ["cap3", "cap4"],
        (uuid(0), 2, 0): ["cap5", "cap6"],
        (uuid(0), 2, 1): ["cap5", "cap7"],
    }


def test_imex_channels_are_kept_as_runs(tmp_path: Path, objects: Path) -> None:
    """A rack's node has thousands; listed one by one they cost every container's start 8 ms."""
    driver = DriverTree(tmp_path / "host", objects).build()
    for channel in (*range(3, 40), 7000):
        driver.node(f"nvidia-caps-imex-channels/channel{channel}", channel)
    driver.node("nvidia-caps-imex-channels/channel50", 51)  # not what its name says
    channels = discover(HostTree(str(driver.root))).imex
    assert channels == ImexChannels(MAJOR, ((3, 39), (7000, 7000)))
    assert [number for number in (2, 3, 39, 40, 50, 7000) if channels.has(number)] == [3, 39, 7000]
    assert channels.node(7000).path == "/dev/nvidia-caps-imex-channels/channel7000"


@pytest.mark.parametrize("tail", ["²", "\u0663", "3x", "3.0", "9" * 200, ""])
def test_an_imex_channel_whose_name_is_no_number_is_passed_over(tmp_path: Path, objects: Path, tail: str) -> None:
    driver = DriverTree(tmp_path / "host", objects).build()
    driver.node("nvidia-caps-imex-channels/channel2", 2)
    driver.node(f"nvidia-caps-imex-channels/channel{tail}", 3)
    assert discover(HostTree(str(driver.root))).imex == ImexChannels(MAJOR, ((2, 2),))


def test_an_imex_channel_that_is_named_twice_is_listed_once(tmp_path: Path, objects: Path) -> None:
    driver = DriverTree(tmp_path / "host", objects).build()
    driver.node("nvidia-caps-imex-channels/channel2", 2)
    driver.node("nvidia-caps-imex-channels/channel02", 2)
    assert discover(HostTree(str(driver.root))).imex == ImexChannels(MAJOR, ((2, 2),))


def test_only_what_is_there_is_listed(tmp_path: Path, objects: Path) -> None:
    found = find(tmp_path, objects, layers=())
    assert (found.mig, found.files, found.links, found.stale) == ((), (), (), ())
    assert {device.kind for device in found.control} == {"ctl", "uvm", "uvm-tools"}


def test_a_script_in_the_place_of_a_program_is_passed_over(tmp_path: Path, objects: Path) -> None:
    """An H100's machine had a script as /usr/bin/nvidia-smi, which starts the one below /usr/local/nvidia."""
    driver = DriverTree(tmp_path / "host", objects, layers=EVERYTHING).build()
    folder = driver.root / "usr/local/nvidia/bin"
    folder.mkdir(parents=True)
    (folder / "nvidia-debugdump").write_bytes(b"\x7fELF")
    found = {binary.name: binary.path for binary in discover(HostTree(str(driver.root))).binaries}
    assert found["nvidia-debugdump"] == "/usr/local/nvidia/bin/nvidia-debugdump"
    assert found["nvidia-persistenced"] == "/usr/bin/nvidia-persistenced"  # a script, and nothing else
