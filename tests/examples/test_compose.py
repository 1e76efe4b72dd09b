"""The files of `examples/live` agree with each other, with the command line and with the fleet."""

from __future__ import annotations

import argparse
import shlex

import yaml
from support.paths import ROOT

import spillway
from spillway.cli import serve

LIVE = ROOT / "examples" / "live"
COMPOSE = yaml.safe_load((LIVE / "compose.yaml").read_text(encoding="utf-8"))


def options_of_the_fleet() -> argparse.Namespace:
    program, command, *words = shlex.split(COMPOSE["services"]["fleet"]["command"])
    assert (program, command) == ("spillway", "serve")
    parser = argparse.ArgumentParser(exit_on_error=False)
    serve.add_arguments(parser)
    return parser.parse_args(words)


def test_the_command_of_the_fleet_is_understood() -> None:
    options = options_of_the_fleet()
    assert (options.mode, options.host, options.behind_proxy) == ("servers", "0.0.0.0", True)
    assert (LIVE / ".." / options.config.name).is_file()


def test_every_instance_is_reached_by_the_gateway_and_by_prometheus() -> None:
    options = options_of_the_fleet()
    fleet = spillway.load(ROOT / "examples" / options.config.name)
    count = sum(group.count for group in fleet.instances)
    ports = [options.port + i for i in range(count)]
    envoy = yaml.safe_load((LIVE / "envoy.yaml").read_text(encoding="utf-8"))["static_resources"]
    (endpoints,) = envoy["clusters"][0]["load_assignment"]["endpoints"]
    places = [
        endpoint["endpoint"]["address"]["socket_address"] for endpoint in endpoints["lb_endpoints"]
    ]
    assert [(place["address"], place["port_value"]) for place in places] == [
        ("fleet", port) for port in ports
    ]
    prometheus = yaml.safe_load((LIVE / "prometheus.yaml").read_text(encoding="utf-8"))
    (scraped,) = prometheus["scrape_configs"][0]["static_configs"]
    assert scraped["targets"] == [f"fleet:{port}" for port in ports]
    front = envoy["listeners"][0]["address"]["socket_address"]["port_value"]
    assert COMPOSE["services"]["gateway"]["ports"] == [f"127.0.0.1:{front}:{front}"]


def test_the_image_is_built_without_what_git_ignores() -> None:
    """Environments, builds of this machine and caches; what the package is built of stays."""
    left_out = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    for folder in (entry.removesuffix("/") for entry in ignored if entry.endswith("/")):
        if not folder.startswith("*"):
            assert {folder, f"**/{folder}"} & set(left_out), folder
    context = LIVE / COMPOSE["services"]["fleet"]["build"]["context"]
    assert context.resolve() == ROOT.resolve()  # where .dockerignore is read
    needed = {"CMakeLists.txt", "cmake", "cpp", "examples", "python", "pyproject.toml", "README.md"}
    assert not needed & set(left_out)


def test_no_port_is_published_to_other_machines() -> None:
    services = COMPOSE["services"]
    assert "ports" not in services["fleet"]
    published = [port for service in services.values() for port in service.get("ports", ())]
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_mounted_files_exist() -> None:
    for service in COMPOSE["services"].values():
        for volume in service["volumes"]:
            assert (LIVE / volume.split(":")[0]).exists(), volume
