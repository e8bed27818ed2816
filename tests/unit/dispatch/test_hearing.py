"""A worker that is heard and does not hear: two losses in a row, suspect, lost, and back again."""

from __future__ import annotations

from tests.unit.machine_tools import LeaderStory, hello, result_of, route_of, urls
from zcrawl.dispatch.roster import PATIENCE_S, Hearing
from zcrawl.mesh.messages import Accept, Beat, Bye, Rehello, Reject, Rejection, Stale, Welcome
from zcrawl.mesh.timing import HEARTBEAT_S, LOST_AFTER, PERMISSION_S
from zcrawl.model.states import NodeState

HOSTS = urls(3, "a.test") + urls(3, "b.test") + urls(3, "c.test")


def state(story: LeaderStory, worker: str = "w1") -> NodeState:
    return story.leader.state.roster.workers[worker].state


def names(story: LeaderStory) -> set[str]:
    return {note.name for note in story.notes}


class Deafness:
    """A leader with a worker whose line swallows everything from now on."""

    def __init__(self, *others: str) -> None:
        self.story = LeaderStory().elect()
        self.story.join("w1")
        self.heard = self.story.heard("w1")
        self.others = others
        self.done: set[int] = set()
        self.story.submit(*HOSTS)

    def lives_on(self) -> None:
        """Its heartbeats come; everybody else works."""
        self.story.beat("w1", heard=self.heard)
        self.others_work()

    def others_work(self) -> None:
        for name in self.others:
            self.story.beat(name)
            for assignment in self.story.assigned(name):
                if assignment.seq not in self.done:
                    self.done.add(assignment.seq)
                    self.story.publish(result_of(assignment), name)

    def until_deaf(self) -> float:
        """The moment at which the leader noticed."""
        for _ in range(200):
            self.lives_on()
            if self.story.leader.state.roster.workers["w1"].deaf:
                return self.story.now
            self.story.tick(0.25)
        raise AssertionError("nobody noticed")


# ---------------------------------------------------------------- counting


def test_a_loss_is_a_message_that_no_heartbeat_covers_in_time() -> None:
    """The second is one of something that was sent after the first was noticed: then it is deaf."""
    hearing = Hearing()
    hearing.joined()
    for _ in range(3):
        hearing.next_number()
    assert not hearing.heartbeat_reported(0, 10.0), "from here the clock runs"
    assert not hearing.heartbeat_reported(0, 10.0 + PATIENCE_S)
    assert hearing.losses == 0
    assert not hearing.heartbeat_reported(0, 10.1 + PATIENCE_S)
    assert hearing.losses == 1
    for second in range(60):
        assert not hearing.heartbeat_reported(0, 20.0 + second), (
            "nothing was sent since: no second loss"
        )
    hearing.next_number()
    assert not hearing.heartbeat_reported(0, 90.0)
    assert hearing.heartbeat_reported(0, 90.1 + PATIENCE_S)
    assert hearing.deaf
    hearing.check()


def test_what_was_sent_before_a_hello_is_not_a_loss() -> None:
    """The worker began anew, and will never report those numbers."""
    hearing = Hearing()
    for _ in range(3):
        hearing.next_number()
    hearing.joined()
    for moment in (10.0, 20.0, 30.0):
        assert not hearing.heartbeat_reported(0, moment)
    assert hearing.losses == 0


def test_whatever_arrives_ends_the_row() -> None:
    """A later message that came in shows that the line works, though an earlier one was lost."""
    hearing = Hearing()
    hearing.joined()
    now = 10.0
    for _ in range(20):
        hearing.next_number()
        hearing.heartbeat_reported(hearing.heard, now)
        now += PATIENCE_S + 0.1
        assert not hearing.heartbeat_reported(hearing.heard, now)
        assert hearing.losses == 1
        assert not hearing.heartbeat_reported(hearing.next_number(), now)
        assert hearing.losses == 0
        now += 1.0
        hearing.check()


def test_nobody_has_heard_more_than_was_said() -> None:
    """A number from nowhere is cut to what was sent, so it cannot hide later losses."""
    hearing = Hearing()
    hearing.joined()
    number = hearing.next_number()
    assert not hearing.heartbeat_reported(1 << 60, 10.0)
    assert hearing.heard == number
    hearing.check()


