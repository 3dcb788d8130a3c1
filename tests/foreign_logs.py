"""Workload logs as other tools write them, made here: the same jobs in each, and files that are no logs."""

import bz2
import gzip
import io
import json
import lzma
import time
import zipfile

N = 30
BEGIN = 1_767_225_600  # 2026-01-01T00:00:00Z
SWF_LENGTH = 18


def jobs():
    """Number, submission, start, end, limit and processors of each job."""
    for k in range(N):
        submit = BEGIN + 600 * k
        yield k + 1, submit, submit + 60, submit + 660 + k, 3600, 4 + k % 3


def stamp(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


HEADER = "JobIDRaw|JobName|Submit|Start|End|Timelimit|AllocCPUS|ReqCPUS|State"


def sacct(header=HEADER, name="solve", tail="", **texts):
    """Return a log with these columns; `texts` by column stand in every tenth row."""
    lines = [header]
    for number, submit, start, end, _, cpus in jobs():
        values = {
            "JobIDRaw": number, "JobID": number, "JobName": name, "Submit": stamp(submit),
            "Start": stamp(start), "End": stamp(end), "Timelimit": "01:00:00", "TimelimitRaw": 60,
            "AllocCPUS": cpus, "NCPUS": cpus, "ReqCPUS": cpus, "State": "COMPLETED", "Partition": "a",
            "SubmitLine": "sbatch run.sh", "Comment": "", "": "",
        }  # fmt: skip
        if number % 10 == 0:
            values |= texts
        lines.append("|".join(str(values[column]) for column in header.split("|")))
    return "\n".join(lines) + "\n" + tail


def swf(separator=" ", end="\n", comment="; MaxProcs: 64\n"):
    return comment + "".join(
        separator.join(map(str, [number, submit - BEGIN, start - submit, finish - start, cpus, -1, -1,
                                 cpus, limit, -1, 1, 1, 1, 1, 1, 1, -1, -1]))
        + end
        for number, submit, start, finish, limit, cpus in jobs()
    )  # fmt: skip


def pbs(hosts):
    return "".join(
        f"01/01/2026 00:00:00;S;{number}.server;user=ann\n"
        f'01/01/2026 00:00:00;E;{number}.server.site;user=ann group=g jobname="a = b" queue=batch '
        f"ctime={submit} qtime={submit} etime={submit} start={start} exec_host={hosts(cpus)} "
        f"Resource_List.walltime=01:00:00 session=1 end={end} Exit_status=0 resources_used.mem=5kb\n"
        for number, submit, start, end, _, cpus in jobs()
    )


def lsf(hosts):
    usage = " ".join(["1.0"] * 19)
    return "".join(
        f'"JOB_FINISH" "10.1" {end} {number} 500 33 {cpus} {submit} 0 0 {start} "ann" "normal" "" "" "" '
        f'"login" "/home/a b" "" "" "" "x" 1 "h0" {hosts(cpus)} 64 60.0 "a ""job""" "sleep 5" {usage} '
        '"" "proj" 0 4 "/bin/sh" "" 0 100 0 "" ""\n'
        for number, submit, start, end, _, cpus in jobs()
    )


def sge(scale=1, comment="# Version: 8.1.9\n"):
    return comment + "".join(
        ":".join(map(str, [
            "all.q", "node1", "g", "ann", "job", number, "sge", 0, submit * scale, start * scale,
            end * scale, 0, 0, end - start, *["0"] * 17, "p", "d", "mpi", cpus, 0, 1.0, 1.0, 0.0,
            f"-l h_rt=3600 -pe mpi {cpus}", 0.0, "NONE", 1, 0, 0]))
        + "\n"
        for number, submit, start, end, _, cpus in jobs()
    )  # fmt: skip


def batsim(**more):
    return json.dumps({
        "nb_res": 64,
        "jobs": [{"id": f"w0!{number}", "subtime": submit - BEGIN, "walltime": limit, "res": cpus,
                  "profile": f"p{number}"} for number, submit, _, _, limit, cpus in jobs()],
        "profiles": {f"p{number}": {"type": "delay", "delay": end - start}
                     for number, _, start, end, _, _ in jobs()},
        **more,
    })  # fmt: skip


def zipped(text, *names):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, text)
    return file.getvalue()


