from __future__ import annotations

from pathlib import Path

from provision.apply.runner.environment import build_environment, forced_by_ansible_runner

BIN = Path("/venv/bin")


def test_ansible_is_found_without_an_activated_environment() -> None:
    built = build_environment({"PATH": "/usr/bin"}, {}, marker="m", executables=BIN)
    assert built["PATH"] == "/venv/bin:/usr/bin"


def test_defaults_give_way_to_the_user() -> None:
    assert build_environment({}, {}, marker="m", executables=BIN)["ANSIBLE_PIPELINING"] == "true"
    assert "ANSIBLE_PIPELINING" not in build_environment({"ANSIBLE_PIPELINING": "0"}, {}, marker="m", executables=BIN)


def test_what_events_depend_on_does_not_give_way() -> None:
    built = build_environment({"ANSIBLE_STDOUT_CALLBACK": "json"}, {}, marker="m", executables=BIN)
    assert built["ANSIBLE_STDOUT_CALLBACK"] == "grapnel_events"


def test_connection_settings_of_the_user_are_not_touched() -> None:
    built = build_environment({}, {}, marker="m", executables=BIN)
    assert not {"ANSIBLE_SSH_ARGS", "ANSIBLE_COLLECTIONS_PATH", "ANSIBLE_HOST_KEY_CHECKING"} & set(built)
    assert forced_by_ansible_runner({}) == ("ANSIBLE_HOST_KEY_CHECKING",)
    assert forced_by_ansible_runner({"ANSIBLE_HOST_KEY_CHECKING": "false"}) == ()
