"""Further answers of a hostile node: identity, sizes, encodings, statuses, and what makes a planner work for long."""

from __future__ import annotations

import json

from tests.attack.attacks import (
    CLIPBOARD,
    FACTS_OF_ANOTHER,
    HONEST,
    TEMPLATE,
    TITLE,
    Attack,
    Harm,
    Values,
)
from tests.attack.hostile_python import raw

MAIN = "/etc/containerd/config.toml"
SOURCE = "nvidia-graphics-drivers"
LARGE = 250_000  # characters: a file's content is told below 256 KiB


def _version(depends: tuple[str, ...] = (), version: str = "550.163.01-2") -> list[dict[str, object]]:
    return [{"version": version, "source": SOURCE, "depends": list(depends)}]


def _available(**packages: object) -> Values:
    driver = {name: _version() for name in ("libcuda1", "libnvidia-ml1", "nvidia-smi")}
    return ((("facts", "available"), driver | packages), (("facts", "packages"), {}))


def _chain(length: int) -> dict[str, object]:
    names = ["libcuda1", *(f"p{number}" for number in range(length))]
    return {name: _version((after,)) for name, after in zip(names, [*names[1:], "libcuda1"], strict=True)}


def _web(size: int) -> dict[str, object]:
    names = ["libcuda1", *(f"p{number}" for number in range(size))]
    return {name: _version(tuple(names)) for name in names}


def _main(content: str, mode: str = "0644") -> Values:
    state = {"mode": mode, "uid": 0, "gid": 0, "sha256": "0" * 64, "content": content}
    return ((("facts", "files", MAIN), state),)


def _fact(*path: str, value: object) -> Values:
    return ((("facts", *path), value),)


def _driver(**state: object) -> Values:
    return _fact("driver", value={"staged": [], "current": None, "run": None} | state)


def _mig(**gpu: object) -> Values:
    told = {"index": 0, "uuid": f"GPU-{'0' * 8}", "enabled": True, "devices": {"1g.10gb": 7}} | gpu
    return _fact("mig", value={"gpus": [told], "error": ""})