# ---------------------------------------------------------------- what becomes of the worker


def test_after_two_losses_in_a_row_a_worker_is_suspect_and_gets_no_work() -> None:
    """One loss is bad luck: its requests go to it again. After the second it is asked to greet."""
    deaf = Deafness()
    deaf.until_deaf()
    story = deaf.story
    assert state(story) is NodeState.SUSPECT
    assert "worker_deaf" in names(story)
    reply = story.ask("nodes")
    assert reply is not None
    assert [row["deaf"] for row in reply.data["workers"]] == [True]
    assert "assignment_lost" in names(story)
    given = len(story.assigned("w1"))
    assert given > len(HOSTS), "the first time they came back to the same worker"
    story.wait(5.0, deaf.lives_on)
    assert len(story.assigned("w1")) == given
    assert story.bodies(Rehello, "w1")[-1] == Rehello("deaf", 1)


def test_beats_do_not_list_a_deaf_worker_so_its_permission_ends() -> None:
    """Rule `permission`: the echo is the permission. It is lost when that is over for sure, not
    earlier."""
    deaf = Deafness()
    noticed_at = deaf.until_deaf()
    story = deaf.story
    story.published.clear()
    lost_at = None
    while lost_at is None:
        deaf.lives_on()
        story.tick(0.25)
        if state(story) is NodeState.LOST:
            lost_at = story.now
        assert story.now < noticed_at + 60
    beats = [body for body in story.published if isinstance(body, Beat)]
    assert beats
    assert all("w1" not in beat.received for beat in beats)
    assert lost_at - noticed_at > LOST_AFTER * HEARTBEAT_S > PERMISSION_S


def test_the_work_of_a_deaf_worker_is_done_by_others() -> None:
    """Nothing waits for it, and no page is blamed: nobody has crashed."""
    deaf = Deafness("w2")
    deaf.until_deaf()
    deaf.story.join("w2")
    deaf.story.wait(60.0, deaf.lives_on)
    assert set(deaf.story.states().values()) == {"DONE"}
    assert "crash_counted" not in names(deaf.story)
    assert not deaf.story.leader.state.planner.trials


def test_no_host_of_a_deaf_worker_has_a_second_owner_before_it_is_lost() -> None:
    """It may start requests until its permission ends."""
    deaf = Deafness()
    deaf.until_deaf()
    story = deaf.story
    story.join("w2")
    while state(story) is not NodeState.LOST:
        assert not story.assigned("w2")
        story.beat("w1", heard=deaf.heard)
        story.beat("w2")
        story.tick(0.25)


def test_a_deaf_worker_that_hears_again_is_welcomed_and_gets_its_work() -> None:
    """Its HELLO says that it has heard what was sent since; one that has not changes nothing."""
    deaf = Deafness()
    deaf.until_deaf()
    story = deaf.story
    welcomes = len(story.bodies(Welcome))
    story.hear(hello(2, heard=deaf.heard))
    assert state(story) is NodeState.SUSPECT
    assert len(story.bodies(Welcome)) == welcomes
    assert story.sent[-1].body == Rehello("deaf", 2)
    assert story.sent[-1].sequence == story.heard()
    story.hear(hello(3, heard=story.heard()))
    assert len(story.bodies(Welcome)) == welcomes + 1
    given = len(story.assigned("w1"))
    story.beat("w1", hello=3)
    story.tick()
    assert state(story) in (NodeState.IDLE, NodeState.BUSY)
    assert len(story.assigned("w1")) > given
    work_to_the_end(story, given)


def test_also_after_it_was_lost() -> None:
    """With a single worker the crawl stands still, and goes on when messages get through."""
    deaf = Deafness()
    deaf.until_deaf()
    story = deaf.story
    story.wait(30.0, deaf.lives_on)
    assert state(story) is NodeState.LOST
    story.hear(hello(2, heard=deaf.heard))
    assert state(story) is NodeState.LOST, "a HELLO alone proves nothing"
    given = len(story.assigned("w1"))
    story.hear(hello(3, heard=story.heard()))
    work_to_the_end(story, given)


