"""The sensor process that is asked over standard streams, and the one who asks."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nws import (
    InputError,
    Measurement,
    ProbeTurns,
    SensorDialogue,
    SeriesName,
    cliques_of,
    pairs,
    read_batch,
)
from nws import answer_request as answer
from nws import decode_request as decode

SECRET = "0123456789abcdef"  # noqa: S105 - a test's
GREETING = answer(0, 1.0)
ROOT = Path(__file__).parents[2]
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


class Asked:
    """A sensor process of this machine, and what it answers."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-m", "nws.sensing.stdio"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.talk = SensorDialogue()
        (self.greeting,) = self.talk.feed(self.process.stdout.readline())

    def ask(self, do, **what):
        number, line = self.talk.ask(do, **what)
        return number, self.say(line)

    def say(self, line):
        self.process.stdin.write(line)
        self.process.stdin.flush()
        return self.process.stdout.readline()


@pytest.fixture
def asked():
    one = Asked()
    yield one
    one.process.stdin.close()
    assert one.process.wait(60) == 0  # it ends with who asks
    one.process.stdout.close()


def test_it_needs_nothing_but_the_standard_library():
    code = (
        "import nws.sensing.stdio, sys\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.append({str(ROOT)!r})\n{code}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    loaded = set(done.stdout.split())
    assert loaded - sys.stdlib_module_names == {"__main__", "nws"} - sys.stdlib_module_names


@pytest.mark.more
def test_its_measurements_are_what_the_service_takes(asked):
    number, line = asked.ask("sense", host="ada", rounds=2)
    message = {"schema": "nws.measurements/1", "measurements": json.loads(line)["measurements"]}
    assert read_batch(json.dumps(message))
    (reply,) = asked.talk.feed(line)
    assert reply.id == number
    kinds = [str(m.series) for m in reply.measurements]
    measured = ["availableCpu", "currentCpu", "competitors", "crowding", "spareCpus"]
    measured += ["cpuQuota", "quotaPeriod", "freeMemory"]
    one_round = [f"{name}/ada" for name in measured]
    assert kinds == 2 * one_round


@pytest.mark.more
def test_it_does_not_probe_where_the_asker_knows_what_a_probe_found(asked):
    (reply,) = asked.talk.feed(asked.ask("sense", host="ada", rounds=2, bias=-1)[1])
    available = [m.value for m in reply.measurements if m.series.resource == "availableCpu"]
    assert max(available) <= 0.001
    assert reply.bias == -1  # a probe, however little of a CPU it got, would have moved it
    (reply,) = asked.talk.feed(asked.ask("sense", host="ada", rounds=1)[1])
    assert reply.bias is not None
    assert reply.bias > -1


@pytest.mark.more
def test_two_of_them_measure_the_link_between_them(asked):
    other = Asked()
    (there,) = other.talk.feed(other.ask("listen", address="127.0.0.1", secret=SECRET)[1])
    what = {"host": "ada", "peer": "bob", "address": list(there.listening), "seconds": 5.0}
    (reply,) = asked.talk.feed(asked.ask("probe", **what, secret=SECRET, wide=True)[1])
    kinds = [m.series.resource for m in reply.measurements]
    assert kinds == ["connectTimeTcp", "latencyTcp", "jitterTcp", "bandwidthTcp", "lossTcp"]
    assert {str(m.series).partition("/")[2] for m in reply.measurements} == {"ada/bob"}
    (reply,) = asked.talk.feed(asked.ask("probe", **what, secret="f" * 16, wide=True)[1])
    assert [str(m.series) for m in reply.measurements] == ["connectTimeTcp/ada/bob"]
    assert reply.failures[0].startswith("latencyTcp/ada/bob: ")
    other.process.stdin.close()
    assert other.process.wait(60) == 0
    other.process.stdout.close()


@pytest.mark.more
def test_it_stays_light(asked):
    asked.ask("sense", host="ada", rounds=1)
    status = Path(f"/proc/{asked.process.pid}/status").read_text()
    (peak,) = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")]
    assert peak < 40_000  # kB
    maps = Path(f"/proc/{asked.process.pid}/maps").read_text()
    assert "numpy" not in maps


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"{}\n",
        b'{"schema": "nws.stdio/2", "id": 1, "do": "sense"}\n',
        b'{"schema": "nws.stdio/1", "id": true, "do": "sense"}\n',
        b'{"schema": "nws.stdio/1", "id": 1, "do": "shell"}\n',
        b'{"schema": "nws.stdio/1", "id": 1, "do": "sense", "host": "../x", "rounds": 1}\n',
        b'{"schema": "nws.stdio/1", "id": 1, "do": "sense", "host": "x", "rounds": 1, "bias": 7}\n',
        b'{"schema": "nws.stdio/1", "id": 1, "do": "sense", "host": "x", "rounds": 1e999}\n',
        b'{"schema": "nws.stdio/1", "id": 1, "do": "listen", "address": "x", "secret": ""}\n',
        b"[" * 100_000 + b"\n",
    ],
)
def test_a_question_that_is_none_is_answered_and_survived(asked, line):
    (reply,) = asked.talk.feed(asked.say(line))
    assert reply.measurements == ()
    assert len(reply.failures) == 1
    assert asked.ask("nothing", host="ada")[1]


