"""Reading a page as a program would: its elements, its attributes, its numbers, its words."""

import math
from html.parser import HTMLParser


class Page(HTMLParser):
    """What a page holds: `tags` (name, attributes), `numbers` (value, text), `words` outside numbers."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.numbers, self.words, self._open, self._value = [], [], [], [], None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        values = dict(attributes)
        given = values.get("value") if tag == "data" else values.get("data-value")
        if tag not in {"meta", "link"}:
            self._open.append((tag, values.get("class") or ""))
        if given is not None:
            self._value = given

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self._open, f"</{tag}> closes nothing"
        assert self._open[-1][0] == tag, f"</{tag}> closes <{self._open[-1][0]}>"
        self._open.pop()
        self._value = None

    def handle_data(self, text):
        if self._value is not None:
            self.numbers.append((float(self._value), text))
        elif not any(tag == "style" or kind == "tick" for tag, kind in self._open):
            self.words.append(text)

    @property
    def verdicts(self):
        """The kinds of the marked words in their order, such as good, bad and watch."""
        marked = (own.get("class", "") for tag, own in self.tags if tag == "span")
        return [kind.split()[1] for kind in marked if kind.startswith("word ")]

    @property
    def sections(self):
        """The identities of the headings of sections."""
        return [
            own["id"].removeprefix("h-") for tag, own in self.tags if tag == "h2" and own.get("id")
        ]

    def shape(self):
        """Return the kinds of element and attribute, without values."""
        return {(tag, name) for tag, attributes in self.tags for name in (None, *attributes)}


def leaves(value, path=()):
    """Yield path and value of everything in a document that holds nothing else."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list):
        for k, inner in enumerate(value):
            yield from leaves(inner, (*path, k))
    else:
        yield path, value


def replaced(value, path, new):
    """Return the document with one leaf replaced."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


def numbers_of(document):
    return {
        float(value)
        for _, value in leaves(document)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


def strings_of(document):
    """Return every text of a document, its keys too, the longest first."""
    found = {value for _, value in leaves(document) if isinstance(value, str)}
    found |= {part for path, _ in leaves(document) for part in path if isinstance(part, str)}
    return sorted(found, key=len, reverse=True)
