"""The NWS service: ingest, forecasts at 100 a second, restart, long answers, many clients, the size of a year."""

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import requests

from benchmarks.common import Row, milliseconds
from nws import Client, ForecastDatabase, Measurement, SeriesName, ServiceError, SqliteMemory

PORT = 18123
SERIES, ROWS = 500, 5000
PROGRAM = """
import sys
from pathlib import Path
from apples.weather.pages.service import WeatherPages
from nws import Listen, Serving
serving = Serving(
    Path(sys.argv[1]), Listen(port=int(sys.argv[2])), database={"engine": "auto"}, own_process=True,
    pages=WeatherPages(str).add,
)
serving.run()
"""
BARE = """
import sys
from pathlib import Path
import uvicorn
from fastapi import FastAPI, Request
Path(sys.argv[1], "token").write_text("none")
app = FastAPI()
@app.get("/healthz")
async def healthz():
    return "ok"
@app.get("/v1/status")
async def status():
    return {"status": "ok", "version": "", "backlog": 0, "problems": [], "stored_total": 0}
@app.post("/v1/measurements")
async def store(request: Request):
    await request.body()
    return {"stored": 10, "duplicates": 0, "refused": [], "refused_total": 0}
uvicorn.run(app, port=int(sys.argv[2]), http="h11", loop="asyncio", log_level="error")
"""
PAGES = ("/", "/?order=age", "/?words=7&over=300", "/series?name=availableCpu/host7")
"""Pages for a browser."""
ASKER = """
import json, sys, time
import requests
url, token, path = sys.argv[1:4]
session, taken = requests.Session(), []
session.headers["Authorization"] = "Bearer " + token
print("ready", flush=True)
stop = time.monotonic() + float(sys.argv[4])
while time.monotonic() < stop:
    begun = time.perf_counter()
    session.get(url + path, timeout=60).raise_for_status()
    taken.append(time.perf_counter() - begun)
    time.sleep(0.02)
print(json.dumps(taken))
"""


def cpu_seconds(server):
    """Return the CPU seconds of the server so far."""
    times = psutil.Process(server.pid).cpu_times()
    return times.user + times.system


def percentile(values, share):
    """Return a percentile of seconds, in milliseconds."""
    return 1e3 * sorted(values)[min(len(values) - 1, int(share * len(values)))]


def start(directory, program=PROGRAM, seconds=600):
    """Start a server; return it with a client when it answers, which takes a minute on a busy machine."""
    server = subprocess.Popen([sys.executable, "-c", program, str(directory), str(PORT)])
    url, deadline = f"http://127.0.0.1:{PORT}", time.monotonic() + seconds
    while True:
        try:
            requests.get(url + "/healthz", timeout=10)
            return server, Client(url, (directory / "token").read_text().strip())
        except (requests.ConnectionError, requests.Timeout):
            if server.poll() is not None or time.monotonic() > deadline:
                server.kill()
                raise
            time.sleep(0.05)


