"""Who may do what, and how much: every route, every scope, every kind of token."""

import contextlib
import itertools
import json
import select
import socket
import time
from urllib.parse import urlsplit

import pytest
import requests

from nws import (
    PROBE,
    READ,
    SCOPES,
    WRITE,
    AddressUnusableError,
    BodyLimits,
    Client,
    Listen,
    ListenRefusedError,
    Serving,
    TokenFile,
    TokenFileError,
    bound_sockets,
    check_exposure,
)

PUBLIC = "public"
ACCESS = {
    ("GET", "/healthz"): PUBLIC,
    ("GET", "/openapi.json"): READ,
    ("POST", "/v1/measurements"): WRITE,
    ("GET", "/v1/forecast"): READ,
    ("POST", "/v1/forecasts"): READ,
    ("GET", "/v1/league"): READ,
    ("GET", "/v1/weather"): READ,
    ("GET", "/v1/range"): READ,
    ("GET", "/v1/series"): READ,
    ("GET", "/v1/events"): READ,
    ("GET", "/v1/status"): READ,
    ("GET", "/metrics"): READ,
    ("GET", "/v1/sensors"): READ,
    ("PUT", "/v1/sensors/{name}"): WRITE,
    ("DELETE", "/v1/sensors/{name}"): WRITE,
    ("GET", "/v1/probing"): PROBE,
    ("POST", "/v1/turns"): PROBE,
    ("DELETE", "/v1/turns/{turn}"): PROBE,
}
"""The scope of every route: one that is missing here fails a test."""
BODIES = {
    "/v1/measurements": {"measurements": []},
    "/v1/forecasts": {"series": []},
    "/v1/sensors/{name}": {"host": "ada"},
    "/v1/turns": {"host": "ada"},
}
QUERIES = {
    "/v1/forecast": {"series": "availableCpu/ada"},
    "/v1/league": {"series": "availableCpu/ada"},
    "/v1/range": {"series": "availableCpu/ada"},
}
KINDS = ("none", "wrong", "expired", "revoked", "basic", *SCOPES, "all")


@pytest.fixture(scope="module")
def secrets_of(serving):
    tokens = serving.tokens
    kinds = {scope: tokens.issue(f"only-{scope}", [scope]) for scope in SCOPES}
    kinds |= {"all": tokens.issue("all", SCOPES), "wrong": "nws_" + "x" * 43}
    kinds["expired"] = tokens.issue("expired", SCOPES, seconds=-1)
    kinds["revoked"] = tokens.issue("revoked", SCOPES)
    tokens.revoke("revoked")
    return kinds


def ask(serving, method, path, headers):
    return requests.request(
        method,
        serving.url + path.replace("{name}", "nobody").replace("{turn}", "0" * 32),
        params=QUERIES.get(path),
        json=BODIES.get(path) if method in {"POST", "PUT"} else None,
        headers=headers,
        timeout=60,
        stream=True,
    )


@pytest.mark.parametrize(("route", "kind"), list(itertools.product(ACCESS, KINDS)))
def test_every_route_asks_for_its_scope_and_no_other(serving, secrets_of, route, kind):
    method, path = route
    scheme = "Basic" if kind == "basic" else "Bearer"
    secret = secrets_of.get("all" if kind == "basic" else kind)
    headers = {} if secret is None else {"Authorization": f"{scheme} {secret}"}
    with ask(serving, method, path, headers) as answer:
        status = answer.status_code
        code = answer.json()["code"] if status in {401, 403} else None
    wanted = ACCESS[route]
    if wanted == PUBLIC or kind in {wanted, "all"}:
        assert status in {200, 404, 409}, "a token that is good for it was refused"
    elif kind in SCOPES:
        assert (status, code) == (403, "scope-missing")
    else:
        assert (status, code) == (401, "token-invalid")


def test_every_route_of_the_openapi_document_declares_its_scope(serving):
    headers = {"Authorization": f"Bearer {serving.token}"}
    document = requests.get(f"{serving.url}/openapi.json", headers=headers, timeout=60).json()
    declared = {
        (method.upper(), path): operation.get("security", [{"HTTPBearer": [PUBLIC]}])
        for path, item in document["paths"].items()
        for method, operation in item.items()
    }
    wanted = {route: [{"HTTPBearer": [scope]}] for route, scope in ACCESS.items()}
    del wanted["GET", "/openapi.json"]  # which is not in itself
    assert declared == wanted


