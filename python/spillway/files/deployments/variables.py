"""The environment of a program: what of it does not concern a simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.files.deployments.target import Unread

if TYPE_CHECKING:
    from spillway.files.deployments.target import Piece

irrelevant = "does not concern a simulation"
"""The reason of fields such as ports and names."""

_IRRELEVANT_VARIABLES = tuple(
    """
    HF_ HUGGING_FACE_ HUGGINGFACE_ TRANSFORMERS_ TORCH TRITON_ NVIDIA_ PIP_ CUDA_ NCCL_ GLOO_
    UCX_ NVSHMEM_ NIXL_ OMPI_ FI_ PYTHON LD_ POD_ NODE_ HOST KUBERNETES_ OTEL_ AWS_ AZURE_
    GOOGLE_ S3_ WANDB_ PATH HOME USER TMP TZ LANG LC_ XDG_ http HTTP_ HTTPS_ NO_ PORT LOG
    RUST_LOG DYN_LOG PROMETHEUS_ LWS_ RAY_ OMP_ GOMAXPROCS VLLM_LOGGING_ VLLM_LOG_ VLLM_API_KEY
    VLLM_PORT VLLM_HOST_IP VLLM_CACHE_ MODEL VLLM_CONFIG_ROOT VLLM_ASSETS_ VLLM_NO_USAGE
    VLLM_DO_NOT VLLM_USAGE HUB_ VLLM_RPC_ VLLM_USE_MODELSCOPE VLLM_TRACE VLLM_CONFIGURE_LOGGING
    NAMESPACE SGLANG_LOG SGLANG_HOST SGLANG_PORT GF_ ETCD_ NATS_ OPENAI_ UV_ DEBIAN_
    """.split()  # noqa: SIM905
)


def variables(piece: Piece, *taken: str) -> list[Unread]:
    """The variables of a piece that were not taken."""
    found = []
    for name, value in piece.environment.items():
        if name in taken:
            continue
        field_ = f"{piece.where}: ${name}"
        if name.startswith(_IRRELEVANT_VARIABLES) or name.islower():
            found.append(Unread(field_, value, irrelevant, "irrelevant"))
        else:
            found.append(Unread(field_, value, "has no counterpart in a simulation"))
    return found
