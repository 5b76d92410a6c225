"""The manifest of a runfile: what its lines say, and which of them are refused.

Its form is that of real ones (390.48, 440.44 and 460.67): modes of four or five digits, folders with and without a
slash at their end, and after the fields what is for the installer alone.
"""

from __future__ import annotations

import pytest

from provision.planning.supply.runfile.errors import RunfileError
from provision.planning.supply.runfile.manifest import Entry, parse_manifest

HEAD = """\
NVIDIA Accelerated Graphics Driver for Linux-x86_64
460.67
 
nvidia nvidia-uvm nvidia-modeset nvidia-drm 
 
 
./kernel/
./kernel/precompiled/
"""  # noqa: W291, W293 - as they are written


def entries_of(*lines: str) -> tuple[Entry, ...]:
    return parse_manifest(HEAD + "".join(f"{line}\n" for line in lines)).entries


def test_the_head_says_what_the_driver_is() -> None:
    manifest = parse_manifest(HEAD)

    assert (manifest.version, manifest.architecture) == ("460.67", "x86_64")
    assert manifest.modules == ("nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-drm")
    assert manifest.entries == ()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(
            "libcuda.so.460.67 0755 CUDA_LIB NATIVE / MODULE:gpgpu",
            Entry("libcuda.so.460.67", 0o755, "CUDA_LIB", True, "", "", 9),
            id="a library in the folder of libraries",
        ),
        pytest.param(
            "libcuda.so.1 0000 CUDA_SYMLINK NATIVE / libcuda.so.460.67 MODULE:gpgpu",
            Entry("libcuda.so.1", 0, "CUDA_SYMLINK", True, "", "libcuda.so.460.67", 9),
            id="a link",
        ),
        pytest.param(
            "./32/libcuda.so.460.67 0755 CUDA_LIB COMPAT32 / MODULE:gpgpu",
            Entry("32/libcuda.so.460.67", 0o755, "CUDA_LIB", False, "", "", 9),
            id="a library for 32-bit programs",
        ),
        pytest.param(
            "libnvidia-cfg.so.1 0000 UTILITY_LIB_SYMLINK NATIVE libnvidia-cfg.so.460.67 MODULE:installer",
            Entry("libnvidia-cfg.so.1", 0, "UTILITY_LIB_SYMLINK", True, "", "libnvidia-cfg.so.460.67", 9),
            id="a link without a folder",
        ),
        pytest.param(
            "nvidia-modprobe 04755 NVIDIA_MODPROBE /usr/bin/ MODULE:installer",
            Entry("nvidia-modprobe", 0o4755, "NVIDIA_MODPROBE", True, "/usr/bin", "", 9),
            id="a program of its own folder",
        ),
        pytest.param(
            "kernel/nvidia/nv.c 0644 KERNEL_MODULE_SRC INHERIT_PATH_DEPTH:1 MODULE:resman",
            Entry("kernel/nvidia/nv.c", 0o644, "KERNEL_MODULE_SRC", True, "nvidia", "", 9),
            id="a source whose folder is a part of its name",
        ),
        pytest.param(
            "firmware/gsp_ga10x.bin 0644 FIRMWARE INHERIT_PATH_DEPTH:1 MODULE:resman",
            Entry("firmware/gsp_ga10x.bin", 0o644, "FIRMWARE", True, "", "", 9),
            id="firmware",
        ),
        pytest.param(
            "LICENSE 0444 DOCUMENTATION NVIDIA_GLX-1.0/ MODULE:installer",
            Entry("LICENSE", 0o444, "DOCUMENTATION", True, "NVIDIA_GLX-1.0", "", 9),
            id="a folder with a slash at its end",
        ),
    ],
)
def test_an_entry_has_the_fields_of_its_type(line: str, expected: Entry) -> None:
    assert entries_of(line) == (expected,)


def test_types_that_are_not_needed_are_passed_over_with_whatever_they_have() -> None:
    assert (
        entries_of(
            "libvdpau_nvidia.so 0000 VDPAU_SYMLINK NATIVE / vdpau/libvdpau_nvidia.so.460.67 MODULE:vdpau",
            "libGL.so.1 0000 GLX_CLIENT_SYMLINK NATIVE libGL.so.1.7.0 MODULE:opengl",
            "something.new 0644 TYPE_OF_A_LATER_DRIVER ../../etc MODULE:new",
        )
        == ()
    )


