"""What a person and a script see of the files that plans change."""

from __future__ import annotations

import io

from provision.apply.model import Assessment, Failure, Status
from provision.planning.node_plan import FileContent, NodePlan, Problem, Roles, RuntimeVariables
from provision.report.console import make_console
from provision.report.planned.diffs import diffs_document, render_diffs
from provision.report.terminal import show
from tests.provision.apply.fakes import facts_of

PATH = "/etc/containerd/conf.d/99-nvidia.toml"


def assessed(node: str, content: str, mode: str = "0644", *problems: Problem) -> Assessment:
    files = (FileContent(PATH, content, mode),)
    roles = Roles(runtime=RuntimeVariables(runtime_engine="x", runtime_service="x", runtime_files=files))
    return Assessment(facts_of(node), NodePlan(node=node, roles=roles, problems=problems))


def shown(**answers: Assessment | Failure) -> list[str]:
    out = io.StringIO()
    show(make_console(out, width=80), render_diffs(answers))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_equal_changes_are_shown_once() -> None:
    alike = {f"n{number}": assessed(f"n{number}", "a = 1\n") for number in range(1, 5)}

    assert shown(**alike, n9=assessed("n9", "a = 2\n")) == [
        f"new {PATH}  4 nodes: n1 to n4",
        "  @@ -0,0 +1 @@",
        "  +a = 1",
        "",
        f"new {PATH}  1 node: n9",
        "  @@ -0,0 +1 @@",
        "  +a = 2",
        "",
    ]


def test_secrets_are_not_shown() -> None:
    told = shown(n1=assessed("n1", "password = hunter2\n", "0600"))

    assert told == [f"new {PATH}  1 node: n1", "  not shown: not everybody on the node may read it", ""]
    (document,) = diffs_document({"n1": assessed("n1", "password = hunter2\n", "0600")})
    assert (document["withheld"], document["diff"]) == (True, [])


def test_plans_that_are_not_carried_out_change_no_file() -> None:
    refused = assessed("n1", "a\n", "0644", Problem(code="x", message="x", hint=""))
    assert shown(n1=refused, n2=Failure(Status.UNREACHABLE, "no route")) == [
        "no file would be written or taken away now",
        "",
    ]


def test_text_of_a_file_cannot_move_the_cursor() -> None:
    assert "  +\\x1b[2J" in shown(n1=assessed("n1", "\x1b[2J\n"))
