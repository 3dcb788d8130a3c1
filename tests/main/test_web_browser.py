"""The served pages in a real browser: admitted by the link, nothing foreign asked for, everything by keyboard."""

import importlib.util
import json
import shutil
import threading
import tomllib
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

import pytest
from commands import EXAMPLE
from jobs.pages.test_pages import PAYLOAD, record
from pages.browser import Browser, chromium
from pages.live_site import LiveSite
from sites import SAMPLE
from waiting import until
from weather.pages.test_host_page import remembered

from apples.__main__ import PAGES
from apples.applications import new_document
from apples.jobs import store
from apples.resources import read_host_list
from apples.ui import Sessions, Site, Streams, create_app
from nws import HttpServer, Listen

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium() is None, reason="no chromium on this machine"),
]
LONG = "a-host-with-a-name-as-long-as-some-sites-like-them.cluster.example.org"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    one = Browser(tmp_path_factory.mktemp("profile"))
    yield one
    one.close()


@pytest.fixture
def live(own_state):  # noqa: ARG001 - its scheduler is under that state directory
    """A scheduler with a job that runs and one that waits."""
    one = LiveSite(["ada", "bob", LONG, *(f"node-{k}" for k in range(40))])
    one.submit(2)
    until(lambda: one.job(1)["state"] == "running")
    one.submit(43, name=PAYLOAD)
    yield one
    one.end()


@pytest.fixture
def paths(own_state, file, live):  # noqa: ARG001
    """The address of each kind of page, with names long and hostile."""
    one, other = record(hosts=("ada", LONG)), record(PAYLOAD, hosts=("ada", PAYLOAD))
    job = store.create({"hosts": str(own_state / "hosts.toml")}, "heat")
    job.log.write_text("a line\n" * 3)
    remembered(read_host_list(own_state / "hosts.toml"))
    (own_state / "wrong.toml").write_text("name = 'heat'\nprogramm = ['x']\n")
    (own_state / "heat.toml").write_text(new_document("template.toml", "heat"))
    (own_state / "pipeline.toml").write_text(new_document("pipeline.toml", "heat"))
    with job.supervising():
        job.write({**job.record(), "state": "running", "hosts": ["ada", LONG], "rows": [7, 9]})
        yield [
            "/",
            f"/runs/{one}",
            f"/runs/{other}",
            f"/runs/{job.id}",
            f"/runs/{job.id}/log",
            f"/compare?run={one}&run={other}",
            "/files",
            "/file?name=wrong.toml",
            "/file?name=hosts.toml",
            "/file?name=heat.toml",
            "/file?name=pipeline.toml",
            "/file/delete?name=hosts.toml",
            "/plan",
            "/plan?template=heat.toml&weather=static&set2=grid%3D50",
            "/cluster/lab",
            "/cluster/lab/jobs/2",
            "/cluster/lab/what-if",
            f"/cluster/lab/hosts/{LONG}",
            file,
            "/hosts/ada?name=hosts.toml",
            "/nowhere",
        ]


def test_the_link_leads_to_pages_that_ask_nobody_else_and_fit(site, paths, browser):
    browser.go(site.link())
    browser.arrive()  # the page that the link's page leads to
    assert browser.evaluate("location.pathname") == "/"
    for path in paths:
        for width, dark in ((320, True), (1280, False)):
            browser.go(site.url + path, width=width, dark=dark)
            own = [url for url in browser.requests if url.startswith((site.url, "data:"))]
            assert own == browser.requests
            refused = [one for one in browser.complaints if "404" not in json.dumps(one)]
            assert refused == [], path
            assert browser.evaluate("document.title").startswith("apples")
            paper = browser.evaluate("getComputedStyle(document.body).backgroundColor")
            assert paper == ("rgb(27, 27, 27)" if dark else "rgb(255, 255, 255)")
            browser.evaluate(
                "document.querySelectorAll('details').forEach(one => one.open = true)"
            )
            assert browser.evaluate("document.documentElement.scrollWidth") <= width, path


