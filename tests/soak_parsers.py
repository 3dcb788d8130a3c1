"""Every parser of what others wrote, on inputs made of valid ones by breaking their structure.

    python tests/soak_parsers.py all|bombs|PARSER [--n N] [--first SEED]

Each parser gets N inputs in blocks of a thousand; block SEED is made by seed SEED alone, so what is found is
found again by its seed. A parser may refuse an input with its own error. Any other exception is a crash, more
than two seconds of CPU for one input a hang, and memory beyond 300 MB more than at the start is unbounded.
`bombs` gives commands files that unpack, nest or repeat beyond all measure: exit code 2, two seconds of CPU
beyond the command's own start, 300 MB. Each part prints one JSON line and exits 1 on any failure.
"""

import argparse
import base64
import bz2
import gzip
import json
import lzma
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import unicodedata
import zlib
from dataclasses import dataclass
from pathlib import Path

import foreign_logs
import foreign_recordings

import hat
import nws
from apples.applications import ParameterSweepFile
from apples.errors import ApplesError
from apples.io import encode_record as sealed_line
from apples.io import json_lines
from apples.io import parse as parse_journal
from apples.lab import LabDocument, steps_without_checksums
from apples.launch import events, host_list, nodes, replies
from apples.malleable import job_file, messages
from apples.resources import HostListDocument
from apples.simulation import MachineDocument, read_log
from apples.topology import (
    MessageMatrix,
    language,
    parse_request,
    read_hwloc_xml,
    read_packed,
    read_probe,
    synthetic,
)
from apples.ui import escaped
from nws import (
    decode_request,
    parse_matrix,
    question,
    read_batch,
    read_history,
    read_recording,
)

BLOCK = 1000
CPU_SECONDS = 2.0
MAX_GROWTH = 300 << 20
LONGEST = 1 << 14
"""Bytes of an input: what is said about an input does not depend on its length, and short ones are many."""
ROOT = Path(__file__).parents[1]
SEEDS = Path(__file__).parent / "parser_seeds"
NUMBERS = b"0 1 -1 2 255 65536 -2147483649 9223372036854775808 1e308 1e999 -0.0 0x1f 1_000 nan inf".split()
NUMBERS += [b"9" * 400, b"1" + b"0" * 5000]
ODD = [
    b"",
    b"\0",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    "\u202e\u200b".encode(),
    b"\r\n",
    b"\x1b[2J",
    b"\\u0000",
]


class HangError(BaseException):
    """One input has taken too long; no `except Exception` of a parser takes it for its own."""


@dataclass(frozen=True)
class Parser:
    """A parser, valid inputs of it, words of its language, and the errors with which it may refuse."""

    feed: object
    seeds: tuple
    words: tuple = ()
    errors: tuple = (ApplesError, hat.DocumentError)


def mutated(chance, parser):
    """Return one input: a seed with one to four changes, of bytes, numbers, words, lines or nesting."""
    data = bytearray(chance.choice(parser.seeds))
    for _ in range(chance.randint(1, 4)):
        chance.choice(CHANGES)(chance, parser, data)
    return bytes(data[:LONGEST])


def bytes_changed(chance, _, data):
    for _ in range(chance.randint(1, 3)):
        if data:
            data[chance.randrange(len(data))] = chance.randrange(256)


def piece_cut(chance, _, data):
    start = chance.randint(0, len(data))
    del data[start : start + chance.choice((1, 2, 8, 64, 1024))]


def piece_repeated(chance, _, data):
    start = chance.randint(0, len(data))
    piece = bytes(data[start : start + chance.choice((1, 2, 8, 40))])
    data[start:start] = piece * chance.choice((1, 2, 50, 300))


def number_changed(chance, _, data):
    found = list(re.finditer(rb"-?\d+(\.\d+)?", bytes(data)))
    if found:
        one = chance.choice(found)
        data[one.start() : one.end()] = chance.choice(NUMBERS)


def word_put(chance, parser, data):
    place = chance.randint(0, len(data))
    data[place:place] = chance.choice((*parser.words, *ODD))


