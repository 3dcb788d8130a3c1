"""Nobody has less of the daemon because another asks for more than a part of it; the operator is served first."""

import asyncio
import contextlib
import json
import os
import socket

import pytest
from bad_jobs import fork
from daemons import Daemon

from apples.errors import LaunchError
from apples.topology import (
    MAX_ATTACHED_OF_USER,
    MAX_CONNECTIONS,
    OPERATOR_CONNECTIONS,
    Caller,
    ConnectionTable,
    Turns,
)

OPERATOR = Caller("uid:0", operator=True)
several = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")


def user(number):
    return Caller(f"uid:{number}", operator=False)


class Task:
    """What a connection table sees of a task."""

    cancelled = 0

    def cancel(self):
        self.cancelled += 1


# ------------------------------------------------------------------ connections
def filled(numbers, most=MAX_CONNECTIONS):
    """A table in which some users, turn by turn, have taken all there is; the tasks in that order."""
    table, tasks = ConnectionTable(), []
    for turn in range(most):
        task = Task()
        assert not table.admit(user(numbers[turn % len(numbers)]), task)
        tasks.append(task)
    return table, tasks


def test_a_newcomer_gets_the_oldest_place_of_whoever_has_most():
    table, tasks = filled([1001, 1002, 1003, 1002])
    assert not table.admit(user(1004), Task())
    assert [task.cancelled for task in tasks].index(1) == 1  # the first of 1002
    assert sum(task.cancelled for task in tasks) == 1


def test_every_user_may_come_to_an_equal_part_and_to_no_more():
    table, tasks = filled(list(range(1001, 1005)))
    mine = [Task() for _ in range(200)]
    said = [table.admit(user(1009), task) for task in mine]
    part = MAX_CONNECTIONS // 5
    assert part - 1 <= said.count("") <= part + 1
    assert f"all {MAX_CONNECTIONS} connections are taken" in said[-1]
    assert not any(task.cancelled for task in mine)
    assert sum(task.cancelled > 0 for task in tasks) == said.count("")


def test_one_that_is_told_to_end_is_told_once_and_counted_until_it_ends():
    table, tasks = filled([1001, 1002])
    assert not table.admit(user(1003), Task())
    assert tasks[0] in table.tasks()
    assert not table.admit(user(1003), Task())
    assert tasks[0].cancelled == 1
    table.leave(user(1001), tasks[0])
    assert tasks[0] not in table.tasks()


def test_the_operator_has_places_when_all_are_taken():
    table, tasks = filled(list(range(1001, 1009)))
    assert not any(table.admit(OPERATOR, Task()) for _ in range(OPERATOR_CONNECTIONS))
    assert not any(task.cancelled for task in tasks)


def test_who_leaves_makes_room():
    table, tasks = filled([1001, 1002])
    table.leave(user(1001), tasks[0])
    assert not table.admit(user(1001), Task())
    assert not any(task.cancelled for task in tasks)


# ------------------------------------------------------------------ turns
def order(*asking):
    """Return who began in which order, asking in this one before anybody has begun."""

    async def main():
        turns, began = Turns(), []

        async def ask(caller):
            await turns.wait(caller)
            began.append(caller.principal)

        await asyncio.gather(*(ask(caller) for caller in asking))
        return began

    return asyncio.run(main())


def test_users_begin_in_rounds_however_many_requests_one_has():
    greedy, modest = user(1001), user(1002)
    found = order(*[greedy] * 5, modest, modest)
    assert found == [f"uid:{n}" for n in (1001, 1002, 1001, 1002, 1001, 1001, 1001)]


def test_the_operator_begins_at_once_while_users_wait():
    async def main():
        turns, began = Turns(), []

        async def ask(caller):
            await turns.wait(caller)
            began.append(caller.principal)

        users = [asyncio.create_task(ask(user(number))) for number in range(1001, 1009)]
        await asyncio.sleep(0)  # all users are in the queue
        await ask(OPERATOR)
        await asyncio.gather(*users)
        return began

    assert asyncio.run(main())[0] == OPERATOR.principal


