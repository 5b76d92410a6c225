"""Builds a small driver installer in the form of NVIDIA's ``.run`` files: no package source has a real one.

The form is the published one: a script whose line ``skip=N`` says where the compressed tar archive begins, and in it a
manifest as nvidia-installer reads it (``install-from-cwd.c``). The content is small: module sources are those of
``lab.kmod``, which gcc compiles under DKMS; libraries are texts, ``nvidia-smi`` asks the simulated NVML, and the
persistence daemon waits. What the real ones have for a screen is listed, so that it can be seen to be left out.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import shlex
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lab.kmod import MODULES, module_argv
from lab.sources.content import BUILDS, MODULE_SOURCE, SMI

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TIME_S: Final = 1_735_689_600  # of every file in it
FOLDERS: Final = {"proprietary": "kernel", "open": "kernel-open"}
_COMPRESS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "xz": lambda data: lzma.compress(data, preset=0),
    "bzip2": bz2.compress,
}
SCRIPT: Final = """\
#! /bin/sh
skip={lines}
size={size}
: > "$0.was-run" # it is unpacked, and never run
exit 1
"""
_PERSISTENCED: Final = """\
#!/bin/sh
mkdir -p /run/nvidia-persistenced
setsid sleep infinity >/dev/null 2>&1 </dev/null &
echo $! > /run/nvidia-persistenced/nvidia-persistenced.pid
"""


@dataclass
class SmallDriver:
    """A driver that can be written as a runfile: its manifest, line by line, and the content of its files.

    Tests change either before they write it.
    """

    version: str
    flavours: tuple[str, ...] = ("proprietary", "open")
    architecture: str = "x86_64"
    lines: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        modules = " ".join(module.name for module in MODULES)
        self.lines += [
            f"NVIDIA Accelerated Graphics Driver for Linux-{self.architecture}", self.version, "unused", modules,
            *("unused",) * 4,
        ]  # fmt: skip
        self._add_user_space()
        for flavour in self.flavours:
            self._add_sources(flavour)

    def add(self, name: str, content: str, mode: str, kind: str, *fields: str) -> None:
        """Add a file, with what its line in the manifest has after its name."""
        self.files[name] = content.encode()
        self.lines.append(" ".join((name, mode, kind, *fields)))

    def write(self, place: Path, compression: str = "xz") -> str:
        """Write the runfile; returns its SHA-256 digest."""
        content = self.content(compression)
        place.write_bytes(content)
        return hashlib.sha256(content).hexdigest()

    def content(self, compression: str = "xz") -> bytes:
        """Return the runfile."""
        return as_runfile(_COMPRESS[compression](self.archive()))

    def archive(self) -> bytes:
        """Return the tar archive."""
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for name, data in {".manifest": "\n".join([*self.lines, ""]).encode(), **self.files}.items():
                member = tarfile.TarInfo(f"./{name}")
                member.size, member.mtime = len(data), TIME_S
                archive.addfile(member, io.BytesIO(data))
        return out.getvalue()

    def _add_user_space(self) -> None:
        version = self.version
        for name, kind in (("libcuda", "CUDA"), ("libnvidia-ptxjitcompiler", "CUDA"), ("libnvidia-opencl", "OPENCL")):
            self.add(f"{name}.so.{version}", f"{name} {version}\n", "0755", f"{kind}_LIB", "NATIVE", "/", "MODULE:cuda")
            link = "CUDA_SYMLINK" if kind == "CUDA" else "OPENCL_LIB_SYMLINK"
            self.lines.append(f"{name}.so.1 0000 {link} NATIVE / {name}.so.{version} MODULE:cuda")
        for name, kind in (
            ("libnvidia-ml", "UTILITY"), ("libnvidia-cfg", "UTILITY"), ("libnvidia-gtk3", "UTILITY"),
            ("libnvcuvid", "NVCUVID"), ("libnvidia-encode", "ENCODEAPI"),
        ):  # fmt: skip
            self.add(f"{name}.so.{version}", f"{name} {version}\n", "0755", f"{kind}_LIB", "NATIVE", "MODULE:x")
            self.lines.append(f"{name}.so.1 0000 {kind}_LIB_SYMLINK NATIVE {name}.so.{version} MODULE:x")
        self.add(f"32/libcuda.so.{version}", "32 bit\n", "0755", "CUDA_LIB", "COMPAT32", "/")
        self.add(f"libGLX_nvidia.so.{version}", "screen\n", "0755", "GLX_CLIENT_LIB", "NATIVE")
        self.add("nvidia_drv.so", "screen\n", "0755", "XMODULE_SHARED_LIB", "drivers")
        self.add("nvidia-smi", SMI.read_text().replace("@VERSION@", version), "0755", "UTILITY_BINARY")
        self.add("nvidia-persistenced", _PERSISTENCED, "0755", "UTILITY_BINARY")
        self.add("nvidia-settings", "screen\n", "0755", "UTILITY_BINARY")
        self.add("nvidia-installer", "never run\n", "0755", "INSTALLER_BINARY")
        self.add("nvidia-modprobe", "#!/bin/sh\n", "4755", "NVIDIA_MODPROBE", "/usr/bin")
        self.add("nvidia.icd", "libnvidia-opencl.so.1\n", "0644", "CUDA_ICD")
        self.add("nvidia-suspend.service", "[Unit]\n", "0644", "SYSTEMD_UNIT")
        self.add("firmware/gsp_ga10x.bin", "firmware\n", "0644", "FIRMWARE", "INHERIT_PATH_DEPTH:1")
        self.add("LICENSE", "the makers'\n", "0444", "DOCUMENTATION", "NVIDIA_GLX-1.0")

    def _add_sources(self, flavour: str) -> None:
        folder = FOLDERS[flavour]
        texts = {
            f"{folder}/Makefile": makefile(self.version, flavour),
            f"{folder}/nvidia/module.c": MODULE_SOURCE.read_text(),
        }
        for name, text in texts.items():
            self.add(name, text, "0644", "KERNEL_MODULE_SRC", "INHERIT_PATH_DEPTH:1", "MODULE:resman")
        self.add(f"{folder}/dkms.conf", "# the installer's own\n", "0644", "DKMS_CONF", "INHERIT_PATH_DEPTH:1")


def as_runfile(archive: bytes) -> bytes:
    """Return a compressed archive behind its script."""
    lines = SCRIPT.count("\n") + 1
    return SCRIPT.format(lines=lines, size=len(archive)).encode() + archive


def makefile(version: str, flavour: str) -> str:
    """Return a Makefile with the targets of the real one; each compile leaves a line on the node."""
    lines = [f"modules: {' '.join(f'{module.name}.ko' for module in MODULES)}"]
    lines.append(f"\techo {version} $(KERNEL_UNAME) >> {BUILDS}")
    for module in MODULES:
        argv = module_argv(module, version, "$(KERNEL_UNAME)", flavour, Path(f"{module.name}.ko"))
        lines += [f"{module.name}.ko: nvidia/module.c", f"\t{shlex.join([*argv[:-1], 'nvidia/module.c'])}"]
    lines += ["clean:", "\trm -f *.ko"]
    return "\n".join(lines) + "\n"
