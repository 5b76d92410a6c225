"""Compares the quotas, priorities and queues of a cluster with what a stack declares, and applies what differs.

By server-side apply, never with force: what others have set stays, and is told. A comparison is the same
requests as a dry run, so that whatever the API server would refuse, or change by itself, is known beforehand.

An object of ours has a label, by which it is found when it is declared no more. What several stacks declare alike is
theirs together, and goes with the last of them. Whatever is killed half-way is finished by the next apply.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from provision.cluster.errors import ForbiddenError, RefusedError
from provision.cluster.kubernetes.access import require_tenancy
from provision.cluster.kubernetes.api.client import CONFLICT, NOT_FOUND
from provision.cluster.kubernetes.api.exchange import APPLY_PATCH, Request, StatusError
from provision.cluster.kubernetes.api.parallel import each
from provision.cluster.kubernetes.tenancy.found import Found, contents, differences, manager_of, short, title, who
from provision.cluster.kubernetes.tenancy.served import look
from provision.planning.render.cluster_object import TENANCY_LABEL
from provision.planning.render.kueue import KUEUE_KINDS, render_kueue
from provision.planning.render.tenancy import KINDS, render_tenancy
from provision.rollout.errors import ClusterError
from provision.rollout.interface.tenancy import TenancyChange

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from provision.cluster.kubernetes.api.client import Api
    from provision.cluster.kubernetes.objects.core import Status
    from provision.planning.render.cluster_object import ClusterObject, ObjectKind
    from provision.rollout.interface.tenancy import TenancyOrder

_FIELD_CONFLICT: Final = "FieldManagerConflict"
_ATTEMPTS: Final = 3


class TenancyKeeper:
    """Keeps the objects of tenancy. ``acting`` is the API for changes; a comparison asks it for dry runs."""

    def __init__(self, api: Api, acting: Api) -> None:
        self._api, self._acting = api, acting

    def compare(self, order: TenancyOrder) -> TenancyChange:
        """Return what `bring` would do now. Raises ClusterError; ForbiddenError names every missing rule."""
        return self._carry_out(order, is_dry=True)

    def bring(self, order: TenancyOrder) -> TenancyChange:
        """Make the cluster as declared, and return what was done. Raises the same."""
        return self._carry_out(order, is_dry=False)

    def _carry_out(self, order: TenancyOrder, *, is_dry: bool) -> TenancyChange:
        served = look(self._api, order)
        try:
            found = self._ours(served.kinds)
        except ForbiddenError:
            if not order:
                return TenancyChange(order=order)  # who may not look has never made anything
            require_tenancy(self._api, kueue=served.has_kueue)
            raise
        wanted = [*render_tenancy(order.tenancy), *(render_kueue(order.tenancy) if served.has_kueue else ())]
        round_ = _Round(self._api, self._acting, order.stack, is_dry=is_dry)
        try:
            done = [*self._apply(round_, wanted, found), *self._take_back(round_, wanted, found)]
        except ForbiddenError:
            require_tenancy(self._api, kueue=served.has_kueue)
            raise
        return TenancyChange(
            order=order,
            changes=tuple(one.change for one in done if one.change),
            problems=(*served.problems, *(one.problem for one in done if one.problem)),
        )

    def _ours(self, kinds: Sequence[ObjectKind]) -> dict[tuple[str, str, str], Found]:
        listed = [
            Found(kind, bytes(raw))
            for kind in kinds
            for raw in self._api.list_all(kind.everywhere, msgspec.Raw, labels=TENANCY_LABEL)
        ]
        # Items of a list have neither kind nor apiVersion; which they are is known.
        return {one.key: one for one in listed}

    def _apply(
        self, round_: _Round, wanted: Sequence[ClusterObject], found: Mapping[tuple[str, str, str], Found]
    ) -> Iterator[_Done]:
        """Apply kind by kind: what is named by others is there before them."""
        for kind in (*KINDS, *KUEUE_KINDS):
            mine = [one for one in wanted if one.kind is kind]
            for done in each(lambda one: round_.apply(one, found.get(one.key)), mine):
                if isinstance(done, ClusterError):
                    raise done
                yield done

    def _take_back(
        self, round_: _Round, wanted: Sequence[ClusterObject], found: Mapping[tuple[str, str, str], Found]
    ) -> Iterator[_Done]:
        """Take away what this stack has applied and declares no more, in the opposite order."""
        keys = {one.key for one in wanted}
        for kind in reversed((*KINDS, *KUEUE_KINDS)):
            gone = [one for one in found.values() if one.kind is kind and one.key not in keys and round_.has(one)]
            for done in each(round_.take_back, gone):
                if isinstance(done, ClusterError):
                    raise done
                yield done


@dataclass(frozen=True, slots=True)
class _Done:
    """What became of one object: a change, a problem, or nothing of the kind."""

    change: str = ""
    problem: str = ""


class _Round:
    """One comparison, or one apply, for a stack. `apply` and `take_back` may be called by several threads."""

    def __init__(self, api: Api, acting: Api, stack: str, *, is_dry: bool) -> None:
        self._api, self._acting, self._stack, self._is_dry = api, acting, stack, is_dry
        self._query: dict[str, str | int] = {"fieldManager": manager_of(stack)}
        if is_dry:
            self._query["dryRun"] = "All"

    def has(self, found: Found) -> bool:
        """Tell whether this stack is among those that apply an object."""
        return self._stack in found.stacks

    def apply(self, wanted: ClusterObject, found: Found | None) -> _Done:
        """Bring one object to what is declared."""
        for attempt in range(1, _ATTEMPTS + 1):
            live = found if found is not None and attempt == 1 else self._read(wanted)
            if (problem := self._foreign(wanted, live)) is not None:
                return _Done(problem=problem)
            try:
                if live is not None and live.differs_in_fixed(wanted):
                    return self._make_again(wanted, live)
                return self._applied(wanted, live)
            except StatusError as error:
                if error.code == NOT_FOUND:
                    return _Done(problem=_nowhere(wanted))
                if causes := _field_conflicts(error.status):
                    return _Done(problem=f"{title(wanted)} {'; '.join(causes)}")
            except RefusedError as error:
                return _Done(problem=f"{title(wanted)}: {error.message}")
        return _Done(problem=f"{title(wanted)} is changed by others again and again: apply once more")

    def _foreign(self, wanted: ClusterObject, live: Found | None) -> str | None:
        """Return why an object is not touched, None where it may be."""
        if live is None:
            return None
        if not live.is_ours:
            hint = "rename one of them, or delete it if nobody needs it"
            return f"{title(wanted)} is there already, and is not grapnel's: {live.owners} made it ({hint})"
        if live.is_going:
            return f"{title(wanted)} is being deleted, and something still uses it: apply again when it is gone"
        others = live.stacks - {self._stack}
        if others and live.differs_in_fixed(wanted):
            told = ", ".join(differences(live.content, {**live.content, **wanted.content}))
            return f"{title(wanted)} is declared otherwise by stack {', '.join(sorted(others))}: {told}"
        return None

    def _applied(self, wanted: ClusterObject, live: Found | None) -> _Done:
        body = wanted.manifest("" if live is None else live.uid)
        request = Request(method="PATCH", path=wanted.path, query=self._query, body=body, content_type=APPLY_PATCH)
        raw = self._acting.call(request, msgspec.Raw, expected=(CONFLICT, NOT_FOUND))
        if live is None:
            return _Done(change=f"{title(wanted)} is created: {contents(wanted.content)}")
        told = differences(live.content, Found(wanted.kind, bytes(raw)).content)
        if not told and not self.has(live):
            return _Done(change=f"{title(wanted)} is declared by stack {', '.join(sorted(live.stacks))} as well")
        return _Done(change=f"{title(wanted)}: {', '.join(told)}" if told else "")

    def _make_again(self, wanted: ClusterObject, live: Found) -> _Done:
        """Exchange an object with an immutable field; a killed apply leaves none, and the next makes it."""
        told = ", ".join(differences(live.content, {**live.content, **wanted.content}))
        self._delete(live)
        if not self._is_dry:
            self._applied(wanted, None)
        return _Done(change=f"{title(wanted)} is made again: {told}")

    def take_back(self, found: Found) -> _Done:
        """Let go of an object: it is deleted, unless another stack declares it."""
        others = sorted(found.stacks - {self._stack})
        try:
            if others:
                self._let_go(found)
                return _Done(change=f"{title(found)} stays, by stack {', '.join(others)} alone")
            if found.is_going:
                return _Done()
            self._delete(found)
        except StatusError:  # it has gone, or is another one by now
            return _Done()
        except RefusedError as error:
            return _Done(problem=f"{title(found)}: {error.message}")
        return _Done(change=f"{title(found)} is deleted: it is declared no more")

    def _let_go(self, found: Found) -> None:
        """Apply nothing of it: what no other stack declares goes."""
        _plural, namespace, name = found.key
        metadata = {"name": name, "uid": found.uid} | ({"namespace": namespace} if namespace else {})
        body = {"apiVersion": found.kind.api_version, "kind": found.kind.kind, "metadata": metadata}
        request = Request(method="PATCH", path=found.path, query=self._query, body=body, content_type=APPLY_PATCH)
        self._acting.call(request, msgspec.Raw, expected=(CONFLICT, NOT_FOUND))

    def _delete(self, found: Found) -> None:
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": found.uid}}
        if self._is_dry:
            body["dryRun"] = ["All"]  # beside a body, what the query says is ignored
        request = Request(method="DELETE", path=found.path, body=body)
        self._acting.call(request, msgspec.Raw, expected=(CONFLICT, NOT_FOUND))

    def _read(self, wanted: ClusterObject) -> Found | None:
        try:
            raw = self._api.call(Request(method="GET", path=wanted.path), msgspec.Raw, expected=(NOT_FOUND,))
        except StatusError:
            return None
        return Found(wanted.kind, bytes(raw))


def _nowhere(wanted: ClusterObject) -> str:
    create = f"kubectl create namespace {wanted.namespace}"
    return f"{title(wanted)}: there is no namespace {wanted.namespace} (`{create}`, then apply again)"


def _field_conflicts(status: Status) -> list[str]:
    """Return which fields others have set, and who; nothing where a conflict is about something else."""
    return [
        f"keeps {short(cause.field)}, which {_manager(cause.message)} has set to another value"
        for cause in status.details.causes
        if cause.reason == _FIELD_CONFLICT
    ]


def _manager(message: str) -> str:
    """Return who is meant by 'conflict with "kubectl-edit" using v1'."""
    parts = message.split('"')
    return who(parts[1]) if len(parts) > 1 else message
