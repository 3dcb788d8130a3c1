"""Print the view of ``apples demo`` for two recorded runs."""

import json
from pathlib import Path

from apples.jobs import demo_document, demo_text

JOBS = Path("recorded", "apples", "jobs")
runs = [json.loads((JOBS / run / "result.json").read_text()) for run in ("53c658ab", "d8232103")]
print(demo_text(demo_document(runs)), "\n")
print(demo_text(demo_document([*runs, *runs])))
