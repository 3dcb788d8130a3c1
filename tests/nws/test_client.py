"""A client and what may go wrong on the way to its service."""

import gzip
import json
import shutil
import socket
import ssl
import subprocess
import threading
from contextlib import closing, suppress

import pytest

from nws import Client, ServiceError

STATUS = {"status": "ok", "version": "1", "backlog": 0, "problems": []}


def response(document):
    body = json.dumps(document).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


class ScriptedServer:
    """Serves one connection after the other: of each so many answers, then it closes it."""

    def __init__(self, answers, context=None, document=STATUS):
        self.answers, self.context, self.requests = answers, context, 0
        self.response = response(document)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    @property
    def port(self):
        return self.listener.getsockname()[1]

    def run(self):
        for count in self.answers:
            with suppress(OSError), closing(self.accepted()) as connection:
                for _ in range(count):
                    self.hear(connection)
                    connection.sendall(self.response)
                if count:
                    self.hear(connection)  # and then it is closed without an answer

    def accepted(self):
        connection, _ = self.listener.accept()
        if self.context is None:
            return connection
        return self.context.wrap_socket(connection, server_side=True)

    def hear(self, connection):
        data = b""
        while not data.endswith(b"\r\n\r\n") and (not data or data[:1].isalpha()):
            piece = connection.recv(1 << 16)
            if not piece:
                return
            data += piece
        self.requests += 1

    def close(self):
        self.listener.close()


@pytest.fixture
def scripted():
    made = []

    def make(*answers, **options):
        made.append(ScriptedServer(answers, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_kept_connection_that_was_closed_meanwhile_costs_one_more_try(scripted):
    server = scripted(1, 1)
    with Client(f"http://127.0.0.1:{server.port}", "t", deadline=60) as client:
        assert client.status() == STATUS
        assert client.status() == STATUS
    assert server.requests == 3


def test_one_that_closes_every_connection_does_not_answer(scripted):
    server = scripted(1, 0, 0)
    with Client(f"http://127.0.0.1:{server.port}", "t", deadline=60) as client:
        client.status()
        with pytest.raises(ServiceError) as caught:
            client.status()
    assert (caught.value.code, caught.value.transient) == ("service-unreachable", True)
    assert caught.value.fields["url"] == client.url


@pytest.mark.parametrize("document", [{}, [], None, 7, "status", {"status": "ok"}])
def test_what_answers_but_is_no_weather_service_is_said_to_be_none(scripted, document):
    server = scripted(1, document=document)
    with (
        Client(f"http://127.0.0.1:{server.port}", "t", deadline=60) as client,
        pytest.raises(ServiceError) as caught,
    ):
        client.status()
    assert (caught.value.code, caught.value.transient) == ("answer-invalid", False)
    assert caught.value.fields["url"] == client.url
    assert "/v1/status" in str(caught.value)


def packed(document):
    body = gzip.compress(json.dumps(document).encode())
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


@pytest.mark.parametrize("said", [response, packed])
def test_no_more_is_taken_of_an_answer_than_a_weather_service_says(scripted, said):
    """As it is unpacked: a few kilobytes may say a gigabyte."""
    server = scripted(1)
    server.response = said({**STATUS, "more": "x" * (1 << 20)})
    with (
        Client(f"http://127.0.0.1:{server.port}", "t", deadline=60, max_answer=1 << 20) as client,
        pytest.raises(ServiceError) as caught,
    ):
        client.status()
    assert (caught.value.code, caught.value.transient) == ("message-too-long", False)
    assert caught.value.fields["bound"] == 1 << 20


def refusal(status, document):
    body = json.dumps(document).encode()
    return b"HTTP/1.1 %d No\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


@pytest.mark.parametrize(
    ("status", "document", "code", "fields"),
    [
        (409, {"code": "name-taken", "fields": {"value": "ada"}}, "name-taken", {"value": "ada"}),
        (418, {}, "service-refused", {}),
    ],
)
def test_a_refusal_has_the_code_and_fields_of_the_service(
    scripted, status, document, code, fields
):
    server = scripted(1)
    server.response = refusal(status, {"reason": "no", "transient": False, **document})
    with (
        Client(f"http://127.0.0.1:{server.port}", "t", deadline=60) as client,
        pytest.raises(ServiceError) as caught,
    ):
        client.status()
    assert (caught.value.status, caught.value.code) == (status, code)
    assert caught.value.fields == fields


@pytest.mark.parametrize("token", ["secret\nsecret", "secret\u20ac"])
def test_a_token_that_is_none_is_never_repeated(token):
    with (
        Client("http://127.0.0.1:9", token, deadline=60) as client,
        pytest.raises(ServiceError) as caught,
    ):
        client.status()
    assert caught.value.code == "token-invalid"
    assert "secret" not in str(caught.value.fields)
    assert "secret" not in str(caught.value)


@pytest.fixture(scope="module")
def certified(tmp_path_factory):
    """Return the certificate and the key of 127.0.0.1, signed by itself."""
    if not shutil.which("openssl"):
        pytest.skip("needs openssl")
    folder = tmp_path_factory.mktemp("tls")
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
        "-subj /CN=weather -addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem"
    )
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    return folder / "cert.pem", folder / "key.pem"


def test_a_certificate_that_is_not_trusted_is_named_with_what_mends_it(scripted, certified):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certified)
    server = scripted(0, 1, context=context)
    url = f"https://127.0.0.1:{server.port}"
    with (
        Client(url, "t", deadline=60) as client,
        pytest.raises(ServiceError) as no,
    ):
        client.status()
    assert (no.value.code, no.value.transient) == ("tls-failed", False)
    assert "--ca" in str(no.value)
    with Client(url, "t", certificate=certified[0], deadline=60) as client:
        assert client.status() == STATUS


def test_a_service_without_tls_is_told_from_one_that_does_not_answer(scripted):
    server = scripted(1)
    with (
        Client(f"https://127.0.0.1:{server.port}", "t", deadline=60) as client,
        pytest.raises(ServiceError) as caught,
    ):
        client.status()
    assert caught.value.code == "tls-failed"
    assert "http://" in str(caught.value)


def test_a_tls_connection_that_is_cut_may_be_made_again(scripted):
    server = scripted(0, 0)
    with (
        Client(f"https://127.0.0.1:{server.port}", "t", deadline=60) as client,
        pytest.raises(ServiceError) as caught,
    ):
        client.status()
    assert caught.value.transient
    assert caught.value.code in {"tls-failed", "service-unreachable"}


def test_a_file_of_authorities_that_is_not_there_is_named(tmp_path):
    with (
        Client("https://127.0.0.1:9", "t", certificate=tmp_path / "ca.pem") as client,
        pytest.raises(ServiceError) as caught,
    ):
        client.status()
    assert (caught.value.code, caught.value.transient) == ("file-missing", False)
    assert caught.value.fields["file"] == str(tmp_path / "ca.pem")
