"""A fake node for staging: packages, sources of packages, kernels and dkms below a folder, without a real command."""

from __future__ import annotations

import io
import itertools
import json
import tarfile
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.driver.change import parse_change
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import StageOptions
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.stage import stage_change
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.work import PackageSystem
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Finished, Host
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import (
    InstalledPackage,
    PackageError,
    Rehearsal,
)
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import (
    Download,
    Header,
    Resolution,
    SourceError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from ansible_collections.grapnel.node.plugins.module_utils.driver.change import DriverChange
    from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import StageResult
    from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import Transaction
    from ansible_collections.grapnel.node.plugins.module_utils.packages.source import Offered, Request, Step

KERNEL = "6.12.1-amd64"
MODULES = "dkms"  # the package with the module's sources is named nvidia-dkms
HOME = "/var/lib/grapnel/driver"


def change_of(version: str = "550.163.01", **values: object) -> DriverChange:
    """A change to a driver of two packages, whose module is built by dkms for one kernel."""
    document = {
        "schema": "grapnel.dev/driver-change/v1alpha1",
        "version": version,
        "flavour": "proprietary",
        "manager": "apt",
        "packages": [{"name": "libcuda1", "version": version}, {"name": "nvidia-dkms", "version": version}],
        "remove": [],
        "files": [{"path": "/etc/apt/preferences.d/00-grapnel-nvidia", "content": f"pin {version}\n", "mode": "0644"}],
        "hold": True,
        "kernels": [KERNEL],
        "dkms": "nvidia-current",
        "services": [],
        "sign": None,
        "compile": "stage",
        "reboot": False,
        "module": {"version": version},
    }
    return parse_change(json.dumps(document | values).encode())


@dataclass
class Node:
    """What the node has; ``offered`` are the versions that its package sources have, ``needs`` dependencies by name."""

    root: Path
    installed: dict[str, str] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    offered: dict[str, list[str]] = field(default_factory=dict)
    needs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    kernels: list[str] = field(default_factory=lambda: [KERNEL])
    built: dict[str, str] = field(default_factory=dict)  # version installed by dkms, by kernel
    size_bytes: int = 1000
    compiler_fails: str = ""
    signer: str = "DKMS module signing key"
    license: str = "NVIDIA"
    is_too_busy: bool = False  # for modinfo to answer
    is_damaged: bool = False  # the database, in a way that `installed` does not notice
    active: set[str] = field(default_factory=set)  # services
    interrupt: Callable[[str], None] = lambda _: None
    calls: list[list[str]] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for command in ("dkms", "gcc", "make"):
            self.write(f"/usr/bin/{command}", "").chmod(0o755)
        for kernel in self.kernels:
            self.add_kernel(kernel)

    @property
    def host(self) -> Host:
        return Host(self.root, self.run)

    def stage(self, change: DriverChange, **options: Any) -> StageResult:
        """Stage a change on the node."""
        wanted = replace(StageOptions(reserve_bytes=0), **options)
        return stage_change(self.host, PackageSystem(Packages(self), Source(self)), change, wanted, Clock())

    def add_kernel(self, kernel: str) -> None:
        self.write(f"/boot/vmlinuz-{kernel}", "")
        self.write(f"/lib/modules/{kernel}/build/include/linux.h", "")

    def path(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def write(self, path: str, text: str) -> Path:
        place = self.path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place

    def files(self, folder: str) -> set[str]:
        """Names of all files below a folder of the node."""
        place = self.path(folder)
        return {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}

    def swap(self, change: DriverChange, identifier: str) -> None:
        """What a swap leaves behind."""
        for path in self.path(f"{HOME}/staged/{identifier}/packages").iterdir():
            name, version = path.read_text().split(" ", 1)
            self.installed[name] = version
        self.built = dict.fromkeys(change.kernels, change.version)
        for file in change.files:
            self.write(file.path, file.content)
        link = self.path(f"{HOME}/current")
        link.unlink(missing_ok=True)
        link.symlink_to(f"staged/{identifier}")

    def run(self, arguments: Sequence[str], timeout_s: float) -> Finished:
        """Answer a command."""
        assert timeout_s > 0
        words = list(arguments)
        self.calls.append(words)
        variables = [word for word in words[1:] if words[0] == "env" and "=" in word]
        words = [word for word in words if word != "env" and word not in variables]
        answer: Callable[..., Finished] = {
            "uname": lambda *_: Finished(0, f"{self.kernels[0]}\n"),
            "modinfo": self._modinfo,
            "dkms": self._dkms,
            "openssl": self._openssl,
            "systemctl": lambda *words: Finished(0 if words[-1] in self.active else 3),
        }[words[0]]
        return answer(*words[1:])

    def _openssl(self, verb: str, *options: str) -> Finished:
        """Have one key, of the certificate Operations; a signature of it is that name."""
        if verb == "cms":
            signer = self.path(options[options.index("-in") + 1]).read_text()
            return Finished(0) if signer == "Operations" else Finished(4, "", "CMS Verification failure")
        if verb == "x509" and "-subject" not in options:
            return Finished(0, "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")
        name = "subject=\n    commonName                = Operations\n" if verb == "x509" else ""
        key_id = "X509v3 Subject Key Identifier: \n    0A:1B\n"
        return Finished(0, f"{name}{key_id}-----BEGIN PUBLIC KEY-----\nMFkw\n-----END PUBLIC KEY-----\n")

    def _modinfo(self, file: str) -> Finished:
        if self.is_too_busy:
            return Finished(124, "", "modinfo took longer than that")
        text = self.path(file).read_text()
        return Finished(0, text) if text.startswith("version:") else Finished(1, "", "modinfo: ERROR: invalid module")

    def _dkms(self, action: str, *options: str) -> Finished:
        self.interrupt(f"dkms {action}")
        given = dict(itertools.pairwise(options))
        if action == "status":
            lines = (f"nvidia-current/{version}, {kernel}, amd64: installed" for kernel, version in self.built.items())
            return Finished(0, "\n".join(lines))
        if action == "build" and self.compiler_fails:
            place = f"{given['--dkmstree']}/{given['-m']}/{given['-v']}/build/make.log"
            self.write(place, self.compiler_fails)
            return Finished(10, "", "Error! Bad return status for module build")
        if action == "mktarball" and "--dkmstree" not in given and given.get("-a") != "amd64":
            return Finished(6, "", "Error! No modules built for this architecture")
        if action == "mktarball":
            self.write_archive(given["--archive"], given["-k"], given["-v"])
        return Finished(0)

    def write_archive(self, path: str, kernel: str, has: str, **values: str) -> None:
        """Write an archive of modules as dkms does."""
        said = {"version": has, "license": self.license, "vermagic": f"{kernel} SMP", "signer": self.signer} | values
        signed_by = said.pop("signed_by", said["signer"])
        module = "".join(f"{name}: {value}\n" for name, value in said.items() if value) + signature(signed_by)
        members = {
            "./dkms_binaries_only/PACKAGE_NAME": "nvidia-current\n",
            f"./dkms_main_tree/{kernel}/x86_64/module/nvidia-current.ko": module,
        }
        write_tar(self.path(path), members)


def signature(signer: str) -> str:
    """What the kernel's sign-file appends: the signature, twelve bytes that describe it, a magic text."""
    return f"{signer}\0\0\2\0\0\0\0\0\0\0\0{chr(len(signer))}~Module signature appended~\n" if signer else ""


def write_tar(place: Path, members: dict[str, str]) -> None:
    """Write an archive of files."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(place, "w:gz") as tar:
        for name, text in members.items():
            header = tarfile.TarInfo(name)
            header.size = len(text.encode())
            tar.addfile(header, io.BytesIO(text.encode()))


class Packages:
    """The package manager: a file is called NAME_VERSION.deb and holds both."""

    name, suffix = "apt", ".deb"

    def __init__(self, node: Node) -> None:
        self._node = node

    def installed(self, host: Host, names: Collection[str]) -> dict[str, InstalledPackage]:
        return {
            name: InstalledPackage(version, name in self._node.held)
            for name, version in self._node.installed.items()
            if name in names
        }

    def require_readable(self, host: Host) -> None:
        if self._node.is_damaged:
            raise PackageError("status is damaged", is_unchanged=True)

    def held(self, host: Host, names: Collection[str]) -> set[str]:
        return {name for name, one in self.installed(host, names).items() if one.is_held}

    def describe(self, host: Host, files: Sequence[str]) -> dict[str, tuple[str, str]]:
        return {file: self._describe(file) for file in files}

    def _describe(self, file: str) -> tuple[str, str]:
        name, space, version = self._node.path(file).read_text().partition(" ")
        if not space:
            raise PackageError(f"{file} is not a package")
        return name, version

    def rehearse(self, host: Host, transaction: Transaction) -> Rehearsal:
        self._node.interrupt("rehearse")
        wanted = dict(self.describe(host, transaction.files).values())
        for name in wanted:
            for needed in self._node.needs.get(name, ()):
                if needed not in wanted and needed not in self._node.installed:
                    raise PackageError(f"{name} needs {needed}")
        install = {name: version for name, version in wanted.items() if self._node.installed.get(name) != version}
        return Rehearsal(install, tuple(name for name in transaction.remove if name in self._node.installed))

    def apply(self, host: Host, transaction: Transaction, clock: Clock) -> None:
        wanted = dict(self.describe(host, transaction.files).values())
        self._node.installed |= wanted
        for name in wanted:
            self._node.write(f"/usr/bin/{name}", "").chmod(0o755)


class Source:
    """The package sources."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def resolve(self, host: Host, request: Request) -> Resolution:
        self._node.interrupt("resolve")
        wanted: dict[str, str] = {}
        for name, version in request.packages.items():
            self._add(wanted, name, version)
        there = [name for name, version in wanted.items() if version in self._node.offered.get(name, [])]
        changed = {name: version for name, version in wanted.items() if self._node.installed.get(name) != version}
        return Resolution(
            tuple(Download(f"{name}_{wanted[name]}.deb", "", self._node.size_bytes) for name in there),
            changed,
            {name: self._node.installed.get(name, "") for name in changed},
            {name: self._node.installed[name] for name in request.remove if name in self._node.installed},
        )

    def _add(self, wanted: dict[str, str], name: str, version: str) -> None:
        """Add a package and what it needs; what is installed counts as known, as apt takes it."""
        offered = self._node.offered.get(name, [])
        chosen = version or (offered[0] if offered else "")
        if not chosen or (chosen not in offered and self._node.installed.get(name) != chosen):
            raise SourceError("package-not-found", f"no source has {name} {version}", "refresh")
        wanted[name] = chosen
        for needed in self._node.needs.get(name, ()):
            if needed not in wanted and needed not in self._node.installed:
                self._add(wanted, needed, "")

    def fetch(self, host: Host, request: Request, downloads: Sequence[Download], folder: str, timeout_s: float) -> None:
        for one in downloads:
            if not self._node.path(f"{folder}/{one.name}").exists():
                self._node.interrupt(f"fetch {one.name}")
                self._node.fetched.append(one.name)
                self._node.write(f"{folder}/{one.name}", one.name.removesuffix(".deb").replace("_", " ", 1))

    def choose(self, host: Host, request: Request, files: Offered, scratch: str) -> tuple[str, ...]:
        """Choose what the machine lacks, as a package manager would of what is needed."""
        return tuple(
            file
            for file, (name, version) in files.described.items()
            if name in request.packages or name not in files.installed or version > files.installed[name]
        )

    def read_headers(self, host: Host, files: Sequence[str]) -> tuple[Header, ...]:
        said = [(file, *self._node.path(file).read_text().split(" ", 1)) for file in files]
        return tuple(
            Header(file, name, version, "driver", self._node.needs.get(name, ())) for file, name, version in said
        )

    def with_files(self, files: Sequence[str]) -> Source:
        more = dict(self._node.path(file).read_text().split(" ", 1) for file in files)
        offered = {**self._node.offered, **{name: [version] for name, version in more.items()}}
        return Source(replace(self._node, offered=offered, calls=self._node.calls, fetched=self._node.fetched))

    def for_any_machine(self, host: Host, scratch: str) -> Source:
        bare = replace(self._node, installed={}, calls=self._node.calls, fetched=self._node.fetched)
        return Source(bare)

    def find_cached(self, host: Host, name: str, version: str) -> str | None:
        path = f"/var/cache/{name}_{version}.deb"
        return path if self._node.path(path).exists() else None

    def is_newer(self, host: Host, version: str, than: str) -> bool:
        return version > than

    def list_files(self, host: Host, file: str) -> tuple[str, ...]:
        name, version = self._node.path(file).read_text().split(" ", 1)
        return (f"/usr/src/nvidia-current-{version}/dkms.conf",) if name == "nvidia-dkms" else (f"/usr/lib/{name}",)

    def unpack(self, host: Host, file: str, folder: str) -> None:
        for path in self.list_files(host, file):
            self._node.write(f"{folder}{path}", "")

    def rehearse_return(self, host: Host, there: Step, back: Step, scratch: str) -> tuple[set[str], set[str]]:
        self._node.interrupt("rehearse back")
        return set(back.files), set(back.remove)
