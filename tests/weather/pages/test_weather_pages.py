"""The pages of a weather service: who sees them, and that they say what the service answers."""

import asyncio
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st
from pages.weather_site import HTML, wave, weather_site

from apples.ui import SIGN_IN_BYTES, Sessions
from apples.weather import quantity, series_chart
from nws import PER_PAGE, ListingQuery, SeriesName, SeriesSummary, listed

PAGES = ("/", "/series?name=availableCpu/ada")
PAYLOAD = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def weather(tmp_path_factory):
    with weather_site(tmp_path_factory.mktemp("nws")) as site:
        with site.client() as client:
            client.store(wave("availableCpu/ada", 300))
            client.store(wave("freeMemory/ada", 40))
            client.store(wave("availableCpu/gone", 40, ago=3600.0))
            client.store([one for k in range(150) for one in wave(f"load/host{k:03}", 5)])
        yield site


@pytest.fixture(scope="module")
def visitor(weather):
    return weather.visitor()


@pytest.mark.parametrize("path", PAGES)
def test_who_is_not_admitted_gets_the_form_in_a_browser_and_json_elsewhere(weather, path):
    page = requests.get(weather.url + path, headers=HTML, timeout=60)
    assert page.status_code == 401
    assert 'action="/enter"' in page.text
    assert 'name="key"' in page.text
    assert "availableCpu/gone" not in page.text
    for accept in ("*/*", "application/json"):
        told = requests.get(weather.url + path, headers={"Accept": accept}, timeout=60)
        assert told.status_code == 401
        assert told.json()["code"] == "token-invalid"
        assert told.json()["transient"] is False
        assert told.headers["WWW-Authenticate"] == "Bearer"


def test_the_routes_of_the_service_answer_json_whatever_is_accepted(weather):
    for path in ("/v1/status", "/v1/series", "/metrics", "/openapi.json", "/nowhere"):
        assert requests.get(weather.url + path, headers=HTML, timeout=60).json()["reason"]
    bearer = {"Authorization": f"Bearer {weather.serving.token}"}
    assert requests.get(f"{weather.url}/", headers=bearer, timeout=60).status_code == 404
    assert requests.get(f"{weather.url}/v1/status", headers=bearer, timeout=60).json()["series"]


def test_a_bearer_token_alone_shows_no_page(weather):
    bearer = {**HTML, "Authorization": f"Bearer {weather.serving.token}"}
    assert requests.get(f"{weather.url}/", headers=bearer, timeout=60).status_code == 401


def test_a_token_that_may_read_admits_until_it_is_revoked(weather):
    session, entered = weather.sign_in(weather.token("read"))
    assert entered.status_code == 200
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert session.get(f"{weather.url}/", timeout=60).status_code == 200
    weather.serving.tokens.revoke("read")
    assert session.get(f"{weather.url}/", timeout=60).status_code == 401


@pytest.mark.parametrize(("scopes", "status"), [(("write",), 403), (("probe", "write"), 403)])
def test_a_token_that_may_not_read_is_told_so(weather, scopes, status):
    session, answer = weather.sign_in(weather.token(*scopes))
    assert answer.status_code == status
    assert "[scope-missing]" in answer.text
    assert 'action="/enter"' in answer.text
    assert session.get(f"{weather.url}/", timeout=60).status_code == 401


def test_what_is_no_token_or_none_any_more_admits_nobody(weather):
    expired = weather.token("read", "write", seconds=-1)
    for token in ("", "nws_" + "x" * 43, expired, PAYLOAD, "\u20ac", "x" * 5000):
        session, answer = weather.sign_in(token)
        assert answer.status_code == 401
        assert not token or token not in answer.text
        assert not session.cookies


def test_a_browser_stays_admitted_for_as_long_as_was_said():
    for seconds, admitted in ((1e6, True), (0.0, False)):
        sessions = Sessions(lambda _: None, seconds)
        assert (sessions.find(sessions.open(lambda: True)) is not None) is admitted
    sessions = Sessions(lambda _: None)
    assert sessions.find(sessions.open(lambda: False)) is None


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://evil.example"},
        {"Origin": "http://["},
        {"Sec-Fetch-Site": "cross-site"},
    ],
    ids=str,
)
def test_a_token_is_taken_from_no_form_of_another_site(weather, headers):
    session, answer = weather.sign_in(weather.serving.token, headers)
    assert answer.status_code == 403
    assert not session.cookies


def test_who_was_not_admitted_sends_no_more_than_a_token_is_long(weather):
    _, answer = weather.sign_in("x" * SIGN_IN_BYTES)
    assert answer.status_code == 413


