#include "router/router.h"

namespace spillway::router {

Dispatcher::Dispatcher(const Router& config, std::size_t num_instances, std::uint64_t seed)
    : policy_(std::visit([](const auto& c) { return make(c); }, config)),
      seed_(seed),
      in_flight_(num_instances, 0) {}

sim::InstanceId Dispatcher::route(const signals::RequestView& request, const signals::View& view,
                                  sim::Time now) {
  sim::Draws draws(seed_, sim::Stream::router, request.row());
  const sim::InstanceId chosen = policy_->pick(request, view, now, draws);
  policy_->learn(request, chosen);
  ++in_flight_[chosen.index()];
  return chosen;
}

}  // namespace spillway::router
