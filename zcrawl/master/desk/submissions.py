"""What clients submit: a job with a run, a stored job once more, only a spec, more seeds.

A part of the desk. A submission is checked with the rights of this leader, its parameters are
filled in, and it becomes one command. After the commit, its rows are admitted and its client gets
the reply.
"""

from __future__ import annotations

from typing import Any

import msgspec

from zcrawl.dispatch.placement import can_serve, why_unplaced
from zcrawl.errors import RefusedError
from zcrawl.frontier.scope import canonical_rules
from zcrawl.frontier.url import CANONICAL_VERSION
from zcrawl.master.desk import actions, ownership, reads, replies
from zcrawl.master.desk import seeds as seed_lists
from zcrawl.master.desk.arguments import Arguments
from zcrawl.master.desk.audit import entry_of
from zcrawl.master.desk.replies import OpenRequests, Pending
from zcrawl.master.events import Ask, Execute, MasterEffects
from zcrawl.master.leader_state import LeaderState
from zcrawl.model.reasons.cluster import (
    BAD_REQUEST,
    NOT_LIVE,
    RUN_IS_ALIVE,
)
from zcrawl.model.reasons.usage import NO_SEEDS
from zcrawl.model.reasons.waiting import CANONICAL_VERSION as CANONICAL_CODE
from zcrawl.model.rows import HeldSubmission, NewLink
from zcrawl.model.spec import JobSpec
from zcrawl.schedule.defaults import filled as with_defaults
from zcrawl.schedule.overlap import ALLOW, CANCEL, DEFAULT_FOR_SUBMISSIONS, QUEUE
from zcrawl.store.commands import (
    AddSeeds,
    StartFacts,
    SubmitJob,
    Submitted,
)
from zcrawl.store.queries import (
    FindJob,
    JobList,
)
from zcrawl.submit.code import begins_by_itself, with_code_right
from zcrawl.submit.differences import fixed_keys
from zcrawl.submit.outputs import refuse_login
from zcrawl.submit.params import filled, filled_seeds, merged
from zcrawl.submit.private import opened_by, with_right
from zcrawl.submit.read import to_json
from zcrawl.submit.resources import check_beside
from zcrawl.submit.schedule import check_future
from zcrawl.submit.shell_rights import with_shell_right
from zcrawl.submit.stored import check_right
from zcrawl.submit.validate import check, spec_from_dict
from zcrawl.telemetry.views import (
    is_visible,
)


