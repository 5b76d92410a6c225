"""What is in the way of a driver: nouveau, another driver, a full disk, upgrades by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.dpkg import is_owned
from ansible_collections.grapnel.node.plugins.module_utils.preflight.disk import read_disk_free
from ansible_collections.grapnel.node.plugins.module_utils.preflight.foreign_driver import read_foreign_driver
from ansible_collections.grapnel.node.plugins.module_utils.preflight.nouveau import read_nouveau
from ansible_collections.grapnel.node.plugins.module_utils.preflight.pending_reboot import read_pending_reboot
from ansible_collections.grapnel.node.plugins.module_utils.preflight.unattended import read_unattended

from tests.playbooks.preflight.kernels import NEW

if TYPE_CHECKING:
    from tests.playbooks.fakes import Machine


@pytest.mark.parametrize(
    ("path", "text", "is_kept_out"),
    [
        ("/etc/modprobe.d/nvidia.conf", "# no\nblacklist nouveau\noptions nouveau modeset=0\n", True),
        ("/usr/lib/modprobe.d/nvidia.conf", "  blacklist   nouveau", True),
        ("/etc/modprobe.d/nvidia.conf", "install nouveau /bin/false\n", True),
        ("/etc/modprobe.d/nvidia.conf", "alias nouveau off\n", True),
        ("/proc/cmdline", "ro quiet modprobe.blacklist=i2c,nouveau\n", True),
        ("/proc/cmdline", "ro rd.driver.blacklist=nouveau,nova_core", True),
        ("/etc/modprobe.d/nvidia.conf", "#blacklist nouveau\n", False),
        ("/etc/modprobe.d/nvidia.conf.bak", "blacklist nouveau\n", False),
        ("/etc/modprobe.d/nvidia.conf", "blacklist nouveau_x\n", False),
        ("/proc/cmdline", "modprobe.blacklist=nouveaux\n", False),
    ],
)
def test_nouveau_is_kept_out_by_files_and_parameters(
    path: str, text: str, machine: Machine, *, is_kept_out: bool
) -> None:
    machine.write(f"/lib/modules/{NEW}/kernel/drivers/gpu/drm/nouveau/nouveau.ko")
    machine.write(path, text)

    assert read_nouveau(machine.host) == {"loaded": False, "blacklisted": is_kept_out}


def test_a_kernel_without_nouveau_needs_no_blacklist(machine: Machine) -> None:
    machine.write(f"/lib/modules/{NEW}/kernel/drivers/gpu/drm/ast/ast.ko")

    assert read_nouveau(machine.host) == {"loaded": False, "blacklisted": True}


def test_free_space_is_told_of_folders_that_are_there(machine: Machine) -> None:
    (machine.root / "var").mkdir()

    free = read_disk_free(machine.host)

    assert list(free) == ["/", "/var"]
    assert all(isinstance(size, int) and size >= 0 for size in free.values())


def test_a_driver_of_the_installer_is_known_by_its_uninstaller(machine: Machine) -> None:
    machine.write("/var/log/nvidia-installer.log", "nvidia-installer log file\ninstaller version: 550.54.15\n")
    removed = read_foreign_driver(machine.host, is_owned)
    machine.write("/usr/bin/nvidia-uninstall", mode=0o755)

    assert removed is None  # its log stays behind
    assert read_foreign_driver(machine.host, is_owned) == {
        "kind": "runfile",
        "version": "550.54.15",
        "uninstaller": "/usr/bin/nvidia-uninstall",
        "files": [],
    }


def test_libraries_are_foreign_where_no_package_has_them(machine: Machine) -> None:
    place = "/usr/lib/x86_64-linux-gnu/libcuda.so.550.163.01"
    machine.write(place)
    (machine.root / "usr/lib/x86_64-linux-gnu/libcuda.so.1").symlink_to("libcuda.so.550.163.01")
    lists = machine.write("/var/lib/dpkg/info/libc6:amd64.list", f"{place}\n")  # not a package of the driver: not read
    foreign = read_foreign_driver(machine.host, is_owned)
    lists.with_name("libcuda1:amd64.list").write_text(f"/.\n/usr\n{place.removeprefix('/usr')}\n")

    assert foreign == {"kind": "files", "version": "550.163.01", "uninstaller": None, "files": [place]}
    assert read_foreign_driver(machine.host, is_owned) is None


def service(active: str = "active", load: str = "loaded") -> dict[str, str]:
    return {"load": load, "active": active, "enabled": "enabled"}


@pytest.mark.parametrize(
    ("conf", "services", "expected"),
    [
        ('APT::Periodic::Unattended-Upgrade "1";\n', service(), True),
        ('APT::Periodic::Unattended-Upgrade "0";\n', service(), False),
        ('// APT::Periodic::Unattended-Upgrade "1";\n', service(), False),
        ('APT::Periodic::Unattended-Upgrade "1";\n', service("inactive"), False),
    ],
)
def test_unattended_upgrades_are_on_where_timer_and_configuration_say_so(
    conf: str, services: dict[str, str], machine: Machine, *, expected: bool
) -> None:
    machine.write("/usr/bin/unattended-upgrade", mode=0o755)
    machine.write("/etc/apt/apt.conf.d/20auto-upgrades", conf)

    assert read_unattended(machine.host, {"apt-daily-upgrade.timer": services}) == {
        "unit": "apt-daily-upgrade.timer",
        "active": expected,
    }


@pytest.mark.parametrize(("apply_updates", "is_on"), [("yes", True), ("no", False)])
def test_dnf_automatic_may_only_tell(apply_updates: str, machine: Machine, *, is_on: bool) -> None:
    machine.write("/usr/bin/dnf-automatic", mode=0o755)
    machine.write("/etc/dnf/automatic.conf", f"[commands]\nupgrade_type = default\napply_updates = {apply_updates}\n")

    assert read_unattended(machine.host, {"dnf-automatic.timer": service()}) == {
        "unit": "dnf-automatic.timer",
        "active": is_on,
    }


def test_a_timer_without_its_program_upgrades_nothing(machine: Machine) -> None:
    """Debian's apt has the timer, and unattended-upgrades is a package of its own."""
    assert read_unattended(machine.host, {"apt-daily-upgrade.timer": service()}) is None


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({}, None, id="none"),
        pytest.param(
            {"/run/reboot-required": "*** System restart required ***\n"},
            {"path": "/run/reboot-required", "packages": []},
            id="of Debian, by hand",
        ),
        pytest.param(
            {"/run/reboot-required": "", "/run/reboot-required.pkgs": "libc6\nlinux-image-6.12\nlibc6\n; rm -rf\n"},
            {"path": "/run/reboot-required", "packages": ["libc6", "linux-image-6.12"]},
            id="of Debian, with packages",
        ),
        pytest.param({"/run/reboot-needed": ""}, {"path": "/run/reboot-needed", "packages": []}, id="of SUSE"),
    ],
)
def test_packages_leave_word_that_a_reboot_is_needed(
    files: dict[str, str], expected: dict[str, object] | None, machine: Machine
) -> None:
    for path, text in files.items():
        machine.write(path, text)

    assert read_pending_reboot(machine.host) == expected
