# Task k: the decision of task a exported for llm-d and vLLM, read back, compared.
set -eu
tasks=$(dirname "$0")
python "$tasks/deploy.py" "$@"
spillway export today.yaml --to llm-d --out deploy-llm-d
spillway export today.yaml --to vllm --rest kept --out deploy-vllm  # llm-d deploys the gateway
spillway import deploy-llm-d --from llm-d --onto today.yaml -o deployed.yaml
spillway diff today.yaml deployed.yaml
spillway import deploy-vllm/vllm-0.sh --from vllm --onto today.yaml -o deployed_vllm.yaml
spillway diff today.yaml deployed_vllm.yaml