class Submissions:
    def __init__(self, state: LeaderState, requests: OpenRequests) -> None:
        self._state, self._requests = state, requests

    def submit(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        args = pending.args
        if args.get("mode") == "again":  # it runs what is stored: look at that first
            by_name = args.get("ref") is not None
            name = args.text("ref") if by_name else _spec_of(args).name
            effects.append(Ask(FindJob(name), pending.request.id))
        else:
            self._submit_now(pending, now, effects)

    def submit_again(
        self, pending: Pending, job_list: JobList, now: float, effects: MasterEffects
    ) -> None:
        """Go on with a submission in the mode `again`, with the job that is stored."""
        spec = None
        if pending.args.get("ref") is not None:
            ownership.check_owner(pending.request, reads.the_job(job_list, pending.request))
        for stored in filter(is_visible, job_list.jobs):
            spec = check_right(stored.spec, self._state.allow_code, self._state.shell)
        self._submit_now(pending, now, effects, spec)

    def _submit_now(
        self,
        pending: Pending,
        now: float,
        effects: MasterEffects,
        stored: JobSpec | None = None,
    ) -> None:
        """`stored`: the spec that the job has, if that is what runs."""
        args = pending.args
        spec = stored if stored is not None and args.get("ref") is not None else _spec_of(args)
        # On a cluster a typed URL opens nothing, whatever a client sends.
        opened = opened_by(args) if self._state.vouches else ()
        spec = with_right(spec, opened, self._state.allow_private)
        with_code_right(spec, self._state.allow_code)
        with_shell_right(spec, self._state.shell)
        for used in (spec,) if stored is None else (spec, stored):
            ownership.check_rights(pending.request, used)
            if self._state.vouches:  # embedded: such secrets go to the seeds' hosts
                ownership.check_secrets(pending.request, to_json(used))
        self._state.secrets.check_lines(to_json(spec))
        utc = self._state.utc(now)
        if stored is None:
            check_future(with_defaults(spec.schedule, self._state.schedule_defaults), utc)
        definition = spec if stored is None else with_right(stored, (), self._state.allow_private)
        values = merged(definition, actions.given_params(args))
        run = filled(definition, values)
        if definition.params:
            check(run)
            with_shell_right(run, self._state.shell)
        quotas = self._state.quotas.get(pending.request.by)
        ownership.check_rate(pending.request, run, quotas)
        rules = canonical_rules(run.scope, CANONICAL_VERSION)
        typed = filled_seeds(definition, args.sequence("seeds"), values)
        check_beside(run, typed)
        seeds = seed_lists.read(typed or list(run.own_seeds), rules, takes_ids=run.takes_ids)
        seed_hosts = seed_lists.netlocs(seeds)
        listed = seed_lists.read(list(run.sitemaps.urls), rules)
        seeds += tuple(link.as_sitemap() for link in listed)
        fed = bool(run.seeds_from.job)
        starts = bool(run.spider) or (begins_by_itself(run, seeds) and not fed)
        if args.get("ref") is not None and not (seeds or starts or fed or args.get("seeding")):
            raise RefusedError(
                f"job {spec.name!r} has no seeds of its own; give them again: --seeds FILE",
                code=NO_SEEDS,
            )
        by_owner = not pending.request.role
        output = self._state.outputs.settle(spec, args.get("output"), by_owner=by_owner)
        refuse_login(output[0] if output else "")
        if args["mode"] not in ("new", "update", "again"):
            raise RefusedError(f"unknown mode {args['mode']!r}", code=BAD_REQUEST)
        command = SubmitJob(
            epoch=self._state.epoch,
            request=pending.request.id,
            name=spec.name,
            spec=to_json(spec),
            mode=args["mode"],
            seeds=self._state.own(
                (*seeds, seed_lists.start(rules)) if starts else seeds, to_json(run), rules.version
            ),
            seed_hosts=seed_hosts,
            seeding=bool(args.get("seeding")),
            output=output,
            now=utc,
            by=pending.request.by,
            via=pending.request.via or self._state.me,
            canonical=rules.version,
            start=not (args.get("no_run") or args.get("live")),
            live=self._live_specs(definition) if args.get("live") else (),
            start_facts=StartFacts(params=msgspec.json.encode(values) if values else b""),
            cancels=self._replaced(pending, definition),
            run_spec=to_json(run) if definition.params else b"",
            hold=self._hold(pending, definition, typed, values, output, utc),
            only_owner=ownership.limit_of(pending.request),
            quotas=quotas,
            audit=entry_of(pending.request, self._state.me, utc),
        )
        effects.append(Execute(command))

    def _hold(
        self,
        pending: Pending,
        definition: JobSpec,
        seeds: list[Any],
        values: dict[str, str],
        output: tuple[str, str] | None,
        utc: float,
    ) -> HeldSubmission | None:
        """Return what the store keeps of a submission if it has to wait; None: it never waits."""
        args = pending.args
        at_once = any(args.get(flag) for flag in ("restart", "no_run", "live"))
        if at_once or args["mode"] == "new" or definition.schedule.overlap != QUEUE:
            return None
        params = msgspec.json.encode(values) if values else b""
        return HeldSubmission(0, utc, pending.request.by, tuple(seeds), params, output)

    def _live_specs(self, definition: JobSpec) -> tuple[tuple[int, bytes], ...]:
        """Return the new spec of each live run of the job. RefusedError if a key differs that
        cannot change while a run is alive."""
        specs = []
        for run in self._live_runs(definition.name):
            row = self._state.runs.active[run].row
            values = msgspec.json.decode(row.params, type=dict[str, str]) if row.params else {}
            spec = to_json(filled(definition, merged(definition, values)))
            fixed = fixed_keys(row.spec, spec)
            if fixed:
                raise RefusedError(
                    f"{', '.join(fixed[:5])} cannot change while run {run} is alive; submit with "
                    "--restart, or without --live to leave that run as it is",
                    code=NOT_LIVE,
                )
            specs.append((run, spec))
        return tuple(specs)

    def _replaced(self, pending: Pending, definition: JobSpec) -> tuple[int, ...]:
        """Return the live runs that a submission cancels. RefusedError if the job's overlap does
        not allow another run beside them; without an overlap, a submission starts one."""
        args, live = pending.args, self._live_runs(definition.name)
        if args.get("live"):
            return ()
        if not live or args.get("restart"):
            return live
        policy = definition.schedule.overlap or DEFAULT_FOR_SUBMISSIONS
        if args["mode"] != "again" or policy in (ALLOW, QUEUE):
            return ()  # `queue`: the store decides
        if policy == CANCEL:
            return live
        raise RefusedError(
            f"run {live[0]} of {definition.name!r} is alive, and the job's overlap is {policy!r}; "
            "submit it again after the end of that run, or with --restart",
            code=RUN_IS_ALIVE,
        )

    def _live_runs(self, name: str) -> tuple[int, ...]:
        active = self._state.runs.active
        return tuple(run for run in active if active[run].row.name == name)

    def add_seeds(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        args = pending.args
        run, urls = args.integer("run"), args.sequence("seeds")
        active = self._state.runs.get(run)
        if active is not None and not active.rules.are_known:
            raise RefusedError(active.waits, code=CANONICAL_CODE)
        # A run that memory does not have has ended or never was: the store says which.
        seeds: tuple[NewLink, ...] = ()
        if active is not None:
            check_beside(active.spec, urls)
            seeds = seed_lists.read(urls, active.rules, takes_ids=active.spec.takes_ids)
            seeds = self._state.own(seeds, active.row.spec, active.row.canonical)
        command = AddSeeds(
            epoch=self._state.epoch,
            request=pending.request.id,
            run=run,
            seeds=seeds,
            seed_hosts=seed_lists.netlocs(seeds),
            last=bool(args["last"]),
            now=self._state.utc(now),
            only_owner=ownership.limit_of(pending.request),
            quotas=self._state.quotas.get(pending.request.by),
            by=pending.request.by,
        )
        effects.append(Execute(command))

    def submitted(
        self, pending: Pending, done: Submitted, now: float, effects: MasterEffects
    ) -> bool:
        """True when the stored answer says more than memory knows: reload."""
        if done.refused:
            error = replies.refusal(done.refused, done.job, done.run, done.why)
            self._requests.refuse(pending, error, effects)
            return False
        for changed in (*done.cancelled, *done.changed):
            self._state.put_run(changed, now, effects)
        if done.row is not None and not (done.repeated and done.row.state.ended):
            # Also a repeated one: its client may add seeds before the reload has read the run.
            self._state.put_run(done.row, now, effects)
            if not done.repeated and not done.row.state.ended:
                self._state.admit(done.admitted, done.hosts, now)
        data: dict[str, Any] = {"job": done.job, "run": done.run, "admitted": len(done.admitted)}
        if done.held_run:
            data |= {"held": True, "held_run": done.held_run, "after": done.after}
        if done.changed:
            data["changed"] = len(done.changed)
        active = self._state.runs.get(done.run)
        if active is not None:
            usable = [info for info in self._state.roster.workers.values() if info.usable]
            data["workers"] = sorted(info.id for info in usable if can_serve(active, info))
            data["waits"] = why_unplaced(active, usable)
        self._requests.reply(pending, data, effects)
        return done.repeated  # its rows were admitted by a commit whose answer was lost


def _spec_of(args: Arguments) -> JobSpec:
    return spec_from_dict(args.table("spec"), "submission")
