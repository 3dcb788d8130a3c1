"""The reader names file, line and field, and says what would be right."""

import dataclasses
import datetime
import math
import os
from typing import Annotated, Literal

import pytest
from problems import assert_problem
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
                ("link", i, "between", k),
                f"there is no host {shown(name)}",
                nearest(name, legal),
                code="host-unknown",
            )
            for i, link in enumerate(self.link)
            for k, name in enumerate(link.between)
            if name not in legal
        )
        return self


ADA = '[[host]]\nname = "ada"\n'

CATALOGUE = {
    "too large": (ADA + "cpu = 2", (3, "host[0].cpu", "value-range", "1", "2")),
    "too small": (ADA + "cpu = -3", (3, "host[0].cpu", "value-range", "0", "-3")),
    "not a number": (ADA + "cpu = nan", (3, "host[0].cpu", "value-range", "nan")),
    "text for a number": (ADA + 'cpu = "x"', (3, "host[0].cpu", "value-type", "'x'")),
    "fraction": (
        ADA + "slots = 1.5",
        (3, "host[0].slots", "value-type", "1.5"),
    ),
    "below a bound": (ADA + "slots = 0", (3, "host[0].slots", "value-range", "1", "0")),
    "above a bound": (
        ADA + "slots = 10",
        (3, "host[0].slots", "value-range", "10"),
    ),
    "number for text": ("[[host]]\nname = 3", (2, "host[0].name", "value-type", "3")),
    "bad name": ('[[host]]\nname = "A"', (2, "host[0].name", "value-invalid", "'A'")),
    "no list": (ADA + "cpus = 3", (3, "host[0].cpus", "value-type", "3")),
    "entry of a list": (
        ADA + 'cpus = [\n 1,\n "b",\n]',
        (5, "host[0].cpus[1]", "value-type", "'b'"),
    ),
    "bytes": (
        ADA + 'free_memory = "2 gobs"',
        ((3, "host[0].free_memory", "value-type", "500000", "2", "'2 gobs'")),
    ),
    "one of two kinds": (
        ADA + "size = [1]",
        (3, "host[0].size", "value-type", "a list of 1"),
    ),
    "table of two kinds": (ADA + "span = {first = 1}", (3, "host[0].span.last", "field-missing")),
    "list of two kinds": (
        ADA + "span = ['a']",
        (3, "host[0].span[0]", "value-type", "'a'"),
    ),
    "neither of two kinds": (
        ADA + "span = 'a'",
        (3, "host[0].span", "value-type", "'a'"),
    ),
    "choice": (
        ADA + '[[link]]\nbetween = ["ada", "ada"]\nkind = "wam"',
        (5, "link[0].kind", "value-unknown", "lan", "wan", "'wam'"),
    ),
    "truth": (
        ADA + '[[link]]\nbetween = ["ada", "ada"]\nup = "perhaps"',
        (5, "link[0].up", "value-type", "'perhaps'"),
    ),
    "missing field": ("\n[[host]]\ncpu = 1", (2, "host[0].name", "field-missing")),
    "missing table": ("", (1, "host", "field-missing")),
    "empty list": ("host = []", (1, "host", "value-range", "0")),
    "no table": ("host = [3]", (1, "host[0]", "value-type", "3")),
    "unknown field": (
        ADA + '[[link]]\nbetween = ["ada", "ada"]\nbandwith = 3',
        (5, "link[0]", "field-unknown", "bandwith", "bandwidth"),
    ),
    "unknown field at the top": (
        ADA + "[[lnk]]",
        (3, "", "field-unknown", "lnk", "link"),
    ),
    "unknown field of a mapping": (
        ADA + '[extra."x y"]\nname = "x"\nCPU = 1',
        (5, 'extra."x y"', "field-unknown", "CPU", "cpu"),
    ),
    "unlike anything": (ADA + "zzzzz = 1", (3, "host[0]", "field-unknown", "zzzzz")),
    "an author's fault": (
        ADA + '[[link]]\nbetween = ["ada",\n  "adda"]',
        (5, "link[0].between[1]", "host-unknown", "adda", "ada"),
    ),
    "inline table": (
        'host = [\n  {name = "a"},\n  {name = "b", cpu = 2},\n]',
        (3, "host[1].cpu", "value-range", "1", "2"),
    ),
    "dotted key": (
        ADA + "extra.b.name = 'b'\nextra.b.cpu = 0",
        (3, "host[0]", "field-unknown", "extra"),
    ),
    "broken value": ("a = 1\nb = \n", (2, "", "file-invalid", "5")),
    "two values": (
        "a = 1 2",
        ((1, "", "file-invalid", "7")),
    ),
    "no end": (
        'a = 1\nb = "x',
        (2, "", "file-invalid"),
    ),
    "twice": (
        ADA + "cpu = 1\n\ncpu = 1",
        (5, "host[0].cpu", "field-repeated", "3"),
    ),
    "table set twice": ("[a]\n[b]\n[a]", (3, "a", "field-repeated", "1")),
    "inline key set twice": ("a = {b = 1, b = 2}", (1, "a.b", "field-repeated", "1")),
    "deep list": ("a = " + "[" * 5000, (None, "", "file-invalid")),
    "deep key": ("x = 1\n" + "a." * 5000 + "b = 1", (2, "", "file-invalid", "64")),
    "deep header": ("x = 1\n[" + "a." * 5000 + "b]", (2, "", "file-invalid", "64")),
    "huge number": ("b = 1\na = " + "9" * 5000, (2, "", "file-invalid", "4300")),
    "huge fraction": ("a = 0." + "9_" * 5000 + "9", (1, "", "file-invalid", "4300")),
    "not UTF-8": (b"a = 1\nb = '\xff'", (2, "", "file-invalid", "0xff")),
    "control characters": (
        ADA + 'cpu = "\\u001b[31m\\n"',
        (3, "host[0].cpu", "value-type", "'\\x1b[31m\\n'"),
    ),
    "long value": (
        ADA + f'cpu = "{"x" * 200}"',
        (
            3,
            "host[0].cpu",
            "value-type",
            "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxx..xxxxxxxxxxxxxxxxxxxxxxxxxxxxx'",
        ),
    ),
}


