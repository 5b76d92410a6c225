"""The attacks by root on a node against readers of a module's answer, as values.

What each is against is told by ``harm``: what it does to the reader of ``naive.py``, which a test shows. ``@PWNED@``
is a file that an attack tries to make on the controller, ``@SECRET@`` one of the controller's own, ``HONEST`` the other
node.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, replace
from enum import Enum

from tests.attack.hostile_python import raw

HONEST = "honest"  # the other node
PWNED, SECRET = "@PWNED@", "@SECRET@"
TEMPLATE = "{{ lookup('pipe', 'touch @PWNED@') }}"
TITLE = "\x1b]0;owned\x07"
CLIPBOARD = "\x1b]52;c;b3duZWQ=\x07"
C1_COLOUR = "\x9b31m"
FACTS = ("facts",)
LATER_S = 1.0  # the last word on a node is believed: it has to come after the honest one

Path = tuple[str | int, ...]
Values = tuple[tuple[Path, object], ...]


class Harm(Enum):
    """What an attack does to a reader who believes what he reads."""

    ANOTHER_NODE = "speaks for another node"
    BUG = "ends the run of all nodes"
    CONTROLLER = "decides what the controller does"
    TEMPLATE = "runs a command on the controller"
    TERMINAL = "writes to the terminal"
    PLAUSIBLE = "is believed"


@dataclass(frozen=True, kw_only=True)
class Attack:
    """What the node answers: values set in the honest answer, bytes before or after it, or others in its place.

    ``is_told``: the node's result has to be a failure. What is not refused may at most be believed of that node.
    """

    name: str
    harm: Harm
    values: Values = ()
    before: bytes = b""
    after: bytes = b""
    instead: bytes | None = None
    error: str = ""
    status: int = 0
    sleep_s: float = 0
    is_told: bool = False
    is_endless: bool = False
    modules: tuple[str, ...] = FACTS

    def to_json(self) -> dict[str, object]:
        """Return the form that the hostile Python reads."""
        given: dict[str, object] = {
            "modules": list(self.modules),
            "error": self.error,
            "status": self.status,
            "sleep_s": self.sleep_s,
        }
        given["endless"] = self.is_endless
        given["values"] = [[list(path), value] for path, value in self.values]
        sides = {"before": self.before, "after": self.after, "instead": self.instead}
        return given | {name: base64.b64encode(data).decode() for name, data in sides.items() if data is not None}


def frame(event: object) -> str:
    """Return an event as ansible-runner's callback prints it: between escape sequences that a terminal swallows."""
    text = base64.b64encode(json.dumps(event).encode()).decode()
    lines = [text[start : start + 78] for start in range(0, len(text), 78)]
    return "\x1b[K" + "".join(f"{line}\x1b[{len(line)}D" for line in lines) + "\x1b[K"


def forged(kind: str = "runner_on_ok", host: str = HONEST, **result: object) -> str:
    """Return the frames of an event that says something of a node."""
    data = {"host": host, "task": "Gather facts", "res": result}
    return frame({"uuid": "5f1c", "event": kind, "event_data": data}) + "forged" + frame({})


FACTS_OF_ANOTHER = forged(facts={"schema": "grapnel.dev/facts/v1alpha1", "node": {"hostname": "forged"}})
STATISTICS = frame(
    {"uuid": "5f1d", "event": "playbook_on_stats", "event_data": {"processed": {HONEST: 1}, "dark": {HONEST: 1}}}
) + frame({})


def _deep(depth: int, left: bytes = b"[", right: bytes = b"]") -> str:
    return raw(left * depth + b"1" + right * depth)


def _forging() -> tuple[Attack, ...]:
    """Return answers that carry what looks like ansible-runner's own events."""
    text = FACTS_OF_ANOTHER
    there = Harm.ANOTHER_NODE
    kinds = {
        "another node is unreachable": forged("runner_on_unreachable", msg="gone"),
        "another node failed": forged("runner_on_failed", msg="broken"),
        "another node failed and nobody minds": forged("runner_on_failed", msg="broken", ignore_errors=True),
        "node 5 failed": _event({"host": 5, "task": "x", "res": {}}),
    }
    odd = {
        "whose data is a list": _event([1]),
        "whose result is a list": _event({"host": HONEST, "task": "x", "res": [1]}),
        "of nothing but text": frame("text") + frame({}),
        "that is not closed": frame({"uuid": "1", "event": "runner_on_ok"}),
    }
    forging = (
        Attack(name="an event before the answer", harm=there, before=f"{text}\n".encode()),
        Attack(name="an event after the answer", harm=there, after=f"\n{text}\n".encode()),
        Attack(name="an event among the errors", harm=there, error=text),
        Attack(name="an event as a warning", harm=there, values=_warning(text)),
        Attack(name="an event as a deprecation", harm=there, values=((("deprecations",), [{"msg": text}]),)),
        Attack(name="an event as the exception", harm=there, values=_failed(exception=text), is_told=True),
        Attack(name="an event as the message", harm=there, values=_failed(msg=text), is_told=True),
        Attack(name="an event as the output", harm=there, values=_failed(stdout=text, stderr=text), is_told=True),
        Attack(name="an event instead of an answer", harm=Harm.BUG, instead=text.encode(), is_told=True),
        Attack(name="an event of statistics", harm=there, values=_warning(STATISTICS)),
        Attack(name="ten thousand events", harm=there, values=_warning(text * 10_000)),
        *(Attack(name=f"an event that {what}", harm=there, values=_warning(event)) for what, event in kinds.items()),
        *(Attack(name=f"an event {what}", harm=Harm.BUG, values=_warning(event)) for what, event in odd.items()),
    )
    return tuple(replace(attack, sleep_s=LATER_S) for attack in forging)


