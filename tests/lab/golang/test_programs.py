"""Which versions are known, and how one is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab.golang import programs
from lab.golang.errors import GolangError
from lab.golang.toolchain import environment

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("setting", "version"),
    [
        pytest.param(None, programs.KUBERNETES_VERSION, id="unset"),
        pytest.param("", programs.KUBERNETES_VERSION, id="empty"),
        pytest.param("1.34.4", "1.34.4", id="a version"),
        pytest.param(" v1.34.4 ", "1.34.4", id="as people write it"),
    ],
)
def test_the_setting_chooses_kubernetes(monkeypatch: pytest.MonkeyPatch, setting: str | None, version: str) -> None:
    monkeypatch.delenv(programs.SETTING, raising=False)
    if setting is not None:
        monkeypatch.setenv(programs.SETTING, setting)
    assert programs.kubernetes_version() == version
    assert programs.kubernetes(programs.kubernetes_version()).version == version


@pytest.mark.parametrize("version", ["1.35.99", "newest", "../1.36.3", "1.36"])
def test_an_unknown_version_is_told_what_is_known_and_what_to_do(version: str) -> None:
    with pytest.raises(GolangError, match="unknown Kubernetes version") as caught:
        programs.kubernetes(version)
    assert "1.34.4, 1.36.3" in caught.value.hint
    assert f"python3 -m lab.golang add {version}" in caught.value.hint


def test_versions_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for version in ("1.36.10", "1.36.9", "1.4.0"):
        folder = tmp_path / "kubernetes" / version
        folder.mkdir(parents=True)
        (folder / "go.mod").touch()
    (tmp_path / "kubernetes" / "1.37.0").mkdir()  # half added: no go.mod
    assert programs.known_versions("kubernetes", tmp_path) == ["1.4.0", "1.36.9", "1.36.10"]


@pytest.mark.parametrize("version", programs.known_versions("kubernetes"))
def test_every_known_kubernetes_is_pinned_and_named(version: str) -> None:
    program = programs.kubernetes(version)
    pinned = next(source for source in program.sources if source.name == "go.mod").read_text()
    hashes = next(source for source in program.sources if source.name == "go.sum").read_text()
    assert f"k8s.io/kubernetes v{version}\n" in pinned
    assert f"k8s.io/kubernetes v{version} h1:" in hashes
    assert f"-X k8s.io/component-base/version.gitVersion=v{version}" in program.flags[-1]
    minor = version.split(".")[1]
    assert f"-X k8s.io/component-base/version.gitMinor={minor}" in program.flags[-1]


@pytest.mark.parametrize("version", programs.known_versions("containerd"))
def test_containerd_is_pinned_with_its_shim_and_client(version: str) -> None:
    program = programs.containerd(version)
    pinned = program.sources[0].read_text()
    for name in program.files:
        assert f"\tgithub.com/containerd/containerd/v2/cmd/{name}\n" in pinned
    assert f"github.com/containerd/containerd/v2 v{program.version} h1:" in program.sources[1].read_text()


def test_runc_is_pinned_and_built_with_its_part_in_c() -> None:
    program = programs.runc()
    assert "\ntool github.com/opencontainers/runc\n" in program.sources[0].read_text()
    assert f"github.com/opencontainers/runc v{program.version} h1:" in program.sources[1].read_text()
    assert "-extldflags=-static" in program.flags[-1]
    assert environment(has_c=program.has_c)["CGO_ENABLED"] == "1"


def test_crio_is_pinned_with_the_program_in_c_that_its_module_has() -> None:
    program = programs.crio()
    assert "\ntool github.com/cri-o/cri-o/cmd/crio\n" in program.sources[0].read_text()
    assert f"github.com/cri-o/cri-o v{program.version} h1:" in program.sources[1].read_text()
    assert program.beside == (("pinns", "github.com/cri-o/cri-o", "pinns/src"),)
    assert environment(has_c=program.has_c)["CGO_ENABLED"] == "1"


def test_kwok_is_pinned_and_says_its_version() -> None:
    program = programs.kwok()
    assert "\ntool sigs.k8s.io/kwok/cmd/kwok\n" in program.sources[0].read_text()
    assert f"sigs.k8s.io/kwok v{program.version} h1:" in program.sources[1].read_text()
    assert f"-X sigs.k8s.io/kwok/pkg/consts.Version=v{program.version}" in program.flags[-1]


@pytest.mark.parametrize(
    ("program", "module"),
    [
        (programs.helm(), "helm.sh/helm/v4"),
        (programs.kubeconform(), "github.com/yannh/kubeconform"),
    ],
)
def test_what_looks_at_the_chart_is_pinned(program: programs.Program, module: str) -> None:
    assert f"\ntool {module}/cmd/{program.name}\n" in program.sources[0].read_text()
    assert f"{module} v{program.version} h1:" in program.sources[1].read_text()


@pytest.mark.parametrize(
    "program", [programs.containerd(), programs.kwok(), programs.kubernetes(programs.KUBERNETES_VERSION)]
)
def test_what_has_no_part_in_c_is_built_without_a_compiler_for_it(program: programs.Program) -> None:
    assert environment(has_c=program.has_c)["CGO_ENABLED"] == "0"
    assert not any("tags" in flag or "static" in flag for flag in program.flags)


def test_every_role_is_known_to_the_program_that_plays_them() -> None:
    text = programs.kubernetes(programs.KUBERNETES_VERSION).sources[0].read_text()
    assert [role for role in programs.KUBERNETES_ROLES if f'"{role}"' not in text] == []