def test_a_path_of_no_route_needs_a_token_too(serving):
    assert requests.get(f"{serving.url}/v1/secret", timeout=60).status_code == 401
    headers = {"Authorization": f"Bearer {serving.token}"}
    answer = requests.get(f"{serving.url}/v1/turns/a/b", headers=headers, timeout=60)
    assert (answer.status_code, answer.json()["code"]) == (404, "route-unknown")


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "", "127.0.0.1.nip.io"]
)
def test_a_foreign_host_header_is_turned_away(serving, host):
    headers = {"Host": host, "Authorization": f"Bearer {serving.token}"}
    answer = requests.get(f"{serving.url}/v1/status", headers=headers, timeout=60)
    assert (answer.status_code, answer.json()["code"]) == (421, "host-header-unknown")


def post(serving, body, **headers):
    headers = {"Authorization": f"Bearer {serving.token}", **headers}
    url = f"{serving.url}/v1/measurements"
    return requests.post(url, data=body, headers=headers, timeout=60)


def test_a_declared_gigabyte_is_refused_before_it_is_sent(serving):
    address = serving.url.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1])), timeout=60) as raw:
        raw.sendall(
            b"POST /v1/measurements HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1073741824\r\n"
            b"Authorization: Bearer " + serving.token.encode() + b"\r\n\r\n"
        )
        assert b" 413 " in raw.recv(4096).split(b"\r\n")[0]


def test_an_undeclared_gigabyte_is_refused_when_it_grows_too_large(serving):
    def endless():
        for _ in range(1000):
            yield b" " * (1 << 20)

    with contextlib.suppress(requests.ConnectionError):  # it may hang up while we send: as good
        assert post(serving, endless()).status_code == 413
    assert requests.get(f"{serving.url}/healthz", timeout=60).text == "ok\n"


def test_a_body_that_does_not_come_is_not_waited_for(tmp_path):
    with Serving(tmp_path, Listen(port=0), limits=BodyLimits(seconds=0.2)) as serving:
        host, port = serving.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=120) as raw:
            raw.sendall(
                b"POST /v1/measurements HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n"
                b"Authorization: Bearer " + serving.token.encode() + b"\r\n\r\n{"
            )
            assert b" 408 " in raw.recv(4096).split(b"\r\n")[0]


def test_a_body_that_drips_is_refused_when_its_time_is_over(tmp_path):
    with Serving(tmp_path, Listen(port=0), limits=BodyLimits(seconds=0.5)) as serving:
        host, port = serving.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=60) as raw:
            raw.sendall(
                b"POST /v1/measurements HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n"
                b"Authorization: Bearer " + serving.token.encode() + b"\r\n\r\n"
            )
            sent = 0
            while sent < 900 and not select.select([raw], [], [], 0.05)[0]:  # it sends slowly
                sent += raw.send(b" ")
            assert sent < 900
            assert b" 408 " in raw.recv(4096).split(b"\r\n")[0]


def test_an_open_stream_of_events_ends_when_its_token_is_revoked(serving):
    secret = serving.tokens.issue("listener", [READ])
    rows = [{"series": "degrees/revoked", "time": time.time(), "value": 1.0}]
    url, own = f"{serving.url}/v1/measurements", {"Authorization": f"Bearer {serving.token}"}
    with requests.get(
        f"{serving.url}/v1/events",
        headers={"Authorization": f"Bearer {secret}"},
        timeout=60,
        stream=True,
    ) as stream:
        lines = stream.iter_lines(chunk_size=1)
        assert next(lines) == b": hello"
        serving.tokens.revoke("listener")
        stored = requests.post(url, json={"measurements": rows}, headers=own, timeout=60)
        assert stored.json()["stored"] == 1
        assert [line for line in lines if line] == []


