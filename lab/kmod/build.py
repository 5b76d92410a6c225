"""Compiles nodesim and the kernel module files into the cache, once each."""

from __future__ import annotations

import hashlib
import shlex
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lab.machine.command import run
from lab.machine.folders import cache_dir, content_key

if TYPE_CHECKING:
    from collections.abc import Callable

SOURCE = Path(__file__).with_name("src")
LIBRARY_SOURCES = ("calls.c", "modinfo.c", "modules.c", "devices.c", "text.c")
LIBRARY_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared")
COMPILE_TIMEOUT_S = 120.0
LICENSES = {"proprietary": "NVIDIA", "open": "Dual MIT/GPL"}


@dataclass(frozen=True)
class ModuleFile:
    """A module of the driver, with what depmod and the kernel derive its dependencies from."""

    name: str
    needs: str = ""
    exports: str = ""
    imports: str = ""


MODULES = (
    ModuleFile("nvidia", exports="nvidia_lab_core"),
    ModuleFile("nvidia-uvm", needs="nvidia", imports="nvidia_lab_core"),
    ModuleFile("nvidia-modeset", needs="nvidia", imports="nvidia_lab_core", exports="nvidia_lab_modeset"),
    ModuleFile("nvidia-drm", needs="nvidia-modeset", imports="nvidia_lab_modeset"),
)
PEERMEM = ModuleFile("nvidia-peermem")  # which driver packages have sources of, and no node loads
MAKE_VARIABLES = """\
VERSION := $(shell sed -n 's/.*NV_VERSION_STRING=[^0-9]*\\([0-9.]*\\).*/\\1/p' $(M)/Kbuild)
LICENSE := $(if $(findstring -open,$(M)),{open},{proprietary})
srcversion = $(shell echo $(1) $(VERSION) $(LICENSE) | sha256sum | cut -c1-23 | tr a-f A-F)
modules: $(NV_KERNEL_MODULES:%=$(M)/%.ko)
clean:
"""


def build_nodesim() -> Path:
    """Return the compiled library for ``/etc/ld.so.preload``."""
    texts = [path.read_bytes() for path in sorted(SOURCE.glob("*.[ch]"))]
    home = cache_dir() / "kmod" / f"nodesim-{content_key(*LIBRARY_FLAGS, *texts)}"

    def fill(folder: Path) -> None:
        sources = [str(SOURCE / name) for name in LIBRARY_SOURCES]
        output = ["-o", str(folder / "nodesim.so"), "-ldl"]
        run(["gcc", *LIBRARY_FLAGS, *sources, *output], timeout_s=COMPILE_TIMEOUT_S)

    return _once(home, fill) / "nodesim.so"


def build_modules(version: str, kernel_release: str, flavour: str = "proprietary") -> Path:
    """Return a folder with ``lib/modules/RELEASE`` as a node has it: the driver's modules, depmod's indexes."""
    source = (SOURCE / "module.c").read_bytes()
    key = content_key(source, version, kernel_release, flavour, *map(repr, MODULES))
    home = cache_dir() / "kmod" / f"modules-{version}-{key}"

    def fill(folder: Path) -> None:
        place = folder / "lib/modules" / kernel_release
        (place / "updates").mkdir(parents=True)
        for module in MODULES:
            output = place / "updates" / f"{module.name}.ko"
            run(module_argv(module, version, kernel_release, flavour, output), timeout_s=COMPILE_TIMEOUT_S)
        for index in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
            (place / index).touch()
        run(["depmod", "--basedir", str(folder), kernel_release], timeout_s=COMPILE_TIMEOUT_S)

    return _once(home, fill)


def source_key() -> str:
    """Return a key of everything that module files are made from."""
    return content_key((SOURCE / "module.c").read_bytes(), *map(repr, MODULES))


def module_argv(module: ModuleFile, version: str, kernel_release: str, flavour: str, output: Path) -> list[str]:
    """Return the compiler's command line for one module file; the source comes last."""
    texts = {
        "NAME": module.name.replace("-", "_"),
        "VERSION": version,
        "SRCVERSION": _srcversion(module, version, flavour),
        "VERMAGIC": f"{kernel_release} SMP preempt mod_unload modversions ",
        "DEPENDS": module.needs,
        "LICENSE": LICENSES[flavour],
    }
    defines = [f'-D{name}="{text}"' for name, text in texts.items()]
    if module.exports:
        defines.append(f'-DEXPORTS="{module.exports}"')
    if module.imports:
        defines.append(f"-DIMPORTS={module.imports}")
    return [
        "gcc",
        "-std=gnu11",
        "-Wall",
        "-Werror",
        "-c",
        *defines,
        "-o",
        str(output),
        str(SOURCE / "module.c"),
    ]


def kernel_makefile(kernel_release: str, source: str) -> str:
    """Return the Makefile of a kernel's headers which makes the lab's module files of whichever driver's sources.

    Those are NVIDIA's, as their own Makefile hands them over in ``M``; ``source`` is where the node has ``module.c``.
    """
    lines = [MAKE_VARIABLES.format(**LICENSES)]
    for module in (*MODULES, PEERMEM):
        argv = module_argv(module, "$(VERSION)", kernel_release, "proprietary", Path("$@"))
        known = {_srcversion(module, "$(VERSION)", "proprietary"): f"$(call srcversion,{module.name})"}
        known['LICENSE="NVIDIA"'] = 'LICENSE="$(LICENSE)"'
        command = shlex.join([*argv[:-1], source]).replace("'$@'", "$@")
        for former, text in known.items():
            command = command.replace(former, text)
        lines.append(f"$(M)/{module.name}.ko: {source}\n\t{command}\n")
    return "".join(lines)


def _srcversion(module: ModuleFile, version: str, flavour: str) -> str:
    return hashlib.sha256(f"{module.name} {version} {flavour}".encode()).hexdigest()[:23].upper()


def _once(home: Path, fill: Callable[[Path], None]) -> Path:
    """Fill a temporary folder and rename it; if somebody else was first, drop ours, which is identical."""
    if home.is_dir():
        return home
    home.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{home.name}.", dir=home.parent))  # threads of one process fill it, too
    partial.chmod(0o755)
    fill(partial)
    try:
        partial.rename(home)
    except OSError:
        if not home.is_dir():
            raise
        shutil.rmtree(partial)
    return home
