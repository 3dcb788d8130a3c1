"""The pages: the same facts as the commands, every name escaped, what is wrong in words."""

import html
import json
import re
import shutil
import time
from html.parser import HTMLParser

import pytest
from commands import command
from hypothesis import given
from hypothesis import strategies as st
from pages.documents import run

from apples.jobs import ORDERS, PER_PAGE, RecordedRuns, RunQuery, page_of, recorded, store
from apples.resources import read_host_list
from apples.weather import history
from nws import Measurement, SeriesName

PAYLOAD = '"><img src=x onerror=alert(1)><script>alert(1)</script>'


class Tags(HTMLParser):
    """Every tag of a page with its attributes."""

    def __init__(self, text):
        super().__init__()
        self.seen = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))


def is_tame(text):
    """Whether a page has neither script, but our own, nor image nor handler."""
    for tag, attributes in Tags(text).seen:
        if tag == "script" and attributes.get("src", "").startswith("/script.js?"):
            continue
        if tag in {"script", "img", "iframe"} or any(name.startswith("on") for name in attributes):
            return False
    return True


def record(name="jacobi2d", hosts=("ada", "bob"), **news):
    document = run(hosts)
    document["plan"]["application"]["name"] = name
    with recorded({}, pytest.fail) as recorder:
        recorder.job.plan.write_text(json.dumps(document["plan"]))
        recorder.note(
            name=name, blueprint="blocked", hosts=list(hosts), predicted_seconds=2.6, **news
        )
        recorder.finished(document)
    return recorder.id


def test_the_list_shows_what_apples_runs_says(site, visitor):
    ids = {record(), record("heat")}
    said = {one["id"]: one for one in command("apples", "jobs", "--json").document["runs"]}
    text = visitor.get(site.url + "/").text
    shown = set(re.findall(r'href="/runs/(\w+)"', text))
    assert shown == ids == {*said}
    for one in said.values():
        assert f'<data value="{one["predicted_seconds"]!r}">' in text
        assert one["application"] in text


def test_an_empty_list_says_what_to_do(site, visitor):
    assert "apples run" in visitor.get(site.url + "/").text


def test_a_run_has_the_parts_of_its_saved_page_and_no_verbs(site, visitor):
    one = record()
    page = visitor.get(f"{site.url}/runs/{one[:5]}")
    assert page.status_code == 200
    for heading in ("Where the time of an iteration went", "Why these hosts", "To repeat"):
        assert heading in page.text
    assert "<form" not in page.text
    saved = visitor.get(f"{site.url}/runs/{one}/report.html")
    assert saved.text.startswith("<!DOCTYPE html>")
    assert "style-src 'unsafe-inline'" in saved.headers["content-security-policy"]
    assert "script-src" not in saved.headers["content-security-policy"]


def test_a_run_that_is_not_there_is_said_as_the_command_says_it(site, visitor):
    page = visitor.get(f"{site.url}/runs/00000000")
    said = command("apples", "logs", "00000000")
    assert page.status_code == 400
    assert (said.code, said.error_codes) == (2, ["run-unknown"])
    assert said.err.removeprefix("apples: ").strip() in html.unescape(page.text)
    assert visitor.get(f"{site.url}/runs/..%2f..").status_code in {404, 422}
    assert visitor.get(f"{site.url}/nowhere").status_code == 404


def test_a_job_that_waits_shows_its_verbs_and_the_commands(site, visitor):
    job = store.create({}, "heat")
    with job.supervising():
        job.write({**job.record(), "state": "running", "hosts": ["ada"], "rows": [7]})
        page = visitor.get(f"{site.url}/runs/{job.id}")
        for verb in ("cancel", "resize", "migrate", "rebalance"):
            assert f'action="/runs/{job.id}/{verb}"' in page.text
        for words in ("cancel", "resize"):
            assert f"apples {words} {job.id}" in page.text


