"""Tables of published packages, and what is rendered from them: nothing is built."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
import yaml

from lab.machine.errors import SiteError
from lab.nodes import NodeSpec
from lab.sources import SYSTEMS, deb, rpm
from lab.sources.content import WRITERS
from lab.sources.tables import Package, base_packages, docker_packages, driver_packages, first_packages

if TYPE_CHECKING:
    from pathlib import Path

ROCKY = SYSTEMS["rocky9"]


def names_of(relation: str) -> list[str]:
    """Return the names in a relation, of which one has to be provided."""
    return [part.split(" ")[0] for part in relation.strip("()").split(" or ")]


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_dependency_is_provided_by_a_package_of_the_system(name: str) -> None:
    system = SYSTEMS[name]
    packages = [*driver_packages(system), *base_packages(system)]
    provided = {text.split(" ")[0] for package in packages for text in (package.name, *package.provides)}
    needed = [relation for package in packages for relation in package.requires]
    assert [relation for relation in needed if not provided & set(names_of(relation))] == []


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_content_can_be_written(name: str) -> None:
    lines = [line for package in driver_packages(SYSTEMS[name]) for line in package.content]
    assert {line.split()[0] for line in lines} <= set(WRITERS)


@pytest.mark.parametrize("name", SYSTEMS)
def test_no_package_is_there_twice(name: str) -> None:
    packages = [(each.name, each.evr) for each in (*driver_packages(SYSTEMS[name]), *base_packages(SYSTEMS[name]))]
    assert len(set(packages)) == len(packages)


def test_a_system_has_its_kernel_from_the_start() -> None:
    assert first_packages(ROCKY) == ["kernel", "kernel-core", "rocky-release", "bash"]
    assert {each.version for each in base_packages(ROCKY) if each.name.startswith("kernel")} == {"5.14.0"}


def test_a_stream_has_one_branch_and_one_flavour() -> None:
    documents = list(yaml.safe_load_all(rpm.render_modules(driver_packages(ROCKY), ROCKY)))
    streams = {each["data"]["stream"]: each["data"] for each in documents if each["document"] == "modulemd"}
    defaults = documents[-1]["data"]
    artifacts = streams["580-open"]["artifacts"]["rpms"]
    assert {"kmod-nvidia-open-dkms-3:580.95.05-1.el9.x86_64", "kmod-nvidia-open-dkms-3:580.126.09-1.el9.x86_64"} <= {
        *artifacts
    }
    assert not [each for each in artifacts if "570." in each or "latest-dkms" in each]
    assert not [each for each in streams["open-dkms"]["artifacts"]["rpms"] if "580.95.05" in each]
    assert defaults["stream"] == "latest-dkms"


def test_a_spec_file_has_a_section_for_each_package(tmp_path: Path) -> None:
    group = next(each for each in rpm.sort_by_source(driver_packages(ROCKY)) if each[0].source == "nvidia-driver")
    staged = {package.name: tmp_path / package.name for package in group}
    (tmp_path / "libnvidia-ml/usr/lib64").mkdir(parents=True)
    (tmp_path / "libnvidia-ml/usr/lib64/libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.570.133.20")
    text = rpm.render_spec(group, staged)
    assert "Name: nvidia-driver\n" in text
    assert "Epoch: 3\n" in text
    assert "%package -n libnvidia-ml\n" in text
    assert "%package -n nvidia-driver\n" not in text  # it is the main one
    assert "%files -n libnvidia-ml\n/usr/lib64/libnvidia-ml.so.1\n" in text


def test_a_control_file_names_the_source() -> None:
    package = Package("a", "b", "1.0", "0ubuntu1", requires=("c (= 1)", "d"), conflicts=("e",))
    lines = deb.control(package).splitlines()
    assert {"Package: a", "Version: 1.0-0ubuntu1", "Source: b", "Depends: c (= 1), d", "Conflicts: e"} <= set(lines)


def test_dockers_packages_exclude_and_replace_what_they_bring_in_either_form() -> None:
    for name, release in (("rocky9", "1.el9"), ("ubuntu2404", "1~ubuntu.24.04~noble")):
        package = docker_packages(SYSTEMS[name])[0]
        assert (package.name, package.release) == ("containerd.io", release)
        assert package.conflicts == package.obsoletes == ("containerd", "runc")
    assert {"Provides: containerd, runc", "Replaces: containerd, runc"} <= {*deb.control(package).splitlines()}


def test_settings_in_a_package_are_an_administrators(tmp_path: Path) -> None:
    staged = tmp_path / "staged"
    (staged / "etc/a").mkdir(parents=True)
    (staged / "etc/a/b.toml").write_text("")
    (staged / "usr").mkdir()
    deb.build(Package("a", "a", "1.0", "1"), staged, tmp_path)
    argv = ["dpkg-deb", "--info", str(tmp_path / "a_1.0-1_amd64.deb"), "conffiles"]
    assert subprocess.run(argv, check=True, capture_output=True, text=True).stdout == "/etc/a/b.toml\n"


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"system": "plan9", "suite": "bookworm"}, id="unknown system"),
        pytest.param({"system": "rocky9"}, id="another suite"),
        pytest.param({"system": "rocky9", "suite": "bookworm", "builder": True}, id="a system and a builder"),
        pytest.param({"builder": True, "driver_module": "550.163.01"}, id="a builder with module files"),
    ],
)
def test_a_node_that_cannot_be_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(SiteError):
        NodeSpec("n1", **wrong)  # type: ignore[arg-type]  # the table mixes types
