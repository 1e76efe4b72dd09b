#include "router/router.h"

#include <algorithm>

namespace spillway::router {

Dispatcher::Dispatcher(const Router& config, std::size_t num_instances, std::uint64_t seed,
                       std::size_t traced_candidates)
    : policy_(std::visit([](const auto& c) { return make(c); }, config)),
      seed_(seed),
      in_flight_(num_instances, 0),
      log_(traced_candidates) {}

sim::InstanceId Dispatcher::route(const signals::RequestView& request, const signals::View& view,
                                  sim::Time now) {
  sim::Draws draws(seed_, sim::Stream::router, request.row());
  const sim::InstanceId chosen = policy_->pick(request, view, now, draws);
  if (log_.is_kept()) log_.add(request, view, policy_->scores(), chosen, now);
  policy_->learn(request, chosen);
  ++in_flight_[chosen.index()];
  return chosen;
}

bool reads_prefix_index(const Router& config) {
  const auto* weighted = std::get_if<Weighted>(&config);
  return weighted && std::any_of(weighted->scorers.begin(), weighted->scorers.end(),
                                 [](const AnyScorer& scorer) {
                                   return std::holds_alternative<PrefixAffinity>(scorer);
                                 });
}

}  // namespace spillway::router
