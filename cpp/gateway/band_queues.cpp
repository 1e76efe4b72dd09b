#include "gateway/band_queues.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <variant>

#include "sim/schema/codec.h"

namespace spillway::gateway {

using sim::RequestId;
using sim::TenantId;
using sim::Time;

namespace {

std::optional<Charging> make_charging(const Fairness& fairness,
                                      const workload::RequestTable& requests) {
  const Cost* cost = cost_of(fairness);
  if (!cost) return std::nullopt;
  return Charging(*cost, requests);
}

std::vector<double> weights_of(std::span<const workload::Tenant> tenants) {
  std::vector<double> weights;
  weights.reserve(tenants.size());
  for (const workload::Tenant& tenant : tenants) weights.push_back(tenant.weight);
  return weights;
}

// Maximum number of waiting requests of each tenant.
std::vector<std::size_t> max_by_tenant(const Queue& config,
                                       std::span<const workload::Tenant> tenants) {
  std::vector<std::size_t> most;
  most.reserve(tenants.size());
  for (const workload::Tenant& tenant : tenants) {
    const auto own = tenant.queue_max ? tenant.queue_max : config.max_requests;
    most.push_back(own ? static_cast<std::size_t>(*own) : std::numeric_limits<std::size_t>::max());
  }
  return most;
}

}  // namespace

BandQueues::BandQueues(const Band& config, const workload::RequestTable& requests,
                       std::vector<std::size_t> classes)
    : requests_(requests),
      priority_(config.priority),
      max_of_tenant_(max_by_tenant(config.queue, requests.tenants)),
      max_requests_(config.max_requests),
      fairness_(std::visit([&](const auto& c) { return make(c, weights_of(requests.tenants)); },
                           config.fairness)),
      chooses_requests_(fairness_->chooses_requests()),
      drains_when_empty_(fairness_->drains_when_empty()),
      decays_with_time_(fairness_->decays_with_time()),
      charging_(make_charging(config.fairness, requests)),
      queues_(requests.tenants.size(), config.queue,
              std::ranges::any_of(requests.slo_classes,
                                  [](const auto& c) { return c.queue_timeout_s.has_value(); })),
      classes_(std::move(classes)),
      tokens_charged_(requests.num_groups()) {}

void BandQueues::change(const Band& from, const Band& to, std::span<const workload::Tenant> tenants,
                        bool are_weights_new, Time now) {
  max_of_tenant_ = max_by_tenant(to.queue, tenants);
  max_requests_ = to.max_requests;
  queues_.change(to.queue, now);
  if (!are_weights_new && !sim::differ(from.fairness, to.fairness)) return;
  fairness_->change(to.fairness, weights_of(tenants));
}

// ---- room ----------------------------------------------------------------------------------

std::optional<RequestId> BandQueues::make_room(RequestId newcomer, Time now) {
  const auto removed =
      queues_.make_room(tenant_of(newcomer), requests_.class_of(newcomer).priority);
  if (!removed) return std::nullopt;
  return drop(*removed, now);
}

std::optional<RequestId> BandQueues::take_least(std::int64_t priority, Time now) {
  const auto removed = queues_.take_least(priority);
  if (!removed) return std::nullopt;
  return drop(*removed, now);
}

// ---- life of a request ---------------------------------------------------------------------

void BandQueues::join(RequestId id, const signals::View& view, Time now) {
  const TenantId tenant = tenant_of(id);
  const workload::SloClass& slo_class = requests_.class_of(id);
  TenantQueues::Entry entry{.request = id, .entered = now, .priority = slo_class.priority};
  if (queues_.needs_deadlines() && slo_class.target_ttft_s) {
    entry.deadline = requests_.arrival(id) + sim::from_seconds(*slo_class.target_ttft_s);
  }
  if (queues_.needs_outputs()) entry.deadline = Time{requests_.predicted_output_tokens(id)};
  if (slo_class.queue_timeout_s) entry.timeout = sim::from_seconds(*slo_class.queue_timeout_s);
  if (charging_) {
    charging_->estimate({requests_, id}, view);
    entry.cost = charging_->at_dispatch(id);
  }
  // The rank of a flow that becomes backlogged depends on the service of the others.
  if (queues_.length(tenant) == 0) charge_tokens(now);
  queues_.push(tenant, entry);
  fairness_->joined(tenant, queues_, now);
  if (chooses_requests_) fairness_->entered({requests_, id}, slo_class, view, now);
  if (charging_) charge(tenant, charging_->at_enqueue(id), now);
}

std::optional<BandQueues::Taken> BandQueues::take_next(const FairnessPolicy::MayStart& may_start,
                                                       Time now) {
  if (chooses_requests_) {
    const auto chosen = fairness_->next_request(may_start);
    if (!chosen) return std::nullopt;
    queues_.withdraw(tenant_of(*chosen), *chosen);
    return Taken{*chosen, false};
  }
  const auto flow = fairness_->next(queues_, may_start, now);
  if (!flow) return std::nullopt;
  const bool is_too_late = queues_.is_too_late(*flow, now);
  const RequestId id = queues_.pop(*flow);
  if (is_too_late) return Taken{drop({*flow, id}, now), true};
  fairness_->dispatched(*flow, queues_, now);
  if (charging_) charge(*flow, charging_->at_dispatch(id), now);
  return Taken{id, false};
}

void BandQueues::charge_first_token(const Charging& charging, RequestId id, Time now) {
  charge(tenant_of(id), charging.at_first_token(id), now);
}

void BandQueues::ended(RequestId id, bool is_completed, Time now) {
  if (decays_with_time_) charge_tokens(now);
  if (charging_ && charging_->follows_ends()) {
    charge(tenant_of(id), charging_->at_end(id, is_completed), now);
  }
}

void BandQueues::withdraw(RequestId id, Time now) {
  drop(queues_.withdraw(tenant_of(id), id), now);
}

std::optional<RequestId> BandQueues::take_expired(Time now) {
  const auto removed = queues_.take_expired(now);
  if (!removed) return std::nullopt;
  return drop(*removed, now);
}

RequestId BandQueues::drop(TenantQueues::Removed removed, Time now) {
  fairness_->left(removed.flow, queues_, now);
  if (chooses_requests_) fairness_->removed(removed.request);
  if (charging_) charge(removed.flow, charging_->refund(removed.request), now);
  return removed.request;
}

void BandQueues::charge_emitted(const Charging& charging, Time now) {
  const std::vector<std::int64_t>& emitted = meter_->emitted(now);
  const std::size_t num_classes = requests_.slo_classes.size();
  for (std::size_t i = 0; i < requests_.tenants.size(); ++i) {
    std::int64_t tokens = 0;
    for (const std::size_t slo_class : classes_) {
      const std::size_t group = i * num_classes + slo_class;
      tokens += emitted[group] - tokens_charged_[group];
      tokens_charged_[group] = emitted[group];
    }
    if (tokens == 0) continue;
    fairness_->charge(TenantId{i}, charging.per_token() * static_cast<double>(tokens), now);
  }
}

}  // namespace spillway::gateway
