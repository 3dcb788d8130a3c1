"""The page of a host: what a weather service tells of it, and what plans measured and remembered."""

import json
import math
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import requests
from pages.live_site import LiveSite
from pages.served import HOSTS
from pages.weather_site import wave, weather_site

from apples.resources import read_host_list
from apples.weather import history
from nws import Measurement, SeriesName

PAGE = "/hosts/ada?name=hosts.toml"


@pytest.fixture
def listed(own_state):
    (own_state / "hosts.toml").write_text(HOSTS)
    return read_host_list(own_state / "hosts.toml")


def remembered(hosts, resource="availableCpu", host="ada", ago=0.0):
    """Have plans measured a series over ssh, every minute until so many seconds ago."""
    now, series = time.time() - ago, SeriesName(resource, host)
    values = [
        Measurement(series, now - 60.0 * (40 - k), 0.5 + 0.25 * math.sin(k)) for k in range(40)
    ]
    history.remember(hosts, {series: values})
    return values


@pytest.fixture
def service(tmp_path, monkeypatch):
    """A weather service that is configured, and knows ada and a link of it, and carl."""
    with weather_site(tmp_path / "nws") as one:
        token = tmp_path / "token"
        token.write_text(one.serving.token)
        token.chmod(0o600)
        monkeypatch.setenv("NWS_SERVICE", one.url)
        monkeypatch.setenv("NWS_TOKEN_FILE", str(token))
        with one.client() as client:
            client.store(wave("availableCpu/ada", 200))
            client.store(wave("latencyTcp/ada/bob", 30))
            client.store(wave("availableCpu/carl", 30))
            client.store(wave("availableCpu/adam", 30))
        yield one


def values_of(text):
    return {float(one) for one in re.findall(r'<data value="([^"]+)"', text)}


def sources_of(text):
    """Return by name of each series that the page draws the source that it names."""
    section = r'<h2 id="h-series[^"]*"><bdi>([^<]+)</bdi></h2>\s*<p class="quiet">[^<]*<bdi>([^<]+)</bdi>'
    return dict(re.findall(section, text))


def leagues_of(text):
    """Return the names in the headings of the leagues of predictors."""
    headings = re.findall(r'<h3 id="h-league[^"]*">([^<]+)</h3>', text)
    return [heading.split()[-1] for heading in headings]


@pytest.mark.usefixtures("listed")
def test_what_a_service_tells_of_a_host_is_on_its_page_with_the_league(site, visitor, service):
    page = visitor.get(site.url + PAGE).text
    with service.client() as client:
        league = client.league("availableCpu/ada")
        told = client.forecasts(["availableCpu/ada", "latencyTcp/ada/bob"])
    numbers = values_of(page)
    for one in told:
        assert {one["value"], one["lower"], one["upper"]} <= numbers
    assert {one["error"] for one in league["predictors"]} <= numbers
    assert f"<b>{league['method']}</b>" in page
    assert page.count('<svg role="img"') == 1
    (source,) = sources_of(page).values()
    assert service.url in source
    assert leagues_of(page) == ["availableCpu/ada"]
    assert "availableCpu/carl" not in page
    assert "availableCpu/adam" not in page
    assert f'href="{PAGE}"' in visitor.get(f"{site.url}/hosts?name=hosts.toml").text


def test_what_was_remembered_is_on_the_page_where_no_service_knows_it(site, visitor, listed):
    values = remembered(listed)
    remembered(listed, host="bob")
    page = visitor.get(site.url + PAGE).text
    assert [*sources_of(page)] == leagues_of(page) == ["availableCpu/ada"]
    assert values[-1].value in values_of(page)
    assert "availableCpu/bob" not in page
    assert page.count('<svg role="img"') == 1


