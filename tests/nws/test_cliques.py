"""Cliques and their turns: no link has two probes at once, and every pair has its turn."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from turn_worlds import TurnWorld

from nws import HeldTurn, Turn, TurnTable, cliques_of

NAME = st.from_regex(r"[a-z]{1,6}", fullmatch=True)
PERIOD = 60.0
LAB = {"site-lab": ("ada", "bob", "cyd")}


def history(seed, **words):
    world = TurnWorld(seed, hosts=3 + seed % 13, sites=1 + seed % 3, period=PERIOD, **words)
    for _ in range(seed % 4):
        world.after(world.random.uniform(0, 1800), world.restart_service)
    world.run(1800)
    return world


def test_no_two_probes_at_once_whatever_is_late_lost_or_restarted():
    probes = lost = 0
    for seed in range(40):  # `make soak` takes thousands
        world = history(seed)
        assert world.overlaps() == [], f"seed {seed}"
        probes += len(world.probes)
        lost += world.lost
    assert probes > 2000  # else the histories were void
    assert lost > 2000


class ForgetsItsTurns(TurnTable):
    """A planted bug: a turn excludes nothing."""

    def ask(self, host, cliques, now):
        answer = super().ask(host, cliques, now)
        if isinstance(answer, Turn):
            self.end(answer.id, (), now)
        return answer


class GrantsAtOnce(TurnTable):
    """A planted bug: a service that was started again does not wait."""

    def __init__(self, period, now, name):
        super().__init__(period, now - 1000, name)


@pytest.mark.parametrize(
    "bug", [{"make": ForgetsItsTurns}, {"make": GrantsAtOnce}, {"late": True}]
)
def test_simulation_catches_a_planted_bug(bug):
    assert any(history(seed, **bug).overlaps() for seed in range(60))


def test_every_member_has_a_turn_each_period_when_nothing_fails():
    world = TurnWorld(1, hosts=6, sites=1, period=PERIOD, faults=False)
    world.run(14 * PERIOD)
    turns = [name for at, name, _ in world.turned if at >= 4 * PERIOD]
    assert {name: 8 <= turns.count(name) <= 10 for name in world.sensors} == dict.fromkeys(
        world.sensors, True
    )


def test_a_crowded_site_measures_every_pair_though_not_each_period():
    world = TurnWorld(2, hosts=30, sites=3, period=PERIOD, faults=False)
    world.run(40 * PERIOD)
    wanted = {
        (a, b) for clique in world.cliques().values() for a in clique for b in clique if a != b
    }
    assert wanted <= {(probe[2], probe[3]) for probe in world.probes}


def test_growing_clique_grants_nothing_while_the_old_turn_runs():
    table = TurnTable(PERIOD, now=-100.0)
    grown = {"site-lab": tuple(f"h{n:02d}" for n in range(12))}
    turn = table.ask("h00", {"site-lab": ("h00", "h01")}, now=0.0)
    assert isinstance(table.ask("h05", grown, now=turn.seconds), float)
    assert isinstance(table.ask("h05", grown, now=turn.seconds + 2), Turn)


def test_host_of_two_cliques_takes_part_in_one_probe_at_a_time():
    table = TurnTable(PERIOD, now=-100.0)
    cliques = {"site-lab": ("ada", "bob"), "sites": ("ada", "eve")}
    assert isinstance(table.ask("bob", cliques, now=0.0), Turn)
    assert isinstance(table.ask("eve", cliques, now=1.0), float)


def test_host_that_lost_its_answer_gets_no_second_turn_beside_the_first():
    table = TurnTable(PERIOD, now=-100.0)
    turn = table.ask("ada", LAB, now=0.0)
    assert isinstance(table.ask("ada", LAB, now=1.0), float)
    assert table.end(turn.id, (), now=2.0)
    assert not table.end(turn.id, (), now=3.0)


def test_peer_that_was_probed_least_recently_comes_first():
    table = TurnTable(PERIOD, now=-100.0)
    turn = table.ask("ada", LAB, now=0.0)
    assert turn.peers == ("bob", "cyd")
    table.end(turn.id, ["bob", "stranger"], now=1.0)
    assert table.ask("ada", LAB, now=PERIOD).peers == ("cyd", "bob")


def test_host_that_no_longer_asks_keeps_nobody_waiting():
    table = TurnTable(PERIOD, now=-100.0)
    first = table.ask("ada", LAB, now=0.0)
    table.ask("bob", LAB, now=0.5)  # and ends without another word
    table.end(first.id, ["bob", "cyd"], now=1.0)
    assert isinstance(table.ask("cyd", LAB, now=1.0), float)
    assert isinstance(table.ask("cyd", LAB, now=20.0), Turn)


def test_peers_that_cannot_be_reached_are_left_out():
    table = TurnTable(PERIOD, now=-100.0)
    assert table.ask("ada", LAB, 0.0, lambda _, peer: peer == "cyd").peers == ("cyd",)
    assert isinstance(table.ask("bob", LAB, 100.0, lambda *_: False), float)


def test_turn_of_a_late_answer_is_over_for_its_holder():
    held = HeldTurn.of("turn", seconds=10.0, asked=0.0)
    assert held.left(now=10.0) < 0


@given(st.dictionaries(NAME, st.sampled_from(["lab", "attic", "cellar"]), max_size=60))
def test_probing_does_not_grow_with_n_squared(site_of):
    cliques = cliques_of(site_of)
    pairs = sum(len(members) * (len(members) - 1) for members in cliques.values())
    assert pairs <= 14 * len(site_of)
    assert all(2 <= len(set(members)) <= 12 for members in cliques.values())


@given(st.dictionaries(NAME, st.sampled_from(["lab", "attic"]), min_size=2, max_size=40))
def test_every_host_is_in_a_clique_and_the_cliques_hang_together(site_of):
    cliques = cliques_of(site_of)
    reached = {min(site_of)}
    while True:
        more = {m for c in cliques.values() if reached & set(c) for m in c} | reached
        if more == reached:
            break
        reached = more
    assert reached == set(site_of)
