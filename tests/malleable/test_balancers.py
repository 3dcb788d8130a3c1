"""Strategies of the load balancer: what each of them promises, on any input."""

import itertools
from dataclasses import replace

import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from apples.errors import UsageError
from apples.malleable import (
    STRATEGIES,
    BalancerCheckError,
    Measured,
    Processor,
    accepted,
    check_balancer,
    contiguous,
    decider,
    greedy,
    placement,
    refine,
)

SECONDS = st.floats(0, 100)
FEW = settings(max_examples=examples(40))


@st.composite
def measurements(draw, equal=False, most=14):
    kind = st.tuples(
        st.just(1.0) if equal else st.floats(0.1, 10),
        st.just(0.0) if equal else st.floats(0, 1),
        st.booleans(),
    )
    kinds = draw(st.lists(kind, min_size=1, max_size=6).filter(lambda k: any(on for *_, on in k)))
    processors = tuple(Processor(f"h{i}", *kind) for i, kind in enumerate(kinds))
    block = st.tuples(SECONDS, st.integers(0, len(processors) - 1))
    blocks = draw(st.lists(block, max_size=most))
    return Measured(tuple(w for w, _ in blocks), tuple(p for _, p in blocks), processors)


def best(measured):
    """The shortest step there is, by trying all."""
    every = itertools.product(measured.enabled, repeat=len(measured.work))
    return min(measured.step(owners) for owners in every)


@pytest.mark.parametrize("name", STRATEGIES)
@FEW
@given(measured=measurements())
def test_every_block_has_one_owner_that_may_have_load(name, measured):
    accepted(STRATEGIES[name](measured), measured, name)


@pytest.mark.parametrize("name", STRATEGIES)
@FEW
@given(measured=measurements())
def test_the_same_measurements_give_the_same_owners(name, measured):
    assert STRATEGIES[name](measured) == STRATEGIES[name](measured)


@FEW
@given(measured=measurements(equal=True, most=7).filter(lambda m: len(m.enabled) <= 4))
def test_greedy_keeps_grahams_bound_on_equal_processors(measured):
    bound = 4 / 3 - 1 / (3 * len(measured.enabled))
    assert measured.step(greedy(measured)) <= bound * best(measured) * (1 + 1e-9)


@FEW
@given(measured=measurements(most=7).filter(lambda m: len(m.enabled) <= 4))
def test_greedy_is_within_twice_the_best_on_unequal_processors(measured):
    assert measured.step(greedy(measured)) <= 2 * best(measured) * (1 + 1e-9)


@FEW
@given(measured=measurements())
def test_refine_never_makes_a_step_longer_that_may_stay(measured):
    on = measured.processors
    if all(on[owner].enabled for owner in measured.owners):
        before, after = measured.step(measured.owners), measured.step(refine(measured))
        assert after <= before * (1 + 1e-9)


@FEW
@given(measured=measurements())
def test_refine_leaves_alone_what_is_balanced(measured):
    once = refine(measured)
    settled = Measured(measured.work, once, measured.processors)
    assert refine(settled) == once