def test_what_a_service_tells_comes_before_what_was_remembered(site, visitor, listed, service):
    remembered(listed)
    remembered(listed, "freeMemory", ago=3600.0)
    page = visitor.get(site.url + PAGE).text
    sources = sources_of(page)
    assert [name for name in sources if service.url in sources[name]] == ["availableCpu/ada"]
    assert [*sources] == ["availableCpu/ada", "freeMemory/ada"]
    assert page.count('<svg role="img"') == 2
    assert len(set(re.findall(r' id="([^"]+)"', page))) == len(re.findall(r' id="([^"]+)"', page))
    row = next(one for one in page.split("<tr") if "<bdi>freeMemory/ada</bdi>" in one)
    assert row.startswith(' class="stale"')
    url = service.url
    service.serving.close()
    page = visitor.get(site.url + PAGE).text
    assert "[service-unreachable]" in page
    sources = sources_of(page)
    assert [*sources] == ["availableCpu/ada", "freeMemory/ada"]
    assert len({*sources.values()}) == 1
    assert url not in sources["availableCpu/ada"]


def spoilt(key, value):
    """Return what puts a value in the place of every entry of that key, however deep."""

    def spoil(document):
        if isinstance(document, list):
            return [spoil(one) for one in document]
        if not isinstance(document, dict):
            return document
        return {name: value if name == key else spoil(one) for name, one in document.items()}

    return spoil


@pytest.mark.more
@pytest.mark.usefixtures("listed")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("series", "x"),
        ("series", [{"series": 7}]),
        ("forecasts", []),
        ("forecasts", 7),
        ("period", "often"),
        ("value", math.nan),
        ("latest", None),
        ("times", [1.0]),
        ("times", "now"),
        ("values", [None, {}]),
        ("lows", [0.5]),
        ("predictors", {"name": "<b>"}),
        ("remarks", 7),
    ],
    ids=str,
)
def test_what_is_no_answer_of_a_service_is_said_and_what_was_remembered_is_shown(
    site, visitor, service, listed, monkeypatch, key, value
):
    spoil = spoilt(key, value)

    class Between(BaseHTTPRequestHandler):
        def do_GET(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            told = requests.request(
                self.command, service.url + self.path, data=body, timeout=60,
                headers={"Authorization": self.headers["Authorization"], "Content-Type": "application/json"},
            )  # fmt: skip
            content = json.dumps(spoil(told.json())).encode()
            self.send_response(told.status_code)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self):
            self.do_GET()

        def log_message(self, *_):
            pass

    remembered(listed, "freeMemory")
    with ThreadingHTTPServer(("127.0.0.1", 0), Between) as between:
        threading.Thread(target=between.serve_forever).start()
        try:
            monkeypatch.setenv("NWS_SERVICE", f"http://127.0.0.1:{between.server_port}")
            page = visitor.get(site.url + PAGE)
        finally:
            between.shutdown()
    assert page.status_code == 200
    assert "[answer-invalid]" in page.text
    assert "freeMemory/ada" in page.text


@pytest.mark.usefixtures("listed")
def test_of_a_host_that_nobody_measured_the_page_says_so(site, visitor):
    page = visitor.get(site.url + PAGE)
    assert page.status_code == 200
    assert "NWS_SERVICE" in page.text  # the page names what would give it series
    assert (sources_of(page.text), "[answer-invalid]" in page.text) == ({}, False)
    for path in ("/hosts/zoe?name=hosts.toml", "/hosts/ada?name=no.toml"):
        assert visitor.get(site.url + path).status_code == 400
    assert visitor.get(f"{site.url}/hosts/%3Cb%3E?name=hosts.toml").status_code == 422


def test_a_schedulers_host_has_its_series_where_its_list_is_known(site, visitor, listed):
    live = LiveSite(["ada", "bob"])
    try:
        address = f"{site.url}/cluster/lab/hosts/ada"
        assert sources_of(visitor.get(address).text) == {}
        remembered(listed)
        page = visitor.get(address).text
        assert [*sources_of(page)] == leagues_of(page) == ["availableCpu/ada"]
        assert 'action="/cluster/lab/hosts/ada/drain"' in page
    finally:
        live.end()
