"""Finds state that a change of hosts would lose: names that a loop carries from one safe point to the next.

A new rank runs the program from its beginning and reaches the loop's first safe point with the declared data only.
Suppose that the loop reads a name before it assigns it in the same iteration, for example a counter, a swapped
pair or a running sum. Its value would be wrong on the new rank. This module reads the source of the function that
called `safepoint`, and returns these names. Names that are assigned only after the safe point reports a change are
left out. Changes that methods make inside objects are not detected.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType

Loop = ast.While | ast.For | ast.AsyncFor
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def carried(frame: FrameType, declared: Iterable[str]) -> list[tuple[str, int]]:
    """Return name and line of each value that the loop around a safe point carries; empty without the source.

    Parameters
    ----------
    declared
        Names that may be carried.
    """
    loop = _loop(frame)
    if loop is None:
        return []
    if isinstance(loop, ast.For | ast.AsyncFor) and not _counted(loop):
        return [(f"the position of `for {ast.unparse(loop.target)}`", loop.lineno)]
    loop.body.sort(key=lambda statement: statement.lineno)
    rebuilt = _rebuilt(loop)
    reader = _Reader()
    if isinstance(loop, ast.While):
        reader.expression(loop.test)
    else:
        reader.expression(loop.iter)
        reader.expression(loop.target)
    reader.block(loop.body)
    free = set(declared) | rebuilt
    stores = dict(_stores(loop.body, skip=_change_blocks(loop)))
    names = [(n, line) for n, line in stores.items() if n in reader.exposed and n not in free]
    mutated = [
        (t, n, line) for t, n, line in _mutations(loop.body) if n not in free and n not in stores
    ]
    names += [(text, line) for text, name, line in mutated if name in reader.exposed]
    return sorted(set(names), key=lambda one: (one[1], one[0]))


def _loop(frame: FrameType) -> Loop | None:
    """Return the innermost loop around the present line of a frame, in its own function."""
    try:
        lines, start = inspect.getsourcelines(frame)
        tree = ast.parse(
            inspect.cleandoc("if True:\n" + "".join(lines))
            if lines[0][:1].isspace()
            else "".join(lines)
        )
    except (OSError, TypeError, SyntaxError, IndexError):
        return None
    if lines[0][:1].isspace():
        start -= 1
    ast.increment_lineno(tree, max(start, 1) - 1)
    line, loop = frame.f_lineno, None
    for node in ast.walk(tree):
        if isinstance(node, ast.While | ast.For | ast.AsyncFor):
            inside = node.lineno <= line <= (node.end_lineno or node.lineno)
            if inside and (loop is None or node.lineno >= loop.lineno):
                loop = node
    return loop


def _counted(loop: Loop) -> bool:
    """Whether a loop is over ``task.iterations()``, which keeps its own position and calls safe points."""
    call = None if isinstance(loop, ast.While) else loop.iter
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "iterations"
    )


def _asks(node: ast.AST) -> bool:
    """Whether an expression tests for a change: it contains ``safepoint()`` or ``task.changed``."""
    return any(
        (
            isinstance(n, ast.Call)
            and isinstance(n.func, ast.Attribute)
            and n.func.attr == "safepoint"
        )
        or (isinstance(n, ast.Attribute) and n.attr == "changed")
        for n in ast.walk(node)
    )


def _change_blocks(loop: Loop) -> list[ast.If]:
    """Return the statements that run only after a safe point reports a change."""
    answers = {
        target.id
        for node in ast.walk(loop)
        if isinstance(node, ast.Assign) and _asks(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }

    def guards(test: ast.expr) -> bool:
        return _asks(test) or (isinstance(test, ast.Name) and test.id in answers)

    return [node for node in ast.walk(loop) if isinstance(node, ast.If) and guards(node.test)]


def _rebuilt(loop: Loop) -> set[str]:
    """Return the names that a loop assigns only after a reported change."""
    blocks = _change_blocks(loop)
    inside = {name for block in blocks for name, _ in _stores(block.body)}
    return inside - {name for name, _ in _stores(loop.body, skip=blocks)}


def _stores(body: Sequence[ast.AST], skip: Sequence[ast.AST] = ()) -> Iterator[tuple[str, int]]:
    """Yield the names that a block assigns, each with its line."""
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        if any(node is one for one in skip):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        if not isinstance(
            node, (*FUNCTIONS, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
        ):
            waiting += ast.iter_child_nodes(node)


def _mutations(body: Sequence[ast.AST]) -> Iterator[tuple[str, str, int]]:
    """Yield the attributes and items of objects that a block updates in place, with the objects' names."""
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.AugAssign):
                targets: list[ast.expr] = [node.target]
            elif isinstance(node, ast.Assign):
                targets = [t for t in node.targets if isinstance(t, ast.Subscript)]
            else:
                continue
            for target in targets:
                root = target
                while isinstance(root, ast.Attribute | ast.Subscript):
                    root = root.value
                if isinstance(root, ast.Name) and root is not target:
                    yield ast.unparse(target), root.id, target.lineno


class _Reader:
    """Collects the names that a block may read before it assigns them."""

    def __init__(self) -> None:
        self.exposed: set[str] = set()
        self.assigned: set[str] = set()

    def expression(self, node: ast.AST | None) -> None:
        """Record the names that an expression reads and assigns."""
        if node is None:
            return
        for one in ast.walk(node):
            if (
                isinstance(one, ast.Name)
                and isinstance(one.ctx, ast.Load)
                and one.id not in self.assigned
            ):
                self.exposed.add(one.id)
        self.assigned |= {name for name, _ in _stores([node])}

    def block(self, body: Sequence[ast.stmt]) -> None:
        """Record the names in a sequence of statements, in order."""
        for statement in body:
            self._statement(statement)

    def _branch(self, *bodies: Sequence[ast.stmt]) -> None:
        """Record alternative blocks; only names that all of them assign count as assigned."""
        before, ends = set(self.assigned), []
        for body in bodies:
            self.assigned = set(before)
            self.block(body)
            ends.append(self.assigned)
        self.assigned = set.intersection(*ends)

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            self.exposed |= {node.target.id} - self.assigned
        if isinstance(node, ast.Assign | ast.AnnAssign):
            self.expression(node.value)
        if isinstance(node, ast.If):
            self.expression(node.test)
            self._branch(node.body, node.orelse)
        elif isinstance(node, ast.While | ast.For | ast.AsyncFor):
            self.expression(node.test if isinstance(node, ast.While) else node.iter)
            before = set(self.assigned)
            if not isinstance(node, ast.While):
                self.expression(node.target)
            self.block([*node.body, *node.orelse])
            self.assigned = before
        elif isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                self.expression(item.context_expr)
                self.expression(item.optional_vars)
            self.block(node.body)
        elif isinstance(node, ast.Try):
            self._branch(
                [*node.body, *node.orelse], *[handler.body for handler in node.handlers], []
            )
            self.block(node.finalbody)
        else:
            self.expression(node)
