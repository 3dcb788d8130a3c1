"""Programs that tests start are no modules of tests: importing them would run them."""

collect_ignore_glob = ["*_mpi/*", "faults/*", "walk.py"]
