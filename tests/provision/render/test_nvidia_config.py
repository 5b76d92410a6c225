"""What is declared of parts of GPUs, as the daemon's file of NVIDIA's form says it."""

from __future__ import annotations

import json
import typing
from pathlib import Path

import jsonschema
import msgspec
import pytest
import yaml

from plugin.settings.load import Invocation, load
from plugin.settings.nvidia.sharing import parse_replicas
from provision.declaration.spec.model.plugin import Replicas
from provision.planning.render.node_config import render_node_config
from provision.planning.render.nvidia_config import render_nvidia_config
from tests.provision.samples import make_stack

CONTRACTS = Path(__file__).parents[3] / "docs/contracts"
SCHEMA = json.loads((CONTRACTS / "nvidia-config/schema.json").read_text())
DECLARED = yaml.safe_load((CONTRACTS / "gpustack/good/parts-of-gpus.yaml").read_text())["spec"]["plugin"]


def test_the_file_says_what_is_declared_in_the_words_of_its_contract() -> None:
    text = render_nvidia_config(make_stack(plugin=DECLARED))
    assert text is not None
    said = json.loads(text)
    jsonschema.validate(said, SCHEMA)
    assert said["flags"] == {"migStrategy": "mixed", "plugin": {"sharedDevicesAllocationPolicy": "packed"}}
    assert said["resources"] == DECLARED["resources"]
    assert said["sharing"] == DECLARED["sharing"]


def test_the_daemon_reads_both_files_as_they_were_declared(tmp_path: Path) -> None:
    stack = make_stack(plugin=DECLARED)
    nvidia = tmp_path / "nvidia.json"
    nvidia.write_text(render_nvidia_config(stack) or "")
    own = tmp_path / "node.json"
    own.write_text(json.dumps({**json.loads(render_node_config(stack)), "nvidiaConfigFile": str(nvidia)}))
    config = load(Invocation(own, {}, {})).config
    assert [(rule.shown_as, rule.replicas, rule.unit_bytes, rule.chosen) for rule in config.settings.shares] == [
        ("nvidia.com/gpu-a100.shared", 4, 0, ("0", "1")),
        ("nvidia.com/mig-small.half", 2, 0, None),
        ("nvidia.com/gpu.mps", 8, 0, None),
        ("aliyun.com/gpu-mem", 0, 2 * 2**30, ("2",)),
    ]
    assert [rule.refuses_several for rule in config.settings.shares] == [True, True, True, False]
    assert (config.settings.mig_strategy, config.settings.is_packed) == ("mixed", True)


@pytest.mark.parametrize(
    "plugin",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"migStrategy": "none", "sharing": {}, "resources": {"gpus": []}}, id="the defaults"),
        pytest.param({"memoryUnits": [{}]}, id="what node.json says"),
    ],
)
def test_without_anything_to_say_there_is_no_file_and_a_person_s_own_counts(plugin: dict[str, object]) -> None:
    stack = make_stack(plugin=plugin)
    assert render_nvidia_config(stack) is None
    assert "nvidiaConfigFile" not in json.loads(render_node_config(stack))


def test_memory_units_are_in_node_json() -> None:
    stack = make_stack(plugin={"memoryUnits": [{"devices": ["1"], "unitMiB": 512}, {"of": "nvidia.com/l4"}]})
    assert json.loads(render_node_config(stack))["memoryUnits"] == [
        {"resource": "aliyun.com/gpu-mem", "of": "nvidia.com/gpu", "devices": ["1"], "unitMiB": 512},
        {"resource": "aliyun.com/gpu-mem", "of": "nvidia.com/l4", "devices": "all", "unitMiB": 1024},
    ]


def test_a_declared_size_reaches_the_daemon(tmp_path: Path) -> None:
    stack = make_stack(plugin={"memoryUnits": [{"memoryMiB": 98304}]})
    path = tmp_path / "node.json"
    path.write_text(render_node_config(stack))
    (rule,) = load(Invocation(path, {}, {})).config.settings.shares
    assert (rule.memory_bytes, rule.count(None)) == (96 * 2**30, 96)


def test_a_declaration_and_a_file_take_as_many_replicas() -> None:
    most = next(each.le for each in typing.get_args(Replicas) if isinstance(each, msgspec.Meta))
    assert most is not None
    assert parse_replicas(most) == most
    with pytest.raises(ValueError, match=f"to {most}"):
        parse_replicas(int(most) + 1)
