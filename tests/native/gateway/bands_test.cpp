// The bands of a gateway: the band of a request, room for it, order of dispatch and removal, and
// charges.
#include "gateway/bands.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "offered.h"

using namespace spillway;
using gateway::Band;
using gateway::BandQueues;
using gateway::Bands;
using gateway::Gateway;
using sim::from_seconds;
using sim::RequestId;
using sim::TenantId;
using sim::Time;

namespace {

constexpr RequestId id(std::size_t i) { return RequestId{i}; }

struct Open final : gateway::FairnessPolicy::MayStart {
  bool operator()(TenantId) const override { return true; }
  bool any() const override { return true; }
};

// Two tenants; an important class, a standard one, two that may be shed, and one on the boundary.
const std::vector<workload::Tenant> kTenants{{.name = "a"}, {.name = "b"}};
const std::vector<workload::SloClass> kClasses{{.name = "important", .priority = 10},
                                               {.name = "standard", .priority = 3},
                                               {.name = "batch", .priority = -1},
                                               {.name = "spare", .priority = -2},
                                               {.name = "neutral", .priority = 0}};
enum Class : std::uint16_t { kImportant, kStandard, kBatch, kSpare, kNeutral };

/// Bands, and the requests offered to them.
struct BandsSetup {
  explicit BandsSetup(std::vector<Offered> offered, Gateway config = {},
                      std::vector<workload::Tenant> tenants = kTenants)
      : table(make_table(offered, std::move(tenants), kClasses)), bands(config, *table) {}

  void join(std::size_t request, double at_s = 0) {
    bands.of(id(request)).join(id(request), view_of_nothing(), from_seconds(at_s));
  }
  // The requests of the first band in order of dispatch, if all may start.
  std::vector<std::size_t> drain(double at_s = 0) {
    std::vector<std::size_t> gone;
    while (const auto taken = bands[0].take_next(Open{}, from_seconds(at_s))) {
      gone.push_back(taken->id.index());
    }
    return gone;
  }

