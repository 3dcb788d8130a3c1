"""Who may ask a scheduler for what: every route with every scope, every token and none, over real TLS."""

import http.client
import json
import re
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest
from certificates import certified
from coding import with_code
from waiting import until

import nws
from apples.cluster import (
    GIVEN,
    MAX_OF_ONE,
    ROUTES,
    JobExecutor,
    ListenerLimits,
    LiveScheduler,
    SchedulerLog,
    SchedulerService,
    Scope,
    serve,
)
from apples.errors import ApplesError, LaunchError, UsageError
from apples.io import Tls, tls_of
from apples.jobs import SchedulerClient
from apples.scheduling import FirstFit

PAGE = Path(__file__).parents[2] / "docs/reference/scheduler.md"
SUBMISSION = {"minimum": 1, "maximum": 1, "kind": "rigid", "work": {}}
ONE_SCOPE = {str(scope): (scope,) for scope in GIVEN}
GOOD = {**ONE_SCOPE, "all": GIVEN}
WORTHLESS = ("none", "wrong", "basic", "expired", "revoked", "long", "other")


class NoJobs(JobExecutor):
    """Carries nothing out."""

    def carry_out(self, orders):
        pass

    def reports(self):
        return []

    def close(self):
        pass


class Site:
    """A scheduler that listens for TLS, and one token of each kind."""

    def __init__(self, folder, limits=ListenerLimits()):  # noqa: B008 - frozen
        self.folder = folder
        self.certificate, key = certified(folder)
        tokens = nws.TokenFile(folder / "tokens.json", scopes=GIVEN)
        self.tokens = {kind: tokens.issue(f"of-{kind}", scopes) for kind, scopes in GOOD.items()}
        self.tokens["ada"] = tokens.issue("ada", ["submit", "own"])
        self.tokens |= {"wrong": "nws_" + "x" * 43, "long": "x" * 5000}
        self.tokens["expired"] = tokens.issue("expired", GOOD["all"], seconds=-1)
        self.tokens["revoked"] = tokens.issue("revoked", GOOD["all"])
        tokens.revoke("revoked")
        other = nws.TokenFile(folder / "others.json")
        self.tokens["other"] = other.issue("of-all", ["read", "write", "probe"])
        machine = LiveScheduler(
            SchedulerLog.open(folder), FirstFit(), ["ada", "bob"], 0.0, 1e9, lambda: "0badcafe"
        )
        self.service = SchedulerService(machine, time.monotonic)
        ready = threading.Event()

        def on_ready(url):
            self.port = int(url.rpartition(":")[2])
            ready.set()

        tls = Tls("127.0.0.1", 0, self.certificate, key, tokens.path)
        self.thread = threading.Thread(
            target=serve, args=(self.service, NoJobs(), folder, on_ready, tls, limits)
        )
        self.thread.start()
        assert ready.wait(30)

    def end(self):
        self.service.stop()
        self.thread.join()

    def answer(self, kind, method, path, body=None):
        """Return the status and the headers of an answer; what comes after them is not waited for."""
        context = ssl.create_default_context(cafile=str(self.certificate))
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=30, context=context
        )
        headers = {} if kind == "none" else {"Authorization": f"Bearer {self.tokens.get(kind)}"}
        if kind == "basic":
            headers = {"Authorization": f"Basic {self.tokens['all']}"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        text = b"" if path == "/v1/events" and answer.status == 200 else answer.read()
        answer.close()
        connection.close()
        return answer.status, answer.headers, text

    def client(self, kind, certificate=None):
        file = self.folder / f"{kind}.token"
        file.write_text(self.tokens[kind] + "\n")
        file.chmod(0o600)
        return SchedulerClient(
            f"https://127.0.0.1:{self.port}", file, certificate or self.certificate
        )

    def submit(self, kind):
        return self.client(kind).ask("POST", "/v1/jobs", {"submission": SUBMISSION})["job"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    one = Site(tmp_path_factory.mktemp("scheduler"))
    yield one
    one.end()


@pytest.fixture
def limited(tmp_path):
    """Return a function that makes a site with other limits."""
    made = []

    def site(limits):
        made.append(Site(tmp_path, limits))
        return made[-1]

    yield site
    for one in made:
        one.end()


def path_of(route, job="local.1"):
    return route.path.replace("{job}", job).replace("{host}", "ada")


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_each_route_is_open_to_whom_the_table_says_and_to_nobody_else(site, route):
    site.submit("submit")
    body = None if route.method == "GET" else {"hosts": ["ada"]} if route.call == "resize" else {}
    for kind in WORTHLESS:
        status, headers, text = site.answer(kind, route.method, path_of(route), body)
        assert (status, headers["WWW-Authenticate"]) == (401, "Bearer"), kind
        code = "token-missing" if kind == "none" else "token-invalid"
        assert json.loads(text)["code"] == code, kind
    for kind, scopes in GOOD.items():
        status, _, text = site.answer(kind, route.method, path_of(route), body)
        others = route.scope is Scope.OWN
        may = Scope.OPERATOR in scopes if others else route.scope in scopes
        assert (status == 403) == (not may), (kind, status, text)
        assert status != 401
        if not may:
            refused = json.loads(text)
            needed = {"principal": f"token:of-{kind}", "scope": str(route.scope)}
            if others and Scope.OWN in scopes:
                needed = {
                    "principal": f"token:of-{kind}",
                    "job": "local.1",
                    "owner": "token:of-submit",
                }
            assert (refused["code"], refused["fields"]) == ("permission-denied", needed)


@pytest.mark.parametrize("ends", ["revoked", "expired"])
def test_stream_ends_with_its_token(limited, ends):
    site = limited(ListenerLimits(beat_seconds=0.1))
    tokens = nws.TokenFile(site.folder / "tokens.json", scopes=GIVEN)
    secret = tokens.issue("eve", ["read"], 5.0 if ends == "expired" else None)
    connection = http.client.HTTPSConnection(
        "127.0.0.1",
        site.port,
        timeout=60,
        context=ssl.create_default_context(cafile=str(site.certificate)),
    )
    connection.request("GET", "/v1/events", headers={"Authorization": f"Bearer {secret}"})
    stream = connection.getresponse()
    assert stream.status == 200
    assert b"queue" in b"".join(iter(stream.readline, b"\n"))
    if ends == "revoked":
        tokens.revoke("eve")
    for count, _ in enumerate(iter(stream.readline, b"")):
        assert count < 600  # comments go on for ever if the stream does
    stream.close()
    connection.close()
    assert site.client("all").ask("GET", "/v1/queue")["schema"]


def test_what_is_no_route_does_not_exist_whoever_asks(site):
    for method, path in (("GET", "/"), ("POST", "/v1/queue"), ("GET", "/v1/jobs/local.1/cancel")):
        assert site.answer("none", method, path)[0] == 401
        assert site.answer("all", method, path)[0] == 404
    assert site.answer("all", "DELETE", "/v1/queue")[0] == 404


def test_who_submitted_a_job_may_change_it_and_no_other_but_the_operator(site):
    own, others = site.submit("ada"), site.submit("submit")
    assert site.client("all").ask("GET", f"/v1/jobs/{own}")["user"] == "token:ada"
    with pytest.raises(
        UsageError,
        check=with_code(
            "permission-denied", job=others, principal="token:ada", owner="token:of-submit"
        ),
    ):
        site.client("ada").ask("POST", f"/v1/jobs/{others}/cancel")
    over = {"cancelled", "ending"}  # ending: a host was free, and it was started
    assert site.client("ada").ask("POST", f"/v1/jobs/{own}/cancel")["state"] in over
    assert site.client("operator").ask("POST", f"/v1/jobs/{others}/cancel")["state"] in over


def test_a_policy_that_is_code_is_tried_for_the_operator_only(site):
    for policy in ("own.py:Policy", "subprocess:Popen"):
        with pytest.raises(
            UsageError, check=with_code("permission-denied", scope="operator", policy=policy)
        ):
            site.client("read").ask("POST", "/v1/whatif", {"policy": policy})
        with pytest.raises(ApplesError) as caught:
            site.client("all").ask("POST", "/v1/whatif", {"policy": policy})
        assert caught.value.code != "permission-denied"


def test_a_body_that_claims_another_user_is_refused_or_ignored(site):
    forged = {"submission": {**SUBMISSION, "user": "token:of-submit"}}
    job = site.client("ada").ask("POST", "/v1/jobs", forged)["job"]
    assert site.client("all").ask("GET", f"/v1/jobs/{job}")["user"] == "token:ada"


def test_a_client_believes_only_a_certificate_of_its_authority_and_names_what_is_wrong(
    site, tmp_path
):
    stranger, _ = certified(tmp_path)
    with pytest.raises(LaunchError, check=with_code("scheduler-unreachable")):
        site.client("all", stranger).ask("GET", "/v1/queue")
    with pytest.raises(UsageError, check=with_code("token-invalid")):
        site.client("wrong").ask("GET", "/v1/queue")
    url = f"https://127.0.0.1:{site.port}"
    with pytest.raises(
        UsageError, check=with_code("token-missing", place=url, option="--token-file")
    ):
        SchedulerClient(url, None, site.certificate).ask("GET", "/v1/queue")
    empty = tmp_path / "empty"
    empty.write_text("two words")
    empty.chmod(0o600)
    with pytest.raises(
        UsageError, check=with_code("token-invalid", file=str(empty), option="--token-file")
    ):
        SchedulerClient(url, empty, site.certificate).ask("GET", "/v1/queue")
    with pytest.raises(UsageError, check=with_code("address-invalid", value="http://127.0.0.1:1")):
        SchedulerClient("http://127.0.0.1:1", empty).ask("GET", "/v1/queue")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o622])
