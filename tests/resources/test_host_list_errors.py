"""Whatever is wrong in a host list is said on one line: file, line, field, rule, value."""

import pytest

from apples import Host, UsageError, read_host_list
from hat import DocumentError

HOST = '[[host]]\nname = "ada"\n'

CATALOGUE = {
    "broken TOML": (
        "[[host]]\nname = ",
        "2: is not valid TOML: unquoted text or nothing where a value should be",
    ),
    "unknown field": (HOST + "speed = 1", "3: host[0]: unknown field 'speed'"),
    "misspelt field": (
        HOST + "slot = 1",
        "3: host[0]: unknown field 'slot': did you mean 'slots'?",
    ),
    "unknown field of a link": (
        HOST + "[default_link]\nlatency = 0\nbandwith = 1\nbandwidth = 1",
        "5: default_link: unknown field 'bandwith': did you mean 'bandwidth'?",
    ),
    "negative memory": (
        HOST + 'free_memory = "-2 GB"',
        (
            '3: host[0].free_memory: must be a number of bytes, such as 500000 or "2 GiB" '
            "(is '-2 GB')"
        ),
    ),
    "memory that is true": (
        HOST + "free_memory = true",
        '3: host[0].free_memory: must be a number of bytes, such as 500000 or "2 GiB" (is true)',
    ),
    "no slots": (HOST + "slots = 0", "3: host[0].slots: must be at least 1 (is 0)"),
    "zero CPU": (HOST + "cpu = 0.0", "3: host[0].cpu: must be at least 1e-15 (is 0.0)"),
    "more than a CPU": (HOST + "cpu = 1.5", "3: host[0].cpu: must be at most 1 (is 1.5)"),
    "CPU in quotes": (HOST + 'cpu = "0.5"', "3: host[0].cpu: must be a number (is '0.5')"),
    "a CPU twice": (HOST + "cpus = [1, 1]", "3: host[0].cpus: must name each CPU once"),
    "zero speed": (
        HOST + "seconds_per_point = 0",
        "3: host[0].seconds_per_point: must be at least 1e-15 (is 0)",
    ),
    "negative cost": (
        HOST + "cost_per_second = -1",
        "3: host[0].cost_per_second: must be at least 0 (is -1)",
    ),
    "NaN bandwidth": (
        HOST + "[default_link]\nlatency = 0\nbandwidth = nan",
        "5: default_link.bandwidth: must be a finite number (is nan)",
    ),
    "infinite latency": (
        HOST + "[default_link]\nlatency = inf\nbandwidth = 1",
        "4: default_link.latency: must be a finite number (is inf)",
    ),
    "empty list": ("host = []", "1: host: must have at least an entry (has 0)"),
    "empty file": ("", "1: host: is missing"),
    "a command as name": (
        '[[host]]\nname = "; rm -rf"',
        "2: host[0].name: must have the form [A-Za-z0-9][A-Za-z0-9._-]* (is '; rm -rf')",
    ),
    "an option as name": (
        '[[host]]\nname = "-x"',
        "2: host[0].name: must have the form [A-Za-z0-9][A-Za-z0-9._-]* (is '-x')",
    ),
    "an option as address": (
        HOST + 'address = "-oProxyCommand=x"',
        (
            "3: host[0].address: must have the form [A-Za-z0-9:][A-Za-z0-9._:%-]* "
            "(is '-oProxyCommand=x')"
        ),
    ),
    "a path as site": (
        HOST + 'site = "../x"',
        "3: host[0].site: must have the form [A-Za-z0-9][A-Za-z0-9._-]* (is '../x')",
    ),
    "unknown host in a link": (
        HOST + '[[link]]\nbetween = ["ada", "adb"]\nlatency = 0\nbandwidth = 1',
        (
            "4: link[0].between: names 'adb', which is no host and no site of this list: "
            "did you mean 'ada'?"
        ),
    ),
    "half a direction": (
        HOST + '[[link]]\nfrom = "ada"\nlatency = 0\nbandwidth = 1',
        "3: link[0]: must have either 'between' or both 'from' and 'to'",
    ),
    "both ways and one way": (
        HOST + '[[link]]\nbetween = ["ada", "ada"]\nfrom = "ada"\nto = "ada"\n'
        "latency = 0\nbandwidth = 1",
        "3: link[0]: must have either 'between' or both 'from' and 'to'",
    ),
    "not UTF-8": (b"\xff\xfe", "1: is not UTF-8 text (byte 0xff)"),
}


def said_of(path):
    with pytest.raises(DocumentError) as error:
        read_host_list(path)
    return str(error.value)


@pytest.mark.parametrize("case", CATALOGUE)
def test_each_error_is_one_line_with_place_rule_and_value(case, tmp_path):
    content, line = CATALOGUE[case]
    path = tmp_path / "hosts.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    if case == "broken TOML":  # the words are the TOML reader's own
        line = line.partition("TOML:")[0]
        assert said_of(path).startswith(f"{path}:{line}")
        assert "\n" not in said_of(path)
    else:
        assert said_of(path) == f"{path}:{line}"


def test_every_host_of_a_name_used_twice_is_named(tmp_path):
    path = tmp_path / "hosts.toml"
    path.write_text(HOST + HOST)
    assert said_of(path).split("\n") == [
        f"{path}:2: host[0].name: must be unique ('ada' names 2 hosts)",
        f"{path}:4: host[1].name: must be unique ('ada' names 2 hosts)",
    ]


def test_a_file_that_cannot_be_read_says_why(tmp_path):
    assert said_of(tmp_path) == f"{tmp_path}: is a directory, not a file"
    assert said_of(tmp_path / "none") == f"{tmp_path / 'none'}: there is no such file"


def test_sizes_may_have_units_and_hosts_their_defaults():
    host = Host("ada", free_memory="2 GiB")
    assert (host.free_memory, host.reached_at, host.site, host.slots) == (2**31, "ada", "local", 1)


def test_a_usage_error_is_no_document_error():
    assert not issubclass(DocumentError, UsageError)
