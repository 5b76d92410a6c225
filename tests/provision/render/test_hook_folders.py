"""Hook files of others: one that starts NVIDIA's hook is told, by what it starts and not by its name."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.planning.engines.files.hook import DEFAULT_FOLDER, require_no_injector
from provision.planning.engines.files.hook import FOLDER as OVERRIDE_FOLDER
from provision.planning.render.errors import EngineConfigError

FOLDERS = (DEFAULT_FOLDER, OVERRIDE_FOLDER)
# As nvidia-ctk writes it.
NVIDIAS = {
    "version": "1.0.0",
    "hook": {
        "path": "/usr/bin/nvidia-container-runtime-hook",
        "args": ["nvidia-container-runtime-hook", "prestart"],
        "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
    },
    "when": {"always": True, "commands": [".*"]},
    "stages": ["prestart"],
}
SOMEBODYS = {"version": "1.0.0", "hook": {"path": "/usr/libexec/oci/hooks.d/oci-systemd-hook"}, "stages": ["prestart"]}


def check(files: dict[str, str | None], *, folders: tuple[str, ...] = FOLDERS) -> None:
    require_no_injector(files, folders, engine="CRI-O")


def starting(**hook: object) -> str:
    return json.dumps({**SOMEBODYS, "hook": hook})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("oci-nvidia-hook.json", json.dumps(NVIDIAS), id="as nvidia-ctk writes it"),
        pytest.param("10-gpu.json", json.dumps(NVIDIAS), id="under another name"),
        pytest.param("a.json", starting(path="/usr/bin/nvidia-container-toolkit"), id="by its older name"),
        pytest.param("a.json", starting(path="/usr/local/nvidia/toolkit/hook"), id="of the operator's toolkit"),
        pytest.param("a.json", starting(path="/bin/sh", args=["sh", "-c", "nvidia-ctk x"]), id="by a shell"),
        pytest.param("a.json", '{"Hook": {"PATH": "/usr/bin/NVIDIA-hook"}}', id="keys in any case"),
        pytest.param(
            "a.json", '{"hook": "/usr/bin/nvidia-container-runtime-hook", "stages": ["prestart"]}', id="schema 0.1.0"
        ),
        pytest.param("a.json", '{"hook": "/bin/sh", "arguments": ["nvidia-ctk"]}', id="arguments of schema 0.1.0"),
        pytest.param("oci-nvidia-hook.json", None, id="no text, by its name"),
        pytest.param("oci-nvidia-hook.json", "{", id="no JSON, by its name"),
        pytest.param("oci-nvidia-hook.json", "[" * 100, id="nested too deep, by its name"),
        pytest.param("oci-nvidia-hook.json", f'"{"x" * 100_000}"', id="too large, by its name"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("folder", FOLDERS)
def test_a_file_that_starts_nvidias_hook_is_refused_by_name_with_its_remedy(
    folder: str, name: str, text: str | None
) -> None:
    with pytest.raises(EngineConfigError) as caught:
        check({f"{folder}/{name}": text})

    assert caught.value.message == (
        f"{folder}/{name}: starts NVIDIA's hook for containers of CRI-O, which gives a GPU to any that asks in its "
        "environment"
    )
    assert caught.value.hint == "remove it, and the toolkit that brought it: docs/migrate.md says how"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        pytest.param(f"{DEFAULT_FOLDER}/a.json", json.dumps(SOMEBODYS), id="somebody else's hook"),
        pytest.param(f"{DEFAULT_FOLDER}/oci-nvidia-hook.json", json.dumps(SOMEBODYS), id="NVIDIA's name alone"),
        pytest.param(f"{DEFAULT_FOLDER}/a.json", starting(path="/x", env=["A=/usr/local/nvidia"]), id="an environment"),
        pytest.param(f"{DEFAULT_FOLDER}/oci-nvidia-hook.json.bak", json.dumps(NVIDIAS), id="a name that is not read"),
        pytest.param(f"{DEFAULT_FOLDER}/old/a.json", json.dumps(NVIDIAS), id="a folder below"),
        pytest.param("/srv/hooks/a.json", json.dumps(NVIDIAS), id="a folder that is not read"),
        pytest.param(f"{DEFAULT_FOLDER}/a.json", None, id="no text"),
        pytest.param(f"{DEFAULT_FOLDER}/a.json", '{"hook": [{"path": 3}], "arguments": {"a": 1}}', id="of other types"),
    ],
)  # fmt: skip
def test_any_other_file_is_nobodys_business(path: str, text: str | None) -> None:
    check({path: text})


def test_folders_are_compared_as_paths() -> None:
    with pytest.raises(EngineConfigError, match=r"/srv/hooks/a\.json"):
        check({"/srv/hooks/a.json": json.dumps(NVIDIAS)}, folders=("/srv/./hooks/",))


def test_of_many_files_the_first_are_named_and_fit_to_be_shown() -> None:
    with pytest.raises(EngineConfigError) as caught:
        check({f"{DEFAULT_FOLDER}/{number}\x1b{'x' * 400}.json": json.dumps(NVIDIAS) for number in range(9)})

    assert caught.value.message.isprintable()
    assert " and 6 more: starts NVIDIA's hook" in caught.value.message
    assert len(caught.value.message) < 600


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.just("nvidia"),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["hook", "path", "args", "arguments", "x"]), inner, max_size=4)
        ),
    )
)
def test_whatever_a_node_says_is_in_such_a_file_the_answer_is_yes_or_no(document: object) -> None:
    with suppress(EngineConfigError):
        check({f"{DEFAULT_FOLDER}/a.json": json.dumps(document)})
