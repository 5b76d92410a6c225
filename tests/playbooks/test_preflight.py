"""What decides about a driver on a machine: kernels, DKMS, secure boot, other drivers, space, staged changes."""

from __future__ import annotations

import json
import platform
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.gpus import read_module
from ansible_collections.grapnel.node.plugins.module_utils.host import Finished, HostError
from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.dpkg import is_owned
from ansible_collections.grapnel.node.plugins.module_utils.preflight.disk import read_disk_free
from ansible_collections.grapnel.node.plugins.module_utils.preflight.dkms import read_build_tools, read_dkms
from ansible_collections.grapnel.node.plugins.module_utils.preflight.foreign_driver import read_foreign_driver
from ansible_collections.grapnel.node.plugins.module_utils.preflight.initramfs import read_initramfs
from ansible_collections.grapnel.node.plugins.module_utils.preflight.kernels import read_kernels
from ansible_collections.grapnel.node.plugins.module_utils.preflight.nouveau import read_nouveau
from ansible_collections.grapnel.node.plugins.module_utils.preflight.secure_boot import read_secure_boot
from ansible_collections.grapnel.node.plugins.module_utils.preflight.staged import read_driver_state
from ansible_collections.grapnel.node.plugins.module_utils.preflight.unattended import read_unattended

if TYPE_CHECKING:
    from typing import Any

    from tests.playbooks.fakes import Machine

OLD, NEW = "6.12.107+deb13-amd64", "6.12.117+deb13-amd64"
VARIABLES = "/sys/firmware/efi/efivars"
SECURE_BOOT = f"{VARIABLES}/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
SHIM_OFF = f"{VARIABLES}/MokSBStateRT-605dab50-e046-4300-abb6-3dd810dd8b23"
# What modinfo of kmod 30 says of two files; nobody signed the second.
MODINFO = """\
filename:       {0}/lib/modules/6.12.117+deb13-amd64/updates/dkms/nvidia-current.ko.xz
alias:          char-major-195-*
version:        550.163.01
supported:      external
license:        NVIDIA
srcversion:     5B2B4B5A4B
name:           nvidia
vermagic:       6.12.117+deb13-amd64 SMP preempt mod_unload modversions
sig_id:         PKCS#7
signer:         DKMS module signing key
sig_key:        05:AF:14:56
filename:       {0}/lib/modules/6.12.117+deb13-amd64/kernel/nvidia-550srv-open/nvidia.ko
version:        550.144.03
license:        Dual MIT/GPL
"""


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> str:
    """Let the older kernel run."""
    monkeypatch.setattr(platform, "uname", lambda: platform.uname_result("Linux", "n1", OLD, "#1", "x86_64"))
    return OLD


def add_kernel(machine: Machine, release: str, *, headers: bool = True, image: bool = True) -> None:
    machine.write(f"/lib/modules/{release}/modules.dep")
    if image:
        machine.write(f"/boot/vmlinuz-{release}")
    if headers:
        machine.write(f"/usr/src/linux-headers-{release}/Makefile")
        build = machine.root / f"lib/modules/{release}/build"
        build.symlink_to(f"/usr/src/linux-headers-{release}")


def kernels(machine: Machine) -> dict[str, dict[str, Any]]:
    return {one["release"]: one for one in read_kernels(machine.host)}


@pytest.mark.usefixtures("running")
def test_kernels_with_an_image_may_boot_next_and_the_newest_comes_first(machine: Machine) -> None:
    add_kernel(machine, OLD)
    add_kernel(machine, NEW, headers=False)
    add_kernel(machine, "6.12.9+deb13-amd64")
    add_kernel(machine, "6.1.0-18-amd64", image=False)  # removed, and something is left in its folder
    machine.write("/lib/modules/extramodules/x")

    seen = read_kernels(machine.host)

    assert [one["release"] for one in seen] == [NEW, OLD, "6.12.9+deb13-amd64"]
    assert [(one["running"], one["default"], one["headers"]) for one in seen[:2]] == [
        (False, True, False),
        (True, False, True),
    ]


