"""How another version of Kubernetes becomes known."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from lab.golang.add import add_kubernetes, render_go_mod
from lab.golang.errors import GolangError
from lab.golang.programs import MODULES, known_versions

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.golang.conftest import FakeGo

PUBLISHED = """\
module k8s.io/kubernetes

go 1.25.0

require (
	go.etcd.io/etcd/api/v3 v3.6.1 // indirect
	go.etcd.io/etcd/client/v3 v3.6.12
	k8s.io/api v0.0.0
)

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/kubelet => ./staging/src/k8s.io/kubelet
)
"""
RENDERED = """\
module hyper

go 1.25.0

replace k8s.io/api => k8s.io/api v0.35.4
replace k8s.io/kubelet => k8s.io/kubelet v0.35.4

require (
	go.etcd.io/etcd/server/v3 v3.6.12
	k8s.io/kubernetes v1.35.4
)
"""


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    home = tmp_path / "modules"
    (home / "kubernetes").mkdir(parents=True)
    shutil.copy(MODULES / "kubernetes" / "main.go", home / "kubernetes")
    return home


def test_modules_that_are_developed_together_are_replaced_by_their_releases() -> None:
    assert render_go_mod("1.35.4", PUBLISHED) == RENDERED


@pytest.mark.parametrize("missing", ["go 1.25.0", "go.etcd.io/etcd/client/v3", "./staging/"])
def test_a_go_mod_of_another_kind_is_refused(missing: str) -> None:
    with pytest.raises(GolangError, match=r"go\.mod of Kubernetes 1\.35\.4"):
        render_go_mod("1.35.4", PUBLISHED.replace(missing, "x"))


def test_a_version_that_was_added_is_known(go: FakeGo, modules: Path, tmp_path: Path) -> None:
    go.publishes(tmp_path / "published.mod", PUBLISHED)
    folder = add_kubernetes("1.35.4", lambda _: None, modules)
    assert known_versions("kubernetes", modules) == ["1.35.4"]
    assert (folder / "go.mod").read_text() == RENDERED
    assert (folder / "go.sum").read_text() == "hashes\n"


@pytest.mark.parametrize("verb", ["mod", "list"])
def test_a_version_that_cannot_be_had_stays_unknown(go: FakeGo, modules: Path, tmp_path: Path, verb: str) -> None:
    go.publishes(tmp_path / "published.mod", PUBLISHED)
    go.fails(verb, "not available")
    with pytest.raises(GolangError, match=r"Kubernetes 1\.35\.4 cannot be added") as caught:
        add_kubernetes("1.35.4", lambda _: None, modules)
    assert "not available" in caught.value.hint
    assert known_versions("kubernetes", modules) == []


@pytest.mark.parametrize("version", ["1.35", "v1.35.4", "2.0.0", "1.35.4 -x", ""])
def test_what_is_no_release_is_refused(version: str, modules: Path) -> None:
    with pytest.raises(GolangError, match="not a release"):
        add_kubernetes(version, lambda _: None, modules)