@given(document=JSON)
def test_no_reply_of_a_stranger_is_more_than_an_error(document):
    for told in (
        document,
        {"schema": "nws.stdio/1", "id": 1, "now": 1.0, "measurements": document},
    ):
        try:
            reply = decode(json.dumps(told).encode())
        except ValueError:
            continue
        assert all(isinstance(one, Measurement) for one in reply.measurements)


@given(
    values=st.lists(st.floats(0, 1e300), max_size=5),
    cuts=st.lists(st.integers(1, 50), max_size=30),
)
def test_replies_do_not_depend_on_how_the_stream_was_cut(values, cuts):
    told = [Measurement(SeriesName("freeMemory", "ada"), 5.0, value) for value in values]
    stream = b"motd\n" + GREETING + answer(1, 6.0, told, ["x\ny"], ("::1", 5))
    talk, heard, at = SensorDialogue(), [], 0
    for size in [*cuts, len(stream)]:
        heard += talk.feed(stream[at : at + size])
        at += size
    assert [reply.id for reply in heard] == [0, 1]
    assert heard[1].measurements == tuple(told)
    assert (heard[1].failures, heard[1].listening) == (("x y",), ("::1", 5))


def test_a_stream_of_something_else_is_not_listened_to_for_ever():
    with pytest.raises(InputError) as raised:
        SensorDialogue().feed(b"no sensor here\n" * 10_000)
    assert raised.value.code == "message-invalid"
    talk = SensorDialogue()
    talk.feed(GREETING)
    with pytest.raises(InputError) as raised:
        talk.feed(b"Segmentation fault\n")
    assert raised.value.code == "message-invalid"


@given(
    sites=st.dictionaries(
        st.sampled_from([f"h{i}" for i in range(30)]), st.sampled_from("abc"), max_size=30
    ),
    order=st.randoms(),
    most=st.integers(1, 4),
)
def test_no_two_probes_ever_share_a_host_or_what_lies_between_sites(sites, order, most):
    """Each pair of each clique once; what runs together is disjoint, and no more than a machine bears."""
    machines = {host: "one" for host in sites if host < "h2"}
    turns, running, made = ProbeTurns(sites, machine_of=machines, most=most), [], []
    while True:
        running += turns.begin()
        busy = [host for pair in running for host in pair]
        assert len(busy) == len(set(busy))
        assert sum(a in machines or b in machines for a, b in running) <= most
        assert sum(sites[a] != sites[b] for a, b in running) <= 1
        if not running:
            break
        ended = order.choice(running)
        running.remove(ended)
        turns.done(ended)
        made.append(ended)
    assert sorted(made) == sorted(pairs(cliques_of(sites)))


def test_disjoint_pairs_of_a_site_are_probed_at_once():
    sites = {f"h{i}": "lab" for i in range(8)}
    wanted = [(f"h{i}", f"h{i + 1}") for i in range(7)]
    turns, rounds = ProbeTurns(sites, wanted), []
    while begun := turns.begin():
        rounds.append(len(begun))
        for pair in begun:
            turns.done(pair)
    assert sum(rounds) == 7
    assert (
        len(rounds) <= 3
    )  # two colours are enough for a chain; list scheduling may take one more