@pytest.mark.parametrize("case", CATALOGUE)
def test_each_mistake_has_its_line(case):
    content, expected = CATALOGUE[case]
    with pytest.raises(DocumentError) as caught:
        parse(content, Hosts, source="h")
    (problem,) = caught.value.problems
    assert problem.file == "h"
    assert_problem(problem, expected)


def test_a_problem_is_one_line_of_file_line_field_and_suggestion():
    message = "must be 'wan' (is 'wam')"
    problem = Problem("h", 3, "host[0].kind", message, "wan", code="value-unknown")
    assert str(problem) == "h:3: host[0].kind: must be 'wan' (is 'wam'): did you mean 'wan'?"
    deep = Problem("h", None, "", "is nested too deeply", code="file-invalid")
    assert str(deep) == "h: is nested too deeply"


def test_an_error_has_the_code_that_its_problems_share():
    with pytest.raises(DocumentError) as caught:
        parse(ADA + "cpu = 2\nslots = 0", Hosts, source="h")
    error = caught.value
    assert (error.code, error.fields["file"]) == ("value-range", "h")
    assert (error.fields["line"], error.fields["field"]) == (3, "host[0].cpu")
    assert [problem["line"] for problem in error.fields["problems"]] == [3, 4]
    with pytest.raises(DocumentError) as caught:
        parse(ADA + "cpu = 2\nsots = 0", Hosts, source="h")
    assert caught.value.code == "document-invalid"


def test_every_kind_of_value_is_echoed_short():
    class Form(BaseModel, extra="forbid"):
        day: datetime.date = datetime.date.min
        code: Annotated[str, Field(min_length=3, max_length=5)] = "abc"
        whole: Annotated[float, Field(strict=True, ge=0.5)] = 1.0

    text = f'day = 1.5\ncode = "a"\nwhole = 1{"0" * 400}\n{"x" * 100} = 1\n'
    with pytest.raises(DocumentError) as caught:
        parse(text, Form, source="f")
    expected = [
        (1, "day", "value-invalid", "1.5"),
        (2, "code", "value-range", "3", "1: 'a'"),
        (3, "whole", "value-type", "1329 bits"),
        (4, "", "field-unknown", f"'{'x' * 29}..{'x' * 29}'"),
    ]
    for problem, one in zip(caught.value.problems, expected, strict=True):
        assert_problem(problem, one)


def test_all_problems_come_at_once_in_the_order_of_the_file():
    text = ADA + 'cpu = 2\n[[host]]\nname = "B"\nsots = 3\nslots = 0\n'
    with pytest.raises(DocumentError) as caught:
        parse(text, Hosts, source="h")
    assert [problem.line for problem in caught.value.problems] == [3, 5, 6, 7]
    assert_problem(caught.value.problems[2], (6, "host[1]", "field-unknown", "'sots'", "slots"))