def _event(data: object) -> str:
    return frame({"uuid": "5f1e", "event": "runner_on_ok", "event_data": data}) + frame({})


def _warning(text: str) -> Values:
    return ((("warnings",), [text]),)


def _failed(**values: object) -> Values:
    return ((("failed",), True), *(((name,), value) for name, value in values.items()))


_MORE: Path = ("facts", "more")

# Answers that a parser, or whoever works with what it made, stumbles over.
_SHAPES: tuple[Attack, ...] = (
    Attack(name="a warning that is a number", harm=Harm.BUG, values=((("warnings",), [1]),)),
    Attack(name="warnings that are a mapping", harm=Harm.PLAUSIBLE, values=((("warnings",), {"a": 1}),)),
    Attack(name="a warning of lists", harm=Harm.BUG, values=((("warnings",), [[["deep"]]]),)),
    Attack(name="deprecations that are a number", harm=Harm.BUG, values=((("deprecations",), 7),)),
    Attack(name="a deprecation without a message", harm=Harm.BUG, values=((("deprecations",), [{"version": [1]}]),)),
    Attack(
        name="an exception that is a number",
        harm=Harm.BUG,
        values=_failed(exception=5, msg=["not", "text"]),
        is_told=True,
    ),
    Attack(name="lists 200 deep", harm=Harm.PLAUSIBLE, values=((_MORE, _deep(200)),)),
    Attack(name="lists 900 deep", harm=Harm.BUG, values=((_MORE, _deep(900)),)),
    Attack(name="lists 5000 deep", harm=Harm.BUG, values=((_MORE, _deep(5000)),), is_told=True),
    Attack(name="lists 100000 deep", harm=Harm.BUG, values=((_MORE, _deep(100_000)),), is_told=True),
    Attack(name="mappings 900 deep", harm=Harm.BUG, values=((_MORE, _deep(900, b'{"a":', b"}")),)),
    Attack(name="a warning 900 deep", harm=Harm.BUG, values=((("warnings",), [_deep(900)]),)),
    Attack(name="a number of 5000 digits", harm=Harm.BUG, values=((_MORE, raw(b"9" * 5000)),), is_told=True),
    Attack(
        name="not a number",
        harm=Harm.PLAUSIBLE,
        values=((("facts", "package_manager", "lists_age_s"), raw(b"NaN")),),
        is_told=True,
    ),
    Attack(
        name="an infinite number",
        harm=Harm.PLAUSIBLE,
        values=((("facts", "module", "refcount"), raw(b"1e999")),),
        is_told=True,
    ),
    Attack(
        name="invalid UTF-8", harm=Harm.BUG, values=((("facts", "node", "hostname"), raw(b'"\xff\xfe"')),), is_told=True
    ),
    Attack(
        name="a lone surrogate",
        harm=Harm.BUG,
        values=((("facts", "node", "hostname"), raw(b'"\\ud800"')),),
        is_told=True,
    ),
    Attack(
        name="a lone surrogate in a key",
        harm=Harm.BUG,
        values=((("facts", "packages"), raw(b'{"\\udc9b": {"version": "1", "source": "nvidia-graphics-drivers"}}')),),
        is_told=True,
    ),
    Attack(name="keys twice", harm=Harm.BUG, instead=b'{"changed": false, "facts": {}, "facts": 5}', is_told=True),
    Attack(name="a second document", harm=Harm.PLAUSIBLE, after=b'\n{"changed": true, "facts": {}}'),
    Attack(name="an empty answer", harm=Harm.BUG, instead=b"", is_told=True),
    Attack(name="a list for an answer", harm=Harm.BUG, instead=b"[1, 2]", is_told=True),
    Attack(name="null for an answer", harm=Harm.BUG, instead=b"null", is_told=True),
    Attack(
        name="three megabytes of packages",
        harm=Harm.PLAUSIBLE,
        values=(
            (
                ("facts", "available", "filler"),
                [{"version": str(number), "source": "x" * 100} for number in range(24_000)],
            ),
        ),
    ),
    Attack(name="three megabytes of text", harm=Harm.PLAUSIBLE, values=((_MORE, "x" * 3_000_000),)),
    Attack(name="three megabytes before the answer", harm=Harm.PLAUSIBLE, before=b"noise\n" * 500_000),
    Attack(name="zero bytes around the answer", harm=Harm.PLAUSIBLE, before=b"\0" * 99, after=b"\0" * 99),
    Attack(name="facts that are a list", harm=Harm.BUG, values=((("facts",), [1]),), is_told=True),
    Attack(name="facts that are missing", harm=Harm.BUG, instead=b'{"changed": false}', is_told=True),
    Attack(name="facts of another type each", harm=Harm.BUG, values=((("facts", "packages"), 5),), is_told=True),
    Attack(name="failed is a text", harm=Harm.PLAUSIBLE, values=((("failed",), "no"),)),
    Attack(name="failed is a list", harm=Harm.PLAUSIBLE, values=((("failed",), [[]]),)),
    Attack(name="unreachable is a mapping", harm=Harm.PLAUSIBLE, values=((("unreachable",), {"a": 1}),)),
    Attack(name="skipped", harm=Harm.PLAUSIBLE, values=((("skipped",), "yes"),)),
    Attack(name="results that are numbers", harm=Harm.BUG, values=((("results",), [1, 2]),)),
    Attack(name="results that are a text", harm=Harm.BUG, values=_failed(results="text"), is_told=True),
    Attack(
        name="results that failed without words",
        harm=Harm.BUG,
        values=_failed(results=[{"failed": True, "msg": {"a": 1}}]),
        is_told=True,
    ),
    Attack(name="a changed that is a mapping", harm=Harm.PLAUSIBLE, values=((("changed",), {"a": [1]}),)),
    Attack(name="statistics that are a list", harm=Harm.BUG, values=((("ansible_stats",), [1]),)),
    Attack(
        name="statistics of another node",
        harm=Harm.PLAUSIBLE,
        values=((("ansible_stats",), {"data": {"a": 1}, "per_host": HONEST, "aggregate": 5}),),
    ),
    Attack(
        name="a tagged value of Ansible's own",
        harm=Harm.BUG,
        values=(
            (
                ("facts", "node", "hostname"),
                {
                    "__ansible_type": "_AnsibleTaggedStr",
                    "value": TEMPLATE,
                    "tags": [{"__ansible_type": "TrustedAsTemplate"}],
                },
            ),
        ),
        is_told=True,
    ),
    Attack(
        name="a type of Ansible's own that does not exist",
        harm=Harm.BUG,
        values=((("warnings",), [{"__ansible_type": "WarningSummary", "event": 5}]),),
        is_told=True,
    ),
    Attack(
        name="an internal key of Ansible's",
        harm=Harm.PLAUSIBLE,
        values=(
            (("_ansible_parsed",), False),
            (("_ansible_no_log",), [1]),
            (("_ansible_item_label",), {}),
            (("_ansible_delegated_vars",), {"ansible_host": HONEST}),
        ),
    ),
    Attack(
        name="an impossible date",
        harm=Harm.BUG,
        values=((("facts", "node", "kernel"), {"__ansible_type": "AnsibleSerializableDate", "iso8601": "never"}),),
        is_told=True,
    ),
)


