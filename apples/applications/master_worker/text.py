"""A master/worker program as text: its plan, or the outcome of its run."""

from __future__ import annotations

from apples.applications.documents import MasterWorkerDocument, MasterWorkerExecution
from apples.ui.units import counted, digits, duration

WHY = {
    "workers": "more workers would do more",
    "links": "its links carry no more",
    "master": "it can serve no more",
}


def master_worker_text(document: MasterWorkerDocument) -> str:
    """Return ``apples.master-worker/1`` as lines."""
    done = document["execution"]
    lines = _done(document, done) if done else _planned(document)
    return "\n".join([*lines, *(f"assumed: {line}" for line in document["assumed"])])


def _planned(document: MasterWorkerDocument) -> list[str]:
    rate, seconds = document["predicted_rate"], duration(document["predicted_seconds"])
    lines = [
        f"{document['name']}: {counted(document['units'], 'unit')} in {seconds}, {digits(rate)} a second"
    ]
    lines.append(f"master {document['master']}: {WHY[document['bound']]}")
    for host, share in document["workers"].items():
        lines.append(f"  worker {host}: {digits(share)} units a second")
    others = [each for each in document["masters"] if each["host"] != document["master"]]
    told = ", ".join(f"{each['host']} {digits(each['rate'])}" for each in others[:4])
    return lines + ([f"other masters: {told} units a second"] if told else [])


def _done(document: MasterWorkerDocument, done: MasterWorkerExecution) -> list[str]:
    seconds, predicted = (
        duration(done["measured_seconds"]),
        duration(document["predicted_seconds"]),
    )
    lines = [
        f"{document['name']}: {counted(document['units'], 'unit')} in {seconds}, {predicted} predicted",
        (
            f"master {document['master']}: {digits(done['measured_rate'])} units a second, "
            f"{digits(document['predicted_rate'])} predicted"
        ),
    ]
    lines += [
        f"  worker {host}: {counted(count, 'unit')}"
        for host, count in sorted(done["hosts"].items())
    ]
    for word in ("joined", "left"):
        lines += [f"{word} meanwhile: {', '.join(done[word])}"] if done[word] else []
    lines += [f"lost: {host}: {why}" for host, why in done["lost"].items()]
    lines += [f"unit {each['unit']} {each['reason']}" for each in done["failed"]]
    if done["verified"] == document["units"]:
        lines.append(
            "verified: all units done once more, one after the other, with the same result"
        )
    elif done["verified"]:
        again = counted(done["verified"], "unit")
        lines.append(f"verified: {again} done once more, with the same result")
    else:
        lines.append("not verified")
    return lines
