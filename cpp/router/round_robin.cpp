#include "router/round_robin.h"

#include "router/policy.h"

namespace spillway::router {

namespace {

class RoundRobinPolicy final : public RoutingPolicy {
 public:
  sim::InstanceId pick(const signals::RequestView&, const signals::View& view, sim::Time,
                       sim::Draws&) override {
    return view.id(turn_ % view.size());
  }
  void learn(const signals::RequestView&, sim::InstanceId) override { ++turn_; }

 private:
  std::size_t turn_ = 0;
};

}  // namespace

std::unique_ptr<RoutingPolicy> make(const RoundRobin&) {
  return std::make_unique<RoundRobinPolicy>();
}

}  // namespace spillway::router
