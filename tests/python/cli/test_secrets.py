"""Secrets in files are in no output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.deployed_files import dumped, manifest

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