HOSTILE = {
    "deep": b'{"measurements":' + b"[" * 100_000,
    "no JSON": b"\xff\xfe",
    "empty": b"",
    "nan": b'{"measurements":[{"series":"a/b","time":NaN,"value":1}]}',
    "huge": b'{"measurements":[{"series":"a/b","time":1e999,"value":1}]}',
    "digits": b'{"measurements":[{"series":"a/b","time":1,"value":' + b"9" * 100_000 + b"}]}",
    "path": b'{"measurements":[{"series":"../../etc/passwd","time":1,"value":1}]}',
    "text": b'{"measurements":[{"series":"a/b","time":"1","value":1}]}',
    "bool": b'{"measurements":[{"series":"a/b","time":1,"value":true}]}',
    "extra": b'{"measurements":[],"admin":true}',
    "many": b'{"measurements":['
    + b",".join([b'{"series":"a/b","time":1,"value":1}'] * 20_001)
    + b"]}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bodies_are_refused_with_a_short_reason(serving, name):
    answer = post(serving, HOSTILE[name])
    assert answer.status_code == 422
    assert answer.json()["code"] in {"request-invalid", "value-range"}
    assert 0 < len(answer.json()["reason"]) < 1200


def test_a_compressed_body_is_not_opened(serving):
    answer = post(serving, b"x", **{"Content-Encoding": "gzip"})
    assert (answer.status_code, answer.json()["code"]) == (415, "encoding-unsupported")


@pytest.mark.parametrize("size", [20_000, 60_000])  # which the service reads at once, to its end
def test_a_long_head_is_refused(serving, size):
    address = urlsplit(serving.url)
    head = f"GET /v1/status HTTP/1.1\r\nHost: {address.netloc}\r\nX: {'y' * size}\r\n\r\n"
    with socket.create_connection((address.hostname, address.port), timeout=60) as stream:
        stream.sendall(head.encode())
        status = int(stream.recv(100).split()[1])
    assert status in {400, 431}


def test_there_are_only_so_many_listeners(serving):
    headers, open_streams = {"Authorization": f"Bearer {serving.token}"}, []
    try:
        statuses = []
        for _ in range(70):
            stream = requests.get(
                f"{serving.url}/v1/events", headers=headers, timeout=60, stream=True
            )
            open_streams.append(stream)
            statuses.append(stream.status_code)
        assert set(statuses) == {200, 429}
    finally:
        for stream in open_streams:
            stream.close()
    deadline = time.monotonic() + 60
    while serving.handler.broker.subscribers and time.monotonic() < deadline:
        requests.post(
            f"{serving.url}/v1/measurements",
            json={"measurements": [{"series": "a/b", "time": time.time(), "value": 1.0}]},
            headers=headers,
            timeout=60,
        )
    assert not serving.handler.broker.subscribers


def test_a_listener_that_reads_nothing_frees_its_place(serving):
    address = urlsplit(serving.url)
    serving.handler.stall_seconds, before = 0.5, serving.handler.stall_seconds
    headers = {"Authorization": f"Bearer {serving.token}"}
    head = f"GET /v1/events HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {serving.token}\r\n\r\n"
    with socket.socket() as stream:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        stream.connect((address.hostname, address.port))
        stream.sendall(head.encode())
        assert b" 200 " in stream.recv(100)
        now, deadline, step = time.time(), time.monotonic() + 60, 0
        while serving.handler.broker.subscribers and time.monotonic() < deadline:
            step += 1
            rows = [
                {"series": f"a/x{number}", "time": now - 60.0 + step / 100, "value": 1.0}
                for number in range(5000)
            ]
            requests.post(
                f"{serving.url}/v1/measurements",
                json={"measurements": rows},
                headers=headers,
                timeout=60,
            )
        assert not serving.handler.broker.subscribers
    serving.handler.stall_seconds = before


def test_tokens_are_kept_as_hashes_in_a_file_of_the_owner(tmp_path):
    tokens = TokenFile(tmp_path / "tokens.json")
    secret = tokens.issue("ada", [READ, WRITE])
    assert secret not in tokens.path.read_text()
    assert tokens.path.stat().st_mode & 0o777 == 0o600
    assert tokens.find(secret).scopes == (READ, WRITE)
    tokens.path.chmod(0o644)
    with pytest.raises(TokenFileError) as raised:
        TokenFile(tokens.path).find(secret)
    assert raised.value.code == "file-not-private"
    assert raised.value.fields == {"file": str(tokens.path), "mode": "644"}


def test_a_token_revoked_elsewhere_is_worthless_at_once(tmp_path):
    here, there = TokenFile(tmp_path / "t"), TokenFile(tmp_path / "t")
    secret = here.issue("ada", [PROBE])
    assert there.find(secret) is not None
    here.revoke("ada")
    assert there.find(secret) is None


@pytest.mark.parametrize(
    "damage", ["", "[]", '{"schema": "nws.tokens/1", "tokens": [1]}', "nul\0"]
)
def test_a_damaged_file_of_tokens_lets_nobody_in(tmp_path, damage):
    path = tmp_path / "t"
    path.write_text(damage)
    path.chmod(0o600)
    with pytest.raises(TokenFileError) as raised:
        TokenFile(path).find("nws_x")
    assert (raised.value.code, raised.value.fields["file"]) == ("file-invalid", str(path))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "node7", "127.0.0.1.evil"])  # noqa: S104
