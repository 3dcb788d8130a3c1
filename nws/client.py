"""The service from Python: a client on `requests`."""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

import requests
from urllib3.exceptions import ProtocolError

from nws.errors import CodedError, InputError, coded
from nws.measurement import Measurement, batch
from nws.weather import Weather

DEADLINE: Final = 10.0
MAX_AT_ONCE: Final = 5000
MAX_FORECASTS: Final = 2000
# Of unpacked text: a small packed answer must not fill the memory of a client.
MAX_ANSWER: Final = 1 << 26
"""Bytes that are taken of one answer, unpacked; a stream of events has no end and no bound."""

Document = dict[str, Any]


class ServiceError(CodedError):
    """The service did not answer, refused a request or failed.

    Attributes
    ----------
    transient
        Whether the same request may succeed later (nothing answers, the disk is full).
    status
        The HTTP status; None if nothing answered.
    code, fields
        Those of the service's answer; ``service-unreachable`` if nothing answered.
    """

    code = "service-refused"

    def __init__(
        self,
        message: str,
        /,
        *,
        transient: bool,
        status: int | None = None,
        code: str = "",
        **fields: object,
    ) -> None:
        super().__init__(message, code=code, **fields)
        self.transient = transient
        self.status = status


class Client:
    """Asks a service. One connection, kept open; no redirect is ever followed with the token.

    Every method raises `ServiceError`.

    Parameters
    ----------
    url
        Where the service answers, such as ``http://127.0.0.1:8123``.
    token
        The bearer token.
    certificate
        A file of the authorities to trust besides the system's.
    deadline
        Seconds to wait for a connection, and between two pieces of an answer.
    max_answer
        Bytes of an unpacked answer; a longer one is an error.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        certificate: Path | None = None,
        deadline: float = DEADLINE,
        max_answer: int = MAX_ANSWER,
    ) -> None:
        self._max_answer = max_answer
        self.url = url.rstrip("/")
        self._deadline = deadline
        self._session = requests.Session()
        self._session.trust_env = False  # no proxy and no .netrc between us and our service
        self._session.headers["Authorization"] = f"Bearer {token}"
        if certificate is not None:
            self._session.verify = str(certificate)

    def store(self, measurements: Iterable[Measurement]) -> Document:
        """Store measurements and return {stored, duplicates, refused, refused_total, late, ahead}.

        All measurements but the refused are on the service's disk then. After an error it is safe to send
        them again.
        """
        sent = list(measurements)
        counts = ("stored", "duplicates", "refused_total", "late", "ahead")
        total: Document = {"refused": [], **dict.fromkeys(counts, 0)}
        for start in range(0, len(sent), MAX_AT_ONCE):
            piece = batch(sent[start : start + MAX_AT_ONCE])
            receipt = self._ask("POST", "/v1/measurements", ("stored", "refused"), body=piece)
            for refused in receipt["refused"]:
                refused["index"] += start
            total = {key: total[key] + receipt.get(key, 0) for key in total}
        return total

    def forecasts(self, series: Sequence[str], **question: Any) -> list[Document]:
        """Return the forecasts of `series`, 2,000 at one instant; ``over``, ``level``, ``criterion``."""
        asked = {key: value for key, value in question.items() if value is not None}
        found: list[Document] = []
        for start in range(0, len(series), MAX_FORECASTS):
            piece = list(series[start : start + MAX_FORECASTS])
            body = {"series": piece, **asked}
            found += self._ask("POST", "/v1/forecasts", ("forecasts",), body=body)["forecasts"]
        return found

    def league(self, series: str, **question: Any) -> Document:
        """Return the errors of a series' predictors, and the method of its forecasts; ``over``, ``criterion``."""
        return self._ask(
            "GET", "/v1/league", ("predictors", "method"), {"series": series, **question}
        )

    def time(self) -> float:
        """Return the time of the service's clock."""
        return float(self._ask("POST", "/v1/forecasts", ("asof",), body={"series": []})["asof"])

    def weather(self, over: float | None = None, level: float | None = None) -> Weather:
        """Return all current forecasts as one `nws.weather.Weather`."""
        query = {"over": over, "level": level}
        return Weather.from_json(json.dumps(self._ask("GET", "/v1/weather", (), query)))

    def range(
        self,
        series: str,
        start: float | None = None,
        stop: float | None = None,
        count: int = 1000,
        step: float | None = None,
    ) -> Document:
        """Return the times and values of a series; with `step` on a grid, None for gaps."""
        query = {"series": series, "start": start, "stop": stop, "count": count, "step": step}
        return self._ask("GET", "/v1/range", ("times", "values"), query)

    def series(self, match: str = "*", limit: int = 1000) -> Document:
        """Return {total, series}: the matching series and their stored measurements."""
        query = {"match": match, "limit": limit}
        return self._ask("GET", "/v1/series", ("total", "series"), query)

    def status(self) -> Document:
        """Return the health of the service."""
        return self._ask("GET", "/v1/status", ("status", "version", "backlog", "problems"))

    def register(self, name: str, **registration: Any) -> Document:
        """Register, or renew, for some seconds."""
        return self._ask("PUT", f"/v1/sensors/{name}", ("expires_in",), body=registration)

    def leave(self, name: str) -> None:
        """End a registration."""
        self._ask("DELETE", f"/v1/sensors/{name}", ())

    def sensors(self) -> list[Document]:
        """Return the registered processes."""
        registrations: list[Document] = self._ask("GET", "/v1/sensors", ("registrations",))[
            "registrations"
        ]
        return registrations

    def ask_turn(self, host: str) -> Document:
        """Return a turn to probe the links of a host, or when to ask again; needs scope ``probe``."""
        wanted = ("turn", "seconds", "peers", "retry_after")
        return self._ask("POST", "/v1/turns", wanted, body={"host": host})

    def end_turn(self, turn: str, probed: Iterable[str] = ()) -> None:
        """End a turn, with the names of the peers that were probed."""
        self._ask("DELETE", f"/v1/turns/{turn}", ("ended",), {"probed": list(probed)})

    def probing_secret(self) -> str:
        """Return the secret of the link probes; needs scope ``probe``."""
        return str(self._ask("GET", "/v1/probing", ("secret",))["secret"])

    def events(self, match: str = "*") -> Iterator[Document]:
        """Yield measurements as they are stored, until the service ends the stream.

        The last may be ``{"lost": n}``: the reader was too slow, and `range` has the lost measurements.
        """
        answer, _ = self._send("GET", "/v1/events", {"match": match}, None, stream=True)
        with answer:
            try:
                for line in answer.iter_lines(chunk_size=1):
                    if line.startswith(b"data: "):
                        yield json.loads(line[6:])
            except requests.RequestException as error:
                raise self._unreachable(str(error)) from error

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(
        self,
        method: str,
        path: str,
        wanted: Collection[str],
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Document:
        """Return the answer; ServiceError unless it has the wanted keys."""
        answer, content = self._send(method, path, query, body)
        with answer:
            document: Document | None = None
            with suppress(ValueError, RecursionError):
                document = json.loads(content)
        if not (
            isinstance(document, dict)
            and document.keys() >= {*wanted}
            and all(_is_table(document[name]) for name in ROWS & {*wanted})
        ):
            raise ServiceError(
                f"{self.url}{path}: not the answer of a weather service; check the address",
                transient=False,
                status=answer.status_code,
                code="answer-invalid",
                url=self.url,
            )
        return document

    def _unreachable(self, reason: str, **fields: Any) -> ServiceError:
        return ServiceError(
            f"{self.url}: {reason}",
            transient=True,
            code="service-unreachable",
            url=self.url,
            **fields,
        )

    def _coded(self, error: Exception) -> dict[str, Any]:
        """Return code and fields of a request that could not be sent, or of an answer that cannot be read."""
        file = self._session.verify
        if isinstance(file, str) and not Path(file).exists():
            return {"code": "file-missing", "file": file}
        return {"url": self.url, **coded(error, "answer-invalid")}

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: Mapping[str, Any] | None,
        *,
        stream: bool = False,
    ) -> tuple[requests.Response, bytes]:
        """Return an answer and its content; no content of a stream."""

        def once() -> tuple[requests.Response, bytes]:
            answer = self._session.request(
                method,
                self.url + path,
                params=query,
                json=body,
                timeout=self._deadline,
                allow_redirects=False,
                stream=True,
            )
            good = answer.status_code == requests.codes.ok
            return answer, b"" if stream and good else _content(answer, self._max_answer)

        try:
            try:
                answer, content = once()
            except requests.ConnectionError as error:
                # The service may have closed a connection that was kept open. Every request may be
                # repeated, so it is sent again on a new connection; a refused connection is not.
                if not (error.args and isinstance(error.args[0], ProtocolError)):
                    raise
                answer, content = once()
        except (requests.exceptions.InvalidHeader, UnicodeEncodeError):
            reason = "the token must consist of printable ASCII characters in one line"
            raise ServiceError(
                reason, transient=False, code="token-invalid"
            ) from None  # the error itself repeats the token
        except requests.Timeout as error:
            reason = f"no answer in {self._deadline:.0f} s"
            raise self._unreachable(reason, seconds=self._deadline) from error
        except requests.exceptions.SSLError as error:
            reason = tls_reason(error)
            cut = "EOF" in reason  # a service that ends, or one behind a proxy that starts again
            raise ServiceError(
                f"{self.url}: TLS: {reason}", transient=cut, code="tls-failed", url=self.url
            ) from error
        except requests.ConnectionError as error:
            raise self._unreachable("no answer") from error
        except (requests.RequestException, OSError, ValueError) as error:
            raise ServiceError(
                f"{self.url}: {error}", transient=False, **self._coded(error)
            ) from error
        if answer.status_code != 200:
            raise _refusal(answer, content, f"{self.url}{path}")
        return answer, content