@pytest.mark.parametrize(
    ("verb", "fields", "words"),
    [
        ("resize", {"hosts": "ada,ada"}, ["resize", "--on", "ada,ada"]),
        ("resize", {"hosts": "ada=x"}, ["resize", "--on", "ada=x"]),
        ("resize", {"hosts": "ada"}, ["resize", "--on", "ada"]),
        ("rebalance", {}, ["resize", "--balance"]),
        ("migrate", {"from": "ada", "to": "bob"}, ["resize", "--from", "ada", "--to", "bob"]),
        ("restart", {}, ["restart"]),
    ],
    ids=str,
)
def test_a_button_refuses_in_the_words_of_the_command(site, visitor, file, verb, fields, words):
    job = store.create({}, "heat")
    job.write({**job.record(), "state": "failed", "reason": "it was told to", "exit_code": 5})
    said = command("apples", words[0], job.id, *words[1:])
    answer = site.post(visitor, f"/runs/{job.id}/{verb}", page=file, **fields)
    assert said.code in {2, 4}
    assert answer.status_code == {2: 400, 4: 409}[said.code]
    assert said.error_codes
    refusal = said.err.removeprefix("apples: ").strip()
    assert f"{refusal} (exit code {said.code})" in html.unescape(answer.text)


@pytest.mark.parametrize(
    ("verb", "fields"),
    [("resize", {"hosts": "ada"}), ("migrate", {"from": "ada", "to": "bob"}), ("restart", {})],
    ids=str,
)
def test_a_job_of_a_scheduler_is_not_moved_behind_its_back(site, visitor, file, verb, fields):
    job = store.create({"scheduled": {"scheduler": "lab", "job": 3}}, "heat")
    answer = site.post(visitor, f"/runs/{job.id}/{verb}", page=file, **fields)
    assert answer.status_code == 400
    assert "[job-scheduled]" in answer.text
    assert "lab.3" in answer.text


def test_a_job_is_cancelled_from_its_page(site, visitor, file):
    job = store.create({}, "heat")
    answer = site.post(visitor, f"/runs/{job.id}/cancel", page=file)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/runs/{job.id}")
    assert job.record()["state"] in {"cancelled", "failed"}
    text = visitor.get(f"{site.url}/runs/{job.id}").text
    assert f"{job.id} is" in text
    assert f"{job.id} is cancelled</bdi>" not in visitor.get(f"{site.url}/runs/{job.id}").text


def test_runs_are_compared_as_the_command_compares_them(site, visitor):
    one, other = record(), record(hosts=("ada",))
    document = command("apples", "report", one, other, "--json").document
    text = visitor.get(f"{site.url}/compare", params={"run": [one, other]}).text
    assert is_tame(text)
    for figure in document["figures"]:
        for value in (each["value"] for each in figure["runs"]):
            assert value is None or f'<data value="{value!r}">' in text
    for name in document["differ"]:
        assert name in text
    assert visitor.get(f"{site.url}/compare", params={"run": [one]}).status_code == 400


def test_what_a_name_carries_stays_text_on_every_page(site, visitor, own_state):
    one = record(PAYLOAD, hosts=(PAYLOAD, "bob"))
    job = store.create({}, PAYLOAD)
    job.log.write_text(PAYLOAD)
    folder = own_state / PAYLOAD.replace("/", "")
    folder.mkdir()
    name = f"{folder.name}/x.toml"
    (own_state / name).write_text(f"name = '{PAYLOAD}'\nprogram = 3\n")
    pages = [
        "/",
        f"/?words={PAYLOAD}",
        f"/runs/{one}",
        f"/runs/{one}/report.html",
        f"/runs/{job.id}",
        f"/runs/{job.id}/log",
        f"/compare?run={one}&run={one}",
        "/files",
        f"/file?name={name}",
        f"/file?name={PAYLOAD}",
        f"/hosts?name={name}",
        f"/{PAYLOAD}",
    ]
    for path in pages:
        text = visitor.get(site.url + path).text
        assert "onerror=alert" in text or path in {f"/{PAYLOAD}", f"/runs/{job.id}"}, path
        assert is_tame(text), path


# ------------------------------------------------------------------------------ list
entries = st.lists(
    st.fixed_dictionaries({
        "id": st.uuids().map(lambda one: one.hex[:8]),
        "application": st.sampled_from(["heat", "jacobi2d", ""]),
        "state": st.sampled_from(["running", "failed"]),
        "started": st.none() | st.floats(0, 1e9),
        "predicted_seconds": st.none() | st.floats(0, 1e9),
        "measured_seconds": st.none() | st.floats(0, 1e9),
        "blueprint": st.none() | st.just("blocked"),
        "reason": st.just(""),
        "hosts": st.lists(st.sampled_from(["ada", "bob"]), max_size=2),
    }),
    max_size=3 * PER_PAGE,
    unique_by=lambda one: one["id"],
)  # fmt: skip


