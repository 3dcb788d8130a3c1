"""Each problem of a host list is one line: file, line, field, rule, value."""

import pytest

from apples import Host, UsageError, read_host_list
from hat import DocumentError

HOST = '[[host]]\nname = "ada"\n'

NAME_FORM = "[A-Za-z0-9][A-Za-z0-9._-]*"
BOTH_WAYS = 'between = ["ada", "ada"]\nfrom = "ada"\nto = "ada"\nlatency = 0\nbandwidth = 1'
CATALOGUE = {
    "broken TOML": ("[[host]]\nname = ", 2, "", "file-invalid", ""),
    "unknown field": (HOST + "speed = 1", 3, "host[0]", "field-unknown", "'speed'"),
    "misspelt field": (HOST + "slot = 1", 3, "host[0]", "field-unknown", "'slots'"),
    "unknown field of a link": (
        HOST + "[default_link]\nlatency = 0\nbandwith = 1\nbandwidth = 1",
        5,
        "default_link",
        "field-unknown",
        "'bandwidth'",
    ),
    "negative memory": (
        HOST + 'free_memory = "-2 GB"',
        3,
        "host[0].free_memory",
        "value-type",
        "'-2 GB'",
    ),
    "memory that is true": (
        HOST + "free_memory = true",
        3,
        "host[0].free_memory",
        "value-type",
        "true",
    ),
    "no slots": (HOST + "slots = 0", 3, "host[0].slots", "value-range", "0"),
    "zero CPU": (HOST + "cpu = 0.0", 3, "host[0].cpu", "value-range", "0.0"),
    "more than a CPU": (HOST + "cpu = 1.5", 3, "host[0].cpu", "value-range", "1.5"),
    "CPU in quotes": (HOST + 'cpu = "0.5"', 3, "host[0].cpu", "value-type", "'0.5'"),
    "a CPU twice": (HOST + "cpus = [1, 1]", 3, "host[0].cpus", "value-invalid", ""),
    "zero speed": (
        HOST + "seconds_per_point = 0",
        3,
        "host[0].seconds_per_point",
        "value-range",
        "0",
    ),
    "negative cost": (
        HOST + "cost_per_second = -1",
        3,
        "host[0].cost_per_second",
        "value-range",
        "-1",
    ),
    "NaN bandwidth": (
        HOST + "[default_link]\nlatency = 0\nbandwidth = nan",
        5,
        "default_link.bandwidth",
        "value-range",
        "nan",
    ),
    "infinite latency": (
        HOST + "[default_link]\nlatency = inf\nbandwidth = 1",
        4,
        "default_link.latency",
        "value-range",
        "inf",
    ),
    "empty list": ("host = []", 1, "host", "value-range", "0"),
    "empty file": ("", 1, "host", "field-missing", ""),
    "a command as name": (
        '[[host]]\nname = "; rm -rf"',
        2,
        "host[0].name",
        "value-invalid",
        "'; rm -rf'",
    ),
    "an option as name": ('[[host]]\nname = "-x"', 2, "host[0].name", "value-invalid", NAME_FORM),
    "an option as address": (
        HOST + 'address = "-oProxyCommand=x"',
        3,
        "host[0].address",
        "value-invalid",
        "'-oProxyCommand=x'",
    ),
    "a path as site": (HOST + 'site = "../x"', 3, "host[0].site", "value-invalid", "'../x'"),
    "unknown host in a link": (
        HOST + '[[link]]\nbetween = ["ada", "adb"]\nlatency = 0\nbandwidth = 1',
        4,
        "link[0].between",
        "host-unknown",
        "'adb'",
    ),
    "half a direction": (
        HOST + '[[link]]\nfrom = "ada"\nlatency = 0\nbandwidth = 1',
        3,
        "link[0]",
        "link-ends-missing",
        "'to'",
    ),
    "both ways and one way": (
        f"{HOST}[[link]]\n{BOTH_WAYS}",
        3,
        "link[0]",
        "link-ends-missing",
        "'between'",
    ),
    "not UTF-8": (b"\xff\xfe", 1, "", "file-invalid", "0xff"),
}


def error_of(path):
    with pytest.raises(DocumentError) as raised:
        read_host_list(path)
    return raised.value


@pytest.mark.parametrize("case", CATALOGUE)
def test_each_error_has_place_code_and_value_on_one_line(case, tmp_path):
    content, line, field, code, value = CATALOGUE[case]
    path = tmp_path / "hosts.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    error = error_of(path)
    (problem,) = error.problems
    assert error.code == problem.code == code
    assert (problem.file, problem.line, problem.field) == (str(path), line, field)
    assert value in str(problem)
    assert str(error).startswith(f"{path}:{line}: ")
    assert "\n" not in str(error)


def test_a_misspelt_field_comes_with_the_nearest_legal_name(tmp_path):
    path = tmp_path / "hosts.toml"
    path.write_text(HOST + "slot = 1")
    assert error_of(path).problems[0].suggestion == "slots"


def test_every_host_of_a_name_used_twice_is_named(tmp_path):
    path = tmp_path / "hosts.toml"
    path.write_text(HOST + HOST)
    error = error_of(path)
    places = [(one.line, one.field) for one in error.problems]
    assert places == [(2, "host[0].name"), (4, "host[1].name")]
    assert all("'ada'" in one.message for one in error.problems)


def test_a_file_that_cannot_be_read_has_a_code_and_its_name(tmp_path):
    for path, code in ((tmp_path, "file-not-regular"), (tmp_path / "none", "file-missing")):
        error = error_of(path)
        assert (error.code, error.fields["file"]) == (code, str(path))


def test_sizes_may_have_units_and_hosts_their_defaults():
    host = Host("ada", free_memory="2 GiB")
    assert (host.free_memory, host.reached_at, host.site, host.slots) == (2**31, "ada", "local", 1)


def test_a_usage_error_is_no_document_error():
    assert not issubclass(DocumentError, UsageError)
