"""Whatever stands in an engine's file: it is rendered for, or refused by file and key; nothing else ever happens."""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
import tomlkit
from hypothesis import example, given, settings
from hypothesis import strategies as st

from provision.planning.engines import crio, docker
from provision.planning.engines.containerd import configuration
from provision.planning.engines.containerd import imports as containerd
from provision.planning.engines.files.engine_file import MAX_CHARACTERS, is_match, is_same, shown, version_numbers
from provision.planning.render.errors import EngineConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")

CRI = '[plugins."io.containerd.grpc.v1.cri"'
RUNTIMES = f"{CRI}.containerd.runtimes"
SITE = "/etc/containerd/conf.d/10-site.toml"


def render_containerd(main: str, site: str = "", *, engine: str = "1.7.24") -> configuration.ContainerdFiles:
    return configuration.render_containerd(
        main=main, drop_ins={SITE: site}, handlers=("nvidia",), engine_version=engine
    )


def render_crio(main: str) -> str:
    return crio.render_crio(main=main, drop_ins={}, handlers=("nvidia",), engine_version="1.36.3")


def render_docker(main: str) -> str:
    return docker.render_docker(main=main, handlers=("nvidia",), engine_version="26.1.5")


CONTAINERD_ODD = {
    "imports = 5": "imports is a number, not a list of strings",
    "imports = [5]": "imports holds values that are not strings",
    'imports = "x"': "imports is a string, not a list of strings",
    "plugins = 1": "plugins is a number, not a table",
    "version = [2]": "version is a list, not a whole number",
    "version = true": "version is a boolean, not a whole number",
    "version = 2.0": "version is a number, not a whole number",
    "version = 2020-01-01": "version is a date or time, not a whole number",
    "version = 2\ndisabled_plugins = 7": "disabled_plugins is a number, not a list of strings",
    'version = 2\n[plugins]\n"io.containerd.grpc.v1.cri" = "x"': 'plugins."io.containerd.grpc.v1.cri" is a string',
    f"version = 2\n{CRI}]\ncontainerd = []": ".containerd is a list, not a table",
    f"version = 2\n{CRI}.containerd]\nruntimes = []": ".containerd.runtimes is a list, not a table",
    f"version = 2\n{CRI}.containerd]\ndefault_runtime_name = {{}}": "default_runtime_name is a table, not a string",
    f"version = 2\n{RUNTIMES}]\nrunc = 1": ".runtimes.runc is a number, not a table",
    f'version = 2\n{RUNTIMES}.runc]\noptions = "x"': ".runc.options is a string, not a table",
    f"version = 2\n{RUNTIMES}.runc]\ncontainer_annotations = 3": "container_annotations is a number, not a list",
    f"version = 2\n{RUNTIMES}.runc]\nruntime_type = {{x = 1}}": "runc.runtime_type is a table, not a string",
    f"version = 2\n{RUNTIMES}.runc]\nbase_runtime_spec = 1": "runc.base_runtime_spec is a number, not a string",
    f"version = 2\n{RUNTIMES}.runc.options]\nBinaryName = [1]": "runc.options.BinaryName is a list, not a string",
    ".".join("a" * 100) + " = 1": "a.a.a.a",
    ".".join("a" * 1000) + " = 1": "line 1 has more than 500 dots in it",
    "a = " + "[" * 5000 + "]" * 5000: "nested more than 32 levels deep",
    "a = " + "[" * 40 + "]" * 40: "nested more than 32 levels deep",
    "a = " + "9" * 5000: "exceeds the limit",
    "#" * (MAX_CHARACTERS + 1): f"has more than {MAX_CHARACTERS} characters",
}


@pytest.mark.slow
@pytest.mark.parametrize(("main", "words"), CONTAINERD_ODD.items(), ids=[text[-40:] for text in CONTAINERD_ODD])
@pytest.mark.parametrize("where", [containerd.MAIN_PATH, SITE])
def test_an_odd_file_of_containerd_is_refused_by_file_and_key(main: str, words: str, where: str) -> None:
    importing = 'version = 2\nimports = ["/etc/containerd/conf.d/*.toml"]\n'

    with pytest.raises(EngineConfigError) as refused:
        render_containerd(*([main] if where == containerd.MAIN_PATH else [importing, main]))

    assert refused.value.message.startswith(where)
    assert words in refused.value.message
    assert refused.value.hint


