# Task j: the policy, its check and comparison in Python, then from a YAML file on the command line.
set -eu
tasks=$(dirname "$0")
python "$tasks/own_policy.py" "$@"
spillway check "$tasks/shed.yaml"
spillway run "$tasks/shed.yaml" --allow-python
