"""Chunks of units: each is done once, whoever joins, leaves or is lost; weighted, and small at the end."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from apples.applications import UnitPool

LANES = ("ada", "bob", "cleo")


class Lanes(RuleBasedStateMachine):
    """Lanes that take, do, give back, leave and come again, in any order."""

    def __init__(self):
        super().__init__()
        self.pool = UnitPool(40)
        self.counted, self.given_up = [], set()
        self.speeds = {}

    def waiting_alone(self):
        held = {unit for units in self.pool.held.values() for unit in units}
        return self.pool.possible_crash_units - held - {*self.counted, *self.given_up}

    @rule(lane=st.sampled_from(LANES), speed=st.floats(0.1, 10))
    def join(self, lane, speed):
        self.speeds[lane] = speed

    @precondition(lambda self: self.speeds)
    @rule(data=st.data())
    def take(self, data):
        lane = data.draw(st.sampled_from(sorted(self.speeds)))
        before = self.pool.waiting
        chunk = self.pool.take(lane, self.speeds) if before else self.pool.copy(lane, self.speeds)
        assert not set(chunk) & {*self.counted, *self.given_up}, "what is done is handed to nobody"
        assert not before or (chunk and self.pool.waiting == before - len(chunk))

    @precondition(lambda self: any(self.pool.held.values()))
    @rule(data=st.data(), fails=st.booleans())
    def end(self, data, fails):
        lane = data.draw(st.sampled_from(sorted(k for k, v in self.pool.held.items() if v)))
        unit = next(iter(self.pool.held[lane]))
        if fails:
            self.pool.give_back(lane, unit)
        elif self.pool.finish(lane, unit):
            self.counted.append(unit)

    @precondition(lambda self: self.speeds)
    @rule(data=st.data(), crashed=st.booleans())
    def leave(self, data, crashed):
        lane = data.draw(st.sampled_from(sorted(self.speeds)))
        self.speeds.pop(lane)
        had = self.pool.leave(lane, suspect=crashed)
        assert not crashed or self.pool.possible_crash_units.issuperset(had)

    @precondition(lambda self: any(not self.pool.held.get(lane) for lane in self.speeds))
    @rule(data=st.data())
    def take_alone(self, data):
        free = sorted(lane for lane in self.speeds if not self.pool.held.get(lane))
        before = len(self.waiting_alone())
        chunk = self.pool.take_alone(data.draw(st.sampled_from(free)))
        assert len(chunk) == min(1, before)
        assert self.pool.possible_crash_units.issuperset(chunk)

    @rule(unit=st.integers(0, 39))
    def give_up(self, unit):
        known = self.pool.possible_crash_units | {
            u for units in self.pool.held.values() for u in units
        }
        if unit in known and not self.pool.give_up(unit):
            self.given_up.add(unit)

    @invariant()
    def no_unit_is_lost_or_counted_twice(self):
        settled = [*self.counted, *self.given_up]
        assert len(set(settled)) == len(settled) == self.pool.done
        held = {unit for units in self.pool.held.values() for unit in units}
        waiting = self.pool.waiting + len(self.waiting_alone())
        assert len(held - set(settled)) + waiting + self.pool.done == self.pool.count

    def teardown(self):
        self.pool.leave("ada")
        for lane in ("bob", "cleo"):
            self.pool.leave(lane)
        while chunk := self.pool.take("ada", {"ada": 1.0}) if self.pool.waiting else []:
            self.counted += [unit for unit in chunk if self.pool.finish("ada", unit)]
        while chunk := self.pool.take_alone("ada"):
            self.counted += [unit for unit in chunk if self.pool.finish("ada", unit)]
        assert sorted([*self.counted, *self.given_up]) == list(range(40))


TestLanes = Lanes.TestCase


def test_a_lane_gets_its_share_of_half_of_what_waits_and_single_units_at_the_end():
    pool, weights = UnitPool(1000), {"quick": 3.0, "slow": 1.0}
    first = len(pool.take("quick", weights)), len(pool.take("slow", weights))
    assert first == (375, 79)
    while pool.waiting > 1:
        pool.take("quick", weights)
    assert len(pool.take("slow", weights)) == 1


def test_what_a_late_lane_has_is_done_by_an_idle_one_too_where_it_is_sooner():
    pool, weights = UnitPool(4), {"quick": 10.0, "slow": 0.1}
    chunk = pool.take("slow", {"slow": 1.0}) + pool.take("slow", {"slow": 1.0})
    pool.take("slow", {"slow": 1.0})
    assert pool.waiting == 0
    assert pool.copy("quick", weights) == [2, 3]
    assert pool.finish("quick", 3)
    assert not pool.finish("slow", 3)
    assert pool.copy("slow", weights) == [], "the quick one is sooner"
    assert chunk == [0, 1, 2]