def test_a_form_that_came_by_https_through_a_proxy_is_ours(weather):
    origin = weather.url.replace("http://", "https://")
    _, answer = weather.sign_in(weather.serving.token, {"Origin": origin})
    assert answer.status_code == 200


def test_a_name_that_is_not_ours_is_refused(weather, visitor):
    headers = {"Host": "evil.example"}
    assert visitor.get(f"{weather.url}/", headers=headers, timeout=60).status_code == 421


def test_a_link_admits_once_and_its_answers_forbid_what_is_foreign(weather):
    link = weather.links[-1]
    page = weather.visitor().get(f"{weather.url}/", timeout=60)
    assert requests.get(link, headers=HTML, timeout=60).status_code == 401
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert page.headers["cache-control"] == "no-store"
    assert "<script" not in page.text


def values(text):
    """Return the numbers that a page marks as such."""
    return [float(one) for one in re.findall(r'<data value="([^"]+)"', text)]


def row_of(text, series):
    return next(row for row in text.split("<tr") if f">{series}<" in row)


def test_the_list_says_what_the_service_answers(weather, visitor):
    with weather.client() as client:
        for over in (None, 60.0):
            asked = "" if over is None else f"&over={over:.0f}"
            page = visitor.get(f"{weather.url}/?words=availableCpu+ada{asked}", timeout=60).text
            (told,) = client.forecasts(["availableCpu/ada"], over=over)
            row = row_of(page, "availableCpu/ada")
            for key in ("value", "lower", "upper", "error"):
                assert told[key] in values(row)
            assert told["method"] in row


def test_what_is_stale_is_hatched_and_says_how_old_it_is(weather, visitor):
    row = row_of(visitor.get(f"{weather.url}/?words=gone", timeout=60).text, "availableCpu/gone")
    assert 'class="stale"' in row
    assert "60.17 min" in row or re.search(r"6\d(\.\d+)? min", row)
    page = visitor.get(f"{weather.url}/series?name=availableCpu/gone", timeout=60).text
    assert "<b>stale</b>" in page


def test_a_list_is_searched_sorted_and_has_a_hundred_a_page(weather, visitor):
    def names(query):
        page = visitor.get(f"{weather.url}/?{query}", timeout=60).text
        return re.findall(r"<bdi>([a-zA-Z]+/[a-z0-9]+)</bdi>", page)

    first, second = names("words=load"), names("words=load&page=2")
    assert (len(first), len(second)) == (PER_PAGE, 50)
    assert first + second == [f"load/host{k:03}" for k in range(150)]
    assert names("order=age&descending=true")[0] == "availableCpu/gone"
    assert names("words=LOAD+17") == ["load/host017", "load/host117"]
    assert names("page=999999")[-1] == "load/host149"
    for wrong in ("page=0", "order=x", "over=7", f"words={'x' * 300}"):
        assert visitor.get(f"{weather.url}/?{wrong}", timeout=60).status_code == 422


def test_the_page_of_a_series_says_what_the_service_answers(weather, visitor):
    name = "availableCpu/ada"
    page = visitor.get(f"{weather.url}/series", params={"name": name}, timeout=60).text
    with weather.client() as client:
        league = client.league(name)
        (told,) = client.forecasts([name], over=600.0)
    found = values(page)
    for one in league["predictors"]:
        assert one["name"] in page
        assert one["error"] in found
        assert one["lately"] in found
    for one in league["candidates"]:
        assert one["rmse"] in found
    assert f"<b>{league['method']}</b>" in page
    assert {told["value"], told["lower"], told["upper"]} <= {*found}
    assert page.count("<svg role=") == 1


def test_a_series_that_is_none_is_not_found_and_what_was_typed_is_text(weather, visitor):
    for name in ("x", PAYLOAD, "", "availableCpu/nobody"):
        answer = visitor.get(f"{weather.url}/series", params={"name": name}, timeout=60)
        assert answer.status_code == 404
        assert PAYLOAD not in answer.text
    page = visitor.get(f"{weather.url}/", params={"words": PAYLOAD}, timeout=60).text
    assert PAYLOAD not in page


def test_what_is_wrong_with_the_service_stands_on_its_pages(weather, visitor):
    failing = weather.serving.handler.failing
    failing["x"] = f"states are not saved: {PAYLOAD}"
    try:
        for path in PAGES:
            page = visitor.get(weather.url + path, timeout=60).text
            assert "states are not saved" in page
            assert PAYLOAD not in page
    finally:
        del failing["x"]
    assert "states are not saved" not in visitor.get(f"{weather.url}/", timeout=60).text


