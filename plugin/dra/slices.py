"""The node's ResourceSlices: what they have to say, and which writes make them say it. Pure.

One pool of the node's name. A slice has at most 64 devices, as one with taints or counters may, or at most 8 sets of
counters: since 1.35 not both (`ResourceSliceMax…` in k8s.io/api/resource/v1, 1.37). Slices of other generations
than the pool's newest are ignored by the scheduler, so where more than one slice has to change, all are written with
the next generation.

Slices have names that follow from what they are, so a daemon that was killed makes none twice. Whoever may write slices
can take such a name first; they have a mark behind it then, which cannot be foreseen.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

from plugin.dra.devices import DRIVER, Features
from plugin.publication.node_object.api.messages import JSON, Request

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from plugin.dra.devices import DraDevice

    Json = dict[str, Any]

PATH = "/apis/resource.k8s.io/v1/resourceslices"
MOST_DEVICES, MOST_SETS = 64, 8
NEXT_DRIVER = "grapnel.dev/nextDriverVersion"  # attribute: a change of the driver is to come, and ends its claims
ALL_FEATURES = Features()
_NOBODYS = "tried.grapnel.dev"  # no driver has it, so no policy that is about slices of some drivers answers for all
_MAX_NODE = 200
_MARK = "[0-9a-f]{8}"
_RESOURCE = "resourceslices"


class Owner(NamedTuple):
    """The Node, with which slices go, and whose they are there. `mark` ends their names, where others took these."""

    name: str
    uid: str
    driver: str = DRIVER
    mark: str = ""


class Write(NamedTuple):
    """One write. `document` None: it is deleted."""

    name: str
    document: Json | None
    is_new: bool = False


def list_slices(node: str, *, watch_s: int = 0) -> Request:
    """Ask for the slices of the node, once or for so many seconds; its own identity may ask for no others."""
    query = {"fieldSelector": f"spec.nodeName={node}"}
    if watch_s:
        query |= {"watch": "true", "timeoutSeconds": str(watch_s), "allowWatchBookmarks": "true"}
    return Request("GET", f"{PATH}?{urlencode(query)}", "watch" if watch_s else "list", _RESOURCE)


def foreign_writes(node: str) -> Iterator[tuple[str, Request]]:
    """Yield what an account of pods on a node must not write, in words, and the call that tries it for nothing.

    Whichever driver's slice it is: the account's role covers those of all.
    """
    other = f"not-{node}"[:_MAX_NODE].rstrip("-.")
    for of_node, pool, words in ((other, other, "of other nodes"), (node, other, "in pools of other nodes")):
        document = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"generateName": f"{other}-"},
            "spec": {
                "driver": _NOBODYS,
                "nodeName": of_node,
                "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "tried"}],
            },
        }
        yield words, Request("POST", f"{PATH}?dryRun=All", "create", _RESOURCE, JSON, json.dumps(document).encode())


def request_of(write: Write) -> Request:
    """Return the call that makes a write."""
    path = f"{PATH}/{quote(write.name)}"
    if write.document is None:
        return Request("DELETE", path, "delete", _RESOURCE)
    body = json.dumps(write.document).encode()
    if write.is_new:
        return Request("POST", PATH, "create", _RESOURCE, JSON, body)
    return Request("PUT", path, "update", _RESOURCE, JSON, body)


def is_ours(document: Mapping[str, Any], node: str, driver: str = DRIVER) -> bool:
    """Whether a slice is this driver's, of this node."""
    spec = document.get("spec")
    return isinstance(spec, dict) and spec.get("driver") == driver and spec.get("nodeName") == node


def mark_of(owner: Owner, found: Sequence[Json]) -> str:
    """Return the mark that slices have by now, "" for none."""
    form = re.compile(f"{re.escape(_name(owner._replace(mark=''), ''))}(counters-)?[0-9]+-({_MARK})")
    marks = (found_in[2] for each in found if (found_in := form.fullmatch(each["metadata"]["name"])))
    return next(marks, "")


def announced(devices: Sequence[DraDevice], version: str) -> tuple[DraDevice, ...]:
    """Return the devices with the version of the driver that they are about to have; "" where none is to come."""
    if not version:
        return tuple(devices)
    attribute = {NEXT_DRIVER: {"version": version}}
    return tuple(each._replace(attributes={**each.attributes, **attribute}) for each in devices)


