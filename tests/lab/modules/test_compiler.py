"""The compiler of the driver's sources: kernel headers are read once, and every answer is as from GCC itself."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from lab.modules import build

if TYPE_CHECKING:
    from pathlib import Path

FLAGS = ("-D__KERNEL__", '-DKBUILD_BASENAME="of_this_file"', "-Iinclude", "-Werror=implicit-function-declaration")
HEADERS = {"kconfig": "", "mm": "static inline int pages(void) { return 7; }", "pci": "int pci(int);"}
PROBE = "#include <linux/mm.h>\nint probe(void) { return pages(); }\n"


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Return a folder with headers, and with our compiler in place of GCC."""
    (tmp_path / "include/linux").mkdir(parents=True)
    for name, text in HEADERS.items():
        (tmp_path / f"include/linux/{name}.h").write_text(f"#ifndef H_{name}\n#define H_{name}\n{text}\n#endif\n")
    shutil.copy(build.COMPILER, tmp_path / "gcc")
    (tmp_path / "gcc").chmod(0o755)
    return tmp_path


def compiled(sources: Path, compiler: str, name: str, text: str, *flags: str) -> bytes | None:
    """Return the object of a source, or None if it does not compile."""
    (sources / name).parent.mkdir(parents=True, exist_ok=True)
    (sources / name).write_text(text)
    argv = [compiler, *FLAGS, *flags, "-c", "-o", "made.o", name]
    done = subprocess.run(argv, cwd=sources, env={**os.environ, "TMPDIR": str(sources)}, check=False)
    return None if done.returncode else (sources / "made.o").read_bytes()


@pytest.mark.parametrize("name", ["conftest1.c", "src/nvidia/nv.c", "src/nvidia-drm/nvidia-drm.c", "src/other.c"])
def test_objects_are_those_of_gcc_itself(name: str, sources: Path) -> None:
    wanted = compiled(sources, "/usr/bin/gcc", name, PROBE)
    assert wanted is not None
    assert [compiled(sources, "./gcc", name, PROBE) for _ in range(2)] == [wanted, wanted]


def test_headers_are_read_once(sources: Path) -> None:
    first = compiled(sources, "./gcc", "conftest1.c", PROBE)
    (sources / "include/linux/mm.h").write_text("#ifndef H_mm\n#error read again\n#endif\n")
    assert first is not None
    assert compiled(sources, "./gcc", "conftest2.c", PROBE.replace("probe", "other")) is not None


def test_a_probe_gets_no_header_that_is_none_of_its_own(sources: Path) -> None:
    compiled(sources, "./gcc", "conftest1.c", PROBE)
    assert compiled(sources, "./gcc", "conftest2.c", "int probe(void) { return pages(); }\n") is None


def test_where_headers_do_not_compile_probes_are_answered_all_the_same(sources: Path) -> None:
    (sources / "include/linux/pci.h").write_text("#error for no file alone\n")
    assert compiled(sources, "./gcc", "conftest1.c", PROBE) is not None
    assert compiled(sources, "./gcc", "conftest2.c", PROBE.replace("pages", "no_such")) is None


@pytest.mark.parametrize("flag", ["-O2", "-DWIDE"])
def test_a_source_with_other_flags_is_compiled_as_by_gcc_itself(flag: str, sources: Path) -> None:
    """The headers came before what the kernel has included in front of everything, and did not compile."""
    (sources / "include/types.h").write_text("#define whole int\n")
    (sources / "include/linux/mm.h").write_text(
        "#ifndef H_mm\n#define H_mm\n#ifdef WIDE\nstatic inline whole pages(void) { return 8; }\n#else\n"
        "static inline whole pages(void) { return 7; }\n#endif\n#endif\n"
    )
    first = ("-include", "include/types.h")
    assert compiled(sources, "./gcc", "conftest1.c", PROBE, *first) is not None
    assert list(sources.glob("*.gch"))

    wanted = compiled(sources, "/usr/bin/gcc", "conftest2.c", PROBE, *first, flag)

    assert wanted is not None
    assert compiled(sources, "./gcc", "conftest2.c", PROBE, *first, flag) == wanted
