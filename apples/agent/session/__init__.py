"""A session: the only way from files to a decision, and from a decision to a run.

Read `spec` (what is asked), `planning` (`plan`), `results` (what is handed back, and its JSON), `actuation` (which
actuator) and `running` (`prepare`). Nothing here prints: lines of talk and progress go to callables.
"""
