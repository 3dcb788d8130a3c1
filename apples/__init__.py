"""An agent that schedules one parallel application on machines that are unequal, shared and changing.

Reading order: `resources` (hosts, links), `schedule` (what the subsystems hand one another), `model` and
`models` (how long an iteration takes; `overlap` and `forgetting`: what runs teach of it), `conditions` and
`information` (what one decision knows), `selector`, `planner` and `planners`, `estimator`, `actuator` and
`actuators` over `launch`, `coordinator` (the verbs a blueprint uses), `explanation` and `reports` (the decision
as a person would argue it), `cli`.

Everything in ``__all__`` is loaded when it is first asked for, so that a command pays only for what it uses.
"""

from importlib import import_module

_HOMES = {
    "apples.actuator": {
        "Actuator": "Actuator",
        "Command": "Command",
        "Execution": "Execution",
        "HostTimes": "HostTimes",
        "Outcome": "Outcome",
        "Progress": "Progress",
        "Resized": "Resized",
    },
    "apples.actuators": {
        "LocalActuator": "LocalActuator",
        "MalleableActuator": "MalleableActuator",
        "RecordingActuator": "RecordingActuator",
    },
    "apples.contract": {"Contract": "Contract"},
    "apples.coordinator": {
        "Blueprint": "Blueprint",
        "Coordinator": "Coordinator",
    },
    "apples.deliberation": {"Deliberation": "Deliberation"},
    "apples.errors": {
        "ApplesError": "ApplesError",
        "ApplicationError": "ApplicationError",
        "DeadlineError": "DeadlineError",
        "InfeasibleError": "InfeasibleError",
        "LaunchError": "LaunchError",
        "ModelError": "ModelError",
        "UsageError": "UsageError",
        "VerificationError": "VerificationError",
    },
    "apples.estimator": {"PerformanceEstimator": "PerformanceEstimator"},
    "apples.information": {
        "InformationPool": "InformationPool",
        "load_information": "load_information",
    },
    "apples.model": {"ModelTemplate": "ModelTemplate", "SpeedFunction": "SpeedFunction"},
    "apples.model_checks": {"check_model": "check_model"},
    "apples.planner": {"Planner": "Planner"},
    "apples.planners": {
        "equal_strips": "equal_strips",
        "linear": "linear",
        "milp": "milp",
        "time_balancing": "time_balancing",
    },
    "apples.redistribution": {"Move": "Move", "Tended": "Tended"},
    "apples.resources": {
        "Host": "Host",
        "HostList": "HostList",
        "Link": "Link",
        "Network": "Network",
        "ResourceSet": "ResourceSet",
        "read_host_list": "read_host_list",
    },
    "apples.schedule": {
        "Allocation": "Allocation",
        "Estimate": "Estimate",
        "HostEstimate": "HostEstimate",
        "NoFeasiblePlanError": "NoFeasiblePlanError",
        "Rejection": "Rejection",
        "Schedule": "Schedule",
    },
    "apples.selector": {
        "Distance": "Distance",
        "Filter": "Filter",
        "ResourceSelector": "ResourceSelector",
    },
}
_HOME_OF = {name: (home, inner) for home, names in _HOMES.items() for name, inner in names.items()}

__all__ = [*_HOME_OF]


def __getattr__(name: str) -> object:
    """Return what `name` of the front door stands for, loading its module."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'apples' has no attribute {name!r}")
    home, inner = _HOME_OF[name]
    value = getattr(import_module(home), inner)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
