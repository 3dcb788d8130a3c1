"""The node manager's ledger under random arrivals, exits and crashes: drawn cases, and all the rest."""

from drawn import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from apples.topology import (
    NO_CPUS,
    AllocationState,
    CpuAllocation,
    CpuSet,
    Requirement,
    Unsatisfied,
    arrive,
    grow,
    leave,
    shrink,
    synthetic,
    taken,
    violations,
)

TWO_SOCKETS = synthetic("package:2 core:4 pu:1")
ALL = TWO_SOCKETS.cpus


def job(name, cpus="", least=1, count=None, **more):
    held = CpuSet.parse(cpus)
    return CpuAllocation(
        name, 1, "uid:1", owns=held, holds=held, least=least, count=count or len(held), **more
    )


def after(jobs, changes):
    return {**jobs, **changes}


def without(jobs, name):
    return {n: j for n, j in {**jobs, **leave(jobs, name)}.items() if n != name}


def masks(jobs):
    return {name: str(job.holds) for name, job in jobs.items()}


def test_with_half_to_share_each_of_two_jobs_has_a_socket_and_the_owner_gets_its_own_back():
    #   owner 0 1 2 3 | 4 5 6 7      guest comes      owner 0 1 2 3 | guest 4 5 6 7
    jobs = {"owner": job("owner", "0-7")}
    jobs = after(jobs, arrive(TWO_SOCKETS, jobs, job("guest", least=2, count=4), NO_CPUS, 0.5))
    assert masks(jobs) == {"owner": "0-3", "guest": "4-7"}
    assert masks(without(jobs, "guest")) == {"owner": "0-7"}


def test_a_guest_that_outlives_its_owner_inherits_and_grows_to_what_it_asked():
    jobs = {"owner": job("owner", "0-7")}
    jobs = after(jobs, arrive(TWO_SOCKETS, jobs, job("guest", least=2, count=6), NO_CPUS, 0.5))
    assert len(jobs["guest"].holds) == 4
    alone = without(jobs, "owner")
    assert len(alone["guest"].holds) == 6
    assert alone["guest"].owns == alone["guest"].holds


def test_nobody_is_asked_for_more_than_its_ranks_leave_it():
    jobs = {"ranks": job("ranks", "0-7", least=7)}
    refused = arrive(TWO_SOCKETS, jobs, job("guest", least=2, count=2), NO_CPUS, 0.5)
    assert isinstance(refused, Unsatisfied)
    assert (refused.key, refused.found, refused.needed) == ("-n", 1, 2)


def test_a_rigid_or_exclusive_job_is_no_mate():
    for mate in (job("rigid", "0-7", least=0), job("own", "0-7", exclusive=True)):
        found = arrive(TWO_SOCKETS, {mate.job: mate}, job("guest", least=1), NO_CPUS, 0.5)
        assert isinstance(found, Unsatisfied)


class Sharing(RuleBasedStateMachine):
    """Jobs come, share, are resized, suspended, and end in any order, as clients or by crashing."""

    jobs_made = Bundle("jobs_made")

    def __init__(self):
        super().__init__()
        self.jobs = {}
        self.first = {}
        self.number = 0

    @property
    def free(self):
        return ALL - taken(self.jobs.values())

    @rule(
        target=jobs_made,
        count=st.integers(1, 8),
        least=st.integers(0, 8),
        factor=st.sampled_from([0.25, 0.5, 0.75]),
    )
    def come(self, count, least, factor):
        self.number += 1
        name = f"j{self.number}"
        free, least = self.free, min(least, count)
        if len(free) >= count:
            self.jobs[name] = job(name, str(CpuSet.of(list(free)[:count])), least=least)
            self.first[name] = self.jobs[name].owns
        elif least:
            before = dict(self.jobs)
            found = arrive(
                TWO_SOCKETS, self.jobs, job(name, least=least, count=count), free, factor
            )
            if not isinstance(found, Unsatisfied):
                self.jobs |= found
                for mate in before.keys() & found.keys():
                    lost = before[mate].holds - found[mate].holds
                    assert found[mate].holds <= before[mate].holds
                    assert len(found[mate].holds) >= max(1, before[mate].least)
                    assert lost <= found[name].holds
        return name

    @rule(name=jobs_made)
    def end(self, name):
        if name in self.jobs:
            self.jobs = without(self.jobs, name)
            self.first.pop(name, None)

    @rule(name=jobs_made)
    def suspend(self, name):
        if name in self.jobs and self.jobs[name].state is AllocationState.RUNNING:
            self.jobs |= leave(self.jobs, name)
            asleep = self.jobs[name].change(
                state=AllocationState.SUSPENDED, owns=NO_CPUS, holds=NO_CPUS
            )
            self.jobs[name] = asleep
            self.first.pop(name, None)

    @rule(name=jobs_made, count=st.integers(1, 8))
    def resize(self, name, count):
        found = self.jobs.get(name)
        if (
            found is None
            or found.owns != found.holds
            or found.state is not AllocationState.RUNNING
        ):
            return
        if count < max(1, found.least):
            return
        cpus = shrink(TWO_SOCKETS, found, Requirement(min(count, len(found.holds))))
        if count > len(found.holds):
            cpus = grow(TWO_SOCKETS, found, self.free, Requirement(count))
            if isinstance(cpus, Unsatisfied):
                return
            assert found.holds <= cpus
        assert len(cpus) == count
        self.jobs[name] = found.change(owns=cpus, holds=cpus)
        self.first[name] = cpus

    @invariant()
    def the_ledger_is_sound(self):
        assert not violations(self.jobs, ALL)

    @invariant()
    def an_owner_whose_guests_are_gone_has_its_first_mask(self):
        guests = [j for j in self.jobs.values() if j.holds - j.owns]
        for name, first in self.first.items():
            if not any(guest.holds & first for guest in guests):
                assert first <= self.jobs[name].holds

    def teardown(self):
        for name in list(self.jobs):
            self.jobs = without(self.jobs, name)
        assert self.free == ALL


TestSharing = Sharing.TestCase
TestSharing.settings = settings(max_examples=examples(60), stateful_step_count=25, deadline=None)
