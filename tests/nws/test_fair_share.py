"""The kernel's fair scheduler, modelled: cases that were measured on Linux 6.18, and the rules behind them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nws import (
    NEW_SESSION,
    NICE_0_WEIGHT,
    CpuDivision,
    Runnable,
    SchedulingGroup,
    available_share,
    fair_shares,
    loads_of,
    water_level,
    weight_of_niceness,
)

CPUS = frozenset(range(4))
NICE = weight_of_niceness(10)


def on(cpu, *groups, **more):
    """Return a thread on one CPU, or a free one on None."""
    return Runnable(CPUS if cpu is None else frozenset({cpu}), groups=groups, **more)


def session(name):
    return SchedulingGroup(f"session {name}")


def share(others, *ours):
    """Return what the last of `ours` gets."""
    return fair_shares([*others, *ours], CPUS)[-1]


OURS = session("ours")


@pytest.mark.parametrize(
    ("others", "ours", "measured"),
    [
        ([on(1, session(1)), on(1, session(1)), on(2, session(1))], on(1, OURS), 0.60),
        ([on(1, session(1)), on(2, session(1)), on(2, session(1))], on(1, OURS), 0.75),
        ([on(cpu, session(1)) for cpu in CPUS], on(1, OURS), 0.80),
        ([on(1, session(1)), on(1, session(2))], on(1, OURS), 0.333),
        ([on(1), on(1)], on(1), 0.333),  # no autogroups: threads of the root
        (
            [on(1, session(1), weight=NICE)],
            on(1, OURS),
            0.5,
        ),  # niceness counts inside a group only
        ([on(1, weight=NICE)], on(1), 0.903),
        ([on(1, SchedulingGroup("/a", 256.0))], on(1, OURS), 0.8),
        ([on(1, SchedulingGroup("/a", quota=0.3))], on(1, OURS), 0.7),
        ([on(1, SchedulingGroup("/a", quota=0.9))], on(1, OURS), 0.5),
    ],
)
def test_a_pinned_rank_gets_what_was_measured(others, ours, measured):
    assert share(others, ours) == pytest.approx(measured, abs=0.004)


def test_two_ranks_of_one_session_share_its_weight():
    others = [on(1, session(1)), on(2, session(2)), on(2, session(3))]
    ranks = [on(1, OURS), on(2, OURS)]
    assert fair_shares([*others, *ranks], CPUS)[-2:] == pytest.approx([1 / 3, 1 / 5])


def test_a_rank_that_waits_leaves_its_part_of_the_group_to_the_others():
    others = [on(1, session(1))]
    busy = share(others, on(2, OURS), on(1, OURS))
    half = share(others, on(2, OURS, active=0.5), on(1, OURS))
    alone = share(others, on(1, OURS))
    assert (busy, half, alone) == pytest.approx((1 / 3, 0.4, 0.5))


def test_weights_are_divided_level_by_level_in_slices():
    user, system = SchedulingGroup("/user", 2048.0), SchedulingGroup("/system")
    scopes = [SchedulingGroup(f"/user/{k}") for k in range(2)]
    others = [on(1, system), on(1, user, scopes[0]), on(2, user, scopes[0])]
    # The slice divides 2048 among a scope with half its weight here, its other half there, and ours.
    mine = 2048 * 1024 / 2048
    assert share(others, on(1, user, scopes[1])) == pytest.approx(mine / (mine + mine / 2 + 1024))
    assert loads_of([*others, on(1, user, scopes[1])]) == pytest.approx([1024, 512, 512, 1024])


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([on(None, session(1))], 1.0),
        ([on(None, session(1))] * 4, 1.0),  # each of them is lighter than the rank's whole session
        ([on(None, session(k)) for k in range(3)], 1.0),  # four on four CPUs
        ([on(None, session(k)) for k in range(4)], 0.8),
        ([on(None, session(1)), on(1, session(2))], 0.5),
        ([on(None, SchedulingGroup("/heavy", 65536.0))], 1.0),  # a thread fills no second CPU
        ([on(None), on(None), on(None), on(None)], 0.5),
    ],
)
def test_competitors_that_may_move_leave_the_cpu_of_a_pinned_rank(others, expected):
    ours = on(1, OURS) if others[0].groups else on(1)
    if expected == 0.5 and not others[0].groups:
        expected = 0.8
    assert share(others, ours) == pytest.approx(expected)


def test_those_that_may_move_only_to_some_cpus_are_spread_over_these():
    pair = Runnable(frozenset({0, 1}), groups=(session(1),))
    others = [pair, pair, pair, pair, on(0, session(2))]
    # 1024 of the pinned one and 1024 of the four against 1024 of ours: each CPU has half of all.
    assert share(others, on(1, OURS)) == pytest.approx(1024 / 1536)


def test_a_group_that_has_used_its_quota_up_leaves_all_of_its_cpus_at_once():
    """Its threads run alike until it is used up: one beside nobody does not keep its CPU on that account."""
    box = SchedulingGroup("/box", weight=2048.0, quota=0.6)
    alone, beside, ours = fair_shares([on(0, box), on(1, box), on(1, OURS)], CPUS)
    assert alone == pytest.approx(2 * beside)  # 1 and 1/2 while they run, .4 of the time
    assert alone + beside == pytest.approx(0.6)
    assert ours == pytest.approx(0.8)


def test_groups_with_quotas_come_and_go_independently():
    threads = [on(1, SchedulingGroup(name, quota=0.25)) for name in ("/a", "/b")]
    *theirs, ours = fair_shares([*threads, on(1, OURS)], CPUS)
    assert theirs == pytest.approx([0.25, 0.25])
    assert ours == pytest.approx(0.5)


@pytest.mark.parametrize("many", [4, 9])
def test_of_many_groups_with_quotas_none_gets_more_and_nothing_is_lost(many):
    threads = [on(1, SchedulingGroup(f"/{k}", quota=0.05)) for k in range(many)]
    *theirs, ours = fair_shares([*threads, on(1, OURS)], CPUS)
    assert max(theirs) <= 0.05 + 1e-9
    assert ours == pytest.approx(1 - 0.05 * many, abs=0.03)


def test_a_quota_holds_for_all_of_ours_together():
    box = SchedulingGroup("/box", quota=1.0)
    ranks = [on(cpu, box) for cpu in range(4)]
    assert fair_shares(ranks, CPUS) == pytest.approx([0.25] * 4)
    assert fair_shares([on(0, session(1)), *ranks], CPUS)[0] > 0.75


def test_water_finds_its_level():
    assert water_level([0.0, 1.0, 5.0], 0.0) == 0.0
    assert water_level([0.0, 1.0, 5.0], 12.0) == 6.0
    assert water_level([2.0], 1.0) == 3.0


def division(others, ours, cpus=(1,)):
    return CpuDivision.of(others, ours, frozenset(cpus), CPUS)


def test_ranks_in_sessions_of_their_own_do_not_crowd_each_other():
    from_here = Runnable(frozenset(), groups=(SchedulingGroup("a new session"),))
    others = [on(cpu, session(1)) for cpu in CPUS]
    found = division(others, from_here)
    assert (found.share, found.competitors, found.contention_slope) == pytest.approx(
        (0.8, 0.25, 0.0)
    )


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "others",
    [
        [on(1, session(1)), on(2, session(2))],
        [on(1, session(1)), on(1, OURS), on(3, OURS)],
        [on(None, session(k)) for k in range(5)],
        [on(None, session(1))],
    ],
)
def test_what_several_ranks_of_one_group_get_follows_from_competitors_and_crowding(others, ranks):
    from_here = Runnable(frozenset(), groups=(OURS,))
    cpus = [1, 0, 2, 3][:ranks]
    true = fair_shares([*others, *(on(cpu, OURS) for cpu in cpus)], CPUS)[len(others)]
    found = division(others, from_here)
    said = available_share(
        found.competitors,
        elsewhere=ranks - 1,
        crowding=found.contention_slope,
        spare=found.spare,
    )
    assert said == pytest.approx(true, rel=0.07)


@pytest.mark.parametrize("free", [0, 1, 2, 3])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_competitors_that_may_move_disturb_nobody_while_a_cpu_is_idle(free, ranks):
    others = [on(None, session(k)) for k in range(free)]
    ours = [on(cpu, SchedulingGroup(f"ours {cpu}")) for cpu in range(ranks)]
    found = division(others, Runnable(frozenset(), groups=(SchedulingGroup(NEW_SESSION),)), (0,))
    said = available_share(
        found.competitors, elsewhere=ranks - 1, crowding=found.contention_slope, spare=found.spare
    )
    assert found.spare == pytest.approx(3 - free)
    assert said == pytest.approx(fair_shares([*others, *ours], CPUS)[free])
    assert (said == pytest.approx(1.0)) == (free + ranks <= 4)


RUNNABLE = st.builds(
    on,
    st.sampled_from([None, 0, 1, 2, 3]),
    st.sampled_from([session(k) for k in range(4)]),
    weight=st.sampled_from([NICE_0_WEIGHT, NICE]),
)


@given(st.lists(RUNNABLE, max_size=6), st.booleans())
def test_beside_ranks_on_all_other_cpus_the_forecast_is_the_division_itself(others, together):
    groups = [OURS if together else SchedulingGroup(f"ours {cpu}") for cpu in CPUS]
    from_here = OURS if together else SchedulingGroup(NEW_SESSION)
    found = division(others, Runnable(frozenset(), groups=(from_here,)))
    assert 0.0 <= found.spare <= 3.0
    ranks = [on(cpu, group) for cpu, group in zip(sorted(CPUS), groups, strict=True)]
    alone = fair_shares([*others, ranks[1]], CPUS)[-1]
    beside = fair_shares([*others, *ranks], CPUS)[len(others) + 1]
    said = [
        available_share(
            found.competitors, elsewhere=count, crowding=found.contention_slope, spare=found.spare
        )
        for count in (0, 1, 2, 3)
    ]
    assert said == sorted(said, reverse=True)
    assert said[0] == pytest.approx(alone)
    assert said[-1] == pytest.approx(min(alone, beside))


def test_the_quota_that_is_left_is_what_others_in_it_do_not_take():
    box = SchedulingGroup("/box", quota=2.0)
    ours = Runnable(frozenset(), groups=(box,))
    assert division([], ours).quota == pytest.approx(2.0)
    assert division([on(0, session(1))], ours).quota == pytest.approx(2.0)
    assert division([on(0, box)], ours).quota == pytest.approx(1.75)  # an eighth is its
    assert division([], Runnable(frozenset(), groups=(OURS,))).quota == 4.0


def test_a_heavy_thread_that_may_move_is_on_the_emptiest_cpu_whole():
    heavy = on(None, SchedulingGroup("/heavy", 4096.0))
    others = [on(cpu, session(1)) for cpu in (0, 2, 3)]
    others += [on(cpu, session(2), weight=NICE) for cpu in (0, 1, 1, 2)]
    # 512 of one session are with the rank; the heavy one is elsewhere, though there is more load there.
    assert share([heavy, *others], on(1, OURS)) == pytest.approx(1024 / 1536)