def test_refine_moves_fewer_blocks_than_greedy_where_one_host_has_a_little_too_much():
    work = tuple(1.0 + (block % 7) / 10 for block in range(64))
    measured = Measured(work, tuple(b // 16 for b in range(64)), tuple(map(Processor, "abcd")))
    heavier = Measured((*work[:-1], 6.0), measured.owners, measured.processors)
    assert heavier.moved(refine(heavier)) <= 5 < heavier.moved(greedy(heavier))
    assert heavier.step(refine(heavier)) <= 1.03 * heavier.mean()


def runs(owners):
    return [place for place, _ in itertools.groupby(owners)]


@FEW
@given(measured=measurements(most=7).filter(lambda m: len(m.enabled) <= 3))
def test_contiguous_is_the_best_division_into_runs(measured):
    owners = contiguous(measured)
    assert runs(owners) == sorted(set(owners))
    every = itertools.combinations_with_replacement(measured.enabled, len(measured.work))
    assert measured.step(owners) <= min(map(measured.step, every)) * (1 + 1e-9)


@FEW
@given(measured=measurements())
def test_the_decider_takes_at_most_one_task_from_a_node_and_gives_at_most_one(measured):
    owners = decider(measured)
    moves = [
        (a, b)
        for a, b in zip(measured.owners, owners, strict=True)
        if a != b and measured.processors[a].enabled
    ]
    assert len({a for a, _ in moves}) == len(moves)
    assert len({b for _, b in moves}) == len(moves)


def test_the_decider_stays_calm_below_its_threshold():
    measured = Measured((1.05, 1.0), (0, 1), (Processor("a"), Processor("b")))
    assert decider(measured) == (0, 1)


def test_a_faster_and_a_less_loaded_processor_get_more():
    work = (1.0,) * 60
    processors = (Processor("a"), Processor("b", speed=2.0), Processor("c", background=0.5))
    owners = greedy(Measured(work, (0,) * 60, processors))
    shares = [owners.count(place) for place in range(3)]
    assert shares == [pytest.approx(60 * part / 3.5, abs=1) for part in (1, 2, 0.5)]


@pytest.mark.parametrize(
    ("proposal", "fields"),
    [
        ((0,), {"value": 1, "bound": 2}),
        ((0, 2), {"block": 1, "value": 2, "known": [0]}),
        ((0, 1), {"block": 1, "value": 1, "known": [0]}),
        ((-1, 0), {"block": 0, "value": -1, "known": [0]}),
    ],
)
def test_a_strategy_that_proposes_nonsense_is_refused(proposal, fields):
    measured = Measured((1, 1), (0, 0), (Processor("a"), Processor("b", enabled=False)))
    with pytest.raises(UsageError) as refused:
        accepted(proposal, measured, "mine:wild")
    assert refused.value.code == "owners-invalid"
    assert refused.value.fields == {"strategy": "mine:wild", **fields}


@pytest.mark.parametrize(
    ("make", "code", "fields"),
    [
        (
            lambda: Measured((1,), (0,), (Processor("a", enabled=False),)),
            "processors-disabled",
            {},
        ),
        (
            lambda: Measured((float("nan"),), (0,), (Processor("a"),)),
            "value-range",
            {"field": "work", "block": 0, "value": "nan"},
        ),
        (
            lambda: Measured((1,), (0, 0), (Processor("a"),)),
            "lengths-differ",
            {"work": 1, "owners": 2, "size": 0},
        ),
        (
            lambda: Processor("a", speed=0),
            "value-range",
            {"field": "speed", "host": "a", "value": 0},
        ),
        (
            lambda: Processor("a", background=1.5),
            "value-range",
            {"field": "background", "host": "a", "value": 1.5},
        ),
    ],
)
def test_measurements_out_of_range_are_refused(make, code, fields):
    with pytest.raises(UsageError) as refused:
        make()
    assert (refused.value.code, refused.value.fields) == (code, fields)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_balancer_of_ours_keeps_the_contract(name):
    check_balancer(STRATEGIES[name], name)


def forgets_who_leaves(now):
    return now.owners


def changes_its_mind(now, calls=itertools.count()):  # noqa: B008 - the fault that is looked for
    return [now.enabled[next(calls) % len(now.enabled)] for _ in now.work]


def loses_a_block(now):
    return [now.enabled[0]] * (len(now.work) - 1)


@pytest.mark.parametrize(
    ("balancer", "fields"),
    [
        (forgets_who_leaves, {"case": "a host that leaves", "promise": "valid-owners"}),
        (changes_its_mind, {"promise": "deterministic"}),
        (loses_a_block, {"case": "one processor", "promise": "valid-owners"}),
    ],
)
def test_a_balancer_that_breaks_its_contract_is_told_the_case_and_the_promise(balancer, fields):
    with pytest.raises(BalancerCheckError) as broken:
        check_balancer(balancer)
    assert broken.value.fields.items() >= fields.items()


@FEW
@given(measured=measurements(), pairs=st.lists(st.tuples(st.integers(0, 13), st.integers(0, 13))))
def test_placement_by_messages_lengthens_no_step_by_more_than_refine_tolerates(measured, pairs):
    blocks = len(measured.work)
    talk = tuple((a % blocks, b % blocks, 1.0) for a, b in pairs if blocks)
    told = replace(measured, messages=talk)
    most = max(measured.step(refine(measured)), 1.03 * measured.mean()) + 0.03 * measured.mean()
    assert told.step(placement(told)) <= most * (1 + 1e-9) + 1e-12


def test_blocks_that_send_each_other_much_live_on_one_host():
    row = tuple((block, (block + 8) % 16, 100.0) for block in range(16))
    on = (Processor("ada"), Processor("ada"), Processor("bob"), Processor("bob"))
    now = Measured((1.0,) * 16, tuple(block // 4 for block in range(16)), on, messages=row)
    assert now.talk(now.owners) == (0.0, 1600.0)
    found = placement(now)
    assert now.talk(found) == (0.0, 0.0)
    assert now.step(found) == now.step(now.owners)
    again = replace(now, owners=found)
    assert placement(again) == found


HOSTS = "abcd"


def in_two_sites(near):
    """Four ranks on four hosts: `near` are one site, the others another; between them a byte costs fifty times."""
    site = {host: host in near for host in HOSTS}
    return tuple(
        Processor(
            one, distances={o: 50.0 - 49.0 * (site[o] == site[one]) for o in HOSTS if o != one}
        )
        for one in HOSTS
    )


def test_blocks_that_send_each_other_much_live_in_one_site_and_hosts_are_as_loaded_as_before():
    pairs = tuple((block, (block + 8) % 16, 100.0) for block in range(16))
    rest = tuple((block, (block + 1) % 16, 1.0) for block in range(16))
    begin = tuple(block // 4 for block in range(16))
    blind = Measured((1.0,) * 16, begin, tuple(map(Processor, HOSTS)), messages=pairs + rest)
    least = (
        2 * 2 * 50 + 2 * 2 * 1
    )  # a ring of eight pairs, cut twice between sites and twice inside
    told = [replace(blind, processors=in_two_sites(near)) for near in ("ab", "ac", "ad")]
    for now in told:
        found = placement(now)
        assert now.step(found) == 4.0
        assert now.bytes_times_distance(found) == least
    assert max(now.bytes_times_distance(placement(blind)) for now in told) > least


@FEW
@given(
    measured=measurements(),
    pairs=st.lists(st.tuples(st.integers(0, 13), st.integers(0, 13)), max_size=20),
    far=st.floats(1, 1e6),
)
def test_however_far_hosts_are_no_step_is_longer_than_refine_tolerates(measured, pairs, far):
    names = [one.host for one in measured.processors]
    table = [dict.fromkeys(names[i + 1 :] + names[:i], far) for i in range(len(names))]
    placed = tuple(
        replace(one, distances=row) for one, row in zip(measured.processors, table, strict=True)
    )
    blocks = len(measured.work)
    talk = tuple((a % blocks, b % blocks, 1.0) for a, b in pairs if blocks)
    told = replace(measured, processors=placed, messages=talk)
    most = max(told.step(refine(told)), 1.03 * told.mean()) + 0.03 * told.mean()
    assert told.step(placement(told)) <= most * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("far", [0.0, -1.0, float("nan"), float("inf")])
def test_a_distance_that_is_none_is_refused(far):
    with pytest.raises(UsageError) as refused:
        Processor("ada", distances={"bob": far})
    assert refused.value.code == "value-range"
    expected = {"field": "distance", "host": "ada", "other": "bob"}
    assert refused.value.fields.items() >= expected.items()


def test_without_messages_placement_is_refine():
    now = Measured((3.0, 1.0, 2.0), (0, 0, 0), (Processor("ada"), Processor("bob")))
    assert placement(now) == refine(now)


@pytest.mark.parametrize(
    ("message", "code", "fields"),
    [
        ((0, 3, 1.0), "block-unknown", {"block": 3}),
        ((-1, 0, 1.0), "block-unknown", {"block": -1}),
        ((0, 1, -1.0), "value-range", {"block": 0, "other": 1, "value": -1.0}),
        ((0, 1, float("nan")), "value-range", {"block": 0, "other": 1, "value": "nan"}),
    ],
)
def test_messages_of_no_block_or_no_size_are_refused(message, code, fields):
    with pytest.raises(UsageError) as refused:
        Measured((1.0, 1.0), (0, 0), (Processor("ada"),), messages=(message,))
    assert refused.value.code == code
    assert refused.value.fields.items() >= fields.items()
