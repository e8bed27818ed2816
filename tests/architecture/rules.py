"""The rules of the tree as functions from source text to complaints, so they can be tried.

`test_architecture.py` applies them to the repository, `test_rules_can_fail.py` to bad sources.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

# More than this is worth a look: `make check` lists it (`tests.architecture.sizes`), nothing fails.
LONG_FILE = 500
LONG_FUNCTION = 60

# The folders that touch the world. Everything else decides: it is pure. This is the one list;
# docs/adr says why purity is a property of folders.
WORLD_FOLDERS = (
    "zcrawl/blobs/",
    "zcrawl/cli/",
    "zcrawl/client/",
    "zcrawl/coord/agents/",
    "zcrawl/demo/",
    "zcrawl/fetch/browser/",
    "zcrawl/fetch/general/",
    "zcrawl/fetch/http2/",
    "zcrawl/fetch/wire/",
    "zcrawl/gateway/",
    "zcrawl/master/driver/",
    "zcrawl/mesh/sockets/",
    "zcrawl/outputs/files/",
    "zcrawl/parse/children/",
    "zcrawl/roles/",
    "zcrawl/runtime/",
    "zcrawl/store/sql/",
    "zcrawl/telemetry/logs/",
    "zcrawl/worker/driver/",
    "zcrawl/worker/extensions/",
    "zcrawl/worker/pipeline/",
    "zcrawl/__main__.py",
)

# Libraries that have a place of their own: nothing else imports them, pure or not. The import
# contract and ruff's banned-api in pyproject.toml say the same, and a test compares the three.
PLACES = {
    "aiohappyeyeballs": ("zcrawl/fetch/wire/",),
    "aiohttp": ("zcrawl/fetch/general/",),
    "click": ("zcrawl/cli/",),
    "consul": ("zcrawl/coord/agents/",),
    "h2": ("zcrawl/fetch/http2/",),
    "httpcore": ("zcrawl/fetch/http2/",),
    "httptools": ("zcrawl/fetch/wire/", "zcrawl/fetch/http2/"),
    "jwt": ("zcrawl/gateway/",),
    "litestar": ("zcrawl/gateway/",),
    "obstore": ("zcrawl/blobs/",),
    "peewee": ("zcrawl/store/sql/",),
    "playhouse": ("zcrawl/store/sql/",),
    "playwright": ("zcrawl/fetch/browser/",),
    "pyarrow": ("zcrawl/outputs/files/",),
    "pymysql": ("zcrawl/store/sql/",),
    "python_socks": ("zcrawl/fetch/general/",),
    "rich": ("zcrawl/cli/",),
    "rich_click": ("zcrawl/cli/",),
    "sqlite3": ("zcrawl/store/sql/",),
    "subprocess": ("zcrawl/runtime/",),
    "trafilatura": ("zcrawl/parse/children/",),
    "uvloop": ("zcrawl/runtime/",),
    "uvicorn": ("zcrawl/gateway/",),
    "watchfiles": ("zcrawl/cli/",),
    "zmq": ("zcrawl/mesh/sockets/",),
}

# What no pure module may import: clocks, chance, the operating system, the network, tasks, logs.
# fmt: off
WORLD = {
    "aiolimiter", "anyio", "asyncio", "concurrent", "ctypes", "fcntl", "glob", "http", "httpx",
    "logging", "mmap", "multiprocessing", "os", "queue", "random", "resource", "rich", "secrets",
    "select", "selectors", "shutil", "signal", "socket", "ssl", "stamina", "structlog",
    "subprocess", "tempfile", "threading", "time", "uuid", "uvloop", "watchfiles", *PLACES,
}
# fmt: on

PURE_PARTS = {
    "pathlib": {"PurePath", "PurePosixPath"},
    "urllib": {"parse"},
}

# Reasons: ports.py and spider.py name httpx.Response as a type; the simulated world is chance
# under a seed; the contract suite of plugins runs in their authors' tests; the seen-table wants
# memory that is not touched before it is used, and maps no file.
ALLOWED = {
    "zcrawl/fetch/ports.py": {"httpx"},
    "zcrawl/frontier/seen.py": {"mmap"},
    "zcrawl/spider.py": {"httpx"},
    "zcrawl/testing/plugin_contract.py": {"asyncio", "httpx"},
    "zcrawl/testing/": {"random"},
}

# The one place that compiles what a job writes; and a spider's own code, whose patterns are as
# trusted as the code around them and run in a process of its own with a time limit.
EXPRESSIONS = "zcrawl/text/expressions.py"
LAZY_PATTERNS = "zcrawl/text/patterns.py"
OWN_PATTERNS = (EXPRESSIONS, LAZY_PATTERNS, "zcrawl/spider.py")
RE_CALLS = frozenset({
    "compile", "search", "match", "fullmatch", "findall", "finditer", "split", "sub", "subn",
    "lazy_pattern",
})  # fmt: skip
ENGINES = frozenset({"re2", "regex", "fnmatch", "sre_compile", "sre_parse"})

WORLD_CALLS = frozenset({"open", "print", "input"})
CLOCK_CALLS = frozenset({"now", "utcnow", "today"})
# Who may write to stdout or stderr. `output` holds the rule of `zcrawl.text.terminal`, `display`
# draws with it; the other two write to the file of a worker's last words.
PRINTERS = frozenset({
    "zcrawl/cli/output.py", "zcrawl/cli/display.py", "zcrawl/roles/worker_main.py",
    "zcrawl/runtime/nursery.py",
})  # fmt: skip
PRINTING = frozenset({"print", "echo", "secho", "print_exc", "print_exception", "print_tb"})
SLEEPY_FOLDERS = ("integration", "bench", "servers", "web", "faults")

# Assembled, so that this file does not break its own rule.
HOME_FOLDERS = re.compile(r"(?<![\w.:/-])/" + "(?:work|root)" + r"/")
REGISTRIES = tuple(
    ".".join(parts)
    for parts in (("pypi", "org"), ("pythonhosted", "org"), ("deb", "debian", "org"))
)


def is_pure(path: str) -> bool:
    """Whether a module lies in a folder that decides and touches nothing."""
    return not path.startswith(WORLD_FOLDERS)


def purity_complaints(path: str, source: str) -> list[str]:
    """Why a module of zcrawl/ is not what its folder says. `path` is relative to the repository."""
    tree = ast.parse(source)
    complaints = []
    pure = is_pure(path)
    allowed = set().union(*(names for place, names in ALLOWED.items() if path.startswith(place)))
    for line, module, name in _imports(tree, path):
        top = module.partition(".")[0]
        where = f"{path}:{line}"
        if top in PLACES and not path.startswith(PLACES[top]):
            complaints.append(f"{where}: imports {top}; only {' and '.join(PLACES[top])} may")
        elif not pure:
            continue
        elif top in PURE_PARTS:
            part = name or module.partition(".")[2]
            if part not in PURE_PARTS[top] and module.partition(".")[2] not in PURE_PARTS[top]:
                complaints.append(f"{where}: a pure module imports {module} {name}".rstrip())
        elif module == "random" and name not in ("", "Random"):
            complaints.append(f"{where}: imports random.{name} instead of a seeded Random")
        elif top in WORLD and top not in allowed:
            complaints.append(f"{where}: a pure module imports {module}")
        elif top == "zcrawl":
            whole = f"{module}.{name}".replace(".", "/")
            if any(not is_pure(target) for target in (f"{whole}/", f"{whole}.py")):
                complaints.append(f"{where}: a pure module imports {module} {name}".rstrip())
    if pure:
        complaints += [f"{path}:{line}: a pure module {what}" for line, what in _calls(tree)]
    return complaints


def _imports(tree: ast.Module, path: str) -> Iterator[tuple[int, str, str]]:
    """Line, module and imported name of each import, also those inside functions.

    Imports under `if TYPE_CHECKING:` are left out: they touch nothing at run time.
    """
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, ""
        elif isinstance(node, ast.ImportFrom):
            package = path.split("/")[: -node.level] if node.level else []
            module = ".".join([*package, node.module or ""]).strip(".")
            for alias in node.names:
                yield node.lineno, module, alias.name


def _calls(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Calls that read a clock, draw from the shared random stream or touch files and terminal."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        match node.func:
            case ast.Name(id=name) if name in WORLD_CALLS:
                yield node.lineno, f"calls {name}()"
            case ast.Attribute(value=ast.Name(id="random"), attr=name) if name != "Random":
                yield node.lineno, f"calls random.{name}() instead of a seeded Random"
            case (
                ast.Attribute(value=ast.Name(id="datetime" | "date"), attr=name)
                | ast.Attribute(value=ast.Attribute(attr="datetime" | "date"), attr=name)
            ) if name in CLOCK_CALLS:
                yield node.lineno, f"reads the clock with {name}()"
            case _:
                pass


def expression_complaints(path: str, source: str) -> list[str]:
    """Why a module of zcrawl/ might run an expression that somebody else wrote.

    `re` takes exponential time for some patterns, so its patterns are written in the source: a
    literal, or one made of the module's own literals and of numbers (`{n:d}`).
    """
    if path in OWN_PATTERNS:
        return []
    tree = ast.parse(source)
    complaints = []
    for line, module, name in _imports(tree, path):
        top = module.partition(".")[0]
        if top in ENGINES or (top, name) in (("jmespath", "compile"), ("jmespath", "search")):
            complaints.append(f"{path}:{line}: imports {top}; {EXPRESSIONS} compiles expressions")
        if top == "re" and name:
            complaints.append(f"{path}:{line}: write `import re`, so that its use is seen")
    renamed = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == "re" and alias.asname
    ]
    complaints += [f"{path}:{line}: gives `re` another name" for line in renamed]
    written: set[str] = set()
    for statement in tree.body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ) if _is_written(value, written):
                written.add(name)
            case _:
                pass
    called = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        match node:
            case (
                ast.Attribute(value=ast.Name(id="re"), attr=name)
                | ast.Name(id="lazy_pattern" as name)
            ) if name in RE_CALLS:
                call = called.get(id(node))
                if call is None or not call.args or not _is_written(call.args[0], written):
                    complaints.append(f"{path}:{node.lineno}: {name} of a pattern from elsewhere")
            case ast.Attribute(value=ast.Name(id="jmespath"), attr="compile" | "search"):
                complaints.append(f"{path}:{node.lineno}: {EXPRESSIONS} compiles expressions")
            case _:
                pass
    return complaints


def _is_written(pattern: ast.expr, written: set[str]) -> bool:
    """Whether the source itself says what the pattern is."""
    match pattern:
        case ast.Constant():
            return True
        case ast.Name(id=name):
            return name in written
        case ast.JoinedStr(values=parts):
            return all(_is_written(part, written) for part in parts)
        case ast.FormattedValue(format_spec=ast.JoinedStr(values=[ast.Constant(value="d")])):
            return True  # raises for anything but a whole number
        case ast.FormattedValue(value=ast.Name() as name, format_spec=None):
            return _is_written(name, written)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _is_written(left, written) and _is_written(right, written)
        case _:
            return False


def module_complaints(path: str, source: str) -> list[str]:
    """A module or a package of the product that does not say what it is for."""
    if ast.get_docstring(ast.parse(source)) is None:
        return [f"{path}: no module docstring"]
    return []


def package_complaints(path: str, source: str) -> list[str]:
    """A package's `__init__` that has more than its docstring: it would run at every start."""
    if not path.endswith("__init__.py"):
        return []
    others = ast.parse(source).body[1:]
    allowed = path == "zcrawl/__init__.py" and len(others) == 1  # the version
    allowed = allowed or path == "zcrawl/client/__init__.py"  # nothing of zcrawl imports it
    return [f"{path}: more than a docstring"] if others and not allowed else []


