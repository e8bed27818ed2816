"""A message to the app: a widget asks it to change the View, or to draw it again."""

from __future__ import annotations

from textual.message import Message

from console.state import ConsoleEvent


class Commanded(Message):
    """What a click asks for; nothing: draw again. Keys do not use it, their actions run at once."""

    def __init__(self, *commands: ConsoleEvent) -> None:
        super().__init__()
        self.commands = commands
