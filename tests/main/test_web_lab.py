"""A job on hosts of a real lab, from the form to its end, by the pages alone: in a browser, and without script."""

import contextlib
import re
import shutil

import pytest
from pages.browser import Browser, chromium
from sites import SAMPLE, Site
from waiting import until

from apples import jobs
from apples.jobs import store
from apples.launch import marked

pytestmark = [
    pytest.mark.browser,
    pytest.mark.lab,
    pytest.mark.mpi,
    pytest.mark.more,
    pytest.mark.skipif(chromium() is None, reason="no chromium on this machine"),
]
LONG = "iterations=100000 pause=0.01"
WORDS = "document.querySelector('main').textContent"
TITLE = "document.querySelector('h1').textContent"


@pytest.fixture
def own_state(monkeypatch, lab, state):
    """A folder with the sample and the lab's host list."""
    monkeypatch.setenv("NWS_SERVICE", "")
    project = state / "project"
    shutil.copytree(SAMPLE, project)
    shutil.copy(lab.hosts, project / "hosts.toml")
    (project / "user.toml").unlink()
    return project


@pytest.fixture
def scheduler(own_state):
    """A scheduler of the lab's hosts, all of which have answered."""
    hosts = str(own_state / "hosts.toml")
    site = Site(own_state.parent, "fcfs", "--hosts", hosts, "--actuator", "ssh")
    with contextlib.closing(site) as one:
        one.start()
        names = ("ada", "bob", "far")
        until(lambda: all(one.host(name)["state"] == "free" for name in names), 180)
        yield one


@pytest.fixture
def page(site, tmp_path, monkeypatch):
    """The form for a plan in a browser that was admitted, and that waits for what takes long on a lab."""
    monkeypatch.setattr("pages.browser.DEADLINE", 240.0)
    browser = Browser(tmp_path / "profile")
    browser.go(site.link())
    browser.arrive()
    browser.go(site.url + "/plan?weather=static&actuator=ssh")
    browser.evaluate("window.errors = []; addEventListener('error', e => errors.push(e.message))")
    yield browser
    browser.close()


def typed(browser, name, text):
    """Type into the only box of a name, where somebody would open what it is in."""
    box = f"document.querySelector('[name={name}]')"
    browser.evaluate(
        f"{box}.value = ''; if ({box}.closest('details')) {box}.closest('details').open = true"
    )
    browser.evaluate(f"{box}.focus()")
    browser.ask("Input.insertText", text=text)


def pressed(browser, words):
    """Press the button of some words, and wait for the page that it leads to."""
    found = f"[...document.querySelectorAll('button')].find(one => one.textContent === {words!r})"
    browser.evaluate(f"{found}.click()")
    browser.arrive()


def resized(browser, hosts):
    """Ask for other hosts until the job has settled and takes the order."""

    def taken():
        typed(browser, "hosts", hosts)
        pressed(browser, "Resize")
        said = browser.evaluate("document.querySelector('.said.good')?.textContent ?? ''")
        return hosts in said  # of this order, not of the start

    until(taken, 240)


def shows(browser, expression, words, seconds=180):
    until(lambda: words in browser.evaluate(expression), seconds)


def test_a_job_is_submitted_resized_and_cancelled_from_the_pages_of_a_scheduler(page, scheduler):
    """It waits for real jobs on a lab."""
    typed(page, "set", LONG)
    until(lambda: "pause%3D0.01" in page.evaluate("location.search"))
    typed(page, "minimum", "1")
    typed(page, "maximum", "2")
    pressed(page, "Submit it")
    assert page.evaluate("location.pathname") == "/cluster/local/jobs/1"
    page.evaluate("window.mine = 1")
    shows(page, TITLE, "is running")
    shows(page, WORDS, " of 100000")
    before = scheduler.job("local.1")
    target = "far" if before["hosts"] == ["ada"] else "ada"
    resized(page, target)
    until(lambda: scheduler.job("local.1")["hosts"] == [target], 180)
    shows(page, WORDS, f"hosts{target}")
    assert re.search(r"resizes\s*1", page.evaluate(WORDS))
    page.go(re.sub("/jobs/.*", "", page.evaluate("location.href")))
    shows(page, WORDS, "1 running")
    page.click("tbody th a")
    page.arrive()
    pressed(page, "Cancel")
    shows(page, TITLE, "is cancelled")
    until(lambda: all(one["state"] == "free" for one in scheduler.queue()["hosts"]), 180)
    assert marked(before["record"]) == []


def test_a_run_on_a_lab_is_started_resized_and_cancelled_from_its_page(page):
    """It waits for a real job on a lab."""
    typed(page, "set", LONG)
    until(lambda: "pause%3D0.01" in page.evaluate("location.search"))
    pressed(page, "Run it, detached")
    assert page.evaluate("location.pathname").startswith("/runs/")
    job = store.jobs()[0]
    try:
        shows(page, WORDS, " of 100000")
        hosts = job.record()["hosts"]
        target = "bob" if hosts == ["ada"] else "ada"
        resized(page, target)
        until(lambda: job.record()["hosts"] == [target])  # written every half second
        shows(page, WORDS, "epoch 1")
        typed(page, "hosts", "nobody")
        pressed(page, "Resize")
        assert page.evaluate("document.querySelector('.said').className") == "said bad"
        page.evaluate("window.mine = 1")
        iteration = "document.querySelector('[data-key=iteration]').textContent"
        seen = page.evaluate(iteration)
        until(lambda: page.evaluate(iteration) != seen)  # the page of a refusal goes on
        assert page.evaluate("document.querySelector('.late').textContent") == ""
        pressed(page, "Cancel")
        shows(page, WORDS, "cancelled")
    finally:
        jobs.cancel(job.id)
    until(lambda: marked(job.id) == [])


def test_without_a_script_the_same_is_done_by_its_forms(site, visitor, scheduler):
    """It waits for a real job on a lab."""
    page = "/plan?weather=static"
    answer = site.post(
        visitor, "/plan/submit", page, template="template.toml", user="", set=LONG,
        scheduler="local", minimum="1", maximum="2",
    )  # fmt: skip
    assert answer.status_code == 303, answer.text
    place = answer.headers["location"]
    until(lambda: "is running" in visitor.get(site.url + place).text, 180)
    assert "of 100000" in visitor.get(site.url + place).text
    target = "far" if scheduler.job("local.1")["hosts"] == ["ada"] else "ada"
    order = (visitor, place + "/resize", place)
    until(lambda: site.post(*order, hosts=target).status_code == 303, 180)
    until(lambda: f"<dd><bdi>{target}</bdi></dd>" in visitor.get(site.url + place).text, 180)
    assert site.post(visitor, place + "/cancel", place).status_code == 303
    until(lambda: "is cancelled" in visitor.get(site.url + place).text, 180)
    assert scheduler.job("local.1")["state"] == "cancelled"
