"""The agent of one application: what it knows, which hosts it chooses, how it splits the work, and what it learns.

Reading order: `conditions` and `information` (what one decision knows), `model` and `models` (how long an
iteration takes), `selector`, `planner` and `planners`, `estimator`, `coordinator` (the verbs a blueprint uses),
`rescheduling` (while it runs), `learning` and `verification` (after it ran), `explanation`.
"""
