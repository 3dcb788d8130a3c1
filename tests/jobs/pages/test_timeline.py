"""A run over time: its shares add up, its epochs leave no gap, and a move says what it cost and brought."""

import itertools
import re

import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from pages.documents import run
from pages.reading import Page
from pages.timelines import host, moved, report, steady

from apples.jobs import MARKS, run_page, timeline_document, timeline_text

RUN = run(("ada", "bob"))


def test_where_nothing_was_reported_there_is_no_timeline():
    assert timeline_document(RUN["plan"], []) is None
    assert (
        timeline_document(RUN["plan"], [{"event": "running", "hosts": ["ada"], "rows": [1]}])
        is None
    )
    assert "timeline" not in Page(run_page(RUN)).sections


def test_a_steady_run_is_the_same_in_every_slice():
    found = timeline_document(RUN["plan"], steady(("ada", "bob")))
    assert (found["seconds"], found["iterations"], found["moves"]) == (4.0, 200, [])
    for one in found["slices"]:
        assert one["spent"] == [pytest.approx([0.5, 0.1, 0.4, 0.0])] * 2
        assert one["rows"] == [1000, 1137]
    (epoch,) = found["epochs"]
    assert epoch["iteration_seconds"] == pytest.approx(0.02)
    assert epoch["promised"]["interval"] == RUN["plan"]["chosen"]["iteration_interval"]


def test_a_move_has_what_it_took_what_was_expected_and_what_came():
    (move,) = timeline_document(RUN["plan"], moved())["moves"]
    assert (move["hosts_before"], move["hosts"]) == (["ada", "bob"], ["ada", "bob", "eve"])
    assert (move["seconds"], move["gain_seconds"], move["cost_seconds"]) == (0.25, 3.5, 0.3)
    assert move["iteration_before"] == pytest.approx(0.02)
    assert move["iteration_after"] == pytest.approx(0.01)
    assert move["came_seconds"] == pytest.approx(0.01 * 187.5 - 0.25, rel=0.01)
    assert move["reason"] == "bob gives 0.41 of a CPU"


def test_what_a_job_says_itself_and_what_was_decided_are_one_move():
    told = moved()
    (decision,) = [one for one in told if one["event"] == "decision"]
    place = told.index(decision)
    own = {"at": 1002.2, "event": "moved", "epoch": 1, "iteration": 100, "seconds": 0.24}
    own["phases"] = {"start": 0.2, "redistribute": 0.04}
    for told_at in (1002.2, 1002.3):  # before it was decided, and after
        here = {**own, "at": told_at, "hosts": decision["hosts"], "rows": decision["rows"]}
        (move,) = timeline_document(RUN["plan"], [*told[:place], here, *told[place:]])["moves"]
        assert move["gain_seconds"] == 3.5
        assert move["phases"] == own["phases"]
    assert move["seconds"] == 0.25
    (move,) = timeline_document(RUN["plan"], told)["moves"]
    assert move["phases"] is None


def test_each_move_says_what_its_time_went_to():
    told = moved()
    for one in told:
        if one["event"] == "decision":
            one |= {"event": "moved", "seconds": 0.25, "phases": {"start": 0.2, "wait": 0.05}}
    last = timeline_text(timeline_document(RUN["plan"], told)).splitlines()[-1]
    assert re.findall(r"[\d.]+ ms", last)[:3] == ["250 ms", "200 ms", "50.0 ms"]
    page = run_page(RUN, told)
    assert 'start <data value="0.2">200 ms</data>, wait <data value="0.05">50.0 ms</data>' in page


def test_a_job_that_was_resized_by_hand_has_a_move_without_a_promise():
    told = moved()
    for one in told:
        if one["event"] == "decision":
            place = {key: one[key] for key in ("at", "iteration", "hosts", "rows")}
            one.clear()
            one.update({"event": "moved", "seconds": 0.2, **place})
    found = timeline_document(RUN["plan"], told)
    assert [epoch["promised"] is None for epoch in found["epochs"]] == [False, True]
    assert found["moves"][0]["gain_seconds"] is None
    assert not found["moves"][0]["reason"]


