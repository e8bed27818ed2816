"""Spiders without processes: pages, handlers, requests, keys, and who may bring code."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest

from tests.unit.dispatch.test_planner import SPREAD, Office
from tests.unit.machine_tools import LeaderStory, assignment, attempt, grant, run_row, spec
from tests.unit.worker.test_worker_machine import Worker, of, sent, started
from zcrawl.errors import JobError, ParseError
from zcrawl.frontier import extra as extras
from zcrawl.frontier.extra import Extra, request_key
from zcrawl.frontier.url import DEFAULT
from zcrawl.master.snapshot import live_run
from zcrawl.mesh.messages import LINKS_PER_RESULT, Assign, Code, Reject, RunConfig, RunConfigs
from zcrawl.model.extraction import Block, Field
from zcrawl.model.spec import JobSpec, Scope, SpiderLimits
from zcrawl.model.states import Outcome
from zcrawl.spider import Page, Request, Spider, on
from zcrawl.submit.code import check_code, check_engine, code_of
from zcrawl.submit.validate import spec_from_dict
from zcrawl.worker import events as w
from zcrawl.worker.extensions.spider_child import Gathered, load, wanted_of
from zcrawl.worker.results.context import RunContext
from zcrawl.worker.results.spider_requests import asked_of
from zcrawl.worker.spider_protocol import MOST_ITEMS, Load, Wanted

HTML = [("Content-Type", "text/html; charset=latin-1"), ("X-One", "1")]
URL = "http://a.test/dir/page"
SOURCE = b"class Books: pass"
HASH = hashlib.sha256(SOURCE).hexdigest()


# ------------------------------------------------------------ pages and handlers


def test_a_page_is_read_in_its_encoding_and_its_links_are_absolute() -> None:
    """Text, elements, links and the httpx view are the same answer."""
    page = Page(
        URL, 200, HTML, "<title> Caf\xe9  au lait</title><a href='../x#f'>".encode("latin-1")
    )
    assert page.text_of("title") == "Caf\xe9 au lait"
    assert page.text_of("h9", "none") == "none"
    assert page.links == ["http://a.test/x"]
    assert page.join("y?b=1") == "http://a.test/dir/y?b=1"
    assert page.headers["x-one"] == "1"
    assert page.content_type == "text/html"
    assert page.response.status_code == 200
    assert page.response.content == page.body
    with pytest.raises(UnicodeDecodeError):
        page.json()
    with pytest.raises(ValueError, match="Expecting value"):
        Page(URL, 200, [], b"<p>").json()
    assert Page(URL, 200, [], b'{"a": 1}').json() == {"a": 1}


class Kinds(Spider):
    @on(r"/book/")
    def book(self, page: Page) -> None: ...

    @on(type="application/json")
    def data(self, page: Page) -> None: ...

    def named(self, page: Page) -> None: ...


@pytest.mark.parametrize(
    ("url", "kind", "handler", "name"),
    [
        ("http://a.test/book/1", "text/html", "", "book"),
        ("http://a.test/book/1", "application/json", "", "book"),
        ("http://a.test/api", "application/json; charset=utf-8", "", "data"),
        ("http://a.test/", "text/html", "", "parse"),
        ("http://a.test/book/1", "text/html", "named", "named"),
    ],
)
def test_a_page_goes_to_the_handler_of_its_request_or_of_its_kind(
    url: str, kind: str, handler: str, name: str
) -> None:
    """The request's word counts first, then the first kind that fits, then `parse`."""
    page = Page(url, 200, [("content-type", kind)], b"", handler=handler)
    assert getattr(Kinds().handler_for(page), "__name__", "") == name


