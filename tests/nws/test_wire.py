"""What the network may do to service and client: slow, redirecting, over TLS, falling behind."""

import asyncio
import contextlib
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import requests

from nws import (
    AVAILABLE_CPU,
    FREE_MEMORY,
    Client,
    EventBroker,
    Listen,
    SeriesName,
    SeriesSummary,
    ServiceError,
    Serving,
    TooManyError,
)

KINDS = (AVAILABLE_CPU, FREE_MEMORY)


@pytest.fixture(scope="module")
def impatient(tmp_path_factory):
    """Return a service that ends what is silent for a second."""
    folder = tmp_path_factory.mktemp("impatient")
    listen, engine = Listen(port=0), {"engine": "numpy"}
    with Serving(folder, listen, database=engine, head_seconds=1.0) as service:
        yield service


def until_silence_is_ended(service):
    """Begin a request, never end it, and return when the service has hung up."""
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: local")
        with contextlib.suppress(ConnectionResetError):
            assert slow.recv(1000) == b""


def test_a_connection_that_never_finishes_its_head_is_ended(impatient):
    until_silence_is_ended(impatient)


@pytest.mark.more
def test_a_connection_that_is_busy_is_not_ended(impatient):
    serving = impatient
    with Client(serving.url, serving.token) as client:
        heard = []
        thread = threading.Thread(
            target=lambda: heard.extend(zip(client.events(), range(1), strict=False))
        )
        thread.start()
        deadline, at = time.monotonic() + 60, time.time() - 2000
        for _ in range(2):  # longer than a silent connection may live
            until_silence_is_ended(serving)
        while thread.is_alive() and time.monotonic() < deadline:
            at += 1
            requests.post(
                f"{serving.url}/v1/measurements",
                json={"measurements": [{"series": "busy/one", "time": at, "value": 1.0}]},
                headers={"Authorization": f"Bearer {serving.token}"},
                timeout=60,
            )
            thread.join(0.1)
    assert heard


def test_the_token_does_not_follow_a_redirect():
    seen = []

    class Redirecting(BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(self.path)
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/thief")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Redirecting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        with Client(url, "nws_secret") as client, pytest.raises(ServiceError) as caught:
            client.status()
        server.shutdown()
    assert caught.value.status == 302
    assert seen == ["/v1/status"]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_over_tls_the_client_checks_who_answers(tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"]
    command += ["ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(key), "-days", "2"]
    command += ["-out", str(certificate), "-subj", "/CN=nws", "-addext"]
    subprocess.run([*command, "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    listen = Listen(port=0, certificate=certificate, key=key)
    with Serving(tmp_path / "s", listen) as serving:
        assert serving.url.startswith("https://")
        with Client(serving.url, serving.token, certificate=certificate) as client:
            assert client.status()["status"] == "ok"
        with Client(serving.url, serving.token) as trusting, pytest.raises(ServiceError):
            trusting.status()  # nobody vouches for this certificate
        port = int(serving.url.rpartition(":")[2])
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.minimum_version = ssl.TLSVersion.TLSv1_2
        with (
            socket.create_connection(("127.0.0.1", port), timeout=60) as raw,
            old.wrap_socket(raw) as wrapped,
        ):
            assert wrapped.version() in {"TLSv1.2", "TLSv1.3"}


def test_a_reader_that_falls_behind_is_told_of_the_gap_and_let_go():
    async def scene():
        broker = EventBroker(most=1, waiting=3)
        subscriber = broker.subscribe("availableCpu/*")
        with pytest.raises(TooManyError):
            broker.subscribe("*")
        cpu, memory = (SeriesSummary(SeriesName.parse(f"{kind}/ada"), 1) for kind in KINDS)
        broker.publish([(cpu, at, float(at), 0.5) for at in range(5)], asyncio.get_running_loop())
        broker.publish([(memory, 5, 1.0, 0.5)], asyncio.get_running_loop())
        return [piece async for piece in subscriber.lines(beat=5)]

    hello, events, gap = asyncio.run(scene())
    assert hello == b": hello\n\n"
    assert events.count(b"event: measurement") == 3
    assert gap == b'event: gap\ndata: {"lost": 2}\n\n'


def test_slow_reader_gets_the_gap_after_the_last_event_before_it():
    async def scene():
        broker, loop = EventBroker(waiting=2000), asyncio.get_running_loop()
        cpu = SeriesSummary(SeriesName("availableCpu", "ada"), 1)
        reader, pieces = broker.subscribe("*").lines(), []
        await anext(reader)
        for start in range(0, 45_000, 1500):  # the reader takes 1000 events between two commits
            broker.publish([(cpu, at, float(at), 0.5) for at in range(start, start + 1500)], loop)
            await asyncio.sleep(0)
            with contextlib.suppress(StopAsyncIteration):
                pieces.append(await anext(reader))
        return pieces

    *events, gap = asyncio.run(scene())
    found = re.findall(rb'"time": (\d+)', b"".join(events))
    assert [*map(int, found)] == [*range(len(found))]
    assert gap.startswith(b"event: gap")


def test_event_loop_does_not_match_or_encode_events():
    calls = 0

    def count(frame, event, _):
        nonlocal calls
        calls += event == "call" and frame.f_globals["__name__"].startswith(("nws", "json", "fnm"))

    async def scene():
        broker, loop = EventBroker(), asyncio.get_running_loop()
        cpu = SeriesSummary(SeriesName("availableCpu", "ada"), 1)
        arrivals = [(cpu, at, float(at), 0.5) for at in range(500)]
        readers = [broker.subscribe("availableCpu/*").lines() for _ in range(20)]
        for reader in readers:
            await anext(reader)
        await asyncio.to_thread(broker.publish, arrivals, loop)
        sys.setprofile(count)
        try:
            pieces = [await anext(reader) for reader in readers]
        finally:
            sys.setprofile(None)
        assert {piece.count(b"event: measurement") for piece in pieces} == {500}

    asyncio.run(scene())
    assert calls < 20 * 100
