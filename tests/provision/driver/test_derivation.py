"""What a declaration leaves to each node."""

from __future__ import annotations

import msgspec
import pytest

from provision.declaration.spec.model import Driver, KernelModule
from provision.planning.driver.derivation import derive
from provision.planning.driver.flavour import choose
from provision.planning.driver.gpus import GpuSupport, support
from provision.planning.node_plan import Problem

MIRROR = {"url": "https://mirror.example.com/cuda"}
KEY = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDMEZQAAABYJKwYBBAHaRw8BAQdA\n-----END PGP PUBLIC KEY BLOCK-----\n"
SIGNING = {"key": "/etc/keys/module.key", "certificate": "/etc/keys/module.der"}


def rules(**section: object) -> dict[str, str]:
    driver = msgspec.convert({"version": "550.163.01"} | section, Driver)
    return {each.key.removeprefix("driver."): each.rule for each in derive(driver)}


@pytest.mark.parametrize(
    ("section", "keys"),
    [
        pytest.param({}, ["kernelModule", "companions", "signing", "builder"], id="the shortest declaration"),
        pytest.param({"enabled": False}, [], id="a driver that is left alone"),
        pytest.param({"source": "none"}, ["kernelModule"], id="no packages"),
        pytest.param(
            {"source": "bundle", "kernelModule": "none", "companions": []}, ["packages"], id="packages of a bundle"
        ),
        pytest.param({"source": "none", "kernelModule": "none"}, [], id="no packages and no module"),
        pytest.param({"kernelModule": "none"}, ["companions"], id="a module from elsewhere"),
        pytest.param({"build": "each"}, ["kernelModule", "companions", "signing"], id="every node builds its own"),
        pytest.param({"kernelModule": "open"}, ["companions", "signing", "builder"], id="a declared flavour"),
        pytest.param(
            {"version": None, "branch": "550", "kernelModule": "none"}, ["version", "companions"], id="a branch"
        ),
        pytest.param(
            {
                "source": "nvidia",
                "repository": {"key": KEY},
                "kernelModule": "open",
                "companions": [],
                "signing": SIGNING,
            },
            ["repository.url", "builder"],
            id="NVIDIA's own repository",
        ),
        pytest.param(
            {"source": "canonical", "repository": MIRROR, "kernelModule": "open", "companions": [], "signing": SIGNING},
            ["repository.key", "builder"],
            id="a mirror without a key of its own",
        ),
        pytest.param(
            {
                "source": "nvidia",
                "repository": {**MIRROR, "key": KEY},
                "kernelModule": "open",
                "companions": ["nscq"],
                "signing": SIGNING,
                "builder": "build1",
            },
            [],
            id="everything is declared",
        ),
    ],
)
def test_what_is_left_open(section: dict[str, object], keys: list[str]) -> None:
    assert list(rules(**section)) == keys


@pytest.mark.parametrize(
    ("section", "usual"),
    [
        ({"version": "550.163.01"}, "proprietary, as is NVIDIA's default before branch 560; open where one"),
        ({"version": "559.99"}, "proprietary, as"),
        ({"version": "560.35.05"}, "open, as is NVIDIA's default from branch 560 on; proprietary where one is older"),
        ({"version": None, "branch": "560"}, "open, as is"),
        ({"version": None, "branch": "535"}, "proprietary, as"),
        ({"version": None, "branch": "620"}, "open, as there is no other from branch 620 on; none"),
    ],
)
def test_the_flavour_depends_on_branch_and_gpus(section: dict[str, object], usual: str) -> None:
    assert rules(**section)["kernelModule"].startswith(f"from the node's GPUs: {usual}")


BOTH = (support("1eb8", ""),)  # Turing
PROPRIETARY_ONLY = (support("1b38", ""),)  # Pascal
OPEN_ONLY = (support("2342", ""),)  # Grace Hopper


@pytest.mark.parametrize(
    ("version", "gpus", "part"),
    [
        pytest.param("550.163.01", BOTH, 0, id="usually, before the open module was the default"),
        pytest.param("550.163.01", PROPRIETARY_ONLY, 0, id="an old GPU, before"),
        pytest.param("550.163.01", OPEN_ONLY, 1, id="a GPU for the open module alone, before"),
        pytest.param("550.163.01", (), 2, id="no GPU, before"),
        pytest.param("560.35.05", BOTH, 0, id="usually, since"),
        pytest.param("560.35.05", PROPRIETARY_ONLY, 1, id="an old GPU, since"),
        pytest.param("560.35.05", OPEN_ONLY, 0, id="a GPU for the open module alone, since"),
        pytest.param("560.35.05", (), 2, id="no GPU, since"),
        pytest.param("620.10.01", BOTH, 0, id="usually, without a proprietary module"),
        pytest.param("620.10.01", (), 1, id="no GPU, without a proprietary module"),
    ],
)
def test_the_flavour_is_explained_as_it_is_chosen(version: str, gpus: tuple[GpuSupport, ...], part: int) -> None:
    """`part` is the part of the sentence that is about such a node."""
    parts = rules(version=version)["kernelModule"].removeprefix("from the node's GPUs: ").split("; ")
    chosen = choose(gpus, version, KernelModule.AUTO)
    assert not isinstance(chosen, Problem)
    assert parts[part].replace(",", " ").split()[0] == chosen.value.value
