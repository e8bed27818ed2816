"""Read the open sockets of a master, and apply the checks of `zcrawl.mesh.border`.

With keys, libzmq gives the key of the connection with each frame. Frames are
received one by one without a copy: `recv_multipart` asks the socket after each frame whether more
follow, and is slower by half. Lengths are compared before anything is copied or decoded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

import zmq

from zcrawl.errors import DecodeError, UnreachableError
from zcrawl.mesh.border import (
    LOCAL,
    TRY_AGAIN_S,
    Border,
    Refusal,
    Sender,
    describe,
    mark,
    worker_advice,
)
from zcrawl.mesh.codec import decode_body, decode_header, peek_request_id
from zcrawl.mesh.messages import (
    BadBody,
    Body,
    ClientRequest,
    Header,
    Hello,
    Message,
    MessageKind,
    Reply,
    Stale,
)
from zcrawl.mesh.ports import Arrived, BatchHandler, MeshLog
from zcrawl.mesh.roles import HEADER_MOST, Channel
from zcrawl.mesh.sockets.readers import OnBadFrame, OnNotice, Socket, SocketReader
from zcrawl.model.log_event import BAD_BODY
from zcrawl.model.reasons.cluster import (
    KEY_NOT_ALLOWED,
    KEY_REMOVED,
    NAME_NOT_ALLOWED,
    TOO_MANY_REQUESTS,
)
from zcrawl.model.reasons.skip import REQUEST_TOO_LARGE

USER: Final = "User-Id"  # as ZAP calls it: the key that a peer was admitted with
ROUTED_FRAMES: Final = 3  # route, header, body
Answer = Callable[[bytes, Header, Body], None]  # on the way back, to a message with this header
Clock = Callable[[], float]


class BorderReader(SocketReader):
    """One open socket. `answer` sends on the control socket; reports have no way back."""

    def __init__(
        self,
        socket: Socket,
        channel: Channel,
        handler: BatchHandler,
        counters: Counter[str],
        on_bad_frame: OnBadFrame,
        on_notice: OnNotice,
        note: MeshLog,
        *,
        log: MeshLog,
        border: Border,
        keyed: bool,
        answer: Answer,
    ) -> None:
        self._border, self._keyed, self._answer, self._log = border, keyed, answer, log
        self._routed = channel is Channel.CONTROL
        super().__init__(socket, channel, handler, counters, on_bad_frame, on_notice, note)

    def _take_next(self) -> None:
        receive = self._socket.recv
        frame = receive(zmq.NOBLOCK, False)
        sender = self._border.sender(str(frame.get(USER))) if self._keyed else LOCAL
        frames = [frame]
        while frame.more:  # a message arrives whole or not at all
            frame = receive(zmq.NOBLOCK, False)
            if len(frames) <= ROUTED_FRAMES:  # one frame too many is enough to refuse
                frames.append(frame)
        self._judge(sender, frames)

    def _judge(self, sender: Sender, frames: list[zmq.Frame]) -> None:
        route = frames.pop(0).bytes if self._routed else b""
        try:
            if len(frames) != 2:
                raise DecodeError(f"a message has two frames, not {len(frames)}")
            if len(frames[0]) > HEADER_MOST:
                raise DecodeError(f"a header of {len(frames[0])} bytes is too large")
            header = decode_header(frames[0].bytes)
        except DecodeError as error:
            self._refuse(route, self._notice(frames), error)
            return
        size = len(frames[1])
        refusal = self._border.refusal(sender, self._channel, header, size)
        is_request = refusal is None and header.kind == MessageKind.REQUEST
        if is_request and not self._border.may_ask(sender, self._loop.time()):
            refusal = Refusal.RATE
        if refusal is None:
            self._let_in(sender, route, decode_body(header, frames[1].bytes))
        else:
            self._turn_away(refusal, sender, route, header, frames[1])

    def _let_in(self, sender: Sender, route: bytes, message: Message | BadBody) -> None:
        if isinstance(message, BadBody):
            if (
                message.header.kind != MessageKind.RESULT
            ):  # only a result is numbered and must be consumed
                self._note(BAD_BODY, f"{sender.text()}: {message.error}")
                return
        elif isinstance(message.body, ClientRequest):
            message = Message(message.header, mark(message.body, sender))
            self._border.expect_answer(sender, route)
        elif isinstance(message.body, Hello):
            self._border.note_worker(sender, route)
        self._arrived.append(Arrived(route, message))

    def _notice(self, frames: list[zmq.Frame]) -> list[bytes]:
        """Return the frames if they may be a version notice; nothing else needs them."""
        if len(frames) != 2 or max(map(len, frames)) > HEADER_MOST:
            return []
        return [frame.bytes for frame in frames]

    # ------------------------------------------------------------ refusals

    def _turn_away(
        self, refusal: Refusal, sender: Sender, route: bytes, header: Header, body: zmq.Frame
    ) -> None:
        now = self._loop.time()
        self._counters[refusal.value] += 1
        if self._border.may_log(sender, refusal, now):
            self._log(refusal.value, describe(refusal, sender, self._channel, header, len(body)))
        if not self._routed or not self._border.may_answer(sender, now):
            return
        if header.kind == MessageKind.REQUEST:
            id = peek_request_id(bytes(body.buffer[:300]))
            if id:
                self._answer(route, header, _refused(id, refusal, sender, len(body)))
        elif header.kind == MessageKind.HELLO or refusal is Refusal.NAME:
            reason = NAME_NOT_ALLOWED if refusal is Refusal.NAME else KEY_NOT_ALLOWED
            self._answer(route, header, Stale(reason, worker_advice(sender, header.source)))


def _refused(id: str, refusal: Refusal, sender: Sender, size: int) -> Reply:
    """Return the answer to a refused request."""
    again = UnreachableError.exit_code
    match refusal:
        case Refusal.RATE:
            text = f"the key {sender.name} sends requests too fast; try again in {TRY_AGAIN_S:g} s"
            data = {"code": TOO_MANY_REQUESTS, "message": text, "exit_code": again}
            return Reply(id, False, {**data, "retry_after_s": TRY_AGAIN_S})
        case Refusal.SIZE:
            most = sender.most[Channel.CONTROL][MessageKind.REQUEST]
            text = f"a request of {size} bytes; the key {sender.name} may send {most} at most"
            return Reply(id, False, {"code": REQUEST_TOO_LARGE, "message": text, "exit_code": 1})
        case _:
            text = "this key is no longer in the masters' list; `zcrawl keys allow` adds it"
            return Reply(id, False, {"code": KEY_REMOVED, "message": text, "exit_code": 1})