def test_nothing_but_loopback_is_listened_on_without_tls_and_token(tmp_path, host):
    tokens = TokenFile(tmp_path / "t")
    certified = Listen(host, 1, tmp_path / "c", tmp_path / "k")
    for listen, code in ((Listen(host, 1), "tls-missing"), (certified, "token-missing")):
        with pytest.raises(ListenRefusedError) as raised:
            check_exposure(listen, tokens)
        assert (raised.value.code, raised.value.fields["value"]) == (code, host)
    tokens.issue("ada", [READ])
    check_exposure(Listen(host, 1, tmp_path / "c", tmp_path / "k"), tokens)
    for near in ("127.0.0.1", "::1", "localhost"):
        check_exposure(Listen(near, 1), tokens)


@pytest.mark.parametrize("host", ["::1", "0:0:0:0:0:0:0:1"])
def test_an_address_of_ipv6_is_answered_to_however_it_is_written(tmp_path, host):
    with (
        Serving(tmp_path / "nws", Listen(host, 0), database={"engine": "numpy"}) as one,
        Client(one.url, one.token) as client,
    ):
        assert client.status()["status"] == "ok"


@pytest.mark.parametrize("others", [[], ["127.0.0.1"]])
def test_name_is_served_on_its_ipv4_address_if_ipv6_is_off(monkeypatch, others):
    def addresses(_, port, **__):  # as of a host without IPv6: no interface has the first address
        rows = [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2001:db8::1", port, 0, 0))]
        return rows + [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in others
        ]

    monkeypatch.setattr(socket, "getaddrinfo", addresses)
    with contextlib.ExitStack() as stack:
        if not others:
            stack.enter_context(pytest.raises(AddressUnusableError, match="localhost"))
        sockets = [stack.enter_context(each) for each in bound_sockets(Listen("localhost", 0))]
        assert [each.getsockname()[0] for each in sockets] == others


def test_an_answer_does_not_wait_for_the_acknowledgement_of_its_head():
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(each) for each in bound_sockets(Listen("localhost", 0))]
        for each in sockets:
            each.listen()
            stack.enter_context(socket.create_connection(each.getsockname()[:2]))
            accepted = stack.enter_context(each.accept()[0])
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_refusals_do_not_repeat_what_was_sent(serving):
    secret = "nws_canary-" + "z" * 32
    answer = requests.get(
        f"{serving.url}/v1/forecast",
        params={"series": secret},
        headers={"Authorization": f"Bearer {secret}"},
        timeout=60,
    )
    assert secret not in json.dumps(dict(answer.headers)) + answer.text


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
def test_a_method_that_a_path_does_not_know_is_refused(serving, method):
    headers = {"Authorization": f"Bearer {serving.token}"}
    answer = requests.request(
        method, f"{serving.url}/v1/measurements", headers=headers, timeout=60
    )
    assert (answer.status_code, answer.json()["code"]) == (405, "method-not-allowed")
    assert answer.headers["Allow"] == "POST"
