"""Cluster files: what is read, and that everything wrong is one line with file and line number, at a bounded price."""

from __future__ import annotations

import resource
import time
from typing import TYPE_CHECKING

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from iris_core.config import places
from iris_core.config.budgets import BudgetTier
from iris_core.config.cluster import find_cluster, load_config, named_clusters, parse_config
from iris_core.config.document import parse_document
from iris_core.config.ssh import SshHost
from iris_core.contracts import UsageFailed
from iris_core.model.bands import PriorityBand
from iris_core.model.resources import Device

if TYPE_CHECKING:
    from pathlib import Path

MINIMAL = "name: a\nplatform: {local: }\n"


def error_of(text: str | bytes) -> UsageFailed:
    with pytest.raises(UsageFailed) as caught:
        parse_config(text) if isinstance(text, str) else parse_document(text, "config")
    assert "\n" not in caught.value.message
    return caught.value


def test_the_shipped_local_file_has_two_workers() -> None:
    config = load_config(places.shipped_clusters() / "local.yaml")
    assert config.platform == "local"
    assert [(g.num_vms, g.buffer_slices, g.max_slices) for g in config.scale_groups.values()] == [(1, 2, 2)]
    assert (config.controller_host, config.controller_port) == ("127.0.0.1", 10000)


def test_the_keys_in_use_become_fields() -> None:
    config = parse_config("""\
name: c1
platform: {local: }
storage: {local_state_dir: /tmp/s, remote_state_dir: "file:///tmp/r/"}
controller: {checkpoint_interval_seconds: 600, local: {host: "::1", port: 0}}
worker_provider: {}
defaults:
  task_env: {A: "1", B: ""}
  worker: {port_range: 40000-40010, cache_dir: /c}
  ssh: {user: root}
scale_groups:
  tpu:
    num_vms: 2
    buffer_slices: 1
    max_slices: 3
    priority: 50
    resources: {cpu: 4, ram: 16GB, disk: 10GiB, device_type: tpu, device_variant: v5litepod-8, device_count: 4,
                capacity_type: preemptible}
    worker: {attributes: {Rack: A, slot: 3}}
auth: {trusted_cidrs: [10.0.0.0/8], admin_users: [a@b.c]}
allowed_hosts: [iris.example]
user_budgets: [{user_ids: [x], budget_limit: 1}]
""")
    group = config.scale_groups["tpu"]
    assert (config.remote_state_dir, config.checkpoint_interval_s) == ("file:///tmp/r", 600)
    assert (config.controller_host, config.port_range, config.cache_dir) == ("::1", (40000, 40010), "/c")
    assert (config.task_env, config.trusted_cidrs, config.admin_users) == (
        {"A": "1", "B": ""},
        ("10.0.0.0/8",),
        ("a@b.c",),
    )
    assert (group.cpu_millicores, group.memory_bytes, group.disk_bytes) == (4000, 16_000_000_000, 10 * 2**30)
    assert group.device is not None and (group.device.kind, group.device.count) == ("tpu", 4)
    assert (group.preemptible, dict(group.attributes)) == (True, {"rack": "a", "slot": 3})
    assert (group.num_vms, group.buffer_slices, group.max_slices) == (2, 1, 3)
    assert config.user_budgets == (BudgetTier(("x",), 1, PriorityBand.INTERACTIVE),)
    assert config.unused == ()


