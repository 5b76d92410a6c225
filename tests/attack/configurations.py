"""Files of a hostile node that the planner reads and writes again, as values: containerd's configuration above all.

They are a node's own mistakes as well as attacks. A file that cannot be worked with is the node's own failure.
"""

from __future__ import annotations

from tests.attack.attacks import TEMPLATE, TITLE, Attack, Harm

MAIN = "/etc/containerd/config.toml"
DROP_IN = "/etc/containerd/conf.d/99-nvidia.toml"
CRI = 'plugins."io.containerd.grpc.v1.cri"'
PASSWORD = "hunter2-of-the-registry"  # noqa: S105 - nobody's
WITH_PASSWORD = f"""\
version = 2
imports = ["/etc/containerd/conf.d/*.toml"]
[{CRI}.registry.configs."registry.example".auth]
username = "robot"
password = "{PASSWORD}"
"""
# The default runtime is another vendor's wrapper: what it does may not be had by way of grapnel's handler.
WRAPPED = {
    "CDI": "/usr/bin/nvidia-container-runtime.cdi",
    "legacy mode": "/usr/bin/nvidia-container-runtime.legacy",
    "another place": "/opt/../usr/bin/nvidia-container-runtime",
    "a link's name": "nvidia-container-runtime-hook",
}
WRAPPER = f"""\
version = 2
[{CRI}.containerd]
default_runtime_name = "wrapped"
[{CRI}.containerd.runtimes.wrapped]
runtime_type = "io.containerd.runc.v2"
[{CRI}.containerd.runtimes.wrapped.options]
BinaryName = "%s"
"""
ODD = {
    "imports that are a number": "version = 2\nimports = 5\n",
    "imports that are a text": 'version = 2\nimports = "/etc/containerd/conf.d/*.toml"\n',
    "an import that is a list": "version = 2\nimports = [[1], {a = 2}]\n",
    "an import of anything": 'version = 2\nimports = ["/../../../**/*", "\\u0000", ""]\n',
    "plugins that are a number": "version = 2\nplugins = 1\n",
    "plugins that are a list": "version = 2\nplugins = [1, 2]\n",
    "a plugin that is a number": 'version = 2\n[plugins]\n"io.containerd.grpc.v1.cri" = 7\n',
    "a version that is a list": "version = [2]\n",
    "a version that is a table": "[version]\na = 1\n",
    "a version that is true": "version = true\n",
    "a version without bounds": f"version = {'9' * 4000}\n",
    "a version of a float": "version = 2.0\n",
    "disabled plugins that are a number": "version = 2\ndisabled_plugins = 5\n",
    "disabled plugins that are lists": "version = 2\ndisabled_plugins = [[1], {}]\n",
    "runtimes that are a text": f'version = 2\n[{CRI}.containerd]\nruntimes = "runc"\n',
    "a runtime that is a number": f"version = 2\n[{CRI}.containerd.runtimes]\nrunc = 5\n",
    "a default runtime that is a list": f"version = 2\n[{CRI}.containerd]\ndefault_runtime_name = [1]\n",
    "options that are a number": f"version = 2\n[{CRI}.containerd.runtimes.runc]\noptions = 5\n",
    "a binary that is a number": f"version = 2\n[{CRI}.containerd.runtimes.runc.options]\nBinaryName = 5\n",
    "annotations that are a number": f"version = 2\n[{CRI}.containerd.runtimes.runc]\ncontainer_annotations = 5\n",
    "a key of a hundred parts": f"version = 2\n{'.'.join(['a'] * 100)} = 1\n",
    "a key of ten thousand parts": f"version = 2\n{'.'.join(['a'] * 10_000)} = 1\n",
    "tables nested in each other": f"version = 2\na = {'{a=' * 900}1{'}' * 900}\n",
    "lists 5000 deep": f"version = 2\na = {'[' * 5000}{']' * 5000}\n",
    "an impossible date": "version = 2\na = 2026-99-99\n",
    "a text that speaks to the terminal": f'version = 2\n"{TITLE}\n',
    "a template": f'version = 2\nroot = "{TEMPLATE}"\n',
    "a path with a template": f'version = 2\nimports = ["/{TEMPLATE.replace(chr(39), "")}"]\n',
    "nothing but zero bytes": "\0" * 100,
    "carriage returns alone": "version = 2\rimports = 5\r",
}


def _file(content: str, mode: str = "0644") -> dict[str, object]:
    return {"mode": mode, "uid": 0, "gid": 0, "sha256": "0" * 64, "content": content}


def _attack(name: str, content: str, mode: str = "0644", path: str = MAIN, harm: Harm = Harm.BUG) -> Attack:
    values = ((("facts", "files", path), _file(content, mode)), (("facts", "files", DROP_IN), None))
    return Attack(name=f"containerd with {name}", harm=harm, values=values)


PASSWORDS = _attack("passwords that only root reads", WITH_PASSWORD, "0600")
WRAPPERS = tuple(_attack(f"a wrapper of {name}", WRAPPER % path) for name, path in WRAPPED.items())
CONFIGURATIONS = (PASSWORDS, *WRAPPERS, *(_attack(name, text) for name, text in ODD.items()))
