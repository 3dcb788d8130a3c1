"""Every parser of what others wrote reads or refuses: a sample of `soak_parsers.py`, and that it finds faults."""

import contextlib
import math

import pytest
import soak_parsers
from soak_parsers import Parser, fuzz

PARSERS = soak_parsers.parsers()
HANG_SECONDS = 60.0
"""CPU time after which a parser of one short input is in an endless loop, on any machine."""


@pytest.mark.parametrize("name", PARSERS)
def test_what_the_inputs_are_made_of_is_read(name):
    for seed in PARSERS[name].seeds:
        PARSERS[name].feed(seed)


@pytest.mark.parametrize("name", PARSERS)
def test_a_broken_input_is_read_or_refused(name, monkeypatch):
    """Only a parser that never ends is stopped here; `soak_parsers.py` limits time and memory."""
    monkeypatch.setattr(soak_parsers, "CPU_SECONDS", HANG_SECONDS)
    monkeypatch.setattr(soak_parsers, "MAX_GROWTH", math.inf)
    assert not fuzz(name, PARSERS[name], 60)["failures"]


FOUND = {
    "Prometheus": [(b'[[1.5,"1"]', b"[[" + b"9" * 400 + b',"1"]')],
    "job file": [
        (b'"slots": 1', b'"slots": null'),
        (b"1.0", b'{"a":' * 2000 + b"1" + b"}" * 2000),
    ],
    "journal": [(b'["cgroup"', b"[" * 100_000 + b'["cgroup"')],
    "Slurm": [(b"ExitCode=0:0", b"ExitCode=" + b"9" * 5000 + b":0"), (b"JobId=4 ", b" |0:0")],
}
"""Parser -> what was found once: what to change in its seeds, and into what."""


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_once_is_read_or_refused(name):
    parser = PARSERS[name]
    for before, after in FOUND[name]:
        seeds = [seed for seed in parser.seeds if before in seed]
        assert seeds
        for seed in seeds:
            with contextlib.suppress(*parser.errors):
                parser.feed(seed.replace(before, after))


def overflowing(data):
    return float(int(data))


def endless(data):
    while b"9" in data:
        pass


def test_a_parser_that_crashes_is_found_and_again_by_its_seed():
    planted = Parser(overflowing, (b"123",), errors=(ValueError,))
    found = fuzz("planted", planted, 100, first=7)["failures"]
    assert found
    assert [one["trial"] for one in fuzz("planted", planted, 100, first=7)["failures"]] == [
        one["trial"] for one in found
    ]


def test_a_parser_that_hangs_is_found(monkeypatch):
    monkeypatch.setattr(soak_parsers, "CPU_SECONDS", 0.02)
    hung = fuzz("planted", Parser(endless, (b"999",)), 20, first=7)["failures"]
    assert any("HangError" in failure["error"] for failure in hung)


def test_a_printer_that_passes_controls_on_is_found(monkeypatch):
    monkeypatch.setattr(soak_parsers, "escaped", lambda text: text)
    assert fuzz("terminal", PARSERS["terminal"], 20)["failures"]