AXE = """axe.run(document, {resultTypes: ["violations"]}).then(
  found => { window.axed = found.violations.map(one => [one.id, one.nodes[0].html]) },
  error => { window.axed = String(error) }); 0"""


@pytest.mark.skipif(
    importlib.util.find_spec("axe_playwright_python") is None,
    reason="axe-playwright-python is not installed",
)
def test_axe_finds_nothing_on_any_page_in_either_scheme_at_either_width(site, paths, browser):
    rules = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text()
    browser.go(site.link())
    browser.arrive()
    for path in paths:
        for width, dark in ((320, False), (320, True), (1280, False), (1280, True)):
            browser.go(site.url + path, width=width, dark=dark)
            browser.evaluate(
                "document.querySelectorAll('details').forEach(one => one.open = true)"
            )
            assert axe(browser, rules) == [], (path, width, dark)
    browser.evaluate("document.querySelector('main').append(document.createElement('input'))")
    assert "label" in dict(axe(browser, rules))  # it does look


def axe(browser, rules):
    browser.evaluate(f"{rules}; window.axed = null; 0")
    browser.evaluate(AXE)
    until(lambda: browser.evaluate("window.axed") is not None)
    return browser.evaluate("window.axed")


UNNAMED = """[...document.querySelectorAll('input:not([type=hidden]), select, button, textarea')]
  .filter(one => !one.labels?.length && !one.getAttribute('aria-label') && !one.textContent.trim())
  .map(one => one.outerHTML)"""
SKIPPED = """(() => { let last = 0; const wrong = [];
  for (const one of document.querySelectorAll('h1,h2,h3')) {
    const level = +one.tagName[1]; if (level > last + 1) wrong.push(one.textContent); last = level; }
  return [document.querySelectorAll('h1').length, wrong]; })()"""


def test_every_field_has_a_name_and_every_page_one_heading(site, paths, browser):
    browser.go(site.link())
    browser.arrive()
    for path in paths:
        browser.go(site.url + path)
        assert browser.evaluate(UNNAMED) == [], path
        assert browser.evaluate(SKIPPED) == [1, []], path


@pytest.mark.usefixtures("paths")
def test_a_list_is_searched_and_a_button_pressed(site, browser):
    browser.go(site.link())
    browser.arrive()
    browser.evaluate("document.querySelector('[name=words]').value = 'heat'")
    browser.click("form[role=search] button")
    browser.arrive()
    assert browser.evaluate("document.querySelectorAll('tbody tr').length") == 1
    browser.click("tbody th a")
    browser.arrive()
    browser.evaluate("document.querySelector('[name=hosts]').value = 'ada,ada'")
    browser.click("form[action$=resize] button")
    browser.arrive()
    until(lambda: browser.evaluate("!!document.querySelector('[role=alert]')"))
    said = browser.evaluate("document.querySelector('[role=alert]').textContent")
    assert "[host-repeated] (exit code 2)" in said
    assert "--on ada" in said


@pytest.fixture
def entered(site, browser):
    browser.go(site.link())
    browser.arrive()
    return browser


@pytest.mark.usefixtures("paths")
def test_the_page_of_a_job_follows_it_and_says_when_nobody_answers(site, entered):
    browser, job = entered, store.jobs()[0]
    job.write({**job.record(), "iteration": 5, "iterations": 90})
    browser.go(f"{site.url}/runs/{job.id}")
    shown = "document.querySelector('[data-key=iteration]')?.textContent"
    browser.evaluate("window.mine = 1")
    assert browser.evaluate(shown) == "5 of 90"
    job.write({**job.record(), "iteration": 7})
    until(lambda: browser.evaluate(shown) == "7 of 90")
    job.log.write_text("what it said\n")
    log = "document.querySelector('[data-key=log]').textContent"
    until(lambda: browser.evaluate(log) == "what it said")
    job.write(
        {**job.record(), "last_resize": {"epoch": 1, "seconds": 2.0, "phases": {"halt": 0.5}}}
    )
    until(lambda: "halt" in browser.evaluate("document.querySelector('dl').textContent"))
    assert browser.evaluate("window.mine") == 1  # nothing was loaded anew
    site.server.should_exit = True
    until(lambda: "No answer" in browser.evaluate(LATE))


