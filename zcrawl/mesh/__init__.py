"""Step 5: the messages between masters, workers and clients.

`messages` is the closed union of them, `codec` their bytes, `roles` the table of which may arrive
where and from whom, `border` the checks of a master on incoming messages, `security` keys and
allow-lists, `timing` the moments that leader and workers agree on. `ports` says what loops need of
a mesh; `memory` is the fake.

Pure, except for `sockets`. Imported by everything that sends or receives. Start with `messages`;
docs/protocol.md has the rules.
"""