NOW = 1e6
SEEN = st.lists(
    st.tuples(st.integers(0, 10**5).map(float), st.sampled_from([0.0, 0.25, 0.5, 1.0])),
    max_size=250,
)


@given(
    SEEN,
    st.sampled_from(["", "1", "HOST", "host 2", "nobody"]),
    st.sampled_from(["series", "value", "age"]),
    st.booleans(),
    st.integers(1, 4),
)
def test_a_page_of_the_list_is_what_sorting_all_of_it_gives(seen, words, order, descending, page):
    columns = []
    for k, (at, value) in enumerate(seen):
        column = SeriesSummary(SeriesName("load", f"host{k:03}"), k)
        column.add(k, at, value)
        columns.append(column)
    keys = {
        "series": lambda column: column.text,
        "value": lambda column: column.latest,
        "age": lambda column: NOW - column.newest,
    }
    fits = [one for one in columns if all(word in one.text for word in words.lower().split())]
    wanted = sorted(fits, key=keys[order], reverse=descending)
    shown, counts = listed(columns, ListingQuery(words, order, descending, page), NOW)
    pages = max(1, -(-len(fits) // PER_PAGE))
    number = min(page, pages)
    assert counts == {
        "found": len(fits), "total": len(columns), "page": number, "pages": pages,
    }  # fmt: skip
    assert shown == wanted[(number - 1) * PER_PAGE : number * PER_PAGE]


def test_only_the_series_of_the_page_are_in_its_list(weather):
    found = asyncio.run(weather.serving.handler.listing(ListingQuery("load")))
    assert found["found"] > PER_PAGE
    assert len(found["series"]) == PER_PAGE
    assert all(one["value"] is not None for one in found["series"])


def test_a_drawing_breaks_its_line_where_nothing_was_measured():
    times = [*range(0, 100, 10), *range(500, 600, 10)]
    kept = {"times": times, "values": [0.5] * 20, "lows": None, "highs": None}
    drawn = series_chart("availableCpu/ada", kept, [], 0.0, 600.0)
    whole = {**kept, "times": range(0, 200, 10)}
    unbroken = series_chart("availableCpu/ada", whole, [], 0.0, 600.0)
    for chart, lines in ((drawn, 2), (unbroken, 1)):
        steps = re.search(r'd="([^"]*)" class="line-run level"', chart)[1]
        assert steps.count("M") == lines


def test_a_drawing_says_no_more_than_it_has_room_for():
    ahead = [
        {"value": 2.0, "lower": 1.0, "upper": 9.0, "over": 50.0},
        {"value": 2.0, "lower": None, "upper": None, "over": 1e6},
    ]
    kept = {"times": [0.0, 50.0], "values": [1.0, 3.0], "lows": [0.5, 1], "highs": [4.0, 3]}
    drawn = series_chart("load/ada", kept, ahead, 0.0, 600.0)
    assert drawn.count("line-plan") == drawn.count('class="band level"') == 1
    assert "nan" not in drawn
    assert quantity("load/ada", 3.0) == "3"


def read_until(descriptor, pattern, seconds=120.0):
    text, end = "", time.monotonic() + seconds
    while time.monotonic() < end:
        if select.select([descriptor], [], [], 1.0)[0]:
            text += os.read(descriptor, 4096).decode()
            found = re.search(pattern, text)
            if found:
                return found[1], text
    raise AssertionError(text)


@pytest.mark.more
def test_the_command_tells_its_link_to_a_terminal_and_to_no_log(tmp_path):
    command = [str(Path(sys.executable).with_name("nws")), "serve", "--listen", "127.0.0.1:0"]
    command += ["--engine", "numpy", "--directory"]
    master, slave = pty.openpty()
    reading, writing = os.pipe()
    processes = [
        subprocess.Popen([*command, str(tmp_path / "seen")], stderr=slave, stdout=slave),
        subprocess.Popen([*command, str(tmp_path / "logged")], stderr=writing),
    ]
    try:
        link, _ = read_until(master, r"open (http://\S+)\s")
        session = requests.Session()
        assert session.get(link, headers=HTML, timeout=60).status_code == 200
        again, _ = read_until(master, r"open (http://\S+)\s")
        assert again != link
        url, said = read_until(reading, r"nws serve: (http://\S+), kept in")
        assert "enter" not in said
        token = (tmp_path / "logged" / "token").read_text().strip()
        answer = requests.post(f"{url}/enter", {"key": token}, headers=HTML, timeout=60)
        assert answer.status_code == 200
    finally:
        for one in processes:
            one.send_signal(signal.SIGTERM)
            one.wait(60)
        for descriptor in (master, slave, reading, writing):
            os.close(descriptor)
