"""Libraries are installed once per set of requirements, by uv or pip, and a failure can be repeated by hand."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from provision.planning.supply.payload.errors import PayloadError
from provision.planning.supply.payload.libraries import CachedLibraries, install_command
from tests.provision.payload.checkouts import make_installer


def make_libraries(tmp_path: Path, uv: Path, text: str = "grpcio==1\n") -> CachedLibraries:
    requirements = tmp_path / "node.txt"
    requirements.write_text(text)
    environment = {"UV": str(uv), "PATH": os.environ["PATH"]}
    return CachedLibraries(requirements, tmp_path / "cache", environment)


def calls(installer: Path) -> list[str]:
    log = Path(f"{installer}.calls")
    return log.read_text().splitlines() if log.exists() else []


def test_libraries_are_installed_once(tmp_path: Path) -> None:
    uv = make_installer(tmp_path)

    sites = [make_libraries(tmp_path, uv).site("3.13") for _ in range(2)]

    assert sites[0] == sites[1]
    assert (sites[0] / "grpc" / "__init__.py").read_text() == "library\n"
    assert len(calls(uv)) == 1


def test_another_python_and_other_requirements_have_their_own(tmp_path: Path) -> None:
    uv = make_installer(tmp_path)

    sites = {
        make_libraries(tmp_path, uv).site("3.11"),
        make_libraries(tmp_path, uv).site("3.13"),
        make_libraries(tmp_path, uv, "grpcio==2\n").site("3.13"),
    }

    assert len(sites) == len(calls(uv)) == 3


def test_a_failure_leaves_nothing_behind_and_says_what_to_try(tmp_path: Path) -> None:
    uv = make_installer(tmp_path)
    Path(f"{uv}.broken").touch()

    with pytest.raises(PayloadError) as raised:
        make_libraries(tmp_path, uv).site("3.13")

    assert raised.value.message == "exit status 3: resolving / no wheel for this platform"
    assert raised.value.hint.startswith(f"try by hand: {uv} pip install")
    assert list((tmp_path / "cache").iterdir()) == []


def test_an_installer_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(PayloadError, match="/no/uv cannot be run: no such file or directory"):
        make_libraries(tmp_path, Path("/no/uv")).site("3.13")


def test_uv_is_told_everything_that_makes_the_result_independent_of_this_machine(tmp_path: Path) -> None:
    command = install_command(Path("node.txt"), Path("site"), "3.13", {"UV": "/opt/uv", "PATH": str(tmp_path)})

    assert command == [
        *["/opt/uv", "pip", "install", "--quiet", "--python-platform", "x86_64-manylinux_2_28"],
        *["--target", "site", "--python-version", "3.13", "--only-binary", ":all:", "--require-hashes"],
        *["-r", "node.txt"],
    ]


def test_libraries_of_another_architecture_are_kept_apart(tmp_path: Path) -> None:
    uv = make_installer(tmp_path)
    here = make_libraries(tmp_path, uv)
    other = replace(here, architecture="aarch64")

    assert here.site("3.11") != other.site("3.11")
    command = install_command(Path("r"), Path("t"), "3.11", {"UV": str(uv)}, "aarch64")
    assert "aarch64-manylinux_2_28" in command
    assert not any("x86_64" in word for word in command)


def test_uv_is_found_on_the_path(tmp_path: Path) -> None:
    uv = make_installer(tmp_path)

    assert install_command(Path("r"), Path("t"), "3.13", {"PATH": str(uv.parent)})[0] == str(uv)


def test_pip_does_where_there_is_no_uv(tmp_path: Path) -> None:
    pip = make_installer(tmp_path, "pip3")

    command = install_command(Path("node.txt"), Path("site"), "3.11", {"PATH": str(pip.parent)})

    assert "pip" in command[0] or command[1:3] == ["-m", "pip"]
    assert command[-2:] == ["-r", "node.txt"]
    assert command[command.index("--platform") :][:2] == ["--platform", "manylinux_2_28_x86_64"]
    assert {"--python-version", "3.11", "--only-binary", ":all:", "--require-hashes"} <= set(command)