def long_parts(path: str, source: str) -> list[str]:
    """What is worth a look: long files and long functions. No rule: some of them are right so."""
    lines = source.count("\n")
    parts = [f"{path}: {lines} lines"] if lines > LONG_FILE else []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > LONG_FUNCTION:
                parts.append(f"{path}:{node.lineno}: {node.name} has {length} lines")
    return parts


def testfile_complaints(path: str, source: str) -> list[str]:
    """Docstrings of tests, sleeping where nothing real has to be waited for, errors of any type,
    and modules that a test replaces as a whole (ruff's PT018: one reason to fail per assert)."""
    complaints = []
    sleepy = PurePosixPath(path).parts[1] in SLEEPY_FOLDERS
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if name.startswith("test_") and ast.get_docstring(node) is None:
                    complaints.append(f"{path}:{node.lineno}: {name} has no docstring")
            case ast.Call(func=ast.Name(id="sleep") | ast.Attribute(attr="sleep")) if not sleepy:
                complaints.append(f"{path}:{node.lineno}: sleeps; pass the time in")
            case ast.Call(
                func=ast.Attribute(attr="raises"),
                args=[ast.Name(id="Exception" | "BaseException"), *_],
            ):
                complaints.append(f"{path}:{node.lineno}: expects any error; name its type")
            case (
                ast.Call(
                    func=ast.Attribute(attr="setitem"),
                    args=[ast.Attribute(value=ast.Name(id="sys"), attr="modules"), *_],
                )
                | ast.Assign(
                    targets=[
                        ast.Subscript(value=ast.Attribute(value=ast.Name(id="sys"), attr="modules"))
                    ]
                )
            ):
                complaints.append(f"{path}:{node.lineno}: replaces a module; replace single names")
            case _:
                pass
    return complaints


