"""The terminal's face of the demo."""

from __future__ import annotations

from typing import Any

from apples.units import duration

Document = dict[str, Any]

RESULTS = {
    True: "all results verified",
    False: "A RESULT DIFFERS FROM THE SEQUENTIAL ONE",
    None: "results not verified",
}


def demo_text(document: Document) -> str:
    """Return the answer first, then a row per method, then what to type next."""
    ratio, error = document["ratio_to_blocked"], document["median_prediction_error"]
    lines = []
    if ratio:
        low, high = ratio["interval"]
        lines.append(
            f"Run-time AppLeS takes {ratio['median']:.2f} of blocked's time "
            f"({low:.2f} to {high:.2f} in {ratio['repetitions']} repetitions)"
        )
    if error is not None:
        done = [run for run in document["runs"] if run["execution"] is not None]
        results = RESULTS[document["verified"]]
        lines.append(
            f"Median error of the predicted iteration time: {error:.1%} over {len(done)} runs, "
            f"{document['inside']} inside their interval; {results}"
        )
    lines += ["", f"{'method':36}{'predicted':>10}{'measured':>10}{'error':>7}  strips"]
    for one in document["methods"]:
        if not one["runs"]:
            lines.append(f"{one['title']:36}no plan: {one['rejection']}")
            continue
        strips = ", ".join(
            f"{host} {rows}" for host, rows in zip(one["hosts"], one["rows"], strict=True)
        )
        lines.append(
            f"{one['title']:36}{duration(one['predicted_iteration_seconds']):>10}"
            f"{duration(one['iteration_seconds']):>10}{one['median_error']:>7.0%}  {strips}"
        )
    lines += ["", "next:  hat new heat   (an agent of your own)"]
    return "\n".join(lines)