  std::unique_ptr<workload::RequestTable> table;
  Bands bands;
};

Gateway with_bands(std::vector<Band> bands) {
  Gateway config;
  config.bands = std::move(bands);
  return config;
}

void a_request_joins_the_highest_band_that_its_class_reaches() {
  BandsSetup setup({{0, kImportant}, {0, kStandard}, {0, kSpare}},
                   with_bands({{.priority = 0}, {.priority = 10}}));
  check(setup.bands[0].priority() == 10 && setup.bands[1].priority() == 0, "the highest first");
  check(&setup.bands.of(id(0)) == &setup.bands[0], "important");
  check(&setup.bands.of(id(1)) == &setup.bands[1], "standard");
  check(&setup.bands.of(id(2)) == &setup.bands[1], "the lowest takes the rest");
  check(!setup.bands.first_waiting() && !setup.bands.are_due(), "nothing waits");
  setup.join(1);
  check(setup.bands.first_waiting() == std::size_t{1} && setup.bands.are_due(), "in the second");
  check(setup.bands.size() == 1 && setup.bands.length(TenantId{0}) == 1, "one");
}

void a_tenant_with_a_full_queue_is_refused() {
  BandsSetup setup({{0}, {0}, {1}}, with_bands({{.queue = {.max_requests = 1}}}));
  setup.join(0);
  const Bands::Room own = setup.bands.make_room(id(1), {});
  check(!own.is_there && !own.displaced, "its queue is full, and drops its tail");
  check(setup.bands.make_room(id(2), {}).is_there, "the other tenant's is not");
}

void a_tenant_s_own_bound_counts_instead() {
  std::vector<workload::Tenant> tenants = kTenants;
  tenants[0].queue_max = 2;
  BandsSetup setup({{0}, {0}, {0}}, with_bands({{.queue = {.max_requests = 1}}}), tenants);
  setup.join(0);
  check(setup.bands.make_room(id(1), {}).is_there, "two may wait");
  setup.join(1);
  check(!setup.bands.make_room(id(2), {}).is_there, "three may not");
}

// The newcomer takes a place at all three levels.
void a_queue_that_drops_its_head_has_room_in_every_bound() {
  Gateway config =
      with_bands({{.max_requests = 1, .queue = {.max_requests = 1, .drop = gateway::Drop::head}}});
  config.max_queued = 1;
  BandsSetup setup({{0}, {0}}, config);
  setup.join(0);
  const Bands::Room room = setup.bands.make_room(id(1), {});
  check(room.is_there && room.displaced == id(0), "the head gave its place");
  check(setup.bands.size() == 0, "and is out");
}

void a_full_band_refuses_every_tenant() {
  BandsSetup setup({{0, kBatch}, {1, kImportant}}, with_bands({{.max_requests = 1}}));
  setup.join(0);
  const Bands::Room room = setup.bands.make_room(id(1), {});
  check(!room.is_there && !room.displaced, "nothing is displaced, however unimportant");
  check(setup.bands.size() == 1, "it waits on");
}

Gateway full_at(std::int64_t most, bool sheds) {
  Gateway config = with_bands({{.priority = 3}, {.priority = -1000}});
  config.max_queued = most;
  config.queue_shedding = sheds;
  return config;
}

void a_full_gateway_refuses_unless_it_sheds() {
  BandsSetup setup({{0, kSpare}, {1, kImportant}}, full_at(1, false));
  check(setup.bands.make_room(id(0), {}).is_there, "it is empty");
  setup.join(0);
  check(!setup.bands.make_room(id(1), {}).is_there, "it is full");
}

void a_full_gateway_displaces_the_least_important() {
  BandsSetup setup({{0, kBatch}, {0, kSpare}, {1, kSpare}, {0, kStandard}, {1, kBatch}},
                   full_at(4, true));
  for (std::size_t i = 0; i < 4; ++i) setup.join(i);
  const auto displaced_by_batch = setup.bands.make_room(id(4), {}).displaced;
  check(displaced_by_batch == id(2), "the newest of the least important");
  setup.join(4);
  const auto next = setup.bands.make_room(id(3), {});
  check(next.is_there && next.displaced == id(1), "then the other");
}

void only_more_important_requests_displace() {
  Gateway config = full_at(1, true);
  config.bands[0].priority = -1;
  BandsSetup setup({{0, kBatch}, {1, kBatch}, {1, kSpare}, {0, kStandard}}, config);
  setup.join(0);
  check(!setup.bands.make_room(id(1), {}).is_there, "not equals");
  check(!setup.bands.make_room(id(2), {}).is_there, "not lesser ones");
  check(setup.bands.make_room(id(3), {}).displaced == id(0), "a standard one does");
}

void only_sheddable_requests_are_displaced() {
  BandsSetup setup({{0, kStandard}, {1, kImportant}}, full_at(1, true));
  setup.join(0);
  check(!setup.bands.make_room(id(1), {}).is_there, "a standard request stays");

  BandsSetup boundary({{0, kNeutral}, {1, kImportant}, {1, kBatch}}, full_at(1, true));
  boundary.join(0);
  check(!boundary.bands.make_room(id(1), {}).is_there, "priority 0 is not sheddable");
  check(!boundary.bands.make_room(id(2), {}).is_there, "nor displaced by a sheddable one");
}

void waits_end_after_the_time_out_of_their_band() {
  BandsSetup setup({{0, kImportant}, {0, kImportant}, {1, kSpare}},
                   with_bands({{.priority = 3, .queue = {.timeout_s = 4}},
                               {.priority = -1000, .queue = {.timeout_s = 1}}}));
  check(setup.bands.next_timeout() == sim::kForever, "nothing waits");
  setup.join(0, 0);
  setup.join(1, 1);
  check(setup.bands.next_timeout() == from_seconds(4), "of the first");
  setup.join(2, 2);
  check(setup.bands.next_timeout() == from_seconds(3), "of the band that is less patient");
  check(!setup.bands.take_expired(from_seconds(2.9)), "none yet");
  check(setup.bands.take_expired(from_seconds(4.5)) == id(0), "the highest band first");
  check(setup.bands.take_expired(from_seconds(4.5)) == id(2), "then the next");
  check(!setup.bands.take_expired(from_seconds(4.5)), "the last has half a second left");
  check(setup.bands.size() == 1, "and waits");
}

void one_that_comes_too_late_is_taken_out_undispatched() {
  BandsSetup setup({{0}, {0}, {0}, {0}},
                   with_bands({{.queue = {.codel_target_s = 1, .codel_interval_s = 5}}}));
  for (std::size_t i = 0; i < 4; ++i) setup.join(i, 0);
  const auto is_too_late = [&](double at_s) {
    return setup.bands[0].take_next(Open{}, from_seconds(at_s))->is_too_late;
  };
  check(!is_too_late(3), "the first of an interval never is");
  check(!is_too_late(8), "nor the next, which finds an interval without a short wait");
  check(is_too_late(8), "but those behind it");
}

void policies_that_commit_are_due_while_nothing_waits() {
  const auto is_due = [](gateway::DrrSemantics semantics) {
    BandsSetup setup(
        {{0}}, with_bands({{.fairness = gateway::DeficitRoundRobin{.semantics = semantics}}}));
    return setup.bands.are_due();
  };
  check(is_due(gateway::DrrSemantics::verbatim), "its loop turns at every permit");
  check(!is_due(gateway::DrrSemantics::corrected), "as published it does not");
}

// ---- charges -------------------------------------------------------------------------------

Gateway charging(const gateway::Cost& cost) {
  return with_bands({{.fairness = gateway::StartTimeFair{.cost = cost}}});
}

void a_request_that_leaves_undispatched_gets_its_charge_back() {
  BandsSetup setup({{0}, {0}, {1}}, charging({.charge_at = gateway::ChargeAt::enqueue}));
  for (std::size_t i = 0; i < 3; ++i) setup.join(i);
  setup.bands[0].withdraw(id(1), {});
  // Each tenant has paid for one request, so the first goes; otherwise it would have paid for two.
  check(setup.drain() == std::vector<std::size_t>{0, 2}, "in order of tenants");
}

/// Scripted numbers of emitted tokens, by tenant and class.
struct Meter final : gateway::ServiceMeter {
  const std::vector<std::int64_t>& emitted(Time) override { return tokens; }
  std::vector<std::int64_t> tokens = std::vector<std::int64_t>(kTenants.size() * kClasses.size());
};
const gateway::Cost kByToken{.unit = gateway::CostUnit::weighted_tokens,
                             .prompt_weight = 0,
                             .output_weight = 1,
                             .charge_at = gateway::ChargeAt::token};

void tokens_are_charged_once_and_to_their_tenant() {
  BandsSetup setup({{0, kStandard}, {1, kStandard}, {0, kStandard}, {1, kStandard}},
                   charging(kByToken));
  Meter meter;
  setup.bands.set_meter(meter);
  for (std::size_t i = 0; i < 4; ++i) setup.join(i);
  const auto next = [&] {
    setup.bands[0].charge_tokens({});
    return setup.bands[0].take_next(Open{}, {})->id;
  };
  meter.tokens[kStandard] = 100;
  check(next() == id(1), "tenant a has got more");
  meter.tokens[kClasses.size() + kStandard] = 150;
  check(next() == id(0), "now b has: a's hundred are not charged again");
}

void tokens_of_another_band_do_not_count() {
  Gateway config = charging(kByToken);
  config.bands[0].priority = 3;
  config.bands.push_back({.priority = -1000});
  BandsSetup setup({{0, kStandard}, {1, kStandard}}, config);
  Meter meter;
  setup.bands.set_meter(meter);
  setup.join(0);
  setup.join(1);
  meter.tokens[kSpare] = 100;
  setup.bands[0].charge_tokens({});
  check(setup.drain() == std::vector<std::size_t>{0, 1}, "a's tokens are of the lower band");
}

}  // namespace

CASES(a_request_joins_the_highest_band_that_its_class_reaches,
      a_tenant_with_a_full_queue_is_refused, a_tenant_s_own_bound_counts_instead,
      a_queue_that_drops_its_head_has_room_in_every_bound, a_full_band_refuses_every_tenant,
      a_full_gateway_refuses_unless_it_sheds, a_full_gateway_displaces_the_least_important,
      only_more_important_requests_displace, only_sheddable_requests_are_displaced,
      waits_end_after_the_time_out_of_their_band, one_that_comes_too_late_is_taken_out_undispatched,
      policies_that_commit_are_due_while_nothing_waits,
      a_request_that_leaves_undispatched_gets_its_charge_back,
      tokens_are_charged_once_and_to_their_tenant, tokens_of_another_band_do_not_count);
