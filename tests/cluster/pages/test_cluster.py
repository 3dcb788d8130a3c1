"""The pages of a live scheduler: what its queue says, bounded; stale when nobody answers; buttons are commands."""

import gzip
import html
import re
import shutil
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace

import pytest
from commands import command
from hypothesis import given
from hypothesis import strategies as st
from jobs.pages.test_pages import PAYLOAD, is_tame
from pages.live_site import LiveSite
from sites import SAMPLE
from waiting import until

from apples.applications import DocumentFolder
from apples.cluster import (
    MAX_HOSTS,
    MAX_WAITING,
    PER_PAGE,
    Cluster,
    ClusterQuery,
    Kept,
    Supposition,
    cluster_parts,
    expected_end,
    host_map,
    job_parts,
    read_state,
    said,
    time_scale,
    why_text,
)
from apples.errors import LaunchError
from apples.io import Folder
from apples.ui import Frame, page
from apples.weather import HostWeather


@pytest.fixture
def live(own_state):  # noqa: ARG001 - its scheduler is under that state directory
    one = LiveSite(["ada", "bob", "eve"])
    yield one
    one.end()


@pytest.fixture
def busy(live):
    """A scheduler with a job that runs and two that wait."""
    live.submit(2)
    until(lambda: live.job(1)["state"] == "running")
    live.submit(3)
    live.submit(2, name=PAYLOAD)
    return live


@pytest.mark.usefixtures("busy")
def test_the_page_says_what_apples_queue_says(site, visitor):
    page = visitor.get(site.url + "/cluster")  # there is one scheduler: this leads to it
    assert page.url == f"{site.url}/cluster/lab"
    document = command("apples", "queue", "--json").document
    assert [one["state"] for one in document["jobs"]] == ["running", "queued", "queued"]
    for one in document["jobs"]:
        assert f'href="/cluster/lab/jobs/{one["job"][4:]}"' in page.text
        assert one["reason"] in page.text
    for one in document["hosts"]:
        assert f'href="/cluster/lab/hosts/{one["host"]}"' in page.text
    assert re.search(r"<h1>.*lab.*3</data> hosts.*1</data> running.*2</data> waiting", page.text)
    assert re.search(r"lab\.1\b[^<]*\bada, bob", page.text)  # what happened
    assert is_tame(page.text)


def test_without_a_scheduler_the_page_says_how_to_start_one(site, visitor):
    assert re.search(r"<code>apples scheduler --hosts\b", visitor.get(site.url + "/cluster").text)
    missing = visitor.get(site.url + "/cluster/nobody")
    assert missing.status_code == 400
    assert "[scheduler-unknown]" in missing.text


@pytest.mark.usefixtures("live")
def test_several_schedulers_are_a_list(site, visitor):
    other = LiveSite(["zoe"], "other")
    try:
        text = visitor.get(site.url + "/cluster").text
    finally:
        other.end()
    assert 'href="/cluster/lab"' in text
    assert 'href="/cluster/other"' in text


@pytest.mark.more
def test_a_scheduler_that_is_gone_has_a_stale_page_and_is_back_when_it_is(site, visitor, busy):
    address = site.url + "/cluster/lab"
    assert "[scheduler-unreachable]" not in visitor.get(address).text
    busy.end()
    text = until(lambda: (found := visitor.get(address).text) and "[scheduler-unreachable]" in found and found)  # fmt: skip  # noqa: E501
    assert "lab.1" in text
    assert 'class="said bad stale"' in text
    busy.begin()
    until(lambda: "[scheduler-unreachable]" not in visitor.get(address).text)


def test_a_scheduler_that_never_answered_is_said(site, visitor, live):
    live.end()
    try:
        page = visitor.get(site.url + "/cluster/lab")
        assert page.status_code == 409
        assert "[scheduler-unreachable]" in page.text
    finally:
        live.begin()


def test_the_page_of_a_job_says_why_it_waits_and_cancels_it(site, visitor, busy):
    page = "/cluster/lab/jobs/2"
    text = visitor.get(site.url + page).text
    why = command("apples", "queue", "lab.2", "--json").document
    assert (why["needs"], why["free"], why["position"]) == (3, 1, 1)
    assert why["reason"] in text
    answer = site.post(visitor, f"{page}/cancel", page=page)
    assert (answer.status_code, answer.headers["location"]) == (303, page)
    assert busy.job(2)["state"] == "cancelled"
    again = site.post(visitor, f"{page}/cancel", page="/cluster/lab/jobs/3")
    assert again.status_code in {303, 400}
    missing = visitor.get(site.url + "/cluster/lab/jobs/99")
    assert missing.status_code == 400
    assert "[job-unknown]" in missing.text


