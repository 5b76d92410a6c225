"""Which value counts: properties over all settings and all ways of giving them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.base.errors import ConfigError
from plugin.settings.nvidia.kinds import Value, ValueKind, show
from plugin.settings.nvidia.merge import DEFAULT, merge, read_flags, read_variables
from plugin.settings.nvidia.table import BY_NAME, SETTINGS, Setting

Layers = dict[str, dict[str, tuple[Value, str]]]
FLAGS, VARIABLES, FILE = "flags", "variables", "file"


def texts(kind: ValueKind) -> st.SearchStrategy[str]:
    """Return texts that are values of a kind."""
    candidates = (
        "true",
        "0",
        "none",
        "mixed",
        "auto",
        "nvml",
        "uuid",
        "index",
        "envvar",
        "cdi-cri,envvar",
        "packed",
        "all",
        "79,48",
        "named,single",
    )
    fitting = [text for text in (*candidates, "/a", "/b/c", "some words", "0", "30s") if _is_a(kind, text)]
    return st.sampled_from(fitting)


def _is_a(kind: ValueKind, text: str) -> bool:
    try:
        kind.from_text(text)
    except ValueError:
        return False
    return True


@st.composite
def layers(draw: st.DrawFn) -> Layers:
    """Return flags, variables and a file, each with any of the settings that it can have."""
    found: Layers = {FLAGS: {}, VARIABLES: {}, FILE: {}}
    for setting in draw(st.lists(st.sampled_from(SETTINGS), unique=True)):
        for layer in draw(st.sets(st.sampled_from((FLAGS, VARIABLES, FILE)))):
            value = setting.kind.from_text(draw(texts(setting.kind)))
            found[layer][setting.name] = (value, layer)
    return found


@given(layers())
def test_the_first_that_says_anything_counts(given_layers: Layers) -> None:
    merged = merge([given_layers[FLAGS], given_layers[VARIABLES], given_layers[FILE]])
    assert set(merged) == set(BY_NAME)
    for name, effective in merged.items():
        sayers = [layer for layer in (FLAGS, VARIABLES, FILE) if name in given_layers[layer]]
        if sayers:
            assert (effective.value, effective.origin) == given_layers[sayers[0]][name]
        else:
            assert (effective.value, effective.origin) == (BY_NAME[name].default, DEFAULT)
        assert effective.is_given == bool(sayers)


@given(layers(), st.sampled_from(SETTINGS), st.data())
def test_a_setting_moves_no_other_one(given_layers: Layers, setting: Setting, data: st.DataObject) -> None:
    before = merge(list(given_layers.values()))
    layer = data.draw(st.sampled_from((FLAGS, VARIABLES, FILE)))
    given_layers[layer][setting.name] = (setting.kind.from_text(data.draw(texts(setting.kind))), layer)
    after = merge(list(given_layers.values()))
    assert {name for name in after if after[name] != before[name]} <= {setting.name}


@given(layers())
def test_what_is_lower_never_changes_what_is_higher(given_layers: Layers) -> None:
    alone = merge([given_layers[FLAGS]])
    merged = merge(list(given_layers.values()))
    assert all(merged[name] == effective for name, effective in alone.items() if effective.is_given)


@given(st.sampled_from([setting for setting in SETTINGS if setting.flags]), st.data())
def test_a_flag_and_a_variable_with_one_text_mean_the_same(setting: Setting, data: st.DataObject) -> None:
    text = data.draw(texts(setting.kind))
    by_flag = read_flags({setting.name: ("--flag", text)})
    by_variable = read_variables({setting.variables[0]: text})
    assert [value for value, _ in by_flag.values()] == [value for value, _ in by_variable.values()]


@given(st.sampled_from(SETTINGS), st.data())
def test_what_is_shown_is_what_could_be_given(setting: Setting, data: st.DataObject) -> None:
    value = setting.kind.from_text(data.draw(texts(setting.kind)))
    assert setting.kind.from_text(show(value)) == value


def test_every_default_is_of_its_kind() -> None:
    for setting in SETTINGS:
        if setting.default is not None and setting.default not in ("", ()):
            assert setting.kind.from_text(show(setting.default)) == setting.default, setting.name


def test_no_flag_or_variable_belongs_to_two_settings() -> None:
    names = [name for setting in SETTINGS for name in (*setting.flags, *setting.variables)]
    assert len(names) == len(set(names))


def test_an_empty_variable_is_not_set() -> None:
    assert read_variables({"MIG_STRATEGY": "", "PASS_DEVICE_SPECS": ""}) == {}


def test_of_two_names_of_a_variable_the_newer_one_counts() -> None:
    layer = read_variables({"CONTAINER_DRIVER_ROOT": "/old", "DRIVER_ROOT_CTR_PATH": "/new"})
    assert layer == {"flags.plugin.containerDriverRoot": ("/new", "DRIVER_ROOT_CTR_PATH")}


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        pytest.param({"MIG_STRATEGY": "both"}, "MIG_STRATEGY: must be one of: none, single, mixed", id="a word"),
        pytest.param({"GDS_ENABLED": "yes"}, "GDS_ENABLED: must be true or false", id="a word that is not Go's"),
        pytest.param({"NVIDIA_DRIVER_ROOT": "run"}, "NVIDIA_DRIVER_ROOT: must be an absolute path", id="a path"),
        pytest.param(
            {"IMEX_CHANNEL_IDS": "0,1"}, "IMEX_CHANNEL_IDS: must be no channel, or channel 0 alone", id="a channel"
        ),
        pytest.param({"DP_DISABLE_HEALTHCHECKS": "79;48"}, "must be all, xids, or numbers", id="an XID error"),
        pytest.param({"GFD_SLEEP_INTERVAL": "60"}, 'must be a duration such as "60s"', id="a duration without a unit"),
        pytest.param({"DEVICE_LIST_STRATEGY": "envvar,"}, "must be one or more of: envvar", id="an empty item"),
    ],
)
def test_a_wrong_text_is_an_error_that_names_where_it_is(variables: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_variables({**variables, "FAIL_ON_INIT_ERROR": "perhaps"})
    assert words in raised.value.message
    assert "FAIL_ON_INIT_ERROR: must be true or false" in raised.value.message


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_gos_words_for_true_are_true(text: str) -> None:
    assert read_variables({"PASS_DEVICE_SPECS": text})["flags.plugin.passDeviceSpecs"][0] is True