CRIO_ODD = {
    "crio = 1": "crio is a number, not a table",
    "crio.runtime = []": "crio.runtime is a list, not a table",
    "crio.runtime.hooks_dir = 5": "crio.runtime.hooks_dir is a number, not a list of strings",
    "crio.runtime.hooks_dir = [[]]": "crio.runtime.hooks_dir holds values that are not strings",
    "crio.runtime.default_runtime = []": "crio.runtime.default_runtime is a list, not a string",
    "crio.runtime.runtimes = 1": "crio.runtime.runtimes is a number, not a table",
    "crio.runtime.runtimes.crun = 1": "crio.runtime.runtimes.crun is a number, not a table",
    "crio.runtime.runtimes.crun.runtime_path = {}": "crun.runtime_path is a table, not a string",
    "crio.runtime.runtimes.crun.runtime_type = 1": "crun.runtime_type is a number, not a string",
    "crio.runtime.runtimes.crun.default_annotations = 1": "crun.default_annotations is a number, not a table",
    "crio.runtime.runtimes.crun.default_annotations.a = 1": "default_annotations.a is a number, not a string",
}


@pytest.mark.parametrize(("main", "words"), CRIO_ODD.items(), ids=CRIO_ODD)
def test_an_odd_file_of_crio_is_refused_by_file_and_key(main: str, words: str) -> None:
    with pytest.raises(EngineConfigError) as refused:
        render_crio(main)

    assert refused.value.message.startswith(f"{crio.MAIN_PATH}: ")
    assert words in refused.value.message


DOCKER_ODD = {
    "1": "is not a JSON object",
    '{"runtimes": 5}': "runtimes is a number, not an object",
    '{"runtimes": {"x": []}}': "runtimes.x is a list, not an object",
    '{"runtimes": {"nvidia": {"path": 1}}}': "runtimes.nvidia.path is a number, not a string",
    '{"features": []}': "features is a list, not an object",
    "[" * 100_000: "",
    '{"a": ' + "[" * 50 + "]" * 50 + "}": "nested more than 32 levels deep",
    '{"a": NaN}': "not JSON: it holds NaN or infinity",
    '{"a": 1e999}': "not JSON: a number is too large",
    '{"a": ' + "9" * 5000 + "}": "not JSON: exceeds the limit",
}


@pytest.mark.parametrize(("main", "words"), DOCKER_ODD.items(), ids=[text[:40] for text in DOCKER_ODD])
def test_an_odd_file_of_docker_is_refused_by_file_and_key(main: str, words: str) -> None:
    with pytest.raises(EngineConfigError) as refused:
        render_docker(main)

    assert refused.value.message.startswith(docker.MAIN_PATH)
    assert words in refused.value.message


def test_half_a_character_is_written_as_it_was() -> None:
    assert json.loads(render_docker('{"a": "\\ud800"}'))["a"] == "\ud800"


@pytest.mark.parametrize("render", [render_containerd, render_crio, render_docker])
def test_what_a_file_says_is_not_repeated_in_a_message(render: Callable[[str], object]) -> None:
    for text in ('password = "hunter2" "hunter2"', '{"password": "hunter2" "hunter2"}', "'hunter2' = 1\n'hunter2' = 2"):
        with pytest.raises(EngineConfigError) as refused:
            render(text)
        assert "hunter2" not in refused.value.message


BOM = "\ufeff"


def test_a_byte_order_mark_is_taken_and_kept() -> None:
    main = f"{BOM}# mine\nversion = 2\n"
    files = render_containerd(main)

    assert files.main.startswith(f"{BOM}# mine\nversion = 2\nimports = ")
    assert files.main.count(BOM) == 1
    assert BOM not in files.drop_in
    assert render_containerd(files.main).main == files.main
    assert is_same("a.toml", main, "version = 2")
    assert render_docker(f'{BOM}{{"debug": true}}').startswith(f'{BOM}{{\n  "debug": true')
    assert BOM not in render_crio(f'{BOM}crio.runtime.hooks_dir = ["/a"]')


