"""The commands around a service, as a user types them."""

import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
import requests
from commands import command

from nws import ForecastDatabase, Listen, Serving

pytestmark = pytest.mark.xdist_group("a service that runs")
NWS = str(Path(sys.executable).with_name("nws"))


def refusal(done):
    """Return exit code, error code and fields of a command that ended with ``--json``."""
    error = json.loads(done.err.splitlines()[-1])
    return done.code, error["code"], error["fields"]


def nws(home, *arguments, **more):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"XDG_STATE_HOME": str(home), **more}.items():
            patch.setenv(name, value)
        return command("nws", *arguments)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """Return the state home of a service that ``nws serve`` runs, and its process."""
    home = tmp_path_factory.mktemp("home")
    process = subprocess.Popen(
        [NWS, "serve", "--listen", "127.0.0.1:0", "--keep", "100", "--engine", "numpy"],
        env={**os.environ, "XDG_STATE_HOME": str(home)},
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    told = home / "apples/nws/url"
    while not told.exists():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)  # between two looks, with a deadline
    url = told.read_text().strip()
    # It answers where it says, and says so no sooner.
    assert requests.get(f"{url}/healthz", timeout=60).ok
    sensed = subprocess.run(
        [NWS, "sense", "--service", url, "--rounds", "5", "--every", "0.1", "--host", "ada"],
        env={**os.environ, "XDG_STATE_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert sensed.returncode == 0, sensed.stderr
    yield home, process
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    with closing(sqlite3.connect(home / "apples/nws/weather.db")) as database:
        (states,) = database.execute("SELECT count(*) FROM states").fetchone()
    assert states > 0  # saved on the way out
    assert not (home / "apples/nws/url").exists()


def test_a_service_says_the_name_it_was_given_and_the_port_it_got(tmp_path):
    listen = Listen("localhost", 0)
    with Serving(tmp_path / "nws", listen, database={"engine": "numpy"}) as serving:
        assert re.fullmatch(r"http://localhost:[1-9]\d*", serving.url)
        assert requests.get(f"{serving.url}/healthz", timeout=60).ok


def test_forecast_prints_a_line_and_a_document(running):
    home, _ = running
    done = nws(home, "forecast", "freeMemory/ada", "freeMemory/nobody", "--over", "60")
    assert done.code == 0
    first, second = done.out.splitlines()
    assert first.startswith("freeMemory/ada  ")
    assert second.split() == ["freeMemory/nobody", "unknown"]
    document = json.loads(nws(home, "forecast", "freeMemory/ada", "--json").out)
    assert document["schema"] == "nws.forecast/1"
    assert document["forecasts"][0]["value"] > 0


def test_a_wildcard_forecasts_all_that_match(running):
    home, _ = running
    done = nws(home, "forecast", "free*/ada", "availableCpu/ada", "nothing/*")
    names = [line.split()[0] for line in done.out.splitlines()]
    assert names == ["freeDisk/ada", "freeMemory/ada", "availableCpu/ada"]
    assert "nothing/*" in done.err
    for verb in ("forecast", "extract"):
        code, error, fields = refusal(nws(home, verb, "no/such/a/name", "--json"))
        assert (code, error, fields["value"]) == (2, "name-invalid", "no/such/a/name")


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e400"])
@pytest.mark.parametrize(
    "verb",
    [
        ["forecast", "a/b", "--over"],
        ["extract", "a/b", "--since"],
        ["top", "--every"],
        ["import", "--prometheus", "http://127.0.0.1:9", "--since"],
        ["serve", "--age"],
    ],
    ids=lambda verb: verb[0],
)
def test_an_option_that_is_no_finite_number_is_refused(tmp_path, verb, number):
    done = nws(tmp_path, *verb[:-1], f"{verb[-1]}={number}")
    assert (done.code, done.out) == (2, "")
    assert verb[-1] in done.err
    assert done.err.rstrip().endswith("[option-invalid]")


@pytest.mark.parametrize(
    "token", [b"\xff\xfe", "n\u20acw".encode(), b"secret\nsecret", b"", b"a b", b"x" * 300]
)
def test_a_file_of_no_token_is_named_and_never_repeated(tmp_path, token):
    file = tmp_path / "given"
    file.write_bytes(token)
    file.chmod(0o600)
    asked = ("--service", "http://127.0.0.1:9", "--token-file", str(file), "--json")
    done = nws(tmp_path, "status", *asked)
    code, error, fields = refusal(done)
    assert (code, done.out, error, fields["file"]) == (2, "", "token-invalid", str(file))
    assert "secret" not in done.err


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o622])
@pytest.mark.parametrize(
    "verb",
    [
        ["status"],
        ["query"],
        ["forecast", "*"],
        ["extract", "availableCpu/ada"],
        ["top"],
        ["import", "past"],
    ],
    ids=lambda verb: verb[0],
)
def test_every_verb_refuses_a_token_that_others_can_get_at(tmp_path, monkeypatch, verb, mode):
    monkeypatch.chdir(tmp_path)
    row = {"series": "degrees/part", "time": time.time(), "value": 1.0}
    past = {"schema": "nws.measurements/1", "measurements": [row]}
    Path("past").write_text(json.dumps(past))
    file = tmp_path / "given"
    file.write_text("nws_secret")
    file.chmod(mode)
    asked = ("--service", "http://127.0.0.1:9", "--token-file", str(file), "--json")
    done = nws(tmp_path, *verb, *asked)
    assert (done.out, len(done.err.splitlines())) == ("", 1)
    fields = {"file": str(file), "mode": f"{mode:o}"}
    assert refusal(done) == (2, "file-not-private", fields)
    assert f"chmod 600 {file}" in done.err


