from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.kernel.device_nodes import make_nodes, missing_nodes
from ansible_collections.grapnel.node.plugins.module_utils.kernel.modprobe import users_of, version_on_disk
from ansible_collections.grapnel.node.plugins.module_utils.machine.gpus import read_hardware, read_module
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished, HostError
from ansible_collections.grapnel.node.plugins.module_utils.machine.identity import (
    parse_os_release,
    read_identity,
    read_image,
)
from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.dpkg import read_installed, read_lock_holder
from hypothesis import given
from hypothesis import strategies as st

if TYPE_CHECKING:
    from pathlib import Path

    from tests.playbooks.fakes import Machine


def add_function(machine: Machine, address: str, vendor: str, pci_class: str, numa_node: str = "-1") -> None:
    folder = f"/sys/bus/pci/devices/{address}"
    for name, text in (
        ("vendor", vendor),
        ("device", "0x20B0"),
        ("class", pci_class),
        ("numa_node", numa_node),
        ("subsystem_vendor", "0x10de"),
        ("subsystem_device", "0x1533"),
    ):
        machine.write(f"{folder}/{name}", f"{text}\n")


@pytest.mark.parametrize("number", ["", "²", "1²", "-1", "x"])
def test_a_numa_node_that_is_no_number_is_unknown(machine: Machine, number: str) -> None:
    add_function(machine, "0000:10:00.0", "0x10de", "0x030000", number)

    assert [gpu["numa_node"] for gpu in read_hardware(machine.host)["gpus"]] == [None]


@pytest.mark.parametrize("number", ["", "²", "-1"])
def test_a_count_of_uses_that_is_no_number_counts_nothing(machine: Machine, number: str) -> None:
    machine.write("/sys/module/nvidia/refcnt", f"{number}\n")

    assert users_of(machine.host, "nvidia") == ([], 0)


def test_gpus_are_nvidias_functions_with_a_display_class(machine: Machine) -> None:
    add_function(machine, "0000:11:00.0", "0x10de", "0x030200", "1")
    add_function(machine, "0000:10:00.0", "0x10de", "0x030000")
    add_function(machine, "0000:10:00.1", "0x10de", "0x040300")  # the audio function of a graphics card
    add_function(machine, "0000:00:02.0", "0x8086", "0x030000")

    gpus = read_hardware(machine.host)["gpus"]

    assert [gpu["address"] for gpu in gpus] == ["0000:10:00.0", "0000:11:00.0"]
    assert gpus[0]["numa_node"] is None
    assert gpus[1] == {
        "address": "0000:11:00.0",
        "vendor": "10de",
        "device": "20b0",
        "class": "030200",
        "numa_node": 1,
        "subsystem_vendor": "10de",
        "subsystem_device": "1533",
    }


def test_switches_and_infiniband_are_told_by_the_bus(machine: Machine) -> None:
    add_function(machine, "0000:85:00.0", "0x10de", "0x068000")
    add_function(machine, "0000:86:00.0", "0x10de", "0x068000")
    add_function(machine, "0000:10:00.0", "0x10de", "0x030200")
    alone = read_hardware(machine.host)
    add_function(machine, "0000:20:00.0", "0x15b3", "0x020700")

    together = read_hardware(machine.host)

    assert (alone["nvswitches"], alone["infiniband"], len(alone["gpus"])) == (2, False, 1)
    assert (together["nvswitches"], together["infiniband"], len(together["gpus"])) == (2, True, 1)


@pytest.mark.parametrize(
    ("banner", "flavour"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue\nGCC version: gcc", "proprietary"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.163.01  Release Build", "open"),
    ],
)
def test_the_module_tells_its_flavour(banner: str, flavour: str, machine: Machine) -> None:
    machine.write("/sys/module/nvidia/version", "550.163.01\n")
    machine.write("/sys/module/nvidia/refcnt", "2\n")
    machine.write("/sys/module/nvidia/holders/nvidia_uvm")
    machine.write("/proc/driver/nvidia/version", banner)
    machine.teach("modprobe --show-depends nvidia", "insmod /lib/modules/6.12/updates/dkms/nvidia.ko.xz \n")
    machine.teach("modinfo --field version /lib/modules/6.12/updates/dkms/nvidia.ko.xz", "570.133.07\n")

    module = read_module(machine.host)

    assert module == {
        "loaded": True,
        "version": "550.163.01",
        "flavour": flavour,
        "refcount": 2,
        "holders": ["nvidia_uvm"],
        "on_disk": "570.133.07",
        "parameters": {},
    }


