"""A deliberately naive reader that trusts what a node prints: it proves that an attack would succeed.

Never used by anything but the tests. Each step is what a controller once did, here or elsewhere: events are looked for
in all that is printed, texts are templates, variables come from answers, and what fails fails for everybody.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field
from typing import Any

from tests.attack.attacks import Harm
from tests.attack.stand_ins import CONTROLS

EVENT = re.compile(r"\x1b\[K((?:[A-Za-z0-9+/=]+\x1b\[\d+D)+)\x1b\[K")
SENDER = "n1"


@dataclass
class Belief:
    """What the reader accepted: results by node, its own variables, hosts, its output and the commands it ran."""

    results: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, Any] = field(default_factory=dict)
    hosts: list[Any] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)


def read(output: bytes, errors: str) -> Belief:
    """Believe everything that a node printed."""
    text = output.decode()
    start = text.index("{")
    answer, end = json.JSONDecoder().raw_decode(text, start)
    belief = Belief(variables=answer.get("ansible_facts", {}), shown=_words(answer))
    belief.results[SENDER] = [package["version"] for package in answer["facts"]["packages"].values()]
    belief.hosts += [answer["add_host"]["host_name"]] if "add_host" in answer else []
    belief.hosts += [answer["add_group"]] if "add_group" in answer else []
    belief.variables |= answer.get("ansible_stats", {}).get("data", {})
    belief.ran = [text for text in _texts(answer) if "{{" in text and text.encode()]
    printed = "\n".join([text[:start], *belief.shown, text[end:], errors])
    belief.results.update(_events(printed))
    printed.encode()
    return belief


def _words(answer: dict[str, Any]) -> list[str]:
    """Return what Ansible and the reader show of an answer."""
    deprecated = [one["msg"] for one in answer.get("deprecations", ())]
    said = [answer.get(key, "").strip() for key in ("msg", "exception", "stdout", "stderr")]
    items = [item["msg"].strip() for item in answer.get("results", ())]
    node = answer["facts"]["node"]
    keys = [*answer["facts"]["packages"]]
    return [*answer.get("warnings", ()), *deprecated, *said, *items, *keys, node["hostname"], node["kernel"]]


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    parts = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for part in parts for text in _texts(part)]


def _events(output: str) -> list[tuple[str, Any]]:
    decoded = [base64.b64decode(re.sub(r"\x1b\[\d+D", "", found)) for found in EVENT.findall(output)]
    events = [event for event in map(json.loads, decoded) if event]
    said = [event["event_data"] for event in events if event["event"] != "playbook_on_stats"]
    counted = [(node, "counted") for event in events for node in event["event_data"].get("processed", {})]
    return [(data["host"], data["res"].get("facts")) for data in said] + counted


def harm(output: bytes, errors: str = "") -> set[Harm]:
    """Return what believing this output comes to."""
    try:
        belief = read(output, errors)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return {Harm.BUG}
    found = {
        Harm.ANOTHER_NODE: belief.results.keys() - {SENDER},
        Harm.CONTROLLER: belief.variables or belief.hosts,
        Harm.TEMPLATE: belief.ran,
        Harm.TERMINAL: any(CONTROLS.search(text) or "\n" in text for text in belief.shown),
    }
    return {Harm.PLAUSIBLE, *(kind for kind, there in found.items() if there)}
