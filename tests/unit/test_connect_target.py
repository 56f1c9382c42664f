"""Which controller is meant: the selectors, the environment, and the local cluster that really runs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from iris_core.connect import open_client, resolve
from iris_core.connect.local import (
    LocalEndpoint,
    endpoint_file,
    process_start,
    remove_endpoint,
    running_endpoint,
    write_endpoint,
)
from iris_core.contracts import ConnectFailed, UsageFailed

if TYPE_CHECKING:
    from pathlib import Path

FILE = "name: inside\nplatform: {local: }\ncontroller: {local: {host: 0.0.0.0, port: 18811}}\n"


def named(home: Path, name: str, text: str = FILE) -> Path:
    path = home / ".config/iris/clusters" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def here(url: str = "http://127.0.0.1:4") -> LocalEndpoint:
    start = process_start(os.getpid())
    assert start is not None
    return LocalEndpoint(url, os.getpid(), start, "b" * 16)


def test_a_url_is_taken_as_it_is() -> None:
    target = resolve(controller_url="http://[::1]:5/", environ={})
    assert (target.url, target.cluster, target.environment) == ("http://[::1]:5", "[::1]:5", "local")
    assert resolve(controller_url="http://far.example", environ={}).environment == ""
    assert resolve(controller_url="http://h:1", cluster="shown", environ={}).cluster == "shown"


def test_a_name_and_a_file_lead_to_the_port_in_it(clean_environment: Path) -> None:
    path = named(clean_environment, "a")
    assert (resolve(cluster="a", environ={}).url, resolve(cluster="a", environ={}).cluster) == (
        "http://127.0.0.1:18811",
        "a",
    )
    assert resolve(config=str(path), environ={}).cluster == "inside"
    assert resolve(config=str(path), cluster="shown", environ={}).cluster == "shown"


def test_the_environment_names_a_controller_when_nothing_is_typed(clean_environment: Path) -> None:
    named(clean_environment, "a")
    assert resolve(environ={"IRIS_CLUSTER": "a"}).cluster == "a"
    assert resolve(environ={"IRIS_CLUSTER": "a", "IRIS_CONTROLLER_URL": "http://h:1"}).url == "http://h:1"
    assert resolve(cluster="a", environ={"IRIS_CONTROLLER_URL": "http://h:1"}).cluster == "a"


def test_a_running_local_cluster_is_the_last_resort() -> None:
    with pytest.raises(UsageFailed, match="no cluster is named and none runs here"):
        resolve(environ={})
    with pytest.raises(ConnectFailed, match="the local cluster is not running"):
        resolve(cluster="local", environ={})
    write_endpoint(here())
    assert resolve(environ={}).cluster == "local"
    assert resolve(cluster="local", environ={}).url == "http://127.0.0.1:4"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: x\nplatform: {gcp: {}}\n", "does not reach gcp clusters"),
        ("name: x\nplatform: {local: }\n", "controller.local.port is not set"),
    ],
)
def test_a_cluster_that_cannot_be_reached_says_what_to_do(clean_environment: Path, text: str, said: str) -> None:
    named(clean_environment, "x", text)
    with pytest.raises(UsageFailed, match=said) as caught:
        resolve(cluster="x", environ={})
    assert "--controller-url" in caught.value.hint


def test_url_and_file_exclude_each_other() -> None:
    with pytest.raises(UsageFailed, match="exclude each other"):
        resolve(controller_url="http://h", config="x", environ={})


def test_the_record_is_private_and_whole() -> None:
    write_endpoint(here())
    assert endpoint_file().stat().st_mode & 0o777 == 0o600
    assert os.listdir(endpoint_file().parent) == ["endpoint.json"]
    assert running_endpoint() == here()


def test_a_record_whose_process_is_gone_or_another_counts_as_nothing() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    start = process_start(child.pid)
    assert start is not None
    write_endpoint(LocalEndpoint("http://127.0.0.1:4", child.pid, start, "b"))
    assert running_endpoint() is not None
    write_endpoint(LocalEndpoint("http://127.0.0.1:4", child.pid, start + 1, "b"))
    assert running_endpoint() is None
    write_endpoint(LocalEndpoint("http://127.0.0.1:4", child.pid, start, "b"))
    child.communicate(b"\n")
    assert running_endpoint() is None


def test_a_cluster_whose_controller_is_being_started_again_still_runs() -> None:
    own = process_start(os.getpid())
    assert own is not None
    dead = LocalEndpoint("http://127.0.0.1:4", 2**22 + 1, 1, "b", os.getpid(), own)
    write_endpoint(dead)
    assert running_endpoint() == dead
    write_endpoint(LocalEndpoint("http://127.0.0.1:4", 2**22 + 1, 1, "b", os.getpid(), own + 1))
    assert running_endpoint() is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"url": 1}', json.dumps({"url": "u", "pid": "x", "start": 1, "boot_id": ""})]
)
def test_a_torn_record_counts_as_nothing(text: str) -> None:
    write_endpoint(here())
    endpoint_file().write_text(text)
    assert running_endpoint() is None


def test_only_its_own_record_is_taken_away() -> None:
    write_endpoint(here())
    remove_endpoint(os.getpid() + 1)
    assert running_endpoint() is not None
    remove_endpoint(os.getpid())
    assert not endpoint_file().exists()
    remove_endpoint(os.getpid())


def test_localhost_is_the_loopback_address_that_listens() -> None:
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("there is no IPv6 loopback")
    with listener:
        url = f"http://localhost:{listener.getsockname()[1]}"
        with open_client(resolve(controller_url=url, environ={})) as client:
            assert client.url == f"http://[::1]:{listener.getsockname()[1]}"
