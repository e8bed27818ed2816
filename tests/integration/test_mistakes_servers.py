"""What commands say while a cluster's servers or workers are away, through the real commands."""

from __future__ import annotations

from pathlib import Path

from tests.integration.cluster import cluster
from tests.integration.test_mistakes import closed_hours, zcrawl
from tests.integration.test_mistakes_cluster import Waiting
from tests.servers.consul import ConsulServer
from tests.servers.mariadb import Mariadb
from tests.servers.tcp_proxy import tcp_proxy


def test_commands_say_that_no_worker_is_there_and_that_the_database_is_away(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """`submit --wait` says what the job waits for, goes on waiting while the database is away, and
    so does `job`; nothing ends because a server is restarted."""
    (tmp_path / "job.toml").write_text(
        'name = "a"\nseeds = ["http://127.0.0.1:9/"]\n[politeness]\nrobots = false\n'
        f'hours = ["{closed_hours()}"]\n'
    )
    with (
        tcp_proxy(mysql.port) as to_mysql,
        cluster(tmp_path, consul.url, mysql, masters=0, workers=0) as made,
    ):
        made.add_master("m1", database__urls=[mysql.url(made.database_name, port=to_mysql.port)])
        made.wait_ready(0)
        config = ("--config", "client.toml")
        with Waiting(tmp_path, "submit", "job.toml", "--wait", *config) as waiting:
            waiting.says("no worker takes work")
            assert "no worker takes work" in zcrawl("job", "a", *config, folder=tmp_path).stdout
            made.add_worker("w1")
            waiting.says("outside the hours of its job")
            to_mysql.refuse()
            waiting.says("the database is away")
            job = zcrawl("job", "a", *config, folder=tmp_path)
            assert "the database is away" in job.stderr
            assert job.returncode == 3
            to_mysql.accept_again()
            waiting.says("the database is back")
            made.ask("act", {"ref": "a", "action": "cancel"})
            waiting.says("cancelled")
