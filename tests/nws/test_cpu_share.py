import pytest

from nws import InputError, available_share, competitors_for, current_share


@pytest.mark.parametrize(
    ("cpus", "competitors", "available", "current"),
    [
        (1, 0, 1.0, 1.0),
        (1, 1, 1 / 2, 1.0),  # the one that runs has the CPU to itself until we come
        (1, 3, 1 / 4, 1 / 3),
        (4, 3, 1.0, 1.0),
        (4, 4, 4 / 5, 1.0),
        (4, 8, 4 / 9, 1 / 2),
        (1.5, 1, 3 / 4, 1.0),  # a quota of one and a half
    ],
)
def test_cpus_are_divided_equally_and_no_process_uses_two(cpus, competitors, available, current):
    assert available_share(competitors, cpus) == pytest.approx(available)
    assert current_share(competitors, cpus) == pytest.approx(current)


def test_processes_that_start_together_compete_with_each_other():
    assert available_share(0, cpus=1, processes=2) == 0.5
    assert available_share(1, cpus=4, processes=3) == 1.0
    assert available_share(2, cpus=4, processes=6) == 0.5


@pytest.mark.parametrize("share", [0.0, -0.5, 1.5])
def test_what_is_no_share_has_no_competitors(share):
    with pytest.raises(InputError) as raised:
        competitors_for(share)
    assert (raised.value.code, raised.value.fields["value"]) == ("value-range", share)


def test_a_share_a_little_below_one_means_few_competitors_even_on_several_cpus():
    assert competitors_for(1.0, cpus=2) == 0.0
    assert competitors_for(0.97, cpus=2) < 0.2
    assert competitors_for(5 / 6, cpus=2) == pytest.approx(0.8)


@pytest.mark.parametrize("cpus", [1, 2, 5])
def test_a_tiny_change_of_the_share_is_a_tiny_change_of_the_competitors(cpus):
    edge = cpus / (cpus + 1)
    assert competitors_for(edge - 1e-9, cpus) == pytest.approx(cpus, rel=1e-6)
    assert competitors_for(edge + 1e-9, cpus) == pytest.approx(cpus, rel=1e-6)
