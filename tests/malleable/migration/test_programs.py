"""Unmodified programs as jobs: started, refused what they cannot do, ended; no CRIU is needed here."""

import json
from dataclasses import replace

import pytest

from apples.malleable import HostShare, ResizeCommand, inspection

COUNTING = """
import os, time
while not os.path.exists("enough"):
    print("[]", flush=True)
    time.sleep(0.01)
"""


def to(*hosts, epoch=1):
    return ResizeCommand(epoch, tuple(map(HostShare, hosts)))


def test_what_is_no_single_other_host_is_refused(stage):
    on = stage(COUNTING)
    code, script = on.run(
        (on.written("["), to("a", "b")),
        (on.written("["), to("c", epoch=2)),
        (on.written("["), to("a", epoch=3)),
        (on.written("["), (on.folder / "enough").touch),
    )
    assert code == 0
    assert script.codes == ["run-not-resizable", "host-unknown"]
    assert script.refused[1].startswith("c: ")
    assert [done.epoch for done in script.done] == [3]


@pytest.mark.parametrize(
    ("source", "how"),
    [("raise SystemExit(3)", "3"), ("import os; os.kill(os.getpid(), 11)", "SIGSEGV")],
)
def test_a_program_that_fails_fails_the_job_with_how(stage, source, how):
    on = stage(source)
    code, script = on.run()
    assert (code, script.ended.code) == (1, "program-failed")
    reason = script.ended.reason
    assert reason.split()[-1] == how
    assert json.loads(on.said[-1]) == {
        "event": "error", "message": reason, "code": "program-failed",
    }  # fmt: skip


def test_a_program_that_is_not_there_cannot_be_started(stage):
    on = stage("")
    on.places["a"] = replace(on.places["a"], program=("no-such-program",))
    code, script = on.run()
    assert (code, script.ended.code) == (1, "program-not-started")
    assert script.ended.reason.startswith("a: ")
    assert "no-such-program" in script.ended.reason


def test_a_cancelled_program_is_gone_with_its_children(stage):
    source = "import subprocess; subprocess.Popen(['sleep', '1000']); print('up', flush=True)\n"
    on = stage(source + "while True: pass")
    pids = []

    def cancel():
        pids.extend(inspection.tree(on.anchor.supervisors.process_of("a")))
        on.script.stop = True

    code, script = on.run((on.written("up"), cancel))
    assert (code, script.ended.state, len(pids)) == (1, "cancelled", 3)
    assert [pid for pid in pids if inspection.state(pid)] == []


def test_a_program_that_is_cancelled_leaves_no_checkpoint_of_its_memory(stage):
    on = stage(COUNTING)

    def cancel_in_the_middle():
        on.anchor.checkpoint.mkdir()
        (on.anchor.checkpoint / "pages-1.img").write_bytes(b"its memory")
        on.script.stop = True

    _, script = on.run((on.written("["), cancel_in_the_middle))
    assert script.ended.state == "cancelled"
    assert not on.anchor.checkpoint.exists()


def test_without_criu_the_move_is_refused_with_what_is_missing(stage, monkeypatch, tmp_path):
    monkeypatch.setenv("APPLES_CRIU", str(tmp_path / "no-criu"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", "/nowhere")
    on = stage(COUNTING)
    code, script = on.run(
        (on.written("["), to("b")), (lambda: on.script.refused, (on.folder / "enough").touch)
    )
    assert code == 0
    assert script.codes == ["host-unfit"]
    assert script.refused[0].startswith("b: ")
    assert "APPLES_CRIU" in script.refused[0]