@pytest.mark.parametrize("name", ["nothing", "__init__", "_kinds", "__class__"])
def test_a_handler_that_is_none_is_named(name: str) -> None:
    """A request can name methods that are meant for it, and no others."""
    with pytest.raises(LookupError, match="has no handler"):
        Kinds().handler_for(Page(URL, 200, [], b"", handler=name))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("subprocess:Popen", b""),
        ("os:system", b""),
        ("zcrawl.spider:Nobody", b""),
        ("f.py:x", b"x = 5"),
        ("f.py:Test", b"class Test: pass"),
    ],
)
def test_only_what_was_written_to_be_a_spider_is_called(name: str, source: bytes) -> None:
    """A job that names some other class or function of an installed package runs nothing."""
    with pytest.raises(LookupError):
        load(Load(name, source, {"args": ["true"]}, 10**9, 0))


def test_what_a_handler_yields_is_gathered_within_limits() -> None:
    """Items become JSON; other things are refused; an endless generator ends."""
    gathered = Gathered()
    gathered.take_all({"one": 1})
    gathered.take_all(Request("/x"))
    gathered.take_all([{"two": 2}, None])
    gathered.take_all(None)
    assert gathered.items == [b'{"one":1}', b'{"two":2}']
    assert len(gathered.requests) == 1
    for wrong in ("text", 5, ["list"], object()):
        with pytest.raises(TypeError, match="yield"):
            gathered.take(wrong)
    with pytest.raises(ValueError, match="at most"):
        gathered.take_all({"n": n} for n in range(10 * MOST_ITEMS))
    with pytest.raises(ValueError, match="at most"):
        Gathered().take_all({"n": "x" * 1_000_000} for _ in range(100))


def test_a_request_becomes_plain_types() -> None:
    """Forms and JSON are POSTs with their content type; a lambda has no name to send."""
    form = wanted_of(Request("/x", form={"a": "b c"}))
    assert (form.method, form.body) == ("POST", b"a=b+c")
    data = wanted_of(Request("/x", json={"a": 1}, method="put", headers={"Content-Type": "x/y"}))
    assert (data.method, data.body, data.headers) == ("PUT", b'{"a":1}', {"Content-Type": "x/y"})
    assert wanted_of(Request("/x", handler=Kinds().named)).handler == "named"
    with pytest.raises(TypeError, match="method"):
        wanted_of(Request("/x", handler=lambda page: None))


# ------------------------------------------------------------ requests on their way


def context(**scope: Any) -> RunContext:
    job = JobSpec(name="x", scope=Scope(**scope))
    return RunContext(RunConfig(1, 1, msgspec.json.encode(job), ["a.test"]))


def spider_request(url: str, **changes: Any) -> Wanted:
    fields = {"method": "GET", "body": b"", "headers": {}, "handler": "", "meta": {}}
    return Wanted(url, **{**fields, "priority": 0, **changes})


def test_requests_are_canonical_keyed_and_held_to_the_scope() -> None:
    """Relative ones are joined, doubles are one, what cannot be is counted by its reason."""
    many = [
        spider_request("next", priority=7),
        spider_request("http://A.test:80/dir/next#x"),
        spider_request("/f.pdf"),
        spider_request("/search", method="POST", body=b"1"),
        spider_request("/search", method="POST", body=b"2"),
        spider_request("http://b.test/"),
        spider_request("ftp://a.test/"),
        spider_request("/x", headers={"Host": "evil"}),
        spider_request("/x", body=b"x" * 70_000),
        spider_request("/x", priority=10**12),
    ]
    requests, refused = asked_of(many, URL, context(), 1)
    assert [(url, prio) for url, _, prio, _ in requests] == [
        ("http://a.test/dir/next", -7),
        ("http://a.test/f.pdf", 0),
        ("http://a.test/search", 0),
        ("http://a.test/search", 0),
        ("http://a.test/x", -1_000),
    ]
    assert len({key for _, key, _, _ in requests}) == 5
    assert refused.dropped == {"out_of_scope_host": 1}
    assert refused.rejected == {
        "unsupported_scheme": 1,
        "bad_header": 1,
        "request_too_large": 1,
    }
    assert asked_of([spider_request("/x")], URL, context(max_depth=0), 1)[1].dropped == {
        "too_deep": 1
    }
    started, _ = asked_of([spider_request("http://b.test/")], None, context(), 0)
    assert started, "what start yields is taken as seeds are"