def test_a_tpu_host_has_as_many_chips_as_its_type_unless_the_file_says_otherwise() -> None:
    text = MINIMAL + "scale_groups: {g: {num_vms: 4, resources: {device_type: tpu, device_variant: %s}}}\n"
    assert parse_config(text % "V5litepod-16").scale_groups["g"].device == Device("tpu", "v5litepod-16", 4)
    assert parse_config(text % "v5litepod-16, device_count: 2").scale_groups["g"].device == Device(
        "tpu", "v5litepod-16", 2
    )
    assert error_of(text % "v5litepod-17").message.startswith(
        "config:3: scale_groups.g.resources.device_variant: no TPU"
    )


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("", "config:1: a cluster file is a mapping", "name:"),
        ("- a\n", "config:1: a cluster file is a mapping", ""),
        ("just words\n", "config:1: a cluster file is a mapping", ""),
        ("name: a\nplatfrom: {local: }\n", "config:2: unknown key 'platfrom'", "platform"),
        (MINIMAL + "storage:\n  local_statedir: /x\n", "config:4: unknown key 'local_statedir' in storage", "local_state_dir"),
        (MINIMAL + "name: b\n", "config:3: the key 'name' is there twice (first in line 1)", ""),
        ("name: local\nplatform: {local: }\n", "config:1: name: the name 'local'", "choose another"),
        ("name: a b\nplatform: {local: }\n", "config:1: name: the cluster name 'a b'", ""),
        ("name: a\nplatform: {local: , gcp: {}}\n", "config:2: platform: expected exactly one of", ""),
        ("name: a\nplatform: {}\n", "config:2: platform: expected exactly one of", ""),
        ("name: a\n", "config:1: the key 'platform' is missing", ""),
        (MINIMAL + "scale_groups:\n  g: {buffer_slices: 1}\n", "config:4: scale_groups.g: the key 'num_vms' is missing", ""),
        (MINIMAL + "scale_groups:\n  g: {num_vms: 0}\n", "config:4: scale_groups.g.num_vms: '0' is outside", ""),
        (MINIMAL + "scale_groups:\n  g: {num_vms: two}\n", "config:4: scale_groups.g.num_vms: expected a whole number", ""),
        (MINIMAL + "scale_groups: {g: {num_vms: 1, resources: {ram: 64QB}}}\n", "config:3: scale_groups.g.resources.ram", "use KB"),
        (MINIMAL + "scale_groups: {g: {num_vms: 1, worker: {attributes: {region: eu}}}}\n", "config:3:", ""),
        (MINIMAL + "defaults: {task_env: {A: 1.10}}\n", "config:3: defaults.task_env.A: a value of the environment is text", "quotes"),
        (MINIMAL + "defaults: {worker: {port_range: 5}}\n", "config:3: defaults.worker.port_range", "30000-40000"),
        (MINIMAL + "auth: {trusted_cidrs: [10.0.0.1/8]}\n", "config:3: auth.trusted_cidrs[0]: '10.0.0.1/8'", ""),
        (MINIMAL + "storage: {remote_state_dir: /plain}\n", "config:3: storage.remote_state_dir", "file:///"),
        (MINIMAL + "peers: [a]\n", "config:3: peers: expected a mapping, found a list", ""),
        ("a: !!python/object/apply:os.system [x]\n", "config:1: unknown key", ""),
        ("name: !!python/name:os.system x\n", "config:1: the tag", ""),
        ("name: a\n  platform: x\n", "config:2: mapping values are not allowed", ""),
        ("name: [\n", "config:2:", ""),
        ("name: a\x00b\n", "config:1:", ""),
        ("? [a, b]\n: c\n", "config:1: a key must be text", ""),
        ("1: c\n", "config:1: a key must be text", "quotes"),
        (MINIMAL + "---\nname: b\n", "config:3: a second document", ""),
        (MINIMAL + "scale_groups: {g: {num_vms: " + "9" * 5000 + "}}\n", "config:3:", ""),
        ("a: &a [*a]\n", "config:1:", ""),
        ("[" * 40, "config:1: nested deeper", ""),
        ("[" * 5000, "config:1:", ""),
        ("".join(f"x{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else '1'}]\n" for n in range(9)), "config:9: more than 64 aliases", ""),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else None,
)  # fmt: skip
def test_what_is_wrong_is_one_line_that_names_the_place(text: str, message: str, hint: str) -> None:
    error = error_of(text)
    assert error.message.startswith(message)
    assert hint in error.hint
    assert error.exit_code == 2


def test_a_byte_order_mark_is_no_matter() -> None:
    assert parse_document(b"\xef\xbb\xbf" + MINIMAL.encode(), "c").mapping()["name"].text() == "a"


def test_bytes_that_are_not_utf8_are_found_on_their_line() -> None:
    assert error_of(b"name: a\nplatform: \xff\n").message == "config:2: not UTF-8 text"


