"""Rules across the keys of the driver, one at a time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from provision.declaration.spec.model import Driver
from provision.declaration.spec.rules.driver import judge_driver
from provision.declaration.spec.text.findings import dotted

SIGNING = {"key": "/root/module.key", "certificate": "/root/module.der"}
URL = {"url": "https://mirror.example.com/cuda"}
KEY = {"key": "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDMEZQAA\n-----END PGP PUBLIC KEY BLOCK-----\n"}
FOLDER = {"folder": "/srv/bundle"}
DIGEST = {"sha256": "0" * 64}
PATH = {"path": "/srv/driver.run"}
FILE_URL = {"url": "https://mirror.example.com/driver.run"}


def remarks(section: dict[str, Any]) -> list[tuple[str, str]]:
    """Return severity and key of each remark about a section that is fine but for these keys."""
    driver = msgspec.convert({"version": "550.163.01"} | section, Driver)
    return [(each.severity.value, dotted(each.path).removeprefix("driver.")) for each in judge_driver(driver)]


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        pytest.param({"version": None}, [("error", "version")], id="neither version nor branch"),
        pytest.param({"branch": "550"}, [("error", "branch")], id="version and branch"),
        pytest.param({"source": "none", "branch": "550"}, [("error", "branch")], id="both, without packages"),
        pytest.param(
            {"enabled": False, "kernelModule": "proprietary"},
            [("warning", "kernelModule")],
            id="a flavour of a driver that is left alone",
        ),
        pytest.param({"source": "runfile"}, [("error", "runfile")], id="no runfile"),
        pytest.param({"source": "runfile", "runfile": DIGEST}, [("error", "runfile")], id="a runfile without a place"),
        pytest.param(
            {"source": "runfile", "runfile": DIGEST | PATH | FILE_URL},
            [("error", "runfile")],
            id="a runfile in two places",
        ),
        pytest.param(
            {"source": "runfile", "runfile": DIGEST | PATH, "version": None, "branch": "550"},
            [("error", "branch")],
            id="a branch of one file",
        ),
        pytest.param({"runfile": DIGEST | PATH}, [("warning", "runfile")], id="a runfile that nobody takes"),
        pytest.param(
            {"source": "runfile", "runfile": DIGEST | PATH, "repository": URL},
            [("warning", "repository")],
            id="a repository beside a runfile",
        ),
        pytest.param(
            {"source": "none", "kernelModule": "open"}, [("error", "kernelModule")], id="a flavour from nowhere"
        ),
        pytest.param(
            {"source": "none", "companions": ["nscq"]}, [("warning", "companions")], id="companions from nowhere"
        ),
        pytest.param(
            {"source": "none", "version": None, "branch": "550"}, [("warning", "branch")], id="a branch of nothing"
        ),
        pytest.param({"source": "bundle"}, [("error", "repository")], id="a bundle without a place"),
        pytest.param({"source": "bundle", "repository": URL}, [("error", "repository.url")], id="a bundle on a server"),
        pytest.param({"source": "bundle", "repository": {}}, [("error", "repository")], id="a bundle nowhere"),
        pytest.param(
            {"source": "canonical", "repository": {}}, [("error", "repository")], id="a mirror without a place"
        ),
        pytest.param({"source": "nvidia"}, [("error", "repository")], id="NVIDIA's packages without a repository"),
        pytest.param(
            {"source": "nvidia", "repository": URL}, [("error", "repository.key")], id="NVIDIA's packages without a key"
        ),
        pytest.param(
            {"source": "bundle", "repository": URL | FOLDER}, [("error", "repository")], id="a bundle in two places"
        ),
        pytest.param(
            {"source": "nvidia", "repository": FOLDER | KEY},
            [("error", "repository.folder")],
            id="a folder that is no bundle",
        ),
        pytest.param({"repository": URL}, [("warning", "repository")], id="a mirror of the distribution"),
        pytest.param(
            {"source": "none", "repository": URL}, [("warning", "repository")], id="a mirror that nobody reads"
        ),
        pytest.param(
            {"kernelModule": "none", "moduleParameters": {"NVreg_EnableMSI": 1}, "signing": SIGNING},
            [("warning", "moduleParameters"), ("warning", "signing")],
            id="parameters and a key for a module from elsewhere",
        ),
        pytest.param(
            {"source": "none", "compile": "anywhere", "builder": "n1"},
            [("warning", "compile"), ("warning", "builder")],
            id="building a module that is not installed",
        ),
        pytest.param(
            {"kernelModule": "none", "build": "each"}, [("warning", "build")], id="a module that nobody builds"
        ),
        pytest.param(
            {"build": "each", "builder": "n1"}, [("warning", "builder")], id="a builder where every node builds its own"
        ),
    ],
)
def test_each_rule_names_the_key_to_change(section: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert remarks(section) == expected


@pytest.mark.parametrize(
    "section",
    [
        pytest.param({}, id="a version alone"),
        pytest.param({"version": None, "branch": "550"}, id="a branch alone"),
        pytest.param({"enabled": False, "version": None}, id="a driver that is left alone"),
        pytest.param({"enabled": False, "kernelModule": "none"}, id="and its module, too"),
        pytest.param(
            {"enabled": False, "source": "runfile", "branch": "550"}, id="nothing is judged that has no effect"
        ),
        pytest.param({"source": "none", "version": None}, id="a driver of the image"),
        pytest.param(
            {"source": "none", "kernelModule": "none", "companions": []}, id="a driver of the image, in words"
        ),
        pytest.param({"source": "bundle", "repository": FOLDER}, id="a bundle here"),
        pytest.param({"source": "runfile", "runfile": DIGEST | PATH}, id="a runfile here"),
        pytest.param({"source": "runfile", "runfile": DIGEST | FILE_URL}, id="a runfile on a server"),
        pytest.param({"source": "nvidia", "repository": KEY}, id="NVIDIA's own repository"),
        pytest.param({"source": "nvidia", "repository": URL | KEY}, id="a mirror of NVIDIA's"),
        pytest.param({"source": "canonical"}, id="Ubuntu as it is"),
        pytest.param({"source": "canonical", "repository": URL}, id="a mirror of Ubuntu"),
        pytest.param({"kernelModule": "none"}, id="a module from elsewhere"),
        pytest.param(
            {
                "kernelModule": "open",
                "moduleParameters": {"NVreg_EnableMSI": 1},
                "signing": SIGNING,
                "compile": "anywhere",
                "builder": "n1",
                "reboot": True,
            },
            id="a module with all that goes with it",
        ),
    ],
)
def test_what_is_beyond_doubt(section: dict[str, Any]) -> None:
    assert remarks(section) == []
