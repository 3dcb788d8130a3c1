# The table of the front door: type checkers and `__init__.py` read it.

from apples.sweeps.costs import SweepCosts as SweepCosts
from apples.sweeps.costs import sweep_costs as sweep_costs
from apples.sweeps.driver import SweepDriver as SweepDriver
from apples.sweeps.driver import SweepOutcome as SweepOutcome
from apples.sweeps.executor import FileMoved as FileMoved
from apples.sweeps.executor import HostLost as HostLost
from apples.sweeps.executor import SimulatedSweepExecutor as SimulatedSweepExecutor
from apples.sweeps.executor import SweepEvent as SweepEvent
from apples.sweeps.executor import SweepExecutor as SweepExecutor
from apples.sweeps.executor import TaskEnded as TaskEnded
from apples.sweeps.gantt import SweepGantt as SweepGantt
from apples.sweeps.gantt import SweepProgress as SweepProgress
from apples.sweeps.gantt import TaskBooking as TaskBooking
from apples.sweeps.gantt import TransferBooking as TransferBooking
from apples.sweeps.heuristics import HEURISTICS as HEURISTICS
from apples.sweeps.heuristics import Heuristic as Heuristic
from apples.sweeps.planning import SweepDecision as SweepDecision
from apples.sweeps.planning import SweepPlan as SweepPlan
from apples.sweeps.planning import plan_by as plan_by
from apples.sweeps.planning import plan_sweep as plan_sweep
from apples.sweeps.running import SweepResult as SweepResult
from apples.sweeps.running import SweepSpec as SweepSpec
from apples.sweeps.running import plan_parameter_sweep as plan_parameter_sweep
from apples.sweeps.running import run_parameter_sweep as run_parameter_sweep
from apples.sweeps.tasks import InputFile as InputFile
from apples.sweeps.tasks import ParameterSweep as ParameterSweep
from apples.sweeps.tasks import SiteCache as SiteCache
from apples.sweeps.tasks import SweepTask as SweepTask
from apples.sweeps.tasks import one_cache_a_site as one_cache_a_site

# isort: split
# Not public: the tests import these names from here, so that a module can move.
from apples.sweeps.dask_hosts import DaskHosts as DaskHosts
from apples.sweeps.document import ParameterSweepFile as ParameterSweepFile
from apples.sweeps.hosts import HostsExecutor as HostsExecutor
from apples.sweeps.hosts import SweepCommand as SweepCommand
from apples.sweeps.worker import HELLO as HELLO
from apples.sweeps.worker import Worker as Worker
from apples.sweeps.workers import HostWorker as HostWorker
