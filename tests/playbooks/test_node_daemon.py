"""The output of the node daemon's command, and the module's result."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.daemon.program import (
    LAUNCHER,
    Call,
    DaemonError,
    call_daemon,
    compare_again,
    failed_checks,
    inspect,
    is_installed,
    start_comparison,
    would_change,
)
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Finished
from ansible_collections.grapnel.node.plugins.module_utils.machine.units import RELEASED, SITE_MARK

from tests.playbooks.fakes import Kernel

if TYPE_CHECKING:
    from tests.playbooks.fakes import Machine

TRAIN = {"pid": 4711, "command": "train", "devices": ["/dev/nvidia0"], "unit": "job.scope", "pod_uid": None}
PERSISTENCE = {"pid": 640, "command": "nvidia-persiste", "devices": ["/dev/nvidiactl"], "unit": Kernel.SERVICE}
STILL = Clock(lambda: 0.0, lambda _seconds: None)


def call(verb: str, **more: object) -> Call:
    return Call(verb=verb, timeout_s=30, **more)  # type: ignore[arg-type]  # fields of the call, by name


def install(machine: Machine) -> None:
    machine.write(LAUNCHER, mode=0o755)


def says(machine: Machine, verb: str, answer: object, return_code: int = 0, stderr: str = "") -> None:
    machine.teach(f"{LAUNCHER} {verb}", json.dumps(answer), return_code=return_code, stderr=stderr)


def is_marked(machine: Machine) -> bool:
    return (machine.root / SITE_MARK.lstrip("/")).exists()


def test_a_free_node_is_released(machine: Machine) -> None:
    says(machine, "release", {"released": True, "holders": []})

    assert call_daemon(machine.host, call("release"), STILL) == {"released": True, "holders": []}
    assert machine.calls == [f"{LAUNCHER} release --json --timeout 30"]


def test_whoever_holds_a_gpu_is_in_the_result_and_no_failure(machine: Machine) -> None:
    says(machine, "release", {"released": True, "holders": [TRAIN]}, 3)

    assert call_daemon(machine.host, call("release"), STILL)["holders"] == [TRAIN]


def test_the_driver_s_own_services_are_no_holders(machine: Machine) -> None:
    says(machine, "release", {"released": True, "holders": [PERSISTENCE]}, 3)

    assert call_daemon(machine.host, call("release"), STILL)["holders"] == []


def test_holders_are_waited_for(machine: Machine) -> None:
    answers = iter([[TRAIN], [TRAIN, PERSISTENCE], [PERSISTENCE]])
    machine.teach(f"{LAUNCHER} release", lambda: Finished(3, json.dumps({"released": True, "holders": next(answers)})))
    moments = iter([0.0, 0.5, 1.0])

    result = call_daemon(machine.host, call("release", wait_s=60), Clock(lambda: next(moments), lambda _seconds: None))

    assert result["holders"] == []
    assert len(machine.calls) == 3


def test_waiting_ends(machine: Machine) -> None:
    says(machine, "release", {"released": True, "holders": [TRAIN]}, 3)
    moments = iter([0.0, 0.5, 1.5])

    result = call_daemon(machine.host, call("release", wait_s=1), Clock(lambda: next(moments), lambda _seconds: None))

    assert result["holders"] == [TRAIN]


def test_an_expectation_is_handed_over_as_a_file(machine: Machine) -> None:
    expect = {"schema": "grapnel.dev/expectation/v1alpha1", "driverVersion": "550.163.01"}
    seen: list[object] = []

    def read() -> Finished:
        with open(machine.calls[-1].split()[-1], encoding="utf-8") as file:
            seen.append(json.load(file))
        return Finished(0, '{"ok": true, "checks": []}')

    machine.teach(f"{LAUNCHER} verify --json --timeout 30 --expect", read)

    assert call_daemon(machine.host, call("verify", expect=expect), STILL)["ok"] is True
    assert seen == [expect]


def test_gpus_that_are_not_offered_are_a_failure_with_the_reason(machine: Machine) -> None:
    install(machine)
    says(machine, "offered", {"offered": 0, "problems": ["the kubelet has not taken the driver gpu.nvidia.com"]}, 3)

    with pytest.raises(DaemonError, match="has not taken the driver"):
        call_daemon(machine.host, call("offered"), STILL)
    assert not would_change(machine.host, call("offered"))


def test_failed_checks_are_named(machine: Machine) -> None:
    checks = [
        {"name": "module-version", "expected": "2", "found": "1", "ok": False, "message": "the loaded module is 1"},
        {"name": "gpu-count", "expected": 4, "found": 3, "ok": False},
        {"name": "nvml", "ok": True, "message": ""},
    ]
    says(machine, "verify", {"ok": False, "checks": checks}, 3)

    result = call_daemon(machine.host, call("verify", expect={}), STILL)

    assert failed_checks(result) == ["module-version: the loaded module is 1", "gpu-count: expected 4, found 3"]


FAILURES = {
    "an older daemon": (
        Finished(2, "", "usage: grapnel-node\ngrapnel-node: error: invalid choice: 'release'\n"),
        r"does not know `release` \(grapnel-node: error: invalid choice: 'release'\).*site.yml --tags node_daemon",
    ),
    "an expected failure": (
        Finished(1, "", "grapnel-node: released.json cannot be written: no space\nhint: nothing was released\n"),
        "grapnel-node release failed: .*no space; hint: nothing was released",
    ),
    "a bug": (Finished(70, "", "grapnel-node: bug: KeyError('x')\n"), r"bug: KeyError\('x'\)"),
    "no end": (Finished(124, "", "grapnel-node took longer than 60 s\n"), "took longer than 60 s"),
    "no JSON": (Finished(0, "released\n"), "grapnel-node release failed: released"),
    "JSON that is no object": (Finished(0, "[]"), "grapnel-node release failed"),
}


@pytest.mark.parametrize(("answer", "message"), FAILURES.values(), ids=FAILURES)
def test_a_failure_is_told_in_the_daemon_s_words(answer: Finished, message: str, machine: Machine) -> None:
    machine.teach(f"{LAUNCHER} release", lambda: answer)

    with pytest.raises(DaemonError, match=message):
        call_daemon(machine.host, call("release"), STILL)


def test_a_daemon_that_offers_nothing_says_why(machine: Machine) -> None:
    says(machine, "resume", {"offered": 0, "problems": ["no gpu answers"]}, 1)
    machine.write(SITE_MARK)

    with pytest.raises(DaemonError, match="grapnel-node resume failed: no gpu answers"):
        call_daemon(machine.host, call("resume"), STILL)

    assert is_marked(machine)


def test_who_took_the_gpus_out_of_service_gives_them_back(machine: Machine) -> None:
    install(machine)
    says(machine, "release", {"released": True, "holders": []})
    says(machine, "resume", {"offered": 4})

    call_daemon(machine.host, call("release", marked=True), STILL)
    machine.write(RELEASED)
    assert is_marked(machine)
    assert would_change(machine.host, call("resume", marked=True))
    result = call_daemon(machine.host, call("resume", marked=True), STILL)

    assert result == {"offered": 4}
    assert not is_marked(machine)


def test_what_somebody_else_took_out_of_service_stays_so(machine: Machine) -> None:
    install(machine)
    machine.write(RELEASED)
    says(machine, "release", {"released": True, "holders": []})

    call_daemon(machine.host, call("release", marked=True), STILL)
    assert not is_marked(machine)
    assert not would_change(machine.host, call("resume", marked=True))
    result = call_daemon(machine.host, call("resume", marked=True), STILL)

    assert result == {}
    assert not [line for line in machine.calls if " resume " in line]


def test_a_person_gives_back_whatever_it_was(machine: Machine) -> None:
    machine.write(RELEASED)
    machine.write(SITE_MARK)
    says(machine, "resume", {"offered": 4})

    assert call_daemon(machine.host, call("resume"), STILL) == {"offered": 4}
    assert not is_marked(machine)


@pytest.mark.parametrize(
    ("verb", "released", "changes"),
    [("release", False, True), ("release", True, False), ("resume", True, True), ("resume", False, False)],
)
def test_a_verb_changes_what_is_not_so_yet(verb: str, released: bool, changes: bool, machine: Machine) -> None:  # noqa: FBT001 - columns of the table
    install(machine)
    if released:
        machine.write(RELEASED)

    assert would_change(machine.host, call(verb)) is changes


def test_verifying_changes_nothing(machine: Machine) -> None:
    install(machine)

    assert not would_change(machine.host, call("verify"))


def test_a_node_without_a_daemon_offers_nothing_and_is_looked_at(machine: Machine) -> None:
    kernel = Kernel(machine, "535.309.01", None, service=True)
    kernel.add_process(4711, "train", "job.scope")

    released = inspect(machine.host, call("release"))
    right = inspect(machine.host, call("verify", expect={"driverVersion": "535.309.01"}))
    wrong = inspect(machine.host, call("verify", expect={"driverVersion": "550.163.01"}))

    assert not is_installed(machine.host)
    assert not would_change(machine.host, call("release"))
    assert released["released"] is True
    assert [holder["pid"] for holder in released["holders"]] == [4711]
    assert right["ok"] is True
    assert failed_checks(wrong) == ["module-version: the loaded kernel module is 535.309.01"]
    assert inspect(machine.host, call("resume")) == {"offered": 0}


def test_a_node_is_compared_beside_everything_else_where_it_has_what_compares(machine: Machine) -> None:
    start_comparison(machine.host)
    assert machine.calls == []

    machine.write("/etc/systemd/system/grapnel-drift.service")
    machine.teach("systemctl start --no-block grapnel-drift.service", return_code=1)  # it is nobody's failure
    start_comparison(machine.host)
    assert machine.calls == ["systemctl start --no-block grapnel-drift.service"]


@pytest.mark.parametrize(
    ("result", "is_compared"),
    [
        ('{"state": "drifted", "differences": []}', True),
        ('{"state": "as-declared"}', False),
        ('{"state": "not-compared"}', False),
        ("[]", False),
        ("{", False),
        (None, False),
    ],
)
def test_a_node_that_was_found_to_differ_is_compared_again_when_somebody_looks(
    result: str | None, machine: Machine, *, is_compared: bool
) -> None:
    machine.write("/etc/systemd/system/grapnel-drift.service")
    if result is not None:
        machine.write("/var/lib/grapnel/drift/result.json", result)
    machine.teach("systemctl start --no-block grapnel-drift.service")
    compare_again(machine.host)
    assert machine.calls == ["systemctl start --no-block grapnel-drift.service"] * is_compared
