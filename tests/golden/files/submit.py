"""Print the views of ``apples run --detach`` and of ``apples submit`` of a job that starts at once."""

from apples.cluster import submitted_text
from apples.jobs import JobStatus, detached_text

hosts, rows = ("ada", "bob"), (40, 20)
for state in ("running", "waiting"):
    print(detached_text(JobStatus("e7039157", state, hosts, rows), "wait e7039157"))
print(submitted_text({"job": "lab.2", "state": "starting"}, None))