@pytest.mark.parametrize(
    "url",
    ["ada", "ada:8123", "http://", "ftp://ada", "http://[::1", "http://ada:99999", "http://a\nb"],
)
def test_an_address_that_is_none_is_refused(tmp_path, url):
    (tmp_path / "token").write_text("t")
    asked = ("--service", url, "--token-file", str(tmp_path / "token"), "--json")
    assert refusal(nws(tmp_path, "status", *asked)) == (2, "address-invalid", {"value": url})


def test_a_past_longer_than_anything_is_kept_is_refused(tmp_path):
    done = nws(tmp_path, "import", "--prometheus", "http://127.0.0.1:9", "--since", "1e300")
    assert (done.code, "--since" in done.err) == (2, True)
    assert done.err.rstrip().endswith("[option-invalid]")


def test_a_stamp_before_1970_is_refused_with_its_reason(running):
    home, _ = running
    document = {"schema": "nws.measurements/1", "measurements": []}
    document["measurements"] = [{"series": "degrees/hell", "time": -5.0, "value": 1.0}]
    folder = home / "apples/nws"
    answer = requests.post(
        (folder / "url").read_text().strip() + "/v1/measurements",
        json=document,
        headers={"Authorization": f"Bearer {(folder / 'token').read_text().strip()}"},
        timeout=60,
    )
    assert answer.json()["stored"] == 0
    assert answer.json()["refused"][0]["code"] == "time-invalid"
    assert json.loads(nws(home, "query", "degrees/*", "--json").out)["total"] == 0


def test_top_shows_a_line_a_series_with_its_band_and_the_same_numbers_as_json(running):
    home, _ = running
    lines = nws(home, "top", "free*", "--once").out.splitlines()
    document = json.loads(nws(home, "top", "free*", "--json").out)
    assert document["schema"] == "nws.top/1"
    assert [one["series"] for one in document["series"]] == ["freeDisk/ada", "freeMemory/ada"]
    assert len(lines) == 2 + document["total"]
    assert all(one["latest"] > 0 for one in document["series"])
    assert re.search(r"freeMemory/ada +[\d.]+ [GM]B +[\d.]+ [GM]B ", lines[-1])