HOLDER = {"pid": 1, "command": "a", "devices": ["/dev/nvidia0"]}
BELIEVED: dict[str, Values] = {
    "the honest node's host name": _fact("node", "hostname", value=HONEST),
    "the honest node's machine id": _fact("node", "machine_id", value="0" * 32),
    "a host name of a megabyte": _fact("node", "hostname", value="h" * 1_000_000),
    "a host name of nothing": _fact("node", "hostname", value=""),
    "a host name that is a path": _fact("node", "hostname", value="../../../../etc/passwd"),
    "a host name of markup": _fact("node", "hostname", value="[bold red]honest[/] [link=file:///etc/passwd]x"),
    "packages that need each other": _available(**_chain(2)),
    "packages in a row of 20000": _available(**_chain(20_000)),
    "300 packages that need all of them": _available(**_web(300)),
    "a version of 100000 parts": _available(libcuda1=_version(version="1." * 100_000)),
    "50000 versions of a package": _available(libcuda1=_version() * 50_000),
    "30000 holders": _fact("device_holders", value=[HOLDER] * 30_000),
    "processes of negative ids": _fact("device_holders", value=[HOLDER | {"pid": -1}]),
    "30000 kernels": _fact("kernels", value=[{"release": f"6.12.{number}"} for number in range(30_000)]),
    "a kernel that is a path": _fact("kernels", value=[{"release": "../../etc/cron.d", "running": True}]),
    "a kernel of markup": _fact("kernels", value=[{"release": "[bold red]6.12[/]", "running": True}]),
    "a module's signer that writes to the terminal": _fact(
        "kernels",
        value=[{"release": "6.12", "running": True, "modules": [{"version": "1", "signer": f"{TITLE}{CLIPBOARD}"}]}],
    ),
    "a DKMS module that is an option": _fact("dkms", value=[{"module": "--all", "version": "1", "state": "installed"}]),
    "free space of less than nothing": _fact("disk_free", value={"/var": -1, "/usr": -1}),
    "free space of everything": _fact("disk_free", value={"/var": 2**63, "/usr": 2**63}),
    "a GPU cut by MIG whose name is a path": _mig(uuid="GPU-/../../etc/passwd"),
    "a GPU cut by MIG whose name ends a line": _mig(uuid=f"GPU-0\n{HONEST}: unchanged"),
    "a MIG profile of markup": _mig(devices={"[bold red]1g.10gb[/]": 1}),
    "a MIG profile that is a template": _mig(devices={TEMPLATE: 1}),
    "MIG devices of less than nothing": _mig(devices={"1g.10gb": -1}),
    "MIG profiles by the thousand": _mig(devices={f"1g.{number}gb": 1 for number in range(50_000)}),
    "the layout of a GPU that there is not": _mig(index=1023),
    "a reason for no MIG layout that writes to the terminal": _fact(
        "mig", value={"gpus": [], "error": f"{TITLE}{CLIPBOARD}"}
    ),
    "certificates by the thousand": _fact("secure_boot", value={"enabled": True, "enrolled": ["key"] * 50_000}),
    "an uninstaller that is a command line": _fact(
        "foreign_driver", value={"kind": "runfile", "version": "550.54.15", "uninstaller": "/bin/sh; touch @PWNED@"}
    ),
    "staged changes by the thousand": _driver(staged=[{"id": "051d04e32c9c", "complete": True}] * 50_000),
    "a staged change that is a path": _driver(staged=[{"id": "../../../etc", "complete": True}]),
    "a driver run that is a list": _driver(run=[1]),
    "a driver run of a state to come": _driver(run={"state": "perfect"}),
    "a driver run whose reason is an event": _driver(run={"state": "failed", "reason": FACTS_OF_ANOTHER}),
    "a driver run whose reason is a template": _driver(run={"state": "quarantined", "reason": TEMPLATE}),
    "a driver run that wants a reboot for a template": _driver(
        run={"state": "needs-reboot", "reboot_due": True, "reboot": TEMPLATE}
    ),
    "a driver run that was out of service for ever": _driver(run={"state": "done", "out_of_service_s": 1e300}),
    "a text of nothing but escapes": _main('version = 2\na = "' + "\\n" * (LARGE // 2 - 20) + '"\n'),
    "a comment of 250000 characters": _main("#" * LARGE),
    "a file with the set-user-id bit": _main("version = 2\n", "4777"),
    "a file of an impossible mode": _main("version = 2\n", "9999"),
    "a file of a mode in words": _main("version = 2\n", "u+s,o+w"),
    "a diff that is a number": ((("diff",), 5),),
    "a diff of 100000 parts": ((("diff",), [{"before": "a", "after": "b"}] * 100_000),),
    "an invocation that is a number": ((("invocation",), 5),),
    "a status that is a text": ((("rc",), "zero"),),
}
LABORIOUS = {
    "a line of a generated file without end": _main("# generated by" + " generated by" * 19_000),
    "a list of 100000 numbers": _main(f"version = 2\na = [{'1,' * 100_000}]\n"),
    "keys by the thousand": _main("version = 2\n" + "".join(f"[a{number}]\nb = 1\n" for number in range(15_000))),
}
FURTHER = (
    *(Attack(name=name, harm=Harm.PLAUSIBLE, values=values) for name, values in BELIEVED.items()),
    Attack(name="three megabytes of errors", harm=Harm.PLAUSIBLE, error="e" * 3_000_000),
    Attack(name="a status of 1 after a good answer", harm=Harm.PLAUSIBLE, status=1),
    Attack(name="a status of 255 after a good answer", harm=Harm.PLAUSIBLE, status=255),
    Attack(
        name="facts of a schema to come",
        harm=Harm.PLAUSIBLE,
        values=_fact("schema", value="grapnel.dev/facts/v9"),
        is_told=True,
    ),
    Attack(
        name="an answer in UTF-16",
        harm=Harm.BUG,
        instead=json.dumps({"changed": False, "facts": {}}).encode("utf-16"),
        is_told=True,
    ),
    Attack(name="an answer with a byte order mark", harm=Harm.BUG, before=b"\xff\xfe"),
    Attack(
        name="an answer cut off",
        harm=Harm.BUG,
        instead=b'{"changed": false, "facts": {"schema": "grapnel',
        is_told=True,
    ),
    Attack(name="a key of a megabyte", harm=Harm.PLAUSIBLE, values=((("k" * 1_000_000,), 1),), is_told=True),
    Attack(
        name="a number with 4000 digits",
        harm=Harm.PLAUSIBLE,
        values=_fact(
            "gpus", value=[{"address": "a", "vendor": "b", "device": "c", "class": "d", "numa_node": raw(b"9" * 4000)}]
        ),
        is_told=True,
    ),
    Attack(
        name="half a million small values", harm=Harm.PLAUSIBLE, values=_fact("more", value=[0] * 600_000), is_told=True
    ),
)
