// What the costs of ranks remember of requests in a queue.
#include "router/kv_cost.h"

#include <memory>
#include <vector>

#include "check.h"
#include "fake_instance.h"
#include "offered.h"
#include "router/policy.h"
#include "signals/view.h"
#include "sim/ids.h"
#include "sim/rng.h"
#include "sim/time.h"

using namespace spillway;
using sim::InstanceId;
using sim::RequestId;
using sim::Time;

namespace {

constexpr std::int64_t kBlock_tokens = 10;

/// Three instances, of which the policy knows the blocks that a prompt of ten blocks finds.
class Queueing {
 public:
  Queueing() { now_is({0, 0, 0}); }

  void now_is(const std::vector<std::int64_t>& found_blocks) {
    for (std::size_t i = 0; i < found_blocks.size(); ++i) fakes_[i].found_blocks = found_blocks[i];
  }
  void joins() { policy_->admitted(request_, view_); }
  void leaves_queue() { policy_->dropped(request_.id()); }
  /// The costs for a router that sees these instances, in blocks.
  std::vector<double> costs(const std::vector<InstanceId>& seen) {
    sim::Draws draws(1, sim::Stream::router, 0);
    policy_->pick(request_, view_.of(seen), Time{0}, draws);
    std::vector<double> costs;
    for (const double score : policy_->scores()) costs.push_back(-score);
    return costs;
  }

 private:
  FakeFleet fakes_{3};
  std::vector<signals::SignalSource*> instances_ = fakes_.sources();
  std::vector<std::int32_t> in_flight_ = std::vector<std::int32_t>(3);
  signals::Sources sources_{.instances = instances_};
  signals::LocalState local_{.in_flight = in_flight_};
  signals::View view_{sources_, local_, Time{0}};
  std::unique_ptr<workload::RequestTable> requests_ = make_table({{.input_tokens = 100}});
  signals::RequestView request_{*requests_, RequestId{std::size_t{0}}};
  std::unique_ptr<router::RoutingPolicy> policy_ =
      make(router::KvCost{.overlap_refresh_after_s = 1}, kBlock_tokens);
};

const std::vector<InstanceId> kAll{InstanceId{0}, InstanceId{1}, InstanceId{2}};

void overlaps_are_those_of_the_queue() {
  Queueing fleet;
  fleet.now_is({1, 2, 3});
  fleet.joins();
  fleet.now_is({7, 8, 9});
  check(fleet.costs(kAll) == std::vector<double>{19, 18, 17}, "of when it joined");
  check(fleet.costs({InstanceId{0}, InstanceId{2}}) == std::vector<double>{19, 17},
        "also where some are left out");
}

void a_request_that_leaves_its_queue_is_forgotten() {
  Queueing fleet;
  fleet.now_is({1, 2, 3});
  fleet.joins();
  fleet.leaves_queue();
  fleet.now_is({7, 8, 9});
  check(fleet.costs(kAll) == std::vector<double>{13, 12, 11}, "as they are");
}

}  // namespace

CASES(overlaps_are_those_of_the_queue, a_request_that_leaves_its_queue_is_forgotten);
