from apples.agent.models.model import check_model as check_model
from apples.testing.balancer_checks import check_balancer as check_balancer
from apples.testing.placement_replays import mean_distance as mean_distance
from apples.testing.placement_replays import passing_jobs as passing_jobs
from apples.testing.placement_replays import replay as replay
from apples.testing.policy_checks import check_policy as check_policy
from apples.testing.rehearsal import Rehearsal as Rehearsal
from apples.testing.rehearsal import rehearse as rehearse