def test_a_node_without_the_module_has_facts_too(machine: Machine) -> None:
    machine.teach("modprobe", return_code=1, stderr="modprobe: FATAL: Module nvidia not found in directory\n")

    assert read_module(machine.host) == {
        "loaded": False,
        "version": None,
        "flavour": None,
        "refcount": 0,
        "holders": [],
        "on_disk": None,
        "parameters": {},
    }


def test_the_numbers_among_the_parameters_in_force_have_the_names_of_modprobe(machine: Machine) -> None:
    listed = 'ResmanDebugLevel: 4294967295\nEnableGpuFirmware: 18\nRegistryDwords: "RmProfiling=1"\nbroken\nHuge: 1e9\n'
    machine.write("/proc/driver/nvidia/params", listed)
    machine.teach("modprobe", return_code=1, stderr="modprobe: FATAL: Module nvidia not found in directory\n")

    before = read_module(machine.host)["parameters"]
    machine.write("/sys/module/nvidia/version", "550.163.01\n")

    assert before == {}, "a module that is not loaded has none"
    assert read_module(machine.host)["parameters"] == {
        "NVreg_ResmanDebugLevel": 4_294_967_295,
        "NVreg_EnableGpuFirmware": 18,
    }


DEBIAN = "install modprobe -i nvidia-current $CMDLINE_OPTS \n"
ON_DISK = {
    "a file of another name, behind Debian's install command": (DEBIAN, "modprobe --show-depends --ignore-install"),
    "an install command that loads something else first": (
        "insmod /ipmi.ko \ninstall /sbin/modprobe ipmi_devintf; /sbin/modprobe -i nvidia-current\n",
        "modprobe --show-depends --ignore-install",
    ),
    "an alias of a plain name": ("install modprobe nvidia-current\n", "modprobe --show-depends"),
}


@pytest.mark.parametrize(("shown", "command"), ON_DISK.values(), ids=ON_DISK)
def test_the_file_that_modprobe_would_load_tells_the_version(shown: str, command: str, machine: Machine) -> None:
    machine.teach("modprobe --show-depends nvidia", shown)
    machine.teach(f"{command} nvidia-current", "insmod /i2c.ko \ninsmod /nvidia-current.ko NVreg_X=1\n")
    machine.teach("modinfo --field version /nvidia-current.ko", "550.163.01\n")

    assert version_on_disk(machine.host, "nvidia") == "550.163.01"


@pytest.mark.parametrize(
    "shown",
    ["", "builtin nvidia\n", "install /bin/false\n", "install modprobe nvidia\n", "install echo 'no\n"],
    ids=["nothing", "built in", "kept out", "a circle", "no shell words"],
)
def test_what_modprobe_would_not_load_has_no_version(shown: str, machine: Machine) -> None:
    machine.teach("modprobe --show-depends nvidia", shown)

    assert version_on_disk(machine.host, "nvidia") is None


@pytest.mark.parametrize("command", ["modprobe --show-depends nvidia", "modinfo --field version /nvidia.ko"])
def test_a_module_that_nobody_could_look_at_in_time_is_not_a_missing_one(command: str, machine: Machine) -> None:
    machine.teach("modprobe --show-depends nvidia", "insmod /nvidia.ko\n")
    machine.teach(command, return_code=124, stderr="it took longer than that\n")

    with pytest.raises(HostError, match=f"`{command}` took longer than [0-9]+ s: try again"):
        version_on_disk(machine.host, "nvidia")


def test_a_module_file_without_a_version_has_none(machine: Machine) -> None:
    machine.teach("modprobe --show-depends nvidia", "insmod /nvidia.ko\n")
    machine.teach("modinfo", "")

    assert version_on_disk(machine.host, "nvidia") is None


