"""The reader names file, line and field, and says what would be right."""

import dataclasses
import datetime
import math
import os
import time
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ByteSize, Field, TypeAdapter, model_validator

from hat import DocumentError, Fault, Problem, nearest, parse, read, refuse, shown


class Span(BaseModel, extra="forbid", frozen=True):
    first: int
    last: int


class Host(BaseModel, extra="forbid", frozen=True):
    name: Annotated[str, Field(pattern=r"^[a-z]+$")]
    cpu: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 1.0
    slots: Annotated[int, Field(ge=1, lt=10)] = 1
    free_memory: ByteSize | None = None
    cpus: tuple[int, ...] = ()
    size: int | str | None = None
    span: Span | tuple[int, ...] | None = None


class Link(BaseModel, extra="forbid", frozen=True):
    between: tuple[str, str]
    bandwidth: float = 1.0
    kind: Literal["lan", "wan"] = "lan"
    up: bool = True


class Hosts(BaseModel, extra="forbid", frozen=True):
    host: Annotated[tuple[Host, ...], Field(min_length=1)]
    link: tuple[Link, ...] = ()
    extra: dict[str, Host] = {}

    @model_validator(mode="after")
    def _links_name_hosts(self):
        legal = [host.name for host in self.host]
        refuse(
            Fault(
                ("link", i, "between", k), f"there is no host {shown(name)}", nearest(name, legal)
            )
            for i, link in enumerate(self.link)
            for k, name in enumerate(link.between)
            if name not in legal
        )
        return self


ADA = '[[host]]\nname = "ada"\n'

