"""What a declaration leaves to each node."""

from __future__ import annotations

import msgspec
import pytest

from provision.driver.derivation import derive
from provision.spec.model import Driver

MIRROR = {"url": "https://mirror.example.com/cuda"}
KEY = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDMEZQAAABYJKwYBBAHaRw8BAQdA\n-----END PGP PUBLIC KEY BLOCK-----\n"
SIGNING = {"key": "/etc/keys/module.key", "certificate": "/etc/keys/module.der"}


def rules(**section: object) -> dict[str, str]:
    driver = msgspec.convert({"version": "550.163.01"} | section, Driver)
    return {each.key.removeprefix("driver."): each.rule for each in derive(driver)}


@pytest.mark.parametrize(
    ("section", "keys"),
    [
        pytest.param({}, ["kernelModule", "companions", "signing"], id="the shortest declaration"),
        pytest.param({"enabled": False}, [], id="a driver that is left alone"),
        pytest.param({"source": "none"}, ["kernelModule"], id="no packages"),
        pytest.param({"source": "none", "kernelModule": "none"}, [], id="no packages and no module"),
        pytest.param({"kernelModule": "none"}, ["companions"], id="a module from elsewhere"),
        pytest.param({"kernelModule": "open"}, ["companions", "signing"], id="a declared flavour"),
        pytest.param(
            {"version": None, "branch": "550", "kernelModule": "none"}, ["version", "companions"], id="a branch"
        ),
        pytest.param(
            {"source": "nvidia", "kernelModule": "open", "companions": [], "signing": SIGNING},
            ["repository"],
            id="NVIDIA's own repository",
        ),
        pytest.param(
            {"source": "canonical", "repository": MIRROR, "kernelModule": "open", "companions": [], "signing": SIGNING},
            ["repository.key"],
            id="a mirror without a key of its own",
        ),
        pytest.param(
            {
                "source": "nvidia",
                "repository": {**MIRROR, "key": KEY},
                "kernelModule": "open",
                "companions": ["nscq"],
                "signing": SIGNING,
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
        ({"version": "550.163.01"}, "proprietary, as NVIDIA recommends before branch 560; open where"),
        ({"version": "559.99"}, "proprietary, as"),
        (
            {"version": "560.35.05"},
            "open where all of them support it, as NVIDIA recommends from branch 560 on; proprietary",
        ),
        ({"version": None, "branch": "560"}, "open where all"),
        ({"version": None, "branch": "535"}, "proprietary, as"),
    ],
)
def test_the_flavour_depends_on_branch_and_gpus(section: dict[str, object], usual: str) -> None:
    assert rules(**section)["kernelModule"].startswith(f"from the node's GPUs: {usual}")