def test_a_running_job_is_resized_from_its_page_and_refused_in_the_schedulers_words(site, visitor, live):  # fmt: skip  # noqa: E501
    live.submit(1, kind="malleable", maximum=3)
    until(lambda: live.job(1)["state"] == "running")
    page = "/cluster/lab/jobs/1"
    done = site.post(visitor, f"{page}/resize", page=page, hosts="ada, eve")
    assert done.status_code == 303
    until(lambda: set(live.job(1)["hosts"]) == {"ada", "eve"})
    refused = site.post(visitor, f"{page}/resize", page=page, hosts="nobody")
    said = command("apples", "resize", "lab.1", "--on", "nobody")
    assert (refused.status_code, said.code, said.error_codes) == (400, 2, ["host-unknown"])
    assert said.err.removeprefix("apples: ").strip() in html.unescape(refused.text)


def test_a_host_is_drained_and_resumed_from_its_page(site, visitor, live):
    page = "/cluster/lab/hosts/eve"
    assert f'action="{page}/drain"' in visitor.get(site.url + page).text
    for verb, state in (("drain", "drained"), ("resume", "free")):
        assert site.post(visitor, f"{page}/{verb}", page=page).status_code == 303
        found = live.client.ask("GET", "/v1/queue")["hosts"]
        assert {one["host"]: one["state"] for one in found}["eve"] == state
    missing = visitor.get(f"{site.url}/cluster/lab/hosts/nobody")
    assert missing.status_code == 400
    assert "[host-unknown]" in missing.text


def test_a_host_may_have_as_long_a_name_as_a_list_allows(site, visitor, own_state):
    host = "a-host-of-a-site-that-names-them." * 7 + "example.org"
    (own_state / "hosts.toml").write_text(f'[[host]]\nname = "{host}"\n')
    assert visitor.get(f"{site.url}/hosts/{host}?name=hosts.toml").status_code == 200
    live = LiveSite([host])
    try:
        page = f"/cluster/lab/hosts/{host}"
        assert site.post(visitor, f"{page}/drain", page=page).status_code == 303
        assert live.client.ask("GET", "/v1/queue")["hosts"][0]["state"] == "drained"
    finally:
        live.end()


def test_a_host_whose_list_is_in_the_folder_has_its_share(site, visitor, live, own_state):
    rows = "".join(f'[[host]]\nname = "{one}"\ncpu = 0.25\n' for one in live.hosts)
    (own_state / "hosts.toml").write_text(rows)
    text = visitor.get(site.url + "/cluster/lab").text
    assert text.count('<data value="0.25">0.25</data>') == 3
    assert (
        '<data value="0.25">0.25</data>' in visitor.get(site.url + "/cluster/lab/hosts/eve").text
    )


def test_a_running_job_shows_strips_pace_and_its_last_resize():
    record = {
        "hosts": ["ada", "bob"], "rows": [300, 100], "predicted_seconds": 60.0,
        "last_resize": {"epoch": 1, "seconds": 0.5, "phases": {}},
    }  # fmt: skip
    document = queue(1, running=1)
    document["jobs"][0] |= {"iteration": 30, "iterations": 90, "started": 975.0}
    text = page_of(document, records={"lab.1": record})
    assert re.search(r"\b1\.25\b[^<]*\b60\.0 s", text)
    assert 'aria-label="ada 300 rows, bob 100 rows"' in text
    assert 'width="75.00%"' in text
    assert '<data value="0.5">500 ms</data>' in text


