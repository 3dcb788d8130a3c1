"""An agent that schedules one parallel application on machines that are unequal, shared and changing.

Reading order: `resources` (hosts, links), `schedule` (what the subsystems hand one another), `agent` (one
application, one decision), `launch` (from a schedule to processes), `malleable` (jobs that change while they run),
`scheduling` and `simulation` (many jobs on one cluster), `topology` (inside a host), `views` and `cli`.

Everything in ``__all__`` is loaded when it is first asked for, so that a command pays only for what it uses.
"""

from importlib import import_module

_HOMES = {
    "apples.launch.actuator": {
        "Actuator": "Actuator",
        "Command": "Command",
        "Execution": "Execution",
        "HostTimes": "HostTimes",
        "Outcome": "Outcome",
        "Progress": "Progress",
        "Resized": "Resized",
    },
    "apples.launch.actuators": {
        "LocalActuator": "LocalActuator",
        "MalleableActuator": "MalleableActuator",
        "RecordingActuator": "RecordingActuator",
    },
    "apples.agent.contract": {"Contract": "Contract"},
    "apples.agent.coordinator": {
        "Blueprint": "Blueprint",
        "Coordinator": "Coordinator",
    },
    "apples.agent.deliberation": {"Deliberation": "Deliberation"},
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
    "apples.agent.estimator": {"PerformanceEstimator": "PerformanceEstimator"},
    "apples.agent.information": {
        "InformationPool": "InformationPool",
        "load_information": "load_information",
    },
    "apples.agent.model": {"ModelTemplate": "ModelTemplate", "SpeedFunction": "SpeedFunction"},
    "apples.agent.model_checks": {"check_model": "check_model"},
    "apples.agent.planner": {"Planner": "Planner"},
    "apples.agent.planners": {
        "equal_strips": "equal_strips",
        "linear": "linear",
        "milp": "milp",
        "time_balancing": "time_balancing",
    },
    "apples.agent.rescheduling": {"Move": "Move", "Tended": "Tended"},
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
    "apples.agent.selector": {
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