def test_a_request_that_is_given_up_takes_nobodys_turn():
    async def main():
        turns, began = Turns(), []

        async def ask(number):
            await turns.wait(user(number))
            began.append(number)

        tasks = [asyncio.create_task(ask(number)) for number in (1, 2, 3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.wait(tasks)
        return began

    assert asyncio.run(main()) == [1, 3]


# ------------------------------------------------------------------ a real daemon
@pytest.fixture
def daemon():
    with Daemon() as running:
        running.home.chmod(0o755)
        (running.home / "run").chmod(0o755)
        yield running


@contextlib.contextmanager
def users(numbers, act):
    """Run `act` as each user at once, each in a process of its own; yield what they return, then end them."""
    found, children = [], []
    for number in numbers:
        mine, theirs = socket.socketpair()
        child = fork()
        if child == 0:
            try:
                mine.close()
                os.setgid(number)
                os.setuid(number)
                said = act()
                theirs.sendall(
                    json.dumps(said[0] if isinstance(said, tuple) else said).encode() + b"\n"
                )
                theirs.recv(1)
            finally:
                os._exit(0)
        theirs.close()
        children.append((child, mine))
    try:
        for _, mine in children:
            with mine.makefile() as lines:
                found.append(json.loads(lines.readline()))
        yield found
    finally:
        for _, mine in children:  # all of them first: a child has those of the ones before it too
            mine.close()
        for child, _ in children:
            os.waitpid(child, 0)


@several
def test_eight_users_who_take_all_they_can_lock_neither_the_operator_nor_a_ninth_out(daemon):
    def take():
        held = []
        for _ in range(100):
            one = socket.socket(socket.AF_UNIX)
            one.connect(str(daemon.socket))
            held.append(one)
        return len(held), held

    def ask():
        with daemon.client() as asking:
            return asking.ask("allocate", job="modest", count=1, until="told")["cpus"]

    with users(range(2001, 2009), take) as taken:
        assert taken == [100] * 8
        with users([2009], ask) as found:
            assert found == ["0"]
        assert daemon.ask("status")["jobs"] == 1


@several
def test_a_user_attaches_requirements_to_a_bounded_number_of_jobs(daemon):
    def attach():
        refused = []
        with daemon.client() as asking:
            for number in range(MAX_ATTACHED_OF_USER + 1):
                for _ in range(2):  # of a job that has one already, it is replaced
                    try:
                        asking.ask("attach", job=f"j{number}", requirement="MAX_RADIUS=1")
                    except LaunchError as error:
                        refused.append([error.code, dict(error.fields)])
        return refused

    with users([2001], attach) as (refused,):
        assert [code for code, _ in refused] == ["quota-exceeded"] * 2
        fields = refused[0][1]
        assert (fields["job"], fields["bound"]) == ("j256", MAX_ATTACHED_OF_USER)
        assert fields["principal"] == "uid:2001"
    daemon.ask("attach", job="another", requirement="MAX_RADIUS=1")


def test_a_journal_of_long_records_is_written_anew_before_it_is_long():
    long = "CPU_LIST=" + "0-3," * 1000 + "0"
    with Daemon(slack_bytes=1 << 20) as daemon:
        with daemon.client() as asking:
            for _ in range(600):
                asking.ask("attach", job="j", requirement=long)
        assert (daemon.home / "state/journal").stat().st_size < 3 << 19


def test_many_attached_requirements_are_not_written_anew_with_each_request(daemon):
    journal = daemon.home / "state/journal"
    with daemon.client() as asking:
        for number in range(2000):
            asking.ask("attach", job=f"j{number}", requirement="")
        files = set()
        for number in range(3):
            asking.ask("attach", job=f"j{number}", requirement="")
            files.add(journal.stat().st_ino)
    assert len(files) == 1