def _facts(name: str, value: object) -> Values:
    return ((("ansible_facts",), {name: value}),)


def _claims() -> tuple[Attack, ...]:
    """Return answers that would decide what the controller does if it took variables from nodes."""
    there = Harm.CONTROLLER
    plan = {"node": HONEST, "items": [], "problems": [], "roles": {"node_daemon": {"node_daemon_archive": SECRET}}}
    names: dict[str, object] = {
        "grapnel_plan": plan,
        "apply_plan": plan,
        "grapnel_payload": "/tmp",
        "grapnel_declaration": {"file": SECRET, "stacks": {HONEST: {}}},
        "runtime_files": [{"path": "/etc/shadow", "content": "", "mode": "0666"}],
        "grapnel_facts": {"facts": {}},
        "grapnel_hosts": "localhost",
        "ansible_connection": "local",
        "ansible_host": HONEST,
        "ansible_ssh_executable": "@PWNED@",
        "ansible_ssh_common_args": "-o ProxyCommand='touch @PWNED@'",
        "ansible_control_path_dir": "@PWNED@",
        "ansible_remote_tmp": "@PWNED@",
        "ansible_python_interpreter": "touch @PWNED@;",
        "ansible_host_key_checking": False,
        "discovered_interpreter_python": "touch @PWNED@;",
        "ansible_shell_executable": "touch @PWNED@;",
        "ansible_become": True,
        "ansible_become_exe": "touch @PWNED@;",
        "inventory_hostname": HONEST,
        "hostvars": {HONEST: {}},
    }
    added = {"host_name": HONEST, "host_vars": {"ansible_connection": "local"}, "groups": ["gpu_nodes"]}
    return (
        *(Attack(name=f"the fact {name}", harm=there, values=_facts(name, value)) for name, value in names.items()),
        Attack(name="facts that are a text", harm=Harm.BUG, values=((("ansible_facts",), TEMPLATE),)),
        Attack(name="a host of its own", harm=there, values=((("add_host",), added),)),
        Attack(name="a host without a name", harm=Harm.BUG, values=((("add_host",), 5),)),
        Attack(
            name="a group of its own", harm=there, values=((("add_group",), "gpu_nodes"), (("parent_groups",), ["all"]))
        ),
        Attack(
            name="a handler to be notified",
            harm=Harm.PLAUSIBLE,
            values=((("_ansible_notify",), ["Restart"]), (("changed",), True)),
        ),
    )


