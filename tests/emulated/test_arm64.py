"""A machine of arm64 with a kernel of its own: its facts and plan, a driver's change, containers, the daemon's program.

It is emulated in software, so that everything takes ten times as long; one machine does for all.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import ansible
import msgspec
import pytest

from lab.machine.folders import cache_dir
from lab.nodes.emulated.image import ensure
from lab.nodes.emulated.machine import emulated_machine
from provision.declaration.fleet.facts.node import parse_facts
from provision.planning.driver_change import DriverChange, PackageVersion, change_id
from provision.planning.supply.payload.archive import write_archive
from provision.planning.supply.payload.build import PYTHON
from provision.planning.supply.payload.libraries import CachedLibraries
from provision.planning.supply.payload.sources import find_sources
from tests.provision.samples import available, make_stack, plan, replace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.nodes.emulated.machine import EmulatedMachine

pytestmark = [
    pytest.mark.nodes,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0, reason="unpacking Debian needs root"),
]

ROOT = Path(__file__).parents[2]
SOURCES = find_sources(ROOT)
SITE = Path(pytest.__file__).parents[1]
ANSIBLE = ("__init__.py", "release.py", "_vendor", "module_utils")
# What pytest is made of: none of it is compiled. It paints with two of Pygments' many languages.
PYTEST = ("_pytest", "pytest", "py.py", "pluggy", "iniconfig", "packaging", "pygments")
PAINTED = re.compile(
    r"pygments/(lexers/(__init__|_mapping|diff|python|_.*)\.py|styles/(__init__|_mapping|default)\.py)"
)
OLD, NEW = "560.28.03", "560.35.03"
PROGRAM = "/usr/lib/grapnel/driver/grapnel-driver"
GATHER = """\
import sys
sys.path[:0] = ["/opt/ansible"]
from ansible.module_utils.testing import patch_module_args
from ansible_collections.grapnel.node.plugins.modules import facts
with patch_module_args({"refresh": False}):
    facts.main()
