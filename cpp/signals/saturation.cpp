#include "signals/saturation.h"

#include <algorithm>

#include "signals/view.h"

namespace spillway::signals {

namespace {

// The sum over the instances.
double token_saturation(const SaturationDetector& config, const View& view) {
  double sum = 0;
  for (std::size_t i = 0; i < view.size(); ++i) {
    const double tokens =
        static_cast<double>(view.in_flight_tokens(i)) / config.max_token_concurrency;
    const double requests = static_cast<double>(view.in_flight(i)) / config.max_concurrency;
    sum += config.concurrency_mode == ConcurrencyMode::tokens ? tokens : std::max(requests, tokens);
  }
  return sum;
}

double saturation_of(const SaturationDetector& config, const View& view, std::int64_t in_flight) {
  const auto instances = static_cast<double>(view.size());
  if (config.counts_tokens()) return token_saturation(config, view) / instances;
  if (config.detector == Detector::concurrency) {
    return static_cast<double>(in_flight) / (config.max_concurrency * instances);
  }
  double sum = 0;
  double counted = instances;
  for (std::size_t i = 0; i < view.size(); ++i) {
    if (view.is_stale(i)) {
      config.staleness_policy == StalenessPolicy::saturated ? sum += 1 : counted -= 1;
      continue;
    }
    const InstanceSignal seen = view.instance(i);
    sum += std::max(static_cast<double>(seen.waiting) / config.queue_depth_threshold,
                    seen.kv_utilization / config.kv_utilization_threshold);
  }
  return counted > 0 ? sum / counted : 0;
}

std::int64_t routed_in(const View& view) {
  std::int64_t in_flight = 0;
  for (std::size_t i = 0; i < view.size(); ++i) in_flight += view.in_flight(i);
  return in_flight;
}

// Of two pools. `unrouted`: requests in flight that have no instance yet.
double saturation_across(const SaturationDetector& config, const View& view,
                         std::int64_t unrouted) {
  const auto of = [&](const View& pool) {
    return saturation_of(config, pool, routed_in(pool) + unrouted);
  };
  switch (config.across) {
    case Across::any:
      return saturation_of(config, view, view.routed() + unrouted);
    case Across::decode:
      return of(view.decode_pool());
    case Across::prefill:
      return view.has_prefill_pool() ? of(view.prefill_pool()) : 0;
    case Across::max:
      break;
  }
  const double decode = of(view.decode_pool());
  return view.has_prefill_pool() ? std::max(decode, of(view.prefill_pool())) : decode;
}

}  // namespace

double saturation(const SaturationDetector& config, const View& view, std::int64_t in_flight) {
  if (!view.has_workers()) return 1;
  if (view.has_pools()) [[unlikely]]
    return saturation_across(config, view, std::max<std::int64_t>(in_flight - view.routed(), 0));
  return saturation_of(config, view, in_flight);
}

double saturation(const SaturationDetector& config, const View& view) {
  return saturation(config, view, view.has_pools() ? view.routed() : routed_in(view));
}

}  // namespace spillway::signals