CATALOGUE = {
    "too large": (ADA + "cpu = 2", "h:3: host[0].cpu: must be at most 1 (is 2)"),
    "too small": (ADA + "cpu = -3", "h:3: host[0].cpu: must be greater than 0 (is -3)"),
    "not a number": (ADA + "cpu = nan", "h:3: host[0].cpu: must be a finite number (is nan)"),
    "text for a number": (ADA + 'cpu = "x"', "h:3: host[0].cpu: must be a number (is 'x')"),
    "fraction": (
        ADA + "slots = 1.5",
        "h:3: host[0].slots: must be a whole number (is 1.5)",
    ),
    "below a bound": (ADA + "slots = 0", "h:3: host[0].slots: must be at least 1 (is 0)"),
    "above a bound": (
        ADA + "slots = 10",
        "h:3: host[0].slots: must be less than 10 (is 10)",
    ),
    "number for text": ("[[host]]\nname = 3", "h:2: host[0].name: must be text in quotes (is 3)"),
    "bad name": ('[[host]]\nname = "A"', "h:2: host[0].name: must have the form [a-z]+ (is 'A')"),
    "no list": (ADA + "cpus = 3", "h:3: host[0].cpus: must be a list in [ ] (is 3)"),
    "entry of a list": (
        ADA + 'cpus = [\n 1,\n "b",\n]',
        "h:5: host[0].cpus[1]: must be a whole number (is 'b')",
    ),
    "bytes": (
        ADA + 'free_memory = "2 gobs"',
        (
            """h:3: host[0].free_memory: must be a number of bytes, """
            """such as 500000 or "2 GiB" (is '2 gobs')"""
        ),
    ),
    "one of two kinds": (
        ADA + "size = [1]",
        "h:3: host[0].size: must be a whole number or text in quotes (is a list of 1)",
    ),
    "table of two kinds": (ADA + "span = {first = 1}", "h:3: host[0].span.last: is missing"),
    "list of two kinds": (
        ADA + "span = ['a']",
        "h:3: host[0].span[0]: must be a whole number (is 'a')",
    ),
    "neither of two kinds": (
        ADA + "span = 'a'",
        "h:3: host[0].span: must be a table or a list in [ ] (is 'a')",
    ),
    "choice": (
        ADA + '[[link]]\nbetween = ["ada", "ada"]\nkind = "wam"',
        "h:5: link[0].kind: must be 'lan' or 'wan' (is 'wam'): did you mean 'wan'?",
    ),
    "truth": (
        ADA + '[[link]]\nbetween = ["ada", "ada"]\nup = "perhaps"',
        "h:5: link[0].up: must be true or false (is 'perhaps')",
    ),
    "missing field": ("\n[[host]]\ncpu = 1", "h:2: host[0].name: is missing"),
    "missing table": ("", "h:1: host: is missing"),
    "empty list": ("host = []", "h:1: host: must have at least an entry (has 0)"),
    "no table": ("host = [3]", "h:1: host[0]: must be a table (is 3)"),
    "unknown field": (
        ADA + '[[link]]\nbetween = ["ada", "ada"]\nbandwith = 3',
        "h:5: link[0]: unknown field 'bandwith': did you mean 'bandwidth'?",
    ),
    "unknown field at the top": (
        ADA + "[[lnk]]",
        "h:3: unknown field 'lnk': did you mean 'link'?",
    ),
    "unknown field of a mapping": (
        ADA + '[extra."x y"]\nname = "x"\nCPU = 1',
        "h:5: extra.\"x y\": unknown field 'CPU': did you mean 'cpu'?",
    ),
    "unlike anything": (ADA + "zzzzz = 1", "h:3: host[0]: unknown field 'zzzzz'"),
    "an author's fault": (
        ADA + '[[link]]\nbetween = ["ada",\n  "adda"]',
        "h:5: link[0].between[1]: there is no host 'adda': did you mean 'ada'?",
    ),
    "inline table": (
        'host = [\n  {name = "a"},\n  {name = "b", cpu = 2},\n]',
        "h:3: host[1].cpu: must be at most 1 (is 2)",
    ),
    "dotted key": (
        ADA + "extra.b.name = 'b'\nextra.b.cpu = 0",
        "h:3: host[0]: unknown field 'extra'",
    ),
    "broken value": ("a = 1\nb = \n", "h:2: is not valid TOML: invalid value (column 5)"),
    "two values": (
        "a = 1 2",
        (
            "h:1: is not valid TOML: expected newline or end of "
            "document after a statement (column 7)"
        ),
    ),
    "no end": (
        'a = 1\nb = "x',
        "h:2: is not valid TOML: unterminated string (at the end)",
    ),
    "twice": (
        ADA + "cpu = 1\n\ncpu = 1",
        "h:5: host[0].cpu: is set twice (first on line 3)",
    ),
    "table set twice": ("[a]\n[b]\n[a]", "h:3: a: is set twice (first on line 1)"),
    "inline key set twice": ("a = {b = 1, b = 2}", "h:1: a.b: is set twice (first on line 1)"),
    "deep list": ("a = " + "[" * 5000, "h: is nested too deeply"),
    "deep key": ("x = 1\n" + "a." * 5000 + "b = 1", "h:2: a key of more than 64 parts"),
    "deep header": ("x = 1\n[" + "a." * 5000 + "b]", "h:2: a key of more than 64 parts"),
    "huge number": ("b = 1\na = " + "9" * 5000, "h:2: a number of more than 4300 digits"),
    "huge fraction": ("a = 0." + "9_" * 5000 + "9", "h:1: a number of more than 4300 digits"),
    "not UTF-8": (b"a = 1\nb = '\xff'", "h:2: is not UTF-8 text (byte 0xff)"),
    "control characters": (
        ADA + 'cpu = "\\u001b[31m\\n"',
        "h:3: host[0].cpu: must be a number (is '\\x1b[31m\\n')",
    ),
    "long value": (
        ADA + f'cpu = "{"x" * 200}"',
        f"h:3: host[0].cpu: must be a number (is '{'x' * 29}..{'x' * 29}')",
    ),
}


@pytest.mark.parametrize("case", CATALOGUE)
def test_each_mistake_has_its_line(case):
    content, expected = CATALOGUE[case]
    with pytest.raises(DocumentError) as caught:
        parse(content, Hosts, source="h")
    assert str(caught.value) == expected


def test_every_kind_of_value_is_echoed_short():
    class Form(BaseModel, extra="forbid"):
        day: datetime.date = datetime.date.min
        code: Annotated[str, Field(min_length=3, max_length=5)] = "abc"
        whole: Annotated[float, Field(strict=True, ge=0.5)] = 1.0

    text = f'day = 1.5\ncode = "a"\nwhole = 1{"0" * 400}\n{"x" * 100} = 1\n'
    with pytest.raises(DocumentError) as caught:
        parse(text, Form, source="f")
    assert str(caught.value).split("\n") == [
        "f:1: day: Datetimes provided to dates should have zero time - e.g. be exact dates (is 1.5)",
        "f:2: code: must have at least 3 characters (has 1: 'a')",
        "f:3: whole: must be a number (is a whole number of 1329 bits)",
        f"f:4: unknown field '{'x' * 29}..{'x' * 29}'",
    ]