def _content(answer: requests.Response, most: int) -> bytes:
    """Return the content of an answer; InputError if it is longer than any answer of a weather service."""
    content = bytearray()
    for piece in answer.iter_content(1 << 16):
        content += piece
        if len(content) > most:
            answer.close()
            raise InputError(
                f"the answer is longer than {most} bytes", code="message-too-long", bound=most
            )
    return bytes(content)


def tls_reason(error: BaseException) -> str:
    """Return the reason of a failed TLS connection, and its remedy."""
    cause, seen = error, set()
    while id(cause) not in seen:  # requests wraps urllib3's error, which wraps the error of ssl
        seen.add(id(cause))
        deeper = getattr(cause, "reason", None)
        cause = next((e for e in (deeper, *cause.args) if isinstance(e, BaseException)), cause)
    reason = getattr(cause, "verify_message", "") or getattr(cause, "reason", "") or str(cause)
    hints = {
        "self-signed": "; trust it by --ca FILE or NWS_CA",
        "self signed": "; trust it by --ca FILE or NWS_CA",
        "unable to get local issuer": "; give its authority by --ca FILE or NWS_CA",
        "WRONG_VERSION_NUMBER": "; the service speaks no TLS there: http:// ?",
    }
    return str(reason) + next((hint for sign, hint in hints.items() if sign in str(reason)), "")


KEBAB: Final = re.compile(r"[a-z][a-z0-9-]{0,63}")
ROWS: Final = frozenset({"forecasts", "series", "predictors"})
"""Keys of an answer with a list of objects as value."""


def _is_table(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(row, dict) for row in value)


def _refusal(answer: requests.Response, content: bytes, where: str) -> ServiceError:
    code, fields = ServiceError.code, {}
    try:
        document = json.loads(content)
        reason, transient = str(document["reason"]), bool(document["transient"])
        own = str(document.get("code") or "")
        code = own if KEBAB.fullmatch(own) else code
        fields = dict(document.get("fields") or {})
    except (ValueError, KeyError, TypeError, AttributeError):
        reason, transient = answer.reason, answer.status_code >= 500
    answer.close()
    error = ServiceError(
        f"{where}: {reason}", transient=transient, status=answer.status_code, code=code
    )
    error.fields = fields
    return error