def test_an_empty_line_ends_the_entries() -> None:
    line = "nvidia-smi 0755 UTILITY_BINARY MODULE:nvml"

    assert len(entries_of(line, "", "../x 0755 UTILITY_BINARY")) == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        pytest.param("../nvidia-smi 0755 UTILITY_BINARY", "'../nvidia-smi' is no plain name", id="above the archive"),
        pytest.param("a/../../b 0755 UTILITY_BINARY", "is no plain name", id="above it, in the middle"),
        pytest.param("/etc/passwd 0755 UTILITY_BINARY", "'/etc/passwd' is no plain name", id="an absolute name"),
        pytest.param("a$(id) 0755 UTILITY_BINARY", "is no plain name", id="a name for a shell"),
        pytest.param("a\x1b[2J 0755 UTILITY_BINARY", r"\\x1b", id="a name for a terminal"),
        pytest.param("libx.so 0755 CUDA_LIB NATIVE ../../etc", "is no plain folder", id="a folder above"),
        pytest.param("x 0644 EXPLICIT_PATH /usr/../etc/cron.d", "is no plain folder", id="an absolute one above"),
        pytest.param("x 0644 EXPLICIT_PATH //etc", "is no plain folder", id="two slashes"),
        pytest.param(
            "l.so.1 0000 CUDA_SYMLINK NATIVE / ../../../../etc/shadow",
            "the link l.so.1 leads out of its folder, to '../../../../etc/shadow'",
            id="a link out of the tree",
        ),
        pytest.param("l.so.1 0000 CUDA_SYMLINK NATIVE / /etc/shadow", "leads out", id="an absolute link"),
        pytest.param("l.so.1 0000 CUDA_SYMLINK NATIVE / ..", "leads out", id="a link to the folder above"),
        pytest.param("l.so 0755 CUDA_LIB NATIVE", "l.so lacks a field of its type", id="no folder"),
        pytest.param("l.so 0755 CUDA_LIB SPARC /", "is neither NATIVE nor COMPAT32", id="another architecture"),
        pytest.param("nvidia-smi rwx UTILITY_BINARY", "nvidia-smi has no mode: 'rwx'", id="no mode"),
        pytest.param("x.bin 0644 FIRMWARE INHERIT_PATH_DEPTH:3", "which part of its name", id="more than its folders"),
        pytest.param("k/x.c 0644 KERNEL_MODULE_SRC MODULE:resman", "which part of its name", id="no depth"),
    ],
)
def test_what_leads_elsewhere_is_refused_with_its_line(line: str, said: str) -> None:
    good = "nvidia-smi 0755 UTILITY_BINARY MODULE:nvml"

    with pytest.raises(RunfileError, match="line 10 ") as caught:
        entries_of(good, line)

    assert said.replace("\\\\", "\\") in caught.value.message


@pytest.mark.parametrize(
    ("number", "line", "said"),
    [
        pytest.param(1, "CUDA Toolkit", "describes no driver for Linux", id="another product"),
        pytest.param(1, "NVIDIA Accelerated Graphics Driver for FreeBSD-x86_64", "no driver for Linux", id="BSD"),
        pytest.param(2, "latest", "has no driver version: 'latest'", id="no version"),
        pytest.param(4, "", "does not list kernel modules", id="no modules"),
        pytest.param(4, 'nvidia;reboot"', "does not list kernel modules", id="a module for a shell"),
    ],
)
def test_a_head_of_something_else_is_refused(number: int, line: str, said: str) -> None:
    lines = HEAD.split("\n")
    lines[number - 1] = line

    with pytest.raises(RunfileError, match=f"line {number} ") as caught:
        parse_manifest("\n".join(lines))

    assert said in caught.value.message


def test_a_manifest_that_is_cut_is_refused() -> None:
    with pytest.raises(RunfileError, match="ends before its first entry"):
        parse_manifest("\n".join(HEAD.split("\n")[:5]))