@pytest.mark.usefixtures("running")
def test_a_kernel_that_runs_counts_without_an_image(machine: Machine) -> None:
    add_kernel(machine, OLD, headers=False, image=False)

    assert [(one["release"], one["default"]) for one in read_kernels(machine.host)] == [(OLD, True)]


@pytest.mark.usefixtures("running")
def test_headers_are_found_behind_a_relative_link_where_lib_is_a_link_itself(machine: Machine) -> None:
    machine.write(f"/usr/src/linux-headers-{NEW}/Makefile")
    modules = machine.root / f"usr/lib/modules/{NEW}"
    modules.mkdir(parents=True)
    modules.joinpath("build").symlink_to(f"../../../src/linux-headers-{NEW}")
    modules.joinpath("vmlinuz").touch()
    machine.root.joinpath("lib").symlink_to("usr/lib")

    seen = read_kernels(machine.host)

    assert [(one["release"], one["headers"]) for one in seen] == [(NEW, True)]


@pytest.mark.usefixtures("running")
def test_headers_that_were_removed_leave_a_link_that_leads_nowhere(machine: Machine) -> None:
    add_kernel(machine, OLD)
    (machine.root / f"usr/src/linux-headers-{OLD}/Makefile").unlink()

    assert not kernels(machine)[OLD]["headers"]


BOOT = {
    "GRUB's first entry": (
        {"/boot/grub/grub.cfg": f"menuentry 'Debian' {{\n\tlinux\t/boot/vmlinuz-{OLD} root=UUID=1 ro\n}}\n"
                                f"\t\tlinux\t/vmlinuz-{NEW} ro\n"},
        OLD,
    ),
    "the entry that was saved": (
        {"/etc/default/grub": "GRUB_DEFAULT=saved\n", "/boot/grub2/grubenv": f"# GRUB\nsaved_entry=0f5e-{OLD}\n###\n"},
        OLD,
    ),
    "an entry that was saved and that nobody asks for": (
        {"/etc/default/grub": 'GRUB_DEFAULT="0"\n', "/boot/grub/grubenv": f"saved_entry={OLD}\n"},
        NEW,
    ),
    "an entry by its name": (
        {"/etc/default/grub": f'GRUB_DEFAULT="1>gnulinux-{OLD}-advanced-7c"\n'},
        OLD,
    ),
    "a kernel that is gone": ({"/boot/grub/grub.cfg": "linux /boot/vmlinuz-5.10.0-1-amd64 ro\n"}, NEW),
    "no boot loader that is known": ({}, NEW),
}  # fmt: skip


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize(("files", "default"), BOOT.values(), ids=BOOT)
def test_the_boot_loaders_choice_is_the_default(files: dict[str, str], default: str, machine: Machine) -> None:
    add_kernel(machine, OLD)
    add_kernel(machine, NEW)
    for path, text in files.items():
        machine.write(path, text)

    assert [one["release"] for one in read_kernels(machine.host) if one["default"]] == [default]


@pytest.mark.usefixtures("running")
def test_one_call_tells_all_modules_of_a_kernel(machine: Machine) -> None:
    add_kernel(machine, OLD)
    add_kernel(machine, NEW)
    folder = f"/lib/modules/{NEW}"
    for name in (
        "updates/dkms/nvidia-current.ko.xz",
        "updates/dkms/nvidia-uvm.ko",
        "updates/dkms/nvidia.ko.bak",
        "kernel/nvidia-550srv-open/nvidia.ko",
        "kernel/drivers/net/nvidia.ko",
    ):
        machine.write(f"{folder}/{name}")
    (machine.root / f"lib/modules/{NEW}/weak-updates").mkdir()
    (machine.root / f"lib/modules/{NEW}/weak-updates/nvidia.ko").symlink_to("/lib/modules/gone/extra/nvidia.ko")
    machine.teach("modinfo", MODINFO.format(machine.root))

    seen = kernels(machine)

    (call,) = machine.calls
    assert call.split() == [
        "modinfo",
        f"{machine.root}{folder}/updates/dkms/nvidia-current.ko.xz",
        f"{machine.root}{folder}/kernel/nvidia-550srv-open/nvidia.ko",
    ]
    assert seen[OLD]["modules"] == []
    assert seen[NEW]["modules"] == [
        {
            "path": f"{folder}/updates/dkms/nvidia-current.ko.xz",
            "version": "550.163.01",
            "flavour": "proprietary",
            "signer": "DKMS module signing key",
        },
        {
            "path": f"{folder}/kernel/nvidia-550srv-open/nvidia.ko",
            "version": "550.144.03",
            "flavour": "open",
            "signer": None,
        },
    ]


