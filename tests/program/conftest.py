"""The written programs are no modules of tests: importing one would run it."""

collect_ignore_glob = ["written/*"]