"""


def _is_wanted(member: tarfile.TarInfo) -> bool:
    name = member.name.removeprefix("opt/hook/")
    is_language = member.isfile() and name.startswith(("pygments/lexers/", "pygments/styles/"))
    return "__pycache__" not in name and (not is_language or PAINTED.fullmatch(name) is not None)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedMachine]:
    """Boot the machine with everything that is run on it."""
    folder = tmp_path_factory.mktemp("arm64")
    files = folder / "files.tar"
    with tarfile.open(files, "w") as archive:
        for name, path in _brought(folder).items():
            archive.add(path, name, filter=lambda each: each if _is_wanted(each) else None)
    with emulated_machine(ensure(), files=files) as booted:
        booted.sh("for part in driver node; do tar -xf /srv/parts/$part -C /usr/lib/grapnel/$part; done")
        yield booted


def _brought(folder: Path) -> dict[str, Path]:
    """Return files and folders by their places on the machine."""
    libraries = CachedLibraries(SOURCES.requirements, cache_dir() / "libraries", os.environ)
    driver, _ = write_archive(folder, "driver", SOURCES.driver_entries())
    node, _ = write_archive(folder, "node", SOURCES.node_entries(libraries.site(PYTHON)))
    empty = folder / "empty"
    empty.mkdir()
    core = Path(ansible.__file__).parent
    return {
        "srv/parts/driver": driver,
        "srv/parts/node": node,
        "usr/lib/grapnel/driver": empty,
        "usr/lib/grapnel/node": empty,
        "srv/extra": _package_source(folder),
        **{f"opt/ansible/ansible/{name}": core / name for name in ANSIBLE},
        "opt/ansible/ansible_collections/grapnel/node/plugins": ROOT / "playbooks/plugins",
        **{f"opt/hook/{name}": SITE / name for name in PYTEST},
        "opt/hook/runtime_hook": ROOT / "runtime_hook",
        **{f"opt/hook/tests/{name}": ROOT / "tests" / name for name in ("runtime_hook", "waiting.py")},
    }


def test_its_facts_are_planned_with_packages_of_its_own_architecture(machine: EmulatedMachine) -> None:
    answer = json.loads(machine.run(["python3", "-c", GATHER]).stdout)

    facts = parse_facts(answer["facts"])
    assert (facts.node.architecture, facts.node.os.version_id) == ("aarch64", "12")
    assert facts.node.kernel.endswith("-arm64")
    assert "runc" in facts.packages or facts.engines
    facts = replace(facts, available=available("trixie-arm64"))
    found = plan(facts, make_stack(driver={"version": "550.163.01"}, runtime={"enabled": False}))
    assert found.problems == ()
    assert found.roles.driver is not None
    assert found.roles.driver.driver_change is not None
    assert "libcuda1" in [each.name for each in found.roles.driver.driver_change.packages]


def test_the_driver_program_stages_and_swaps_on_it(machine: EmulatedMachine) -> None:
    machine.sh("echo 'deb [trusted=yes] file:/srv/extra ./' > /etc/apt/sources.list; apt-get -qq update")

    for version in (OLD, NEW):
        change = DriverChange(
            version=version,
            flavour="none",
            manager="apt",
            packages=(PackageVersion("libcuda1", version),),
            remove=(),
            files=(),
            hold=True,
            kernels=(),
            dkms=None,
            services=(),
            sign=None,
            compile="stage",
            reboot=False,
            module=None,
        )
        document = msgspec.json.encode(change)
        staged = json.loads(machine.run([PROGRAM, "stage"], given=document, check=False).stdout)
        assert staged["complete"], staged
        assert staged["id"] == change_id(change)
        swapped = json.loads(machine.run([PROGRAM, "swap", staged["id"]], check=False, timeout_s=300).stdout)
        assert swapped["run"]["state"] == "done", swapped
        assert _state_of_library(machine) == f"{version} arm64 hold\nlibcuda.so.{version}\n"


def _state_of_library(machine: EmulatedMachine) -> str:
    return machine.sh(
        "dpkg-query -W -f '${Version} ${Architecture} ${db:Status-Want}\\n' libcuda1; "
        "readlink /usr/lib/aarch64-linux-gnu/libcuda.so.1"
    )


def _package_source(folder: Path) -> Path:
    """Make a package source with a small library in two versions; apt is told not to ask for a signature."""
    source = folder / "extra"
    source.mkdir()
    for version in (OLD, NEW):
        made = folder / f"libcuda1-{version}"
        libraries = made / "usr/lib/aarch64-linux-gnu"
        libraries.mkdir(parents=True)
        (libraries / f"libcuda.so.{version}").write_text(version)
        (libraries / "libcuda.so.1").symlink_to(f"libcuda.so.{version}")
        (made / "DEBIAN").mkdir()
        (made / "DEBIAN/control").write_text(
            f"Package: libcuda1\nVersion: {version}\nArchitecture: arm64\nMaintainer: lab <lab@grapnel.invalid>\n"
            "Depends: libc6\nDescription: a part of a driver\n"
        )
        build = ["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", str(made), str(source)]
        subprocess.run(build, check=True, capture_output=True)
        [file] = source.glob(f"*_{version}_*.deb")
        control = subprocess.run(["dpkg-deb", "--field", str(file)], check=True, capture_output=True, text=True).stdout
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        with (source / "Packages").open("a") as index:
            index.write(f"{control}Filename: ./{file.name}\nSize: {file.stat().st_size}\nSHA256: {digest}\n\n")
    return source


def test_real_runtimes_give_a_container_the_libraries_of_an_allocated_gpu(machine: EmulatedMachine) -> None:
    """The hook's own test, run there: with the machine's runtimes, loader, device rules and system calls."""
    test = "tests/runtime_hook/engines/test_runtimes.py::test_an_allocated_gpu_brings_libraries_that_the_loader_finds"

    done = machine.run(
        [
            *("env", "-C", "/opt/hook", "PYTHONPATH=/opt/hook", "python3", "-B", "-P", "-m", "pytest", "-q", "-rA"),
            *("-p", "no:cacheprovider", "--import-mode=importlib", "--confcutdir=tests/runtime_hook", test),
        ],
        timeout_s=600,
        check=False,
    )

    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_the_daemons_program_starts_with_the_libraries_that_all_architectures_share(machine: EmulatedMachine) -> None:
    done = machine.run(["/usr/lib/grapnel/node/grapnel-node", "devices"], check=False)

    assert done.returncode == 1
    assert "driver" in done.stderr
    assert "Traceback" not in done.stderr