def test_doctor_finds_a_service_fit_and_one_that_does_not_answer_unfit(running, tmp_path):
    home, _ = running
    done = nws(home, "doctor", "--json")
    checks = {one["name"]: one for one in json.loads(done.out)["checks"]}
    assert done.code == 0, done.out
    assert {"directory", "tokens", "service", "clock", "backlog", "sensors"} <= set(checks)
    assert checks["clock"]["status"] == "ok"
    (tmp_path / "t").write_text("nws_x")
    (tmp_path / "t").chmod(0o600)
    gone = nws(
        tmp_path, "doctor", "--service", "http://127.0.0.1:9", "--token-file", str(tmp_path / "t")
    )
    assert gone.code == 4
    assert "fail  service" in gone.out


def test_doctor_names_a_directory_that_others_may_write_to(tmp_path):
    home = tmp_path / "apples" / "nws"
    home.mkdir(parents=True)
    home.chmod(0o777)
    done = nws(tmp_path, "doctor")
    assert done.code == 4
    assert "fail  directory" in done.out
    assert "777" in done.out


def test_history_of_a_file_warms_the_forecasts(running, tmp_path):
    home, _ = running
    now = int(time.time() * 1000)
    rows = [
        f'{{__name__="node_procs_running", instance="old:9100"}} {1 + step % 3} {now - 60000 * (59 - step)}'
        for step in range(60)
    ]
    rows.append(
        f'{{__name__="node_cpu_seconds_total", cpu="0", instance="old:9100", mode="idle"}} 1 {now}'
    )
    rows.append(f'{{__name__="up", instance="old:9100"}} 1 {now}')
    (tmp_path / "dump").write_text("\n".join(rows) + "\n")
    done = nws(home, "import", str(tmp_path / "dump"), "--json")
    document = json.loads(done.out)
    assert (document["series"], document["stored"], document["refused_total"]) == (3, 180, 0)
    (found,) = json.loads(nws(home, "forecast", "availableCpu/old", "--json").out)["forecasts"]
    assert (found["samples"], found["state"]) == (60, "current")
    assert (
        json.loads(nws(home, "import", str(tmp_path / "dump"), "--json").out)["duplicates"] == 180
    )


def test_a_file_that_is_no_history_is_refused_with_its_line(running, tmp_path):
    home, _ = running
    (tmp_path / "dump").write_text('{__name__="up"} 1 1000\nnonsense\n')
    done = nws(home, "import", str(tmp_path / "dump"), "--json")
    code, error, fields = refusal(done)
    assert (code, error, fields["file"]) == (2, "history-empty", str(tmp_path / "dump"))
    assert "line 2: " in done.err
    assert refusal(nws(home, "import", "--json"))[:2] == (2, "argument-missing")


def test_what_is_wrong_in_a_history_costs_itself(running, tmp_path):
    home, _ = running
    now = time.time()
    rows = [
        {"series": "degrees/part", "time": now - 60 + step, "value": float(step)}
        for step in range(40)
    ]
    rows[7]["value"] = None
    rows[9]["series"] = (
        "degrees/" + "x" * 200
    )  # only the service refuses it, and the whole message
    rows[11]["time"] = now + 1e6
    message = {"schema": "nws.measurements/1", "measurements": rows}
    (tmp_path / "lines").write_text(json.dumps(message) + "\nnonsense\n")
    done = nws(home, "import", str(tmp_path / "lines"), "--json")
    document = json.loads(done.out)
    assert (done.code, document["stored"]) == (0, 37)
    assert (document["left_out"], document["refused_total"]) == (2, 2)
    first = document["left_out_reasons"][0]
    assert first.startswith("line 1: measurements[7].value: ")
    assert any(f"{rows[11]['time']}" in reason for reason in document["reasons"])
    again = nws(home, "import", str(tmp_path / "lines"), "--json")
    document = json.loads(again.out)
    assert (again.code, document["stored"], document["duplicates"]) == (0, 0, 37)
    assert (document["left_out"], document["refused_total"]) == (2, 2)
    message["measurements"] = [rows[11]]
    (tmp_path / "lines").write_text(json.dumps(message))
    none = nws(home, "import", str(tmp_path / "lines"), "--json")
    document = json.loads(none.out)
    assert (none.code, document["stored"], document["series"]) == (2, 0, 1)


