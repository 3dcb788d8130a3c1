"""Which hosts suit a job best by its model: never worse by the estimate than those of the host list."""

from dataclasses import replace

import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from apples.agent import RunSpec, load, plan
from apples.cluster import HostPreference, estimate
from apples.errors import InfeasibleError, UsageError
from apples.jobs import JobSpec
from apples.resources import read_host_list

TEMPLATE = """
name = "strips"
program = ["true"]
[parameters.grid]
default = 2000
[structure]
rows = "grid"
columns = "grid"
iterations = "100"
"""


def listed(folder, hosts, latency=1e-4):
    """Write a host list: name -> site, nanoseconds a point, share; return what a job says of its files."""
    text = "".join(
        f'[[host]]\nname = "{name}"\nsite = "{site}"\nseconds_per_point = {speed}e-9\ncpu = {cpu}\n'
        for name, (site, speed, cpu) in hosts.items()
    )
    text += f"[default_link]\nlatency = {latency}\nbandwidth = 1e9\n"
    (folder / "hosts.toml").write_text(text)
    (folder / "template.toml").write_text(TEMPLATE)
    run = RunSpec(folder / "hosts.toml", folder / "template.toml", None, weather="static")
    return JobSpec(run, folder)


def estimated(spec, hosts, shares):
    """Return the estimate of a run on hosts of which others leave so much, planned by itself."""
    information = load(spec.run)
    there = tuple(
        replace(host, cpu=host.cpu * shares.get(host.name, 1.0)) for host in information.hosts
    )
    conditions = information.conditions
    conditions = replace(conditions, hosts=replace(conditions.hosts, hosts=there))
    found = plan(replace(spec.run, on=tuple(hosts)), replace(information, conditions=conditions))
    return None if found.refusal is not None else found.estimate.turnaround_seconds


def test_fast_hosts_of_two_sites_that_are_near_are_taken_before_slow_ones_of_one(tmp_path):
    hosts = {
        "ada": ("x", 9, 1.0),
        "bob": ("x", 8, 1.0),
        "cleo": ("y", 1, 1.0),
        "dan": ("z", 1, 1.0),
    }
    spec = listed(tmp_path, hosts)
    answer = estimate(spec.document(), 2, list(hosts))
    (best, seconds), (rest, more) = answer["choices"]
    assert ({*best}, {*rest}) == ({"cleo", "dan"}, {"ada", "bob"})
    assert seconds < more / 4
    assert answer["seconds"] > 0
    loaded = estimate(spec.document(), 2, list(hosts), {"dan": 0.05})
    assert set(loaded["choices"][0][0]) == {"bob", "cleo"}
    far = listed(tmp_path, hosts, latency=5.0)
    answer = estimate(far.document(), 2, list(hosts))
    assert set(answer["choices"][0][0]) != {"ada", "bob"}  # alone on a fast one


@settings(max_examples=examples(12), deadline=None)
@given(st.data())
def test_what_is_chosen_is_never_worse_by_the_estimate_than_what_the_list_says(
    tmp_path_factory, data
):
    place = st.tuples(
        st.sampled_from("xy"), st.integers(1, 9), st.sampled_from((0.2, 0.5, 0.9, 1.0))
    )
    names = ("ada", "bob", "cleo", "dan", "eve")
    hosts = {name: data.draw(place) for name in names}
    spec = listed(tmp_path_factory.mktemp("one"), hosts, data.draw(st.sampled_from((1e-5, 0.1))))
    count = data.draw(st.integers(1, 4))
    shares = data.draw(st.dictionaries(st.sampled_from(names), st.sampled_from((0.1, 0.5))))
    choices = estimate(spec.document(), count, list(names), shares)["choices"]
    prefer = HostPreference.of(read_host_list(spec.run.hosts)).under(shares)
    rest = list(names)
    assert len(choices) == min(3, len(names) // count)
    for chosen, seconds in choices:
        assert len({*chosen}) == len(chosen) == count
        assert {*chosen} <= {*rest}
        assert seconds == pytest.approx(estimated(spec, chosen, shares))
        assert seconds <= estimated(spec, prefer.best(rest, count), shares) * 1.000001
        rest = [host for host in rest if host not in chosen]


def test_without_hosts_to_choose_from_only_the_run_time_is_estimated(tmp_path):
    spec = listed(tmp_path, {"ada": ("x", 2, 1.0), "bob": ("x", 2, 1.0)})
    answer = estimate(spec.document(), 1)
    assert answer["choices"] == []
    assert answer["seconds"] > 0


def test_a_program_without_a_template_has_no_model_to_be_asked(tmp_path):
    spec = {
        "program": ["true"], "hosts": "h.toml", "on": [], "signal": "USR1", "signal_seconds": 1.0,
        "output": None, "directory": str(tmp_path),
    }  # fmt: skip
    with pytest.raises(UsageError) as refused:
        estimate(spec, 1, ["ada", "bob"])
    assert refused.value.code == "model-missing"


def test_hosts_without_memory_for_the_job_are_no_choice(tmp_path):
    spec = listed(tmp_path, {"ada": ("x", 2, 1.0), "bob": ("x", 2, 1.0)})
    small = (tmp_path / "hosts.toml").read_text().replace("cpu = ", "free_memory = 10\ncpu = ")
    (tmp_path / "hosts.toml").write_text(small)
    with pytest.raises(InfeasibleError):
        estimate(spec.document(), 1, ["ada", "bob"])
