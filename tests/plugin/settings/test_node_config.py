from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from plugin.base.errors import ConfigError
from plugin.settings.node_config import NodeConfig, find_config, parse_config, read_config, split_address

CONTRACT = Path(__file__).parents[3] / "docs/contracts/node-config"
SCHEMA = json.loads((CONTRACT / "schema.json").read_text())
GOOD = sorted(CONTRACT.glob("good/*.json"))
BAD = sorted(CONTRACT.glob("bad/*.json"))


@pytest.mark.slow
@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_good_samples_are_read_and_fit_the_schema(path: Path) -> None:
    jsonschema.validate(json.loads(path.read_text()), SCHEMA)
    config = read_config(path)
    assert parse_config(json.dumps(config.to_json()), "again") == config


@pytest.mark.slow
@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_bad_samples_are_refused_for_the_right_reason(path: Path) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(path.read_text()), SCHEMA)
    with pytest.raises(ConfigError) as raised:
        read_config(path)
    assert path.with_suffix(".txt").read_text().strip() in raised.value.message
    assert str(path) in raised.value.message


def test_there_are_samples_of_both_kinds() -> None:
    assert len(GOOD) >= 3
    assert len(BAD) >= 8


def test_the_schemas_defaults_are_the_daemons() -> None:
    defaults = {key: rule["default"] for key, rule in SCHEMA["properties"].items() if key != "schema"}
    assert {"schema": SCHEMA["properties"]["schema"]["const"], **defaults} == NodeConfig().to_json()


def test_everything_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        parse_config('{"devRoot": "dev", "refreshSeconds": -1, "x": 1}', "node.json")
    for key in ("devRoot", "refreshSeconds", '"x"'):
        assert key in raised.value.message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(
            b'{"healthSeconds": 30,\n "refreshSeconds": ' + b"9" * 5000 + b"}",
            "a number of 5000 digits: line 2 column 20",
            id="a number of 5,000 digits",
        ),
        pytest.param(b'{"resource": "a.b/c", "resource": "a.b/d"}', "given twice", id="a key twice"),
        pytest.param(b"{", "not valid json", id="not json"),
        pytest.param(b"[" * 100_0, "not valid json", id="nested without end"),
        pytest.param(b"\xff{}", "not utf-8", id="not text"),
        pytest.param(b" " * 70_000, "larger than", id="too large"),
        pytest.param(b'{"refreshSeconds": NaN}', "refreshSeconds", id="not a number"),
        pytest.param(b'{"devRoot": "/a\\u0000b"}', "devRoot", id="a path with a zero byte"),
    ],
)
def test_files_that_are_no_configuration(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "node.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        read_config(path)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        pytest.param("127.0.0.1:9400", "127.0.0.1", 9400, id="this machine alone"),
        pytest.param("0.0.0.0:65535", "0.0.0.0", 65535, id="every address, the last port"),  # noqa: S104 - a text
        pytest.param("[::1]:1", "::1", 1, id="IPv6, the first port"),
        pytest.param("[::ffff:10.0.0.1]:9400", "::ffff:10.0.0.1", 9400, id="IPv4 within IPv6"),
    ],
)
def test_addresses_to_serve_on(text: str, host: str, port: int) -> None:
    assert split_address(text) == (host, port)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("9400", id="a port alone"),
        pytest.param("127.0.0.1", id="an address alone"),
        pytest.param("::1:9400", id="IPv6 without brackets"),
        pytest.param("[127.0.0.1]:9400", id="IPv4 with them"),
        pytest.param("300.0.0.1:9400", id="more than a byte holds"),
        pytest.param("[::1::]:9400", id="invalid IPv6"),
        pytest.param("127.0.0.1:65536", id="an invalid port"),
        pytest.param("127.0.0.1:9400\n", id="another line"),
        pytest.param("١٢٧.0.0.1:9400", id="digits of another script"),
    ],
)
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="in digits with a port"):
        split_address(text)


def test_a_file_that_was_named_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"node\.json: no such file or directory"):
        find_config(tmp_path / "node.json")


def test_the_unit_makes_the_folders_that_the_daemon_uses() -> None:
    unit = (Path(__file__).parents[3] / "deploy/systemd/grapnel-node.service").read_text().splitlines()
    assert f"StateDirectory={NodeConfig().state_folder.relative_to('/var/lib')}" in unit
    assert f"RuntimeDirectory={NodeConfig().admin_socket.parent.relative_to('/run')}" in unit


def test_the_unit_lets_the_daemon_serve_metrics_and_reach_the_kubelet() -> None:
    unit = (Path(__file__).parents[3] / "deploy/systemd/grapnel-node.service").read_text().splitlines()
    assert "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6" in unit