@pytest.mark.parametrize("option", ["--udp", "--window", "--link-share", "--cpu-share"])
def test_sensor_option_that_ended_names_what_takes_its_place(option):
    done = command("nws", "sense", option, "1", "--listen", "127.0.0.1:0")
    assert (done.code, done.out, done.error_codes) == (2, "", ["command-renamed"])
    assert done.err.startswith(f"nws: 'sense {option}' was replaced: ")


def test_query_status_and_extract_agree(running):
    home, _ = running
    found = json.loads(nws(home, "query", "*/ada", "--json").out)
    status = json.loads(nws(home, "status", "--json").out)
    assert found["schema"] == "nws.query/1"
    assert status["schema"] == "nws.status/1"
    everything = json.loads(nws(home, "query", "--json").out)
    assert everything["total"] == status["series"] >= found["total"]
    assert status["retention"]["capacity"] == 100
    extracted = nws(home, "extract", "freeMemory/ada").out.splitlines()
    assert extracted[0] == "timestamp,value"
    assert len(extracted) == 1 + found["series"][0]["count"]
    assert nws(home, "status").out.startswith("ok: ")
    assert "freeMemory/ada" in nws(home, "query").out


def test_extract_on_a_grid_has_low_and_high_where_asked(running):
    home, _ = running
    asked = ("extract", "freeMemory/ada", "--since", "3600", "--step", "60")
    plain, banded = (
        nws(home, *asked).out.splitlines(),
        nws(home, *asked, "--band").out.splitlines(),
    )
    assert plain[0] == "timestamp,value"
    assert banded[0] == "timestamp,value,low,high"
    value, low, high = map(float, banded[1].split(",")[1:])
    assert low <= value <= high
    alone = nws(home, "extract", "freeMemory/ada", "--band")
    assert (alone.code, alone.error_codes) == (2, ["option-not-applicable"])
    done = nws(home, *asked)  # five measurements in half a second
    assert plain[1].split(",")[0] in done.err
    document = json.loads(nws(home, *asked, "--json").out)
    assert sum(document["counts"]) == 5
    assert document["partial"][0] == document["times"][0]


@pytest.mark.more
def test_a_second_service_on_the_same_directory_is_refused(running):
    done = nws(running[0], "serve", "--listen", "127.0.0.1:0")
    assert done.code == 4
    assert done.err.rstrip().endswith("[directory-locked]")


def test_a_running_service_is_checked_and_backed_up(running, tmp_path):
    home, _ = running
    done = nws(home, "check")
    assert (done.code, done.out.strip()) == (0, f"{home / 'apples/nws/weather.db'}: no damage")
    target = tmp_path / "copy.db"
    assert nws(home, "backup", str(target)).code == 0
    with closing(sqlite3.connect(target)) as copy:
        (count,) = copy.execute("SELECT count(*) FROM samples").fetchone()
    assert count > 0
    again = nws(home, "backup", str(target))
    assert (again.code, again.error_codes) == (2, ["file-exists"])
    none = nws(tmp_path, "check")
    assert (none.code, none.error_codes) == (2, ["file-missing"])


def test_a_damaged_database_is_named_by_check_and_serve(tmp_path):
    home = tmp_path / "apples/nws"
    home.mkdir(parents=True, mode=0o700)
    (home / "weather.db").write_bytes(b"nothing of ours " * 1000)
    for verb in (["check"], ["serve", "--listen", "127.0.0.1:0"]):
        done = nws(tmp_path, *verb)
        assert (done.code, done.error_codes) == (4, ["database-damaged"])
        named = [line for line in done.err.splitlines() if str(home / "weather.db") in line]
        assert len(named) == 1
        assert "Traceback" not in done.err


