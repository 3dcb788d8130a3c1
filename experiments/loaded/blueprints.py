"""Equal parts on the first hosts of the list; what moves them then is the difference."""

from apples import LoadRescheduling, equal_strips


def never(coordinator):
    return coordinator.actuate(first(coordinator))


def decider(coordinator):
    return coordinator.actuate(first(coordinator), LoadRescheduling("decider"))


def migrate(coordinator):
    return coordinator.actuate(first(coordinator), LoadRescheduling("migrate"))


def first(coordinator):
    count = coordinator.information.specifications.constraints.maximum_hosts
    (listed,) = coordinator.select_resources("listed")
    return coordinator.best([coordinator.estimate(coordinator.plan(listed[:count], equal_strips))])
