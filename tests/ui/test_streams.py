"""Streams of events for open pages: numbered, taken up after a cut, one look for all readers."""

import asyncio
import itertools
import json
import time

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st
from pages.live_site import LiveSite
from sse_starlette.sse import SendTimeoutError
from waiting import until

from apples.jobs import routes as job_routes
from apples.jobs import store
from apples.ui import MAX_KEPT, LiveStream, Streams, event_response, streams


@pytest.fixture
def live(own_state):  # noqa: ARG001 - its scheduler is under that state directory
    one = LiveSite(["ada", "bob"])
    yield one
    one.end()


class Reader:
    """Reads a stream of a page as a browser does."""

    def __init__(self, session, url, last=""):
        headers = {"Last-Event-ID": last} if last else {}
        self.answer = session.get(url, stream=True, timeout=60, headers=headers)
        assert self.answer.status_code == 200
        assert self.answer.headers["content-type"].startswith("text/event-stream")
        self.lines = self.answer.iter_lines(chunk_size=1)
        self.kind = ""

    def next(self, *kinds):
        """Return identifier and data of the next event of some kinds, and note its kind."""
        found, due = {}, time.monotonic() + 300
        for line in self.lines:
            assert time.monotonic() < due, f"none of {kinds}, though the stream goes on"
            key, _, value = line.decode().partition(": ")
            if value:
                found[key] = value
            elif found.get("event") in kinds:
                self.kind = found["event"]
                return found["id"], json.loads(found["data"])
            else:
                found = {}
        raise EOFError


@pytest.mark.more
def test_a_queue_is_followed_cut_and_taken_up(site, visitor, live):
    url = site.url + "/cluster/lab/events"
    reader = Reader(visitor, url)
    reader.next("changed")
    live.submit()
    until(lambda: live.job(1)["state"] == "running")
    reader.next("changed")
    other = Reader(visitor, url)  # keeps the look at the scheduler while the first is away
    done = 0
    # The page as a whole may change first, and has the iteration then: no text follows.
    while reader.kind != "text":
        live.jobs.iterate(1, done := done + 1)
        told = reader.next("text", "changed")
    assert told[1]["lab.1"].endswith(" of 90")
    reader.answer.close()
    live.jobs.iterate(1, done + 1)
    missed = Reader(visitor, url, told[0])
    while missed.next("text")[1] != {"lab.1": f"{done + 1} of 90"}:
        pass
    foreign = Reader(visitor, url, "00000000-7")
    foreign.next("changed")
    for one in (other, missed, foreign):
        one.answer.close()


def test_all_readers_cost_the_scheduler_one_stream(site, visitor, live):
    readers = [Reader(visitor, site.url + "/cluster/lab/events") for _ in range(30)]
    for one in readers:
        one.next("changed")
    live.submit()  # it lets 24 streams be read
    for one in readers:
        one.next("changed")
        one.answer.close()


@pytest.mark.more
def test_a_record_is_followed_until_the_server_ends(site, visitor):
    job = store.create({}, "heat")
    with job.supervising():
        job.write({**job.record(), "state": "running", "iteration": 1, "iterations": 9})
        reader = Reader(visitor, f"{site.url}/runs/{job.id[:5]}/events")
        reader.next("changed")
        job.write({**job.record(), "iteration": 2})
        while reader.next("text")[1].get("iteration") != "2 of 9":
            pass
        site.server.should_exit = True
        with pytest.raises((EOFError, requests.exceptions.ChunkedEncodingError)):
            reader.next("nothing of this kind")


@pytest.mark.more
def test_a_run_that_goes_on_is_drawn_anew_by_and_by(site, visitor, monkeypatch):
    numbers = itertools.count()
    monkeypatch.setattr(job_routes, "drawing_number", lambda _: next(numbers))
    job = store.create({}, "heat")
    with job.supervising():
        job.write({**job.record(), "state": "running", "submitted": time.time()})
        reader = Reader(visitor, f"{site.url}/runs/{job.id}/events")
        for _ in range(3):
            reader.next("changed")
        reader.answer.close()