LATE = "document.querySelector('.late').textContent"
WORDS = "document.querySelector('main').textContent"


def test_the_page_of_a_scheduler_follows_it_and_is_stale_while_it_is_away(site, live, entered):
    browser = entered
    browser.go(f"{site.url}/cluster/lab")
    browser.evaluate("window.mine = 1")
    browser.evaluate("document.querySelector('[name=words]').focus()")
    browser.evaluate("document.querySelector('[name=words]').value = 'typed'")
    live.submit(43, name="late comer")
    until(lambda: "late comer" in browser.evaluate(WORDS))
    live.jobs.iterate(1, 30)
    shown = "document.querySelector('[data-key=\"lab.1\"]').textContent"
    until(lambda: browser.evaluate(shown) == "30 of 90")
    live.jobs.iterate(1, 31)
    until(lambda: browser.evaluate(shown) == "31 of 90")
    live.end()
    until(lambda: "The scheduler does not answer" in browser.evaluate(WORDS))
    live.begin()
    until(lambda: "does not answer" not in browser.evaluate(WORDS))
    live.submit(43, name="after all")
    until(lambda: "after all" in browser.evaluate(WORDS))
    assert browser.evaluate("window.mine") == 1
    assert browser.evaluate("document.querySelector('[name=words]').value") == "typed"
    assert browser.evaluate(LATE) == ""


def test_a_server_that_is_killed_and_comes_back_is_said_and_followed_again(
    own_state, live, entered
):
    browser, keys = entered, []
    sessions = Sessions(keys.append)
    with served(own_state, sessions) as port:
        sessions.announce()
        browser.go(f"http://127.0.0.1:{port}/enter?key={keys[-1]}")
        browser.arrive()
        browser.go(f"http://127.0.0.1:{port}/cluster/lab")
        browser.evaluate("window.mine = 1")
    until(lambda: "No answer from apples serve. Since" in browser.evaluate(LATE))
    live.submit(43, name="meanwhile")
    with served(own_state, sessions, port):
        until(lambda: "meanwhile" in browser.evaluate(WORDS))
        until(lambda: browser.evaluate(LATE) == "")
        assert browser.evaluate("window.mine") == 1
    with served(own_state, Sessions(keys.append), port):  # of which the browser has no cookie
        until(lambda: "Open the link" in browser.evaluate(LATE))


@contextmanager
def served(folder, sessions, port=0):
    streams = Streams()
    app = create_app(Site(folder, streams=streams), PAGES, sessions)
    server = HttpServer(app, Listen(port=port))
    server.ending = streams.close
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started)
    try:
        yield server.port
    finally:
        server.should_exit = True
        thread.join(30)


def test_a_plan_follows_what_is_typed(site, own_state, browser):
    for each in filter(Path.is_file, EXAMPLE.iterdir()):
        shutil.copy(each, own_state)
    browser.go(site.link())
    browser.arrive()
    browser.go(site.url + "/plan?weather=static")
    assert "18.6" in browser.evaluate("document.querySelector('h2').textContent")
    typed = "const box = document.querySelector('[name=set]'); box.value = 'grid=x';"
    browser.evaluate(f"{{ {typed} box.dispatchEvent(new Event('input', {{bubbles: true}})) }}")
    until(lambda: "grid" in browser.evaluate("document.querySelector('#answer').textContent"))
    until(lambda: "grid%3Dx" in browser.evaluate("location.search"))


