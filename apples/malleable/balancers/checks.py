"""Executable checks of the contract of a load balancer, for the built-in strategies and for users' own.

A load balancer is a function from `Measured` to the owner of each block. `check_balancer` calls it with cases
that occur in real programs and are easily forgotten: processors that may have no load, blocks without work,
speeds and background loads that differ by orders of magnitude.

Examples
--------
>>> from apples.malleable.balancers import refine
>>> check_balancer(refine)

>>> def everywhere(now):
...     return [block % len(now.processors) for block in range(len(now.work))]
>>> check_balancer(everywhere)
Traceback (most recent call last):
apples.malleable.balancers.checks.BalancerCheckError: balancer everywhere: a host that leaves: ...
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from copy import deepcopy

from apples.errors import UsageError
from apples.malleable.balancers import LoadBalancer, Measured, Processor, accepted

SEEDS = 40
"""Number of random cases, in addition to the fixed cases."""
MAX_BLOCKS = 40
MAX_PROCESSORS = 8


class BalancerCheckError(UsageError):
    """A load balancer breaks its contract; the fields name the case and the guarantee. Permanent."""

    code = "balancer-check-failed"


def check_balancer(balancer: LoadBalancer, name: str = "") -> None:
    """Check a load balancer.

    A balancer guarantees three things. For any measurement, each block gets an owner that may have load. The same
    measurements give the same owners, because a job must be repeatable. It does not modify its argument.
    It does not guarantee a good balance: compare proposals by `Measured.step`.

    Parameters
    ----------
    name
        Name of the balancer in messages; empty: the function's name.

    Raises
    ------
    BalancerCheckError
        A guarantee is broken; the error is about the first such case.
    """
    name = name or getattr(balancer, "__name__", type(balancer).__name__)
    for case, measured in [*drawn_cases(), *random_cases()]:
        shown = deepcopy(measured)
        where = f"balancer {name}: {case}"
        try:
            owners = accepted(balancer(shown), measured, name)
            again = accepted(balancer(shown), measured, name)
        except Exception as error:
            raise BalancerCheckError(
                f"{where}: {type(error).__name__}: {error}",
                balancer=name,
                case=case,
                promise="valid-owners",
            ) from error
        if owners != again:
            raise BalancerCheckError(
                f"{where}: other owners when it is asked again",
                balancer=name,
                case=case,
                promise="deterministic",
            )
        if shown != measured:
            raise BalancerCheckError(
                f"{where}: it changed its read-only input",
                balancer=name,
                case=case,
                promise="read-only",
            )


def drawn_cases() -> Iterator[tuple[str, Measured]]:
    """Yield the fixed cases, which are easily forgotten, each with its name."""
    ada, bob = Processor("ada"), Processor("bob")
    gone = Processor("gone", enabled=False)
    yield "one processor", Measured((1.0, 2.0), (0, 0), (ada,))
    yield "one block for two processors", Measured((1.0,), (0,), (ada, bob))
    yield "blocks without work", Measured((0.0,) * 4, (0, 0, 1, 1), (ada, bob))
    yield "a host that leaves", Measured((1.0, 2.0, 3.0), (0, 1, 1), (ada, gone))
    yield "a host that joins", Measured((1.0,) * 6, (0,) * 6, (ada, bob))
    yield "the first processor may have no load", Measured((1.0, 1.0), (0, 1), (gone, bob))
    yield (
        "a processor that others want whole",
        Measured((1.0,) * 4, (0, 0, 1, 1), (ada, Processor("busy", background=1.0))),
    )
    yield (
        "speeds of a wide range",
        Measured(
            (1e-6, 1.0, 1e3),
            (0, 1, 1),
            (Processor("slow", speed=1e-3), Processor("fast", speed=1e3)),
        ),
    )
    yield (
        "one block heavier than all others",
        Measured((100.0, *(1.0,) * 9), (0,) * 10, (ada, bob)),
    )


def random_cases(seeds: int = SEEDS) -> Iterator[tuple[str, Measured]]:
    """Yield reproducible random measurements, one for each seed."""
    for seed in range(seeds):
        chance = random.Random(seed)  # noqa: S311 - cases, not secrets
        processors = tuple(
            Processor(
                f"host{number}",
                speed=chance.uniform(0.1, 10.0),
                background=chance.random(),
                enabled=number == 0 or chance.random() < 0.7,
            )
            for number in range(chance.randint(1, MAX_PROCESSORS))
        )
        blocks = chance.randint(1, MAX_BLOCKS)
        work = tuple(chance.choice((0.0, 1.0, chance.expovariate(1.0))) for _ in range(blocks))
        owners = tuple(chance.randrange(len(processors)) for _ in range(blocks))
        yield f"random measurements, seed {seed}", Measured(work, owners, processors)