def printing_complaints(path: str, source: str) -> list[str]:
    """Ways to a terminal that pass by the one rule for foreign text."""
    if path in PRINTERS:
        return []
    complaints = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in PRINTING:
                complaints.append(f"{path}:{node.lineno}: {name}(); zcrawl.cli.output prints")
            case ast.Call(
                func=ast.Attribute(
                    attr="write" | "writelines",
                    value=ast.Attribute(attr="stdout" | "stderr" | "buffer"),
                )
            ):
                complaints.append(f"{path}:{node.lineno}: writes to a standard stream")
            case _:
                pass
    return complaints


def text_complaints(path: str, text: str) -> list[str]:
    """Names of places that exist on one machine only, or that belong to the installation."""
    complaints = []
    for number, line in enumerate(text.splitlines(), 1):
        if HOME_FOLDERS.search(line):
            complaints.append(f"{path}:{number}: names a folder of one machine")
        complaints += [
            f"{path}:{number}: names the registry host {host}"
            for host in REGISTRIES
            if host in line
        ]
    return complaints


def key_complaints(path: str, text: str) -> list[str]:
    """Keys are made by the rules of a run: nobody makes rules of his own, or keys without any."""
    if path.startswith("zcrawl/frontier/"):
        return []
    complaints = []
    for node in ast.walk(ast.parse(text)):
        made = isinstance(node, ast.Call) and _name_of(node.func) == "CanonicalRules"
        plain = isinstance(node, ast.Attribute) and _name_of(node.value) == "DEFAULT"
        hashed = isinstance(node, ast.alias) and node.name == "url_key"
        if made or plain or hashed:
            line = getattr(node, "lineno", 0)
            complaints.append(f"{path}:{line}: a key without the rules of a run")
    return complaints


# The only module of a worker where a Result is made, in one place.
ATTEMPT = "zcrawl/worker/results/attempt.py"


def result_complaints(path: str, text: str) -> list[str]:
    """What becomes of a page is read in one file: a worker makes its Results in one place."""
    if not path.startswith("zcrawl/worker/"):
        return []
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    made = [
        call.lineno
        for call in calls
        if _name_of(call.func) == "Result"
        # A changed copy is another way to make one.
        or (_name_of(call.func) == "replace" and call.args and _name_of(call.args[0]) == "result")
    ]
    spare = made[1:] if path == ATTEMPT else made
    return [f"{path}:{line}: a Result is made by an Attempt ({ATTEMPT})" for line in spare]


def _name_of(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
