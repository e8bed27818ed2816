"""Drives a WorkerMachine with real parts: sockets, clock, pipeline.

Touches the world. Imported by roles. `loop` is all of it.
"""