@given(st.floats(0, 1e7), st.floats(0, 1e7))
def test_a_longer_run_is_drawn_anew_less_often(one, other):
    early, late = sorted((one, other))
    first, last = job_routes.drawing_number(early), job_routes.drawing_number(late)
    assert first <= last
    if last > first + 1:
        assert late - early >= job_routes.REDRAWN_SECONDS * 0.99
        assert late / max(early, 1.0) >= 1 + job_routes.REDRAWN_SHARE * 0.99 or late < 600


@pytest.mark.parametrize("known_streams", [Streams(most_readers=1)])
@pytest.mark.usefixtures("known_streams")
def test_a_reader_too_many_is_refused(site, visitor):
    job = store.create({}, "heat")
    url = f"{site.url}/runs/{job.id}/events"
    reader = Reader(visitor, url)
    reader.next("changed")
    refused = visitor.get(url)
    assert refused.status_code == 409
    assert "[too-many-requests]" in refused.text
    reader.answer.close()


class Told(LiveStream):
    """Tells nothing by itself."""

    async def look(self):
        await asyncio.Event().wait()


@given(st.lists(st.sampled_from("ab"), max_size=30), st.integers(0, 40))
def test_who_was_cut_gets_every_later_text_or_is_told_to_look_anew(doings, number):
    async def told():
        one = Told()
        keeps = one.follow("")
        await anext(keeps)
        for k, key in enumerate(doings):
            one.text(key, str(k))
            one.flush()
        life = one.last.partition("-")[0]
        reader = one.follow(f"{life}-{number}")
        await anext(reader)
        lines = b""
        if number != len(doings):
            lines = await asyncio.wait_for(anext(reader), 10)
        await reader.aclose()
        await keeps.aclose()
        return lines.decode()

    lines = asyncio.run(told())
    if number > len(doings):
        assert "event: changed" in lines
    else:
        shown = [json.loads(line[6:]) for line in lines.splitlines() if line.startswith("data: ")]
        assert shown == [{key: str(k)} for k, key in enumerate(doings)][number:]


def test_who_was_away_for_longer_than_is_kept_is_told_to_look_anew():
    async def told():
        one = Told()
        keeps = one.follow("")
        await anext(keeps)
        for k in range(MAX_KEPT + 5):
            one.text("a", str(k))
            one.flush()
        reader = one.follow(one.last.partition("-")[0] + "-3")
        await anext(reader)
        line = await asyncio.wait_for(anext(reader), 10)
        await reader.aclose()
        await keeps.aclose()
        return line

    assert b"event: changed" in asyncio.run(told())


def test_what_happens_together_is_told_once():
    async def told():
        one = Told()
        reader = one.follow(one.last)
        await anext(reader)
        await anext(reader)  # who comes from nowhere looks anew
        for k in range(100):
            one.text("a", str(k))
            one.change()
        line = await asyncio.wait_for(anext(reader), 10)
        await reader.aclose()
        return line.decode()

    lines = asyncio.run(told())
    assert lines.count("event: text") == lines.count("event: changed") == 1
    assert '{"a": "99"}' in lines


def test_streams_that_nobody_reads_make_room():
    async def made():
        known = Streams()
        for k in range(3 * streams.MAX_STREAMS):
            known.of(str(k), Told)
        return known

    known = asyncio.run(made())
    assert len(known.names) <= streams.MAX_STREAMS


def test_a_browser_that_takes_nothing_is_disconnected():
    ended = []

    async def events():
        try:
            while True:
                yield b"data: x\n\n"
        finally:
            ended.append(True)

    async def receive():
        await asyncio.Event().wait()

    async def send(message):
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    scope = {"type": "http", "method": "GET", "asgi": {}}

    async def answer():
        with pytest.raises(SendTimeoutError):
            await event_response(events(), 15, 0.05)(scope, receive, send)

    asyncio.run(answer())
    assert ended
