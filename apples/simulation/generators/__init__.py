"""Model workloads: Kale's, Lublin and Feitelson's, Downey's, and one like Cirne's."""

from apples.simulation.generators.downey import downey_workload
from apples.simulation.generators.kale import kale_workload
from apples.simulation.generators.like_cirne import CirneLike, cirne_like_workload
from apples.simulation.generators.lublin import lublin_workload

__all__ = [
    "CirneLike",
    "cirne_like_workload",
    "downey_workload",
    "kale_workload",
    "lublin_workload",
]