def reached(browser, selector, words):
    """Press Tab until the focus is on what a selector finds and some words are on; nothing else is touched."""
    focus = f"document.activeElement.matches({json.dumps(selector)}) && document.activeElement.textContent.trim()"
    for _ in range(200):
        browser.press("Tab")
        if browser.evaluate(focus) == words:
            return
    raise AssertionError(f"Tab does not lead to {selector} {words}")


def entered_key(browser):
    """Press Enter on what has the focus."""
    enter = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13}
    browser.ask("Input.dispatchKeyEvent", type="keyDown", text="\r", **enter)
    browser.ask("Input.dispatchKeyEvent", type="keyUp", **enter)


def test_a_job_is_submitted_and_cancelled_with_the_keyboard_alone(site, live, own_state, entered):
    browser = entered
    for each in filter(Path.is_file, SAMPLE.iterdir()):
        shutil.copy(each, own_state)
    browser.go(site.url + "/plan?weather=static")
    reached(browser, "input[name=set]", "")
    browser.ask("Input.insertText", text="grid=80")
    until(lambda: "grid%3D80" in browser.evaluate("location.search"))
    reached(browser, "form[action='/plan/submit'] button", "Submit it")
    entered_key(browser)
    browser.arrive()
    assert browser.evaluate("location.pathname") == "/cluster/lab/jobs/3"
    reached(browser, "summary", "Cancel")
    entered_key(browser)
    reached(browser, "form[action$=cancel] button", "Cancel")
    entered_key(browser)
    browser.arrive()
    assert live.job(3)["state"] == "cancelled"
    words = browser.evaluate(WORDS)  # the page follows the job, which may have ended by now
    assert "is being cancelled" in words or "is cancelled" in words


@pytest.mark.usefixtures("paths")
def test_a_page_of_another_site_can_neither_read_nor_press(site, browser, tmp_path):
    browser.go(site.link())
    browser.arrive()
    job = store.jobs()[0]
    foreign = tmp_path / "foreign.html"
    foreign.write_text(
        f'<form method=post action="{site.url}/runs/{job.id}/cancel"><input name=token></form>'
    )
    browser.open(foreign)
    browser.evaluate("document.forms[0].submit()")
    browser.arrive()
    assert "Not admitted" in browser.evaluate("document.body.textContent")
    assert job.record()["state"] == "running"


SITES = {"lab": (4, "4e-9", "8 GiB"), "attic": (2, "6e-9", "2 GiB")}
SIX_HOSTS = [
    {
        "name": name, "address": f"10.0.{number // 3}.{number % 3 + 1}", "site": site,
        "slots": SITES[site][0], "seconds_per_point": float(SITES[site][1]), "free_memory": SITES[site][2],
    }
    for number, (name, site) in enumerate(
        [("ada", "lab"), ("bob", "lab"), ("eve", "lab"), ("joe", "attic"), ("kim", "attic"), ("lea", "attic")]
    )
]  # fmt: skip
THREE_LINKS = [
    {"between": ["lab", "lab"], "latency": 1e-4, "bandwidth": 1e8},
    {"between": ["lab", "attic"], "latency": 0.01, "bandwidth": 1e7},
    {"between": ["attic", "attic"], "latency": 2e-4, "bandwidth": 1e8},
]


class Form:
    """The form of a file in a browser: each box filled and each button clicked is an action."""

    def __init__(self, browser):
        self._browser = browser
        self.actions = 0

    def fill(self, name, value):
        box = f"document.querySelector('[name={json.dumps(name)}]')"
        self._browser.evaluate(f"{box}.value = {json.dumps(str(value))}")
        self.actions += 1

    def click(self, name, value):
        press(self._browser, f"button[name={json.dumps(name)}][value={json.dumps(value)}]")
        self.actions += 1

    def save(self):
        self._browser.click("button[value=save]")
        self._browser.arrive()
        self.actions += 1


