python -m dynamo.vllm \
  --model ${MODEL:?} \
  --engine-request-limit 200
