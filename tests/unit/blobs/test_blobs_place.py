"""Where bodies lie: a folder, S3, or nowhere on a cluster of several hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from zcrawl.config import BodiesConfig, ClusterConfig, Config, ConsulConfig, MeshConfig
from zcrawl.errors import ConfigError, StoreError
from zcrawl.roles.blobs import blobs_place, open_blobs, several_hosts

DATA = Path("/data")


def test_on_one_machine_a_folder_in_the_data_folder_does() -> None:
    """Also for a cluster all of whose parts listen on loopback only."""
    assert blobs_place(Config(), DATA, cluster=False) == "/data/blobs"
    assert blobs_place(Config(), DATA, cluster=True) == "/data/blobs"
    assert not several_hosts(
        Config(
            mesh=MeshConfig(bind="127.0.0.1"),
            consul=ConsulConfig(address="localhost:8500"),
            cluster=ClusterConfig(masters=("tcp://[::1]:7600", "127.0.0.2:7600")),
        )
    )


@pytest.mark.parametrize(
    "config",
    [
        Config(mesh=MeshConfig(bind="0.0.0.0")),
        Config(consul=ConsulConfig(address="consul.internal:8500")),
        Config(cluster=ClusterConfig(masters=("10.0.0.1:7600",))),
    ],
)
def test_a_folder_on_several_hosts_is_refused_unless_it_is_declared_shared(config: Config) -> None:
    """A named folder at the start; no place at all when a job wants to keep a body."""
    import msgspec

    def with_bodies(**values: object) -> Config:
        return msgspec.structs.replace(config, bodies=BodiesConfig(**values))  # type: ignore[arg-type]

    with pytest.raises(ConfigError) as caught:
        blobs_place(with_bodies(url="/mnt/bodies"), DATA, cluster=True)
    assert caught.value.code == "bodies_not_shared"
    assert blobs_place(with_bodies(url="/mnt/b", shared=True), DATA, cluster=True) == "/mnt/b"
    assert blobs_place(with_bodies(url="s3://b/x"), DATA, cluster=True) == "s3://b/x"
    nowhere = open_blobs(blobs_place(config, DATA, cluster=True))
    with pytest.raises(StoreError) as refused:
        nowhere.put(b"x")
    assert refused.value.code == "bodies_not_shared"


def test_other_places_are_told() -> None:
    """Before anything is kept there."""
    with pytest.raises(ConfigError, match="s3://"):
        blobs_place(Config(bodies=BodiesConfig(url="gs://b")), DATA, cluster=False)
