python -m sglang_router.launch_router \
  --worker-urls ${WORKER_URLS:?} \
  --policy cache_aware \
  --cache-threshold 0.5 \
  --balance-abs-threshold 32 \
  --balance-rel-threshold 1.0001 \
  --max-concurrent-requests 256 \
  --queue-size 128 \
  --queue-timeout-secs 30
