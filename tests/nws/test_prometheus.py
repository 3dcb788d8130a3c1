"""Hosts that Prometheus watches, read as raw samples."""

import contextlib
import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
import requests
from waiting import until

from nws import PrometheusReader, SensorError, parse_matrix, read_history


def matrix(*series):
    result = [{"metric": labels, "values": values} for labels, values in series]
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


class RecordedPrometheus:
    """Answers each query with what was recorded for it."""

    def __init__(self, answers, status=200, cut=0):
        self.queries = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                from urllib.parse import parse_qs, urlsplit

                query = parse_qs(urlsplit(self.path).query)["query"][0]
                outer.queries.append(query)
                body = json.dumps(answers.get(query.partition("[")[0], matrix())).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body) + cut))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self):
        Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


ADA = {"instance": "ada:9100"}
TWO_CPUS = matrix(*(({**ADA, "cpu": cpu}, [[10, "1"]]) for cpu in "01"))
ANSWERS = {
    "node_procs_running": matrix((ADA, [[10, "4"], [20, "2"], [30, "NaN"]])),
    'node_cpu_seconds_total{mode="idle"}': TWO_CPUS,
    "node_memory_MemAvailable_bytes": matrix((ADA, [[10, "1e9"]])),
}


def test_shares_come_from_the_run_queue_with_the_times_of_the_scrapes():
    with RecordedPrometheus(ANSWERS) as server:
        found = {(str(m.series), m.time): m.value for m in PrometheusReader(server.url).read()}
    assert found["competitors/ada", 10.0] == 3.0
    assert found["availableCpu/ada", 10.0] == 0.5  # 2 CPUs, 3 others and the new one
    assert found["availableCpu/ada", 20.0] == 1.0
    assert found["freeMemory/ada", 10.0] == 1e9


def test_a_stale_marker_is_no_measurement():
    with RecordedPrometheus(ANSWERS) as server:
        assert all(m.time != 30.0 for m in PrometheusReader(server.url).read())


def test_only_ranges_of_raw_samples_are_asked_for():
    with RecordedPrometheus(ANSWERS) as server:
        PrometheusReader(server.url).read(look_back=120)
        assert all(query.endswith("[120s]") for query in server.queries)
        assert not any("(" in query for query in server.queries)


def test_two_exporters_on_one_address_are_two_hosts():
    both = ({"instance": "10.0.0.1:9100"}, {"instance": "10.0.0.1:19100"})
    answers = {
        "node_procs_running": matrix(*((one, [[10, "4"]]) for one in both)),
        'node_cpu_seconds_total{mode="idle"}': matrix(
            *(({**one, "cpu": "0"}, [[10, "1"]]) for one in both)
        ),
        "node_memory_MemAvailable_bytes": matrix(
            (both[0], [[10, "1e9"]]), (both[1], [[10, "2e9"]])
        ),
    }
    with RecordedPrometheus(answers) as server:
        found = {str(m.series): m.value for m in PrometheusReader(server.url).read()}
    assert found["freeMemory/10.0.0.1"] == 1e9
    assert found["freeMemory/10.0.0.1-19100"] == 2e9


def test_history_is_asked_for_an_hour_at_a_time():
    with RecordedPrometheus(ANSWERS) as server:
        reader = PrometheusReader(server.url)
        pieces = list(reader.history(0.0, 9000.0))
        assert [stop for stop, _ in pieces] == [3600.0, 7200.0, 9000.0]
        assert server.queries[0].endswith("[3600s]")
        assert server.queries[-1].endswith("[1800s]")
    assert len(pieces[0][1]) > 0
    assert pieces[1][1] == []  # the same samples again: each is told once


def test_messages_and_dumps_may_stand_in_one_file():
    lines = [
        '{"schema": "nws.measurements/1", "measurements": [{"series": "freeDisk/a", "time": 1, "value": 5}]}',
        "",
        '{__name__="node_memory_MemAvailable_bytes", instance="b:9100"} 7 2000',
        '{__name__="node_memory_MemAvailable_bytes", instance="b:9100"} NaN 3000',
    ]
    found = [(str(m.series), m.time, m.value) for m in read_history(lines).measurements]
    assert found == [("freeDisk/a", 1.0, 5.0), ("freeMemory/b", 2.0, 7.0)]


