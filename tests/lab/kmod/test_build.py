"""Module files, read by the real programs."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from lab.kmod import MODULES, KmodFiles, build_modules, build_nodesim, install_driver_module
from lab.kmod.build import SOURCE, kernel_makefile
from lab.kmod.install import NVML_HOME
from lab.nodes.layer import Layer

if TYPE_CHECKING:
    from pathlib import Path

RELEASE = "6.12.1-test"


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        return build_modules("550.163.01", RELEASE) / "lib/modules" / RELEASE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("version", "550.163.01"),
        ("license", "NVIDIA"),
        ("depends", "nvidia"),
        ("vermagic", f"{RELEASE} SMP preempt mod_unload modversions "),
    ],
)
def test_modinfo_reads_what_was_asked_for(modules: Path, field: str, value: str) -> None:
    command = ["/sbin/modinfo", "-F", field, str(modules / "updates/nvidia-uvm.ko")]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == f"{value}\n"


@pytest.mark.slow
def test_depmod_finds_every_dependency_by_symbols(modules: Path) -> None:
    lines = (modules / "modules.dep").read_text().splitlines()
    found = {line.split(":")[0]: line.split(":")[1].split() for line in lines}
    core, modeset = "updates/nvidia.ko", "updates/nvidia-modeset.ko"
    assert found == {
        core: [],
        "updates/nvidia-uvm.ko": [core],
        modeset: [core],
        "updates/nvidia-drm.ko": [modeset, core],
    }
    assert len(MODULES) == len(found)


def test_a_kernels_headers_make_the_modules_of_whichever_drivers_sources(tmp_path: Path) -> None:
    """As DKMS does, through the Makefile of NVIDIA's sources, of which there are two flavours."""
    (tmp_path / "Makefile").write_text(kernel_makefile(RELEASE, str(SOURCE / "module.c")))
    described = []
    for flavour, version in (("nvidia", "535.309.01"), ("nvidia", "550.163.01"), ("nvidia-open", "550.163.01")):
        sources = tmp_path / flavour / version
        sources.mkdir(parents=True)
        sources.joinpath("Kbuild").write_text(f'ccflags-y += -DNV_VERSION_STRING=\\"{version}\\"\n')
        asked = [f"M={sources}", "NV_KERNEL_MODULES=nvidia nvidia-uvm nvidia-peermem"]
        subprocess.run(["make", "-s", "-C", str(tmp_path), *asked, "modules"], check=True)
        assert sorted(path.stem for path in sources.glob("*.ko")) == ["nvidia", "nvidia-peermem", "nvidia-uvm"]
        fields = [field(sources / "nvidia.ko", name) for name in ("version", "license", "vermagic", "srcversion")]
        described.append(fields)
    assert [fields[:2] for fields in described] == [
        ["535.309.01", "NVIDIA"],
        ["550.163.01", "NVIDIA"],
        ["550.163.01", "Dual MIT/GPL"],
    ]
    assert {fields[2] for fields in described} == {f"{RELEASE} SMP preempt mod_unload modversions"}
    assert len({fields[3] for fields in described}) == len(described)


@pytest.mark.slow
def test_another_module_on_disk_leaves_the_kernels_headers_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    upper = tmp_path / "upper"
    upper.mkdir()
    files = KmodFiles(Layer(upper, tmp_path / "base"), RELEASE)
    files.install_module("535.261.03")
    files.install_headers()
    install_driver_module(upper / "usr/lib/modules", "550.163.01", RELEASE)
    place = upper / "usr/lib/modules" / RELEASE
    assert field(place / "updates/nvidia.ko", "version") == "550.163.01"
    assert (upper / str((place / "build").readlink()).lstrip("/") / "include").is_dir()


def field(module: Path, name: str) -> str:
    command = ["/sbin/modinfo", "-F", name, str(module)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_nodesim_needs_no_libc_newer_than_debian_12s() -> None:
    symbols = subprocess.run(["objdump", "-T", str(build_nodesim())], check=True, capture_output=True, text=True).stdout
    minors = {int(word.split(".")[1].rstrip(")")) for word in symbols.split() if "GLIBC_2." in word}
    assert max(minors) <= 34


def test_libraries_are_one_file_under_every_version_and_packages_are_diverted(tmp_path: Path) -> None:
    base, upper, nvml, cuda = (tmp_path / name for name in ("base", "upper", "nvml", "cuda"))
    (base / "var/lib/dpkg").mkdir(parents=True)
    (base / "var/lib/dpkg/diversions").write_text("/a\n/b\nother\n")
    upper.mkdir()
    nvml.write_text("simulated nvml")
    cuda.write_text("simulated cuda")
    KmodFiles(Layer(upper, base), RELEASE).install_libraries(nvml, cuda, ["1.2", "3.4"])
    for name, simulated in (("libnvidia-ml", nvml), ("libcuda", cuda)):
        places = [upper / f"{NVML_HOME[1:]}/{name}.so.{version}" for version in ("1.2", "3.4")]
        assert places[0].samefile(places[1])
        assert places[0].read_text() == simulated.read_text()
    assert (upper / "var/lib/dpkg/diversions").read_text().splitlines() == [
        *("/a", "/b", "other"),
        *(f"{NVML_HOME}/libnvidia-ml.so.1.2", "/usr/lib/gpusim/packaged/libnvidia-ml.so.1.2", ":"),
        *(f"{NVML_HOME}/libnvidia-ml.so.3.4", "/usr/lib/gpusim/packaged/libnvidia-ml.so.3.4", ":"),
        *(f"{NVML_HOME}/libcuda.so.1.2", "/usr/lib/gpusim/packaged/libcuda.so.1.2", ":"),
        *(f"{NVML_HOME}/libcuda.so.3.4", "/usr/lib/gpusim/packaged/libcuda.so.3.4", ":"),
    ]
