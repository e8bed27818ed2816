"""Check what must be true in a simulated world when its runs have ended, whatever happened."""

from __future__ import annotations

import itertools
import json
from collections import Counter

from zcrawl.model.reasons.registry import find_reason
from zcrawl.model.reasons.skip import DUPLICATE, MAX_PAGES, REDIRECT_TARGET, UNCHANGED
from zcrawl.model.states import RequestState
from zcrawl.submit.outputs import part_path
from zcrawl.testing.web import Visit
from zcrawl.testing.world import World

SLACK_S = 1e-6
LOOKED_AT = (200, 301, 304, 404)  # answers that say how a page is


def verify(world: World) -> None:
    world.store.check()
    submissions_survive(world)
    epochs_never_go_back(world)
    for _, run in world.answered:
        every_url_is_final(world, run)
        every_page_is_there_once(world, run)
        every_final_page_is_there_once(world, run)
        every_link_was_admitted(world, run)
        every_item_is_in_its_file_once(world, run)
    world.tasks.verify()
    world.operators.check()
    hosts_are_treated_politely(world)
    groups_are_treated_politely(world)
    history_counts_no_page_twice(world)


def history_counts_no_page_twice(world: World) -> None:
    """The charts' rows have each page at most once, whoever led and whatever the store answered,
    and the rows of minutes are the sums of the rows of ten seconds."""
    sums: Counter[int] = Counter()
    for (step, _), entry in world.store.tables.history.items():
        sums[step] += entry.cluster.pages
        of_runs = sum(counts.pages for counts in entry.runs.values())
        of_hosts = sum(counts.pages for counts in entry.hosts.values())
        assert entry.cluster.pages == of_runs == of_hosts, "a page is of a run and of a host"
    assert len(set(sums.values())) <= 1, f"the rows of minutes are not the sums: {sums}"
    done = sum(run.done for run in world.store.tables.runs.values())
    assert sums[10] <= done, f"{sums[10]} pages in the history, {done} are done"


def history_has_every_page(world: World) -> None:
    """Without a fault, what is not in the rows yet is what the leader has counted since."""
    stored = sum(
        entry.cluster.pages for (step, _), entry in world.store.tables.history.items() if step == 10
    )
    leaders = [master.machine.leader for master in world.masters.values()]
    counted = sum(leader.state.watch.recorder.pages for leader in leaders if leader is not None)
    done = sum(run.done for run in world.store.tables.runs.values())
    assert stored + counted == done, f"{stored} stored and {counted} counted of {done} pages"


def submissions_survive(world: World) -> None:
    """G1: every answered submission is stored."""
    stored = {row.id for row in world.store.runs()}
    assert {run for _, run in world.answered} <= stored, "an answered submission is lost"


def epochs_never_go_back(world: World) -> None:
    """G4: every commit has the highest epoch so far."""
    epochs = world.applied_epochs
    assert epochs == sorted(epochs), "an older leader committed after a newer one"


def every_url_is_final(world: World, run: int) -> None:
    """G2: done, dead or skipped, and with its reason."""
    row = next(row for row in world.store.runs() if row.id == run)
    most = world.faults.max_pages
    if row.reason == MAX_PAGES:
        assert row.counters.done == most, "max_pages is reached exactly"
        return  # the rest derives skipped, and is swept later
    assert most is None or row.counters.done < most, "a run ends at max_pages"
    for request in world.store.requests(run):
        assert request.state is not RequestState.QUEUED, f"{request.url} is not final"
        if request.state is not RequestState.DONE:
            assert request.reason, f"{request.url} has no reason"
        if request.reason:
            assert find_reason(request.reason), f"{request.reason} is not a registered reason"
        page = world.web.pages[request.url]
        good = not (
            page.dead or page.poison or page.kills or page.second_fails or page.redirects_to
        )
        if good and request.seq not in world.spoilt:
            by_redirect = request.reason == REDIRECT_TARGET  # see every_final_page_is_there_once
            ended = request.state is RequestState.DONE or by_redirect
            assert ended, f"{request.url} ended {request.reason}"