def test_a_client_shows_no_token_that_others_can_get_at(site, mode):
    asking, file = site.client("all"), site.folder / "all.token"
    file.chmod(mode)
    open_file = with_code("file-not-private", file=str(file), mode=f"{mode:o}")
    with pytest.raises(UsageError, check=open_file):
        asking.ask("GET", "/v1/queue")
    file.chmod(0o600)
    assert asking.ask("GET", "/v1/queue")["schema"] == "apples.queue/1"


def test_without_certificate_or_token_it_does_not_listen(tmp_path):
    tokens = tmp_path / "tokens.json"
    certificate, key = certified(tmp_path)
    with pytest.raises(UsageError, check=with_code("option-missing", option="--certificate")):
        tls_of("127.0.0.1:0", None, None, tokens)
    with pytest.raises(UsageError, check=with_code("token-missing", file=str(tokens))):
        tls_of("127.0.0.1:0", certificate, key, tokens)
    with pytest.raises(UsageError, check=with_code("address-invalid", value="8443")):
        tls_of("8443", certificate, key, tokens)
    tokens.write_text("{}")
    tokens.chmod(0o600)
    with pytest.raises(UsageError, check=with_code("file-invalid", file=str(tokens))):
        tls_of("127.0.0.1:0", certificate, key, tokens)
    assert tls_of("", None, None, tokens) is None


