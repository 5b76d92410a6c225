"""Runtimes' command lines as engines write them: the verb and the bundle are found, whatever stands around them."""

from __future__ import annotations

import pytest

from runtime_hook.inputs.commandline import Call, read_call

SHIM = "--root /run/docker/runtime-runc/moby --log /b/log.json --log-format json --systemd-cgroup"


@pytest.mark.parametrize(
    ("line", "call"),
    [
        pytest.param(
            f"{SHIM} create --bundle /b --pid-file /b/init.pid --console-socket /tmp/pty.sock ID",
            Call("create", "/b", "config.json", "/b/log.json", "json"),
            id="containerd's shim creates",
        ),
        pytest.param(f"{SHIM} start ID", Call("start", log="/b/log.json", log_format="json"), id="the shim starts"),
        pytest.param(
            "--systemd-cgroup --root=/r create --bundle /b --pid-file /p --no-pivot ID",
            Call("create", "/b"),
            id="conmon creates",
        ),
        pytest.param("create -b /b ID", Call("create", "/b"), id="short flag"),
        pytest.param("create -b=/b ID", Call("create", "/b"), id="short flag with a sign"),
        pytest.param("create -b/b ID", Call("create", "/b"), id="crun's short flag without a gap"),
        pytest.param("create --bundle=/b ID", Call("create", "/b"), id="long flag with a sign"),
        pytest.param("-root /r -log=/l create -bundle /b ID", Call("create", "/b", log="/l"), id="single dashes"),
        pytest.param("create ID --bundle /b", Call("create", "/b"), id="flags behind the name"),
        pytest.param("create --bundle /a --bundle /b ID", Call("create", "/b"), id="the last of two counts"),
        pytest.param("create -- --bundle /b", Call("create"), id="behind the end of flags"),
        pytest.param("create --pid-file --bundle ID", Call("create"), id="a value that looks like a flag"),
        pytest.param("run ID", Call("run"), id="the current folder"),
        pytest.param("run -f other.json ID", Call("run", ".", "other.json"), id="crun's other file"),
        pytest.param("--root create --debug delete ID", Call("delete"), id="a folder called create"),
        pytest.param("--of-2030 value create --bundle /b ID", Call("create", "/b"), id="a later flag with a value"),
        pytest.param("--of-2030 create --bundle /b ID", Call("create", "/b"), id="a later flag without one"),
        pytest.param("exec ID create --bundle /b", Call("exec"), id="a command called create"),
        pytest.param("--version", Call(""), id="no verb"),
        pytest.param("", Call(""), id="nothing"),
    ],
)
def test_it_is_read_as(line: str, call: Call) -> None:
    assert read_call(line.split()) == call
