# The table of the front door: type checkers and `__init__.py` read it.

from apples.master_worker.chunks import UnitPool as UnitPool
from apples.master_worker.rates import MasterChoice as MasterChoice
from apples.master_worker.rates import UnitCosts as UnitCosts
from apples.master_worker.rates import WorkerRates as WorkerRates
from apples.master_worker.rates import choose as choose
from apples.master_worker.running import MasterWorkerOutcome as MasterWorkerOutcome
from apples.master_worker.running import MasterWorkerResult as MasterWorkerResult
from apples.master_worker.running import MasterWorkerSpec as MasterWorkerSpec
from apples.master_worker.running import plan_master_worker as plan_master_worker
from apples.master_worker.running import run_master_worker as run_master_worker

# isort: split
# Not public: the tests import these names from here, so that a module can move.
from apples.master_worker.given_hosts import HostGiver as HostGiver
from apples.master_worker.given_hosts import RunStanding as RunStanding
from apples.master_worker.job import CommandedHosts as CommandedHosts
from apples.master_worker.node import PORT as PORT
from apples.master_worker.node import PROGRESS as PROGRESS
from apples.master_worker.node import UnitMaster as UnitMaster
