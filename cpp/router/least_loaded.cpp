#include "router/least_loaded.h"

#include "router/least_load.h"
#include "router/policy.h"

namespace spillway::router {

namespace {

class LeastLoadedPolicy final : public RoutingPolicy {
 public:
  explicit LeastLoadedPolicy(Ties ties) : least_(effective_load, ties) {}
  sim::InstanceId pick(const signals::RequestView&, const signals::View& view, sim::Time,
                       sim::Draws& draws) override {
    return least_.pick(view, draws);
  }

 private:
  LeastLoad least_;
};

}  // namespace

std::unique_ptr<RoutingPolicy> make(const LeastLoaded& config) {
  return std::make_unique<LeastLoadedPolicy>(config.ties);
}

}  // namespace spillway::router
