"""What the service sustains: ingest, forecasts at 100 a second, restart; many series; many clients.

Prints the machine's load beside the figures: on a busy machine they are worth little.

    python benchmarks/nws_service.py [--records 1000000]
    python benchmarks/nws_service.py --wide 12000     # /metrics, /v1/weather and pages, and who waits for them
    python benchmarks/nws_service.py --clients 100    # each stores 10 series at 1 Hz on a disk
    python benchmarks/nws_service.py --clients 100 --bare    # the same to a FastAPI that stores nothing
    python benchmarks/nws_service.py --year 10        # what a year of the archive takes
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from array import array
from pathlib import Path

import psutil
import requests

from nws import Client, ForecastDatabase, Measurement, SeriesName, ServiceError
from nws.memory.archive import Archive
from nws.memory.column import SeriesColumn

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
"""Of those that a browser gets."""
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
    """Return the CPU seconds of the server so far: what a busy machine does not bend."""
    times = psutil.Process(server.pid).cpu_times()
    return times.user + times.system


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def told(values):
    """Return the median, the 99th of 100 and the worst of some seconds, in ms."""
    return (
        f"p50 {percentile(values, 0.5) * 1e3:.1f}, p99 {percentile(values, 0.99) * 1e3:.1f}, "
        f"worst {max(values) * 1e3:.1f} ms"
    )


def served(directory, port, program=PROGRAM, seconds=600):
    """Start a server and return when it answers: to compile its forecasters takes a minute on a busy machine."""
    server = subprocess.Popen([sys.executable, "-c", program, str(directory), str(port)])
    url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + seconds
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
    """Return the JSON bodies before the clock starts: the sender is not what is measured."""
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
    made = bodies(count, time.time() - count / SERIES)
    started = time.perf_counter()
    post(client, made)
    return count / (time.perf_counter() - started)


def forecasts(client, seconds=20, rate=100):
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


def asking(client, path, seconds):
    """Start a process that asks for a path all the time; what it took is on its standard output."""
    token = client._session.headers["Authorization"].split()[1]
    asker = subprocess.Popen(
        [sys.executable, "-c", ASKER, client.url, token, path, str(seconds)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    asker.stdout.readline()
    return asker


def heard(askers):
    return [json.loads(asker.communicate()[0]) for asker in askers]


def wide(server, client, series, seconds=12):
    """Ask for the long answers of many series that are measured every 10 s; see who waits for them."""
    start = time.time() - 250
    post(client, bodies(25 * series, start, series, 10.0))
    wait_for_forecasters(client)
    paths = ("/healthz", "/v1/forecast?series=availableCpu/host7")
    alone = heard([asking(client, path, 3) for path in paths])
    for path, taken in zip(paths, alone, strict=True):
        print(f"{path.partition('?')[0]} with nothing beside it: {told(taken)}")
    ended = threading.Event()

    def measure():
        while True:
            for body in bodies(series, time.time(), series):
                if ended.is_set():
                    return
                post(client, [body])
                ended.wait(10 * ROWS / series)

    measuring = threading.Thread(target=measure)
    measuring.start()
    token = client._session.headers["Authorization"].split()[1]
    with Client(client.url, token, deadline=60) as own:
        own._session.headers["Accept"] = "text/html,*/*"
        own._session.post(f"{own.url}/enter", {"key": token}, timeout=60).raise_for_status()
        for page in ("/metrics", "/metrics?over=300", "/v1/weather", *PAGES):
            askers = [asking(client, path, seconds) for path in paths]
            before, took = cpu_seconds(server), []
            stop = time.monotonic() + seconds
            while time.monotonic() < stop:
                begun = time.perf_counter()
                answer = own._session.get(own.url + page, timeout=60)
                answer.raise_for_status()
                length = len(answer.content)
                took.append(time.perf_counter() - begun)
                time.sleep(1.0)
            spent = (cpu_seconds(server) - before) / seconds
            print(
                f"{page} of {series} series, {length:,} bytes: first {took[0] * 1e3:.0f}, then "
                f"{told(took[1:] or took)}; server {spent:.0%} of a CPU"
            )
            for path, taken in zip(paths, heard(askers), strict=True):
                print(f"  {path.partition('?')[0]} meanwhile: {told(taken)} of {len(taken)}")
    ended.set()
    measuring.join()


def clients(server, client, count, seconds):
    """Let each of many clients store ten series every second; count the rounds that were late."""
    token = client._session.headers["Authorization"].split()[1]
    rounds, late, errors, taken = [0] * count, [0] * count, [], []
    begin = time.time() + 1.0

    def report(number):
        names = [SeriesName("availableCpu", f"h{number}-{each}") for each in range(10)]
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
                rounds[number] += 1
                late[number] += time.time() > due + 1.0

    threads = [threading.Thread(target=report, args=(number,)) for number in range(count)]
    before, own_before = cpu_seconds(server), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spent = (cpu_seconds(server) - before) / seconds
    own_spent = (time.process_time() - own_before) / seconds
    print(
        f"{count} clients x 10 series x 1 Hz for {seconds} s: {sum(late)} of {sum(rounds)} rounds late, "
        f"{len(errors)} errors {sorted(set(errors))[:3]}, server {spent:.1%} of a CPU, "
        f"the clients {own_spent:.1%}; a round took {told(taken)}"
    )
    print(f"stored {client.status()['stored_total']:,} of {10 * sum(rounds):,}")


def year(count):
    """Archive a year of so many series, measured every minute, and say what it takes and how long to read."""
    directory = Path(tempfile.mkdtemp(prefix="nws-bench-"))
    try:
        archive, day = Archive(directory), 86400.0
        columns = [SeriesColumn(SeriesName("availableCpu", f"h{n}"), 2000) for n in range(count)]
        for number in range(366):
            times = [number * day + 60.0 * step for step in range(1440)]
            for column in columns:
                column.extend_with_later(
                    array("d", times).tobytes(), array("d", [0.5] * 1440).tobytes()
                )
            archive.add(columns, (number + 1) * day + 60.0)
            archive.tidy((number + 1) * day)
        begun = time.process_time()
        slots = archive.read("availableCpu/h0", 0.0, 366 * day, 3600.0)
        spent = time.process_time() - begun
        print(
            f"a year of {count} series: {archive.size() / 1e6:.1f} MB, so {archive.size() / count / 1e6:.2f} GB "
            f"of 1,000; one series by the hour ({len(slots)} slots) read in {spent * 1e3:.0f} ms of CPU"
        )
    finally:
        shutil.rmtree(directory)


def all_of_it(server, client, directory, options):
    before = cpu_seconds(server)
    rate = ingest(client, options.records)
    spent = cpu_seconds(server) - before
    print(
        f"ingest, one client, HTTP + JSON + log + fdatasync: {rate:,.0f} measurements/s; "
        f"{options.records / spent:,.0f} a second of the server's CPU, forecasts included"
    )
    wait_for_forecasters(client)
    before = cpu_seconds(server)
    taken = forecasts(client, options.seconds)
    spent = (cpu_seconds(server) - before) / len(taken)
    print(f"forecast requests at 100/s: {told(taken)}; server's CPU {spent * 1e3:.2f} ms each")
    many = [f"availableCpu/host{i}" for i in range(SERIES)]
    begun = time.perf_counter()
    client.forecasts(many)
    print(f"{SERIES} forecasts in one request: {(time.perf_counter() - begun) * 1e3:.1f} ms")
    server.terminate()
    server.wait(60)
    begun = time.perf_counter()
    database = ForecastDatabase(directory)
    taken_restart = time.perf_counter() - begun
    kept = sum(map(len, database.columns()))
    print(f"restart from {options.records:,} records: {taken_restart:.2f} s ({kept:,} kept)")
    database.close(save=False)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--port", type=int, default=18123)
    parser.add_argument("--seconds", type=int, default=20, help="of forecast requests, or clients")
    parser.add_argument("--wide", type=int, help="so many series instead")
    parser.add_argument("--clients", type=int, help="so many clients instead")
    parser.add_argument("--bare", action="store_true", help="clients of what stores nothing")
    parser.add_argument("--disk", type=Path, help="where to keep it all")
    parser.add_argument("--year", type=int, help="a year of so many series in the archive instead")
    options = parser.parse_args()
    if options.year:
        year(options.year)
        return
    directory = Path(tempfile.mkdtemp(prefix="nws-bench-", dir=options.disk))
    server, client = served(directory, options.port, BARE if options.bare else PROGRAM)
    try:
        if options.wide:
            wide(server, client, options.wide)
        elif options.clients:
            clients(server, client, options.clients, options.seconds)
        else:
            all_of_it(server, client, directory, options)
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(directory)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")


if __name__ == "__main__":
    main()