def press(browser, selector=None):
    """Click a button of the form, or press Enter on the focused button, and wait for the changed form."""
    browser.evaluate("document.getElementById('file').dataset.before = 1")
    if selector:
        browser.click(selector)
    else:
        entered_key(browser)
    until(lambda: browser.evaluate("document.querySelector('#file:not([data-before])') !== null"))


def typed_lines(tables):
    return sum(1 + len(table) for table in tables)


def test_six_hosts_on_two_sites_take_no_more_actions_than_lines(site, own_state, entered):
    (own_state / "hosts.toml").write_text('[[host]]\nname = "new"\n')
    entered.go(site.url + "/file?name=hosts.toml", width=1280)
    form = Form(entered)
    for first in (0, 3):
        if first:
            form.click("add", "host")
        for key, value in SIX_HOSTS[first].items():
            form.fill(f"f:host[{first}].{key}", value)
        for number in (first + 1, first + 2):
            form.click("copy", f"host[{first}]")
            for key in ("name", "address"):
                form.fill(f"f:host[{number}].{key}", SIX_HOSTS[number][key])
    assert entered.evaluate("document.activeElement.name") == "f:host[5].name"
    for number, link in enumerate(THREE_LINKS):
        form.click("add", "link")
        for key in ("latency", "bandwidth"):
            form.fill(f"f:link[{number}].{key}", link[key])
    form.save()
    document = tomllib.loads((own_state / "hosts.toml").read_text())
    assert document == {"host": SIX_HOSTS, "link": THREE_LINKS}
    assert form.actions <= typed_lines(SIX_HOSTS) + typed_lines(THREE_LINKS)
    height = "document.querySelectorAll('.entry')[5].getBoundingClientRect().bottom + scrollY"
    assert entered.evaluate(height) < 1600  # two screens
    entered.go(site.url + "/file?name=hosts.toml", width=320)
    assert entered.evaluate("document.documentElement.scrollWidth") <= 320


def test_form_that_changes_in_place_keeps_open_what_was_open(site, own_state, entered):
    (own_state / "hosts.toml").write_text('[[host]]\nname = "ada"\n[[host]]\nname = "bob"\n')
    entered.go(site.url + "/file?name=hosts.toml")
    opened = "[...document.querySelectorAll('.entry details')].map(one => one.open)"
    entered.evaluate("document.querySelectorAll('.entry details')[1].open = true")
    entered.evaluate("document.querySelector('[name=\"f:host[0].slots\"]').value = '0'")
    press(entered, "button[value=check]")
    assert entered.evaluate(opened) == [False, True]
    assert entered.evaluate("document.activeElement.value") == "check"
    assert entered.evaluate("document.querySelectorAll('[aria-invalid]').length") == 1


def test_enter_in_the_number_of_new_hosts_adds_them(site, own_state, entered):
    (own_state / "hosts.toml").write_text('[[host]]\nname = "ada"\n')
    entered.go(site.url + "/file?name=hosts.toml")
    entered.evaluate("document.querySelector('[name=\"count:host\"]').value = '5'")
    entered.evaluate("document.querySelector('[name=\"count:host\"]').focus()")
    press(entered)
    assert (
        entered.evaluate('document.querySelectorAll(\'[name^="f:host"][name$=".name"]\').length')
        == 6
    )


def test_host_is_duplicated_and_removed_with_the_keyboard_alone(site, own_state, entered):
    (own_state / "hosts.toml").write_text('[[host]]\nname = "ada"\nslots = 2\n')
    entered.go(site.url + "/file?name=hosts.toml")
    reached(entered, "button[name=copy]", "Duplicate")
    press(entered)
    assert entered.evaluate("document.activeElement.name") == "f:host[1].name"
    entered.ask("Input.insertText", text="bob")
    reached(entered, "button[name=copy][value='host[1]']", "Duplicate")
    entered.press("Tab")
    press(entered)
    assert entered.evaluate("document.activeElement.textContent") == "Add hosts"
    assert entered.evaluate("document.querySelectorAll('.entry').length") == 1
