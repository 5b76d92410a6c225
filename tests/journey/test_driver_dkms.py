"""Drivers with a module of DKMS on Debian 13: they come, are staged under load, return by themselves and go away.

Upgrades and rollbacks of such drivers are in ``test_rollout.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.journey.conftest import OLD_VERSION, VERSION
from tests.journey.dkms import Operator, operating, removal, stage_item

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.nodes import Site


# Three driver changes, a few minutes where nothing else runs.
pytestmark = [pytest.mark.nodes, pytest.mark.timeout(1500)]
# What an operator may have written: by modprobe.d(5), a module that needs another version of it is not loaded.
RULE = "/etc/modprobe.d/site.conf"
ONLY_OLD = (
    'install nvidia-current /bin/sh -c \'test "$(modinfo -F version nvidia-current)" = '
    f"{OLD_VERSION} && exec modprobe --ignore-install nvidia-current'\n"
)


@pytest.fixture
def operator(site: Site, tmp_path: Path) -> Iterator[Operator]:
    """Who changes the driver of a Debian 13."""
    with operating(site, "trixie", tmp_path) as made:
        yield made


def test_on_debian_13_a_driver_comes_is_staged_under_load_returns_and_goes(operator: Operator) -> None:
    before = operator.state()
    open_modules_that_there_are_none_of(operator)
    first_installation(operator)
    staging_under_load(operator)
    return_by_itself(operator)
    removal(operator, before)


def open_modules_that_there_are_none_of(operator: Operator) -> None:
    """Debian has open modules of 550 alone."""
    operator.declare(OLD_VERSION, "open")

    operator.assert_refused(
        f"driver {OLD_VERSION} has no nvidia-open-kernel-dkms in the node's package sources",
        f"which there is for {VERSION}",
        "declare another driver.kernelModule or driver version",
    )


def first_installation(operator: Operator) -> None:
    """Nothing is said of the module: the branch decides, and the plan gives the reason."""
    plan = operator.prepare(OLD_VERSION)

    operator.assert_applied(OLD_VERSION)

    (derived,) = (one for one in plan["derived"] if one["key"] == "driver.kernelModule")
    assert (derived["value"], derived["reason"]) == (
        "proprietary",
        "branches before 560 have the proprietary module",
    )


def staging_under_load(operator: Operator) -> None:
    """A process keeps a GPU open, and does not notice."""
    node = operator.node
    node.run(["systemd-run", "--unit=job", "--property=StandardInput=file:/dev/nvidia0", "sleep", "3600"])
    identifier = stage_item(operator.prepare(VERSION))

    done = operator.grapnel("stage", "--no-cluster")

    staged = {one["id"]: one for one in operator.status()["staged"]}
    assert done.returncode == 0, done.stdout + done.stderr
    assert (staged[identifier]["version"], staged[identifier]["complete"]) == (VERSION, True)
    assert staged[identifier]["cost"]["build_s"] == 0
    assert node.run(["systemctl", "is-active", "job"]).stdout.strip() == "active"
    operator.assert_has(OLD_VERSION)
    node.run(["systemctl", "stop", "job"])


def return_by_itself(operator: Operator) -> None:
    """The new module is loaded, and modprobe lets none depend on it: the node has the former driver afterwards."""
    node = operator.node
    (node.root / RULE.lstrip("/")).write_text(ONLY_OLD)

    done = operator.apply()

    run = operator.status()["run"]
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 1, said
    assert (run["state"], run["step"]) == ("returned", "load"), run
    assert f"kernel module {VERSION} is loaded, but not nvidia_uvm" in said
    assert node.run(["modinfo", "-F", "version", "nvidia-current"]).stdout.strip() == OLD_VERSION
    assert node.run(["cat", "/sys/module/nvidia/version"]).stdout.strip() == OLD_VERSION
    assert node.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]).stdout.split() == (
        [OLD_VERSION] * len(node.gpus)
    )
    node.run(["rm", RULE])
