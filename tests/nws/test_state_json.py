"""States of forecasters: the same to the bit, whatever the forecaster is made of."""

import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from nws import (
    Forecaster,
    Measurement,
    ScoredForecaster,
    SeriesName,
    SortedWindow,
    StateError,
    classic,
    classic_primaries,
    deserialise,
    serialise,
)

ADA = SeriesName("availableCpu", "ada")
VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=120)


@pytest.mark.parametrize("name", classic_primaries())
@settings(max_examples=examples(12), deadline=None)
@given(VALUES, VALUES)
def test_a_thawed_forecaster_goes_on_as_the_frozen_one(name, before, after):
    one, other = classic_primaries()[name], classic_primaries()[name]
    for value in before:
        one.update(value)
    deserialise(other, serialise(one))
    for value in after:
        assert other.forecast() == one.forecast()
        one.update(value)
        other.update(value)
    assert other.forecast() == one.forecast()


@settings(max_examples=examples(12), deadline=None)
@given(VALUES, VALUES)
def test_a_thawed_choice_chooses_as_the_frozen_one(before, after):
    one, other = ScoredForecaster(classic()), ScoredForecaster(classic())
    for time, value in enumerate(before):
        one.update(Measurement(ADA, float(time), value))
    deserialise(other, serialise(one))
    for time, value in enumerate(after, start=len(before)):
        one.update(Measurement(ADA, float(time), value))
        other.update(Measurement(ADA, float(time), value))
        assert other.forecast() == one.forecast()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"object": "Thief", "attributes": {}}', "null"])
def test_what_is_no_state_is_refused(text):
    with pytest.raises(StateError):
        deserialise(ScoredForecaster(classic()), text)


class Foreign:
    """Nothing that says its state itself: it is read attribute by attribute."""

    def __init__(self):
        self.part = SortedWindow(3)
        self.latest = 0.0


def test_a_state_says_numbers_and_never_what_to_run():
    scored = ScoredForecaster(classic())
    scored.update(Measurement(ADA, 1.0, 0.5))
    foreign = Foreign()
    foreign.latest = 0.5
    assert "import" not in serialise(scored) + serialise(foreign)
    evil = serialise(foreign).replace("Foreign", "os.system")
    assert "os.system" in evil
    with pytest.raises(StateError):
        deserialise(Foreign(), evil)
    with pytest.raises(StateError):
        deserialise(
            ScoredForecaster(classic()), serialise(scored).replace("_members", "__class__")
        )


class Silent(Forecaster):
    """A forecaster of somebody's that does not say its state."""

    def __init__(self):
        self.last = 0.0

    def update(self, value):
        self.last = value

    def forecast(self):
        return self.last

    method = "silent"


def test_a_forecaster_that_does_not_say_its_state_is_read():
    one, other = ScoredForecaster(Silent()), ScoredForecaster(Silent())
    for time in range(8):
        one.update(Measurement(ADA, float(time), time / 8))
    deserialise(other, serialise(one))
    assert other.forecast() == one.forecast()
    assert other.period == one.period == 1.0
