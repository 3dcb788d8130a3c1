import numpy as np
import pytest

from apples.errors import UsageError
from apples.simulation import (
    CirneLike,
    amdahl,
    cirne_like_workload,
    downey,
    downey_workload,
    kale_workload,
    lublin_workload,
    parse_speedup,
    table,
)


def test_kales_adaptive_and_traditional_jobs_come_together_and_bring_the_same_work():
    adaptive = kale_workload(2000, 0.5, 1, adaptive=True)
    traditional = kale_workload(2000, 0.5, 1, adaptive=False, speedup=lambda n: amdahl(n, 0.05))
    assert adaptive.submit.tolist() == traditional.submit.tolist()
    assert adaptive.minimum.tolist() == traditional.processors.tolist()
    ratio = traditional.run / adaptive.run
    widths = traditional.processors.tolist()
    speedups = [amdahl(64, 0.05) / amdahl(n, 0.05) for n in widths]
    assert ratio == pytest.approx(speedups, rel=1e-4)  # run times are whole microseconds
    assert np.diff(adaptive.submit).mean() == pytest.approx(129, rel=0.1)
    assert adaptive.run.mean() == pytest.approx(64.5, rel=0.1)


@pytest.mark.parametrize(("typeless", "least"), [(True, 10), (False, 13)])
def test_lublin_says_on_how_many_processors_its_sizes_are_defined(typeless, least):
    assert lublin_workload(5, least, 1, typeless=typeless).processors.max() <= least
    with pytest.raises(UsageError) as raised:
        lublin_workload(5, least - 1, 1, typeless=typeless)
    assert raised.value.code == "value-range"
    assert raised.value.fields == {"field": "processors", "value": least - 1, "bound": least}


def test_lublin_has_the_shares_of_the_model():
    workload = lublin_workload(20_000, 256, 3)
    width = workload.processors
    assert (width == 1).mean() == pytest.approx(0.244, abs=0.02)
    assert width.max() <= 256
    assert width.mean() == pytest.approx(22.1, rel=0.1)  # lublin_256 of the archive
    assert workload.run.mean() == pytest.approx(4862, rel=0.1)  # likewise
    hour = workload.submit % 86400 // 3600
    assert (hour == 14).sum() > 2 * (hour == 4).sum()


def test_lublin_with_two_kinds_of_jobs_is_in_order():
    workload = lublin_workload(1000, 64, 3, typeless=False)
    assert len(workload) == 1000
    assert (np.diff(workload.submit) >= 0).all()


def test_downey_jobs_offer_the_load_asked_for():
    workload = downey_workload(20_000, 64, 0.6, 2)
    work = (workload.run * workload.processors).sum()
    assert work / (64 * workload.submit[-1]) == pytest.approx(0.6, rel=0.05)
    assert (workload.maximum == 64).all()


def test_cirne_like_jobs_keep_to_their_coefficients():
    few = CirneLike(power_of_two=1.0, load=0.5)
    workload = cirne_like_workload(20_000, 64, 4, 16, 2, coefficients=few)
    nodes = workload.processors // 4
    assert set(nodes.tolist()) == {1, 2, 4, 8, 16}
    assert (workload.run <= workload.requested).all()
    exact = cirne_like_workload(500, 64, 4, 16, 2, exact_requests=True)
    assert exact.run.tolist() == exact.requested.tolist()


@pytest.mark.parametrize("generate", [kale_workload, lublin_workload])
def test_the_same_seed_gives_the_same_jobs(generate):
    how = {"adaptive": True} if generate is kale_workload else {}
    first, again, other = (generate(100, 64, seed, **how) for seed in (1, 1, 2))
    assert first.submit.tolist() == again.submit.tolist() != other.submit.tolist()


def test_downeys_speedup_is_continuous_and_ends_at_the_parallelism():
    for sigma in (0.0, 0.5, 1.0, 2.0):
        values = [downey(n, 16, sigma) for n in np.arange(1, 200, 0.25)]
        assert values[0] == pytest.approx(1)
        assert values[-1] == 16
        assert max(np.diff(values)) <= 0.26
        assert min(np.diff(values)) >= -1e-12


def test_speedups_by_name():
    assert parse_speedup("amdahl:0.5")(2) == pytest.approx(4 / 3)
    assert parse_speedup("table:1=1,2=1.8")(4) == 1.8
    assert table(0.5, ((1, 1.0), (2, 1.8))) == 0.5
    for bad in ("amdahl:2", "amdahl", "downey:0.5,1", "table:", "table:0=1", "square", "linear:2"):
        with pytest.raises(UsageError) as raised:
            parse_speedup(bad)
        assert raised.value.code == "value-invalid"
        assert raised.value.fields == {"option": "speedup", "value": bad}
