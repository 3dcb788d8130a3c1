"""Who is admitted: the one-time link, the cookie, the Host, the origin of a form and its token."""

import pytest
import requests
from pages.routes import ROUTES, routes_of
from pages.served import TOKEN

from apples.ui import FORM_BYTES, MAX_SESSIONS, Sessions


def get(url, **more):
    return requests.get(url, timeout=60, **more)


def test_a_link_admits_one_browser_and_the_next_is_told(site):
    first = site.link()
    browser = requests.Session()
    entered = browser.get(first)
    assert entered.status_code == 200
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert browser.get(site.url + "/").status_code == 200
    again = get(first)
    assert again.status_code == 401
    assert "[link-used]" in again.text
    assert site.link() != first
    assert get(site.link()).status_code == 200


def test_a_link_that_is_wrong_admits_nobody(site):
    for key in ("", "x", site.keys[0][:-1], site.keys[0] + "x", "\u20ac"):
        assert get(f"{site.url}/enter", params={"key": key}).status_code == 401
    assert get(site.link()).status_code == 200


def test_no_route_answers_who_was_not_admitted(site):
    for method, path in ROUTES:
        answer = requests.request(method, site.url + path, allow_redirects=False, timeout=60)
        assert answer.status_code == 401, (method, path)
        assert "[session-missing]" in answer.text, (method, path)


def test_every_route_is_asked_without_a_session(site):
    assert {(method, path) for method, path in ROUTES} == routes_of(site)


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:8080", "", "evil.example:80"]
)
def test_a_page_that_another_name_leads_to_is_refused(site, visitor, host):
    answer = visitor.get(site.url + "/", headers={"Host": host})
    assert answer.status_code == 421


@pytest.mark.parametrize("host", ["localhost:9999", "127.0.0.1:1", "[::1]:8080", "LOCALHOST"])
def test_a_forwarded_port_is_answered_whatever_its_number(site, visitor, host):
    cookie = "; ".join(f"{one.name}={one.value}" for one in visitor.cookies)
    answer = visitor.get(site.url + "/", headers={"Host": host, "Cookie": cookie})
    assert answer.status_code == 200


POSTS = [path for method, path in ROUTES if method == "POST"]


FOREIGN = (
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:1"},
    {"Origin": "http://["},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
)


@pytest.mark.parametrize("path", POSTS)
def test_a_form_of_another_site_is_refused(site, visitor, file, path):
    for headers in FOREIGN:
        answer = site.post(visitor, path, page=file, headers=headers)
        assert answer.status_code == 403, headers
        assert "[origin-foreign]" in answer.text, headers


@pytest.mark.parametrize("path", POSTS)
def test_a_form_without_the_token_of_its_session_is_refused(site, visitor, file, path):
    other = site.visitor()
    assert visitor.post(site.url + path, data={"token": ""}).status_code == 403
    assert visitor.post(site.url + path, data={"x": "1"}).status_code == 403
    stolen = site.post(other, path, page=file)
    assert stolen.status_code != 403
    token = TOKEN.search(other.get(site.url + file).text)[1]
    assert visitor.post(site.url + path, data={"token": token}).status_code == 403


def test_what_is_no_form_or_too_large_is_refused(site, visitor):
    url = site.url + "/hosts/measure"
    assert visitor.post(url, json={}).status_code == 415
    assert visitor.post(url, data="x" * (FORM_BYTES + 1), headers={"Content-Type": "application/x-www-form-urlencoded"}).status_code == 413  # fmt: skip  # noqa: E501
    many = "&".join(f"a{k}=1" for k in range(3000))
    assert visitor.post(url, data=many, headers={"Content-Type": "application/x-www-form-urlencoded"}).status_code == 400  # fmt: skip  # noqa: E501
    assert visitor.put(url, data={"x": "1"}).status_code in {403, 405}


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/"), ("GET", "/files"), ("GET", "/nowhere")]
)
def test_every_answer_forbids_foreign_scripts_frames_and_copies(site, visitor, method, path):
    headers = visitor.request(method, site.url + path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "same-origin"


def test_the_oldest_browser_goes_when_there_are_too_many():
    keys = []
    sessions = Sessions(keys.append)
    sessions.announce()
    secrets = [sessions.enter(keys[-1]) for _ in range(MAX_SESSIONS + 1)]
    assert sessions.find(secrets[0]) is None
    assert all(sessions.find(one) for one in secrets[1:])
