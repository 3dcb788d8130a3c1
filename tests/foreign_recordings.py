"""Recordings as other tools write them, made here: the same series in each, and files that are none."""

import bz2
import gzip
import io
import json
import lzma
import time
import zipfile

N = 40
START = 1_700_000_000
VALUES = [k % 7 + 0.5 for k in range(N)]
TIMES = [START + 60 * k for k in range(N)]


def iso(seconds, mark="T", zone=""):
    return time.strftime(f"%Y-%m-%d{mark}%H:%M:%S", time.gmtime(seconds)) + zone


def table(header, row, end="\n"):
    return "".join(f"{line}{end}" for line in [*header, *map(row, TIMES, VALUES)])


def zipped(data, *names):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, data)
    return file.getvalue()


PLAIN = table(["timestamp,value"], lambda t, v: f"{t},{v}")
MATRIX = {
    "status": "success",
    "data": {
        "resultType": "matrix",
        "result": [
            {
                "metric": {"__name__": "up", "job": "a"},
                "values": [[t, str(v)] for t, v in zip(TIMES, VALUES, strict=True)],
            }
        ],
    },
}
EQUAL = {
    "plain": PLAIN,
    "no header": table([], lambda t, v: f"{t},{v}"),
    "value column among others": table(
        ["timestamp,host,value,label"], lambda t, v: f"{t},h1,{v},0"
    ),
    "value before the time": table(["value,time"], lambda t, v: f"{v},{t}"),
    "pandas index": table([",timestamp,value"], lambda t, v: f"{(t - START) // 60},{t},{v}"),
    "another header": table(["Time,CPU idle %"], lambda t, v: f"{iso(t, ' ')},{v}"),
    "upper case": table(["DATE;VALUE"], lambda t, v: f"{iso(t, ' ')};{v}"),
    "decimal comma": table(["Zeit;Wert"], lambda t, v: f"{iso(t)};{v}".replace(".", ",")),
    "decimal comma in a tab table": table(
        ["time\tvalue"], lambda t, v: f"{t}\t{v}".replace(".", ",")
    ),
    "tabs": table(["time\tvalue"], lambda t, v: f"{t}\t{v}"),
    "quotes and spaces": table(['"timestamp", "value"'], lambda t, v: f'"{iso(t)}", "{v}"'),
    "offset": table(["time,value"], lambda t, v: f"{iso(t + 3600, zone='+01:00')},{v}"),
    "Z": table(["time,value"], lambda t, v: f"{iso(t, zone='Z')},{v}"),
    "without seconds": table(["time,value"], lambda t, v: f"{iso(t - 20)[:-3]},{v}"),
    "slashes": table(["time,value"], lambda t, v: f"{iso(t, ' ').replace('-', '/')},{v}"),
    "milliseconds": table(["ts,value"], lambda t, v: f"{t * 1000},{v}"),
    "comments": "# of a tool\n# time zone: UTC\n\n" + PLAIN + "# end\n",
    "CRLF": PLAIN.replace("\n", "\r\n"),
    "byte-order mark": b"\xef\xbb\xbf" + PLAIN.encode(),
    "UTF-16": PLAIN.encode("utf-16"),
    "UTF-16 big endian": b"\xfe\xff" + PLAIN.encode("utf-16-be"),
    "gzip": gzip.compress(PLAIN.encode()),
    "bzip2": bz2.compress(PLAIN.encode()),
    "xz": lzma.compress(PLAIN.encode()),
    "zip": zipped(PLAIN, "a.csv"),
    "zip of a Mac": zipped(PLAIN, "a.csv", "__MACOSX/._a.csv"),
    "query_range": json.dumps(MATRIX),
    "query_range, indented": json.dumps(MATRIX, indent=2),
    "OpenMetrics": "# HELP up x\n# TYPE up gauge\n"
    + table([], lambda t, v: f'up{{job="a"}} {v} {t}.0')
    + "# EOF\n",
    "promtool tsdb dump": table([], lambda t, v: f'{{__name__="up", job="a"}} {v} {t}000'),
}

REFUSED = {
    "descending": (table(["t,value"], lambda t, v: f"{2 * START - t},{v}"), "file-invalid"),
    "two series in one": (PLAIN.replace("\n", "\n#\n") + PLAIN, "file-invalid"),
    "percent": (table(["t,value"], lambda t, v: f"{t},{v} %"), "file-invalid"),
    "American dates": (table(["t,value"], lambda _, v: f"1/31/24 0:00,{v}"), "file-invalid"),
    "thousands": (table(["t;value"], lambda t, _: f"{t};1.234,5"), "file-invalid"),
    "two decimal marks": (
        table(["t;value"], lambda t, v: f"{t};{v}") + table([], lambda t, _: f"{t + 9000};1,5"),
        "file-invalid",
    ),
    "one column": ("value\n1\n2\n", "file-invalid"),
    "a wide table": (table(["t,a,b"], lambda t, _: f"{t},1,2"), "columns-differ"),
    "one scrape": ('up{job="a"} 1\ndown 2\n', "file-invalid"),
    "an instant answer": (
        '{"status": "success", "data": {"resultType": "vector", "result": []}}',
        "answer-invalid",
    ),
    "other JSON": ('{"a": 1}', "answer-invalid"),
    "empty": ("", "file-empty"),
    "comments alone": ("# x\n", "file-empty"),
    "empty series": (PLAIN.replace(".5", "").splitlines()[0], "file-empty"),
    "zip of two": (zipped(PLAIN, "a.csv", "b.csv"), "file-invalid"),
    "half a gzip": (gzip.compress(PLAIN.encode())[:80], "file-damaged"),
    "binary": (bytes(range(256)) * 8, "file-invalid"),
    "half of UTF-16": (PLAIN.encode("utf-16")[:-1], "file-damaged"),
}  # fmt: skip
