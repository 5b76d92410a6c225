"""Which file of a folder counts, and what is remembered of the label."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from plugin.base.errors import ConfigError
from plugin.settings.by_label import choose
from plugin.settings.load import Invocation, Loaded, load, load_to_start
from plugin.settings.model import ByLabel
from plugin.settings.store import HeardLabel, read_heard_label, write_heard_label

RULES = ByLabel(Path("/f"), "nvidia.com/device-plugin.config")
EVERY = ("named", "single", "empty")


@pytest.mark.parametrize(
    ("rules", "names", "expected"),
    [
        pytest.param(replace(RULES, value="a"), "a b", ("a", f"label {RULES.label}"), id="the label"),
        pytest.param(
            replace(RULES, value="a", default="b"), "a b", ("a", f"label {RULES.label}"), id="before a default"
        ),
        pytest.param(replace(RULES, default="b", fallbacks=EVERY), "a b", ("b", "the default"), id="the default"),
        pytest.param(replace(RULES, value="", default="b"), "a b", ("b", "the default"), id="no label"),
        pytest.param(replace(RULES, fallbacks=EVERY), "a default", ("default", "fallback named"), id="a file's name"),
        pytest.param(replace(RULES, fallbacks=EVERY), "a", ("a", "fallback single"), id="the only file"),
        pytest.param(replace(RULES, fallbacks=("empty", "single")), "a", None, id="in their order"),
        pytest.param(replace(RULES, fallbacks=("named", "single")), "a b", None, id="no fallback that finds one"),
        pytest.param(RULES, "default", None, id="no fallback at all"),
    ],
)
def test_the_file_is_chosen(rules: ByLabel, names: str, expected: tuple[str, str] | None) -> None:
    assert choose(rules, names.split()) == expected


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        pytest.param(replace(RULES, value="c", default="a"), "/f/c: no such file, and label nvidia.com", id="a label"),
        pytest.param(replace(RULES, default="c"), "/f/c: no such file, and the default names it", id="a default"),
    ],
)
def test_a_name_without_a_file_is_refused_with_the_names_that_there_are(rules: ByLabel, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        choose(rules, ["b", "a"])
    assert raised.value.message.startswith(words)
    assert raised.value.hint == "there are: a, b"


class Node:
    """A node.json, and a folder with two files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "nvidia.d"
        self.state = folder / "state"
        self.path = folder / "node.json"
        self.folder.mkdir()
        (self.folder / "..data").mkdir()
        for name, replicas in (("two", 2), ("three", 3)):
            content = {"sharing": {"timeSlicing": {"resources": [{"name": "gpu", "replicas": replicas}]}}}
            (self.folder / name).write_text(json.dumps(content))
        self.configure()

    def configure(self, **keys: object) -> None:
        config = {
            "nvidiaConfigFile": None,
            "nvidiaConfigFolder": str(self.folder),
            "kubernetesApi": "/etc/kubernetes/kubelet.conf",
            "stateFolder": str(self.state),
        }
        self.path.write_text(json.dumps({**config, **keys}))

    def load(self, label: str | None = None, **variables: str) -> Loaded:
        return load(Invocation(self.path, {}, variables), label=label)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def replicas(loaded: Loaded) -> int:
    return sum(rule.replicas for rule in loaded.config.settings.shares)


def test_the_file_of_the_label_is_read_and_named_as_the_origin(node: Node) -> None:
    loaded = node.load("three")
    assert replicas(loaded) == 3
    assert loaded.config.nvidia_config == node.folder / "three"
    assert loaded.resolved.origins["nvidiaConfigFile"] == "label nvidia.com/device-plugin.config"


def test_what_was_heard_before_a_restart_counts(node: Node) -> None:
    assert replicas(node.load()) == 0
    write_heard_label(node.state, HeardLabel("two"))
    assert replicas(node.load()) == 2
    assert replicas(node.load("three")) == 3
    by_label = node.load().config.settings.by_label
    assert by_label is not None
    assert by_label.value == "two"


def test_without_the_api_there_is_no_label(node: Node) -> None:
    write_heard_label(node.state, HeardLabel("two"))
    node.configure(kubernetesApi="", nvidiaConfigDefault="three")
    assert replicas(node.load()) == 3
    assert replicas(node.load("two")) == 3


def test_nvidias_variables_come_before_node_json(node: Node, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "default").write_text("{}")
    node.configure(nvidiaConfigDefault="two")
    assert replicas(node.load("", DEFAULT_CONFIG="three")) == 3
    variables = {"CONFIG_FILE_SRCDIR": str(other), "DEFAULT_CONFIG": "default", "NODE_LABEL": "example.com/config"}
    loaded = node.load(None, **variables)
    assert (replicas(loaded), loaded.config.nvidia_config) == (0, other / "default")
    by_label = loaded.config.settings.by_label
    assert by_label is not None
    assert by_label.label == "example.com/config"


def test_a_folder_that_is_not_there_is_refused(node: Node, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="/nowhere: no such file or directory"):
        node.load(None, CONFIG_FILE_SRCDIR=f"{tmp_path}/nowhere")


@pytest.mark.parametrize("label", ["four", "broken"])
def test_a_start_does_without_a_file_that_cannot_be_used_any_more(node: Node, label: str) -> None:
    (node.folder / "broken").write_text('{"flagz": {}}')
    node.configure(nvidiaConfigDefault="two")
    write_heard_label(node.state, HeardLabel(label))
    with pytest.raises(ConfigError):
        node.load()
    loaded = load_to_start(Invocation(node.path, {}, {}))
    assert replicas(loaded) == 2
    assert any(str(node.folder / label) in note for note in loaded.resolved.notes)


def test_a_start_with_a_broken_node_json_fails(node: Node) -> None:
    node.path.write_text("{")
    with pytest.raises(ConfigError):
        load_to_start(Invocation(node.path, {}, {}))


@pytest.mark.parametrize("content", ["", "[]", '{"value": 3}', '{"value": "' + "a" * 64 + '"}'])
def test_what_cannot_be_read_was_not_heard(tmp_path: Path, content: str) -> None:
    (tmp_path / "config-label.json").write_text(content)
    assert read_heard_label(tmp_path) is None


def test_what_was_heard_is_read_again(tmp_path: Path) -> None:
    heard = HeardLabel("two", "four", "no such file")
    write_heard_label(tmp_path / "new", heard)
    assert read_heard_label(tmp_path / "new") == heard
