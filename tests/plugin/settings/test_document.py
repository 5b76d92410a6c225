"""The form of a file: whatever is in it, an answer or a list of what is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.base.errors import ConfigError
from plugin.settings.nvidia.document import Document, FileSettings, parse_document
from plugin.settings.nvidia.sharing import Share
from plugin.settings.nvidia.table import SETTINGS

KEYS = sorted(
    {part for setting in SETTINGS for part in setting.name.split(".")}
    | {"version", "resources", "gpus", "mig", "pattern", "name", "sharing", "timeSlicing", "mps", "replicas", "devices"}
)
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["v1", "all", "*", "gpu"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=20,
)
IN_FILE = [setting for setting in SETTINGS if setting.in_file]


def parse(content: object) -> FileSettings:
    return parse_document(Document("c.yaml", content, {"flags.migStrategy": 7}))


def outcome(content: object) -> FileSettings | str:
    try:
        return parse(content)
    except ConfigError as error:
        return error.message


@pytest.mark.slow
@given(ANYTHING | st.dictionaries(st.sampled_from(["flags", "resources", "sharing", "imex"]), ANYTHING))
def test_any_content_is_read_or_refused_in_words(content: object) -> None:
    found = outcome(content)
    if isinstance(found, str):
        assert found.startswith("c.yaml")
        assert "\n" not in found
    else:
        assert all(pattern.resource for pattern in (*found.gpus, *found.migs))
        assert all(share.replicas > 1 for share in found.sharing.shares)


@given(st.lists(st.sampled_from(IN_FILE), unique=True), st.data())
def test_a_file_of_good_values_is_read_whole(settings: list[Any], data: st.DataObject) -> None:
    content: dict[str, Any] = {"version": "v1"}
    expected = {}
    for setting in settings:
        value = data.draw(st.sampled_from(GOOD[setting.name]))
        *folders, key = setting.name.split(".")
        inside = content
        for folder in folders:
            inside = inside.setdefault(folder, {})
        inside[key] = list(value) if isinstance(value, tuple) else value
        expected[setting.name] = value
    assert {name: value for name, (value, _) in parse(content).values.items()} == expected


def _good(setting: Any) -> list[object]:
    kind, found = setting.kind, []
    for value in (True, False, "none", "auto", "uuid", "packed", "/a", "30s", ("envvar", "cdi-cri"), (0,), ()):
        shown = list(value) if isinstance(value, tuple) else value
        try:
            found.append(kind.from_document(shown))
        except ValueError:
            continue
    return found


GOOD = {setting.name: _good(setting) for setting in IN_FILE}


def test_a_key_without_a_value_is_left_out() -> None:
    assert parse({"version": None, "flags": {"migStrategy": None, "plugin": None}, "imex": None}) == FileSettings()


def test_everything_wrong_is_said_at_once_with_its_line() -> None:
    with pytest.raises(ConfigError) as raised:
        parse(
            {"flags": {"migStrategy": "x", "gdsEnabled": "y"}, "sharing": {"timeSlicing": {"resources": [{}]}}, "z": 1}
        )
    said = raised.value.message.split("; ")
    assert said[0].startswith('c.yaml: unknown key "z", the nearest one is "')
    assert "c.yaml:7: flags.migStrategy: must be one of: none, single, mixed" in said
    assert "c.yaml: flags.gdsEnabled: must be true or false" in said
    assert "c.yaml: sharing.timeSlicing.resources[0]: name is missing" in said
    assert "c.yaml: sharing.timeSlicing.resources[0]: replicas is missing" in said


def test_a_key_in_the_wrong_place_is_told_where_it_belongs() -> None:
    """It was the nearest spelling in the wrong place."""
    with pytest.raises(ConfigError) as raised:
        parse({"flags": {"renameByDefault": True, "replicas": 2}, "resources": {"timeSlicing": {}}, "name": "x"})
    said = raised.value.message.split("; ")
    assert 'c.yaml: flags: unknown key "renameByDefault", it belongs in "sharing.timeSlicing" or "sharing.mps"' in said
    assert (
        'c.yaml: flags: unknown key "replicas", it belongs in '
        '"sharing.timeSlicing.resources" or "sharing.mps.resources"' in said
    )
    assert 'c.yaml: resources: unknown key "timeSlicing", it belongs in "sharing"' in said
    assert any('unknown key "name", the nearest one is' in each for each in said), "it is in many places"


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        pytest.param({"devices": "0,1"}, "a list of indices and uuids: write [0, 1]", id="a list without brackets"),
        pytest.param(
            {"name": "nvidia.com/mig-1g.10gb+me"},
            'must have "+" written as ".": nvidia.com/mig-1g.10gb.me',
            id="a profile as NVIDIA writes it",
        ),
    ],
)
def test_how_a_value_that_was_meant_is_written(entry: dict[str, object], said: str) -> None:
    shared = {"name": "nvidia.com/gpu", "replicas": 2, **entry}
    with pytest.raises(ConfigError) as raised:
        parse({"sharing": {"timeSlicing": {"resources": [shared]}}})
    assert said in raised.value.message


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        pytest.param("all", None, id="all"),
        pytest.param(3, 3, id="a count"),
        pytest.param([0, "1", "2:0"], ("0", "1", "2:0"), id="indices of GPUs and slices"),
        pytest.param(
            ["GPU-7d00e010-ec78-5e6f-8228-fa5ab15a3109", "MIG-GPU-7d00e010-ec78-5e6f-8228-fa5ab15a3109/3/0"],
            ("GPU-7d00e010-ec78-5e6f-8228-fa5ab15a3109", "MIG-GPU-7d00e010-ec78-5e6f-8228-fa5ab15a3109/3/0"),
            id="uuids of both forms",
        ),
    ],
)
def test_shares_are_read_whole(devices: object, expected: object) -> None:
    entry = {"name": "gpu", "rename": "gpu.shared", "devices": devices, "replicas": 2}
    content = {"sharing": {"mps": {"renameByDefault": True, "resources": [entry]}}}
    sharing = parse(content).sharing
    assert sharing.shares == (Share("mps", "nvidia.com/gpu", 2, "nvidia.com/gpu.shared", expected),)  # type: ignore[arg-type]
    assert [strategy.rename_by_default for strategy in sharing.strategies] == [True]


@pytest.mark.parametrize(
    ("strategy", "given", "said", "refuses"),
    [
        pytest.param("mps", {}, None, True, id="mps that does not say"),
        pytest.param("mps", {"failRequestsGreaterThanOne": None}, None, True, id="mps without a value"),
        pytest.param("mps", {"failRequestsGreaterThanOne": False}, False, False, id="mps that says false"),
        pytest.param("mps", {"failRequestsGreaterThanOne": True}, True, True, id="mps that says true"),
        pytest.param("timeSlicing", {}, None, False, id="time slices that do not say"),
        pytest.param(
            "timeSlicing", {"failRequestsGreaterThanOne": False}, False, False, id="time slices that say false"
        ),
        pytest.param("timeSlicing", {"failRequestsGreaterThanOne": True}, True, True, id="time slices that say true"),
    ],
)
def test_a_strategy_says_whether_a_container_may_have_several_shares(
    strategy: str,
    given: dict[str, object],
    said: bool | None,  # noqa: FBT001 - a column of the table
    refuses: bool,  # noqa: FBT001 - a column of the table
) -> None:
    content = {"sharing": {strategy: {**given, "resources": [{"name": "gpu", "replicas": 2}]}}}
    (found,) = parse(content).sharing.strategies
    assert (found.name, found.fail_requests_greater_than_one, found.refuses_several) == (strategy, said, refuses)


@pytest.mark.parametrize("strategy", ["timeSlicing", "mps"])
@pytest.mark.parametrize(
    "section",
    [{}, {"resources": None}, {"resources": []}, {"renameByDefault": True}],
    ids=["empty", "null", "[]", "rename"],
)
def test_a_strategy_that_shares_nothing_is_refused(strategy: str, section: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=rf"c\.yaml: sharing\.{strategy}: resources is missing"):
        parse({"sharing": {strategy: section}})


@pytest.mark.parametrize("devices", [0, -1, True, [], [-1], ["GPU-1"], "some", [True], {}], ids=repr)
def test_devices_that_are_none_are_refused(devices: object) -> None:
    with pytest.raises(ConfigError, match="devices: must be"):
        parse({"sharing": {"mps": {"resources": [{"name": "gpu", "replicas": 2, "devices": devices}]}}})
