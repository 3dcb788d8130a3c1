"""Random machines as hwloc would write them, and what distances on them are, worked out anew."""

import itertools
import random
from dataclasses import dataclass, field

from apples.errors import UsageError

KINDS = ["Package", "L3Cache", "L2Cache", "Core"]


@dataclass
class Machine:
    """A description: nested (kind, number, children), leaves are CPU numbers."""

    tree: tuple
    nodes: dict = field(default_factory=dict)  # number -> set of CPUs
    matrix: dict = field(default_factory=dict)  # (node, node) -> latency
    allowed: set = None
    format: str = "2.0"
    written: set = field(default_factory=set)

    @property
    def cpus(self):
        return leaves(self.tree)

    def height(self, tree=None):
        tree = self.tree if tree is None else tree
        return 0 if isinstance(tree, int) else 1 + max(self.height(c) for c in tree[2])

    def common(self, a, b):
        """The height of the lowest part that holds both."""
        part = self.tree
        while True:
            inner = [c for c in part[2] if not isinstance(c, int) and {a, b} <= set(leaves(c))]
            if not inner:
                return self.height(part)
            part = inner[0]

    def hops(self, a, b):
        """DESIGN's words once more, slowly."""
        if a == b:
            return 0
        if not self.matrix:
            return self.common(a, b)
        mine, other = (next(n for n, held in self.nodes.items() if c in held) for c in (a, b))
        if mine != other:
            return sorted(set(self.matrix.values())).index(self.matrix[mine, other])
        return self.common(a, b) / (self.height() + 1)

    def xml(self):
        self.written.clear()
        mask = sum(1 << c for c in self.cpus)
        allowed = mask if self.allowed is None else sum(1 << c for c in self.allowed)
        body = "".join(self.element(child) for child in self.tree[2])
        head = '<?xml version="1.0"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n'
        sets = f'cpuset="{words(mask)}" complete_cpuset="{words(mask)}" allowed_cpuset="{words(allowed)}"'
        lines = [
            f'{head}<topology version="{self.format}">',
            f'<object type="Machine" os_index="0" {sets}>{self.memory(set(self.cpus))}{body}</object>',
        ]
        if self.matrix:
            numbers = sorted(self.nodes)
            values = [self.matrix[a, b] for a in numbers for b in numbers]
            lines.append(
                f'<distances2 type="NUMANode" nbobjs="{len(numbers)}" kind="5" name="NUMALatency" indexing="os">'
                f'<indexes length="1">{" ".join(map(str, numbers))} </indexes>'
            )
            lines += [
                f'<u64values length="1">{" ".join(map(str, values[i : i + 7]))} </u64values>'
                for i in range(0, len(values), 7)
            ]
            lines.append("</distances2>")
        return "\n".join([*lines, "</topology>"])

    def element(self, tree):
        if isinstance(tree, int):
            return f'<object type="PU" os_index="{tree}" cpuset="{words(1 << tree)}"/>'
        kind, number, children = tree
        held = set(leaves(tree))
        memory = self.memory(held)  # beside the outermost part with these CPUs
        inside = "".join(self.element(child) for child in children)
        mask = words(sum(1 << c for c in held))
        return (
            f'<object type="{kind}" os_index="{number}" cpuset="{mask}">{memory}{inside}</object>'
        )

    def memory(self, held):
        return "".join(
            f'<object type="NUMANode" os_index="{n}" cpuset="{words(sum(1 << c for c in cpus))}"'
            f' nodeset="{words(1 << n)}" local_memory="1024"/>'
            for n, cpus in self.nodes.items()
            if cpus == held and n not in self.written and not self.written.add(n)
        )


def said_by(read, *words):
    """The line in which something is refused; empty if it is not."""
    try:
        read(*words)
    except UsageError as error:
        return str(error)
    return ""


def leaves(tree):
    return [tree] if isinstance(tree, int) else [c for child in tree[2] for c in leaves(child)]


def words(mask):
    """A bitmap as hwloc writes it: words of 32 bits, highest first, zeros empty."""
    found = []
    while mask:
        found.append(f"0x{mask & 0xFFFFFFFF:08x}" if mask & 0xFFFFFFFF else "")
        mask >>= 32
    return ",".join(reversed(found)) or "0x0"


def random_machine(rng: random.Random, *, matrix=None, smt=None):
    """A machine of 1 to 6 memory nodes on a random graph, with CPU numbers in disorder."""
    count = rng.choice([1, 2, 3, 4, 6])
    threads = smt or rng.choice([1, 1, 2, 4])
    cores = [rng.randint(1, 4) for _ in range(count)]
    numbers = list(range(sum(cores) * threads))
    if rng.random() < 0.5:
        rng.shuffle(numbers)
    fresh = iter(numbers)
    serial = itertools.count()
    packages = []
    for mine in cores:
        inside = [
            ("Core", next(serial), [next(fresh) for _ in range(threads)]) for _ in range(mine)
        ]
        if rng.random() < 0.4:
            inside = [
                ("L2Cache", next(serial), inside[i : i + 2]) for i in range(0, len(inside), 2)
            ]
        packages.append(("Package", next(serial), inside))
    if rng.random() < 0.3 and count > 2:
        packages = [("Group", next(serial), packages[i : i + 2]) for i in range(0, count, 2)]
        homes = [p for group in packages for p in group[2]]
    else:
        homes = packages
    machine = Machine(("Machine", 0, packages))
    machine.nodes = {i: set(leaves(package)) for i, package in enumerate(homes)}
    if matrix if matrix is not None else rng.random() < 0.6:
        machine.matrix = random_matrix(rng, count)
    return machine


def random_matrix(rng, count):
    """Latencies that follow the number of steps on a random connected graph: a metric, rarely a tree."""
    far = {(a, b): 0 if a == b else 99 for a in range(count) for b in range(count)}
    for b in range(1, count):
        for a in {rng.randrange(b), rng.randrange(b)}:
            far[a, b] = far[b, a] = 1
    for k, a, b in itertools.product(range(count), repeat=3):
        far[a, b] = min(far[a, b], far[a, k] + far[k, b])
    return {pair: 10 + 6 * steps for pair, steps in far.items()}


def best_by_trying_all(machine, free, count):
    """(radius, least total at that radius) over all subsets."""
    far = {(a, b): machine.hops(a, b) for a in free for b in free}
    found = []
    for chosen in itertools.combinations(sorted(free), count):
        radius = min(max(far[c, other] for other in chosen) for c in chosen)
        total = sum(far[pair] for pair in itertools.combinations(chosen, 2))
        found.append((round(radius, 9), total))
    return min(found)
