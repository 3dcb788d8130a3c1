"""What the service sustains: ingest through HTTP and log, forecasts at 100 a second, restart.

Prints the machine's load beside the figures: on a busy machine they are worth little.

    python benchmarks/nws_service.py [--records 1000000]
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import requests

from nws import Client, ForecastDatabase

SERIES, ROWS = 500, 5000
PROGRAM = """
import sys
from pathlib import Path
from nws import Listen, Serving
serving = Serving(
    Path(sys.argv[1]), Listen(port=int(sys.argv[2])), database={"engine": "auto"}
)
serving.run()
"""


def cpu_seconds(server):
    """Return the CPU seconds of the server so far: what a busy machine does not bend."""
    times = psutil.Process(server.pid).cpu_times()
    return times.user + times.system


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def served(directory, port):
    server = subprocess.Popen([sys.executable, "-c", PROGRAM, str(directory), str(port)])
    url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 30
    while True:
        try:
            requests.get(url + "/healthz", timeout=1)
            return server, Client(url, (directory / "token").read_text().strip())
        except requests.ConnectionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def bodies(count, start):
    """Return the JSON bodies before the clock starts: the sender is not what is measured."""
    made = []
    for batch in range(count // ROWS):
        rows = []
        for row in range(ROWS):
            index = batch * ROWS + row
            at = start + (index // SERIES)
            rows.append(
                f'{{"series":"availableCpu/host{index % SERIES}","time":{at},"value":0.{index % 997}}}'
            )
        made.append(f'{{"measurements":[{",".join(rows)}]}}'.encode())
    return made


def ingest(client, count):
    made = bodies(count, time.time() - count / SERIES)
    started = time.perf_counter()
    for body in made:
        answer = client._session.post(client.url + "/v1/measurements", data=body, timeout=60)
        answer.raise_for_status()
    return len(made) * ROWS / (time.perf_counter() - started)


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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--port", type=int, default=18123)
    parser.add_argument("--seconds", type=int, default=20, help="of forecast requests")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="nws-bench-"))
    server, client = served(directory, options.port)
    try:
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
        print(
            f"forecast requests at 100/s: p50 {percentile(taken, 0.5) * 1e3:.2f} ms, "
            f"p99 {percentile(taken, 0.99) * 1e3:.2f} ms, worst {max(taken) * 1e3:.1f} ms; "
            f"server's CPU {spent * 1e3:.2f} ms each"
        )
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
    finally:
        server.kill()
        shutil.rmtree(directory)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")


if __name__ == "__main__":
    main()