def test_a_plain_get_has_the_key_of_a_found_link() -> None:
    """So that a spider and a link to the same page are one request; others differ by all of it."""
    assert request_key(URL, Extra(handler="x", meta={"a": 1}), DEFAULT) == DEFAULT.key(URL)
    keys = {
        request_key(URL, Extra(method, body), DEFAULT)
        for method in ("POST", "PUT")
        for body in (b"", b"1")
    }
    assert len(keys | {DEFAULT.key(URL)}) == 5
    assert extras.encode(Extra()) == b""
    assert extras.decode(b"") == Extra()
    with pytest.raises(ParseError):
        extras.decode(b"\xc1")


def test_many_requests_travel_in_parts() -> None:
    """Rule `many links` holds for requests of spiders: all of them, once, the page last."""
    requests = [(f"http://a.test/{n}", bytes(16), 0, b"") for n in range(2 * LINKS_PER_RESULT + 3)]
    several = attempt(1, requests=requests, items=[b"{}"]).results()
    assert [result.outcome for result in several] == [Outcome.PART, Outcome.PART, Outcome.DONE]
    assert [r for result in several for r in result.requests] == requests
    assert [len(result.items) for result in several] == [0, 0, 1]


# ------------------------------------------------------------ code and who lacks it


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"spider": "no name"}, "spider 'no name': write"),
        ({"spider": "../x.py:Books"}, "a spider in a file needs its code"),
        ({"spider": "books:Books", "code": code_of(SOURCE, "b.py")}, "in a package must have none"),
        ({"code": code_of(SOURCE, "b.py")}, "but no spider"),
        (
            {"spider": "b.py:Books", "code": code_of(b"x = 1 #" + b"x" * 600_000, "b.py")},
            "file has 600007 bytes; at most 500000",
        ),
        ({"spider": "b:Books", "spider_limits": SpiderLimits(timeout=0)}, "limits.timeout is 0"),
        ({"spider": "b:Books", "spider_limits": SpiderLimits(memory=5)}, "limits.memory is 5"),
        ({"spider": "b:Books", "spider_args": {"x": "y" * 60_000}}, "spider_args is too large"),
        ({"middlewares": ("a b",)}, "middlewares: 'a b' is not a plugin's name"),
    ],
)
def test_a_job_that_says_nonsense_of_its_spider_is_refused(
    changes: dict[str, Any], message: str
) -> None:
    """Before anything is stored, with what is wrong."""
    with pytest.raises(JobError, match=message):
        check_code(JobSpec(name="x", **changes))


def test_rules_that_nobody_would_use_are_refused() -> None:
    """Rules beside a spider, which reads all pages; a schema for items of one shape."""
    rules = (Block(fields={"title": Field(css="h1")}),)
    with pytest.raises(JobError, match="the spider reads the pages"):
        check_code(JobSpec("x", spider="a.b:C", extract=rules))
    with pytest.raises(JobError, match="this job has none of them"):
        check_code(JobSpec("x", schema={"required": ["title"]}))
    check_code(JobSpec("x", extract=rules, schema={"required": ["title"]}))


def test_engines_may_be_plugins_but_not_typing_errors() -> None:
    """`htpp` is told; a name like no other is taken for a plugin's."""
    check_engine("warp", ("http", "httpx"))
    for wrong in ("htpp", "HTTP", "a b", ""):
        with pytest.raises(JobError):
            check_engine(wrong, ("http", "httpx"))
    with pytest.raises(JobError, match="not valid Python"):
        code_of(b"def x(:", "x.py")


def told_worker(code: str = HASH) -> Worker:
    worker = Worker()
    worker.welcome(grant())
    worker.say(RunConfigs([RunConfig(2, 1, b"{}", [], code=code)]))
    return worker