def every_page_is_there_once(world: World, run: int) -> None:
    """G3: one item for each done request, and none for another; none if it did not change."""
    urls = Counter(json.loads(item.data)["url"] for item in world.store.items(run))
    done = {
        request.url
        for request in world.store.requests(run)
        if request.state is RequestState.DONE and request.reason != UNCHANGED
    }
    assert set(urls) == done, "items and done pages differ"
    assert all(count == 1 for count in urls.values()), "an item is there twice"


def every_item_is_in_its_file_once(world: World, run: int) -> None:
    """G3: in the parts that `job` names, on the disk of the master that it names, in order."""
    (output,) = (row for row in world.store.tables.outputs.values() if row.run == run)
    ids: list[int] = []
    for place in output.progress.places:
        disk = world.outputs.disks[place.master]
        for part in range(place.first, place.last + 1):
            name = part_path(output.path, part, world.outputs.rotates > 0)
            assert name in disk.files, f"{place.master} has no {name}"
            ids += disk.files[name]
    stored = [item.id for item in world.store.items(run)]
    assert ids == stored, f"the file of run {run} has {ids}, the store has {stored}"


def every_final_page_is_there_once(world: World, run: int) -> None:
    """Each page counts once, whether it was requested or a redirect led to it. If a request is
    skipped because another request has its page, the page is not lost."""
    requests = world.store.requests(run)
    rows = {request.url: request for request in requests}
    given = Counter(
        world.web.landing(request.url) for request in requests if request.state is RequestState.DONE
    )
    twice = [url for url, count in given.items() if count > 1]
    assert not twice, f"{twice} are there twice, by redirects"
    row = next(row for row in world.store.runs() if row.id == run)
    if row.reason == MAX_PAGES:
        return  # what would have given a page may not have been fetched
    for request in requests:
        skipped_for_it = request.reason == REDIRECT_TARGET or request.reason.startswith(DUPLICATE)
        final = world.web.landing(request.url)
        if skipped_for_it and final is not None and final not in given:
            page = world.web.pages[final]
            target = rows.get(final)
            assert target is not None, (
                f"{final} is not in the run; {request.url} was skipped for it"
            )
            may_fail = page.second_fails or target.seq in world.spoilt
            failed = target.state is RequestState.DEAD and may_fail
            assert failed, f"{final} is lost: {request.url} was skipped for it"


def every_link_was_admitted(world: World, run: int) -> None:
    """G2: the links of the version that was committed are in the run, each once."""
    admitted = Counter(request.url for request in world.store.requests(run))
    assert all(count == 1 for count in admitted.values()), "a URL was admitted twice"
    for item in world.store.items(run):
        data = json.loads(item.data)
        for link in world.web.links_of(data["final"], data["version"]):
            assert link in admitted, f"{link} of {data['url']} is lost"


def hosts_are_treated_politely(world: World) -> None:
    """G5: never more than `concurrency` at a time, and never two starts within an interval."""
    by_host: dict[str, list[Visit]] = {}
    for visit in world.web.visits:
        by_host.setdefault(visit.host, []).append(visit)
    politeness = world.politeness
    for host, visits in by_host.items():
        _no_more_than(politeness.concurrency, visits, host)
        if world.divides_hosts:
            _no_faster_than(politeness.rate, visits, host)
        elif not politeness.spread:
            _no_nearer_than(politeness.rate, visits, host)


def groups_are_treated_politely(world: World) -> None:
    """The limits per registered domain and per address hold for all workers together."""
    politeness = world.politeness
    by_address: dict[str, list[Visit]] = {}
    for visit in world.web.visits:
        by_address.setdefault(visit.address, []).append(visit)
    _no_more_than(politeness.domain_concurrency, world.web.visits, "the domain")
    _no_nearer_than(politeness.domain_rate, world.web.visits, "the domain")
    for address, visits in by_address.items():
        _no_more_than(politeness.address_concurrency, visits, address)
        _no_nearer_than(politeness.address_rate, visits, address)


