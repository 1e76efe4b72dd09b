#include "router/round_robin.h"

#include <map>
#include <string>

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

class TurnsPerModel final : public RoutingPolicy {
 public:
  sim::InstanceId pick(const signals::RequestView& request, const signals::View& view, sim::Time,
                       sim::Draws&) override {
    return view.id(turns_[request.model()] % view.size());
  }
  void learn(const signals::RequestView& request, sim::InstanceId) override {
    ++turns_[request.model()];
  }

 private:
  std::map<std::string, std::size_t> turns_;  // by model; empty: requests that name none
};

}  // namespace

std::unique_ptr<RoutingPolicy> make(const RoundRobin& config) {
  if (config.per_model) return std::make_unique<TurnsPerModel>();
  return std::make_unique<RoundRobinPolicy>();
}

}  // namespace spillway::router