@given(
    entries,
    st.sampled_from(ORDERS),
    st.booleans(),
    st.sampled_from(["", "heat", "ada fail", "zz"]),
)
def test_the_pages_of_a_list_are_all_that_was_found_in_order(entries, order, descending, words):
    first = page_of(entries, RunQuery(words, order, descending))
    pages = [
        page_of(entries, RunQuery(words, order, descending, k + 1)) for k in range(first.pages)
    ]
    shown = [one for page in pages for one in page.entries]
    assert len(shown) == first.found == len({one["id"] for one in shown})
    assert all(len(page.entries) == PER_PAGE for page in pages[:-1])
    text = {
        one["id"]: " ".join([one["application"], one["state"], *one["hosts"]]) for one in entries
    }
    wanted = {k for k, t in text.items() if all(word in t or word in k for word in words.split())}
    assert wanted == {one["id"] for one in shown}
    known = [one[order] for one in shown if one[order] is not None]
    assert known == sorted(known, reverse=descending)
    assert all(one[order] is None for one in shown[len(known) :])
    assert page_of(entries, RunQuery(words, order, descending, 10**6)) == pages[-1]
    assert first.going == sum(one["state"] == "running" for one in entries)


@pytest.mark.usefixtures("own_state")
def test_a_record_that_changes_or_goes_is_seen():
    runs = RecordedRuns()
    job = store.create({}, "heat")
    job.write({**job.record(), "state": "failed"})
    assert [one["state"] for one in runs.entries()] == ["failed"]
    assert runs.entries() == [one.summary() for one in store.records()]
    job.write({**job.record(), "state": "cancelled"})
    assert [one["state"] for one in runs.entries()] == ["cancelled"]
    shutil.rmtree(job.folder)
    assert runs.entries() == []


# ----------------------------------------------------------------------------- files
@pytest.mark.usefixtures("file")
def test_the_files_of_the_folder_are_checked_as_hat_check_does(site, visitor, own_state):
    (own_state / "wrong.toml").write_text("name = 'heat'\nprogramm = ['x']\n")
    (own_state / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    text = visitor.get(site.url + "/files").text
    done = command("hat", "check", own_state / "wrong.toml", "--json")
    problem = json.loads(done.out)["files"][0]["problems"][0]
    assert f"line {problem['line']}" in text
    assert problem["message"].replace("'", "&#39;") in text
    assert "hosts.toml" in text
    page = visitor.get(site.url + "/file?name=wrong.toml").text
    assert "did you mean" in page
    assert "programm = [" in page


@pytest.mark.parametrize(
    "name",
    ["../secret.toml", "/etc/secret.toml", "hosts.txt", ".hidden.toml", "link.toml",
     "a/../../secret.toml", "x\0.toml", ""],
)  # fmt: skip
@pytest.mark.usefixtures("file")
def test_nothing_outside_the_folder_is_read(site, visitor, own_state, name):
    (own_state.parent / "secret.toml").write_text("name = 'PRIVATE'")
    (own_state / "link.toml").symlink_to(own_state.parent / "secret.toml")
    (own_state / ".hidden.toml").write_text("name = 'PRIVATE'")
    for path in ("/file", "/hosts"):
        answer = visitor.get(site.url + path, params={"name": name})
        assert answer.status_code == 400
        assert "PRIVATE" not in answer.text


def test_hosts_are_shown_with_what_is_remembered_and_how_old_it_is(site, visitor, own_state, file):
    listed = read_host_list(own_state / "hosts.toml")
    now = time.time()
    series = SeriesName("availableCpu", "ada")
    history.remember(
        listed, {series: [Measurement(series, now - 3600 + 60 * k, 0.25) for k in range(20)]}
    )
    text = visitor.get(site.url + file).text
    ada, bob = (row for row in text.split("<tr")[2:])
    assert '<data value="0.25">' in ada
    assert "20</data> samples" in ada
    assert "stale" in ada
    assert '<data value="0.5">' in bob
    assert "never" in bob


def test_hosts_are_measured_only_when_somebody_asks(site, visitor, file):
    assert "Measured" not in visitor.get(site.url + file).text
    answer = site.post(visitor, "/hosts/measure", page=file, name="hosts.toml")
    assert answer.status_code == 303
    assert "Measured" in visitor.get(site.url + answer.headers["location"]).text