def test_a_module_that_was_looked_into_is_not_looked_into_again(machine: Machine) -> None:
    """A compressed module takes a second to unpack."""
    file = f"/lib/modules/{OLD}/updates/dkms/nvidia.ko.xz"
    machine.teach("modprobe --show-depends nvidia", f"insmod {file} \n")

    module = read_module(machine.host, [{"modules": [{"path": file, "version": "550.163.01"}]}])

    assert module["on_disk"] == "550.163.01"
    assert machine.calls == ["modprobe --show-depends nvidia"]


def add_build(machine: Machine, version: str, kernel: str, *, installed: bool) -> None:
    machine.write(f"/var/lib/dkms/nvidia-current/{version}/{kernel}/x86_64/module/nvidia-current.ko.xz")
    if installed:
        link = machine.root / f"var/lib/dkms/nvidia-current/kernel-{kernel}-x86_64"
        link.symlink_to(f"{version}/{kernel}/x86_64")


def test_dkms_is_read_from_its_tree(machine: Machine) -> None:
    for version in ("535.261.03", "550.163.01", "570.1"):
        source = machine.root / f"var/lib/dkms/nvidia-current/{version}"
        source.mkdir(parents=True)
        (source / "source").symlink_to(f"/usr/src/nvidia-current-{version}")
        machine.write(f"/usr/src/nvidia-current-{version}/dkms.conf", 'PACKAGE_NAME="nvidia"\nAUTOINSTALL="yes"\n')
    machine.write("/usr/src/nvidia-current-570.1/dkms.conf", "# AUTOINSTALL=yes\n")
    add_build(machine, "550.163.01", NEW, installed=True)
    add_build(machine, "550.163.01", OLD, installed=False)
    machine.write(f"/var/lib/dkms/nvidia-current/535.261.03/{OLD}/x86_64/log/make.log")  # a build that failed
    machine.write("/var/lib/dkms/nvidia-current/550.163.01/build/nvidia.o")
    machine.write("/var/lib/dkms/zfs/2.1/source")

    seen = read_dkms(machine.host)

    assert {one["module"] for one in seen} == {"nvidia-current"}
    assert [(one["version"], one["kernel"], one["state"], one["autoinstall"]) for one in seen] == [
        ("535.261.03", "", "added", True),
        ("550.163.01", OLD, "built", True),
        ("550.163.01", NEW, "installed", True),
        ("570.1", "", "added", False),
    ]


@pytest.mark.parametrize(
    ("printed", "version"), [("dkms-3.0.10\n", "3.0.10"), ("dkms: 2.8.1\n", "2.8.1"), ("usage: …\n", "")]
)
def test_build_tools_are_looked_for_and_dkms_tells_its_version(printed: str, version: str, machine: Machine) -> None:
    bare = read_build_tools(machine.host)
    for path in ("/usr/sbin/dkms", "/usr/bin/make", "/usr/bin/x86_64-linux-gnu-gcc-12"):
        machine.write(path, mode=0o755)
    machine.write("/etc/dkms/no-autoinstall")
    machine.teach("dkms --version", printed)

    assert bare == {"dkms": None, "gcc": False, "make": False, "autoinstall": True}
    assert read_build_tools(machine.host) == {"dkms": version, "gcc": True, "make": True, "autoinstall": False}


