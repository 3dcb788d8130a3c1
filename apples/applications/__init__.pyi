from apples.applications.master_worker.chunks import UnitPool as UnitPool
from apples.applications.master_worker.planning import MasterWorkerOutcome as MasterWorkerOutcome
from apples.applications.master_worker.planning import MasterWorkerResult as MasterWorkerResult
from apples.applications.master_worker.planning import MasterWorkerSpec as MasterWorkerSpec
from apples.applications.master_worker.planning import plan_master_worker as plan_master_worker
from apples.applications.master_worker.rates import MasterChoice as MasterChoice
from apples.applications.master_worker.rates import UnitCosts as UnitCosts
from apples.applications.master_worker.rates import WorkerRates as WorkerRates
from apples.applications.master_worker.rates import choose as choose
from apples.applications.master_worker.running import run_master_worker as run_master_worker
from apples.applications.parameter_sweep.costs import SweepCosts as SweepCosts
from apples.applications.parameter_sweep.costs import sweep_costs as sweep_costs
from apples.applications.parameter_sweep.driver import SweepDriver as SweepDriver
from apples.applications.parameter_sweep.driver import SweepOutcome as SweepOutcome
from apples.applications.parameter_sweep.executor import FileMoved as FileMoved
from apples.applications.parameter_sweep.executor import HostLost as HostLost
from apples.applications.parameter_sweep.executor import (
    SimulatedSweepExecutor as SimulatedSweepExecutor,
)
from apples.applications.parameter_sweep.executor import SweepEvent as SweepEvent
from apples.applications.parameter_sweep.executor import SweepExecutor as SweepExecutor
from apples.applications.parameter_sweep.executor import TaskEnded as TaskEnded
from apples.applications.parameter_sweep.gantt import SweepGantt as SweepGantt
from apples.applications.parameter_sweep.gantt import SweepProgress as SweepProgress
from apples.applications.parameter_sweep.gantt import TaskBooking as TaskBooking
from apples.applications.parameter_sweep.gantt import TransferBooking as TransferBooking
from apples.applications.parameter_sweep.heuristics import HEURISTICS as HEURISTICS
from apples.applications.parameter_sweep.heuristics import Heuristic as Heuristic
from apples.applications.parameter_sweep.planning import SweepDecision as SweepDecision
from apples.applications.parameter_sweep.planning import SweepPlan as SweepPlan
from apples.applications.parameter_sweep.planning import plan_by as plan_by
from apples.applications.parameter_sweep.planning import plan_sweep as plan_sweep
from apples.applications.parameter_sweep.running import SweepResult as SweepResult
from apples.applications.parameter_sweep.running import SweepSpec as SweepSpec
from apples.applications.parameter_sweep.running import (
    plan_parameter_sweep as plan_parameter_sweep,
)
from apples.applications.parameter_sweep.running import run_parameter_sweep as run_parameter_sweep
from apples.applications.parameter_sweep.tasks import InputFile as InputFile
from apples.applications.parameter_sweep.tasks import ParameterSweep as ParameterSweep
from apples.applications.parameter_sweep.tasks import SiteCache as SiteCache
from apples.applications.parameter_sweep.tasks import SweepTask as SweepTask
from apples.applications.parameter_sweep.tasks import one_cache_a_site as one_cache_a_site
from apples.applications.pipeline.document import PipelineFile as PipelineFile
from apples.applications.pipeline.estimate import PipelineCosts as PipelineCosts
from apples.applications.pipeline.estimate import PipelinePlan as PipelinePlan
from apples.applications.pipeline.estimate import PipelineStage as PipelineStage
from apples.applications.pipeline.mapping import PipelineDecision as PipelineDecision
from apples.applications.pipeline.mapping import best_alternating as best_alternating
from apples.applications.pipeline.mapping import best_mapping as best_mapping
from apples.applications.pipeline.mapping import plan_pipeline as plan_pipeline
from apples.applications.pipeline.planning import PipelineExecution as PipelineExecution
from apples.applications.pipeline.planning import PipelineResult as PipelineResult
from apples.applications.pipeline.planning import PipelineSpec as PipelineSpec
from apples.applications.pipeline.planning import plan_pipeline_file as plan_pipeline_file
from apples.applications.pipeline.running import run_pipeline as run_pipeline

# isort: split
# Not public: the tests import these names from here, so that a module can move.
from apples.applications.dask_hosts import DaskHosts as DaskHosts
from apples.applications.files import host_list_model as host_list_model
from apples.applications.folder import MAX_FILE_BYTES as MAX_FILE_BYTES
from apples.applications.folder import DocumentFolder as DocumentFolder
from apples.applications.folder import FileChangedError as FileChangedError
from apples.applications.folder import digest_of as digest_of
from apples.applications.forms import KINDS_OF_NEW as KINDS_OF_NEW
from apples.applications.master_worker.document import MasterWorkerProgram as MasterWorkerProgram
from apples.applications.master_worker.host_provider import HostProvider as HostProvider
from apples.applications.master_worker.host_provider import RunStatus as RunStatus
from apples.applications.master_worker.messages import PORT_FILE as PORT_FILE
from apples.applications.master_worker.messages import PROGRESS_FILE as PROGRESS_FILE
from apples.applications.master_worker.unit_master import UnitMaster as UnitMaster
from apples.applications.parameter_sweep.document import ParameterSweepFile as ParameterSweepFile
from apples.applications.parameter_sweep.on_hosts import HostsExecutor as HostsExecutor
from apples.applications.parameter_sweep.on_hosts import SweepCommand as SweepCommand
from apples.applications.parameter_sweep.text import sweep_text as sweep_text
from apples.applications.pipeline.mapping import beginnings as beginnings
from apples.applications.pipeline.mapping import climb as climb
from apples.applications.scaffold import TEMPLATES as TEMPLATES
from apples.applications.scaffold import ScaffoldError as ScaffoldError
from apples.applications.scaffold import new as new
from apples.applications.scaffold import new_document as new_document
from apples.applications.scaffold import rendered as rendered
from apples.applications.schemas import document_schema as document_schema
from apples.applications.worker import HELLO as HELLO
from apples.applications.worker import Worker as Worker
from apples.applications.workers import HostWorker as HostWorker
from apples.applications.workers import WorkerConnection as WorkerConnection
