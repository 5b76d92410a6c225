"""A fake machine with dpkg, dkms, modules, services and GPUs, on which processes can be killed anywhere.

What commands do is done to the machine's state, so it outlives a process that is killed.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.playbooks.driver.answers import as_document, finished
from tests.playbooks.driver.killing import Killer, MortalRoot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Finished, Host

KERNEL = "6.12.117+deb13-amd64"
OTHER_KERNEL = "6.12.96+deb13-amd64"
DKMS = "nvidia-current"
DKMS_TREE = f"var/lib/dkms/{DKMS}"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
SERVICE = "nvidia-persistenced.service"
MODULES = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm")
NEEDS = {"nvidia_uvm": "nvidia", "nvidia_modeset": "nvidia", "nvidia_drm": "nvidia_modeset"}
REVISION = "-2"
LAUNCH = "/usr/lib/grapnel/driver/grapnel-driver"
_LOOKS = ("modprobe --show", "modinfo", "systemctl show", "dkms status", "/usr/bin/nvidia-smi", "uname", "dpkg-query")


@dataclass
class Package:
    """A package in dpkg's database."""

    version: str
    held: bool = False
    state: str = "installed"


@dataclass
class FakeMachine:
    """The machine. Faults are set by tests: what does not load, which package's script fails, and so on."""

    root: Path
    gpus: int = 2
    packages: dict[str, Package] = field(default_factory=dict)
    loaded: dict[str, str] = field(default_factory=dict)
    flavour_loaded: str = "proprietary"
    running: set[str] = field(default_factory=set)
    dkms_built: dict[tuple[str, str], str] = field(default_factory=dict)  # flavour by (version, kernel)
    on_disk: dict[str, tuple[str, str]] = field(default_factory=dict)  # (version, flavour) by kernel
    interrupted: bool = False
    calls: list[str] = field(default_factory=list)
    seconds: float = 1_700_000_000.0
    unloadable: set[str] = field(default_factory=set)  # versions that the kernel refuses
    failing_packages: set[tuple[str, str]] = field(default_factory=set)  # whose postinst fails
    broken_smi: set[str] = field(default_factory=set)  # versions
    is_disk_full: bool = False
    extra_removals: set[str] = field(default_factory=set)
    compiled: list[str] = field(default_factory=list)
    scripts_call_dkms: bool = False  # as those of RPM packages do
    withdrawn: list[str] = field(default_factory=list)
    slow_modinfo: bool = False
    initramfs_error: str = ""
    kernel: str = KERNEL  # the running one
    pinned: set[str] = field(default_factory=set)  # modules in use by what is no process, until a reboot
    pins_again: bool = False  # at every boot
    mig: dict[str, list[str]] = field(default_factory=dict)  # instances by GPU; the loaded module has them
    cut: dict[str, list[str]] = field(default_factory=dict)  # what somebody has had MIG cut, and cuts at every boot
    mig_unreadable: bool = False
    mig_errors: set[str] = field(default_factory=set)  # versions that cannot cut
    ends_with_service: Path | None = None  # a process in /proc
    initramfs: tuple[str, str] | None = None  # the module that the next boot loads; None: the one on the disk
    _shown: tuple[object, ...] = ()

    def __post_init__(self) -> None:
        for name in ("apt-get", "nvidia-smi", "update-initramfs"):
            self.write(f"usr/bin/{name}", "").chmod(0o755)
        self.write("usr/lib/grapnel/hook/grapnel-hook", "")
        self.write("proc/sys/kernel/random/boot_id", "boot-1")
        self.write(f"boot/initrd.img-{KERNEL}")
        for kernel in (KERNEL, OTHER_KERNEL):
            (self.root / f"lib/modules/{kernel}").mkdir(parents=True)
        for number in range(self.gpus):
            folder = f"sys/bus/pci/devices/0000:0{number}:00.0"
            for name, value in (("vendor", "0x10de"), ("device", "0x2330"), ("class", "0x030200")):
                self.write(f"{folder}/{name}", f"{value}\n")
        self.show()

    def host(self, killer: Killer | None = None) -> Host:
        """Return the machine as a process has it."""
        from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host  # noqa: PLC0415 - see conftest

        killer = killer or Killer()
        root = MortalRoot(self.root)
        root.killer = killer

        def run(arguments: Sequence[str], timeout_s: float) -> Finished:
            assert timeout_s > 0
            killer.moment()
            done = self._answer(list(arguments), killer.moment)
            killer.moment()
            return done

        return Host(root, run)

    def clock(self, killer: Killer | None = None) -> Clock:
        """Return a clock that goes on as it is looked at."""
        from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock  # noqa: PLC0415 - see conftest

        def now() -> float:
            if killer is not None:
                killer.moment()
            self.seconds += 0.25
            return self.seconds

        return Clock(now, self._pass, lambda: self.seconds)

    def _pass(self, seconds: float) -> None:
        self.seconds += seconds

    def write(self, path: str, text: str = "") -> Path:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place

    def has(self, path: str) -> bool:
        return (self.root / path.lstrip("/")).exists()

    def changes(self) -> list[str]:
        """Return the commands that changed something."""
        looks = (f"{LAUNCH} mig",)
        return [
            call
            for call in self.calls
            if not call.startswith(_LOOKS) and "--simulate" not in call and call not in looks
        ]

    def reboot(self) -> None:
        """Lose what is in memory; the module on disk is loaded and the enabled service started again."""
        shutil.rmtree(self.root / "run", ignore_errors=True)
        self.write("proc/sys/kernel/random/boot_id", f"boot-after-{self.seconds}")
        self.loaded, self.running = {}, set()
        # What a run has noted is for it to restore: whoever cuts at boot may come later than it.
        is_noted = any(self.has(f"var/lib/grapnel/driver/{name}.json") for name in ("restore", "reboot"))
        self.mig = {} if is_noted else {gpu: [*cuts] for gpu, cuts in self.cut.items()}
        self.pinned = self.pinned if self.pins_again else set()
        first = self.initramfs if self.initramfs and self.kernel == KERNEL else None
        if self._load("nvidia_uvm", first).return_code == 0 and SERVICE.removesuffix(".service") in self.packages:
            self.running.add(SERVICE)
        self.show()

    def show(self) -> None:
        """Write what the kernel and dpkg show, unless nothing of it has changed."""
        packages = "\n".join(self._paragraph(name) for name in sorted(self.packages))
        shown = (*self.loaded.items(), *sorted(self.pinned), self.flavour_loaded, packages, self.interrupted)
        if shown == self._shown:
            return
        self._shown = shown
        shutil.rmtree(self.root / "sys/module", ignore_errors=True)
        for name, version in self.loaded.items():
            users = [each for each, needed in NEEDS.items() if needed == name and each in self.loaded]
            self.write(f"sys/module/{name}/version", version)
            self.write(f"sys/module/{name}/refcnt", str(len(users) + (name in self.pinned)))
            for user in users:
                self.write(f"sys/module/{name}/holders/{user}")
        word = "Open Kernel Module" if self.flavour_loaded == "open" else "Kernel Module"
        self.write("proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX {word}  {self.loaded.get('nvidia')}\n")
        self.write("var/lib/dpkg/status", packages)
        shutil.rmtree(self.root / "var/lib/dpkg/updates", ignore_errors=True)
        if self.interrupted:
            self.write("var/lib/dpkg/updates/0001")

    def _paragraph(self, name: str) -> str:
        one = self.packages[name]
        want = "hold" if one.held else "install"
        status = f"Status: {want} ok {one.state}"
        return f"Package: {name}\n{status}\nArchitecture: amd64\nVersion: {one.version}\n"

    def _answer(self, words: list[str], moment: Callable[[], None]) -> Finished:
        if words[0] in ("env", "nice"):
            first = next(n for n, word in enumerate(words) if word in ("apt-get", "dpkg", "update-initramfs"))
            words = words[first:]
        if words[0] == "unshare":
            words = words[words.index("env") :]
            return self._answer(words, moment)
        self.calls.append(" ".join(words))
        command = words[0].rpartition("/")[2].replace("-", "_")
        done: Finished = getattr(self, f"_do_{command}")(words[1:], moment)
        if not self.calls[-1].startswith(_LOOKS):
            self.show()
        return done

    def _do_apt_get(self, words: list[str], moment: Callable[[], None]) -> Finished:
        if self.interrupted:
            return finished(100, stderr="E: dpkg was interrupted, you must manually run 'dpkg --configure -a'\n")
        begin = words.index("--fix-broken") + 1
        files = [word for word in words[begin:] if word.endswith(".deb")]
        removed = {word[:-1] for word in words[begin:] if word.endswith("-")} & self.packages.keys()
        removed |= self.extra_removals & self.packages.keys()
        new = dict(Path(self.root / file.lstrip("/")).read_text().split() for file in files)
        changed = {name: version for name, version in new.items() if not self._is_at(name, version)}
        if "--simulate" in words:
            lines = [f"Inst {name} ({version} local-deb [amd64])" for name, version in changed.items()]
            return finished(0, "\n".join([*lines, *(f"Remv {name} [1]" for name in sorted(removed)), ""]))
        if self.is_disk_full:
            return finished(100, "Unpacking libcuda1\n", "E: dpkg-deb: error: write: No space left on device\n")
        self.interrupted = True
        self.show()
        moment()
        for name in sorted(removed):
            self._remove(name)
        for name, version in sorted(changed.items()):
            self.packages[name] = Package(version, state="unpacked")
            self.show()
            moment()
        self.interrupted = False
        return self._configure("Unpacking all\n", moment)

    def _is_at(self, name: str, version: str) -> bool:
        found = self.packages.get(name)
        return found is not None and (found.version, found.state) == (version, "installed")

    def _configure(self, said: str, moment: Callable[[], None]) -> Finished:
        for name, one in sorted(self.packages.items()):
            if one.state != "installed":
                if (name, one.version) in self.failing_packages:
                    one.state = "half-configured"
                    return finished(100, said, f"dpkg: error processing package {name} (--configure):\n")
                self._postinst(name, one.version.removesuffix(REVISION))
                one.state = "installed"
                self.show()
                moment()
        return finished(0, said)

    def _postinst(self, name: str, version: str) -> None:
        if name == "libcuda1":
            for old in (self.root / LIBRARIES).glob("libcuda.so*"):
                old.unlink()
            self.write(f"{LIBRARIES}/libcuda.so.{version}")
            (self.root / LIBRARIES / "libcuda.so.1").symlink_to(f"libcuda.so.{version}")
        if name == "nvidia-kernel-dkms":
            self._forget_modules()
            settings = self.root / f"etc/dkms/{DKMS}-{version}.conf"
            excluded = settings.exists() and 'BUILD_EXCLUSIVE_KERNEL="^$"' in settings.read_text()
            if not (excluded if self.scripts_call_dkms else self.has("/etc/dkms/no-autoinstall")):
                self.compiled.append(version)

    def _forget_modules(self) -> None:
        shutil.rmtree(self.root / DKMS_TREE, ignore_errors=True)
        self.dkms_built.clear()
        self.on_disk.clear()

    def _remove(self, name: str) -> None:
        del self.packages[name]
        if name == "libcuda1":
            shutil.rmtree(self.root / LIBRARIES)
        if name == "nvidia-kernel-dkms":
            self._forget_modules()
        self.running.discard(f"{name}.service")

    def _do_dpkg(self, words: list[str], moment: Callable[[], None]) -> Finished:
        assert "--configure" in words
        self.interrupted = False
        return self._configure("", moment)

    def _do_dpkg_query(self, words: list[str], moment: Callable[[], None]) -> Finished:
        return finished(0, f"{words[-1]}\t1.22.18\n")

    def _do_apt_mark(self, words: list[str], moment: Callable[[], None]) -> Finished:
        for name in words[1:]:
            self.packages[name].held = words[0] == "hold"
            moment()
        return finished(0)

    def _do_dkms(self, words: list[str], moment: Callable[[], None]) -> Finished:
        if words[0] == "ldtarball":
            made = json.loads(Path(words[-1]).read_text())
            self.dkms_built[made["version"], made["kernel"]] = made["flavour"]
            return finished(0)
        if words[0] == "remove":
            assert {"--no-depmod", "--all"} <= {*words}
            self.withdrawn.append(words[words.index("-v") + 1])
            self._forget_modules()
            moment()
            return finished(0)
        version, kernel = words[words.index("-v") + 1], words[words.index("-k") + 1]
        if words[0] == "status":
            if self.on_disk.get(kernel, ("", ""))[0] == version:
                return finished(0, f"{DKMS}/{version}, {kernel}, x86_64: installed\n")
            is_built = (version, kernel) in self.dkms_built
            return finished(0, f"{DKMS}/{version}, {kernel}, x86_64: built\n" if is_built else "")
        if (version, kernel) not in self.dkms_built:
            self.compiled.append(version)
            self.dkms_built[version, kernel] = "proprietary"
        moment()
        self.on_disk[kernel] = (version, self.dkms_built[version, kernel])
        self.write(f"/{DKMS_TREE}/{version}/source")
        return finished(0)

    def _do_modprobe(self, words: list[str], moment: Callable[[], None]) -> Finished:
        if words[0] == "--show-depends":
            kernel = words[2] if words[1] == "--set-version" else self.kernel
            return finished(0, f"insmod /{kernel}.ko \n") if kernel in self.on_disk else finished(1, stderr="FATAL\n")
        return self._load(words[0])

    def _load(self, name: str, file: tuple[str, str] | None = None) -> Finished:
        version, flavour = file or self.on_disk.get(self.kernel, ("", ""))
        if not version or version in self.unloadable:
            return finished(1, stderr=f"modprobe: ERROR: could not insert '{name}': Key was rejected by service\n")
        if name in NEEDS and NEEDS[name] not in self.loaded:
            needed = self._load(NEEDS[name], file)
            if needed.return_code:
                return needed
        if name not in self.loaded:
            self.loaded[name], self.flavour_loaded = version, flavour
        return finished(0)

    def _do_rmmod(self, words: list[str], moment: Callable[[], None]) -> Finished:
        is_used = any(NEEDS.get(name) == words[0] for name in self.loaded) or words[0] in self.pinned
        if is_used or (self.running and words[0] == "nvidia"):
            return finished(1, stderr=f"rmmod: ERROR: Module {words[0]} is in use\n")
        del self.loaded[words[0]]
        if words[0] == "nvidia":
            self.mig = {}
        return finished(0)

    def _do_modinfo(self, words: list[str], moment: Callable[[], None]) -> Finished:
        if self.slow_modinfo:
            return finished(124, stderr="modinfo took longer than that\n")
        version, flavour = self.on_disk[words[-1].strip("/").removesuffix(".ko")]
        if words[0] == "--field":
            return finished(0, f"{version}\n")
        license_ = "NVIDIA" if flavour == "proprietary" else "Dual MIT/GPL"
        return finished(0, f"filename: {words[-1]}\nversion:        {version}\nlicense:        {license_}\n")

    def _do_systemctl(self, words: list[str], moment: Callable[[], None]) -> Finished:
        if words[0] == "show":
            state = "active" if SERVICE in self.running else "inactive"
            return finished(0, f"Id={SERVICE}\nActiveState={state}\n")
        if words == ["--no-block", "reboot"]:
            return finished(0)
        for name in words[1:]:
            if words[0] == "stop":
                self.running.discard(name)
                if self.ends_with_service is not None:
                    shutil.rmtree(self.ends_with_service, ignore_errors=True)
            elif name.removesuffix(".service") not in self.packages:
                return finished(5, stderr=f"Unit {name} not found.\n")
            elif words[0] == "start" and "nvidia" not in self.loaded:
                return finished(1, stderr=f"Job for {name} failed.\n")
            elif words[0] == "start":
                self.running.add(name)
        return finished(0)

    def _do_grapnel_driver(self, words: list[str], moment: Callable[[], None]) -> Finished:
        assert words[0] == "mig"
        if self.mig_unreadable:
            return finished(1, stderr="the mig layout cannot be read: Driver/library version mismatch\n")
        if not words[1:]:
            return finished(0, json.dumps({gpu: [as_document(one) for one in self.mig[gpu]] for gpu in self.mig}))
        if self.loaded.get("nvidia") in self.mig_errors:
            return finished(1, stderr="error: GPU-0: this driver has no mig profile 9 for it\n")
        note = "reboot.json" if words[1:] == ["restore", "--after-reboot"] else "restore.json"
        noted = json.loads((self.root / f"var/lib/grapnel/driver/{note}").read_text())["mig"]
        made = 0
        for gpu, cuts in noted.items():
            for cut in cuts[len(self.mig.setdefault(gpu, [])) :]:
                self.mig[gpu].append(f"{cut['profile']}@{cut['start']}")
                made += 1
                moment()
        return finished(0, f"{made} instances\n" if made else "")

    def _do_nvidia_smi(self, words: list[str], moment: Callable[[], None]) -> Finished:
        version = self.loaded.get("nvidia")
        if version is None or version in self.broken_smi:
            return finished(9, stderr="NVIDIA-SMI has failed because it couldn't communicate with the driver\n")
        return finished(0, "".join(f"GPU {n}: NVIDIA H100 (UUID: GPU-{n})\n" for n in range(self.gpus)))

    def _do_update_initramfs(self, words: list[str], moment: Callable[[], None]) -> Finished:
        if self.initramfs_error:
            return finished(1, stderr=self.initramfs_error)
        self.initramfs = self.on_disk.get(KERNEL)
        return finished(0)

    def _do_uname(self, words: list[str], moment: Callable[[], None]) -> Finished:
        return finished(0, f"{self.kernel}\n")

    def _do_grapnel_hook(self, words: list[str], moment: Callable[[], None]) -> Finished:
        self.write("run/grapnel/inventory.json", json.dumps({"driver_version": self.loaded.get("nvidia")}))
        return finished(0)
