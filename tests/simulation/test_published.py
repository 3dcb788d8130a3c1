"""Published results, on the archive's logs where they are at hand, and a sample that always is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from apples.scheduling import Conservative, Easy
from apples.simulation import SimulationConfig, clean, job_outcomes, read_swf, simulate, summary

SAMPLE = Path(__file__).parent / "sample.swf.gz"


def judged(path, processors, policy, rule="default", ties="instant"):
    workload, _ = clean(read_swf(path), processors, rule)
    config = SimulationConfig(processors, ties=ties)
    result = simulate(workload, policy, config)
    return workload, job_outcomes(workload, result), summary(workload, result, config)


def test_easy_on_kth_is_the_published_schedule_of_predictsim(logs):
    """Gaussier et al. 2015: mean flow time and average bounded slowdown, to 1e-9."""
    workload, jobs, _ = judged(
        logs / "KTH-SP2-1996-2.swf.gz", 100, Easy(), "predictsim", "predictsim"
    )
    assert len(workload) == 28481
    assert jobs.response.mean() == pytest.approx(15696.7981812436, abs=1e-9)
    assert jobs.bounded_slowdown.mean() == pytest.approx(92.5765397336295, abs=1e-9)
    assert jobs.response.max() == 309231


@pytest.mark.parametrize(
    ("log", "processors", "wait", "makespan"),
    [
        ("KTH-SP2-1996-2", 100, 6802.0927, 29363626),
        ("lublin_256", 256, 97155.9945, 8730698),
        ("CEA-Curie-2011-sample", 93312, 390.6884, 2088393),
        ("NASA-iPSC-1993-3.1-cln", 128, 4.06664, 7949022),
    ],
)
def test_easy_has_the_mean_wait_that_pyss_and_others_agree_on(
    logs, log, processors, wait, makespan
):
    _, _, figures = judged(logs / f"{log}.swf.gz", processors, Easy())
    assert figures["mean_wait"] == pytest.approx(wait, abs=5e-5)
    assert figures["makespan"] == makespan


def test_conservative_on_kth_is_that_of_pyss(logs):
    _, _, figures = judged(logs / "KTH-SP2-1996-2.swf.gz", 100, Conservative(), ties="event")
    assert figures["mean_wait"] == pytest.approx(7291.979, abs=5e-4)


def test_ricc_has_447794_records_of_which_447784_are_simulated(logs):
    log = read_swf(logs / "RICC-2010-2.swf.gz")
    workload, _ = clean(log, 8192)
    assert (len(log), len(workload)) == (447794, 447784)


PROGRAM = """
import sys
from pathlib import Path
from apples.scheduling import Conservative, Easy, Equipartition, FirstFit, SlowdownDriven
from apples.simulation import SimulationConfig, clean, mark_malleable, read_swf, simulate
workload, _ = clean(read_swf(Path(sys.argv[1])), 64)
workload = mark_malleable(workload, 1.0, 0)
for policy in (Easy(), Conservative(), FirstFit(), Equipartition(), SlowdownDriven()):
    result = simulate(workload, policy, SimulationConfig(16, 4), engine="kernel")
    print(result.engine)
    print([x.hex() for x in [*result.start.tolist(), *result.end.tolist()]])
"""


def printed(**environment):
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(SAMPLE)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return answer.stdout.splitlines()


@pytest.mark.more
@pytest.mark.slow
def test_the_schedule_is_the_same_bit_for_bit_without_numba():
    """Slow: two interpreters."""
    pytest.importorskip("numba")
    plain, fast = printed(NUMBA_DISABLE_JIT="1"), printed()
    assert plain[::2] == ["events"] * 5
    assert fast[::2] == ["numba", "numba", "numba", "events", "numba"]
    assert fast[1::2] == plain[1::2]
