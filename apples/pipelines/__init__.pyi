# The table of the front door: type checkers and `__init__.py` read it.

from apples.pipelines.document import PipelineFile as PipelineFile
from apples.pipelines.estimate import PipelineCosts as PipelineCosts
from apples.pipelines.estimate import PipelinePlan as PipelinePlan
from apples.pipelines.estimate import PipelineStage as PipelineStage
from apples.pipelines.mapping import PipelineDecision as PipelineDecision
from apples.pipelines.mapping import best_alternating as best_alternating
from apples.pipelines.mapping import best_mapping as best_mapping
from apples.pipelines.mapping import plan_pipeline as plan_pipeline
from apples.pipelines.planning import PipelineExecution as PipelineExecution
from apples.pipelines.planning import PipelineResult as PipelineResult
from apples.pipelines.planning import PipelineSpec as PipelineSpec
from apples.pipelines.planning import plan_pipeline_file as plan_pipeline_file
from apples.pipelines.running import run_pipeline as run_pipeline

# isort: split
# Not public: the tests import these names from here, so that a module can move.
from apples.pipelines.mapping import beginnings as beginnings
from apples.pipelines.mapping import climb as climb
