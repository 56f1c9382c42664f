"""YAML read with suspicion: values that remember where they stand, and one clear line for everything that is wrong.

Only plain data (no tags), no key twice, a bounded file, a bounded number of aliases, a bounded depth, so that no file
can cost memory or time. Every error is a UsageFailed that begins with `file:line:`. Must never know what a cluster
is.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from iris_core.contracts import UsageFailed
from iris_core.model.errors import ModelError, did_you_mean, shown
from iris_core.model.quantities import parse_size

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from typing import TypeVar

    T = TypeVar("T")

MAX_FILE_BYTES: Final = 256 * 1024
MAX_ALIASES: Final = 64
MAX_DEPTH: Final = 32
MAX_VALUES: Final = 20_000
"""Values after aliases are expanded."""

_DURATION: Final = {"milliseconds": 1, "seconds": 1000}

_KINDS: Final[dict[type, str]] = {
    dict: "a mapping",
    list: "a list",
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    type(None): "nothing",
}


@dataclass(frozen=True, slots=True)
class Value:
    """One value of a document. `data` is a scalar, a list of Values, or a dict of text to Value."""

    data: Any
    source: str
    line: int
    path: str
    """Dotted name for messages: `scale_groups.cpu.num_vms`."""

    def wrong(self, problem: str, *, hint: str = "") -> UsageFailed:
        """The error for this value."""
        subject = f"{self.path}: " if self.path else ""
        return UsageFailed(f"{self.source}:{self.line}: {subject}{problem}", hint=hint)

    def _unfit(self, wanted: str) -> UsageFailed:
        found = _KINDS.get(type(self.data), type(self.data).__name__)
        if isinstance(self.data, (str, int, float)) and not isinstance(self.data, bool):
            found = shown(str(self.data))
        return self.wrong(f"expected {wanted}, found {found}")

    @property
    def is_nothing(self) -> bool:
        """Whether nothing stands there (`key:` or `key: null`)."""
        return self.data is None

    def mapping(self, keys: Collection[str] | None = None) -> dict[str, Value]:
        """A mapping; nothing counts as an empty one. With `keys`, any other key is an error that suggests the closest."""
        if self.data is None:
            return {}
        if not isinstance(self.data, dict):
            raise self._unfit("a mapping")
        found: dict[str, Value] = self.data
        if keys is not None:
            for name, value in found.items():
                if name not in keys:
                    where = f" in {self.path}" if self.path else ""
                    raise UsageFailed(
                        f"{self.source}:{value.line}: unknown key {shown(name)}{where}",
                        hint=did_you_mean(name, keys) or f"known: {', '.join(sorted(keys))}",
                    )
        return found

    def items(self) -> list[Value]:
        """A list; nothing counts as an empty one."""
        if self.data is None:
            return []
        if not isinstance(self.data, list):
            raise self._unfit("a list")
        return self.data

    def text(self) -> str:
        """A text. Numbers and booleans must be quoted: `1.10` would not come back as it was written."""
        if not isinstance(self.data, str):
            error = self._unfit("text")
            if isinstance(self.data, (int, float)):
                error.hint = "put it in quotes"
            raise error
        return self.data

    def place(self) -> Path:
        """A path on this machine, its home directory (`~`, `~user`) written out."""
        try:
            return Path(self.text()).expanduser()
        except RuntimeError:
            raise self.wrong(f"the home directory in {shown(self.text())} is not known") from None

    def whole(self, low: int, high: int) -> int:
        """A whole number within bounds, both included."""
        if isinstance(self.data, bool) or not isinstance(self.data, int):
            raise self._unfit("a whole number")
        if not low <= self.data <= high:
            raise self.wrong(f"{shown(str(self.data))} is outside {low}..{high}")
        return self.data

    def duration_ms(self, low: int, high: int) -> int:
        """`{milliseconds: n}`, `{seconds: n}`, or a bare number of milliseconds; in ms, within bounds, both included."""
        if not isinstance(self.data, dict):
            return self.whole(low, high)
        keys = self.mapping(_DURATION)
        total = sum(keys[word].whole(0, high // factor) * factor for word, factor in _DURATION.items() if word in keys)
        if not low <= total <= high:
            raise self.wrong(f"{total} ms is outside {low}..{high}")
        return total

    def size(self, low: int, high: int, example: str) -> int:
        """A count of bytes, or a size with its unit, in bytes, within bounds, both included."""
        size = self.parsed(parse_size)
        if not low <= size <= high:
            raise self.wrong(f"{size} bytes are too few or too many", hint=f"write a size such as {example}")
        return size

    def boolean(self) -> bool:
        """true or false."""
        if not isinstance(self.data, bool):
            raise self._unfit("true or false")
        return self.data

    def parsed(self, parse: Callable[[str], T]) -> T:
        """A text or number given to a parser of the model, its error with this value's place."""
        if isinstance(self.data, bool) or not isinstance(self.data, (str, int, float)):
            raise self._unfit("text")
        try:
            return parse(str(self.data))
        except ModelError as error:
            raise self.wrong(error.message, hint=error.hint) from None


