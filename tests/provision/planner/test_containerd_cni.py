"""A site's own key for the folder of CNI plugins, which containerd 2.4 ignores, is told before pods have no network."""

from __future__ import annotations

import pytest

from provision.declaration.fleet.facts.node import Engine
from provision.planning.engines.containerd.imports import DROP_IN_FOLDER, MAIN_PATH
from tests.provision.samples import RUNNING, edit_file, make_facts, make_stack, plan, replace

CNI = '[plugins."io.containerd.cri.v1.runtime".cni]\n'
FORMER = f'version = 3\n{CNI}bin_dir = "/usr/lib/cni"\n'
SITE = f"{DROP_IN_FOLDER}/10-site.toml"


def warnings(version: str, files: dict[str, str]) -> list[str]:
    engine = Engine(binary="/usr/bin/containerd", version=version)
    facts = replace(make_facts(engines={"containerd": engine}), services={"containerd.service": RUNNING})
    for path, text in files.items():
        facts = edit_file(facts, path, text)
    return [each.message for each in plan(facts, make_stack()).warnings if each.code == "engine-key-gone"]


@pytest.mark.parametrize("version", ["2.1.0", "2.2.1", "2.4.2"])
@pytest.mark.parametrize("path", [MAIN_PATH, SITE])
def test_the_file_that_has_the_former_key_is_named(path: str, version: str) -> None:
    main = {} if path == MAIN_PATH else {MAIN_PATH: "version = 3\n"}
    (told,) = warnings(version, {**main, path: FORMER})
    assert told.startswith(f"{path} on ")
    assert "cni.bin_dir, which containerd 2.4 and later ignore: pods have no network" in told


@pytest.mark.parametrize(
    ("version", "files"),
    [
        pytest.param("2.0.5", {MAIN_PATH: FORMER}, id="an engine that knows no other key"),
        pytest.param(
            "2.4.2", {MAIN_PATH: FORMER.replace("bin_dir =", "bin_dirs = [").replace('cni"\n', 'cni"]\n')}, id="a list"
        ),
        pytest.param(
            "2.4.2", {MAIN_PATH: FORMER, SITE: f'version = 3\n{CNI}bin_dirs = ["/x"]\n'}, id="the list in another file"
        ),
        pytest.param(
            "2.4.2",
            {MAIN_PATH: 'version = 2\n[plugins."io.containerd.grpc.v1.cri".cni]\nbin_dir = "/usr/lib/cni"\n'},
            id="version 2, which containerd translates",
        ),
        pytest.param(
            "2.4.2",
            {MAIN_PATH: 'version = 3\n[plugins."io.containerd.image-verifier.v1.bindir"]\nbin_dir = "/x"\n'},
            id="the key of another plugin",
        ),
    ],
)
def test_where_nothing_is_lost_nothing_is_told(version: str, files: dict[str, str]) -> None:
    assert warnings(version, files) == []
