"""Which hosts a job would rather have by its model: never worse by the estimate than those of the host list."""

from dataclasses import replace

import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from apples.agent import RunSpec, load, plan
from apples.cluster import HostPreference, select
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


def by_list(spec, among, count, beside=()):
    return HostPreference.of(read_host_list(spec.run.hosts)).best(among, count, beside)


def test_fast_hosts_of_two_sites_that_are_near_are_taken_before_slow_ones_of_one(tmp_path):
    hosts = {
        "ada": ("x", 9, 1.0),
        "bob": ("x", 8, 1.0),
        "cleo": ("y", 1, 1.0),
        "dan": ("z", 1, 1.0),
    }
    spec = listed(tmp_path, hosts)
    instead = by_list(spec, hosts, 2)
    assert set(instead) == {"ada", "bob"}  # of one site
    said = select(spec.document(), list(hosts), 2, (), instead, {}, {})
    assert set(said["hosts"]) == {"cleo", "dan"}
    assert said["seconds"] < said["otherwise"] / 4
    loaded = select(spec.document(), list(hosts), 2, (), instead, {"dan": 0.05}, {})
    assert set(loaded["hosts"]) == {"bob", "cleo"}
    far = listed(tmp_path, hosts, latency=5.0)
    said = select(far.document(), list(hosts), 2, (), instead, {}, {})
    assert set(said["hosts"]) != {"ada", "bob"}  # alone on a fast one, the other is given back


def test_a_job_that_is_shrunk_loses_the_host_whose_loss_costs_least(tmp_path):
    hosts = {"ada": ("x", 2, 1.0), "bob": ("x", 2, 1.0), "cleo": ("y", 1, 1.0)}
    spec = listed(tmp_path, hosts)
    instead = by_list(spec, hosts, 2)
    said = select(spec.document(), list(hosts), 2, (), instead, {}, {})
    assert "cleo" in said["hosts"]
    speeds = {"ada": 5e3, "bob": 5e3, "cleo": 1e2}
    said = select(spec.document(), list(hosts), 2, (), ("ada", "cleo"), {}, speeds)
    assert set(said["hosts"]) == {"ada", "bob"}  # as the running job has measured them


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
    beside = names[: data.draw(st.integers(0, 2))]
    among = [name for name in names if name not in beside]
    count = data.draw(st.integers(1, len(among)))
    shares = data.draw(st.dictionaries(st.sampled_from(names), st.sampled_from((0.1, 0.5))))
    instead = by_list(spec, among, count, beside)
    said = select(spec.document(), among, count, beside, instead, shares, {})
    assert len({*said["hosts"]}) == len(said["hosts"]) == count
    assert {*said["hosts"]} <= {*among}
    chosen = estimated(spec, (*beside, *said["hosts"]), shares)
    otherwise = estimated(spec, (*beside, *instead), shares)
    assert said["seconds"] == pytest.approx(chosen)
    assert said["otherwise"] == pytest.approx(otherwise)
    assert chosen <= otherwise


def test_a_program_without_a_template_has_no_model_to_be_asked(tmp_path):
    spec = {
        "program": ["true"], "hosts": "h.toml", "on": [], "signal": "USR1", "signal_seconds": 1.0,
        "output": None, "directory": str(tmp_path),
    }  # fmt: skip
    with pytest.raises(UsageError) as refused:
        select(spec, ["ada", "bob"], 1, (), ("ada",), {}, {})
    assert refused.value.code == "model-missing"


def test_hosts_without_memory_for_the_job_are_no_selection(tmp_path):
    hosts = {"ada": ("x", 2, 1.0), "bob": ("x", 2, 1.0)}
    spec = listed(tmp_path, hosts)
    small = (tmp_path / "hosts.toml").read_text().replace("cpu = ", "free_memory = 10\ncpu = ")
    (tmp_path / "hosts.toml").write_text(small)
    with pytest.raises(InfeasibleError) as refused:
        select(spec.document(), list(hosts), 1, (), ("ada",), {}, {})
    assert refused.value.code == "hosts-infeasible"
    assert refused.value.fields["hosts"] == ["ada", "bob"]
