"""Which measured runs are fitted and which are predicted.

Fixed before the first prediction, and not changed since. Folders without an entry are split by
`half`: the first half of each run's requests is fitted, the second predicted.
"""

FITTED = {
    "vllm_h100_qwen3_14b": (
        "sweep_rate_agg_2rps",
        "sweep_rate_agg_6rps",
        "w7_agg6",
        "w5_agg30",
        "w7_agg18",
    ),
    "vllm_h100": (
        "llama-2-7b-tp1-codegen",
        "llama-2-70b-tp4-general",
        "mixtral-8x7b-v0-1-tp2-codegen",
        "codellama-34b-tp2-general",
    ),
}
"""Folder → runs to fit; all others of the folder are predicted."""