def test_a_running_job_says_when_it_ends_and_what_it_asks_for():
    document = queue(1, running=1)
    document["jobs"][0] |= {"expected_end": 1090.0, "asks": [2, 4]}
    text = page_of(document)
    assert "90.0 s" in text
    assert re.search(r"\b2 to 4\b", text)
    document["jobs"][0] |= {"expected_end": None, "asks": None}
    assert "90.0 s" not in page_of(document)
    why = {"job": "lab.1", "state": "running", "position": None, "placed": "", "reason": ""}
    frame = Frame("", "", "", None, "")
    job = document["jobs"][0] | {"expected_end": 1090.0, "asks": [2, 2], "reason": "1 is free"}
    model = {**job_parts(job, 1000.0), "why": why_text(why), "base": "/cluster/lab", "stream": "/"}
    text = page("cluster_job.html.j2", model, frame)
    assert "90.0 s" in text
    assert "<bdi>1 is free</bdi>" in text


def test_a_bar_ends_when_the_job_is_expected_to_and_else_when_its_estimate_does():
    (job,) = queue(1, running=1)["jobs"]
    assert expected_end(job) == 300.0 + 1200.0
    assert expected_end({**job, "expected_end": 1090.0}) == 1090.0


@pytest.fixture
def sample(own_state):
    """The address of a plan of the sample."""
    for each in SAMPLE.iterdir():
        if each.is_file():
            shutil.copy(each, own_state)
    return "/plan?weather=static"


def test_a_form_submits_what_apples_submit_does(
    site, visitor, live, sample, own_state, monkeypatch
):
    text = visitor.get(site.url + sample).text
    assert "<option>lab</option>" in text
    fields = {
        "template": "template.toml",
        "user": "user.toml",
        "set": "iterations=7",
        "scheduler": "lab",
    }
    answer = site.post(
        visitor, "/plan/submit", sample, minimum="1", maximum="3", priority="9", **fields
    )
    assert (answer.status_code, answer.headers["location"]) == (303, "/cluster/lab/jobs/1")
    assert "lab.1" in visitor.get(site.url + "/cluster/lab/jobs/1").text
    typed = re.search(r"<code>(apples submit .*?)</code>", text)[1].split()
    monkeypatch.chdir(own_state)
    said = command(*typed, "--set", "iterations=7", "--max", "3", "--scheduler", live.folder)
    assert said.code == 0, said.err
    with closing(Folder.open(live.folder)) as folder:
        recorded = read_state(folder).jobs
    ours, theirs = (recorded[k].submission for k in (1, 2))
    assert replace(ours, work={}) == replace(theirs, work={})
    assert {**ours.work, "seal": ""} == {**theirs.work, "seal": ""}


def test_what_cannot_be_submitted_is_said_as_the_command_says_it(site, visitor, live, sample):
    fields = {"template": "template.toml", "user": "", "set": ""}
    for least, most, scheduler, culprit, code in (
        ("2", "1", "lab", "--max 1", "value-range"),
        ("x", "", "lab", "--min x", "value-range"),
        ("0", "", "lab", "--min 0", "value-range"),
        ("1", "", "<nobody>", "<nobody>", "scheduler-unknown"),
    ):
        answer = site.post(
            visitor, "/plan/submit", sample, minimum=least, maximum=most, scheduler=scheduler,
            **fields,
        )  # fmt: skip
        assert answer.status_code == 400
        assert f"[{code}]" in answer.text
        assert culprit in html.unescape(answer.text)
    answer = site.post(
        visitor, "/plan/submit", sample, template="../x.toml", user="", scheduler="lab"
    )
    assert "[name-invalid]" in answer.text
    assert live.client.ask("GET", "/v1/queue")["jobs"] == []


def test_a_plan_for_a_launcher_that_is_none_is_refused(site, visitor, sample):
    text = visitor.get(site.url + sample + "&actuator=ssh").text
    assert re.search(r"<code>apples run --detach [^<]*--actuator ssh\b", text)
    answer = site.post(visitor, "/plan/run", sample, template="template.toml", hosts="hosts.toml", actuator="rm.py:x")  # fmt: skip  # noqa: E501
    assert answer.status_code == 400
    assert "[launcher-unknown]" in answer.text


# ------------------------------------------------------------------------------- what if
@pytest.fixture
def foretelling(own_state):  # noqa: ARG001 - its scheduler is under that state directory
    one = LiveSite(["ada", "bob", "eve"], planned=True)
    one.submit(1)
    until(lambda: one.job(1)["state"] == "running")
    one.submit(3)
    one.submit(3)
    yield one
    one.end()


