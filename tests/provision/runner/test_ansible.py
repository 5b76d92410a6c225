"""Real runs of real playbooks on this machine."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
import threading
import time
from pathlib import Path

import pytest

from provision.apply.runner import AnsibleRunner, NodeStats, RunStatus, TaskOutcome, TaskStarted
from tests.provision.runner.stage import CLOSED, LOCAL, Stage, done, finished

pytestmark = pytest.mark.functional


def test_events_of_a_run_are_typed_and_in_order(stage: Stage) -> None:
    request = stage.request(
        """
- name: make a change
  ansible.builtin.file: {path: "{{ folder }}/made", state: directory, mode: "0755"}
- name: change nothing
  ansible.builtin.file: {path: "{{ folder }}/made", state: directory, mode: "0755"}
- name: do not run
  ansible.builtin.command: "false"
  when: false
""",
        extra_vars={"folder": str(stage.folder)},
        keep=frozenset({"path"}),
    )
    events = stage.run(request)
    assert events[0] == TaskStarted("n1", "make a change")
    assert [(one.task, one.outcome) for one in done(events)] == [
        ("make a change", TaskOutcome.CHANGED),
        ("change nothing", TaskOutcome.OK),
        ("do not run", TaskOutcome.SKIPPED),
    ]
    assert done(events)[0].values == {"path": json.dumps(f"{stage.folder}/made").encode()}
    assert finished(events).status is RunStatus.SUCCESSFUL
    assert finished(events).stats == {"n1": NodeStats(ok=2, changed=1)}


def test_includes_checks_and_validation_of_arguments_are_no_steps(stage: Stage) -> None:
    role = stage.folder / "roles" / "small"
    for name, text in {
        "tasks/main.yml": "- name: work\n  ansible.builtin.command: 'true'\n",
        "meta/argument_specs.yml": "argument_specs: {main: {short_description: Small, options: {}}}\n",
    }.items():
        (role / name).parent.mkdir(parents=True)
        (role / name).write_text(text)
    request = stage.request(
        """
- name: check
  ansible.builtin.assert: {that: true}
- name: include
  ansible.builtin.include_role: {name: "{{ role }}"}
