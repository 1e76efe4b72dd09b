export DYN_ROUTER_OVERLAP_REFRESH_AFTER_SECS=0.25
python -m dynamo.frontend \
  --router-mode kv \
  --router-kv-overlap-score-credit 0.9 \
  --router-kv-overlap-score-credit-decay 0.5 \
  --router-prefill-load-scale 1.0 \
  --router-decode-active-request-weight 0.0 \
  --router-temperature 0.2 \
  --router-host-cache-hit-weight 0.6 \
  --router-disk-cache-hit-weight 0.0 \
  --router-kv-events \
  --router-queue-threshold 16.0 \
  --router-queue-policy fcfs \
  --migration-limit 3 \
  --migration-max-seq-len 4096 \
  --router-track-output-blocks \
  --active-decode-blocks-threshold 0.85 \
  --active-prefill-tokens-threshold 10000