WORDS = """version imports plugins disabled_plugins io.containerd.grpc.v1.cri containerd runtimes runc options
BinaryName default_runtime_name container_annotations base_runtime_spec runtime_type crio runtime hooks_dir
default_runtime default_annotations crun runtime_path features"""
KEYS = st.sampled_from(WORDS.split())
LEAVES = (
    st.sampled_from(["runc", "crun", "/etc/containerd/conf.d/*.toml", "/etc/containerd/config.toml", "*", "", "nvidia"])
    | st.sampled_from([0, 1, 2, 3, 4, -1, 2**70, 1.5])
    | st.booleans()
    | st.text(max_size=8)
)
TREES = st.dictionaries(
    KEYS | st.text(min_size=1, max_size=4),
    st.recursive(
        LEAVES,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=3), inner, max_size=4),
        max_leaves=12,
    ),
    max_size=5,
)
PLAUSIBLE = st.fixed_dictionaries(
    {"version": st.sampled_from([2, 3])},
    optional={
        "imports": st.lists(LEAVES, max_size=2),
        "plugins": st.fixed_dictionaries(
            {"io.containerd.grpc.v1.cri": TREES | st.fixed_dictionaries({"containerd": TREES})}
        ),
    },
)


def outcome(render: Callable[[], Result]) -> tuple[Result | None, str]:
    """Return what was rendered, or the message of the refusal; anything else is the test's failure."""
    try:
        return render(), ""
    except EngineConfigError as error:
        return None, error.message


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(main=TREES | PLAUSIBLE, site=TREES | PLAUSIBLE, engine=st.sampled_from(["1.6.20", "1.7.24", "2.2.1", "", "²"]))
@example(main={"version": 2, "imports": [""]}, site={}, engine="1.7.24")
def test_any_tree_is_rendered_for_containerd_or_refused(
    main: dict[str, Any], site: dict[str, Any], engine: str
) -> None:
    rendered, refusal = outcome(lambda: render_containerd(tomlkit.dumps(main), tomlkit.dumps(site), engine=engine))

    assert refusal.isprintable()
    if rendered is not None:
        ours = {"imports": [], "version": 0}
        assert {**tomllib.loads(rendered.main), **ours} == {**main, **ours}
        assert "nvidia" in str(tomllib.loads(rendered.drop_in))


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(main=TREES | st.fixed_dictionaries({"crio": st.fixed_dictionaries({"runtime": TREES})}))
def test_any_tree_is_rendered_for_crio_or_refused(main: dict[str, Any]) -> None:
    rendered, refusal = outcome(lambda: render_crio(tomlkit.dumps(main)))

    assert refusal.isprintable()
    assert rendered is None or "nvidia" in tomllib.loads(rendered)["crio"]["runtime"]["runtimes"]


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(main=TREES)
def test_any_tree_is_rendered_for_docker_or_refused(main: dict[str, Any]) -> None:
    rendered, refusal = outcome(lambda: render_docker(json.dumps(main)))

    assert refusal.isprintable()
    if rendered is not None:
        ours = {"runtimes": {}, "features": {}}
        assert {**json.loads(rendered), **ours} == {**main, **ours}


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(text=st.text(alphabet=st.sampled_from("[]{}=.,\"'\\#\n ab1{%"), max_size=60))
def test_any_text_is_refused_or_rendered(text: str) -> None:
    for render in (render_containerd, render_crio, render_docker):
        _, refusal = outcome(lambda render=render: render(text))
        assert refusal.isprintable()


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("1.7.24", (1, 7, 24)), ("2.2.1-rc.1", (2, 2, 1)), ("", ()), ("²", ()), ("1" * 5000, (111111,)), ("v1", ())],
)
def test_a_version_is_the_numbers_that_it_begins_with(version: str, numbers: tuple[int, ...]) -> None:
    assert version_numbers(version) == numbers


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("conf.d/*.toml", True),
        ("/etc/containerd/./conf.d/99-nvidia.toml", True),
        ("/etc/containerd/*/*.toml", True),
        ("/etc/containerd/*.toml", False),
        ("/etc/containerd/conf.d/99-nvidia.tom[l]", False),
        ("", False),
        ("*" * 2000 + "x", False),
        ("/etc/containerd/conf.d/" + "*9" * 200, False),
    ],
)
def test_an_import_is_read_as_containerd_reads_it(pattern: str, *, matches: bool) -> None:
    assert is_match(containerd.DROP_IN_PATH, pattern, "/etc/containerd") is matches


def test_a_name_of_a_node_cannot_steer_a_terminal() -> None:
    assert shown("/etc/\x1b[2Jx\n") == "/etc/\\x1b[2Jx\\n"
    assert len(shown("x" * 5000)) <= 120