def test_what_is_no_measurement_costs_itself_and_is_named_with_its_line():
    rows = [
        {"series": "availableCpu/a", "time": 1.0, "value": value}
        for value in (0.25, 7.0, "x", 0.5)
    ]
    rows[-1]["time"] = -5.0
    memory = '{__name__="node_memory_MemAvailable_bytes", instance="b:9100"}'
    lines = [
        json.dumps({"schema": "nws.measurements/1", "measurements": rows}),
        f"{memory} 7 2000",
        f"{memory} NaN 3000",  # a stale marker is none of those that are left out
        f"{memory} +Inf 4000",
        f"{memory} 8 " + "9" * 400,
        f"{memory} seven 5000",
        '{"schema": "nws.measurements/1", "meas',  # the end of a file that was cut off
        "\ufffd\x00",
        f"{memory} 9 6000",
    ]
    found = read_history(lines)
    told = [(str(m.series), m.time, m.value) for m in found.measurements]
    assert told == [
        ("availableCpu/a", 1.0, 0.25),
        ("freeMemory/b", 2.0, 7.0),
        ("freeMemory/b", 6.0, 9.0),
    ]
    assert found.left_out == 8
    for reason, field in zip(found.reasons, ("[1].value", "[2].value", "[3].time"), strict=False):
        assert reason.startswith(f"line 1: measurements{field}: ")
    assert [reason.partition(":")[0] for reason in found.reasons[3:]] == ["line 4", "line 5"]


def test_a_dump_need_not_be_in_order_nor_its_labels_stay():
    disk = '{{__name__="node_filesystem_avail_bytes", device="{}", instance="b:9100", mountpoint="/"}} {} {}'
    lines = [disk.format(*each) for each in (("sdb", 3, 3000), ("sda", 2, 2000), ("sda", 1, 1000))]
    found = [(m.time, m.value) for m in read_history(lines).measurements]
    assert found == [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)]


def test_each_sample_is_told_once():
    with RecordedPrometheus(ANSWERS) as server:
        reader = PrometheusReader(server.url)
        first = reader.read()
        assert first
        assert {m.series.host for m in first} == {"ada"}
        assert reader.read() == []


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"data": 1}', '{"data": {"resultType": "vector", "result": []}}', "[" * 9999],
)
def test_what_is_no_answer_is_a_permanent_error(text):
    with pytest.raises(SensorError) as caught:
        parse_matrix(text)
    assert (caught.value.code, caught.value.transient) == ("answer-invalid", False)


def test_answer_that_is_cut_is_a_transient_error():
    with RecordedPrometheus(ANSWERS, cut=100) as server, pytest.raises(SensorError) as caught:
        PrometheusReader(server.url).read()
    assert (caught.value.code, caught.value.transient) == ("prometheus-unreachable", True)


def test_a_server_that_fails_may_answer_later():
    with RecordedPrometheus({}, status=503) as server, pytest.raises(SensorError) as caught:
        PrometheusReader(server.url).read()
    assert (caught.value.code, caught.value.transient) == ("prometheus-failed", True)
    assert caught.value.fields == {"url": server.url, "status": 503}


@pytest.mark.more
def test_a_real_prometheus_is_read_and_reads_us(prometheus):
    from nws import Listen, Serving

    found = {}
    reader = PrometheusReader(prometheus.url)

    def have():
        with contextlib.suppress(SensorError):  # it is only starting
            for measurement in reader.read(60):
                found.setdefault(measurement.series.resource, []).append(measurement)
        return len(found.get("availableCpu", [])) >= 3 and "freeMemory" in found

    def scraped_us():
        query = {"query": "nws_up"}
        answer = requests.get(f"{prometheus.url}/api/v1/query", params=query, timeout=60).json()
        return bool(answer["data"]["result"])

    with Serving(prometheus.directory / "nws", Listen(port=prometheus.ours)):
        until(have)
        assert {m.series.host for m in found["availableCpu"]} == {"127.0.0.1"}
        assert all(0 < m.value <= 1 for m in found["availableCpu"])
        prometheus.exporter.kill()
        prometheus.exporter.wait(60)
        last = max(m.time for m in found["availableCpu"])
        until(scraped_us)
        late = [m.time for m in reader.read(60) if m.series.resource == "availableCpu"]
        assert max(late, default=last) < time.time()  # scrape times, never the question's
