"""How files change by a plan: as a diff, and never what not everybody may read."""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from provision.declaration.fleet.facts.node import FileState
from provision.planning.node_plan import (
    FileContent,
    NodeDaemonVariables,
    NodePlan,
    Roles,
    RuntimeVariables,
    TuningVariables,
)
from provision.planning.planner.file_changes import MASK, MAX_LINES, SHOWN, FileChange, file_changes
from tests.provision.samples import configured, make_facts, plan

PATH = "/etc/containerd/conf.d/99-nvidia.toml"


def state(content: str | None, mode: str = "0644") -> FileState:
    return FileState(
        mode=mode, uid=0, gid=0, sha256=hashlib.sha256((content or "").encode()).hexdigest(), content=content
    )


def changes(before: FileState | None, after: FileContent | None) -> tuple[FileChange, ...]:
    facts = msgspec.structs.replace(make_facts(), files={PATH: before})
    if after is None:
        roles = Roles(node_daemon=NodeDaemonVariables(node_daemon_enabled=True, node_daemon_absent=(PATH,)))
    else:
        files = (FileContent(after.path, after.content, after.mode),)
        roles = Roles(runtime=RuntimeVariables(runtime_engine="x", runtime_service="x", runtime_files=files))
    return file_changes(NodePlan(node="n1", roles=roles), facts)


def test_a_new_file_is_all_additions() -> None:
    (change,) = changes(None, FileContent(PATH, "version = 2\nroot = 1\n"))

    assert (change.mode_before, change.mode) == (None, "0644")
    assert change.diff == ("--- /dev/null", f"+++ b{PATH}", "@@ -0,0 +1,2 @@", "+version = 2", "+root = 1")


def test_a_line_that_changes_and_one_that_is_taken_away() -> None:
    (change,) = changes(state("a\nb\nc\n"), FileContent(PATH, "a\nB\nc\n"))
    assert change.diff[2:] == ("@@ -1,3 +1,3 @@", " a", "-b", "+B", " c")

    (change,) = changes(state("a\n"), None)
    assert (change.mode, change.diff[1:]) == (None, ("+++ /dev/null", "@@ -1 +0,0 @@", "-a"))


def test_a_mode_alone_is_a_change_without_a_diff() -> None:
    (change,) = changes(state("a\n", "0666"), FileContent(PATH, "a\n"))
    assert (change.mode_before, change.mode, change.diff) == ("0666", "0644", ())


def test_what_stays_as_it_is_is_no_change() -> None:
    assert changes(state("a\n"), FileContent(PATH, "a\n")) == ()
    assert changes(None, None) == ()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(state("password = 1\n", "0600"), FileContent(PATH, "x\n"), id="it is secret now"),
        pytest.param(state("x\n"), FileContent(PATH, "password = 1\n", "0640"), id="it becomes secret"),
        pytest.param(None, FileContent(PATH, "password = 1\n", "0600"), id="it is new"),
        pytest.param(state("password = 1\n", "0600"), None, id="it is taken away"),
    ],
)
def test_what_not_everybody_may_read_is_withheld(before: FileState | None, after: FileContent | None) -> None:
    (change,) = changes(before, after)
    assert (change.withheld, change.diff) == (True, ())
    assert change.reason == "not everybody on the node may read it"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ('password = "hunter2"', f"password = {MASK}"),
        ('  "identitytoken": "abc",', f'  "identitytoken": {MASK}'),
        ("auth: Zm9v", f"auth: {MASK}"),
        ("http_proxy=http://ada:hunter2@proxy:3128", f"http_proxy=http://{MASK}@proxy:3128"),
        ("URIs: https://ada:x@mirror/apt", f"URIs: https://{MASK}@mirror/apt"),
        ("author = me", f"author = {MASK}"),  # one too many is better than one too few
        ('[plugins."io.containerd.grpc.v1.cri".registry.configs.x.auth]',) * 2,
        ("runtime_type = 1",) * 2,
    ],
)
def test_passwords_are_masked_in_files_that_everybody_may_read(line: str, shown: str) -> None:
    (change,) = changes(None, FileContent(PATH, f"{line}\n"))
    assert change.diff[-1] == f"+{shown}"

    (change,) = changes(state(f"{line}\n"), FileContent(PATH, f"{line}\nmore\n"))
    assert change.diff[-2] == f" {shown}", "also where the line stays"


def test_very_long_files_and_diffs_are_bounded() -> None:
    (change,) = changes(None, FileContent(PATH, "x\n" * (MAX_LINES + 1)))
    assert (change.diff, change.reason) == ((), f"it has more than {MAX_LINES} lines")

    (change,) = changes(None, FileContent(PATH, "x\n" * (SHOWN + 1)))
    assert (len(change.diff), change.reason) == (SHOWN, "4 more lines")


def test_what_is_no_text_now_is_not_compared() -> None:
    (change,) = changes(state(None), FileContent(PATH, "a\n"))
    assert (change.withheld, change.reason) == (True, "what it has now is too large, or no text")


def test_files_of_the_kernel_settings_are_among_them() -> None:
    gone = "/etc/sysctl.d/90-gone.conf"
    facts = msgspec.structs.replace(make_facts(), files={PATH: None, gone: state("a = 1\n")})
    roles = Roles(tuning=TuningVariables(tuning_files=(FileContent(PATH, "a\n"),), tuning_absent=(gone,)))

    made = file_changes(NodePlan(node="n1", roles=roles), facts)
    assert {change.path: change.diff[-1] for change in made} == {PATH: "+a", gone: "-a = 1"}


def test_a_real_plan_has_all_its_files() -> None:
    facts = make_facts()
    made = file_changes(plan(facts), facts)

    assert {"/etc/grapnel/hook.json"} <= {change.path for change in made}
    assert list(made) == sorted(made, key=lambda change: change.path)
    assert file_changes(plan(configured()), configured()) == ()