def plan_writes(
    owner: Owner, devices: Sequence[DraDevice], found: Sequence[Json], features: Features = ALL_FEATURES
) -> tuple[Write, ...]:
    """Return the writes after which the node's slices say just these devices. `found` are those of this driver."""
    parts_by_name = _parts(owner, devices, features)
    known = {each["metadata"]["name"]: each for each in found}
    generations = [_generation(each) for each in found]
    generation = max(generations, default=1)
    stale = [name for name in known if name not in parts_by_name]
    right = {name for name, each in known.items() if _is_of(each, owner) and _says(each, parts_by_name.get(name, {}))}
    wrong = [name for name in parts_by_name if name not in right]
    is_one_pool = set(generations) <= {generation} and all(_count(each) == len(parts_by_name) for each in found)
    if not stale and not wrong and is_one_pool:
        return ()
    is_one_write = len(parts_by_name) == 1 and not stale and is_one_pool
    if not is_one_write:
        generation, wrong = generation + bool(found), list(parts_by_name)
    pool = {"name": owner.name, "generation": generation, "resourceSliceCount": len(parts_by_name)}
    writes = [
        Write(name, _document(owner, name, parts_by_name[name], pool, known.get(name)), name not in known)
        for name in wrong
    ]
    return (*writes, *(Write(name, None) for name in stale))


def has_counters(write: Write) -> bool:
    """Whether a write is about partitions."""
    spec = {} if write.document is None else write.document["spec"]
    return "sharedCounters" in spec or any("consumesCounters" in row for row in spec.get("devices", ()))


def kept_features(features: Features, written: Json, answer: Json) -> Features:
    """Return which of these features an API has that took a slice so."""
    sent, kept = written["spec"], answer.get("spec", {})

    def is_dropped(key: str) -> bool:
        has, had = (any(key in row for row in spec.get("devices") or ()) for spec in (kept, sent))
        return had and not has

    return Features(
        features.taints and not is_dropped("taints"),
        features.shares and not is_dropped("allowMultipleAllocations"),
        features.counters
        and not is_dropped("consumesCounters")
        and bool(kept.get("sharedCounters")) == ("sharedCounters" in sent),
    )


def _parts(owner: Owner, devices: Sequence[DraDevice], features: Features) -> dict[str, Json]:
    """Return what each slice has to say, by its name. Counters come first: without them no partition may be offered."""
    shown = [
        each for each in devices if (features.taints or not each.unhealthy) and (features.counters or each.draw is None)
    ]
    sets = {each.draw.of.name: each.draw.of.to_json() for each in shown if each.draw is not None}
    counters = _cut(list(sets.values()), MOST_SETS)
    rows = _cut([each.to_json(features) for each in shown], MOST_DEVICES)
    return {
        **{_name(owner, f"counters-{number}"): {"sharedCounters": part} for number, part in enumerate(counters)},
        **{_name(owner, str(number)): {"devices": part} for number, part in enumerate(rows)},
    }


def _cut(rows: Sequence[Json], most: int) -> list[list[Json]]:
    return [list(rows[start : start + most]) for start in range(0, len(rows), most)]


def _name(owner: Owner, end: str) -> str:
    node = owner.name
    mark = f"-{hashlib.sha256(node.encode()).hexdigest()[:8]}" if len(node) > _MAX_NODE else ""
    return f"{node[:_MAX_NODE]}{mark}-{owner.driver}-{end}{owner.mark and f'-{owner.mark}'}"


def _document(owner: Owner, name: str, part: Json, pool: Json, known: Json | None) -> Json:
    metadata: Json = {
        "name": name,
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": owner.name, "uid": owner.uid, "controller": True}
        ],
    }
    if known is not None:
        metadata["resourceVersion"] = known["metadata"].get("resourceVersion", "")
        if "devices" in part:
            part = {"devices": _with_times(part["devices"], known)}
    spec = {"driver": owner.driver, "nodeName": owner.name, "pool": pool, **part}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": metadata, "spec": spec}


def _with_times(rows: Sequence[Json], known: Json) -> list[Json]:
    """Return devices whose taints keep the time that the API gave them: without it they would begin anew."""
    times = {
        (row.get("name"), taint.get("key")): taint["timeAdded"]
        for row in known["spec"].get("devices") or ()
        for taint in row.get("taints") or ()
        if "timeAdded" in taint
    }
    return [
        {**row, "taints": [_with_time(taint, times.get((row["name"], taint["key"]))) for taint in row["taints"]]}
        if "taints" in row
        else row
        for row in rows
    ]


def _with_time(taint: Json, time: str | None) -> Json:
    return taint if time is None else {**taint, "timeAdded": time}


def _is_of(document: Json, owner: Owner) -> bool:
    """Whether it goes with this Node, and not with one of the same name before it: then it is about to be deleted."""
    return any(each.get("uid") == owner.uid for each in document["metadata"].get("ownerReferences") or ())


def _says(document: Json, part: Json) -> bool:
    spec = document["spec"]
    found = [_without_times(row) for row in spec.get("devices") or ()]
    sets = spec.get("sharedCounters") or []
    return (found, sets) == (part.get("devices", []), part.get("sharedCounters", []))


def _without_times(row: Json) -> Json:
    if "taints" not in row:
        return row
    taints = [{key: value for key, value in taint.items() if key != "timeAdded"} for taint in row["taints"]]
    return {**row, "taints": taints}


def _generation(document: Json) -> int:
    return int(document["spec"]["pool"].get("generation", 0))


def _count(document: Json) -> int:
    return int(document["spec"]["pool"].get("resourceSliceCount", 0))
