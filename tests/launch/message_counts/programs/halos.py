"""A malleable program whose arrays exchange halos, of rows and of tiles, and which talks in no other way."""

import time

from apples.program import Task


def main() -> None:
    with Task() as task:
        n, pause = task.parameters["grid"], task.parameters["pause"]
        u = task.array("u", (n, n), halo=1)
        v = task.tiles("v", (n, n), halo=2)
        for _ in task.iterations():
            task.exchange(u, v)
            u.own[...] += 1
            time.sleep(pause)
        task.result(u.own)


if __name__ == "__main__":
    main()
