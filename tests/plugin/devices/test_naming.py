from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from jsonschema import Draft202012Validator

from plugin.base.errors import ConfigError
from plugin.devices.naming import NamePattern, complete_resource_name, explain_change, find_pattern
from plugin.settings.explain import notes_on_patterns
from plugin.settings.node_config import parse_config
from plugin.settings.nvidia.document import Document, parse_document

if TYPE_CHECKING:
    from collections.abc import Callable

CONTRACTS = Path(__file__).parents[3] / "docs/contracts"
MODEL = "NVIDIA A100-SXM4-80GB"


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        pytest.param("*", MODEL, True, id="anything"),
        pytest.param("NVIDIA*80GB", MODEL, True, id="both ends"),
        pytest.param(MODEL, MODEL, True, id="the whole name"),
        pytest.param("*A100*", MODEL, True, id="a part of the name"),
        pytest.param("A100", MODEL, False, id="a part of the name without wildcards"),
        pytest.param("NVIDIA A10", MODEL, False, id="the beginning of another product's name"),
        pytest.param("A100*80GB", MODEL, False, id="not from the beginning on"),
        pytest.param("*A100*A100*", MODEL, False, id="a part that is there once"),
        pytest.param("*a100*", MODEL, False, id="other case"),
        pytest.param("*A100.SXM4*", MODEL, False, id="a dot is a dot"),
        pytest.param("*(A100*", MODEL, False, id="brackets are brackets"),
        pytest.param("1g.24gb", "1g.24gb", True, id="a profile"),
        pytest.param("1g.24gb", "1g.24gb-me", False, id="a profile without media engines"),
        pytest.param("1g.24gb", "1g.24gb+me.all", False, id="a profile with all media engines"),
        pytest.param("1g.24gb", "1g.24gb+gfx", False, id="a profile with graphics"),
        pytest.param("1g.24gb-me", "1g.24gb-me", True, id="a profile without media engines by its name"),
        pytest.param("1g.24gb+me.all", "1g.24gb+me.all", True, id="a plus is a plus"),
        pytest.param("1g.*", "1g.24gb+gfx", True, id="every profile of one slice"),
        pytest.param("*gb", "2g.48gb", True, id="an end"),
        pytest.param("*gb", "2g.48gb+gfx", False, id="an end that is not the name's"),
    ],
)
def test_a_pattern_is_the_whole_name(pattern: str, name: str, fits: bool) -> None:  # noqa: FBT001 - a column of the table
    assert NamePattern(pattern, "nvidia.com/x").fits(name) is fits


def test_the_first_pattern_that_fits_counts() -> None:
    patterns = (NamePattern("*H100*", "a/h"), NamePattern("*A100*", "a/a"), NamePattern("*", "a/rest"))
    assert find_pattern(MODEL, patterns) == patterns[1]
    assert find_pattern(MODEL, patterns[:1]) is None


@pytest.mark.parametrize(
    ("patterns", "told"),
    [
        pytest.param([("*A100*", "a/a")], "", id="nothing changed"),
        pytest.param([("H100", "a/h"), ("*", "a/rest")], "", id="a pattern of another product"),
        pytest.param([("A100", "a/a"), ("NVIDIA A100*", "a/a")], "", id="another pattern gives it the same name"),
        pytest.param([("A100", "a/a"), ("*", "a/rest")], 'write "*A100*"', id="it has another name now"),
        pytest.param([("A100*80GB", "a/a")], 'write "*A100*80GB*"', id="it has no name any more"),
    ],
)
def test_what_became_of_a_pattern_of_0_19_is_told(patterns: list[tuple[str, str]], told: str) -> None:
    change = explain_change(MODEL, [NamePattern(*pattern) for pattern in patterns])
    assert told in change
    assert bool(change) is bool(told)


def test_patterns_that_may_mean_something_else_are_told_where_no_gpu_is_known() -> None:
    patterns = (NamePattern("A100", "a/a", "f:4"), NamePattern("*H100*", "a/h", "f:5"), NamePattern("*", "a/rest"))
    (note,) = notes_on_patterns(patterns, None)
    assert note.startswith('f:4: pattern "A100": since 0.20')
    assert notes_on_patterns(patterns, ("NVIDIA H100 PCIe",)) == ()


@pytest.mark.parametrize(
    ("value", "name"),
    [
        pytest.param("gpu", "nvidia.com/gpu", id="a bare name"),
        pytest.param("nvidia.com/gpu", "nvidia.com/gpu", id="a whole name"),
        pytest.param("example.com/h100.80gb", "example.com/h100.80gb", id="a domain of its own"),
        pytest.param("GPU", "nvidia.com/GPU", id="capitals, as in node.json"),
        pytest.param("gpu_1", "nvidia.com/gpu_1", id="a line below, as in node.json"),
        pytest.param("x" * 52, f"nvidia.com/{'x' * 52}", id="63 characters"),
    ],
)
def test_names(value: str, name: str) -> None:
    assert complete_resource_name(value) == name


NO_NAMES = [
    *("", "a/b/c", "-gpu", "gpu-", "x" * 53, 7, None, "gpu\n", "/gpu", "a/", "A.com/gpu", f"{'a' * 64}.io/gpu"),
    *("kubernetes.io/gpu", "node.kubernetes.io/gpu", "mykubernetes.io/gpu", "requests.example.com/gpu"),
]


@pytest.mark.parametrize("value", NO_NAMES)
def test_what_is_no_name_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="must"):
        complete_resource_name(value)


WHOLE_NAMES = ["nvidia.com/gpu", "gpu.example.com/A100-80GB", "a/b_c", f"nvidia.com/{'x' * 52}"]


@pytest.mark.parametrize("value", [*NO_NAMES, *WHOLE_NAMES])
def test_node_json_and_a_file_of_nvidias_form_have_one_rule_for_names(value: object) -> None:
    def outcome(parse: Callable[[], object]) -> str:
        try:
            return str(parse())
        except ConfigError as error:
            return error.message.rpartition(": ")[2]

    resources = {"gpus": [{"pattern": "*", "name": value}]}
    of_file = outcome(lambda: parse_document(Document("f", {"resources": resources})).gpus[0].resource)
    of_node = outcome(lambda: parse_config(json.dumps({"resource": value}), "f").resource)
    if isinstance(value, str) and "/" in value:
        assert of_file == of_node
    else:
        assert of_node.startswith("must")


# Without the line feed: Python's $ also stands before a last one, a schema's does not.
@pytest.mark.parametrize("value", [value for value in (*NO_NAMES, *WHOLE_NAMES) if value != "gpu\n"])
def test_the_schemas_have_the_same_rule(value: object) -> None:
    rule = json.loads((CONTRACTS / "node-config/schema.json").read_text())["properties"]["resource"]
    assert Draft202012Validator(rule).is_valid(value) is (value in WHOLE_NAMES)
    resources = json.loads((CONTRACTS / "nvidia-config/schema.json").read_text())["properties"]["resources"]
    for key in ("gpus", "mig"):
        of_name = resources["properties"][key]["items"]["properties"]["name"]
        assert Draft202012Validator(of_name).is_valid(value) is (value in WHOLE_NAMES)