""",
        extra_vars={"role": str(role)},
    )
    events = stage.run(request)
    assert finished(events).status is RunStatus.SUCCESSFUL
    assert len(done(events)) > 2
    assert [one.task.rpartition(" : ")[2] for one in done(events) if one.is_step] == ["work"]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{{ lookup('pipe', 'id') }}", id="template"),
        pytest.param("{% for x in range(9) %}x{% endfor %}", id="statement"),
        pytest.param("\ta: 'b' # c\n\n  \u00e4\u2192 \\n \"\n", id="white space and quotes"),
        pytest.param("yes", id="word of YAML"),
        pytest.param("1.10", id="number"),
    ],
)
def test_text_of_variables_arrives_as_it_is(stage: Stage, text: str) -> None:
    show = "- ansible.builtin.debug: {msg: '{{ files[0].content }}'}"
    request = stage.request(show, extra_vars={"files": [{"content": text, "mode": 1}]}, keep=frozenset({"msg"}))
    (shown,) = done(stage.run(request))
    assert json.loads(shown.values["msg"]) == text


def test_check_mode_changes_nothing(stage: Stage) -> None:
    tasks = '- ansible.builtin.file: {path: "{{ folder }}/made", state: directory, mode: "0755"}'
    request = stage.request(tasks, extra_vars={"folder": str(stage.folder)}, check=True)
    assert [one.outcome for one in done(stage.run(request))] == [TaskOutcome.CHANGED]
    assert not (stage.folder / "made").exists()


def test_a_failed_task_carries_message_and_tail(stage: Stage) -> None:
    request = stage.request("- name: break\n  ansible.builtin.command: sh -c 'echo cannot go on >&2; exit 3'")
    events = stage.run(request)
    (broken,) = done(events)
    assert (broken.outcome, broken.message) == (TaskOutcome.FAILED, "non-zero return code")
    assert broken.tail == ("cannot go on",)
    assert finished(events).status is RunStatus.FAILED


def test_one_unreachable_node_does_not_keep_the_others(stage: Stage) -> None:
    request = stage.request("- ansible.builtin.ping:", inventory=f"n1 {LOCAL}\nn2 {CLOSED}\n")
    outcomes = {one.node: one for one in done(stage.run(request))}
    assert outcomes["n1"].outcome is TaskOutcome.OK
    assert outcomes["n2"].outcome is TaskOutcome.UNREACHABLE
    assert outcomes["n2"].message == "ssh: connect to host 127.0.0.1 port 1: Connection refused"


def test_a_limit_that_matches_nothing_is_seen(stage: Stage) -> None:
    end = finished(stage.run(stage.request("- ansible.builtin.ping:", nodes=("n9",))))
    assert end.status is RunStatus.NO_NODES
    assert "n9" in end.message or "no hosts" in end.message


def test_a_play_for_an_empty_group_is_seen(stage: Stage) -> None:
    request = stage.request("- ansible.builtin.ping:", hosts="gpu", inventory=f"n1 {LOCAL}\n[gpu]\n")
    assert finished(stage.run(request)).status is RunStatus.NO_NODES


@pytest.mark.parametrize(
    ("playbook", "inventory", "message"),
    [
        pytest.param("- hosts: all\n  tasks: 7\n", f"n1 {LOCAL}\n", "malformed block", id="playbook"),
        pytest.param("- hosts: all\n", "[broken\n", "No inventory was parsed", id="inventory"),
    ],
)
def test_what_ansible_cannot_read_is_an_error(stage: Stage, playbook: str, inventory: str, message: str) -> None:
    request = stage.request("- ansible.builtin.ping:", inventory=inventory)
    request.playbook.write_text(playbook)
    end = finished(stage.run(request))
    assert end.status is RunStatus.ERROR
    assert message in end.message


def test_a_reader_that_stands_still_does_not_hold_the_run_up(stage: Stage) -> None:
    made = stage.folder / "made"
    request = stage.request(
        "- ansible.builtin.ping:\n- ansible.builtin.file: {path: '{{ made }}', state: directory}",
        extra_vars={"made": str(made)},
    )
    events = AnsibleRunner().run(request, threading.Event())
    first = next(events)
    while not made.exists():
        time.sleep(0.1)
    assert finished([first, *events]).status is RunStatus.SUCCESSFUL


def processes_with(text: str) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in command and int(entry.name) != os.getpid():
            found.append(command)
    return found


def test_cancel_ends_every_process(stage: Stage) -> None:
    request = stage.request("- name: wait\n  ansible.builtin.command: sleep 98765.4")
    cancel = threading.Event()
    events = []
    for event in AnsibleRunner().run(request, cancel):
        events.append(event)
        if isinstance(event, TaskStarted):
            while not processes_with("sleep 98765.4"):
                time.sleep(0.1)
            cancel.set()
    assert finished(events).status is RunStatus.CANCELED
    assert processes_with("sleep 98765.4") == []
    assert processes_with(str(request.inventory[0])) == []


def test_a_reader_that_leaves_early_ends_the_run(stage: Stage) -> None:
    request = stage.request("- name: wait\n  ansible.builtin.command: sleep 98765.5")
    events = AnsibleRunner().run(request, threading.Event())
    assert next(events) == TaskStarted("n1", "wait")
    events.close()  # type: ignore[attr-defined]  # the iterator is a generator
    assert processes_with("sleep 98765.5") == []


def test_time_limit_ends_the_run(stage: Stage) -> None:
    request = stage.request("- ansible.builtin.command: sleep 98765.6", timeout_s=3)
    assert finished(stage.run(request)).status is RunStatus.TIMED_OUT
    assert processes_with("sleep 98765.6") == []


def test_nothing_is_left_of_a_run(
    stage: Stage, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    request = stage.request("- ansible.builtin.ping:")
    assert finished(stage.run(request)).status is RunStatus.SUCCESSFUL
    assert list(folder.iterdir()) == []


def test_kept_artifacts_hold_the_output_but_not_the_environment(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUD_TOKEN", "hunter2-of-the-operator")
    kept = stage.folder / "kept"
    request = stage.request("- ansible.builtin.ping:", nodes=("n1",))
    end = finished(stage.run(request, AnsibleRunner(keep=kept)))
    assert end.artifacts == kept / "play-n1"
    texts = {path.name: path.read_text() for path in kept.rglob("*") if path.is_file()}
    assert "PLAY [all]" in texts["output"].splitlines()[1]
    assert [json.loads(line)["event"] for line in texts["events.jsonl"].splitlines()] == ["started", "ok", "stats"]
    assert not any("hunter2-of-the-operator" in text for text in texts.values())
    assert finished(stage.run(request, AnsibleRunner(keep=kept))).artifacts == kept / "play-n1-2"
    assert {path.stat().st_mode & 0o777 for path in kept.rglob("*") if path.is_file()} == {0o600}


def test_of_many_runs_the_first_are_kept_and_those_that_fail(stage: Stage) -> None:
    runner = AnsibleRunner(keep=stage.folder / "kept", most=1)
    tasks = ["- ansible.builtin.ping:", "- ansible.builtin.ping:", "- ansible.builtin.fail:"]

    found = [finished(stage.run(stage.request(task), runner)).artifacts for task in tasks]
    assert [None if path is None else path.name for path in found] == ["play-nodes", None, "play-nodes-2"]


def test_a_place_that_cannot_be_written_is_no_failure_of_a_run(stage: Stage) -> None:
    (stage.folder / "kept").write_text("a file")
    end = finished(stage.run(stage.request("- ansible.builtin.ping:"), AnsibleRunner(keep=stage.folder / "kept")))
    assert (end.status, end.artifacts) == (RunStatus.SUCCESSFUL, None)


def test_host_key_checking_is_what_the_user_configured(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANSIBLE_HOST_KEY_CHECKING", raising=False)
    show = "- ansible.builtin.debug: {msg: \"{{ lookup('config', 'HOST_KEY_CHECKING') }}\"}"
    monkeypatch.chdir(stage.folder)
    (stage.folder / "ansible.cfg").write_text("[defaults]\nhost_key_checking = true\n")
    (shown,) = done(stage.run(stage.request(show, keep=frozenset({"msg"}))))
    assert shown.values == {"msg": b"true"}


def test_modules_of_the_collection_are_found(stage: Stage) -> None:
    collection = stage.folder / "playbooks"
    (collection / "plugins" / "modules").mkdir(parents=True)
    (collection / "galaxy.yml").write_text("namespace: grapnel\nname: node\nversion: 0.1.0\n")
    (collection / "plugins" / "modules" / "hello.py").write_text(
        "from ansible.module_utils.basic import AnsibleModule\n"
        "AnsibleModule({}).exit_json(changed=False, facts={'a': 'x' * 800_000})\n"
    )
    request = stage.request("- grapnel.node.hello:", keep=frozenset({"facts"}))
    (said,) = done(stage.run(request, AnsibleRunner(collection=collection)))
    assert len(json.loads(said.values["facts"])["a"]) == 800_000


def test_what_nodes_print_is_kept_as_text(stage: Stage) -> None:
    kept = stage.folder / "kept"
    request = stage.request("- ansible.builtin.fail: {msg: \"{{ 'a\\x1b]0;b' }}\"}", nodes=("n1",))
    stage.run(request, AnsibleRunner(keep=kept))
    output = (kept / "play-n1" / "output").read_text()
    assert "FAILED" in output
    assert all(line.isprintable() for line in output.splitlines())


def test_what_a_killed_run_has_left_is_removed_by_the_next(
    stage: Stage, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    for name in ("grapnel-run-killed", "grapnel-run-at-work", "grapnel-other"):
        (folder / name).mkdir()
        (folder / name / "lock").touch()
    with (folder / "grapnel-run-at-work" / "lock").open() as at_work:
        fcntl.flock(at_work, fcntl.LOCK_EX)
        stage.run(stage.request("- ansible.builtin.ping:"))
    assert sorted(path.name for path in folder.iterdir()) == ["grapnel-other", "grapnel-run-at-work"]