def add_variable(machine: Machine, path: str, value: int) -> None:
    machine.write(path)
    (machine.root / path.lstrip("/")).write_bytes(bytes([6, 0, 0, 0, value]))


def test_a_machine_without_efi_has_no_secure_boot(machine: Machine) -> None:
    machine.write("/proc/keys", "0f02 I------ 1 perm 1f030000 0 0 keyring .builtin_trusted_keys: empty\n")

    assert read_secure_boot(machine.host) == {"enabled": False, "enforced": False, "enrolled": [], "lockdown": None}


@pytest.mark.parametrize(
    ("variables", "enabled"),
    [
        pytest.param({SECURE_BOOT: 1}, True, id="on"),
        pytest.param({SECURE_BOOT: 0}, False, id="off"),
        pytest.param({SECURE_BOOT: 1, SHIM_OFF: 1}, False, id="on, and shim does not validate"),
        pytest.param({SECURE_BOOT: 1, SHIM_OFF: 0}, True, id="on, and shim validates"),
        pytest.param({f"{VARIABLES}/BootOrder-8be4": 1}, False, id="a firmware without it"),
        pytest.param({}, None, id="variables that are not mounted"),
    ],
)
def test_secure_boot_is_what_the_firmware_says(
    variables: dict[str, int], machine: Machine, *, enabled: bool | None
) -> None:
    machine.root.joinpath("sys/firmware/efi/efivars").mkdir(parents=True)
    for path, value in variables.items():
        add_variable(machine, path, value)

    assert read_secure_boot(machine.host)["enabled"] is enabled


def test_certificates_are_those_of_the_kernel_and_of_shim(machine: Machine) -> None:
    add_variable(machine, SECURE_BOOT, 1)
    machine.write("/sys/kernel/security/lockdown", "none [integrity] confidentiality\n")
    machine.write(
        "/proc/keys",
        "0b3f1f27 I------ 1 perm 1f010000 0 0 asymmetri Debian Secure Boot CA: 6ccece7e4c6c: X509.rsa 5c6e []\n"
        "0f02bb11 I------ 1 perm 1f030000 0 0 keyring   .machine: 1\n",
    )
    machine.write("/usr/bin/mokutil", mode=0o755)
    machine.teach(
        "mokutil --list-enrolled", "[key 1]\n        Subject: CN=DKMS module signing key\n        Issuer: CN=x\n"
    )

    assert read_secure_boot(machine.host) == {
        "enabled": True,
        "enforced": True,
        "enrolled": ["Debian Secure Boot CA: 6ccece7e4c6c", "CN=DKMS module signing key"],
        "lockdown": "integrity",
    }


def test_certificates_that_nobody_may_see_are_not_none(machine: Machine) -> None:
    add_variable(machine, SECURE_BOOT, 1)
    machine.write("/proc/keys", "1345 I--Q--- 2 perm 1f3f0000 0 65534 keyring _uid.0: empty\n")
    machine.write("/sys/module/module/parameters/sig_enforce", "Y\n")

    assert read_secure_boot(machine.host) == {"enabled": True, "enforced": True, "enrolled": None, "lockdown": None}


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
    ("commands", "tool"),
    [(("update-initramfs",), "initramfs-tools"), (("dracut",), "dracut"), ((), "none")],
)
def test_the_tool_for_the_initramfs(commands: tuple[str, ...], tool: str, machine: Machine) -> None:
    for command in commands:
        machine.write(f"/usr/sbin/{command}", mode=0o755)

    assert read_initramfs(machine.host) == {"tool": tool}


ID, HALF = "0123456789ab", "ba9876543210"
FOLDER = "/var/lib/grapnel/driver"


