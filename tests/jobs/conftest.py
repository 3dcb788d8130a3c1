"""The sample's program is no module of tests: importing it would run it."""

collect_ignore_glob = ["sample/*"]
