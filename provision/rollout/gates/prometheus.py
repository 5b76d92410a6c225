"""Asks one query of an HTTP API that is Prometheus'. Its answer is read strictly; its token is never shown.

No redirect is followed, so that a token goes nowhere else, and no proxy is used.
https://prometheus.io/docs/prometheus/latest/querying/api/
"""

from __future__ import annotations

import http.client
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode

import msgspec

from provision.base.asking import Question, TooLongError
from provision.base.asking import ask as send
from provision.base.decoding import decoder_of
from provision.base.printable import printable
from provision.base.regular_file import read_beginning

if TYPE_CHECKING:
    from provision.declaration.spec.model import QueryGate

MOST_BYTES: Final = 4 * 2**20
_TOKEN_BYTES: Final = 64 * 2**10
_SHOWN: Final = 3
_LABELS: Final = ("alertname", "severity", "instance", "node", "job")  # what people know a series by, the best first
_OK: Final = 200
_REASON: Final = 200


@dataclass(frozen=True, slots=True)
class Samples:
    """What a query returned: how many samples, and the first of them as people would write them."""

    count: int
    shown: tuple[str, ...] = ()


class _Data(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    result_type: str = ""
    result: msgspec.Raw = msgspec.Raw(b"[]")


class _Answer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    status: str = ""
    data: _Data = _Data()
    error: str = ""
    warnings: tuple[str, ...] = ()


class _Series(msgspec.Struct, frozen=True, kw_only=True):
    metric: dict[str, str] = {}


def ask(gate: QueryGate) -> Samples:
    """Return what the query of a gate returns now. Raises UnansweredError."""
    code, body = _get(gate)
    return read_answer(code, body)


def read_answer(code: int, body: bytes) -> Samples:
    """Return what an answer says. Raises UnansweredError."""
    try:
        answer = decoder_of(_Answer).decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise UnansweredError(f"what answers is not Prometheus (HTTP status {code})") from None
    if answer.status != "success" or code != _OK:
        told = f": {printable(answer.error, limit=_REASON)}" if answer.error else ""
        raise UnansweredError(f"the query was refused (HTTP status {code}){told}")
    if answer.warnings:  # such as of Thanos: a part of what was asked for did not answer
        raise UnansweredError(f"the answer is not complete: {printable(answer.warnings[0], limit=_REASON)}")
    if answer.data.result_type != "vector":
        kind = printable(answer.data.result_type, limit=40)
        raise UnansweredError(f"the query returns a {kind}, and not series of one moment: write a comparison")
    try:
        series = decoder_of(tuple[_Series, ...]).decode(answer.data.result)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise UnansweredError("the samples of the answer cannot be read") from None
    return Samples(len(series), tuple(_shown(each.metric) for each in series[:_SHOWN]))


def _shown(metric: dict[str, str]) -> str:
    known = [f'{label}="{metric[label]}"' for label in _LABELS if label in metric]
    return printable(f"{metric.get('__name__', '')}{{{', '.join(known)}}}", limit=120)


def _get(gate: QueryGate) -> tuple[int, bytes]:
    query = urlencode({"query": gate.query, "timeout": f"{gate.timeout_seconds}s"}, quote_via=quote)
    question = Question(
        method="GET",
        url=f"{gate.prometheus.rstrip('/')}/api/v1/query?{query}",
        headers={"Accept": "application/json", "User-Agent": "grapnel", **_authorization(gate)},
        deadline_s=gate.timeout_seconds,
        most_bytes=MOST_BYTES,
        tls=_tls(gate),
    )
    try:
        answer = send(question)
    except TooLongError:
        raise UnansweredError(
            f"the answer has more than {MOST_BYTES // 2**20} MiB: let the query return less"
        ) from None
    except ssl.SSLCertVerificationError as error:
        raise UnansweredError(f"its certificate is not trusted: {error.verify_message}") from None
    except TimeoutError:
        raise UnansweredError(f"no answer within {gate.timeout_seconds} s") from None
    except OSError as error:
        raise UnansweredError((error.strerror or type(error).__name__).lower()) from None
    except (http.client.HTTPException, ValueError) as error:  # ValueError: a token that does not fit into a header
        raise UnansweredError(f"the request failed: {type(error).__name__}") from None
    return answer.status, answer.body


def _tls(gate: QueryGate) -> ssl.SSLContext | None:
    if gate.ca_file is None or not gate.prometheus.startswith("https:"):
        return None
    try:
        return ssl.create_default_context(cafile=gate.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise UnansweredError(f"the certificates in {gate.ca_file} cannot be read: {error.strerror}") from None


def _authorization(gate: QueryGate) -> dict[str, str]:
    if gate.token_file is None:
        return {}
    try:
        token = read_beginning(Path(gate.token_file), _TOKEN_BYTES).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not ASCII text"
        raise UnansweredError(f"the token in {gate.token_file} cannot be read: {why}") from None
    if not token or not token.isprintable():
        raise UnansweredError(f"there is no token in {gate.token_file}")
    return {"Authorization": f"Bearer {token}"}


class UnansweredError(Exception):
    """There is no answer that says whether a gate is open; the text says why, without anything that is secret."""
