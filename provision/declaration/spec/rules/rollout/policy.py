"""Checks rules across the keys of the section `rollout`, as far as the declaration alone shows them.

Whether groups and hosts of waves exist is judged where the inventory is known, in `provision.declaration.fleet`.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from provision.declaration.spec.model import AtTimeout, Expect, Gate, Holds, ReplaceFirst, WaitFor
from provision.declaration.spec.rules.remark import error, warning
from provision.declaration.spec.rules.rollout.when import judge_when
from provision.declaration.spec.text.excerpt import few

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.declaration.spec.model import Drain, QueryGate, Rollout, Wave
    from provision.declaration.spec.rules.remark import Remark
    from provision.declaration.spec.text.findings import KeyPath

WAVES: Final[KeyPath] = ("rollout", "waves")
_WHOLE: Final = 100


def judge_rollout(rollout: Rollout) -> Iterator[Remark]:
    """Yield every rule that the section does not keep, errors and warnings."""
    return chain(
        _limits(rollout),
        judge_domains(rollout),
        judge_drain(rollout),
        _chosen(rollout),
        _last(rollout),
        _overlaps(rollout),
        judge_when(rollout),
        judge_gates(rollout),
        judge_notify(rollout),
    )


def _limits(rollout: Rollout) -> Iterator[Remark]:
    if isinstance(rollout.max_unavailable, int) and rollout.max_parallel > rollout.max_unavailable:
        message = f"never more than maxUnavailable ({rollout.max_unavailable}) nodes change at once"
        yield warning(("rollout", "maxParallel"), message, "raise maxUnavailable, or lower maxParallel")


def _chosen(rollout: Rollout) -> Iterator[Remark]:
    waves = rollout.waves
    for index, wave in enumerate(waves[:-1]):
        if wave.size is None and not wave.groups and not wave.hosts:
            message = "takes all nodes, so that the waves after it have none"
            yield error((*WAVES, index), message, "give it a size, groups or hosts; only the last wave takes the rest")
    percents = [
        int(wave.size.removesuffix("%")) for wave in waves[:-1] if isinstance(wave.size, str) and not _selects(wave)
    ]
    if sum(percents) >= _WHOLE:
        message = f"the waves before the last one take {sum(percents)}% of the nodes, and leave none for it"
        yield error(WAVES, message, "lower their sizes to less than 100% together")


def _last(rollout: Rollout) -> Iterator[Remark]:
    waves = rollout.waves
    if not waves:
        return
    last, path = waves[-1], (*WAVES, len(waves) - 1)
    if last.size is not None or _selects(last):
        hint = "leave size, groups and hosts out, or add a wave after it: `- {}`"
        yield error(path, "is the last wave, and does not take all nodes that are left", hint)
    if last.soak_minutes or last.gate is not Gate.HEALTHY:
        hint = "leave soakMinutes and gate out, or add a wave after it"
        yield warning(path, "nothing waits for the last wave: its soak and its gate have no effect", hint)


def _overlaps(rollout: Rollout) -> Iterator[Remark]:
    seen: dict[tuple[str, str], int] = {}
    for index, wave in enumerate(rollout.waves):
        named = [("name", wave.name)] if wave.name else []
        hosts = [("host", host) for host in wave.hosts]
        groups = [("group", group) for group in wave.groups if wave.size is None]
        for kind, value in (*named, *hosts, *groups):
            if (kind, value) in seen:
                hint = (
                    "a node is in one wave: the first that selects it"
                    if kind != "name"
                    else "messages name waves by it"
                )
                message = f"{kind} '{value}' is in wave {seen[kind, value] + 1} already"
                yield error((*WAVES, index), message, hint)
            seen.setdefault((kind, value), index)


def _selects(wave: Wave) -> bool:
    return bool(wave.groups or wave.hosts)


NOTIFY: Final[KeyPath] = ("rollout", "notify")


def judge_notify(rollout: Rollout) -> Iterator[Remark]:
    """Yield what is contradictory or in vain about receivers."""
    seen: dict[tuple[str | None, str | None], int] = {}
    for index, one in enumerate(rollout.notify):
        path = (*NOTIFY, index)
        if (one.url is None) == (one.url_file is None):
            what = "has no place to send to" if one.url is None else "has two places to send to"
            yield error(path, what, "write url, or urlFile where the URL is a secret itself")
            continue
        if not one.events:
            yield warning((*path, "events"), "the receiver is told nothing", "name events, or leave the key out")
        first = seen.setdefault((one.url, one.url_file), index)
        if first != index:
            yield error(path, f"is the same receiver as entry {first + 1}", "put the events of both into one entry")


GATES: Final[KeyPath] = ("rollout", "gates")
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_TEXT_OF_QUERY: Final = re.compile(r'"(\\.|[^"\\])*"|\'(\\.|[^\'\\])*\'|`[^`]*`|#.*')
_BOOL: Final = re.compile(r"\bbool\b")


def judge_gates(rollout: Rollout) -> Iterator[Remark]:
    """Yield every rule that is not kept."""
    seen: dict[str, int] = {}
    for index, gate in enumerate(rollout.gates):
        path = (*GATES, index)
        if gate.name in seen:
            yield error((*path, "name"), f"gate {seen[gate.name] + 1} is named '{gate.name}', too", "name it otherwise")
        seen.setdefault(gate.name, index)
        if gate.holds is Holds.WAVES and not rollout.waves:
            yield error((*path, "holds"), "there are no waves to hold", "declare rollout.waves, or holds: nodes")
        yield from _query(gate, path)
        url = urlsplit(gate.prometheus)
        if gate.token_file is not None and url.scheme == "http" and url.hostname not in _LOOPBACK:
            yield error((*path, "tokenFile"), "the token could be read on its way to prometheus", "write https://")


def _query(gate: QueryGate, path: KeyPath) -> Iterator[Remark]:
    """Yield that a query returns a sample whatever is true, so that its gate would say nothing."""
    if _BOOL.search(_TEXT_OF_QUERY.sub("", gate.query)):
        always = "never" if gate.expect is Expect.NOTHING else "always"
        message = f"a comparison with bool returns a sample also where it is false: the gate would {always} be open"
        yield error((*path, "query"), message, "leave bool out")


WAIT: Final[KeyPath] = ("rollout", "waitFor")
DRAIN: Final[KeyPath] = ("rollout", "drain")
REPLACE: Final[KeyPath] = (*DRAIN, "replaceFirst")


def judge_drain(rollout: Rollout) -> Iterator[Remark]:
    """Yield what the two sections say in vain."""
    wait, drain = rollout.wait_for, rollout.drain
    is_limited = wait.timeout_minutes != WaitFor().timeout_minutes
    if is_limited and not wait.pod_selector and not wait.namespaces and not drain.spares_pods:
        message = "limits a wait for pods of which none is selected"
        yield warning((*WAIT, "timeoutMinutes"), message, "name them with podSelector or namespaces, or take it away")
    both = sorted(set(wait.namespaces) & set(drain.only_wait))
    if is_limited and both and wait.on_timeout is AtTimeout.EVICT:
        message = f"pods of {few(both)} are not evicted after timeoutMinutes: onlyWait excludes it"
        yield warning((*DRAIN, "onlyWait"), message, "name a namespace in one of the two lists")
    yield from _replace_first(wait, drain)


def _replace_first(wait: WaitFor, drain: Drain) -> Iterator[Remark]:
    """Yield why pods that are to be replaced first are not, or never leave."""
    first = drain.replace_first
    if not first.selects:
        if first.otherwise is not ReplaceFirst().otherwise:
            message = "is about pods of which none is selected"
            yield warning((*REPLACE, "otherwise"), message, "name them with podSelector or namespaces, or take it away")
        return
    never = sorted(set(first.namespaces) & set(drain.only_wait))
    if never:
        message = f"pods of {few(never)} are never evicted, so none is replaced: onlyWait excludes it"
        yield warning((*REPLACE, "namespaces"), message, "name a namespace in one of the two lists")
    is_same = wait.pod_selector == first.pod_selector and set(wait.namespaces) == set(first.namespaces)
    if is_same and not wait.timeout_minutes:
        message = "the same pods are waited for as long as it takes: none is ever replaced"
        yield warning(REPLACE, message, "give waitFor.timeoutMinutes, or select other pods")
    elif is_same and wait.on_timeout is AtTimeout.GIVE_UP:
        message = "the same pods are waited for, and their node is given up after that: none is ever replaced"
        yield warning(REPLACE, message, "declare waitFor.onTimeout: evict, or select other pods")


DOMAINS: Final[KeyPath] = ("rollout", "domains")


def judge_domains(rollout: Rollout) -> Iterator[Remark]:
    """Yield every rule about domains that is not kept."""
    domains = rollout.domains
    if domains is None:
        return
    if domains.node_label is not None and domains.groups:
        hint = "leave one of them out: a node's domain is the value of its label, or the group that it is in"
        yield error(DOMAINS, "nodeLabel and groups cannot both say which domain a node is in", hint)
    elif domains.node_label is None and not domains.groups:
        yield error(
            DOMAINS, "nothing says which domain a node is in", "write nodeLabel or groups, or leave domains out"
        )