def test_a_flood_of_problems_is_cut():
    text = ADA + "".join(f"k{i} = 1\n" for i in range(5000))
    with pytest.raises(DocumentError) as caught:
        parse(text, Hosts, source="h")
    assert len(caught.value.problems) == 1000
    assert len(str(caught.value).splitlines()) == 51
    assert "950" in str(caught.value).splitlines()[-1]
    assert len(caught.value.fields["problems"]) == 50


def test_a_good_document_is_its_model():
    hosts = parse(ADA + 'free_memory = "2 GiB"\ncpus = [0, 1]', Hosts)
    assert hosts.host == (Host(name="ada", free_memory=2**31, cpus=(0, 1)),)


def test_windows_line_ends_and_byte_order_marks_do_not_matter():
    text = "\ufeff" + (ADA + "cpu = 2").replace("\n", "\r\n")
    with pytest.raises(DocumentError) as caught:
        parse(text.encode(), Hosts, source="h")
    assert_problem(caught.value.problems[0], (3, "host[0].cpu", "value-range", "2"))


def test_a_dataclass_will_do_as_a_model():
    @dataclasses.dataclass(frozen=True)
    class Point:
        x: int
        y: int = 0

    assert parse("x = 1", Point) == Point(1)
    with pytest.raises(DocumentError) as caught:
        parse('x = 1\ny = "a"', Point, source="t")
    assert_problem(caught.value.problems[0], (2, "y", "value-type", "'a'"))


def test_a_model_without_a_json_schema_gets_no_suggestion():
    class Odd(BaseModel, extra="forbid", arbitrary_types_allowed=True):
        time: TypeAdapter | None = None

    with pytest.raises(DocumentError) as caught:
        parse("tme = 1", Odd, source="t")
    assert_problem(caught.value.problems[0], (1, "", "field-unknown", "'tme'"))
    assert caught.value.problems[0].suggestion == ""


def test_a_model_that_recurses_or_overflows_is_answered_in_one_line():
    class Sum(BaseModel):
        a: int

        @model_validator(mode="after")
        def _overflow(self):
            if self.a == 1:
                raise RecursionError
            return math.exp(self.a)

    for text, code in (("a = 1000", "value-range"), ("a = 1", "file-invalid")):
        with pytest.raises(DocumentError) as caught:
            parse(text, Sum, source="t")
        (problem,) = caught.value.problems
        assert (problem.file, problem.line, problem.field, problem.code) == ("t", None, "", code)


def test_a_file_is_read(tmp_path):
    path = tmp_path / "hosts.toml"
    path.write_text(ADA)
    assert read(path, Hosts).host[0].name == "ada"


@pytest.mark.parametrize(
    ("name", "code", "value"),
    [
        ("missing.toml", "file-missing", ""),
        (".", "file-not-regular", "directory"),
        ("pipe", "file-not-regular", "pipe"),
        ("loop", "file-unreadable", "itself"),
        ("hosts.toml/x", "file-missing", ""),
        ("x" * 300, "file-unreadable", "too long"),
        ("nul\0", "name-invalid", ""),
        ("large.toml", "file-too-large", "16,777,216"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line_at_once(tmp_path, name, code, value):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "hosts.toml").write_text(ADA)
    with (tmp_path / "large.toml").open("wb") as file:
        file.truncate(2**24 + 1)
    with pytest.raises(DocumentError) as caught:
        read(tmp_path / name, Hosts)
    assert len(str(caught.value).splitlines()) == 1
    assert caught.value.code == caught.value.problems[0].code == code
    assert value in caught.value.problems[0].message


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/tty"])
def test_a_device_is_refused(device):
    with pytest.raises(DocumentError) as caught:
        read(device, Hosts)
    assert caught.value.code == "file-not-regular"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_forbidden_file_is_one_line(tmp_path):
    path = tmp_path / "secret.toml"
    path.touch(mode=0)
    with pytest.raises(DocumentError) as caught:
        read(path, Hosts)
    assert (caught.value.code, caught.value.fields["file"]) == ("file-unreadable", str(path))


def test_hostile_text_is_answered_and_not_pondered():
    texts = [
        "[a." * 100_000,
        '"""\\' * 100_000,
        "a = " + "{b = " * 20_000,
        "." * 100_000,
        "[[" * 100_000,
        ("a" + ".a" * 60 + " = 1\n") * 500,
    ]
    for text in texts:  # quadratic time would take hours: the time limit of a test
        with pytest.raises(DocumentError) as raised:
            parse(text, Hosts)
        assert raised.value.code in {"file-invalid", "field-repeated"}