def test_missing_device_nodes_are_made_as_the_driver_wants_them(machine: Machine) -> None:
    devices = "Character devices:\n  4 tty\n195 nvidia\n195 nvidiactl\n508 nvidia-uvm\n\nBlock devices:\n195 nvidia\n"
    machine.write("/proc/devices", devices)
    wishes = f"DeviceFileUID: {os.getuid()}\nDeviceFileGID: {os.getgid()}\nDeviceFileMode: 432\nModifyDeviceFiles: 1\n"
    machine.write("/proc/driver/nvidia/params", wishes)
    for address, minor in (("0000:20:00.0", 1), ("0000:10:00.0", 0)):
        machine.write(f"/proc/driver/nvidia/gpus/{address}/information", f"Model: A100\nDevice Minor: \t {minor}\n")
    machine.write("/dev/nvidia0")
    machine.write("/sys/module/nvidia_modeset/version")
    made: list[tuple[str, int, int]] = []

    def mknod(path: Path, mode: int, device: int) -> None:
        made.append((path.name, os.major(device), os.minor(device)))
        assert stat.S_ISCHR(mode)
        if path.name == "nvidia-uvm":
            raise FileExistsError
        path.touch()

    make_nodes(machine.host, missing_nodes(machine.host), mknod)

    assert made == [
        ("nvidiactl", 195, 255),
        ("nvidia1", 195, 1),
        ("nvidia-modeset", 195, 254),
        ("nvidia-uvm", 508, 0),
        ("nvidia-uvm-tools", 508, 1),
    ]
    assert stat.S_IMODE((machine.root / "dev/nvidia1").stat().st_mode) == 0o660


def test_a_driver_that_leaves_device_nodes_to_others_is_obeyed(machine: Machine) -> None:
    machine.write("/proc/devices", "195 nvidia\n")
    machine.write("/proc/driver/nvidia/params", "ModifyDeviceFiles: 0\n")

    assert missing_nodes(machine.host) == []


def test_complaints_of_a_command_are_one_bounded_line() -> None:
    done = Finished(1, stderr="E: \x1b]0;x\x07 broken\nE: \u202e\n" + "x" * 9999)

    assert done.complaints.startswith(r"E: \x1b]0;x\x07 broken; E: \u202e; xxx")
    assert len(done.complaints) == len(done.complaint) == 2000
    assert Finished(1, stdout="last\x1b words\n").complaint == r"last\x1b words"


def test_os_release_may_be_quoted_and_incomplete() -> None:
    text = '# a comment\nNAME="Debian GNU/Linux"\nID=debian\nVERSION_ID="13"\n'

    assert parse_os_release(text) == {"id": "debian", "version_id": "13", "codename": ""}


@pytest.mark.parametrize(
    ("paths", "options", "image"),
    [
        pytest.param(["/run/ostree-booted", "/usr/bin/bootc"], "ro,relatime", "ostree", id="RHEL in image mode"),
        pytest.param(["/usr/bin/bootc"], "ro", "bootc", id="the same without ostree"),
        pytest.param(
            ["/usr/sbin/transactional-update"],
            "ro,relatime,subvol=/@/.snapshots/2/snapshot",
            "transactional-update",
            id="SLE Micro",
        ),
        pytest.param(
            ["/usr/sbin/transactional-update"], "rw,errors=remount-ro", "", id="packages are changed in place"
        ),
        pytest.param([], "ro,relatime", "", id="a disk with errors"),
    ],
)
def test_a_system_that_is_an_image_is_told_from_one_of_packages(
    paths: list[str], options: str, image: str, machine: Machine
) -> None:
    machine.write("/proc/self/mounts", f"rootfs / rootfs rw 0 0\n/dev/vda2 / btrfs {options} 0 0\nnothing\n")
    for path in paths:
        machine.write(path, mode=0o755)

    assert read_image(machine.host) == image


def test_an_image_is_known_beside_the_mounts_of_many_containers(machine: Machine) -> None:
    mounts = f"overlay /run/containers/x overlay rw,lowerdir={'l:' * 1000} 0 0\n" * 1000
    machine.write("/proc/self/mounts", f"/dev/vda2 / btrfs ro 0 0\n{mounts}")
    machine.write("/usr/sbin/transactional-update", mode=0o755)

    assert read_image(machine.host) == "transactional-update"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param('ID="debian\nVERSION_ID="13"\n', ("linux", "13"), id="a quote that nobody closes"),
        pytest.param("ID='debian\"\nVERSION_ID=13", ("linux", "13"), id="quotes that do not fit"),
        pytest.param('NAME="x\nID=debian\nVERSION_ID=\\', ("debian", ""), id="an escape of nothing"),
        pytest.param("ID=\nVERSION_ID", ("linux", ""), id="nothing"),
        pytest.param("ID=" + "x" * 9999, ("x" * 128, ""), id="without end"),
        pytest.param("ID='\x1b[2J\u202e'", (r"\x1b[2J\u202e", ""), id="control characters"),
        pytest.param(" ID = debian \nID=debian # trixie", ("debian", ""), id="a comment behind it"),
    ],
)
def test_a_broken_os_release_says_what_can_be_read_of_it(text: str, expected: tuple[str, str]) -> None:
    found = parse_os_release(text)

    assert (found["id"], found["version_id"]) == expected