def test_a_move_is_where_the_reports_say_it_however_late_it_was_noticed():
    for late in (1002.25, 1002.6, 1003.1):
        told = [one for one in moved() if one["event"] != "decision"]
        place = {"hosts": ["ada", "bob", "eve"], "rows": [700, 737, 700]}
        told.append({"event": "moved", "at": late, "iteration": 100, "seconds": 0.2, **place})
        (move,) = timeline_document(RUN["plan"], sorted(told, key=lambda one: one["at"]))["moves"]
        assert move["at"] == (2.25 if late == 1002.25 else 2.0)
        assert move["iteration_before"] == pytest.approx(0.02)


def test_the_text_has_a_line_a_host_of_80_columns_and_blanks_where_it_was_not():
    lines = timeline_text(timeline_document(RUN["plan"], moved())).splitlines()
    assert max(map(len, lines[:6])) <= 100
    (eve,) = [line for line in lines if line.startswith("eve")]
    marks = eve[11:67]
    assert marks[:28].strip() == ""
    assert set(marks[34:]) == {MARKS[2]}
    assert "0 > 700 rows" in eve
    numbers = re.findall(r"[\d.]+", lines[-1])
    assert numbers[:6] == ["1", "2.25", "700", "737", "700", "250"]


def test_of_a_program_that_cannot_tell_its_halo_from_waiting_no_face_says_that_it_does():
    events = [
        report(k / 4, 10 * k, host("ada", 0.1 * k, 0.1 * k), host("bob", 0.05 * k, 0.2 * k))
        for k in range(1, 9)
    ]
    document = run(["ada", "bob"])
    for one in document["execution"]["hosts"]:
        one["wait_per_iteration"] = None
    found = timeline_document(document["plan"], events)
    assert found["kinds"] == ["compute", "halo and wait", "other"]
    assert found["epochs"][0]["spent"][1] == pytest.approx([0.2, 0.8, 0.0])
    told = timeline_text(found)
    assert "# compute  = halo and wait  ~ other" in told
    assert "=" in told.splitlines()[2]
    page = " ".join(re.sub(r"<[^>]*>", " ", run_page(document, events)).split())
    told_apart = re.sub(r"halo and wait(ing)?|halo planned", "", page)
    assert "halo" not in told_apart, told_apart[max(0, told_apart.index("halo") - 200) :][:300]
    tells = timeline_document(run(["ada", "bob"])["plan"], moved())
    assert tells["kinds"] == ["compute", "halo", "wait", "other"]


def test_a_page_has_a_lane_for_each_host_and_no_script_over_300_kb():
    page = run_page(RUN, moved())
    assert "timeline" in Page(page).sections
    assert len(page.encode()) < 100_000
    many = [f"host-{k}" for k in range(60)]
    assert len(run_page(run(many), steady(many, parts=400)).encode()) <= 300_000


steps = st.lists(
    st.tuples(st.floats(0.01, 5.0), st.integers(0, 50), st.lists(st.floats(0, 1), min_size=3, max_size=3)),
    min_size=1,
    max_size=12,
)  # fmt: skip


@settings(max_examples=examples(30))
@given(steps, st.lists(st.floats(0, 40), max_size=3), st.booleans())
def test_whatever_is_reported_shares_are_whole_and_epochs_leave_no_gap(steps, moves, begins_anew):
    seconds, iteration, spent = 0.0, 0, [0.0, 0.0, 0.0]
    events = []
    for took, done, shares in steps:
        seconds, iteration = seconds + took, iteration + done
        if begins_anew:
            spent = [0.0, 0.0, 0.0]
        whole = max(1.0, sum(shares))
        spent = [one + took * share / whole for one, share in zip(spent, shares, strict=True)]
        events.append(report(seconds, iteration, host("ada", *spent), host("bob", *spent)))
    for k, at in enumerate(sorted(moves)):
        rows = [1000 + k, 1136 - k]
        events.append({"event": "moved", "at": 1000 + at, "hosts": ["ada", "bob"], "rows": rows})
    found = timeline_document(RUN["plan"], sorted(events, key=lambda one: one["at"]))
    epochs = found["epochs"]
    assert epochs[0]["from"] == 0
    assert epochs[-1]["to"] == found["seconds"] == pytest.approx(seconds)
    assert all(a["to"] == b["from"] for a, b in itertools.pairwise(epochs))
    for one in (*epochs, *found["slices"]):
        for shares in filter(None, one["spent"]):
            assert sum(shares) == pytest.approx(1.0)
            assert min(shares) >= 0
    run_page(RUN, events)
    timeline_text(found)