WITH_SUBMIT_LINE = HEADER + "|SubmitLine"
WRAPPED = "sbatch --wrap='#!/bin/sh\nmodule load x\n\nsrun a | tee b\n5 | 6'"
READ = {
    "SWF": swf(),
    "SWF with tabs and CRLF": swf("\t", "\r\n"),
    "SWF without a header": swf(comment=""),
    "SWF, byte-order mark": "\ufeff" + swf(),
    "SWF, gzip": gzip.compress(swf().encode()),
    "SWF, zip": zipped(swf(), "log.swf"),
    "SWF, zip with a folder": zipped(swf(), "logs/", "logs/log.swf"),
    "sacct": sacct(),
    "sacct, NCPUS": sacct(HEADER.replace("AllocCPUS", "NCPUS")),
    "sacct, TimelimitRaw": sacct(HEADER.replace("Timelimit", "TimelimitRaw")),
    "sacct, both limits": sacct(HEADER + "|TimelimitRaw"),
    "sacct without ReqCPUS": sacct(HEADER.replace("|ReqCPUS", "")),
    "sacct, byte-order mark": "\ufeff" + sacct(),
    "sacct, JobID first, byte-order mark": "\ufeff" + sacct("JobID|" + HEADER),
    "sacct, UTF-16": sacct().encode("utf-16"),
    "sacct, CRLF": sacct().replace("\n", "\r\n"),
    "sacct, comment first": "# timezone=UTC\n\n# site\n" + sacct(),
    "sacct, no seconds": sacct().replace(":00|", "|").replace("01:00|", "01:00:00|"),
    "sacct --parsable": sacct(HEADER + "|"),
    "sacct, bzip2": bz2.compress(sacct().encode()),
    "sacct, xz": lzma.compress(sacct().encode()),
    "sacct, bar in a name": sacct(JobName="bench|v1.2"),
    "sacct, bars in every name": sacct(name="a|b|c.d"),
    "sacct, bar in the last column": sacct(WITH_SUBMIT_LINE, SubmitLine="sbatch --wrap='a | b'"),
    "sacct, lines in the last column": sacct(WITH_SUBMIT_LINE, SubmitLine=WRAPPED),
    "sacct --parsable, lines in the last column": sacct(WITH_SUBMIT_LINE + "|", SubmitLine=WRAPPED),
    "sacct, lines in a column between": sacct(
        "JobIDRaw|SubmitLine|" + HEADER.removeprefix("JobIDRaw|"), SubmitLine="sbatch --wrap='a\nb'"
    ),
    "sacct, lines in two columns": sacct(
        WITH_SUBMIT_LINE, JobName="a\nb", SubmitLine="sbatch --wrap='a\nb'"
    ),
    "PBS, ranges": pbs(lambda cpus: f"n1/0-{cpus - 1}"),
    "PBS, slots": pbs(lambda cpus: f"n1/0*{cpus - 2}+n2/1*2"),
    "PBS, one entry a slot": pbs(lambda cpus: "+".join(f"n1/{k}" for k in range(cpus))),
    "LSF": lsf(lambda cpus: f"{cpus} " + " ".join(['"h1"'] * cpus)),
    "LSF, counted hosts": lsf(lambda cpus: f'2 "{cpus - 1}*h1" "1*h2"'),
    "SGE": sge(),
    "SGE of Univa": sge(1000, ""),
    "Batsim": batsim(),
    "Batsim, gzip": gzip.compress(batsim().encode()),
    "Batsim, one long line": " " * 1_200_000 + batsim(),
}  # fmt: skip

REFUSED = {
    "headerless sacct": (sacct().partition("\n")[2], "log-kind-unknown"),
    "squeue": ("JOBID PARTITION NAME USER ST TIME NODES\n1 a b c R 1:00 1\n", "log-kind-unknown"),
    "CSV": ("job,submit,run\n" + "1,2,3\n" * 30, "log-kind-unknown"),
    "JSON of something else": ('{"pods": []}', "log-kind-unknown"),
    "a list": ("[1, 2]", "log-kind-unknown"),
    "broken JSON": ('{"jobs": [', "file-invalid"),
    "XML": ("<topology/>", "log-kind-unknown"),
    "binary": (bytes(range(256)), "log-kind-unknown"),
    "17 columns": ("1 " * 17 + "\n", "rows-damaged"),
    "21 columns": ("1 " * 21 + "\n", "rows-damaged"),
    "sacct without State": (sacct().replace("|State", "|Status"), "columns-missing"),
    "sacct without Submit": (sacct().replace("|Submit", "|Sent"), "columns-missing"),
    "sacct without --format": (
        "JobID|JobName|Partition|Account|AllocCPUS|State|ExitCode\n1|a|p|x|4|COMPLETED|0:0\n",
        "columns-missing",
    ),
    "bars in a column that is no text": (sacct(Partition="a|b", header=HEADER + "|Partition"), "rows-damaged"),
    "zip of two": (zipped(swf(), "a", "b"), "file-invalid"),
    "half a gzip": (gzip.compress(swf().encode())[:90], "file-damaged"),
    "half a zip": (zipped(swf(), "a")[:90], "file-damaged"),
    "half of UTF-16": (sacct().encode("utf-16")[:-1], "file-damaged"),
    "empty": ("", "log-empty"),
    "a header alone": (HEADER + "\n", "log-empty"),
    "PBS without ended jobs": ("01/01/2026 00:00:00;S;1.server;user=a\n", "log-empty"),
    "cut LSF": (lsf(lambda cpus: f'1 "{cpus}*h"').replace(' "x" 1 "h0"', "")[:150], "rows-damaged"),
    "SGE with words": (sge().replace(":mpi:", ":mpi:x"), "rows-damaged"),
    "Batsim without times": (batsim().replace('"subtime"', '"submit"'), "rows-damaged"),
}  # fmt: skip