def test_status_says_that_a_service_starts(tmp_path):
    database = ForecastDatabase(tmp_path / "apples/nws")  # what nws serve opens first
    done = nws(tmp_path, "status")
    assert (done.code, done.error_codes) == (4, ["service-starting"])
    database.close()
    done = nws(tmp_path, "status")
    assert (done.code, done.error_codes) == (2, ["service-missing"])


def test_status_does_not_ask_a_killed_service_while_the_next_one_starts(tmp_path):
    home = tmp_path / "apples/nws"
    ForecastDatabase(home).close()
    (home / "url").write_text("http://127.0.0.1:9\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        nws(tmp_path, "serve", "--listen", listen, "--engine", "numpy")
    assert nws(tmp_path, "status").error_codes == ["service-missing"]


def test_a_port_in_use_is_named_in_one_line(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = nws(tmp_path, "serve", "--listen", address, "--engine", "numpy")
    assert (done.code, done.error_codes) == (4, ["address-unusable"])
    assert f"--listen {address}: Address already in use" in done.err
    assert len(done.err.splitlines()) == 1


def test_tokens_are_made_listed_and_revoked(running, tmp_path):
    home, _ = running
    made = nws(home, "serve", "--new-token", "reader", "--scope", "read")
    (tmp_path / "token").write_text(made.out)
    (tmp_path / "token").chmod(0o600)
    with_it = ("--token-file", str(tmp_path / "token"))
    assert nws(home, "status", *with_it).code == 0
    assert made.out.strip() not in nws(home, "serve", "--list-tokens").out
    assert nws(home, "serve", "--revoke", "reader").code == 0
    assert nws(home, "status", *with_it).code == 2


def test_listening_wider_without_tls_is_refused(tmp_path):
    done = nws(tmp_path, "serve", "--listen", "0.0.0.0:8123")
    assert done.code == 2
    assert done.err.rstrip().endswith("[tls-missing]")


def test_without_a_service_the_command_says_what_to_start(tmp_path):
    done = nws(tmp_path, "status", "--json")
    assert refusal(done)[:2] == (2, "service-missing")
    assert "nws serve" in done.err
    (tmp_path / "t").write_text("nws_x")
    (tmp_path / "t").chmod(0o600)
    gone = nws(
        tmp_path, "status", "--service", "http://127.0.0.1:9", "--token-file", str(tmp_path / "t"),
        "--json",
    )  # fmt: skip
    fields = {"url": "http://127.0.0.1:9"}
    assert refusal(gone) == (4, "service-unreachable", fields)


def test_sense_once_prints_a_weather(tmp_path):
    done = nws(tmp_path, "sense", "--once", "--rounds", "2", NWS_SERVICE="http://127.0.0.1:9")
    assert done.code == 0
    assert json.loads(done.out)["schema"] == "nws.weather/1"


@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl to make a certificate")
def test_doctor_with_a_folder_of_authorities_asks_for_a_file_to_look_at_the_certificate(tmp_path):
    folder = tmp_path / "authorities"
    folder.mkdir()
    certificate, key = folder / "ca.pem", tmp_path / "key.pem"
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 "
    make += "-subj /CN=weather -addext subjectAltName=IP:127.0.0.1 -keyout"
    for words in (f"{make} {key} -out {certificate}", f"openssl rehash {folder}"):
        subprocess.run(words.split(), check=True, capture_output=True)
    listen = Listen(port=0, certificate=certificate, key=key)
    with Serving(tmp_path / "nws", listen, database={"engine": "numpy"}) as serving:
        asked = ["--service", serving.url, "--token-file", str(tmp_path / "nws/token")]
        looked = nws(tmp_path, "doctor", *asked, "--ca", str(certificate))
        unlooked = nws(tmp_path, "doctor", *asked, "--ca", str(folder))
    assert (looked.code, unlooked.code) == (0, 0)
    assert "ok    certificate" in looked.out
    assert " 30 days" in looked.out
    assert "warn  certificate" in unlooked.out
