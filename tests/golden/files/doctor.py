"""Print the views of ``apples doctor``, ``--program`` and ``--hosts`` for fixed findings."""

from apples.launch import Check, Finding, Fitness, checks_text, hosts_text, program_checks_text

MPI = Finding("mpi", "ok", "mpich 5.0.2")
CGROUP = Finding("cgroup", "warn", "cannot be written", "start it by systemd-run --user --scope")
LOGIN = Finding("ssh", "fail", "Permission denied (publickey)", "ssh-copy-id bob")

print(checks_text([MPI, CGROUP]), "\n")
held = Check("starts", True, "2 ranks")
print(program_checks_text([held, Check("result", False, "differs"), Check("resize", None)]), "\n")
print(hosts_text({"ada": Fitness("ada", (MPI,)), "bob": Fitness("bob", (LOGIN,))}, ["cleo"]))
