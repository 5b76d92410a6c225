"""Choosing and reading a kubeconfig; no value of a user is ever repeated."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from provision.cluster.errors import KubeconfigError
from provision.cluster.kubernetes.api.kubeconfig import Kubeconfig, find_kubeconfig, in_cluster, read_kubeconfig

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "not-to-be-seen"  # noqa: S105 - stands for one


def config(name: str, user: dict[str, Any] | None = None, *, current: bool = True) -> dict[str, Any]:
    """Return a kubeconfig with one of everything, all called ``name``."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}:6443"}}],
        "users": [{"name": name, "user": user or {"token": SECRET}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    } | ({"current-context": name} if current else {})


def write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def user_of(found: Kubeconfig) -> dict[str, Any]:
    user: dict[str, Any] = found.document["users"][0]["user"]
    return user


def test_the_flag_comes_first(tmp_path: Path) -> None:
    flag, other = write(tmp_path / "flag", config("a")), write(tmp_path / "other", config("b"))

    assert find_kubeconfig(flag, {"KUBECONFIG": str(other), "HOME": str(tmp_path)}) == (flag,)


def test_then_all_files_of_the_variable_that_are_there(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a", config("a")), write(tmp_path / "b", config("b"))

    environ = {"KUBECONFIG": os.pathsep.join([str(a), str(tmp_path / "none"), str(b), ""])}

    assert find_kubeconfig(None, environ) == (a, b)


def test_then_the_one_at_home_and_then_none(tmp_path: Path) -> None:
    assert find_kubeconfig(None, {"HOME": str(tmp_path), "KUBECONFIG": ""}) == ()
    usual = write(tmp_path / ".kube" / "config", config("a"))
    assert find_kubeconfig(None, {"HOME": str(tmp_path)}) == (usual,)


def test_what_was_named_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match=f"kubeconfig {tmp_path} is not a file"):
        find_kubeconfig(tmp_path, {})
    with pytest.raises(KubeconfigError, match="KUBECONFIG names /nowhere, which does not exist"):
        find_kubeconfig(None, {"KUBECONFIG": "/nowhere"})


def test_the_current_context_is_taken_unless_another_is_named(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a", config("a")), write(tmp_path / "b", config("b"))

    assert read_kubeconfig([a, b], None).server == "https://a:6443"
    assert read_kubeconfig([b, a], None).server == "https://b:6443"
    assert read_kubeconfig([a, b], "b").name == "cluster b (https://b:6443)"


def test_the_first_file_that_names_a_thing_wins(tmp_path: Path) -> None:
    mine, theirs = (
        write(tmp_path / "a", config("x", {"username": "me"})),
        write(tmp_path / "b", config("x", {"username": "you"})),
    )

    assert user_of(read_kubeconfig([mine, theirs], None)) == {"username": "me"}


def test_parts_may_stand_in_different_files_and_paths_start_at_theirs(tmp_path: Path) -> None:
    whole = config("x", {"client-certificate": "me.crt", "client-key": "/abs/me.key", "exec": {"command": "./login"}})
    whole["clusters"][0]["cluster"]["certificate-authority"] = "ca.crt"
    cluster = write(tmp_path / "c" / "config", {key: whole[key] for key in ("clusters", "contexts", "current-context")})
    user = write(tmp_path / "u" / "config", {"users": whole["users"]})

    found = read_kubeconfig([cluster, user], None)

    assert found.document["clusters"][0]["cluster"]["certificate-authority"] == str(tmp_path / "c" / "ca.crt")
    assert user_of(found) == {
        "client-certificate": str(tmp_path / "u" / "me.crt"),
        "client-key": "/abs/me.key",
        "exec": {"command": str(tmp_path / "u" / "./login")},
    }


def test_a_plugin_without_a_path_is_looked_up(tmp_path: Path) -> None:
    path = write(tmp_path / "a", config("a", {"exec": {"command": "kubelogin"}}))

    assert user_of(read_kubeconfig([path], None))["exec"]["command"] == "kubelogin"


def test_neither_the_text_nor_the_name_of_it_shows_a_secret(tmp_path: Path) -> None:
    content = config("a")
    content["clusters"][0]["cluster"]["server"] = f"https://ada:{SECRET}@a:6443/k8s"

    found = read_kubeconfig([write(tmp_path / "a", content)], None)

    assert SECRET not in repr(found)
    assert found.name == "cluster a (https://a:6443/k8s)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "context", "message"),
    [
        pytest.param("", None, "{path} has no current context", id="an empty file"),
        pytest.param(config("a", current=False), None, "{path} has no current context", id="no current context"),
        pytest.param(config("a"), "b", "{path} has no context b", id="an unknown context"),
        pytest.param(
            config("a") | {"clusters": None}, None, "context a of {path} has no cluster with a server", id="no cluster"
        ),
        pytest.param(
            config("a") | {"users": []}, None, "context a of {path} names user a, who does not exist", id="no user"
        ),
        pytest.param(f"a: b\ntoken: {SECRET}: {SECRET}\n", None, "kubeconfig {path}:2 is not YAML", id="not YAML"),
        pytest.param(
            f"token {SECRET}", None, "kubeconfig {path} is malformed: expected `object`, got `str`", id="a word"
        ),
        pytest.param(
            config("a") | {"users": [SECRET]},
            None,
            "kubeconfig {path} is malformed: expected `object`, got `str` - at `$.users[0]`",
            id="a user that is a word",
        ),
        pytest.param(
            config("a") | {"contexts": {"a": 1}},
            None,
            "kubeconfig {path} is malformed: expected `array | null`, got `object` - at `$.contexts`",
            id="contexts that are no list",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    tmp_path: Path, content: object, context: str | None, message: str
) -> None:
    path = write(tmp_path / "config", content)

    with pytest.raises(KubeconfigError) as raised:
        read_kubeconfig([path], context)

    assert raised.value.message == message.format(path=path)
    assert SECRET not in repr(raised.value) + raised.value.hint
    assert raised.value.__cause__ is None


def test_bytes_and_folders_are_no_kubeconfig(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")

    with pytest.raises(KubeconfigError, match=f"kubeconfig {binary} is not YAML"):
        read_kubeconfig([binary], None)
    with pytest.raises(KubeconfigError, match=f"kubeconfig {tmp_path} cannot be read: Is a directory"):
        read_kubeconfig([tmp_path], None)


def test_a_pod_reaches_its_own_cluster(tmp_path: Path) -> None:
    write(tmp_path / "token", SECRET)
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}

    found = in_cluster(environ, tmp_path)

    assert found is not None
    assert found.name == "cluster in-cluster (https://[fd00::1]:443)"
    assert user_of(found) == {"tokenFile": str(tmp_path / "token")}
    assert in_cluster({}, tmp_path) is None
    assert in_cluster(environ, tmp_path / "none") is None


def test_data_in_the_file_is_passed_on_as_it_is(tmp_path: Path) -> None:
    data = base64.b64encode(b"certificate").decode()

    found = read_kubeconfig([write(tmp_path / "a", config("a", {"client-certificate-data": data}))], None)

    assert user_of(found) == {"client-certificate-data": data}
