"""Secrets in files are in no output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.deployed_files import dumped, manifest

import spillway
from spillway import ConfigError
from spillway.files.deployments import import_
from spillway.files.deployments.secrets import masked

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECRET = "s3cr3tvalue"
VLLM = "vllm serve m"
SCRIPTS = [
    f"{VLLM} --api-key {SECRET}",
    f"{VLLM} --api-key {SECRET} other",
    f"{VLLM} --api-key={SECRET}",
    f"{VLLM} --hf-token {SECRET}",
    f"{VLLM} --ssl-keyfile-password {SECRET}",
    f"{VLLM} --unknown-token {SECRET}",
    f"HF_TOKEN={SECRET} {VLLM}",
    f"export OPENAI_API_KEY={SECRET}\n{VLLM}",
    f"AWS_SECRET_ACCESS_KEY={SECRET}\n{VLLM}",
    f"docker run -e HF_TOKEN={SECRET} vllm/vllm-openai --model m",
    f"docker run --password {SECRET} vllm/vllm-openai --model m",
    f"curl -H 'Authorization: Bearer {SECRET}' localhost\n{VLLM}",
    f"huggingface-cli login --token {SECRET}\n{VLLM}",
    f"{VLLM} --middleware https://me:{SECRET}@host/x",
    f'{VLLM} --hf-overrides \'{{"auth_token": "{SECRET}"}}\'',
    f"{VLLM} --api-key {SECRET} --max-num-seqs many",
]
CONTAINERS: list[dict[str, Any]] = [
    {"env": [{"name": "HF_TOKEN", "value": SECRET}]},
    {"env": [{"name": "PASSWORD", "value": SECRET}], "args": ["--api-key", SECRET]},
    {"args": [f"--api-key={SECRET}"]},
    {"extra": {"nested": {"apiKey": SECRET}}},
    {"lifecycle": {"postStart": {"exec": {"command": ["login", "--token", SECRET]}}}},
]


def said(path: Path, called: Callable[..., Any]) -> str:
    """Everything that imports say, on all channels."""
    try:
        found = repr(import_(path, system="vllm"))
    except ConfigError as error:
        found = str(error)
    plain, as_json = (called("import", path, "--from", "vllm", *more) for more in ([], ["--json"]))
    return f"{found} {plain} {as_json}"


@pytest.mark.parametrize("text", SCRIPTS)
def test_secrets_of_scripts(tmp_path: Path, called: Callable[..., Any], text: str) -> None:
    path = tmp_path / "a.sh"
    path.write_text(text)
    assert SECRET not in said(path, called)


@pytest.mark.parametrize("container", CONTAINERS)
def test_secrets_of_manifests(
    tmp_path: Path, called: Callable[..., Any], container: dict[str, Any]
) -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s"},
        "data": {"x": SECRET},
    }
    path = tmp_path / "a.yaml"
    command = {"command": ["vllm", "serve", "m"], **container}
    path.write_text(dumped(secret, manifest("Deployment", command)))
    assert SECRET not in said(path, called)


@pytest.mark.parametrize("value", ["sk-abcdefgh", "hf_abcdefgh", "ghp_abcdefghij", "nvapi-abcd1"])
def test_values_that_look_like_secrets(value: str) -> None:
    assert value not in str(masked({"extra": [f"x {value}"]}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max-num-batched-tokens", 4096),
        ("tokenizer", "a/b"),
        ("key", "nvidia.com/gpu"),
        ("model", "m"),
    ],
)
def test_other_values_are_shown(name: str, value: Any) -> None:
    assert masked(value, name) == value
    assert masked({name: value}) == {name: value}


def test_tenants_that_are_keys_are_shown_shortened(
    tmp_path: Path, called: Callable[..., Any]
) -> None:
    """Equal ones equal and different ones different; the files of the requests hold the names."""
    keys = [f"sk-{letter * 20}" for letter in "ab"]
    path = tmp_path / "keys.yaml"
    clients = ", ".join(f"{{name: {key[3]}, tenant: {key}}}" for key in keys)
    workload = f"{{kind: synthetic, num_requests: 60, clients: [{clients}]}}"
    path.write_text(f"schema: 1\nworkload: {workload}")
    status, text, err = called("run", path, "--html", tmp_path / "run.html", "--out", tmp_path)
    result = spillway.simulate(path)
    shown = [text, err, (tmp_path / "run.html").read_text(), called("diagnose", path)[1]]
    shown += [repr(result), result._repr_html_(), result.why(0)]
    assert status == 0
    assert not any(key in text for text in shown for key in keys)
    lines = [line for line in text.splitlines() if line.startswith("sk-…")]
    assert len(lines) == len({line.split()[0] for line in lines}) == 2
    assert len({len(line) for line in lines}) == 1
    assert all(key in (tmp_path / "requests.csv").read_text() for key in keys)
