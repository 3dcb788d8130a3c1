"""What is asked of the models of jobs about their hosts, and for how long an answer is good."""

from dataclasses import replace

import pytest

from apples.cluster import STALE, HostSelections, HostWish, SelectedHosts, SelectOrder

PATIENCE = 3.0
WISH = HostWish(("ada", "bob", "cleo"), 1, (), (), ("ada",), {"ada": 1.0, "bob": 2.0, "cleo": 3.0})


def order(wish, question):
    return SelectOrder(
        7, 1, question, wish.among, wish.count, (), wish.instead, {}, wish.speeds, PATIENCE, {}
    )


@pytest.fixture
def answered():
    """Selections of which one was asked at 100 s, and its answer is bob."""
    one = HostSelections(PATIENCE)
    assert one.chosen(7, WISH, 100.0) == ("ada",)
    held, asked = one.ask(7, ["ada"], 100.0, order)
    assert held
    assert one.hear(SelectedHosts(7, asked.question, ("bob",), 3.0, 4.0))
    return one


def test_an_answer_is_good_for_a_decision_that_is_made_again_soon(answered):
    assert answered.chosen(7, WISH, 101.0) == ("bob",)
    assert answered.ask(7, ["bob"], 101.0, order) == (False, None)
    assert answered.take(7).startswith("its model")


def test_an_answer_is_not_given_again_when_it_is_old(answered):
    late = 100.0 + STALE * PATIENCE
    assert answered.chosen(7, WISH, late) == ("ada",)
    held, asked = answered.ask(7, ["ada"], late, order)
    assert held
    assert asked.among == WISH.among
    assert answered.take(7) == ""


@pytest.mark.parametrize(("speed", "hosts"), [(2.1, ("bob",)), (0.5, ("ada",))])
def test_an_answer_is_about_the_speeds_that_were_told(answered, speed, hosts):
    wish = replace(WISH, speeds={**WISH.speeds, "bob": speed})
    assert answered.chosen(7, wish, 101.0) == hosts
    held, asked = answered.ask(7, hosts, 101.0, order)
    assert held == (asked is not None) == (hosts == ("ada",))


def test_a_host_of_which_there_is_no_speed_any_more_is_asked_about_anew(answered):
    assert answered.chosen(7, replace(WISH, speeds={}), 101.0) == ("ada",)