def test_a_huge_file_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    path.write_bytes(b"a: b\n" * 2_000_000)
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(UsageFailed, match="larger than 256 KiB"):
        load_config(path)
    assert time.process_time() - began < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def test_merge_keys_merge_and_the_own_key_wins() -> None:
    text = MINIMAL + "scale_groups:\n  a: &a {num_vms: 1, max_slices: 2}\n  b: {<<: *a, max_slices: 5}\n"
    groups = parse_config(text).scale_groups
    assert (groups["b"].num_vms, groups["b"].max_slices) == (1, 5)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(min_size=1, max_size=8), inner, max_size=4),
        max_leaves=15,
    )
)
def test_whatever_yaml_holds_the_outcome_is_a_config_or_one_line(data: object) -> None:
    text = yaml.safe_dump({"name": "a", "platform": {"local": None}, "scale_groups": data})
    try:
        parse_config(text)
    except UsageFailed as error:
        assert error.message.startswith("config:")
        assert "\n" not in error.message


@given(st.text(max_size=200))
def test_no_text_at_all_ends_in_a_traceback(text: str) -> None:
    try:
        parse_config(text)
    except UsageFailed as error:
        assert "\n" not in error.message


def write(folder: Path, name: str, text: str = MINIMAL) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_text(text)
    return path


def test_names_are_looked_up_in_order_and_the_first_folder_wins(
    clean_environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ours = write(clean_environment / ".config/iris/clusters", "both")
    write(clean_environment / ".config/marin/clusters", "both")
    theirs = write(clean_environment / ".config/marin/clusters", "theirs")
    here = write(tmp_path / "config", "here")
    write(tmp_path / "config", "unrelated", "database:\n  host: x\n")
    assert find_cluster("both") == ours
    assert find_cluster("theirs") == theirs
    assert find_cluster("here").resolve() == here
    assert [cluster.name for cluster in named_clusters()] == ["both", "here", "theirs", "tpu-slices"]


def test_an_unknown_name_points_to_the_list_and_to_the_closest(clean_environment: Path) -> None:
    write(clean_environment / ".config/iris/clusters", "marin-dev")
    with pytest.raises(UsageFailed) as caught:
        find_cluster("marin-dve")
    assert "marin-dev" in caught.value.hint
    assert "cluster list" in caught.value.hint


HOSTED = """
name: far
platform: {manual: }
defaults: {ssh: {user: ops, key_file: /keys/iris, known_hosts_file: /keys/known, port: 2222, connect_timeout: {seconds: 7}}}
controller: {manual: {host: h1.example, port: 18000}}
"""


def test_a_controller_on_an_ssh_host_says_how_it_is_reached() -> None:
    config = parse_config(HOSTED)
    assert (config.controller_on, config.controller_port, config.controller_host) == ("manual", 18000, "127.0.0.1")
    assert config.controller_ssh == SshHost("h1.example", "ops", 2222, "/keys/iris", "/keys/known", 7.0)
    assert config.controller_ssh.label == "ops@h1.example:2222"
    plain = parse_config("name: a\nplatform: {local: }\ncontroller: {manual: {host: h2}}\n")
    assert (plain.controller_on, plain.controller_port) == ("manual", 10000)
    assert plain.controller_ssh == SshHost("h2") and SshHost("h2").label == "root@h2"
    assert parse_config(MINIMAL).controller_on == "local" and parse_config(MINIMAL).controller_ssh is None


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("host: h1.example", 'host: "-oProxyCommand=x"', "is not a host"),
        ("user: ops", 'user: "a b"', "is not a user"),
        ("key_file: /keys/iris", "key_file: iris", "not a path that ssh takes"),
        ("key_file: /keys/iris", "key_file: '/keys/%h'", "not a path that ssh takes"),
        (
            "key_file: /keys/iris",
            "key_file: ~nobody-here/iris",
            "the home directory in '~nobody-here/iris' is not known",
        ),
        ("defaults:", "storage: {local_state_dir: ~nobody-here}\ndefaults:", "the home directory"),
        ("controller: {", "controller: {local: {}, ", "expected one of gcp, manual, local, coreweave"),
        ("key_file", "keyfile", "unknown key"),
    ],
)
def test_what_ssh_could_take_for_something_else_is_refused_with_its_place(old: str, new: str, said: str) -> None:
    error = error_of(HOSTED.replace(old, new))
    assert said in error.message and error.message.startswith("config:")