@pytest.mark.usefixtures("foretelling")
def test_what_if_is_answered_with_the_command_that_asks_and_what_would_do_it(site, visitor):
    asked = {"policy": "sjf", "hosts": "-1", "job": "lab.2", "minimum": "2"}
    late, address = "[planner-silent]", site.url + "/cluster/lab/what-if"
    page = until(lambda: late not in (found := visitor.get(address, params=asked)).text and found)
    assert page.status_code == 200
    typed = "apples queue --what-if --policy sjf --hosts-less 1 --minimum lab.2=2"
    assert "said bad" not in page.text, page.text[page.text.index("said bad") :][:300]
    assert f"<code>{typed}</code>" in page.text
    document = command(*typed.split(), "--json").document
    for side in ("now", "then"):
        assert f'<data value="{document[side]["hosts"]}">' in page.text
        assert f"<bdi>{document[side]['policy']}</bdi>" in page.text
    for does in (
        "apples scheduler --name lab --policy sjf",
        "apples drain bob",
        "apples cancel lab.2",
    ):
        assert f"<code>{does}</code>" in page.text
    assert is_tame(page.text)


@pytest.mark.usefixtures("live")
def test_what_nobody_can_foretell_or_choose_is_said(site, visitor):
    page = visitor.get(site.url + "/cluster/lab/what-if")
    assert "[planner-missing]" in page.text
    wrong = visitor.get(
        site.url + "/cluster/lab/what-if", params={"policy": "<b onload=alert(1)>"}
    )
    assert "[policy-unknown]" in wrong.text
    assert is_tame(wrong.text)


@given(
    st.sampled_from(["", "fcfs"]),
    st.integers(-5, 5),
    st.sampled_from(["", "lab.7"]),
    st.integers(1, 9),
)
def test_a_supposition_and_its_command_ask_the_same(policy, hosts, job, minimum):
    one = Supposition(policy, hosts, job, minimum)
    words = one.command().split()[3:]
    options = dict(zip(words[::2], words[1::2], strict=True))
    body = one.body()
    assert options.get("--policy", "") == body["policy"]
    assert int(options.get("--hosts-more", 0)) == body["hosts_more"]
    assert int(options.get("--hosts-less", 0)) == body["hosts_less"]
    assert options.get("--minimum", "") == (f"{job}={minimum}" if body["minimum"] else "")


# -------------------------------------------------------------------------------- bounds
def queue(hosts, running=0, waiting=0, over=0):
    """An `apples.queue/1` of so many hosts and jobs at the time 1000."""
    jobs = []
    for number in range(1, running + waiting + over + 1):
        runs, waits = number <= running, running < number <= running + waiting
        jobs.append({
            "job": f"lab.{number}", "state": "running" if runs else "queued" if waits else "finished",
            "name": f"job {number * 7919 % 1000}", "kind": "rigid", "after": [], "minimum": 1, "maximum": 1,
            "hosts": [f"host-{number}"] if runs else [], "submitted": 100.0 + number / 100,
            "started": None if waits else 300.0, "ended": None if runs or waits else 900.0,
            "start": [1100.0 + number, 1200.0 + number, 1500.0 + number] if waits else None,
            "requested": 1200.0, "mean_hosts": None, "iteration": None, "iterations": None, "resizes": 0,
            "attempt": 1, "record": "", "reason": f"needs {number} hosts, 0 are free" if waits else "",
            "exit_code": None,
        })  # fmt: skip
    held = {one["hosts"][0]: one["job"] for one in jobs if one["hosts"]}
    return {
        "name": "lab", "policy": "easy", "time": 1000.0, "trouble": "", "alarms": [], "jobs": jobs,
        "hosts": [
            {"host": name, "state": "held" if name in held else "free", "job": held.get(name), "reason": ""}
            for name in (f"host-{k + 1}" for k in range(hosts))
        ],
    }  # fmt: skip


def test_a_search_finds_hosts_and_jobs_by_their_words():
    document = queue(5, 2, 3)
    shown = cluster_parts(document, ClusterQuery("HOST-2 running"), {}, {}, {})
    assert [row["job"]["job"] for row in shown["running"]] == ["lab.2"]
    shown = cluster_parts(document, ClusterQuery("lab.1"), {}, {}, {})
    assert [*shown["hosts"].entries] == document["hosts"][:1]