def bodies(count, start, series=SERIES, period=1.0):
    """Return the JSON bodies, made before the clock starts: the sender is not measured."""
    made = []
    for batch in range(-(-count // ROWS)):
        rows = []
        for index in range(batch * ROWS, min(count, (batch + 1) * ROWS)):
            at = start + period * (index // series)
            rows.append(
                f'{{"series":"availableCpu/host{index % series}","time":{at},"value":0.{index % 997}}}'
            )
        made.append(f'{{"measurements":[{",".join(rows)}]}}'.encode())
    return made


def post(client, made):
    for body in made:
        answer = client._session.post(client.url + "/v1/measurements", data=body, timeout=60)
        answer.raise_for_status()


def ingest(client, count):
    """Return the measurements that the service stores in a second."""
    made = bodies(count, time.time() - count / SERIES)
    started = time.perf_counter()
    post(client, made)
    return count / (time.perf_counter() - started)


def forecasts(client, seconds, rate=100):
    """Return the times of forecast requests at a rate."""
    taken, start = [], time.perf_counter()
    for number in range(seconds * rate):
        due = start + number / rate
        time.sleep(max(0.0, due - time.perf_counter()))
        begun = time.perf_counter()
        client.forecasts([f"availableCpu/host{number % SERIES}"])
        taken.append(time.perf_counter() - begun)
    return taken


def wait_for_forecasters(client, deadline=600):
    stop = time.monotonic() + deadline
    while client.status()["backlog"] and time.monotonic() < stop:
        time.sleep(0.5)


def start_asking(client, path, seconds):
    """Start a process that requests a path repeatedly and prints the times at its end."""
    token = client._session.headers["Authorization"].split()[1]
    asker = subprocess.Popen(
        [sys.executable, "-c", ASKER, client.url, token, path, str(seconds)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    asker.stdout.readline()
    return asker


def times_of(askers):
    """Return the times that the processes measured."""
    return [json.loads(asker.communicate()[0]) for asker in askers]


@contextmanager
def service(program=PROGRAM):
    """Yield a server, its client and its directory."""
    directory = Path(tempfile.mkdtemp(prefix="nws-bench-"))
    server, client = start(directory, program)
    try:
        yield server, client, directory
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(directory)


def store(settings):
    """Measure ingest by one client, forecast requests, and the restart from a million records."""
    records, seconds = settings.pick(1_000_000, 20_000), settings.pick(20, 1)
    with service() as (server, client, directory):
        before = cpu_seconds(server)
        rate = ingest(client, records)
        spent = cpu_seconds(server) - before
        yield Row("ingest", "one client over HTTP, stored on the disk", rate, "measurements/s")
        yield Row(
            "ingest, CPU",
            "the same for each second of the server's CPU",
            records / spent,
            "measurements/s",
        )
        wait_for_forecasters(client)
        before = cpu_seconds(server)
        taken = forecasts(client, seconds)
        spent = (cpu_seconds(server) - before) / len(taken)
        yield Row("forecast", "forecast requests at 100/s, median", milliseconds(taken), "ms")
        yield Row(
            "forecast, p99",
            "forecast requests at 100/s, 99th percentile",
            percentile(taken, 0.99),
            "ms",
        )
        yield Row("forecast, CPU", "CPU of the server for a forecast", 1e3 * spent, "ms CPU")
        begun = time.perf_counter()
        client.forecasts([f"availableCpu/host{i}" for i in range(SERIES)])
        yield Row(
            "500", f"{SERIES} forecasts in one request", 1e3 * (time.perf_counter() - begun), "ms"
        )
        server.terminate()
        server.wait(60)
        begun = time.perf_counter()
        database = ForecastDatabase(directory)
        yield Row("restart", f"restart from {records:,} records", time.perf_counter() - begun, "s")
        database.close(save=False)


def wide(settings):
    """Measure long answers of 12,000 series that are measured every 10 s, and short answers meanwhile."""
    series, seconds = settings.pick(12_000, 500), settings.pick(12, 2)
    paths = ("/healthz", "/v1/forecast?series=availableCpu/host7")
    with service() as (server, client, _):
        post(client, bodies(25 * series, time.time() - 250, series, 10.0))
        wait_for_forecasters(client)
        ended = threading.Event()
        measuring = threading.Thread(target=measure_series, args=(client, series, ended))
        measuring.start()
        try:
            token = client._session.headers["Authorization"].split()[1]
            with Client(client.url, token, deadline=60) as own:
                own._session.headers["Accept"] = "text/html,*/*"
                own._session.post(
                    f"{own.url}/enter", {"key": token}, timeout=60
                ).raise_for_status()
                for page in ("/metrics", "/metrics?over=300", "/v1/weather", *PAGES):
                    askers = [start_asking(client, path, seconds) for path in paths]
                    before = cpu_seconds(server)
                    taken = request_page(own, page, seconds)
                    spent = 1e3 * (cpu_seconds(server) - before) / len(taken)
                    bar = 200 if page == "/metrics" else None
                    yield Row(
                        page,
                        f"{page} of {series:,} series, median",
                        milliseconds(taken),
                        "ms",
                        at_most=bar,
                    )
                    yield Row(
                        f"{page}, CPU",
                        f"CPU of the server for each {page}, all else included",
                        spent,
                        "ms CPU",
                    )
                    for path, times in zip(paths, times_of(askers), strict=True):
                        short = path.partition("?")[0]
                        yield Row(f"{short} beside {page}", f"{short} beside {page}, 99th percentile",
                                  percentile(times, 0.99), "ms", at_most=20)  # fmt: skip
        finally:
            ended.set()
            measuring.join()


def measure_series(client, series, ended):
    """Store a measurement of each series every 10 s."""
    while True:
        for body in bodies(series, time.time(), series):
            if ended.is_set():
                return
            post(client, [body])
            ended.wait(10 * ROWS / series)


def request_page(client, page, seconds):
    """Return the times of a request a second, without the first, which fills caches."""
    taken, stop = [], time.monotonic() + seconds
    while time.monotonic() < stop:
        begun = time.perf_counter()
        client._session.get(client.url + page, timeout=60).raise_for_status()
        taken.append(time.perf_counter() - begun)
        time.sleep(1.0)
    return taken[1:] or taken


def clients(settings):
    """Let a hundred clients store ten series every second, on the service and on a server that stores nothing."""
    count, seconds = settings.pick(100, 5), settings.pick(600, 3)
    for name, program in (("service", PROGRAM), ("empty FastAPI", BARE)):
        with service(program) as (server, client, _):
            before = cpu_seconds(server)
            late, rounds, errors, taken = store_every_second(client, count, seconds)
            spent = 100 * (cpu_seconds(server) - before) / seconds
            title = f"{count} clients x 10 series x 1 Hz for {seconds} s, {name}"
            own = program == PROGRAM
            yield Row(
                f"late, {name}",
                f"{title}: late rounds",
                100 * late / rounds,
                "%",
                at_most=1 if own else None,
            )
            yield Row(f"errors, {name}", f"{title}: errors", errors, at_most=0 if own else None)
            yield Row(
                f"CPU, {name}",
                f"{title}: CPU of the server",
                spent,
                "%",
                at_most=15 if own else None,
            )
            yield Row(f"p99, {name}", f"{title}: 99th percentile", percentile(taken, 0.99), "ms")


def store_every_second(client, count, seconds):
    """Return the late rounds, all rounds, the number of errors and the times of the rounds."""
    token = client._session.headers["Authorization"].split()[1]
    late, errors, taken = [0] * count, [], []
    begin = time.time() + 1.0

    def report(number):
        names = [SeriesName("availableCpu", f"h{number}-{index}") for index in range(10)]
        with Client(client.url, token) as own:
            for turn in range(seconds):
                due = begin + turn + number / count
                time.sleep(max(0.0, due - time.time()))
                begun = time.perf_counter()
                try:
                    own.store([Measurement(name, due, 0.5) for name in names])
                except ServiceError as error:
                    errors.append(str(error))
                taken.append(time.perf_counter() - begun)
                late[number] += time.time() > due + 1.0

    threads = [threading.Thread(target=report, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(late), len(taken), len(errors), taken


def year(settings):
    """Measure the bytes of a year of two series, a measurement a minute, and the time to read one."""
    directory, day, now = Path(tempfile.mkdtemp(prefix="nws-bench-")), 86400.0, [0.0]
    count, days = settings.pick(2, 1), settings.pick(366, 5)
    try:
        memory = SqliteMemory(directory, clock=lambda: now[0])
        for number in range(days):
            now[0] = (number + 1) * day
            times = [number * day + 60.0 * step for step in range(1440)]
            for host in range(count):
                memory.submit([(f"availableCpu/h{host}", at, 0.5) for at in times]).result()
            memory.tidy(lambda _: float("inf"))
            memory.age_slots()
        begun = time.process_time()
        memory.slots("availableCpu/h0", 0.0, days * day)
        spent = time.process_time() - begun
        memory.close()
        size = (directory / "weather.db").stat().st_size
    finally:
        shutil.rmtree(directory)
    yield Row("bytes", "a year of 1,000 series", size / count / 1e6, "GB", at_most=2)
    yield Row("read", "a year of one series, read", 1e3 * spent, "ms CPU")


PARTS = {"store": store, "wide": wide, "clients": clients, "year": year}
