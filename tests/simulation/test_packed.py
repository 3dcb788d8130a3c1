import bz2
import gzip
import lzma
import os
import resource
import subprocess
import sys
import threading
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apples.errors import UsageError
from apples.simulation import read_log
from nws import StoredText

try:
    from compression import zstd
except ImportError:
    from backports import zstd

LINE_BYTES = 1 << 20
RECORD = "1 0 -1 10 4 -1 -1 4 20 -1 1 -1 -1 -1 -1 -1 -1 -1\n"
PACKERS = {
    "plain": bytes,
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": partial(zstd.compress, options={zstd.CompressionParameter.checksum_flag: 1}),
}


@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)
def test_a_log_reads_the_same_however_it_is_packed_and_in_several_streams(tmp_path, pack):
    half = "".join(RECORD.replace("1 0", f"{k} {k}", 1) for k in range(1, 500)).encode()
    path = tmp_path / "log"
    path.write_bytes(pack(half) + pack(RECORD.encode()))
    log = read_log(path)
    assert log.columns["job"].tolist() == [*range(1, 500), 1]
    assert log.lines.tolist() == list(range(1, 501))


@pytest.mark.parametrize("name", ["gzip", "bzip2", "xz", "zstd"])
def test_a_truncated_or_damaged_file_is_said_to_be_one(tmp_path, name):
    data = PACKERS[name](os.urandom(5000).hex().encode())
    path = tmp_path / "log"
    for stored in (data[: len(data) // 2], data[:40] + b"garbage" + data[47:]):
        path.write_bytes(stored)
        with pytest.raises(UsageError) as raised:
            read_log(path)
        assert raised.value.code == "file-damaged"
        assert raised.value.fields == {"file": str(path), "packer": name}


def test_a_log_may_come_through_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(gzip.compress(RECORD.encode()),))
    writer.start()
    assert len(read_log(pipe)) == 1
    writer.join()


@given(st.lists(st.integers(0, 60), max_size=40), st.integers(1, 50), st.booleans())
def test_pieces_are_whole_lines_and_together_the_text(lengths, chunk, ends):
    text = b"\n".join(b"x" * length for length in lengths) + (b"\n" if ends else b"")
    pieces = list(StoredText("log", text, chunk=chunk))
    assert b"".join(pieces) == (text if not text or text.endswith(b"\n") else text + b"\n")
    assert all(piece.endswith(b"\n") for piece in pieces)


@given(st.lists(st.integers(0, 90), min_size=1, max_size=30), st.integers(1, 30))
def test_only_a_line_beyond_the_limit_is_refused(lengths, chunk):
    text = b"".join(b"x" * length + b"\n" for length in lengths)
    log = StoredText("log", text, chunk=chunk, longest=64, error=UsageError)
    if max(lengths) > 64:
        with pytest.raises(UsageError) as raised:
            list(log)
        assert (raised.value.code, raised.value.fields["bound"]) == ("line-too-long", 64)
    else:
        assert b"".join(log) == text


#: The beginning, and what follows it 32 times: half a gigabyte, in one stream of a packer each.
BOMBS = {
    "zeros": (b"", b"\0"),
    "records": (b"", RECORD.encode()),
    "comments": (b"", b";\n"),
    "blank lines": (b"", b"\n"),
    "damaged rows": (b"", b"1 2 3\n"),
    "a log and then zeros": (b"; a log\n" + RECORD.encode(), b"\0"),
    "sacct": (b"JobIDRaw|Submit\n", b"1|2\n"),
}


@pytest.mark.more
@pytest.mark.parametrize("name", ["gzip", "bzip2", "xz", "zstd"])
@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_a_bomb_is_refused_by_its_name_in_little_memory(tmp_path, bomb, name):
    path = tmp_path / "bomb"
    begin, unit = bomb
    path.write_bytes(PACKERS[name](begin) + 32 * PACKERS[name](unit * ((1 << 24) // len(unit))))
    limit = 420 << 20  # of addresses: Python and NumPy take the rest of it
    program = (
        "import sys; from pathlib import Path; from apples.simulation import read_log\n"
        "from apples.errors import UsageError\n"
        "try: read_log(Path(sys.argv[1]))\n"
        "except UsageError as error: print(error.code, error.fields['file'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, path],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert done.stdout.count("\n") == 1, done.stderr
    code, _, file = done.stdout.strip().partition(" ")
    assert file == str(path)
    assert code in {
        "file-too-large",
        "line-too-long",
        "file-invalid",
        "file-damaged",
        "rows-damaged",
        "log-empty",
        "columns-missing",
        "log-kind-unknown",
    }


def test_a_line_without_an_end_is_refused_in_a_plain_file_too(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(RECORD.encode() + b"1" * (2 * LINE_BYTES))
    with pytest.raises(UsageError) as raised:
        read_log(path)
    assert raised.value.code == "line-too-long"
    assert raised.value.fields == {"file": str(path), "line": 2, "bound": LINE_BYTES}
