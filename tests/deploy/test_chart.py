"""The chart carries what kubectl applies, and says what its values are."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import yaml

from provision import __version__
from tasks.generated.chart import CHART, copies

if TYPE_CHECKING:
    from collections.abc import Iterator

VALUES: dict[str, Any] = yaml.safe_load(CHART.joinpath("values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads(CHART.joinpath("values.schema.json").read_text())
ROW = re.compile(r"^\| `([A-Za-z.]+)` \| `([^`]*)` \| (.+) \|$", re.MULTILINE)
OTHERS = ("global",)  # not of this chart


def leaves(schema: dict[str, Any], values: Any, path: str = "") -> Iterator[tuple[str, Any, str]]:
    """Yield path, default and description of each value that the schema describes as one."""
    for key, part in schema.get("properties", {}).items():
        name = f"{path}.{key}".strip(".")
        if name in OTHERS:
            continue
        if "description" in part:
            yield name, values[key], part["description"]
        else:
            yield from leaves(part, values[key], name)


def test_the_chart_has_copies_of_what_kubectl_applies() -> None:
    differing = [str(copy) for copy, source in copies().items() if copy.read_bytes() != source.read_bytes()]

    assert differing == [], "run python -P -m tasks.generated.chart"
    made = {path for path in CHART.joinpath("files").rglob("*") if path.is_file()}
    assert made == set(copies())


def test_the_defaults_fit_the_schema_but_for_the_image_that_has_to_be_named() -> None:
    errors = list(jsonschema.Draft7Validator(SCHEMA).iter_errors(VALUES))

    assert [list(error.path) for error in errors] == [["image", "repository"]]


def test_the_page_lists_every_value_with_its_default() -> None:
    listed = {name: (default, text) for name, default, text in ROW.findall(CHART.joinpath("README.md").read_text())}

    expected = {name: (json.dumps(default), text) for name, default, text in leaves(SCHEMA, VALUES)}

    assert listed == expected


def test_every_default_is_one_that_the_schema_knows() -> None:
    assert set(VALUES) == set(SCHEMA["properties"]) - {"global"}


def test_the_chart_is_of_the_release() -> None:
    chart = yaml.safe_load(CHART.joinpath("Chart.yaml").read_text())

    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


@pytest.mark.parametrize(
    ("values", "path"),
    [
        pytest.param({"image": {"repository": "a", "tga": "1"}}, ["image"], id="a key that is misspelt"),
        pytest.param({"image": {"repository": "A b"}}, ["image", "repository"], id="a name that no registry has"),
        pytest.param(
            {"image": {"repository": "a"}, "controller": {"replicas": "two"}},
            ["controller", "replicas"],
            id="a word for a number",
        ),
        pytest.param(
            {"image": {"repository": "a"}, "controller": {"secrets": ["../x"]}},
            ["controller", "secrets", 0],
            id="a path for the name of a Secret",
        ),
        pytest.param(
            {
                "image": {"repository": "a"},
                "controller": {"secretHosts": {"gates": ["https://prometheus.example.com"]}},
            },
            ["controller", "secretHosts", "gates", 0],
            id="a URL for a host",
        ),
        pytest.param(
            {"image": {"repository": "a"}, "nodeDaemon": {"kubeletRoot": "var/lib/kubelet"}},
            ["nodeDaemon", "kubeletRoot"],
            id="a folder that depends on where one is",
        ),
        pytest.param(
            {"image": {"repository": "a"}, "nodeDaemon": {"maxSurge": "a few"}},
            ["nodeDaemon", "maxSurge"],
            id="a word for a share",
        ),
        pytest.param(
            {"image": {"repository": "a"}, "nodeDaemon": {"maxSurge": 0}},
            ["nodeDaemon", "maxSurge"],
            id="a replacement of no pod",
        ),
    ],
)
def test_wrong_values_are_refused_with_their_path(values: dict[str, Any], path: list[str | int]) -> None:
    errors = list(jsonschema.Draft7Validator(SCHEMA).iter_errors(values))

    assert [list(error.path) for error in errors] == [path]