def word_changed(chance, parser, data):
    found = list(re.finditer(rb"\w+", bytes(data)))
    if found:
        one = chance.choice(found)
        data[one.start() : one.end()] = chance.choice((*parser.words, *ODD, *NUMBERS))


def lines_mixed(chance, parser, data):
    lines = bytes(data).split(b"\n")
    other = chance.choice(parser.seeds).split(b"\n")
    lines[chance.randrange(len(lines))] = chance.choice(other)
    if chance.random() < 0.3:
        chance.shuffle(lines)
    data[:] = b"\n".join(lines)


def nested(chance, _, data):
    opening, closing = chance.choice(((b"[", b"]"), (b"{", b"}"), (b"(", b")"), (b'{"a":', b"}")))
    start = chance.randint(0, len(data))
    end = chance.randint(start, len(data))
    depth = chance.choice((1, 3, 70, 700))
    data[end:end] = closing * depth
    data[start:start] = opening * depth


CHANGES = (
    bytes_changed, piece_cut, piece_repeated, number_changed, number_changed, word_put, word_changed,
    word_changed, lines_mixed, nested,
)  # fmt: skip


# ------------------------------------------------------------------ the parsers
def toml(model):
    """The reader of one kind of document."""
    return lambda data: hat.parse(data, model)


def decoded(data):
    """The text of an input."""
    return data.decode(errors="replace")


def expression(data):
    found = hat.Expression(decoded(data))
    if hat.Expression(str(found)) != found:
        raise AssertionError("an expression that is not what it prints")
    found.evaluate({"grid": 7, "n": 10**18})


def requirement(data):
    language.parse(decoded(data))


def log(data):
    """A log from bytes, packed or not."""
    with tempfile.NamedTemporaryFile(dir=MEMORY) as file:
        file.write(data)
        file.flush()
        read_log(Path(file.name))


def recording(data):
    """A recording from bytes, packed or not."""
    with tempfile.NamedTemporaryFile(dir=MEMORY) as file:
        file.write(data)
        file.flush()
        read_recording(Path(file.name))


def seeds_of(files):
    """The bytes of made files, but the long ones."""
    made = (text if isinstance(text, bytes) else text.encode() for text in files.values())
    return tuple(text for text in made if len(text) < LONGEST)


def each_of(make, *readers, errors=(ApplesError,)):
    """A parser that has every reader read what `make` makes of an input; refused where all refuse."""

    def feed(data):
        made, refusals = make(data), []
        for read in readers:
            try:
                read(made)
            except errors as error:
                refusals.append(error)
        if len(refusals) == len(readers):
            raise refusals[-1]

    return feed


def listed(said):
    """A listing of Slurm's nodes, and the host list of it."""
    host_list(nodes(said))


def answered(said):
    """An answer of Slurm's in JSON."""
    found = replies.document(said, "squeue")
    replies.refuse_errors(found, "squeue")
    replies.entries(found, "jobs")


def journal(data):
    for sealed in (True, False):
        parse_journal(data, sealed=sealed)
    steps_without_checksums(data)


def printed(data):
    """What a terminal is given: nothing that steers it."""
    for text in (data.decode(errors="surrogateescape"), data.decode("latin-1")):
        shown = escaped(text)
        bad = {unicodedata.category(c) for c in set(shown) - {"\n", "\t"}} & STEERING
        if bad:
            raise AssertionError(f"raw characters of {bad}")


STEERING = {"Cc", "Cf", "Cs", "Zl", "Zp"}
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - a soak's own file


def seed(name):
    """A valid input, from a file."""
    return (SEEDS / name).read_bytes()


def lines_of(name):
    """Valid lines, from a file."""
    return tuple(seed(name).splitlines())


