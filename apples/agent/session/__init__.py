"""A session: the only way from files to a decision, and from a decision to a run.

Read `spec` (the request), `planning` (`plan`), `results` (the returned objects, and their JSON) and `running`
(`prepare`). The session prints nothing; it passes progress and lines for the user to callables.
"""