def read_document(path: Path) -> Value:
    """The document in that file. Raises UsageFailed: unreadable, too large, not UTF-8, or not the YAML that is
    allowed here.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UsageFailed(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None
    return parse_document(data, str(path))


def parse_document(data: bytes, source: str) -> Value:
    """The document in `data`; `source` is its name in messages. Raises UsageFailed."""
    if len(data) > MAX_FILE_BYTES:
        raise UsageFailed(f"{source}: larger than {MAX_FILE_BYTES // 1024} KiB, which no cluster file is")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageFailed(f"{source}:{line}: not UTF-8 text") from None
    import yaml

    try:
        _check_shape(text, source)
        node = yaml.compose(text, Loader=_loader())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        raise UsageFailed(f"{source}:{line}: {_said(error.problem or 'not YAML')}") from None
    except yaml.YAMLError as error:
        position = getattr(error, "position", 0)
        line = text.count("\n", 0, position if isinstance(position, int) else 0) + 1
        raise UsageFailed(f"{source}:{line}: {_said(getattr(error, 'reason', '') or 'not YAML')}") from None
    if node is None:
        return Value(None, source, 1, "")
    return _Builder(source).build(node, "", 0)


def _said(problem: str) -> str:
    return " ".join(problem.split())[:200]


def _loader() -> Any:
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _check_shape(text: str, source: str) -> None:
    """Refuses depth, aliases and further documents while they are still cheap: before anything is built."""
    import yaml

    depth = aliases = documents = 0
    for event in yaml.parse(text, Loader=_loader()):
        line = event.start_mark.line + 1 if event.start_mark is not None else 1
        if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            depth += 1
            if depth > MAX_DEPTH:
                raise UsageFailed(f"{source}:{line}: nested deeper than {MAX_DEPTH} levels")
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            depth -= 1
        elif isinstance(event, yaml.AliasEvent):
            aliases += 1
            if aliases > MAX_ALIASES:
                raise UsageFailed(f"{source}:{line}: more than {MAX_ALIASES} aliases")
        elif isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise UsageFailed(f"{source}:{line}: a second document; a cluster file has one")


class _Builder:
    """Turns nodes into Values, counting them: an alias is expanded each time it is met."""

    def __init__(self, source: str) -> None:
        import yaml

        self._yaml = yaml
        self._source = source
        self._scalars = yaml.SafeLoader("")
        self._count = 0

    def build(self, node: Any, path: str, depth: int) -> Value:
        line = node.start_mark.line + 1
        self._count += 1
        if self._count > MAX_VALUES or depth > MAX_DEPTH:
            raise UsageFailed(f"{self._source}:{line}: aliases make it larger than any cluster file")
        if isinstance(node, self._yaml.MappingNode):
            data: Any = self._mapping(node, path, depth)
        elif isinstance(node, self._yaml.SequenceNode):
            data = [self.build(item, f"{path}[{n}]", depth + 1) for n, item in enumerate(node.value)]
        else:
            data = self._scalar(node)
        return Value(data, self._source, line, path)

    def _mapping(self, node: Any, path: str, depth: int) -> dict[str, Value]:
        found: dict[str, Value] = {}
        merged: dict[str, Value] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag == "tag:yaml.org,2002:merge":
                for part in self._merged(value_node, path, depth):
                    merged = part | merged
                continue
            key = self._scalar(key_node) if isinstance(key_node, self._yaml.ScalarNode) else None
            if not isinstance(key, str):
                raise UsageFailed(f"{self._source}:{line}: a key must be text", hint="put it in quotes")
            if key in found:
                raise UsageFailed(
                    f"{self._source}:{line}: the key {shown(key)} is there twice (first in line {found[key].line})"
                )
            word = key if key.isprintable() and len(key) <= 60 else shown(key)
            value = self.build(value_node, f"{path}.{word}" if path else word, depth + 1)
            found[key] = Value(value.data, value.source, line, value.path)
        return merged | found

    def _merged(self, node: Any, path: str, depth: int) -> Iterator[dict[str, Value]]:
        nodes = node.value if isinstance(node, self._yaml.SequenceNode) else [node]
        for part in nodes:
            value = self.build(part, path, depth + 1)
            if not isinstance(value.data, dict):
                raise UsageFailed(f"{self._source}:{part.start_mark.line + 1}: '<<' merges mappings only")
            yield value.data

    def _scalar(self, node: Any) -> Any:
        line = node.start_mark.line + 1
        try:
            value = self._scalars.construct_object(node)
        except self._yaml.YAMLError:
            raise UsageFailed(f"{self._source}:{line}: the tag {shown(node.tag)} is not allowed") from None
        except ValueError as error:
            raise UsageFailed(f"{self._source}:{line}: {shown(node.value)}: {_said(str(error))}") from None
        if isinstance(value, (str, int, float, bool)) or value is None:
            return value
        # Dates and binaries: YAML reads more into plain words than anyone means here.
        return node.value