JOURNAL = (
    b"".join(
        sealed_line(n, {"do": "jobs", "jobs": {"a": {"count": n}}, "of": [1.5, None]})
        for n in range(1, 5)
    )
    + b'["cgroup","x"]\n{"event":"ready"}\n'
)
TOML_WORDS = tuple(
    b'[ [[ ]] ]] = . , # " \' """ \n [[host]] [link] \\ \\u0041 1979-05-27T07:32:00Z true inf'.split(
        b" "
    )
)
DOCUMENT_SEEDS = {
    "template": (hat.ApplicationTemplate, ("examples/*/template.toml", "tests/jobs/sample/template.toml")),
    "user": (hat.UserSpecifications, ("examples/*/user.toml",)),
    "host list": (HostListDocument, ("examples/*/hosts.toml", "tests/jobs/sample/hosts.toml")),
    "lab": (LabDocument, ("benchmarks/labs/*.toml",)),
    "machine": (MachineDocument, ()),
    "sweep": (ParameterSweepFile, ("apples/applications/templates/scaffold/sweep/sweep.toml.j2",)),
}  # fmt: skip


def short(data):
    """A document in which no table stands more than twice, with one comment: a short input is read quicker."""
    kept, times = [], {}
    for table in re.split(rb"\n(?=\[)", re.sub(rb"(?m)(?<=\n)#.*\n", b"", data)):
        shape = re.sub(rb"\d+", b"0", table)
        times[shape] = times.get(shape, 0) + 1
        if times[shape] <= 2:
            kept.append(table)
    return b"\n".join(kept)


def fields(model):
    """Every name of a document's schema, as words to put and change."""
    found = hat.schema(model)
    tables = (found, *found.get("$defs", {}).values())
    return tuple(sorted({n.encode() for table in tables for n in table.get("properties", {})}))


