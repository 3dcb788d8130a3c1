"""Print the views of ``apples resize`` and ``apples restart`` of a detached job for fixed values."""

from apples.jobs import (
    JobStatus,
    ResizeEstimate,
    ResizeResult,
    estimate_text,
    resize_text,
    restarted_text,
)

hosts, rows = ("ada", "bob"), (40, 20)
job = JobStatus("e7039157", "running", hosts, rows, iteration=500, iterations=2000, attempt=2)
estimate = ResizeEstimate(3_200_000_000, 110e6, 31.1, 29.1, 147.3, {"ada": 40, "bob": 20})
print(estimate_text(estimate))
print(resize_text(ResizeResult(job, 28.0, {"wait": 0.2, "redistribute": 27.1}, estimate)), "\n")
print(restarted_text(job))