def _no_more_than(most: int, visits: list[Visit], of: str) -> None:
    """Assert that at most `most` visits run at the same time; 0: no limit."""
    running: list[Visit] = []
    for visit in visits if most else ():
        running = [
            earlier_visit
            for earlier_visit in running
            if earlier_visit.ended is None or earlier_visit.ended > visit.started + SLACK_S
        ]
        running.append(visit)
        assert len(running) <= most, f"{len(running)} requests to {of}: {running}"


def _no_nearer_than(rate: float, visits: list[Visit], of: str) -> None:
    for visit, other in itertools.pairwise(visits if rate else ()):
        apart = other.started - visit.started
        assert apart >= 1 / rate - SLACK_S, f"{of}: {visit} and {other} are {apart} s apart"


def _no_faster_than(rate: float, visits: list[Visit], of: str) -> None:
    """Assert that workers that share a host keep its rate together, in each 20 seconds."""
    span_s, starts = 20.0, [visit.started for visit in visits]
    for at, start in enumerate(starts if rate else ()):
        number = sum(start <= other < start + span_s for other in starts[at:])
        most = rate * span_s + 8  # each worker's first request, and while parts change
        assert number <= most, f"{of}: {number} requests in {span_s} s from {start} on"


def nothing_was_fetched_twice(world: World) -> None:
    """Rule `takeover`: requests of live workers are adopted, not repeated. For worlds in which no
    worker ever died or was cut off."""
    pages = world.web.pages
    fetched = Counter(visit.url for visit in world.web.visits if visit.url in pages)
    world.tasks.none_ran_twice()
    runs = len(world.answered)
    for url, count in fetched.items():
        page = world.web.page_behind(url)
        assert count <= runs + page.fails_first, f"{url} was fetched {count} times"


def leadership_never_changed(world: World) -> None:
    """For worlds in which nothing happens to masters, lock and store: whatever workers say, the
    first leader leads to the end."""
    epochs, falls = set(world.applied_epochs), [what for _, what in world.trace if "step" in what]
    assert epochs == {1} and not falls, f"leadership changed: epochs {epochs}, {falls}"


def only_lost_attempts_are_overdue(world: World) -> None:
    """However long workers sleep, hosts wait and leaders change: no attempt that a worker still has
    is taken from it. A fetch takes 6 s at most here, the leaders' patience is above 18 s."""
    for at, what in world.trace:
        if " lease_overdue " in what:
            lost = world.fetches.lost.intersection(what.split())
            assert lost, f"{at}: {what}, and nobody has lost it"


def known_pages_are_looked_at_once(world: World) -> None:
    """For worlds whose job remembers its pages and checks all of them in every run: a page of an
    earlier run is in the next one, once, and each check of a page is counted once."""
    tables = world.store.tables
    looks: Counter[str] = Counter()
    runs = [tables.runs[run] for _, run in world.answered]
    for run in runs:
        requests = world.store.requests(run.id)
        url_counts = Counter(request.url for request in requests)
        assert all(count == 1 for count in url_counts.values()), "a page is in a run twice"
        unchanged = [request for request in requests if request.reason == UNCHANGED]
        assert run.unchanged == len(unchanged), "unchanged pages are miscounted"
        for earlier in runs:
            if earlier.ended_at and earlier.ended_at < run.created_at and run.reason != MAX_PAGES:
                for request in world.store.requests(earlier.id):
                    kept = request.state is RequestState.DONE and request.url not in _gone(world)
                    assert not kept or request.url in url_counts, f"{request.url} is forgotten"
        looks.update(request.url for request in requests if request.status in LOOKED_AT)
        looks.update(request.url for request in requests if request.reason == REDIRECT_TARGET)
    (pages_by_key,) = tables.known_pages.values()
    checks = {
        known_page.row.url: known_page.page.checks
        for known_page in pages_by_key.values()
        if known_page.page.checks
    }
    assert checks == dict(looks), "a look at a page is not counted, or twice"


def _gone(world: World) -> set[str]:
    return {url for url, page in world.web.pages.items() if page.dead or page.second_fails}