@pytest.mark.parametrize("name", ["files", "stamp", "lines", "folder"])
def test_options_belong_to_a_plugin_that_the_job_uses(name: str) -> None:
    """An engine, a middleware, a parser, a store; a typing error is told with the nearest name."""
    used = {
        "name": "x",
        "fetch": {"engine": "files"},
        "middlewares": ["stamp"],
        "parsers": ["lines"],
        "output": {"to": ["plugin:folder"]},
    }
    spec = spec_from_dict({**used, "plugins": {name: {"key": 1}}}, "job")
    assert spec.plugins == {name: {"key": 1}}
    with pytest.raises(JobError, match=f"did you mean '{name}'"):
        spec_from_dict({**used, "plugins": {f"{name}x": {}}}, "job")
    with pytest.raises(JobError, match=r"plugins\.http: no middleware") as refused:
        spec_from_dict({"name": "x", "plugins": {"http": {}}}, "job")
    assert refused.value.code == "unused_options"


def test_a_worker_takes_only_code_whose_hash_it_was_told() -> None:
    """Not announced, or not what its hash says: refused, noted, and its pages are rejected."""
    worker = told_worker()
    assign = Assign([], [assignment(1, 1, run=2)])
    (rejected,) = sent(worker.say(assign), Reject)
    assert rejected.leases[0].reason == "no_code"
    other = b"import os"
    for lie in (Code(hashlib.sha256(other).hexdigest(), other), Code(HASH, other)):
        effects = worker.say(lie)
        assert [note.name for note in of(effects, w.Note)] == ["code_refused"]
        assert not of(effects, w.AdoptCode)
    assert of(worker.say(Code(HASH, SOURCE)), w.AdoptCode)
    assert started(worker.say(Assign([], [assignment(2, 1, run=2)]))) == [1]


def test_a_worker_rejects_what_it_lacks_by_name_and_gives_back_what_waits() -> None:
    """The leader learns the name, and may give the request to somebody else."""
    worker = Worker(slots=1)
    worker.welcome(grant())
    worker.assign(1, 2)
    effects = worker.handle(w.RunLacks(1, "middleware 'stamp'"))
    (rejected,) = sent(effects, Reject)
    assert [(rejection.reason, rejection.lacks) for rejection in rejected.leases] == [
        ("lacks", "middleware 'stamp'")
    ]
    (again,) = sent(worker.assign(3), Reject)
    assert (again.leases[0].reason, again.leases[0].lacks) == ("lacks", "middleware 'stamp'")


def test_a_run_goes_to_the_worker_that_has_what_it_needs() -> None:
    """Its hosts move there; when nobody has it, its rows wait and other runs go on."""
    office = Office(SPREAD, workers=2)
    office.runs.put(run_row(2, spec(SPREAD)))
    office.add(8, host=1, run=1)
    office.roster.workers["w1"].lacks[1] = "spider 'x'"
    office.planner.worker_lacks(1)
    first = office.plan()
    assert {name for name, _ in first} == {"w2"}
    for _, url in first:
        office.receive(url.seq)
    office.roster.workers["w2"].lacks[1] = "spider 'x'"
    office.planner.worker_lacks(1)
    office.add(4, host=1, run=1)
    office.add(4, host=1, run=2)
    assert {url.run for _, url in office.plan(1.0)} == {2}
    office.join("w3")
    office.plan(1.0)
    for name, part in list(office.planner.hosts[1].parts.items()):
        office.planner.granter.confirm(name, 1, part.revision, office.now)
    assert {name for name, url in office.plan(1.0) if url.run == 1} == {"w3"}


def test_the_job_says_what_it_waits_for() -> None:
    """Once all workers have rejected it by the same name."""
    story = LeaderStory().elect()
    story.submit("http://a.test/1")
    story.join()
    story.tick()
    (info,) = story.leader.state.roster.workers.values()
    assert story.leader.current_snapshot(story.now).runs[0].reason == ""
    info.lacks[1] = "spider 'books:Books'"
    (run,) = story.leader.current_snapshot(story.now).runs
    assert run.reason == run.waits == "waiting: no live worker has spider 'books:Books' yet"
    live = live_run(story.leader.state, 1, now=story.now)
    assert (live.waiting, live.missing) == (run.reason, "spider 'books:Books'")
