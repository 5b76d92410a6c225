"""What `grapnel doctor` shows of a fleet."""

from __future__ import annotations

import io
import json

import pytest

from provision.apply.model import Failure, Status
from provision.declaration.fleet.series import in_series
from provision.planning.driver.preflight import Finding, Severity
from provision.report.console import make_console
from provision.report.doctor import Diagnoses, doctor_document, render_diagnoses
from provision.report.terminal import show

HEADERS = Finding(
    code="kernel-headers-missing",
    severity=Severity.ERROR,
    message="headers are missing for 6.12",
    remedy="install them",
)
REBOOT = Finding(code="other-kernel-next-boot", severity=Severity.WARNING, message="6.1 runs", remedy="reboot")
LOST = Failure(Status.UNREACHABLE, "no route to host")


def shown(diagnoses: Diagnoses, width: int = 80) -> list[str]:
    stream = io.StringIO()
    show(make_console(stream, width=width), render_diagnoses(diagnoses))
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def locked(pid: int) -> Finding:
    return Finding(code="locked", severity=Severity.ERROR, message=f"in use by {pid}", remedy="wait")


def test_a_thousand_equal_nodes_read_like_one() -> None:
    assert shown({f"n{number:03}": (HEADERS,) for number in range(1000)}) == [
        "error: kernel-headers-missing  1000 nodes",
        "  headers are missing for 6.12",
        "    n000 to n999",
        "  remedy: install them",
        "",
        "1000 nodes: 1000 with errors",
    ]


def test_errors_come_before_warnings_however_few_they_are() -> None:
    lines = shown({"a": (REBOOT,), "b": (REBOOT, HEADERS), "c": (REBOOT,), "d": ()})

    assert lines == [
        "error: kernel-headers-missing  1 node",
        "  headers are missing for 6.12",
        "    b",
        "  remedy: install them",
        "",
        "warning: other-kernel-next-boot  3 nodes",
        "  6.1 runs",
        "    a, b, c",
        "  remedy: reboot",
        "",
        "4 nodes: 1 with errors, 2 with warnings, 1 without findings",
    ]


def test_nodes_that_all_say_something_else_do_not_fill_the_screen() -> None:
    lines = shown({f"n{number}": (locked(number),) for number in range(500)})

    assert "  and the same with other words on 492 nodes" in lines
    assert len(lines) < 25


def test_nodes_without_facts_are_told_by_their_reason() -> None:
    lines = shown({"n1": LOST, "n2": (), "n3": LOST})

    assert lines == ["unreachable: n1, n3", "  no route to host", "", "3 nodes: 1 without findings, 2 without facts"]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param(["n9", "n10", "n11"], ["n9 to n11"], id="numbers that grow a digit"),
        pytest.param(["n08", "n09", "n10"], ["n08 to n10"], id="numbers of one width"),
        pytest.param(["n1", "n2"], ["n1", "n2"], id="two are no row"),
        pytest.param(["n1", "n2", "n4", "n5", "n6"], ["n1", "n2", "n4 to n6"], id="a gap"),
        pytest.param(["r2-n1", "r1-n1", "r1-n2", "r1-n3"], ["r1-n1 to r1-n3", "r2-n1"], id="racks"),
        pytest.param(["n1.example", "n2.example", "n3.example"], ["n1.example to n3.example"], id="a domain behind"),
        pytest.param(["n1", "n02", "n03"], ["n1", "n02", "n03"], id="another way to count"),
        pytest.param(["b", "a"], ["a", "b"], id="no numbers"),
    ],
)
def test_names_in_a_row_are_shown_as_one(nodes: list[str], expected: list[str]) -> None:
    assert in_series(nodes) == expected


def test_nothing_that_a_node_says_reaches_the_terminal_as_it_is() -> None:
    evil = Finding(code="gpu-in-use", severity=Severity.INFO, message="open in \x1b[2Jx\nerror: fake", remedy="")

    assert not any(line.startswith("error: fake") or "\x1b" in line for line in shown({"n1": (evil,)}))


def test_the_document_has_every_node_of_every_case() -> None:
    document = json.loads(doctor_document({"n1": (HEADERS,), "n2": (HEADERS, REBOOT), "n3": LOST}))

    assert document["schema"] == "grapnel.dev/doctor/v1alpha1"
    assert document["nodes"] == ["n1", "n2", "n3"]
    assert [(one["code"], one["severity"], one["cases"]) for one in document["findings"]] == [
        ("kernel-headers-missing", "error", [{"message": "headers are missing for 6.12", "nodes": ["n1", "n2"]}]),
        ("other-kernel-next-boot", "warning", [{"message": "6.1 runs", "nodes": ["n2"]}]),
    ]
    assert [(one["node"], one["status"]) for one in document["failures"]] == [("n3", "unreachable")]