@given(text=st.text())
def test_no_os_release_ends_in_an_error(text: str) -> None:
    for value in parse_os_release(f"ID={text}\n{text}\nVERSION_ID='{text}").values():
        assert value.isprintable()
        assert len(value) <= 256


def make_unfit(machine: Machine, path: str, kind: str) -> None:
    place = machine.root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    if kind == "fifo":
        os.mkfifo(place)
    elif kind == "device":
        place.symlink_to("/dev/zero")
    elif kind == "folder":
        place.mkdir()
    else:
        with place.open("wb") as file:
            file.truncate(1 << 34)


@pytest.mark.parametrize("kind", ["fifo", "device", "folder", "huge"])
def test_what_is_no_small_regular_file_is_not_read(kind: str, machine: Machine) -> None:
    for path in ("/etc/hostname", "/etc/machine-id", "/etc/os-release", "/var/lib/dpkg/lock"):
        make_unfit(machine, path, kind)
    machine.write("/usr/lib/os-release", "ID=debian\n")

    identity = read_identity(machine.host)

    assert (identity["hostname"], identity["machine_id"]) == (os.uname().nodename, "")
    assert identity["os"]["id"] == "debian"
    assert read_lock_holder(machine.host) is None


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fifo", "device", "folder", "huge"])
def test_a_package_database_that_cannot_be_read_is_an_error_and_not_an_empty_one(kind: str, machine: Machine) -> None:
    make_unfit(machine, "/var/lib/dpkg/status", kind)

    with pytest.raises(HostError, match="/var/lib/dpkg/status cannot be read as a file of at most 64 MiB"):
        read_installed(machine.host)


def add_python(machine: Machine, name: str, *, mode: int = 0o755) -> None:
    machine.write(f"/usr/bin/{name}", "", mode=mode)


def link_python(machine: Machine, target: str) -> None:
    (machine.root / "usr/bin/python3").symlink_to(target)


def test_the_interpreters_of_a_node_are_told_by_their_paths(machine: Machine) -> None:
    """RHEL 9: its own 3.9, and the python3.11 that its AppStream has."""
    add_python(machine, "python3.9")
    add_python(machine, "python3.11")
    link_python(machine, "python3.9")
    machine.write("/usr/local/bin/python3.14", mode=0o755)

    told = read_identity(machine.host)

    assert told["pythons"] == {
        "/usr/bin/python3": "3.9",
        "/usr/bin/python3.11": "3.11",
        "/usr/bin/python3.9": "3.9",
    }
    assert told["python"] == "3.9"  # whichever it is that Ansible runs the module with
    assert machine.calls == []


@pytest.mark.parametrize(
    ("name", "mode"), [("python3.12", 0o644), ("python3.12", 0o775), ("python3.12", 0o757), ("python3.8", 0o755)]
)
def test_what_cannot_be_run_or_others_may_write_is_no_interpreter(machine: Machine, name: str, mode: int) -> None:
    add_python(machine, name, mode=mode)
    (machine.root / "usr/bin/python3.11").symlink_to("nowhere")
    assert read_identity(machine.host)["pythons"] == {}


def test_an_interpreter_whose_name_has_no_version_is_asked(machine: Machine) -> None:
    """RHEL 8: alternatives lead to platform-python."""
    machine.write("/usr/libexec/platform-python", mode=0o755)
    (machine.root / "usr/bin").mkdir(parents=True, exist_ok=True)
    link_python(machine, "../libexec/platform-python")
    machine.teach("/usr/bin/python3 -IS -c", "3.6\n")
    assert read_identity(machine.host)["pythons"] == {"/usr/bin/python3": "3.6"}

    machine.teach("/usr/bin/python3 -IS -c", "", return_code=1, stderr="killed")
    assert read_identity(machine.host)["pythons"] == {}
