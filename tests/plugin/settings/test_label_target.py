"""Through what labels reach the Node: node.json and NVIDIA's flags together, and what contradicts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plugin.base.errors import ConfigError
from plugin.settings.node_config import NodeConfig
from plugin.settings.nvidia.merge import merge, read_variables
from plugin.settings.nvidia.table import LABEL_FILE
from plugin.settings.resolve import resolve

if TYPE_CHECKING:
    from plugin.settings.resolve import Resolved

KUBECONFIG = "/etc/kubernetes/kubelet.conf"
FILE, API = "GFD_OUTPUT_FILE", "USE_NODE_FEATURE_API"


def resolved(labels: str, api: str, **variables: str) -> Resolved:
    return resolve(NodeConfig(labels=labels, kubernetes_api=api), merge([read_variables(variables)]))


@pytest.mark.parametrize(
    ("labels", "api", "variables", "expected"),
    [
        pytest.param("auto", "", {}, (LABEL_FILE, False, True, ""), id="the file, where its folder is"),
        pytest.param("auto", KUBECONFIG, {}, (LABEL_FILE, False, True, ""), id="the Node beside it"),
        pytest.param("auto", KUBECONFIG, {API: "true"}, ("", False, False, "nfd"), id="NVIDIA's switch: an object"),
        pytest.param("auto", "", {API: "true"}, ("", False, True, ""), id="NVIDIA's switch without the API"),
        pytest.param("auto", "", {API: "false"}, (LABEL_FILE, True, True, ""), id="NVIDIA's switch for the file"),
        pytest.param("file", KUBECONFIG, {FILE: "/run/gfd"}, ("/run/gfd", True, False, ""), id="a file alone"),
        pytest.param("node", KUBECONFIG, {}, ("", False, True, ""), id="the Node alone"),
        pytest.param("nodeFeature", KUBECONFIG, {}, ("", False, False, "nfd"), id="an object alone"),
        pytest.param("nodeFeature", "in-cluster", {API: "true"}, ("", False, False, "nfd"), id="said twice"),
    ],
)
def test_labels_go_where_they_are_wanted(
    labels: str, api: str, variables: dict[str, str], expected: tuple[str, bool, bool, str]
) -> None:
    config = NodeConfig(labels=labels, kubernetes_api=api, node_feature_namespace="nfd")
    made = resolve(config, merge([read_variables(variables)])).config.settings.labels
    file = str(made.file or "")
    assert (file, made.is_file_wanted, made.is_on_node, made.feature_namespace) == expected


@pytest.mark.parametrize(
    ("labels", "api", "variables", "words"),
    [
        pytest.param("node", "", {}, "kubernetesApi is not set", id="the Node without the API"),
        pytest.param("nodeFeature", "", {}, "kubernetesApi is not set", id="an object without the API"),
        pytest.param("node", KUBECONFIG, {FILE: "/run/gfd"}, "outputFile leaves a file", id="the Node and a file"),
        pytest.param("nodeFeature", KUBECONFIG, {FILE: "/f"}, "outputFile leaves a file", id="an object and a file"),
        pytest.param("file", KUBECONFIG, {API: "true"}, "makes a NodeFeature object", id="a file and an object"),
        pytest.param("node", KUBECONFIG, {API: "true"}, "makes a NodeFeature object", id="the Node and an object"),
        pytest.param("nodeFeature", KUBECONFIG, {API: "false"}, "useNodeFeatureAPI is false", id="an object, and not"),
    ],
)
def test_what_contradicts_is_refused(labels: str, api: str, variables: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        resolved(labels, api, **variables)


def test_a_switch_that_takes_labels_from_everybody_is_told() -> None:
    notes = resolved("auto", "", **{API: "true"}).notes
    assert any("labels reach nobody" in note for note in notes)
    assert not resolved("auto", KUBECONFIG, **{API: "true"}).notes
    assert Path(LABEL_FILE).is_absolute()
