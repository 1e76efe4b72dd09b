#include "router/round_robin.h"

#include <map>
#include <string>

#include "router/policy.h"

namespace spillway::router {

namespace {

class RoundRobinPolicy final : public RoutingPolicy {
 public:
  explicit RoundRobinPolicy(const RoundRobin& config) : config_(config) {}

  sim::InstanceId pick(const signals::RequestView& request, const signals::View& view, sim::Time,
                       sim::Draws&) override {
    return view.id(turn_of(request) % view.size());
  }
  void learn(const signals::RequestView& request, sim::InstanceId) override { ++turn_of(request); }

 private:
  std::size_t& turn_of(const signals::RequestView& request) {
    const std::string& model = request.model();
    return model.empty() || !config_.per_model ? turn_ : turns_[model];
  }

  RoundRobin config_;
  std::size_t turn_ = 0;
  std::map<std::string, std::size_t> turns_;  // by model
};

}  // namespace

std::unique_ptr<RoutingPolicy> make(const RoundRobin& config) {
  return std::make_unique<RoundRobinPolicy>(config);
}

}  // namespace spillway::router