def page_of(document, query=None, records=None):
    parts = cluster_parts(document, query or ClusterQuery(), {}, records or {}, {})
    shown = {**parts, "stale": "", "age": 0.0, "base": "/cluster/lab", "stream": "/"}
    return page("cluster_parts.html.j2", shown)


def test_a_thousand_hosts_and_ten_thousand_jobs_are_a_page_of_150_kb():
    document = queue(1000, 800, 8000, 1200)
    text = page_of(document)
    assert len(gzip.compress(text.encode(), 4)) < 150_000
    assert text.count("<tr>") <= 2 * PER_PAGE + 100
    assert '<data value="8000">8000</data>' in text
    assert re.search(r"\b1 of 80\b", text)
    assert "lab.8750" in page_of(document, ClusterQuery(words="lab.8750"))


def test_every_host_is_a_cell_of_the_map():
    assert host_map(queue(1000, 400)["hosts"]).count("M") == 1000


def test_only_so_many_lanes_are_drawn():
    chart = cluster_parts(queue(100, 50, 50), ClusterQuery(), {}, {}, {})["chart"]
    assert chart.count("may start</text>") == MAX_WAITING
    assert chart.count('class="run"') == MAX_HOSTS


times = st.floats(-1e7, 1e7)


@given(st.lists(times, max_size=20))
def test_both_sides_of_now_stay_readable_whatever_is_drawn(moments):
    scale = time_scale(0.0, moments)
    assert scale.low < 0 < scale.limit
    assert 1 / 3.0001 <= scale.limit / -scale.low <= 3.0001
    assert 0 <= scale.at(0.0) <= 100


def test_what_happened_is_the_latest_first():
    document = queue(5, 1, 1, 1)
    document["alarms"] = [{"time": 950.0, "text": "eve is silent"}]
    words = [text for _, text in said(document)]
    assert words[0] == "eve is silent"
    assert words[1].startswith("lab.3 finished")
    assert words[-1].startswith("lab.2 came: needs")


def test_an_answer_serves_all_who_ask_for_a_while_and_a_failure_nobody():
    asked = []
    kept = Kept(3600.0)
    assert [kept.of("a", lambda: asked.append(1) or len(asked)) for _ in range(3)] == [1, 1, 1]
    with pytest.raises(ZeroDivisionError):
        kept.of("b", lambda: 1 / 0)
    assert kept.of("b", lambda: 7) == 7
    assert Kept(-1.0).of("a", time.time) > 0


@pytest.fixture
def silent(tmp_path):
    """A socket that accepts connections and never answers; the connections so far."""
    accepted = []

    def accept():
        with suppress(OSError):
            while True:
                accepted.append(listener.accept())

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield accepted
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    for connection, _ in accepted:
        connection.close()


def test_stopped_scheduler_is_asked_once(tmp_path, silent):
    cluster = Cluster("lab", tmp_path, DocumentFolder(tmp_path), HostWeather(), seconds=0.2)
    for question in (
        cluster.queue,
        lambda: cluster.read("/v1/jobs/1"),
        lambda: cluster.ask("POST", "/v1/x"),
    ):
        with pytest.raises(LaunchError) as caught:
            question()
        assert caught.value.code == "scheduler-unreachable"
    assert len(silent) == 1


def test_stopped_scheduler_does_not_block_other_answers():
    kept, waiting, go = Kept(3600.0), threading.Event(), threading.Event()

    def slow():
        waiting.set()
        assert go.wait(30)
        return "slow"

    with ThreadPoolExecutor() as pool:
        answer = pool.submit(kept.of, "a", slow)
        assert waiting.wait(30)
        assert kept.of("b", lambda: "quick") == "quick"
        go.set()
        assert answer.result() == "slow"


def test_list_shows_a_scheduler_that_does_not_answer(site, visitor, tmp_path, silent):
    schedulers = tmp_path / "state" / "apples" / "schedulers"
    for name in ("mute", "other"):
        (schedulers / name).mkdir(parents=True)
        (schedulers / name / "journal").mkdir()
    (schedulers / "mute" / "socket").symlink_to(tmp_path / "socket")
    for _ in range(3):
        page = visitor.get(f"{site.url}/cluster")
        assert (page.status_code, "mute" in page.text, "other" in page.text) == (200, True, True)
        assert visitor.get(f"{site.url}/cluster/mute").status_code == 409
    assert len(silent) == 1
