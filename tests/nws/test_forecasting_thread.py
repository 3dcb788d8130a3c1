"""The forecasters have a thread of their own: nothing that they do keeps another request waiting."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from nws import (
    Client,
    Listen,
    Measurement,
    ScoredForecaster,
    SeriesName,
    Serving,
    SlicedWorker,
    classic,
)

SLOW = SeriesName("availableCpu", "slow")
BACKLOG = 60_480
"""A week of one series at 10 s, as `nws import` stores it."""


class StuckForecaster(ScoredForecaster):
    """A forecaster that does not come back from one update until it is let go."""

    stuck, go = threading.Event(), threading.Event()

    def update(self, measurement):
        if measurement.series == SLOW and not self.stuck.is_set():
            self.stuck.set()
            assert self.go.wait(120)
        super().update(measurement)


def history(count):
    now = time.time()
    return [Measurement(SLOW, now - 10.0 * (count - step), step % 7 / 7) for step in range(count)]


def test_all_but_forecasts_is_answered_while_a_forecaster_does_not_come_back(quick_disk):
    database = {"profile": "classic", "make": lambda _: StuckForecaster(classic())}
    StuckForecaster.stuck.clear()
    StuckForecaster.go.clear()
    with (
        Serving(quick_disk / "nws", Listen(port=0), database=database) as serving,
        Client(serving.url, serving.token) as client,
        ThreadPoolExecutor(1) as other,
    ):
        try:
            client.store(history(100))
            asked = other.submit(client.forecasts, [str(SLOW)])
            assert StuckForecaster.stuck.wait(60)
            with Client(serving.url, serving.token) as second:
                assert requests.get(f"{serving.url}/healthz", timeout=60).text == "ok\n"
                fast = SeriesName("availableCpu", "fast")
                assert second.store([Measurement(fast, time.time(), 0.5)])["stored"] == 1
                assert second.status()["backlog"] >= 100
                assert len(second.range(str(SLOW))["values"]) == 100
                assert second.series("*")["total"] == 2
            assert not asked.done()
        finally:
            StuckForecaster.go.set()
        assert asked.result(60)[0]["samples"] == 100


@pytest.mark.more
def test_healthz_answers_while_a_week_is_taken_in(quick_disk):
    """Slow: the forecasters take in 60,480 measurements."""
    database = {"profile": "classic"}
    with (
        Serving(quick_disk / "nws", Listen(port=0), database=database) as serving,
        Client(serving.url, serving.token, deadline=300) as client,
        ThreadPoolExecutor(1) as other,
    ):
        client.store(history(BACKLOG))
        asked = other.submit(client.forecasts, [str(SLOW)])
        answers = 0
        while not asked.done() and answers < 10:
            assert requests.get(f"{serving.url}/healthz", timeout=60).ok
            answers += 1
        assert answers == 10
        assert asked.result(300)[0]["samples"] == BACKLOG


def test_a_job_without_an_end_keeps_no_other_waiting():
    def forever():
        while True:
            yield

    def short():
        yield
        return 7

    worker = SlicedWorker(lambda: False)
    endless = worker.submit(forever())
    assert worker.submit(short()).result(60) == 7
    assert endless.cancel()
    assert worker.run(short()) == 7
    worker.close()
    with pytest.raises(RuntimeError):
        worker.submit(short())


def test_an_error_of_a_job_or_the_background_ends_neither_the_thread_nor_others(caplog):
    def failing():
        yield
        raise ValueError("odd")

    def short():
        yield
        return 7

    calls = threading.Event()

    def background():
        calls.set()
        raise ValueError("worse")

    worker = SlicedWorker(background)
    with pytest.raises(ValueError, match="odd"):
        worker.run(failing())
    assert calls.wait(60)
    assert worker.run(short()) == 7
    worker.close()
    assert "worse" in caplog.text
