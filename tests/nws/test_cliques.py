"""Cliques: never two probes at once, one leader again soon after the last fault."""

import pytest
from drawn import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nws import (
    Asker,
    CliqueToken,
    Epoch,
    Grant,
    Granter,
    GrantRequest,
    InputError,
    Received,
    Release,
    Stale,
    decode,
    encode,
)
from nws.clique import (
    CliqueFaults,
    CliqueMember,
    DoubleProbeError,
    ProbePeers,
    SendMessage,
    SimulatedClique,
    cliques_of,
)

PERIOD, FAULTY = 120.0, 1200.0
NAME = st.from_regex(r"[a-z]{1,6}", fullmatch=True)
EPOCH = st.builds(Epoch, st.integers(0, 9), NAME)
MESSAGES = st.one_of(
    st.builds(
        CliqueToken, NAME, EPOCH, st.integers(0, 9), st.lists(NAME).map(tuple), st.booleans()
    ),
    st.builds(Received, NAME, EPOCH, st.integers(0, 9)),
    st.builds(Stale, NAME, EPOCH),
    st.builds(GrantRequest, NAME, NAME, st.integers(0, 9), st.floats(0.1, 9), NAME),
    st.builds(Grant, NAME, st.integers(0, 9)),
    st.builds(Release, NAME, NAME, st.integers(0, 9)),
)


def history(seed, **faults):
    world = SimulatedClique(seed, 3 + seed % 6, PERIOD, CliqueFaults(stop=FAULTY, **faults))
    world.run(FAULTY)
    return world


def histories(count):
    for seed in range(count):
        history(seed)


def test_sixty_partitioned_cliques_heal_and_never_probe_twice_at_once():
    probes = lost = leaders = 0
    for seed in range(60):  # `make soak` takes thousands
        world = history(seed)
        world.run(FAULTY + 2.5 * PERIOD)
        assert world.agreed(), f"seed {seed} has no leader after 2.5 periods"
        world.run(FAULTY + 5 * PERIOD)
        late = world.probed_since(FAULTY + 2.5 * PERIOD)
        assert late == set(world.names), f"seed {seed}: only {late} probe"
        probes += len(world.probes)
        lost += world.lost
        leaders += len({n.member.epoch for n in world.nodes.values() if n.member})
    assert probes > 1500  # else the runs were void
    assert lost > 3000
    assert leaders == 60


def test_a_seed_is_one_history():
    one, other = history(7), history(7)
    assert (one.probes, one.events) == (other.probes, other.events)


def test_the_simulation_catches_a_clique_that_trusts_its_token_alone(monkeypatch):
    """A planted bug: one grant is enough, as if the token itself were the right to probe."""
    monkeypatch.setattr(Asker, "granted", lambda *_: True)
    with pytest.raises(DoubleProbeError):
        histories(200)


def test_the_simulation_catches_a_member_that_forgets_its_grant_at_once(monkeypatch):
    """A planted bug: a granter that grants everybody."""
    monkeypatch.setattr(Granter, "ask", lambda *_, **__: True)
    with pytest.raises(DoubleProbeError):
        histories(200)


def test_a_majority_that_is_cut_off_from_the_rest_goes_on_probing():
    world = SimulatedClique(3, 5, PERIOD, CliqueFaults(stop=0.0, partitions=0, crashes=0))
    world.run(3 * PERIOD)
    for name in world.names[:2]:
        world.nodes[name].member = None
    since = world.now + 2.5 * PERIOD
    world.run(since + 2 * PERIOD)
    assert world.probed_since(since) == set(world.names[2:])


def test_a_minority_does_not_probe():
    world = SimulatedClique(3, 5, PERIOD, CliqueFaults(stop=0.0, partitions=0, crashes=0))
    world.run(3 * PERIOD)
    for name in world.names[:3]:
        world.nodes[name].member = None
    since = world.now + PERIOD
    world.run(since + 5 * PERIOD)
    assert world.probed_since(since) == set()


def test_everyone_has_a_turn_each_period_when_nothing_fails():
    world = SimulatedClique(1, 6, PERIOD, CliqueFaults(stop=0.0, partitions=0, crashes=0))
    world.run(12 * PERIOD)
    turns = [name for begin, _, name in world.probes if begin >= 2 * PERIOD]
    for name in world.names:
        assert 9 <= turns.count(name) <= 11


def test_a_probe_ends_before_its_grants_do():
    granter, asker = Granter("r", 10.0, now=-100.0), Asker(["a", "b", "c"])
    asker.begin("a", "1", "r", 10.0, now=0.0)
    assert granter.ask(asker.question, now=0.0)
    rival = GrantRequest("b", "1", 1, 10.0, "r")
    assert not granter.ask(rival, now=asker.until)
    assert granter.ask(rival, now=11.0)


def test_an_old_question_heard_again_is_not_granted_again():
    granter = Granter("r", 10.0, now=-100.0)
    old = GrantRequest("a", "1", 1, 10.0, "r")
    assert granter.ask(old, now=0.0)
    granter.release(Release("a", "1", 1))
    assert not granter.ask(old, now=20.0)


def test_a_member_that_was_restarted_grants_nothing_for_a_turn():
    granter = Granter("r", 10.0, now=0.0)
    assert not granter.ask(GrantRequest("a", "1", 1, 10.0, "r"), now=10.0)
    assert granter.ask(GrantRequest("a", "1", 1, 10.0, "r"), now=10.2)


def test_who_goes_by_another_list_of_members_gets_no_grant():
    granter = Granter("r", 10.0, now=-100.0)
    assert not granter.ask(GrantRequest("a", "1", 1, 10.0, "other"), now=0.0)


@settings(max_examples=examples(60))
@given(MESSAGES)
def test_messages_survive_the_wire(message):
    assert decode(encode("lab", message)) == ("lab", message)


@given(st.binary(max_size=300))
@example(b'{"clique": "lab", "kind": "Token", "epoch": [1e999, "ada"]}')
def test_what_is_no_message_is_a_value_error(data):
    with pytest.raises(InputError) as raised:
        decode(data)
    assert raised.value.code == "message-invalid"


@settings(max_examples=examples(40))
@given(st.lists(st.tuples(MESSAGES, st.floats(0, 50)), max_size=30))
def test_whatever_a_stranger_says_a_member_does_not_fail(heard):
    member, now = CliqueMember("a", ["a", "b", "c"], 60.0, "1", 0.0), 0.0
    for message, seconds in heard:
        now += seconds
        for effect in member.receive(message, now) + member.tick(now):
            assert isinstance(effect, SendMessage | ProbePeers)


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
