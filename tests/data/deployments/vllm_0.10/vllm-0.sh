vllm serve meta-llama/Llama-3.3-70B-Instruct \
  --tensor-parallel-size 4 \
  --max-num-seqs 1024 \
  --max-num-batched-tokens 8192 \
  --max-model-len 131072 \
  --block-size 16 \
  --enable-prefix-caching \
  --no-async-scheduling \
  --scheduling-policy fcfs