def work_to_the_end(story: LeaderStory, lost: int) -> None:
    """All but the first assignments, which nobody heard."""
    done: set[int] = set()

    def work() -> None:
        story.beat("w1", hello=3)
        for assignment in story.assigned("w1")[lost:]:
            if assignment.seq not in done:
                done.add(assignment.seq)
                story.publish(result_of(assignment), "w1")

    story.wait(40.0, work)
    assert set(story.states().values()) == {"DONE"}


def test_a_worker_that_never_hears_its_welcome_keeps_no_host() -> None:
    """It sends no heartbeats, only HELLOs, under a new number every seven seconds: these must not
    make it fresh each time."""
    story = LeaderStory().elect()
    story.submit(*HOSTS)
    deaf = Deafness.__new__(Deafness)
    deaf.story, deaf.others, deaf.done, deaf.heard = story, ("w2",), set(), 0
    for number in range(1, 9):
        for _ in range(int(PERMISSION_S)):
            story.hear(hello(number, heard=0), "w1")
            story.tick(1.0)
            if number == 2:
                story.join("w2")
            if number > 2:
                deaf.others_work()
    assert "worker_deaf" in names(story)
    assert state(story) is NodeState.LOST
    assert set(story.states().values()) == {"DONE"}


# ---------------------------------------------------------------- routes


def test_a_worker_is_answered_by_the_line_that_its_hello_came_by() -> None:
    """Nothing about a route follows from the worker's name and number."""
    story = LeaderStory().elect()
    story.hear(hello(), route=b"by this")
    story.submit(*HOSTS)
    story.beat()
    story.tick()
    assert story.assigned("w1")
    assert {message.route for message in story.sent} == {b"by this"}


def test_another_line_takes_no_living_process_over() -> None:
    """The same name and the same incarnation, which every BEAT tells: refused by its own line,
    and everything goes on over the first."""
    story = LeaderStory().elect()
    story.join()
    story.hear(hello(2, replaces=1), route=b"a thief's")
    refusal = story.sent[-1]
    assert isinstance(refusal.body, Stale)
    assert refusal.body.reason == "duplicate_id"
    assert refusal.route == b"a thief's"
    story.submit(*HOSTS)
    story.tick()
    assert story.assigned("w1")
    assert {message.route for message in story.sent if message is not refusal} == {
        route_of("w1", 1)
    }


def test_a_process_that_was_lost_may_come_back_by_another_line() -> None:
    """Its old line may be gone for good; nobody lives by it."""
    story = LeaderStory().elect()
    story.join()
    story.wait(12.0)
    assert state(story) is NodeState.LOST
    story.hear(hello(2), route=b"new")
    assert isinstance(story.sent[-1].body, Welcome)
    assert story.sent[-1].route == b"new"


def test_what_another_line_says_in_a_worker_s_name_does_not_count() -> None:
    """BYE would free its hosts while it works, ACCEPT would confirm what it never heard."""
    story = LeaderStory().elect()
    story.join()
    story.submit(*HOSTS)
    story.tick()
    given = len(story.leader.state.leases.by_seq)
    first = story.assigned("w1")[0]
    reject = Reject([Rejection(1, first.n, "draining")])
    for route in (b"a thief's", b""):
        for body in (Bye("drained"), reject, Accept(9, [(first.host, 99)])):
            story.hear(body, route=route)
            assert story.notes[-1].name == "wrong_route"
    story.hear(result_of(first), route=b"a thief's", sequence=1, subject=first.seq)
    assert story.notes[-1].name == "wrong_route"
    assert state(story) in (NodeState.IDLE, NodeState.BUSY)
    assert len(story.leader.state.leases.by_seq) == given > 0


def test_a_hello_that_was_published_is_not_answered_and_makes_nobody_known() -> None:
    """There is no way back, so nothing could be assigned."""
    story = LeaderStory().elect()
    story.hear(hello(), route=b"")
    assert story.notes[-1].name == "no_route"
    assert not story.sent
    assert not story.leader.state.roster.workers


def test_the_way_to_a_worker_is_forgotten_with_the_worker() -> None:
    """The roster is the only place that has it."""
    story = LeaderStory().elect()
    story.join()
    story.wait(12.0)
    story.tick(700.0)
    assert not story.leader.state.roster.workers
    before = len(story.sent)
    story.beat()
    story.tick()
    assert len(story.sent) == before, "a heartbeat has no way back: it greets by itself"
