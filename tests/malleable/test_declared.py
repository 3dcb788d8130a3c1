"""Values that travel with a job: what was declared, and nothing else."""

import json

import pytest

from apples.malleable import DeclarationError, State


def test_declared_values_are_read_set_dumped_and_loaded():
    state = State({"iteration": 0, "name": "heat", "residual": None})
    state.iteration += 1
    state.residual = 0.5
    assert state.dump() == {"iteration": 1, "name": "heat", "residual": 0.5}
    other = State({"iteration": 0, "name": "", "residual": None})
    other.load(json.loads(json.dumps(state.dump())))
    assert (other.iteration, other.name, other.residual) == (1, "heat", 0.5)


def test_what_was_not_declared_is_refused():
    state = State({"iteration": 0})
    with pytest.raises(DeclarationError) as refused:
        state.turn = 1
    assert (refused.value.code, refused.value.fields["names"]) == ("state-undeclared", ["turn"])
    with pytest.raises(AttributeError, match="turn"):
        _ = state.turn


@pytest.mark.parametrize("name", ["dump", "load"])
def test_a_value_may_not_be_named_like_what_a_state_does(name):
    with pytest.raises(DeclarationError) as refused:
        State({name: 1})
    assert (refused.value.code, refused.value.fields["name"]) == ("declared-name-reserved", name)


def test_a_value_that_cannot_travel_is_refused_when_it_is_to():
    state = State({"table": 0})
    state.table = [1, 2]
    with pytest.raises(DeclarationError) as refused:
        state.dump()
    assert refused.value.code == "type-unsupported"
    assert refused.value.fields == {"name": "table", "value": "list"}
