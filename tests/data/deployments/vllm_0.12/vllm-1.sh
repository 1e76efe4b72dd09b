vllm serve $MODEL \
  --data-parallel-size 2 \
  --max-num-seqs 64 \
  --max-num-batched-tokens 4096 \
  --max-model-len 16384 \
  --long-prefill-token-threshold 1024 \
  --block-size 32 \
  --no-enable-prefix-caching \
  --no-async-scheduling \
  --scheduling-policy priority