def test_staged_changes_the_current_one_and_the_last_run_are_told(machine: Machine) -> None:
    machine.write("/etc/os-release", "ID=debian\n")
    machine.write("/usr/bin/apt-get", mode=0o755)
    machine.write(f"{FOLDER}/staged/{ID}/change.json", json.dumps({"version": "550.163.01"}))
    machine.write(f"{FOLDER}/staged/{ID}/cost.json", json.dumps({"download_s": 3.5, "bytes": 95, "cpu_s": -1, "x": 2}))
    machine.write(f"{FOLDER}/staged/{ID}/complete", "{}")
    machine.write(f"{FOLDER}/staged/{HALF}/change.json", "{")
    machine.write(f"{FOLDER}/staged/.new/change.json", "{}")
    (machine.root / FOLDER.lstrip("/") / "current").symlink_to(f"staged/{ID}")
    machine.write(
        f"{FOLDER}/run.json",
        json.dumps(
            {"run": "r1", "change": ID, "verb": "swap", "state": "returned", "step": "verify", "reason": "a\nb"}
        ),
    )

    assert read_driver_state(machine.host) == {
        "staged": [
            {"id": ID, "version": "550.163.01", "complete": True, "cost": {"download_s": 3.5, "bytes": 95}},
            {"id": HALF, "version": None, "complete": False, "cost": {}},
        ],
        "current": ID,
        "run": {
            "run": "r1",
            "change": ID,
            "verb": "swap",
            "unit": "",
            "step": "verify",
            "state": "returned",
            "reason": "a\\nb",
            "reboot": "",
            "reboot_due": False,
            "out_of_service_s": None,
        },
        "back": None,
        "managed": False,
    }


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"state": "flying"}', '{"state": ["done"]}', '"done"', '{"state": "done", "out_of_service_s": NaN}'],
)
def test_what_is_no_record_of_a_run_does_not_spoil_the_facts(text: str, machine: Machine) -> None:
    machine.write(f"{FOLDER}/run.json", text)

    run = read_driver_state(machine.host)["run"]

    assert run is None or run["out_of_service_s"] is None


def test_a_node_that_the_program_never_ran_on_has_no_state(machine: Machine) -> None:
    assert read_driver_state(machine.host) == {
        "staged": [],
        "current": None,
        "run": None,
        "back": None,
        "managed": False,
    }


def test_modules_are_read_again_when_one_of_them_has_changed(machine: Machine, running: str) -> None:
    """Facts are gathered several times in a change, and each module is a second of work."""
    file = f"/lib/modules/{running}/extra/nvidia.ko"
    said = "filename:       {}\nversion:        {}\nlicense:        NVIDIA\n"
    add_kernel(machine, running)
    machine.write(file)
    machine.teach("modinfo", lambda: Finished(1, "", "modinfo: ERROR: could not get modinfo from 'nvidia'"))
    assert kernels(machine)[running]["modules"] == []
    for version in ("550.163.01", "610.57"):
        machine.write(file, version)
        machine.teach("modinfo", said.format(f"{machine.root}{file}", version))
        machine.calls.clear()

        seen = [kernels(machine)[running]["modules"] for _ in range(3)]

        assert [[one["version"] for one in modules] for modules in seen] == [[version]] * 3
        assert len(machine.calls) == 1


def test_a_file_that_is_no_module_is_none(machine: Machine, running: str) -> None:
    add_kernel(machine, running)
    machine.write(f"/lib/modules/{running}/extra/nvidia.ko")
    machine.teach("modinfo", lambda: Finished(1, "", "modinfo: ERROR: could not get modinfo from 'nvidia'"))

    assert kernels(machine)[running]["modules"] == []


def test_modules_that_are_not_read_in_time_are_not_missing(machine: Machine, running: str) -> None:
    add_kernel(machine, running)
    machine.write(f"/lib/modules/{running}/extra/nvidia.ko")
    machine.teach("modinfo", lambda: Finished(124, "", "modinfo took longer than 180 s"))

    with pytest.raises(HostError, match=r"`modinfo .*/extra/nvidia.ko` took longer than 180 s: try again"):
        kernels(machine)
