#include "router/always_busiest.h"

#include "router/least_load.h"
#include "router/policy.h"

namespace spillway::router {

namespace {

std::int64_t idleness(const signals::View& view, std::size_t i) { return -view.effective_load(i); }

class AlwaysBusiestPolicy final : public RoutingPolicy {
 public:
  sim::InstanceId pick(const signals::RequestView&, const signals::View& view, sim::Time,
                       sim::Draws& draws) override {
    return least_idle_.pick(view, draws);
  }

 private:
  LeastLoad least_idle_{idleness, Ties::first};
};

}  // namespace

std::unique_ptr<RoutingPolicy> make(const AlwaysBusiest&) {
  return std::make_unique<AlwaysBusiestPolicy>();
}

}  // namespace spillway::router