def test_all_problems_come_at_once_in_the_order_of_the_file():
    text = ADA + 'cpu = 2\n[[host]]\nname = "B"\nsots = 3\nslots = 0\n'
    with pytest.raises(DocumentError) as caught:
        parse(text, Hosts, source="h")
    assert [problem.line for problem in caught.value.problems] == [3, 5, 6, 7]
    assert caught.value.problems[2] == Problem("h", 6, "host[1]", "unknown field 'sots'", "slots")


def test_a_flood_of_problems_is_cut():
    text = ADA + "".join(f"k{i} = 1\n" for i in range(5000))
    with pytest.raises(DocumentError) as caught:
        parse(text, Hosts, source="h")
    assert len(caught.value.problems) == 1000
    assert str(caught.value).splitlines()[-1] == ".. and 950 more"


def test_a_good_document_is_its_model():
    hosts = parse(ADA + 'free_memory = "2 GiB"\ncpus = [0, 1]', Hosts)
    assert hosts.host == (Host(name="ada", free_memory=2**31, cpus=(0, 1)),)


def test_windows_line_ends_and_byte_order_marks_do_not_matter():
    text = "\ufeff" + (ADA + "cpu = 2").replace("\n", "\r\n")
    with pytest.raises(DocumentError, match=r"^h:3: host\[0\].cpu"):
        parse(text.encode(), Hosts, source="h")


def test_a_dataclass_will_do_as_a_model():
    @dataclasses.dataclass(frozen=True)
    class Point:
        x: int
        y: int = 0

    assert parse("x = 1", Point) == Point(1)
    with pytest.raises(DocumentError, match=r"^t:2: y: must be a whole number \(is 'a'\)$"):
        parse('x = 1\ny = "a"', Point, source="t")


def test_a_model_without_a_json_schema_gets_no_suggestion():
    class Odd(BaseModel, extra="forbid", arbitrary_types_allowed=True):
        time: TypeAdapter | None = None

    with pytest.raises(DocumentError, match=r"^t:1: unknown field 'tme'$"):
        parse("tme = 1", Odd, source="t")


def test_a_model_that_recurses_or_overflows_is_answered_in_one_line():
    class Sum(BaseModel):
        a: int

        @model_validator(mode="after")
        def _overflow(self):
            if self.a == 1:
                raise RecursionError
            return math.exp(self.a)

    with pytest.raises(DocumentError, match=r"^t: a number in it is too large$"):
        parse("a = 1000", Sum, source="t")
    with pytest.raises(DocumentError, match=r"^t: is nested too deeply$"):
        parse("a = 1", Sum, source="t")


def test_a_file_is_read(tmp_path):
    path = tmp_path / "hosts.toml"
    path.write_text(ADA)
    assert read(path, Hosts).host[0].name == "ada"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing.toml", "there is no such file"),
        (".", "is a directory, not a file"),
        ("pipe", "is a pipe, not a regular file"),
        ("loop", "is a symbolic link that leads to itself"),
        ("hosts.toml/x", "there is no such file (a part of its path is no directory)"),
        ("x" * 300, "the name is too long"),
        ("nul\0", "this is no file name"),
        ("large.toml", "is larger than 16,777,216 bytes"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line_at_once(tmp_path, name, reason):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "hosts.toml").write_text(ADA)
    with (tmp_path / "large.toml").open("wb") as file:
        file.truncate(2**24 + 1)
    with pytest.raises(DocumentError) as caught:
        read(tmp_path / name, Hosts)
    assert len(str(caught.value).splitlines()) == 1
    assert caught.value.problems[0].message == reason


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/tty"])
def test_a_device_is_refused(device):
    with pytest.raises(DocumentError, match="is a device"):
        read(device, Hosts)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_forbidden_file_is_one_line(tmp_path):
    path = tmp_path / "secret.toml"
    path.touch(mode=0)
    with pytest.raises(DocumentError, match=r"may not be read \(permission denied\)$"):
        read(path, Hosts)


def test_hostile_text_is_answered_and_not_pondered():
    texts = [
        "[a." * 100_000,
        '"""\\' * 100_000,
        "a = " + "{b = " * 20_000,
        "." * 100_000,
        "[[" * 100_000,
        ("a" + ".a" * 60 + " = 1\n") * 500,
    ]
    deadline = time.monotonic() + 60
    for text in texts:
        with pytest.raises(DocumentError):
            parse(text, Hosts)
    assert time.monotonic() < deadline
