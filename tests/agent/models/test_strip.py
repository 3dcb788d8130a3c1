"""T_i = A_i P_i + C_i against the formulas of DESIGN section 4, worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import pool, random_world, symmetric

from apples import Host, Link, ModelTemplate, SpeedFunction, check_model
from apples.agent import set_straggler_factor
from apples.errors import ModelError
from nws import Forecast, Weather, available_share


def forecast(value, error=0.0):
    return Forecast(value, error, "last_value", 9, 0.0)


def times(information, rows):
    model, hosts = information.model, information.hosts.hosts
    return model.computation(hosts, np.array(rows, dtype=float)), model.communication(hosts)


def test_three_hosts_in_a_row_by_hand():
    """a - b - c on a 1000 x 1000 grid: a alone has one border, b two, c one."""
    hosts = [
        Host("a", seconds_per_point=2e-9),
        Host("b", seconds_per_point=3e-9, cpu=0.5),
        Host("c", site="t", seconds_per_point=8e-9, cpu=0.25, slots=4),
    ]
    near, far = Link(1e-4, 1e8), Link(1e-2, 1e6)
    links = {("local", "local"): near, **symmetric({("local", "t"): far})}
    compute, communicate = times(pool(hosts, links), [500, 300, 200])
    assert compute == pytest.approx([500e3 * 2e-9, 300e3 * 6e-9, 200e3 * 8e-9])
    ab = 2 * (1e-4 + 8000 / 1e8)
    bc = 2 * (1e-2 + 8000 / 1e6)
    assert communicate == pytest.approx([ab, ab + bc, bc])


def test_the_two_directions_of_a_border_each_use_their_own_link():
    hosts = [Host("a", seconds_per_point=1e-9), Host("b", seconds_per_point=1e-9)]
    links = {("a", "b"): Link(1e-3, 1e6), ("b", "a"): Link(5e-3, 4e6)}
    _, communicate = times(pool(hosts, links), [500, 500])
    assert communicate == pytest.approx([1e-3 + 8e-3 + 5e-3 + 2e-3] * 2)


def test_several_sweeps_an_exchange_send_the_same_bytes_in_fewer_messages():
    hosts = [Host("a", seconds_per_point=1e-9), Host("b", seconds_per_point=1e-9)]
    information = pool(hosts, {("local", "local"): Link(1e-2, 1e6)})
    (border,) = replace(information.model, sweeps=4).border_seconds(hosts)
    assert border == pytest.approx(2 * (1e-2 / 4 + 8000 / 1e6))


def test_memory_is_both_arrays_of_the_strip_and_a_border_row_on_each_side():
    model = pool([Host("a", free_memory=16_000 * 102)]).model
    assert model.memory(100) == 2 * (100 + 2) * 1000 * 8
    assert model.caps([Host("a", free_memory=16_000 * 102)], 1000).tolist() == [100]
    assert model.caps([Host("a", free_memory=16_000 * 102 - 1)], 1000).tolist() == [99]
    assert model.caps([Host("a", free_memory=10)], 1000).tolist() == [0]
    assert model.caps([Host("a")], 1000).tolist() == [1000]


def test_the_users_memory_limit_and_the_forecast_both_bind():
    hosts = [Host("a", free_memory=16_000 * 202)]
    user = f"[constraints]\nmemory = {16_000 * 102}\n"
    assert pool(hosts, user=user).model.caps(hosts, 1000).tolist() == [100]
    sky = Weather(free_memory={"a": forecast(16_000 * 52.0)})
    assert pool(hosts, weather=sky).model.caps(hosts, 1000).tolist() == [50]


def test_risk_adds_so_many_errors_to_every_forecast():
    hosts = [Host("a", seconds_per_point=1e-9), Host("b", seconds_per_point=1e-9)]
    sky = Weather(
        cpu={"a": forecast(0.5, 0.1)},
        free_memory={"a": forecast(16_000 * 102.0, 16_000 * 10.0)},
        latency={("a", "b"): forecast(1e-3, 1e-4)},
        bandwidth={("a", "b"): forecast(1e6, 1e5)},
    )
    links = {("local", "local"): Link(0.0, 1e12)}
    calm = pool(hosts, links, weather=sky)
    wary = pool(hosts, links, weather=sky, user="[preferences]\nrisk = 2.0\n")
    (c0, b0), (c2, b2) = times(calm, [100, 900]), times(wary, [100, 900])
    assert c2 / c0 == pytest.approx([1 + 2 * 0.1 / 0.5, 1.0])
    assert b2 - b0 == pytest.approx([2 * (1e-4 + 8e-3 * 0.1)] * 2)
    assert wary.model.caps(hosts, 1000)[0] == 80
    assert calm.model.caps(hosts, 1000)[0] == 100


def test_a_forecast_never_scored_counts_with_a_tenth_of_its_value():
    hosts = [Host("a", seconds_per_point=1e-9)]
    wary = pool(hosts, weather=Weather(cpu={"a": forecast(0.5, None)}),
                user="[preferences]\nrisk = 1.0\n")  # fmt: skip
    compute, _ = times(wary, [1000])
    assert compute == pytest.approx([1e6 * 1e-9 / 0.5 * 1.1])


@given(st.floats(0.5, 1000))
@settings(max_examples=examples(50), deadline=None)
def test_speeds_are_straight_between_measured_sizes_and_flat_outside(rows):
    speed = SpeedFunction((10.0, 100.0, 400.0), (1e-9, 2e-9, 1.5e-9))
    assert speed.at(rows) == pytest.approx(
        np.interp(rows, [10, 100, 400], [1e-9, 2e-9, 1.5e-9]), rel=1e-12
    )


def test_measured_speeds_never_make_a_larger_strip_quicker():
    speed = SpeedFunction.measured([(10, 5e-9, 0), (100, 4e-10, 1e-11), (200, 1e-9, 0)])
    rows = np.linspace(1, 300, 500)
    seconds = [r * speed.at(r) for r in rows]
    assert np.all(np.diff(seconds) >= -1e-18)
    assert speed.error == pytest.approx(1e-11 / 4e-10)


def test_a_calibrated_host_is_as_fast_as_the_rows_of_one_slot_say():
    from apples.agent import Correction, Learned, by_kind_and_key

    curve = SpeedFunction((100.0, 500.0), (1e-9, 3e-9))
    information = pool(
        [Host("a", slots=2)],
        learned=Learned(
            {"a": {"default": curve}},
            by_kind_and_key([Correction.proven("slowdown", ("a",), 2.0)]),
        ),
    )
    compute, _ = times(information, [600])
    assert compute == pytest.approx([600e3 * 2.0 * 2e-9 / 2])


def processor_sharing(work, slots, others, width, step=1e-5):
    """When each of some hosts on the same CPUs is done: time goes on in small steps."""
    left, clock = np.array(work, dtype=float), 0.0
    done = np.zeros(len(left))
    while np.any(left > 0):
        running = left > 0
        share = available_share(others, width, int(np.array(slots)[running].sum()))
        left[running] -= share * step
        clock += step
        done[running & (left <= 0)] = clock
    return done


@pytest.mark.parametrize(
    ("cpus", "others", "slots"),
    [([0], 1.0, (1, 1, 1)), ([0], 0.0, (1, 2, 1)), ([0, 1], 2.0, (1, 1, 3))],
)
def test_hosts_on_the_same_cpus_share_them_and_hand_on_what_they_leave(cpus, others, slots):
    """  a |=====|            as if time went on in small steps
         b |=========|
         c |==============|  """  # fmt: skip
    hosts = [
        Host(n, cpus=tuple(cpus), slots=k, seconds_per_point=1e-7)
        for n, k in zip("abc", slots, strict=True)
    ]
    share = available_share(others, len(cpus))
    sky = Weather(
        cpu={h.name: forecast(share) for h in hosts},
        competitors={h.name: forecast(others) for h in hosts},
    )
    information = pool(hosts, weather=sky)
    rows = [100, 350, 550]
    compute, _ = times(information, rows)
    work = [1000 * r * 1e-7 / k for r, k in zip(rows, slots, strict=True)]
    assert compute == pytest.approx(processor_sharing(work, slots, others, len(cpus)), rel=2e-3)


@pytest.mark.parametrize("seed", range(12))
def test_the_strip_model_keeps_the_contract_of_models(seed):
    world = random_world(np.random.default_rng(seed), 4)
    check_model(world.information.model, world.hosts, world.total)
    rows = np.full(4, world.total / 4)
    assert world.information.model.computation(world.hosts, rows) == pytest.approx(world.p * rows)


class Model(ModelTemplate):
    def __init__(self, computation=lambda rows: rows, communication=np.zeros):
        self.one, self.other = computation, communication
        self.asked = 0

    def computation(self, resources, rows):
        self.asked += 1
        return self.one(rows)

    def communication(self, resources):
        return self.other(len(resources))


class Forgetful(Model):
    def computation(self, resources, rows):
        return super().computation(resources, rows) + self.asked


class Boundless(Model):
    def caps(self, resources, total):
        return np.full(len(resources), total + 1)


@pytest.mark.parametrize(
    ("model", "code", "field"),
    [
        (Model(lambda rows: 1 / rows), "prediction-decreasing", "computation"),
        (Model(lambda rows: -rows), "prediction-invalid", "computation"),
        (Model(lambda rows: rows * np.nan), "prediction-invalid", "computation"),
        (Model(np.sum), "prediction-shape", "computation"),
        (
            Model(communication=lambda count: np.zeros(count + 1)),
            "prediction-shape",
            "communication",
        ),
        (Forgetful(), "prediction-unstable", "computation"),
        (Boundless(), "prediction-caps", "caps"),
    ],
)
def test_the_checks_find_a_model_that_breaks_the_contract(model, code, field):
    with pytest.raises(ModelError) as error:
        check_model(model, [Host("a"), Host("b")], 10)
    assert error.value.code == code
    line = getattr(type(model), field).__code__.co_firstlineno
    expected = {"model": type(model).__name__, "field": field, "file": __file__, "line": line}
    assert error.value.fields == expected
    assert str(error.value).startswith(f"{__file__}:{line}: {type(model).__name__}: ")
    check_model(Model(), [Host("a"), Host("b")], 10)


class FreeFrom(Model):
    """Says that the hosts from one on compute for nothing."""

    def __init__(self, first):
        super().__init__()
        self.first = first

    def computation(self, resources, rows):
        free = np.array([host.name >= self.first for host in resources])
        return np.where(free, 0.0, super().computation(resources, rows))


@pytest.mark.parametrize("first", ["a", "e"])
def test_a_model_by_which_the_whole_grid_takes_no_time_is_refused(first):
    with pytest.raises(ModelError) as error:
        check_model(FreeFrom(first), [Host(name) for name in "abcde"], 10)
    assert error.value.code == "prediction-invalid"
    assert f"0 s for {first} with all 10 rows" in str(error.value)


def test_a_dead_cpu_or_link_is_slow_but_never_infinitely_slow():
    hosts = [Host("a", seconds_per_point=1e-9), Host("b", seconds_per_point=1e-9)]
    sky = Weather(
        cpu={"a": forecast(0.0)},
        latency={("a", "b"): forecast(1e300)},
        bandwidth={("a", "b"): forecast(0.0)},
    )
    compute, communicate = times(pool(hosts, weather=sky), [500, 500])
    assert np.all(np.isfinite(compute))
    assert np.all(np.isfinite(communicate))
    assert communicate[0] > 1e5


def test_no_lateness_of_a_host_makes_an_iteration_shorter():
    alike = np.array([2.0, 2.0])
    assert set_straggler_factor(alike, 1.0) == 1.0
    with pytest.raises(ValueError, match=r"0\.9"):
        set_straggler_factor(alike, 0.9)