def parsers():
    """Name -> parser."""
    line = (json_lines.LineError, ValueError)
    packers = (gzip.compress, bz2.compress, lzma.compress)
    found = {}
    for name, (model, patterns) in DOCUMENT_SEEDS.items():
        seeds = [short(file.read_bytes()) for each in patterns for file in sorted(ROOT.glob(each))]
        seeds = [each.replace(b"{{ name }}", b"heat") for each in seeds] or [seed("machine.toml")]
        found[name] = Parser(toml(model), tuple(seeds), (*TOML_WORDS, *fields(model)))
    return found | {
        "expression": Parser(
            expression,
            (
                b"grid * (grid + 1) // 2",
                b"max(1, n // 10**9 % 7) - min(grid, 3.5e2)",
                b"sqrt(grid)",
            ),
            tuple(
                b"( ) ** * // / % + - max min sqrt ceil floor log2 grid n , . e9 lambda if".split()
            ),
            (hat.ExpressionError,),
        ),
        "requirement": Parser(
            requirement,
            (
                b"CPUSET[MAX_RADIUS=1;CPU_LIST=0-3]",
                b"select[ngpus>=1 && maxmem>64GB] CPUSET[NEAR=gpu; MAX_CPU_PER_NODE=4]",
            ),
            tuple(
                b"[ ] ; = - , CPUSET MAX_RADIUS CPU_LIST MEM_LIST CPUSET_OPTIONS NEAR select[ ngpus >= &&".split()
            ),
        ),
        "hwloc XML": Parser(
            lambda data: read_hwloc_xml(data, "x"),
            (seed("machine.xml"), (ROOT / "tests/topology/devices.xml").read_bytes()),
            (
                b'<object type="Group">',
                b"</object>",
                b"<!ENTITY a 'b'>",
                b"<!DOCTYPE a [",
                b"<![CDATA[",
                b"0xffffffff,0x1",
                b"<distances2>",
                b"&a;",
                b"<!--",
            ),
        ),
        "synthetic": Parser(
            lambda data: synthetic(decoded(data)),
            (b"package:2 core:4 pu:2", b"numa:2 l3:1 core:4 pu:1", b"[numa] group:2 [numa] pu:4"),
            tuple(b"package core pu numa l2 group : ( ) [ ] 64 4096".split()),
        ),
        "topology probe": Parser(
            lambda data: read_probe(data, "h"), (seed("probe.json"),), (b"cpu/cpu2/", b"0-8191")
        ),
        "packed probe": Parser(
            lambda data: read_packed(data.decode("latin-1"), "h"),
            (base64.b64encode(zlib.compress(seed("probe.json"))),),
        ),
        "SWF": Parser(log, (seed("log.swf"),), (b";", b"; MaxProcs: 5", b"-1", b"1e400")),
        "sacct": Parser(
            log,
            (seed("sacct.txt"),),
            (
                b"|",
                b"afterok:7",
                b"UNLIMITED",
                b"INVALID",
                b"NODE_FAIL",
                b"1-00",
                b"00:60",
                b"4Gc",
                b"cpu=",
                b"+1",
            ),
        ),
        "foreign log": Parser(
            log,
            seeds_of(foreign_logs.READ),
            (
                *b"| ; , : { } [ ] NONE null true 0*8 n1/0-3 h_rt= JOB_FINISH \xff\xfe -1 1e999".split(),
                b"\n",
                b'"',
                b"delay",
                b"composed",
                b"seq",
                b"walltime",
            ),
        ),
        "recording": Parser(
            recording,
            seeds_of(foreign_recordings.EQUAL),
            (
                *b", ; : { } NaN null value timestamp 1,5 # EOF \xff\xfe PK\x03\x04 inf 1e999 -1 matrix".split(),
                b"\n",
                b"\t",
                b'"',
                b"2026-01-31T12:00",
                b"0001-01-01",
                b"9999-12-31T23:59:59+00:01",
            ),
            (nws.InputError,),
        ),
        "packed log": Parser(
            log, tuple(pack(seed(each)) for pack in packers for each in ("log.swf", "sacct.txt"))
        ),
        "events": Parser(
            events.parse,
            lines_of("events.jsonl"),
            tuple(b'event hosts rank rows epoch null true [] {} "a" :'.split()),
        ),
        "JSON lines": Parser(
            json_lines.decode, (*lines_of("control.jsonl"), *lines_of("topologyd.jsonl")), (), line
        ),
        "control": Parser(
            each_of(
                messages.parse,
                messages.request_of,
                messages.outcome_of,
                errors=(messages.MessageError,),
            ),
            lines_of("control.jsonl"),
            tuple(b"hosts weight cpus rows rate phases reply null true".split()),
            (messages.MessageError,),
        ),
        "job file": Parser(
            lambda data: job_file.loads(decoded(data)),
            (seed("job.json"),),
            tuple(b"hosts members world program options reach control null".split()),
            (job_file.JobFileError,),
        ),
        "topology daemon": Parser(
            parse_request,
            lines_of("topologyd.jsonl"),
            tuple(b"verb job number count least until told share null".split()),
        ),
        "measurements": Parser(
            lambda data: read_batch(data, []),
            (seed("batch.json"),),
            tuple(b"series time value null".split()),
            (ValueError,),
        ),
        "history": Parser(
            lambda data: read_history(decoded(data).splitlines()),
            (seed("batch.json") + seed("tsdb.dump"),),
            (b"{", b"}", b"=", b'"', b"mode", b"idle", b"NaN", b"StaleNaN"),
            (nws.SensorError,),
        ),
        "Prometheus": Parser(
            parse_matrix,
            (seed("matrix.json"),),
            tuple(b"result metric values null success matrix".split()),
            (nws.SensorError,),
        ),
        "sensor": Parser(
            decode_request, lines_of("sensor.jsonl"), (b"null", b"now", b"bias"), (ValueError,)
        ),
        "sensor's question": Parser(
            question, lines_of("sensor.jsonl"), (b"null", b"do"), (ValueError,)
        ),
        "Slurm": Parser(
            each_of(
                decoded,
                lambda said: replies.job_state(said, 7),
                replies.job_end,
                replies.accounted,
                replies.planned_start,
                replies.held_back,
                replies.submitted,
                listed,
                answered,
            ),
            tuple(
                each.read_bytes()
                for each in sorted((ROOT / "tests/launch/slurm_outputs").iterdir())
            ),
            (b"null", b"set", b"number", b"infinite", b"JobState=", b"Reason="),
        ),
        "message matrix": Parser(
            lambda data: MessageMatrix.parse(data, Path("x")),
            (b"0 8 1.5\n8,0,2 # from rank 1\n1 1e3 0\n", seed("messages.json")),
            tuple(b"# , ranks rank_bytes host world rank null true {} [] 1e30 -1".split()),
        ),
        "journal": Parser(journal, (JOURNAL,), (), ()),
        "terminal": Parser(
            printed,
            (b"a\x1b[2J", "\u202ename\u200b".encode(), b"\x9b31m", seed("machine.xml")),
            (),
            (),
        ),
    }


