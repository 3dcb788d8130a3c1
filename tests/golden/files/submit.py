"""Print the views of ``apples run --detach``, and of ``apples submit`` of a job that starts at once or never."""

from apples.cluster import prediction_text
from apples.cluster import submitted_text as queued_text
from apples.jobs import JobStatus, submitted_text

hosts, rows = ("ada", "bob"), (40, 20)
for state in ("running", "waiting"):
    print(submitted_text(JobStatus("e7039157", state, hosts, rows), "wait e7039157"))
print(queued_text({"job": "lab.2", "state": "starting"}, None))
print(
    prediction_text({
        "schema": "apples.prediction/1", "name": "lab", "time": 100.0, "basis": "estimates", "requested": 60.0,
        "estimated_by": "model", "start": [100.0] * 3, "finish": [160.0] * 3,
    })
)  # fmt: skip