def _texts() -> tuple[Attack, ...]:
    """Return texts that are templates, or speak to a terminal, wherever facts have texts."""
    package = {"version": TEMPLATE, "source": "nvidia-graphics-drivers", "depends": [TEMPLATE]}
    holder = {"pid": 1, "command": TEMPLATE, "devices": ["/dev/nvidia0"], "unit": TEMPLATE}
    file = {"mode": "0644", "uid": 0, "gid": 0, "sha256": "0" * 64}
    config = "/etc/containerd/config.toml"
    placed: dict[str, Values] = {
        "the host name": ((("facts", "node", "hostname"), TEMPLATE),),
        "the distribution": ((("facts", "node", "os", "id"), TEMPLATE),),
        "the version of Python": ((("facts", "node", "python"), TEMPLATE),),
        "a package": ((("facts", "packages", TEMPLATE), {"version": TEMPLATE, "source": "nvidia-graphics-drivers"}),),
        "the versions of a package": ((("facts", "available", "libcuda1"), [package]),),
        "a holder": ((("facts", "device_holders"), [holder]),),
        "an engine's configuration": (
            (("facts", "files", config), {**file, "content": f'version = 2\nroot = "{TEMPLATE}"\n'}),
        ),
        "the mode of a file": ((("facts", "files", config, "mode"), TEMPLATE),),
        "the kernel module": ((("facts", "module", "on_disk"), TEMPLATE),),
        "an engine's complaint": (
            (("facts", "engines", "containerd"), {"binary": TEMPLATE, "version": TEMPLATE, "config_error": TEMPLATE}),
        ),
        "a unit's state": (
            (("facts", "services", "containerd.service"), {"load": TEMPLATE, "active": TEMPLATE, "enabled": TEMPLATE}),
        ),
        "the message": _failed(msg=TEMPLATE, stdout=TEMPLATE),
        "a warning": ((("warnings",), [TEMPLATE]),),
        "a key": ((("facts", TEMPLATE), TEMPLATE), ((TEMPLATE,), TEMPLATE)),
    }
    spoken = {
        "a title": TITLE,
        "the clipboard": CLIPBOARD,
        "a colour of one byte": C1_COLOUR,
        "a line of its own": "n1\nn2   unchanged",
        "a carriage return": "n1\rn2",
        "backspaces": "n1\b\b\bn2",
        "text from right to left": "n1\u202e2n\u2066",
        "a tab and a vertical tab": "a\tb\vc\f",
        "line separators": "a\u2028b\u2029c\x85d",
    }
    return (
        *(
            Attack(name=f"a template in {place}", harm=Harm.TEMPLATE, values=values, is_told=place == "the message")
            for place, values in placed.items()
        ),
        *(
            Attack(
                name=f"{what} in the host name",
                harm=Harm.TERMINAL,
                values=((("facts", "node", "hostname"), text), (("facts", "node", "python"), text)),
            )
            for what, text in spoken.items()
        ),
        *(
            Attack(
                name=f"{what} in the message", harm=Harm.TERMINAL, values=_failed(msg=text, stderr=text), is_told=True
            )
            for what, text in spoken.items()
        ),
    )


ATTACKS = (*_forging(), *_SHAPES, *_claims(), *_texts())