# ------------------------------------------------------------------ running
def fuzz(name, parser, count, first=0):
    """Give a parser `count` inputs; return what broke it."""
    failures, accepted, done = [], 0, 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    kept = signal.signal(signal.SIGVTALRM, _hung)
    try:
        for seed in range(first, first + -(-count // BLOCK)):
            chance = random.Random(f"{name} {seed}")
            for trial in range(min(BLOCK, count - done)):
                data = mutated(chance, parser)
                done += 1
                try:
                    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS)
                    parser.feed(data)
                    accepted += 1
                except parser.errors:
                    pass
                except (Exception, HangError) as error:  # noqa: BLE001 - that is what is looked for
                    where = traceback.extract_tb(error.__traceback__)[-1]
                    failures.append(
                        {"seed": seed, "trial": trial, "error": repr(error)[:200],
                         "at": f"{Path(where.filename).name}:{where.lineno}", "input": repr(data[:300])}
                    )  # fmt: skip
                finally:
                    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    finally:
        signal.signal(signal.SIGVTALRM, kept)
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - before
    if growth > MAX_GROWTH:
        failures.append({"growth": growth})
    return {"failures": failures, "accepted": accepted, "grown_mb": growth >> 20}


def _hung(*_):
    raise HangError(f"more than {CPU_SECONDS} s of CPU")


def _bombs():
    """Name -> (command, name of the file, its bytes)."""
    groups = b'<object type="Group" cpuset="0x1">' * 60
    units = b"".join(
        b'<object type="PU" os_index="%d" cpuset="%s"/>' % (n, b"0x1" + b",0x0" * (n // 32))
        for n in range(3000)
    )
    head = b'<topology version="2.0"><object type="Machine">'
    laughs = b"<!DOCTYPE a [<!ENTITY b 'ha'>" + b"".join(
        b"<!ENTITY %s '%s'>" % (bytes([99 + n]), b"&%s;" % bytes([98 + n]) * 10) for n in range(12)
    )
    show, simulate = ("topology", "show"), ("simulate", "--policy", "easy")
    check = ("check",)
    order = ("topology", "fit", "package:2 core:2 pu:1", "--ranks", "4", "--messages")
    zeros, record = bytes(1 << 24), b"1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18\n"
    return {
        "groups in groups": (
            show, "a.xml", head + (groups + units + b"</object>" * 60) * 3 + b"</object></topology>"
        ),
        "PUs each in groups": (
            show, "a.xml",
            head
            + b"".join(groups + b'<object type="PU" os_index="%d"/>' % n + b"</object>" * 60 for n in range(3000))
            + b"</object></topology>",
        ),
        "laughs": (show, "a.xml", laughs + b"]><topology>&n;</topology>"),
        "deep XML": (show, "a.xml", b"<a>" * 3_000_000),
        "wide XML": (show, "a.xml", head + b"<info/>" * 3_000_000),
        "long attribute": (
            show, "a.xml", head[:-1] + b' cpuset="' + b"0xffffffff," * 2_000_000 + b'0x1"/></topology>'
        ),
        "huge matrix": (
            show, "a.xml", head + b'</object><distances2 type="NUMANode" nbobjs="4000" kind="5"'
            b' name="NUMALatency"><u64values>' + b"1 " * 4_000_000 + b"</u64values></distances2></topology>",
        ),
        "more than an XML may have": (show, "a.xml", b"<topology>" + b" " * (33 << 20)),
        "deep synthetic": (show, "a.txt", b"group:2 " * 500 + b"pu:1"),
        "wide synthetic": (show, "a.txt", b"package:99999 core:99999 pu:99999"),
        "deep TOML": (check, "template.toml", b"a = " + b"[" * 100_000),
        "wide TOML": (check, "template.toml", b'name = "a"\nprogram = ["x"]\n' + b"[a.b]\n" * 200_000),
        "long key": (check, "template.toml", b"a." * 500_000 + b"b = 1"),
        "a long number": (check, "template.toml", b"a = " + b"9" * 5_000_000),
        "power": (check, "template.toml", b'name = "a"\nprogram = ["x"]\nelement_bytes = "10**10**10**10"\n'),
        "zeros in XZ": (simulate, "a.swf", lzma.compress(zeros, preset=1) * 32),
        "records in XZ": (simulate, "a.swf", lzma.compress(record * (len(zeros) // 45), preset=1) * 32),
        "zeros in gzip": (simulate, "a.swf", gzip.compress(zeros, 1) * 32),
        "zeros in bzip2": (simulate, "a.swf", bz2.compress(zeros, 1) * 32),
        "a line without an end": (simulate, "a.swf", b"1" * (40 << 20)),
        "a header without an end": (simulate, "a.swf", b"; x\n" * 5_000_000),
        "sacct without jobs": (simulate, "a.txt", b"JobIDRaw|Submit|x\n" + b"1|2\n" * 5_000_000),
        "a row without an end": (order, "a.txt", b"0 " * (1 << 25)),
        "as long a row as is read": (order, "a.txt", b"0 " * (1 << 22)),
        "lists of nothing": (order, "a.json", b"[" + b"[]," * ((1 << 23) // 3 - 1) + b"0]"),
    }  # fmt: skip


def bombs():
    """Give commands files that would take all time or memory; return which took too much."""
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "APPLES_PARKED": "0"}
    failures, most_seconds, most_mb, count = [], 0.0, 0, 0
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        starts = {}
        for name, (command, file, data) in _bombs().items():
            path = Path(folder) / file
            if command not in starts:  # what the command takes for a file that is none at all
                path.write_bytes(b"\x01\n")
                starts[command] = spent(command, path, env)[1]
            path.write_bytes(data)
            code, seconds, mb, said = spent(command, path, env)
            seconds = max(0.0, seconds - starts[command])
            count += 1
            most_seconds, most_mb = max(most_seconds, seconds), max(most_mb, mb)
            if code != 2 or seconds > CPU_SECONDS or mb > 300 or said.count("\n") != 1:
                failures.append(
                    {
                        "bomb": name,
                        "code": code,
                        "cpu": round(seconds, 2),
                        "mb": mb,
                        "said": said[-300:],
                    }
                )
    most = {"most_cpu_seconds": round(most_seconds, 2), "most_mb": most_mb}
    return {"failures": failures, "trials": count, **most}


def spent(command, path, env):
    """Run a command on a file: its exit code, CPU seconds, largest memory in MB and what it said."""
    program = "hat" if command[0] == "check" else "apples"
    words = [str(Path(sys.executable).parent / program), *command, str(path)]
    meter = [sys.executable, "-I", "-S", "-c", METER, *words]
    done = subprocess.run(meter, env=env, capture_output=True, check=True)
    code, seconds, kilobytes = done.stdout.split()
    said = done.stderr.decode(errors="replace")
    return int(code), float(seconds), int(kilobytes) >> 10, said


METER = """
import os, resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=2)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(code, used.ru_utime + used.ru_stime, used.ru_maxrss)
"""
"""A small process in between: what is started by a large one counts that one's memory as its own."""


def main():
    """Run the parts asked for."""
    found = parsers()
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=["all", "bombs", *found])
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    wanted = [*found, "bombs"] if options.part == "all" else [options.part]
    failed = False
    for name in wanted:
        begin = time.process_time()
        result = bombs() if name == "bombs" else fuzz(name, found[name], options.n, options.first)
        failures = result.pop("failures")
        said = {"parser": name, "trials": options.n, "failures": len(failures), **result}
        said |= {"cpu_seconds": round(time.process_time() - begin, 1), "first": failures[:3]}
        print(json.dumps(said), flush=True)
        failed |= bool(failures)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
