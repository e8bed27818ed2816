"""The REST gateway: a stateless client of the mesh that serves HTTP.

Many of them may run. A gateway keeps nothing that a restart would lose: the masters have the jobs,
the users and the answers to repeated requests.
"""
