"""The engine `httpx`: a plain httpx client, with HTTP/2 where a job asks for it.

`engine` fetches, `backend` connects to checked addresses and checks frames, `failures` names
errors.

Touches the world. Imported by roles, and by fetch.browser (`backend`). Start with `engine`.
"""