def test_who_sends_byte_by_byte_or_never_agrees_on_a_key_is_cut(limited):
    site = limited(ListenerLimits(request_seconds=0.3, handshake_seconds=0.3))
    with socket.create_connection(("127.0.0.1", site.port), 30) as plain:
        assert plain.recv(1) == b""
    context = ssl.create_default_context(cafile=str(site.certificate))
    slow = socket.create_connection(("127.0.0.1", site.port), 30)
    with context.wrap_socket(slow, server_hostname="127.0.0.1") as secured:
        secured.settimeout(0.05)
        until(lambda: is_cut(secured))


def is_cut(secured):
    """Send one more byte of a request, long before the time-out of a read."""
    try:
        secured.sendall(b"G")
        return secured.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_who_asks_too_often_is_told_so_with_a_good_token_or_none_and_the_operator_is_not(limited):
    site = limited(ListenerLimits(requests_at_once=0.0))
    for kind, name in (("read", "token:of-read"), ("wrong", "address 127.0.0.1")):
        status, headers, text = site.answer(kind, "GET", "/v1/queue")
        assert (status, headers["Retry-After"]) == (429, "1"), kind
        refused = json.loads(text)
        assert refused["code"] == "too-many-requests"
        assert refused["fields"] == {"principal": name, "bound": 50.0}
    assert site.answer("all", "GET", "/v1/queue")[0] == 200


@pytest.mark.more
def test_one_address_has_a_part_of_the_connections_and_the_operator_has_others(site):
    many = [socket.create_connection(("127.0.0.1", site.port), 30) for _ in range(MAX_OF_ONE)]

    def refused():
        with socket.create_connection(("127.0.0.1", site.port), 30) as one:
            return b" 429 " in one.recv(100)

    until(refused)
    assert SchedulerClient(site.folder).ask("GET", "/v1/queue")["name"] == "local"
    for one in many:
        one.close()
    until(lambda: not refused())


def test_a_body_of_unsaid_length_is_refused(site):
    context = ssl.create_default_context(cafile=str(site.certificate))
    connection = http.client.HTTPSConnection("127.0.0.1", site.port, timeout=30, context=context)
    headers = {"Authorization": f"Bearer {site.tokens['all']}"}
    connection.request("POST", "/v1/jobs", iter([b"{}"]), headers, encode_chunked=True)
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["code"]) == (400, "message-too-long")
    connection.close()


def test_the_page_has_the_table():
    rows = re.findall(r"^\| `(GET|POST) (\S+)` \| `(\w+)` \|", PAGE.read_text(), re.MULTILINE)
    assert sorted(rows) == sorted((one.method, one.path, str(one.scope)) for one in ROUTES)
